"""Builds with nvcc: nvcc runs as it is, and the PTX between its steps cicc and ptxas is optimized."""
