"""Fuses launches of a host program: motion over its control flow, legality, the fused kernels."""
