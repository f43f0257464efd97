"""Two launches that stand one behind the other, and the answer to whether they may become one.

What host code knows of a launch: grid, block and shared memory as numbers or as expressions of host variables, and
for each parameter the buffer or value that is passed. Equal texts are equal values, since nothing happens between the
two launches. Equal buffer names are the same device allocation and different ones are different allocations: who makes
a `LaunchSite` vouches for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ...ptx import Kernel, Module

__all__ = ["Argument", "Buffer", "Extent", "Extents", "Fusibility", "LaunchSite", "Scalar", "text_of"]

#: A number, or an expression of host variables as Python text.
Extent: TypeAlias = int | str
Extents: TypeAlias = tuple[Extent, Extent, Extent]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A device allocation from byte ``offset`` on; ``name`` is the allocation's."""

    name: str
    offset: Extent = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value: a number, or an expression of host variables; ``None`` where nothing is known of it.

    ``bounds`` (least, greatest) hold for the value as the host has it; without them those of the parameter's type do,
    signed or unsigned.
    """

    value: int | float | str | None
    bounds: tuple[int, int] | None = None


Argument: TypeAlias = Buffer | Scalar


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A launch of ``kernel``, which stands in ``module``. ``arguments`` are by parameter name; a parameter that is
    missing may be anything. ``shared`` is dynamic shared memory in bytes. ``cooperative``: all blocks run at the same
    time, or the launch fails. ``counters`` names the module's variables that only the barriers of the grid use which a
    fusion has put into the kernel."""

    kernel: Kernel
    module: Module
    grid: Extents
    block: Extents
    shared: Extent = 0
    arguments: Mapping[str, Argument] = field(default_factory=dict[str, Argument])
    cooperative: bool = False
    counters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fusibility:
    """``kind`` is what the place between the two bodies needs: ``thread`` nothing, ``block`` a ``bar.sync``, ``grid``
    a barrier of the whole grid; ``none`` means that the two may not be fused at all.

    ``reasons`` are sentences. ``checks`` are Python expressions of host variables that must all be true when the fused
    kernel is launched, or the two kernels have to be launched instead; empty unless they were asked for.
    """

    kind: str
    reasons: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


def text_of(extent: Extent) -> str:
    """The extent as Python text, in brackets where it is no name or number."""
    text = str(extent)
    return text if text.isidentifier() or text.isdigit() else f"({text})"
