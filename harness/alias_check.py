"""Checks at each launch what ``--alias=restrict`` promised about pointers; uses a fallback where it does not hold.

A kernel that was optimized under the promise may be launched only if the buffer of each covered parameter overlaps no
buffer of another parameter, unless the kernel writes neither of the two. `broken_promise` decides this for one launch.
`AliasGuard` wraps a backend: it loads the kernel with and without the promise, checks the arguments of each launch,
launches the right kernel, and records broken promises.

Requires: what each kernel, before optimization, reads and writes by parameter (`Touched`; for example
`analysis.memory.touched_memory.Buffers`). Guarantees: a launch whose buffers overlap runs the conservative kernel and
is reported. An 8-byte scalar whose value is an address inside a buffer is treated as a pointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from ..ptx import parse

__all__ = ["AliasGuard", "Place", "Promised", "Touched", "broken_promise", "guarded"]


class Touched(Protocol):
    """The parameters whose memory a kernel may read and write, by name."""

    @property
    def reads(self) -> AbstractSet[str]:
        """The parameters through which it may read."""
        ...

    @property
    def writes(self) -> AbstractSet[str]:
        """The parameters through which it may write."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """The buffer that an argument points into: addresses from ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def overlaps(self, other: Place) -> bool:
        """Whether the two have a byte in common."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Promised:
    """The promise that a module was optimized with. ``conservative`` is the PTX of the fallback. By kernel name,
    ``covered`` has the parameters that the promise covers, and ``touched`` what the kernel may read and write."""

    conservative: str
    covered: Mapping[str, AbstractSet[str]]
    touched: Mapping[str, Touched]


def broken_promise(kernel: str, covered: AbstractSet[str], touched: Touched, places: Mapping[str, Place | None]) -> str:
    """How a launch breaks the promise; an empty string if it does not.

    ``places`` maps each parameter to the buffer that its argument points into, or to None.

    >>> class Copies: reads, writes = {"a"}, {"b"}
    >>> broken_promise("copy", {"b"}, Copies, {"a": Place(0, 64), "b": Place(64, 128)})
    ''
    >>> broken_promise("copy", {"b"}, Copies, {"a": Place(0, 64), "b": Place(32, 96)})
    "copy: the buffers of 'a' and 'b' overlap, and 'b' is written"
    """
    pointers = [(name, place) for name, place in places.items() if place is not None]
    for number, (one, here) in enumerate(pointers):
        for two, there in pointers[number + 1 :]:
            if not here.overlaps(there) or not ({one, two} & covered):
                continue
            written = [name for name in (one, two) if name in touched.writes]
            both = all(name in touched.reads or name in touched.writes for name in (one, two))
            if written and both:
                what = f"'{written[0]}' is" if len(written) == 1 else "both are"
                return f"{kernel}: the buffers of '{one}' and '{two}' overlap, and {what} written"
    return ""


@dataclass
class _GuardedKernel:
    name: str
    promised: Any
    conservative: Any = None
    params: tuple[str, ...] = ()
    covered: AbstractSet[str] = frozenset()
    touched: Touched | None = None


class _GuardedModule:
    def __init__(self, inner: Any, promise: Promised | None, fallback: Any) -> None:
        self.inner, self.promise, self.fallback = inner, promise, fallback
        self._params: dict[str, tuple[str, ...]] = {}
        if promise is not None:
            entries = parse(promise.conservative).entries
            self._params = {entry.name: tuple(param.name for param in entry.params or ()) for entry in entries}

    def kernel(self, name: str, /) -> _GuardedKernel:
        handle = self.inner.kernel(name)
        promise = self.promise
        if promise is None or not promise.covered.get(name):
            return _GuardedKernel(name, handle)
        return _GuardedKernel(
            name,
            handle,
            self.fallback.kernel(name),
            self._params[name],
            promise.covered[name],
            promise.touched[name],
        )


@dataclass
class AliasGuard:
    """A backend around ``inner``. ``promises`` maps the PTX of a module to its promise. ``fallbacks`` lists the broken
    promises, each once. ``_alive`` maps the id of each allocated buffer to the buffer and its addresses."""

    inner: Any
    promises: Mapping[str, Promised]
    fallbacks: list[str] = field(default_factory=list[str])
    _alive: dict[int, tuple[Any, Place]] = field(default_factory=dict[int, "tuple[Any, Place]"])
    _next: int = 1 << 62  #: the next made-up address, in a range where no scalar is likely

    @property
    def name(self) -> str:
        return self.inner.name

    def load(self, ptx: str, /) -> _GuardedModule:
        """Load a module and its fallback."""
        promise = self.promises.get(ptx)
        fallback = self.inner.load(promise.conservative) if promise is not None else None
        return _GuardedModule(self.inner.load(ptx), promise, fallback)

    def allocate(self, nbytes: int, /) -> Any:
        """A buffer of the inner backend. A buffer without an address gets a made-up address that overlaps no other."""
        buffer = self.inner.allocate(nbytes)
        start = getattr(buffer, "address", None)
        if start is None:
            start = self._next
            self._next += max(nbytes, 1) + 1
        self._alive[id(buffer)] = (buffer, Place(start, start + max(nbytes, 1)))
        return buffer

    def free(self, buffer: Any, /) -> None:
        """Free a buffer."""
        self._alive.pop(id(buffer), None)
        self.inner.free(buffer)

    def cooperative(self, kernel: _GuardedKernel, /) -> _GuardedKernel:
        """The kernel and its fallback, for cooperative launches."""
        other = None if kernel.conservative is None else self.inner.cooperative(kernel.conservative)
        return replace(kernel, promised=self.inner.cooperative(kernel.promised), conservative=other)

    def launch(self, kernel: _GuardedKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Launch the optimized kernel if the promise holds, otherwise the conservative kernel."""
        handle = kernel.promised
        if kernel.touched is not None:
            places = {name: self._place(arg) for name, arg in zip(kernel.params, args, strict=True)}
            broken = broken_promise(kernel.name, kernel.covered, kernel.touched, places)
            if broken:
                handle = kernel.conservative
                if broken not in self.fallbacks:
                    self.fallbacks.append(broken)
        self.inner.launch(handle, grid, block, shared, args)

    def _place(self, arg: Any) -> Place | None:
        if id(arg) in self._alive:
            return self._alive[id(arg)][1]
        if isinstance(arg, np.integer):
            value = int(cast("Any", arg)) if arg.nbytes == 8 else -1
            return next((place for _, place in self._alive.values() if place.start <= value < place.end), None)
        start, nbytes = getattr(arg, "address", None), getattr(arg, "nbytes", None)
        return Place(start, start + nbytes) if start is not None and nbytes is not None else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def guarded(backend: Any, promises: Mapping[str, Promised]) -> Any:
    """The backend, wrapped in the check if there is a promise."""
    return AliasGuard(backend, promises) if promises else backend
