"""The access trace: which thread accessed which address, in the order of execution.

Guarantees: one row for each active lane of each access. ``instruction`` is the 1-based line of the PTX; block and
thread are linear numbers; ``address`` is generic for global memory, and an offset for shared and local memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Trace"]

Array: TypeAlias = npt.NDArray[Any]

#: The columns: line, block, thread, address, bytes, whether it is a write, index in `SPACES`.
DTYPE = np.dtype(
    [
        ("instruction", "u4"),
        ("block", "u4"),
        ("thread", "u2"),
        ("address", "u8"),
        ("bytes", "u2"),
        ("write", "?"),
        ("space", "u1"),
    ]
)
SPACES = ("global", "shared", "local", "const", "param", "heap")


@dataclass(slots=True)
class Trace:
    """Accesses of a launch; ``accesses`` is a structured array."""

    _parts: list[Array] = field(default_factory=list[Array])

    def add(
        self, line: int, blocks: Array, threads: Array, addresses: Array, nbytes: int, *, write: bool, space: str
    ) -> None:
        """Append one access by several lanes."""
        part = np.zeros(blocks.size, DTYPE)
        part["instruction"] = line
        part["block"] = blocks
        part["thread"] = threads
        part["address"] = addresses
        part["bytes"] = nbytes
        part["write"] = write
        part["space"] = SPACES.index(space)
        self._parts.append(part)

    @property
    def accesses(self) -> Array:
        """All accesses, in order."""
        return np.concatenate(self._parts) if self._parts else np.zeros(0, DTYPE)
