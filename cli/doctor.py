"""`ptxmotion doctor`: is everything on this machine that ptxmotion needs?"""

from __future__ import annotations

import argparse
import sys

EPILOG = """\
examples:
  ptxmotion doctor
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `doctor`."""
    parser.add_argument("--json", action="store_true", default=None, help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 4 where something needed is missing."""
    from ..harness import doctor

    return doctor.run(sys.stdout, json=bool(arguments.json))
