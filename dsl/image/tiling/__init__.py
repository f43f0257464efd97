"""Who shares a tile: the threads of a block, or those of a warp."""
