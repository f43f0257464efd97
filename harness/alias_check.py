"""The launch-time check of what was promised about pointers, and the fallback where the promise does not hold.

A kernel that was optimized under ``--alias=restrict`` may be launched only where the buffers of the parameters that the
promise covers overlap no other parameter's buffer, as far as one of the two is written. `broken_promise` decides that
for one launch. `AliasGuard` is a backend around a backend: it loads both the kernel with the promise and the one
without, looks at the arguments of each launch, launches the one that is right, and keeps what it had to say.

Requires: what each kernel may read and write, by parameter (`Touched`; `analysis.memory.touched_memory.Buffers` is
one): of
the kernel as it was before optimization. Guarantees: never silently wrong: a launch whose buffers overlap runs the
conservative kernel, and is reported. A scalar of a pointer's size is taken for a pointer where it lies in a buffer.
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
    """What a kernel may read and write, by the names of its parameters."""

    @property
    def reads(self) -> AbstractSet[str]: ...
    @property
    def writes(self) -> AbstractSet[str]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The memory that an argument points into: addresses from ``start`` up to ``end``."""

    start: int
    end: int

    def overlaps(self, other: Place) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class Promised:
    """What a module was optimized under. ``conservative`` is the PTX to fall back to; by kernel, ``covered`` are the
    parameters whose buffers were promised to be their own, ``touched`` what the kernel may read and write."""

    conservative: str
    covered: Mapping[str, AbstractSet[str]]
    touched: Mapping[str, Touched]


def broken_promise(kernel: str, covered: AbstractSet[str], touched: Touched, places: Mapping[str, Place | None]) -> str:
    """How a launch breaks the promise; the empty string where it holds.

    ``places`` has the memory of each pointer argument, by parameter; ``None`` or no entry for what points nowhere.

    >>> class Copies: reads, writes = {"a"}, {"b"}
    >>> broken_promise("copy", {"b"}, Copies, {"a": Place(0, 64), "b": Place(64, 128)})
    ''
    >>> broken_promise("copy", {"b"}, Copies, {"a": Place(0, 64), "b": Place(32, 96)})
    "copy: the buffers of 'a' and 'b' overlap, and 'b' is written"
    """
    known = [(name, place) for name, place in places.items() if place is not None]
    for number, (one, here) in enumerate(known):
        for two, there in known[number + 1 :]:
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
    """A backend around ``inner``. ``promises`` says of the PTX of a module what it was optimized under; ``fallbacks``
    are the launches whose promise did not hold, each way of breaking it once."""

    inner: Any
    promises: Mapping[str, Promised]
    fallbacks: list[str] = field(default_factory=list[str])
    _alive: dict[int, tuple[Any, Place]] = field(default_factory=dict[int, "tuple[Any, Place]"])
    _next: int = 1 << 62  #: where no scalar is taken for a pointer

    @property
    def name(self) -> str:
        return self.inner.name

    def load(self, ptx: str, /) -> _GuardedModule:
        """Load a module, and what to fall back to."""
        promise = self.promises.get(ptx)
        fallback = self.inner.load(promise.conservative) if promise is not None else None
        return _GuardedModule(self.inner.load(ptx), promise, fallback)

    def allocate(self, nbytes: int, /) -> Any:
        """A buffer of the inner backend. Buffers do not overlap; where they have no address, they get one here."""
        buffer = self.inner.allocate(nbytes)
        start = getattr(buffer, "address", None)
        if start is None:
            start = self._next
            self._next += max(nbytes, 1) + 1
        self._alive[id(buffer)] = (buffer, Place(start, start + max(nbytes, 1)))
        return buffer

    def free(self, buffer: Any, /) -> None:
        """Give a buffer back."""
        self._alive.pop(id(buffer), None)
        self.inner.free(buffer)

    def cooperative(self, kernel: _GuardedKernel, /) -> _GuardedKernel:
        """The kernel, to be launched with all its blocks at once, whichever it is."""
        other = None if kernel.conservative is None else self.inner.cooperative(kernel.conservative)
        return replace(kernel, promised=self.inner.cooperative(kernel.promised), conservative=other)

    def launch(self, kernel: _GuardedKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Launch the kernel with the promise where it holds, and the one without where it does not."""
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
    """The backend, with the check where there is anything promised."""
    return AliasGuard(backend, promises) if promises else backend
