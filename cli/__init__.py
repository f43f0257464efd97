"""The command `ptxmotion`: its verbs, and what becomes of errors.

Each verb is a module of this folder with `add_arguments(parser)` and `run(arguments) -> int`; it imports what it needs
when it runs, and is imported itself only when it is called or listed.

Data goes to stdout; progress, remarks and messages to stderr. Exit codes, never a count:

    0  fine                                   4  something is missing in the environment (named, with the install line)
    1  a regression or a mismatch             5  inconclusive, where asked to fail on it
    2  usage                                  70 internal error, with a saved reproducer
    3  bad input, or ptxas refuses the output

An interrupt (130) and a closed pipe (141) end the command without a word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .outcome import guarded

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (by default the process's own) and return its exit code.

    >>> main(["opt", "--print-passes"])  # doctest: +ELLIPSIS
    cse...
    """
    if argv is None:
        _collect_garbage_rarely()
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(arguments, _run)


def _collect_garbage_rarely() -> None:
    """Let Python look for reference cycles after 50,000 new objects instead of 700.

    Parsing and analyses make many objects that live long and hardly any cycles. With Python's own threshold `opt -O3`
    without the gate takes 16 % more time (six public files of 30 to 120 kB, two cores, Python 3.11).
    """
    import gc

    gc.set_threshold(50_000, 20, 50)


def _run(argv: list[str]) -> int:
    from .arguments import parse_arguments, verb_module

    arguments = parse_arguments(argv)
    return verb_module(arguments.verb).run(arguments)
