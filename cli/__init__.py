"""The command `ptxmotion`: its verbs, its exit codes, and how it reports errors.

Each verb is a module of this folder with `add_arguments(parser)` and `run(arguments) -> int`. A verb is imported only
when it is called or listed, and it imports the modules it needs when it runs.

Data goes to stdout; progress, remarks and messages go to stderr. An exit code is never a count:

    0  success                                4  a tool or a GPU is missing; the message says how to install it
    1  a regression or a mismatch             5  inconclusive, if --fail-on names it; `verify A B`; `bisect`
    2  wrong usage or wrong settings          70 internal error, with a saved reproducer
    3  bad input, or ptxas rejects the output

An interrupt (130) and a closed pipe (141) end the command without a message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .dispatch import dispatch
from .outcome import guarded

__all__ = ["collect_garbage_rarely", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (by default the arguments of the process) and return its exit code.

    >>> main(["opt", "--print-passes"])  # doctest: +ELLIPSIS
    cse...
    """
    if argv is None:
        collect_garbage_rarely()
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(arguments, dispatch)


def collect_garbage_rarely(objects: int = 50_000) -> None:
    """Let the garbage collector run after so many new ``objects`` instead of 700, and not at the end of the process.

    Parsing and analyses make many objects that live long, and few reference cycles. With the default threshold,
    `opt -O3` without the gate takes 16 % more time (six public files of 30 to 120 kB, two cores, Python 3.11). At its
    end, Python would visit all objects several times.
    """
    import atexit
    import gc

    gc.set_threshold(objects, 20, 50)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
