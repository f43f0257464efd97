"""`ptxmotion diff`: compares the machine code that ptxas generates from two PTX files, kernel by kernel."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .argument_types import target
from .opt import ptxas_options
from .outcome import DIFFERENT, FINE

if TYPE_CHECKING:
    from ..toolchain.machine_diff import KernelDiff

EPILOG = """\
A kernel is worse or better by the rule of opt's gate: estimated cycles of one warp, estimated cycles
on a full multiprocessor, and accesses to local memory. A kernel that B lacks is worse. Two kernels are
identical if their code, resources, attributes and the variables of the module are equal. Of a kernel that
the pass isp has split, weighted instructions and cycles are those of the code for most blocks, without
that for blocks at the border of the grid; other figures are of all code. To see what the gate of opt saw,
give --arch and --ptxas-options as they were given to opt.

examples:
  ptxmotion diff before.ptx after.ptx
  ptxmotion diff before.ptx after.ptx --fail-on=worse --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diff`."""
    parser.add_argument("before", metavar="A", help="the earlier PTX file; - is stdin")
    parser.add_argument("after", metavar="B", help="the later PTX file; - is stdin")
    parser.add_argument(
        "--arch", type=target, metavar="SM", help="the target to assemble for (default: that of each module)"
    )
    parser.add_argument(
        "--ptxas-options",
        type=ptxas_options,
        metavar="OPTIONS",
        help="options of ptxas, as those of opt: --ptxas-options=-maxrregcount=32,-O2",
    )
    parser.add_argument(
        "--fail-on",
        choices=("worse", "different"),
        help="exit with 1 if a kernel is worse, or if a kernel is not identical",
    )
    parser.add_argument("--json", action="store_true", default=None, help="print all figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    from ..toolchain.machine_diff import KernelDiff
    from .assembly import assembled_figures
    from .files import decoded, read_bytes

    sides = [
        assembled_figures(decoded(read_bytes(path)), path, arguments.arch, arguments.ptxas_options or ())
        for path in (arguments.before, arguments.after)
    ]
    diffs = [KernelDiff(name, sides[0].get(name), sides[1].get(name)) for name in {**sides[0], **sides[1]}]
    if arguments.json:
        import json

        print(json.dumps({"schema_version": 1, "kernels": [each.to_json() for each in diffs]}, indent=2))
    else:
        _print(diffs)
    failing = {"worse": ("worse",), "different": ("worse", "better", "different", "added")}
    fails = failing.get(arguments.fail_on or "", ())
    return DIFFERENT if any(each.verdict in fails for each in diffs) else FINE


def _print(diffs: list[KernelDiff]) -> None:
    from .tables import print_table

    rows: list[tuple[str | int | None, ...]] = []
    for each in diffs:
        rows.append((each.name, each.verdict, each.worse, None, None))
        if each.is_identical:
            continue
        before = each.before.table() if each.before is not None else {}
        after = each.after.table() if each.after is not None else {}
        for what in before or after:
            if before.get(what) != after.get(what):
                rows.append(("", "", what, before.get(what), after.get(what)))
        if each.before is not None and each.after is not None:
            for kind, (old, new) in each.by_kind().items():
                if old != new:
                    rows.append(("", "", f"  {kind}", old, new))
        rows += [("", "", what, old, new) for what, old, new in each.changes]
    print_table(("kernel", "verdict", "figure", "before", "after"), rows)
    same = sum(each.is_identical for each in diffs)
    sys.stdout.write(f"{same} of {len(diffs)} kernels are identical\n")
