"""The SIMT emulator: runs a kernel on NumPy lanes, and counts what a GPU would have executed."""
