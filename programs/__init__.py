"""Runs of benchmarks, of fused and of timed programs: what the command line and the pytest plugin start.

`cli` parses arguments and prints; this folder does the work between. It may import every other folder but `cli`.
Errors of its own are in `errors`; the command line maps each class to an exit code.
"""
