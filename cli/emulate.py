"""`ptxmotion emulate`: runs a kernel on the SIMT emulator, counts its instructions, and checks its accesses."""

from __future__ import annotations

import argparse

EPILOG = """\
An ARG is an array, a value or a structure. Arrays: f32[1000] (zeros), i32[64]:range (0, 1, 2, ...), f32[64]:normal
(random), i32[64]:5 (all 5), x.npy (from a file). Values: i32:7, f32:2.5. Structures: 00ff:bytes (hexadecimal).
=FILE.npy after an array saves its content after the launch.

examples:
  ptxmotion emulate scale.ptx --grid 4 --block 256 --arg f32:2 --arg f32[1000]:normal=out.npy --arg i32:1000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `emulate`."""
    from ..harness import emulate_cli

    emulate_cli.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 1 if a check reports something."""
    from ..harness import emulate_cli

    return emulate_cli.run(arguments)
