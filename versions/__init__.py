"""Versions of kernels that assume facts of the launch, and the contract that states what each of them assumes."""
