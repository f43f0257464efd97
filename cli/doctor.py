"""`ptxmotion doctor`: is everything on this machine that ptxmotion needs? `--calibrate`: what does its GPU cost?"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .outcome import FINE, MISSING, CommandError

if TYPE_CHECKING:
    from ..harness.doctor import Check

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

    return doctor.run(sys.stdout, json=bool(arguments.json), more=[_settings(arguments)])


def _settings(arguments: argparse.Namespace) -> Check:
    """Which settings file is used, and whether it may name what is executed and written."""
    import os

    from ..harness.doctor import Check
    from ..settings import Source, find_settings

    if arguments.no_config:
        return Check("settings", True, "none: --no-config", needed=False)
    source = Source(arguments.config) if arguments.config else find_settings(os.getcwd())
    if source is None:
        return Check("settings", True, "no file", needed=False)
    if not source.doubt:
        return Check("settings", True, source.path, needed=False)
    detail = f"{source.path}: nothing in it that executes or writes counts: {source.doubt}"
    return Check("settings", False, detail, "name it with --config where it is yours", needed=False)


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
    from ..programs.machine_costs import costs_file_text, costs_path
    from .files import Outputs

    try:
        from ..harness.cuda import open_backend

        found = calibrate(open_backend())
    except MachineMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: --calibrate needs a GPU: {error}") from error
    path = costs_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = Outputs()
    outputs.add(str(path), costs_file_text(found))
    outputs.commit()
    if is_json:
        print(json.dumps(found, indent=2))
        return FINE
    print(f"{found['machine']}, {found['multiprocessors']} multiprocessors of {found['threads']} threads")
    for name, what in _COSTS.items():
        print(f"{what:38} {found[name] * 1e6:10.4f} us")
    print(f"{'bandwidth':38} {found['bandwidth'] / 1e12:10.4f} TB/s")
    print(f"written to {path}")
    return FINE
