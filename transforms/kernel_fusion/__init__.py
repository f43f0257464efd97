"""Fuses launches of a host program: moves launches over the control flow, decides which pairs are legal to fuse, and
builds the fused kernels.
"""
