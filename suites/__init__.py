"""Benchmark programs: kernels, host program, data and a NumPy reference each. Sees every other package."""
