"""Run kernels, read what ptxas made of them, time and compare them.

It imports `ptx`, `emulator` and `toolchain`. Importing this package loads none of its modules; a verb imports those
that it needs.
"""
