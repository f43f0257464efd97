"""A launch as the host program describes it, and the answer to whether two launches may be fused.

A `LaunchSite` holds grid, block and shared memory as numbers or as expressions of host variables, and for each
parameter the buffer or value that is passed.
Requires: equal expression texts have equal values, because nothing runs between the two launches. Equal buffer names
are one device allocation, and different names are different allocations. The code that creates a `LaunchSite` ensures
this.
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
    """The device allocation ``name`` from byte ``offset`` on."""

    name: str
    offset: Extent = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value: a number, an expression of host variables, or ``None`` if it is not known.

    ``bounds`` (least, greatest) hold for the value on the host. Without them, the bounds are those of the parameter's
    type, signed or unsigned.
    """

    value: int | float | str | None
    bounds: tuple[int, int] | None = None


Argument: TypeAlias = Buffer | Scalar


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A launch of ``kernel`` of ``module``. ``arguments`` maps parameter names to arguments; a missing parameter may
    have any value. ``shared`` is dynamic shared memory in bytes. ``cooperative``: all blocks run at the same time, or
    the launch fails. ``counters`` names variables of the module that only grid barriers use, which earlier fusions
    added."""

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
    """``kind`` says what is needed between the two bodies: ``thread`` nothing, ``block`` a ``bar.sync``, ``grid`` a
    grid barrier; ``none`` means that the two launches must not be fused.

    ``reasons`` are sentences. ``checks`` are Python expressions of host variables. The fused kernel may be launched
    only if all of them are true; otherwise the two kernels must be launched instead. It is empty unless the caller
    allowed checks.
    """

    kind: str
    reasons: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


def text_of(extent: Extent) -> str:
    """The extent as Python text, in parentheses unless it is a name or a number."""
    text = str(extent)
    return text if text.isidentifier() or text.isdigit() else f"({text})"
