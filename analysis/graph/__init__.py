"""The control flow graph of a kernel and what follows from it alone."""
