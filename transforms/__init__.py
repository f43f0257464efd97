"""Kernel to kernel: the transforms, and the pipeline that runs them."""
