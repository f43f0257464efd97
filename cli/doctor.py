"""`ptxmotion doctor`: checks that this machine has everything that ptxmotion needs. `--calibrate` measures its GPU."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .outcome import FINE, MISSING, CommandError

if TYPE_CHECKING:
    from ..harness.doctor import Check

EPILOG = """\
nvcc, ptxas, cuobjdump and nvdisasm are searched in this order: PTXMOTION_NVCC, PTXMOTION_PTXAS, ... in the environment;
NVIDIA's wheels, which are installed with ptxmotion; an installed CUDA of version 13.0 or newer. The wheels put nothing
on PATH; --path prints what to put there.

examples:
  ptxmotion doctor
  export PATH="$(ptxmotion doctor --path):$PATH"
  ptxmotion doctor --calibrate     (on a machine with a GPU; `fuse` and image pipelines use these costs)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `doctor`."""
    parser.add_argument("--json", action="store_true", default=None, help="print the report as JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--path",
        action="store_true",
        help="print only the folders of nvcc, ptxas, cuobjdump and nvdisasm, separated by colons, for PATH",
    )
    what.add_argument(
        "--calibrate",
        action="store_true",
        default=None,
        help="measure the costs of launches, graph nodes, barriers and memory traffic on the first GPU, for `fuse`",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 4 if something required is missing."""
    if arguments.path:
        return _path()
    if arguments.calibrate:
        return _calibrate(is_json=bool(arguments.json))
    from ..harness import doctor

    return doctor.run(sys.stdout, json=bool(arguments.json), more=[_settings(arguments), _injection()])


def _path() -> int:
    """Print the folders of the tools; the exit code: 4 if a tool is missing."""
    import os

    from ..toolchain.tools import TOOLS, ToolMissing, find_tool, wheel_folder

    folders: list[str] = []
    missing: list[str] = []
    for name in TOOLS:
        try:
            folders.append(str(find_tool(name).path.absolute().parent))
        except ToolMissing as error:
            missing.append(str(error))
    # An empty text in front of a colon of PATH would mean the current folder.
    print(os.pathsep.join(dict.fromkeys(folders)) or wheel_folder())
    if missing:
        raise CommandError(MISSING, "\n".join(f"ptxmotion: error: {each}" for each in missing))
    return FINE


def _settings(arguments: argparse.Namespace) -> Check:
    """Which settings file is used, and whether its settings that execute or write files are used."""
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
    detail = f"{source.path}: settings that execute or write files are ignored: {source.doubt}"
    return Check("settings", False, detail, "if the file is yours, name it with --config", needed=False)


def _injection() -> Check:
    """Whether the library of `ptxmotion run` was built."""
    from ..harness.doctor import Check
    from ..injection.library import NoLibrary, find_library

    try:
        return Check("library for run", True, find_library(), needed=False)
    except NoLibrary as error:
        problem, _, advice = str(error).partition("\n")
        return Check("library for run", False, problem, advice, needed=False)


_COSTS = {
    "launch": "launch",
    "graph_node": "graph node",
    "cooperative_launch": "cooperative launch, extra cost",
    "cooperative_node": "cooperative graph node, extra cost",
    "barrier": "barrier of a block",
    "grid_barrier": "barrier of a grid",
    "grid_block": "barrier of a grid, each further block",
    "block": "empty block",
}


def _calibrate(*, is_json: bool) -> int:
    """Measure the costs, write them to the calibration file, and print them."""
    import json

    from ..harness.calibrate import calibrate
    from ..harness.machine import MachineMissing
    from ..programs.machine_costs import costs_file_text, costs_path
    from .files import Outputs

    try:
        from ..harness.cuda import open_backend

        costs = calibrate(open_backend())
    except MachineMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: --calibrate needs a GPU: {error}") from error
    path = costs_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = Outputs()
    outputs.add(str(path), costs_file_text(costs))
    outputs.commit()
    if is_json:
        print(json.dumps(costs, indent=2))
        return FINE
    print(f"{costs['machine']}, {costs['multiprocessors']} multiprocessors of {costs['threads']} threads")
    for name, what in _COSTS.items():
        print(f"{what:38} {costs[name] * 1e6:10.4f} us")
    print(f"{'bandwidth':38} {costs['bandwidth'] / 1e12:10.4f} TB/s")
    print(f"written to {path}")
    return FINE
