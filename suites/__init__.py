"""Benchmark programs. Each has kernels, a host program, data, and a reference in NumPy."""
