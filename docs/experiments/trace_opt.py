"""The way of a file through `opt`: which module calls which, in the order of the first calls.

    python docs/experiments/trace_opt.py [--depth N] FILE.ptx [OPTION ...]

Runs ``ptxmotion opt FILE.ptx`` with the options twice in this process and prints a tree of the second run. Each line
is a function of this package that is called from another module, and how often; calls within a module are left out.
``--depth`` limits the tree to so many modules on top of each other. The last lines name pairs of modules that call each
other. `Facts.get` and `memoized` call functions of the modules that call them; `analysis.manager` and
`analysis.memoized` are left out there.

Requires: nothing but the package. Times are not measured: the profiler makes everything slow.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from types import FrameType
from typing import Any

PACKAGE = "ptxmotion"

#: Modules that call the functions that are handed to them.
CALL_BACK = {"analysis.manager", "analysis.memoized"}


class Trace:
    """``calls`` maps (caller, callee), each a (module, function), to the number of calls, in the order of first calls.

    ``depths`` maps the same key to the depth of the first call, in calls between modules.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[tuple[str, str], tuple[str, str]]] = Counter()
        self.depths: dict[tuple[tuple[str, str], tuple[str, str]], int] = {}
        self._stack: list[tuple[FrameType, tuple[str, str]]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """The profile function, for `sys.setprofile`."""
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            if not module.startswith(f"{PACKAGE}."):
                return
            place = module.removeprefix(f"{PACKAGE}."), frame.f_code.co_qualname
            if self._stack and self._stack[-1][1][0] != place[0]:
                key = self._stack[-1][1], place
                self.calls[key] += 1
                self.depths.setdefault(key, len({each[1][0] for each in self._stack}))
            self._stack.append((frame, place))
        elif event == "return" and self._stack and self._stack[-1][0] is frame:
            self._stack.pop()

    def mutual(self) -> list[tuple[str, str]]:
        """Pairs of modules that call each other."""
        arrows = {(caller[0], callee[0]) for caller, callee in self.calls}
        both = (pair for pair in arrows if pair[0] < pair[1] and (pair[1], pair[0]) in arrows)
        return sorted(pair for pair in both if CALL_BACK.isdisjoint(pair))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depth", type=int, default=99, metavar="N", help="modules on top of each other")
    parser.add_argument("file", help="PTX to optimize")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of opt, such as -O3 --gate=off")
    arguments = parser.parse_args()
    from ptxmotion.cli import main as command

    opt = ["opt", "--no-config", arguments.file, "-o", os.devnull, *arguments.options]
    trace = Trace()
    with tempfile.TemporaryDirectory() as empty:
        os.environ["PTXMOTION_CACHE"] = os.path.join(empty, "first")
        command(opt)  # imports everything
        os.environ["PTXMOTION_CACHE"] = os.path.join(empty, "second")
        sys.setprofile(trace)
        try:
            code = command(opt)
        finally:
            sys.setprofile(None)
    for (caller, callee), number in trace.calls.items():
        depth = trace.depths[caller, callee]
        if depth > arguments.depth:
            continue
        indent = "  " * depth
        print(f"{indent}{callee[0]}: {callee[1]}  (from {caller[0]}: {caller[1]}, {number} times)")
    for one, other in trace.mutual():
        print(f"call each other: {one}, {other}")
    return code


if __name__ == "__main__":
    sys.exit(main())
