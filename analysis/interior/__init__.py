"""The interior of a grid: the blocks of threads in which the border checks of a kernel do nothing."""
