"""Launches of kernels under a launch contract: on a GPU, or on the emulator."""
