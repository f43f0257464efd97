"""Builds with nvcc: nvcc runs unchanged, and the PTX that its step cicc writes is optimized before ptxas reads it."""
