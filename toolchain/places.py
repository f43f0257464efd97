"""The folders that are searched for NVIDIA's tools. Imports little, because every compilation with nvcc needs it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from ..python_child import import_paths

__all__ = ["executable", "is_executable", "path_folders", "version_numbers", "system_folders", "wheel_folders"]


def wheel_folders() -> Iterator[str]:
    """`nvidia/cu13/bin` in every folder from which this Python imports."""
    for entry in dict.fromkeys(import_paths()):
        folder = os.path.join(entry, "nvidia", "cu13", "bin")
        if os.path.isdir(folder):
            yield folder


def system_folders() -> Iterator[str]:
    """The folders of an installed CUDA, then those of PATH."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield os.path.join(root, "bin")
    local = "/usr/local"
    yield os.path.join(local, "cuda", "bin")
    try:
        names = [name for name in os.listdir(local) if name.startswith("cuda-")]
    except OSError:
        names = []
    yield from (os.path.join(local, name, "bin") for name in sorted(names, key=version_numbers, reverse=True))
    yield from path_folders()


def path_folders() -> Iterator[str]:
    """The folders of PATH."""
    yield from (entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry)


def executable(folder: str, name: str) -> str | None:
    """The path of the program ``name`` in ``folder``; `None` where there is none."""
    path = os.path.join(folder, f"{name}.exe" if sys.platform == "win32" else name)
    return path if is_executable(path) else None


def is_executable(path: str) -> bool:
    """Whether the path is that of a file that can be executed."""
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers in a text, in order.

    >>> version_numbers("cuda-13.0")
    (13, 0)
    """
    return tuple(map(int, re.findall(r"\d+", version)))
