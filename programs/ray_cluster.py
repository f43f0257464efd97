"""The connection to a Ray cluster, and what its workers need to know of this process.

The address is that of the environment variable RAY_ADDRESS, or of the cluster that `ray start` has started on this
computer. Where there is neither, a cluster of this computer is started, which ends with this process.

Requires: the extra `ray`; on each node the same version of ptxmotion. Guarantees: nothing is imported from the current
folder; Ray sends no usage statistics from a cluster that is started here.
Refuses: `RequirementMissing` if Ray is not installed, or if the cluster cannot be used.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache import source_digest
from ..python_child import FOLDER
from .errors import RequirementMissing

__all__ = ["ATTEMPTS", "Origin", "connected", "reason_of"]

#: How often a piece of work is given to workers that are lost, before it is given up.
ATTEMPTS = 3

_PREFIX = "PTXMOTION_"


@dataclass(frozen=True)
class Origin:
    """The process that started a run: its current folder, its environment variables ``PTXMOTION_…``, and the digest of
    its package."""

    folder: str
    environment: Mapping[str, str]
    package: str

    @classmethod
    def here(cls) -> Origin:
        """That of this process."""
        environment = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        return cls(os.getcwd(), environment, package_digest())

    def apply(self) -> None:
        """Set the environment of this process, a worker, to that of the origin, and go to its current folder if it
        exists here. Raises `RequirementMissing` for another version of the package."""
        if package_digest() != self.package:
            raise RequirementMissing(
                f"{platform.node()}: the ptxmotion in {FOLDER} is not the one that started this run"
            )
        os.environ.update(self.environment)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


@functools.cache
def package_digest() -> str:
    """A hash of every Python file of this package, when it is first called in this process."""
    folders = [each.name for each in Path(FOLDER).iterdir() if (each / "__init__.py").is_file()]
    return source_digest(Path(FOLDER), [".", *sorted(folders)])


@contextlib.contextmanager
def connected() -> Generator[Any]:
    """The module `ray`, connected to a cluster. Raises `RequirementMissing`."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise RequirementMissing(f"--engine=ray needs Ray: pip install 'ptxmotion[ray]' ({error})") from error
    if not os.environ.get("RAY_ADDRESS"):
        os.environ.pop("RAY_ADDRESS", None)  # Ray refuses an empty one
    _check_address(os.environ.get("RAY_ADDRESS", ""))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    # Ray adds the current folder to the folders from which workers import.
    with contextlib.chdir("/"):
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RequirementMissing(f"the Ray cluster cannot be used: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise `RequirementMissing` if nothing answers at ``HOST:PORT``. Ray tries that for five minutes."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except OSError as error:
        raise RequirementMissing(f"the Ray cluster cannot be used: RAY_ADDRESS is {address}: {error}") from error


def reason_of(error: BaseException) -> str:
    """The first sentence of the message of an error of Ray."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().split(". ")[0].rstrip(".") if lines else type(error).__name__
