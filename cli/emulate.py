"""`ptxmotion emulate`: run a kernel on the SIMT emulator, count what it executes, and check what it accesses."""

from __future__ import annotations

import argparse

EPILOG = """\
An ARG is f32[1000] (zeros), i32[64]:range, f32[64]:normal, i32[64]:5, x.npy (an array from a file), i32:7, f32:2.5
(a value), or 00ff:bytes (a structure); =FILE.npy behind an array saves what comes back.

examples:
  ptxmotion emulate scale.ptx --grid 4 --block 256 --arg f32:2 --arg f32[1000]:normal=out.npy --arg i32:1000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `emulate`."""
    from ..harness import emulate_cli

    emulate_cli.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 1 where the checks found something."""
    from ..harness import emulate_cli

    return emulate_cli.run(arguments)
