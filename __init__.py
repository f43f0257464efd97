"""ptxmotion: a post-compilation optimizer for NVIDIA PTX."""

__version__ = "0.1.0"
