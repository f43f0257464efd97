"""The costs of this machine's GPU, as `doctor --calibrate` measured them, for `fuse`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import cache_folder
from ..cli.outcome import BAD_INPUT, MISSING, CommandError

if TYPE_CHECKING:
    from ..transforms.kernel_fusion.benefit import MachineCosts

__all__ = ["costs_path", "read_costs", "write_costs"]


def costs_path() -> Path:
    """Where they are kept: in ``$PTXMOTION_CACHE`` or the user's cache folder. Raises `CommandError` without either."""
    folder = cache_folder()
    if folder is None:
        raise CommandError(MISSING, "ptxmotion: error: there is no home folder: set PTXMOTION_CACHE to a folder")
    return folder / "machine-costs.json"


def write_costs(costs: Mapping[str, Any]) -> None:
    """Keep what was measured. Raises `CommandError` where the folder cannot be written to."""
    from ..cli.files import Outputs

    path = costs_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    outputs = Outputs()
    outputs.add(str(path), json.dumps(dict(costs), indent=2) + "\n")
    outputs.commit()


def read_costs() -> MachineCosts:
    """What was measured here; an H200's costs where nothing was. Raises `CommandError` for a file that is broken."""
    from ..transforms.kernel_fusion.benefit import MachineCosts

    if cache_folder() is None:
        return MachineCosts()
    path = costs_path()
    if path.exists() and not path.is_file():
        raise CommandError(BAD_INPUT, f"{path}: error: this is no regular file, and no calibration")
    try:
        return MachineCosts.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return MachineCosts()
    except (ValueError, AttributeError) as error:
        message = f"{path}: error: no calibration ({error}): run `ptxmotion doctor --calibrate`, or delete the file"
        raise CommandError(BAD_INPUT, message) from error
