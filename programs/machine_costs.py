"""The calibration file: costs of this machine's GPU, measured by `doctor --calibrate` and read by `fuse`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache import cache_folder
from .errors import BadInput, RequirementMissing

if TYPE_CHECKING:
    from ..transforms.kernel_fusion.benefit import MachineCosts

__all__ = ["costs_file_text", "costs_path", "measured_bandwidth", "read_costs"]


def costs_path() -> Path:
    """The path of the calibration file, in the cache folder. Raises `RequirementMissing` without a cache folder."""
    folder = cache_folder()
    if folder is None:
        raise RequirementMissing("there is no home folder: set PTXMOTION_CACHE to a folder")
    return folder / "machine-costs.json"


def costs_file_text(costs: Mapping[str, Any]) -> str:
    """The content of the calibration file for measured costs (seconds, bytes per second)."""
    return json.dumps(dict(costs), indent=2) + "\n"


def measured_bandwidth(gpu: str) -> float | None:
    """The bandwidth of a copy in the memory of ``gpu``, in bytes per second, as `doctor --calibrate` measured it; None
    where it measured no GPU of this name. Raises `BadInput` for a broken file."""
    if cache_folder() is None or not costs_path().is_file():
        return None
    costs = read_costs()
    return costs.bandwidth if costs.machine == gpu else None


def read_costs() -> MachineCosts:
    """The costs of the calibration file, or those of an H200 where there is no such file. Raises `BadInput` for a
    broken file."""
    from ..transforms.kernel_fusion.benefit import MachineCosts

    if cache_folder() is None:
        return MachineCosts()
    path = costs_path()
    if path.exists() and not path.is_file():
        raise BadInput("this is not a regular file, so it is no calibration", str(path))
    try:
        return MachineCosts.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return MachineCosts()
    except (ValueError, AttributeError, RecursionError) as error:
        message = f"no calibration ({error}): run `ptxmotion doctor --calibrate`, or delete the file"
        raise BadInput(message, str(path)) from error
