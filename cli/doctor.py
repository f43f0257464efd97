"""`ptxmotion doctor`: is everything on this machine that ptxmotion needs? `--calibrate`: what does its GPU cost?"""

from __future__ import annotations

import argparse
import sys

from .outcome import FINE, MISSING, CommandError

EPILOG = """\
examples:
  ptxmotion doctor
  ptxmotion doctor --calibrate     (on a machine with a GPU: `fuse` then goes by what was measured)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `doctor`."""
    parser.add_argument("--json", action="store_true", default=None, help="as JSON")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        default=None,
        help="measure launch, graph node, barrier and bandwidth of the first GPU, and keep them for `fuse`",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 4 where something needed is missing."""
    if arguments.calibrate:
        return _calibrate(is_json=bool(arguments.json))
    from ..harness import doctor

    return doctor.run(sys.stdout, json=bool(arguments.json))


_COSTS = {
    "launch": "launch",
    "graph_node": "graph node",
    "cooperative_launch": "cooperative launch, more than another",
    "cooperative_node": "cooperative graph node, likewise",
    "barrier": "barrier of a block",
    "grid_barrier": "barrier of a grid",
    "grid_block": "for each block more in it",
    "block": "block that does nothing",
}


def _calibrate(*, is_json: bool) -> int:
    """Measure, keep, print."""
    import json

    from ..harness.calibrate import calibrate
    from ..harness.machine import MachineMissing
    from .machine_costs import costs_path, write_costs

    try:
        from ..harness.cuda import open_backend

        found = calibrate(open_backend())
    except MachineMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: --calibrate needs a GPU: {error}") from error
    write_costs(found)
    if is_json:
        print(json.dumps(found, indent=2))
        return FINE
    print(f"{found['machine']}, {found['multiprocessors']} multiprocessors of {found['threads']} threads")
    for name, what in _COSTS.items():
        print(f"{what:38} {found[name] * 1e6:10.4f} us")
    print(f"{'bandwidth':38} {found['bandwidth'] / 1e12:10.4f} TB/s")
    print(f"kept in {costs_path()}")
    return FINE
