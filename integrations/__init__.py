"""Hooks for CuPy, Numba and Triton: the PTX of their kernels is optimized when a program compiles them.

Each module has a function ``enable``, which returns a `Hook`. The libraries are imported by this function only.
"""
