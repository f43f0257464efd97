"""What differs between the lanes of a warp, and where warps diverge and meet again."""
