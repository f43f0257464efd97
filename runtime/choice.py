"""Which version of a kernel a launch takes: the rules of `ptxmotion_launch.c` in Python.

Used where the C library is not built, and on the emulator. A test compares the two.

Requires: a kernel of a checked contract. Guarantees: `choose` never raises; what is not known leads to the kernel
itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import NamedTuple, Protocol

from ..contract import Expression, Extent, KernelContract, Launch, Symbol, Undecidable, Version, decide, evaluate
from ..contract.conditions import value_in, warps_per_scheduler

__all__ = ["Choice", "Flag", "Machine", "Occupancy", "Reason", "Request", "Triple", "choose"]

Triple = tuple[int, int, int]

_CLUSTER_ATTRIBUTES = (4, 11)
_UPDATABLE_ATTRIBUTE = 13
_LAST_ATTRIBUTE = 16
_LEGACY_STREAM = 1


class Reason(IntEnum):
    """Why a version was not taken; the numbers are those of the C library."""

    TAKEN = 0
    FALSE = 1
    UNDECIDABLE = 2
    SLOWER = 3
    CAPTURED = 4
    ATTRIBUTE = 5
    RESIDENCE = 6
    UNUSABLE = 7
    BAD_LAUNCH = 8
    REFUSED = 9
    FORBIDDEN = 10

    @property
    def words(self) -> str:
        """The reason in words."""
        return _WORDS[self]


_WORDS = {
    Reason.TAKEN: "taken",
    Reason.FALSE: "a condition does not hold",
    Reason.UNDECIDABLE: "a condition is undecidable",
    Reason.SLOWER: "not expected to be faster",
    Reason.CAPTURED: "the stream is captured into a graph",
    Reason.ATTRIBUTE: "a launch attribute forbids it",
    Reason.RESIDENCE: "fewer blocks of it run at the same time",
    Reason.UNUSABLE: "the module lacks the entry, or the launch is too large for it",
    Reason.BAD_LAUNCH: "grid, block, shared memory or a further argument is out of range",
    Reason.REFUSED: "the driver refused the launch",
    Reason.FORBIDDEN: "the caller wants the kernel itself",
}


class Flag(IntFlag):
    """What the caller allows or promises; the numbers are those of the C library."""

    CAPTURE = 1
    ALWAYS_PREFER = 2
    ORIGINAL = 4
    MAPPED_ONCE = 8


_NO_FLAGS = Flag(0)


class Occupancy(NamedTuple):
    """Blocks of an entry on one multiprocessor (0: it cannot be launched), multiprocessors, and use of clusters."""

    blocks: int
    multiprocessors: int
    has_clusters: bool = False


class Machine(Protocol):
    """What is known about the device and the loaded module."""

    @property
    def limits(self) -> tuple[Triple, Triple]:
        """The largest grid and the largest block."""
        ...

    def allocation(self, pointer: int) -> Extent | None:
        """The allocation that an address is in."""
        ...

    def is_mapped_once(self, pointer: int) -> bool:
        """Whether no other address leads to the same memory, and the device can read it."""
        ...

    def is_capturing(self, stream: int) -> bool:
        """Whether the stream is being captured into a graph, or this is not known."""
        ...

    def is_partitioned(self, stream: int) -> bool:
        """Whether the stream runs on a part of the device, or this is not known."""
        ...

    def extra_sizes(self, entry: str) -> Sequence[int] | None:
        """The sizes of the parameters behind those of the kernel. None: the entry is missing, or does not fit."""
        ...

    def occupancy(self, entry: str, threads: int, shared: int) -> Occupancy:
        """How many blocks run at the same time."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A launch as the program wants it: the bytes of each argument, and the extents that the caller has given.

    ``attributes``: the number of each launch attribute, and the bytes of its value.
    """

    arguments: tuple[bytes, ...]
    grid: Triple
    block: Triple
    shared: int = 0
    stream: int = 0
    attributes: tuple[tuple[int, bytes], ...] = ()
    extents: Mapping[int, Extent] = field(default_factory=dict[int, Extent])
    flags: Flag = _NO_FLAGS


@dataclass(frozen=True, slots=True)
class Choice:
    """The version that is launched, how, and why those before it were not.

    ``reasons`` has an element for each version up to the chosen one, ``failed`` the number of the condition that
    failed.
    """

    version: int
    grid: Triple
    block: Triple
    shared: int
    extra: tuple[bytes, ...]
    reasons: tuple[Reason, ...]
    failed: tuple[int | None, ...]


class _NotTaken(Exception):
    def __init__(self, reason: Reason, failed: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.failed = reason, failed


class _Extents(Mapping[int, Extent | None]):
    """The extents of the pointers of a launch. ``_known`` keeps those that were read."""

    def __init__(self, kernel: KernelContract, request: Request, machine: Machine) -> None:
        self._kernel, self._request, self._machine = kernel, request, machine
        self._known: dict[int, Extent | None] = {}

    def __getitem__(self, index: int) -> Extent | None:
        if index not in self._known:
            self._known[index] = self._find(index)
        return self._known[index]

    def _find(self, index: int) -> Extent | None:
        pointer = int.from_bytes(self._request.arguments[index], "little")
        given = self._request.extents.get(index)
        trusted = Flag.MAPPED_ONCE in self._request.flags
        if given is not None:
            return given if trusted or self._machine.is_mapped_once(pointer) else None
        found = self._machine.allocation(pointer) if pointer else None
        if found is None or self._machine.is_mapped_once(pointer):
            return found
        return found if trusted and not self._has_neighbour(found) else None

    def _has_neighbour(self, found: Extent) -> bool:
        """Whether memory that the driver knows touches an extent. Several mappings may be one buffer of the program,
        and the driver gives the extent of a single one."""
        return any(self._machine.allocation(each) is not None for each in (found.begin - 1, found.end))

    def __iter__(self) -> Iterator[int]:
        return (index for index, each in enumerate(self._kernel.parameters) if each.pointer)

    def __len__(self) -> int:
        return sum(each.pointer for each in self._kernel.parameters)


def choose(kernel: KernelContract, request: Request, machine: Machine) -> Choice:
    """The first version that may be launched and is expected to be faster; the last one if there is no other."""
    examination = _Examination(kernel, request, machine)
    common = examination.common_reason()
    reasons: list[Reason] = []
    failed: list[int | None] = []
    for index, version in enumerate(kernel.versions[:-1]):
        try:
            if common is not Reason.TAKEN:
                raise _NotTaken(common)
            grid, block, shared, extra = examination.examine(version)
        except _NotTaken as why:
            reasons.append(why.reason)
            failed.append(why.failed)
        else:
            return Choice(index, grid, block, shared, extra, (*reasons, Reason.TAKEN), (*failed, None))
    last = len(kernel.versions) - 1
    every = (*reasons, Reason.TAKEN), (*failed, None)
    return Choice(last, request.grid, request.block, request.shared, (), *every)


class _Examination:
    """Decides about the versions of a kernel for one launch."""

    def __init__(self, kernel: KernelContract, request: Request, machine: Machine) -> None:
        self._kernel, self._request, self._machine = kernel, request, machine
        values = [each.value(raw) for each, raw in zip(kernel.parameters, request.arguments, strict=False)]
        extents = _Extents(kernel, request, machine)
        self._launch = Launch(tuple(values), request.grid, request.block, request.shared, extents)

    def common_reason(self) -> Reason:
        """A reason that holds for all versions, or `TAKEN`."""
        request = self._request
        if Flag.ORIGINAL in request.flags or len(request.arguments) != len(self._kernel.parameters):
            return Reason.FORBIDDEN
        for id, value in request.attributes:
            if (id == _UPDATABLE_ATTRIBUTE and any(value[:4])) or not 0 <= id <= _LAST_ATTRIBUTE:
                return Reason.ATTRIBUTE
        (x, y, z), (_, height, depth) = request.block, request.grid
        if x > 1024 or y > 1024 or z > 64 or not 1 <= x * y * z <= 1024 or height > 65535 or depth > 65535:
            return Reason.BAD_LAUNCH
        if math.prod(request.grid) == 0:
            return Reason.BAD_LAUNCH
        # The legacy null stream is never captured.
        is_checked = Flag.CAPTURE not in request.flags and request.stream > _LEGACY_STREAM
        if is_checked and self._machine.is_capturing(request.stream):
            return Reason.CAPTURED
        return Reason.TAKEN

    def examine(self, version: Version) -> tuple[Triple, Triple, int, tuple[bytes, ...]]:
        """The launch of a version. Raises `_NotTaken`."""
        sizes = self._machine.extra_sizes(version.entry)
        if sizes is None or len(sizes) != (len(version.launch.arguments) if version.launch is not None else 0):
            raise _NotTaken(Reason.UNUSABLE)
        if version.prefer_when is not None and Flag.ALWAYS_PREFER not in self._request.flags:
            self._check_preference(version.prefer_when)
        for index, condition in enumerate(version.requires):
            try:
                if not decide(condition, self._launch):
                    raise _NotTaken(Reason.FALSE, index)
            except Undecidable:
                raise _NotTaken(Reason.UNDECIDABLE, index) from None
        changed = self._changed(version, sizes)
        self._check_residence(version.entry, changed)
        return changed

    def _check_preference(self, expression: Expression) -> None:
        try:
            if not evaluate(expression, self._preference_fact):
                raise _NotTaken(Reason.SLOWER)
        except Undecidable:
            raise _NotTaken(Reason.SLOWER) from None

    def _preference_fact(self, symbol: Symbol) -> int:
        if symbol.kind != "warps_per_scheduler":
            return value_in(self._launch, symbol)
        warps = self.warps_per_scheduler()
        if warps is None:
            raise Undecidable("the occupancy of the kernel is unknown")
        return warps

    def warps_per_scheduler(self) -> int | None:
        """How many warps of the kernel a scheduler has at a time, rounded up; None if it is unknown."""
        request = self._request
        threads = math.prod(request.block)
        occupancy = self._machine.occupancy(self._kernel.name, threads, request.shared)
        if occupancy.blocks <= 0 or occupancy.multiprocessors <= 0:
            return None
        return warps_per_scheduler(request.grid, request.block, occupancy.multiprocessors, occupancy.blocks)

    def _value(self, expression: Expression) -> int:
        try:
            return evaluate(expression, lambda symbol: value_in(self._launch, symbol))
        except Undecidable:
            raise _NotTaken(Reason.UNDECIDABLE) from None

    def _changed(self, version: Version, sizes: Sequence[int]) -> tuple[Triple, Triple, int, tuple[bytes, ...]]:
        request, change = self._request, version.launch
        if change is None:
            return request.grid, request.block, request.shared, ()
        most_grid, most_block = self._machine.limits
        grid = self._sizes(change.grid, most_grid) if change.grid else request.grid
        block = self._sizes(change.block, most_block) if change.block else request.block
        if change.block and math.prod(block) > 1024:
            raise _NotTaken(Reason.BAD_LAUNCH)
        shared = request.shared if change.shared is None else self._value(change.shared)
        if not 0 <= shared < 1 << 32:
            raise _NotTaken(Reason.BAD_LAUNCH)
        pairs = zip(change.arguments, sizes, strict=True)
        return grid, block, shared, tuple(self._extra(expression, size) for expression, size in pairs)

    def _sizes(self, expressions: Sequence[Expression], most: Triple) -> Triple:
        values: list[int] = []
        for expression, limit in zip(expressions, most, strict=True):
            values.append(self._value(expression))
            if not 1 <= values[-1] <= limit:
                raise _NotTaken(Reason.BAD_LAUNCH)
        return values[0], values[1], values[2]

    def _extra(self, expression: Expression, size: int) -> bytes:
        value, bits = self._value(expression), 8 * size
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise _NotTaken(Reason.BAD_LAUNCH)
        return (value & ((1 << bits) - 1)).to_bytes(size, "little")

    def _check_residence(self, entry: str, changed: tuple[Triple, Triple, int, tuple[bytes, ...]]) -> None:
        """Raise `_NotTaken` if fewer blocks than of the kernel run at the same time, where this can matter."""
        request, machine = self._request, self._machine
        grid, block, shared, _ = changed
        version = machine.occupancy(entry, math.prod(block), shared)
        kernel = machine.occupancy(self._kernel.name, math.prod(request.block), request.shared)
        if version.blocks <= 0 or kernel.blocks <= 0:
            raise _NotTaken(Reason.UNUSABLE)
        blocks, all_blocks = math.prod(grid), math.prod(request.grid)
        has_same_size = math.prod(block) == math.prod(request.block) and blocks == all_blocks
        if has_same_size and version.blocks >= kernel.blocks:
            return
        if kernel.has_clusters or any(id in _CLUSTER_ATTRIBUTES for id, _ in request.attributes):
            raise _NotTaken(Reason.RESIDENCE)
        if all_blocks > version.multiprocessors * kernel.blocks:
            return  # not all blocks of the kernel run at the same time
        multiprocessors = 1 if machine.is_partitioned(request.stream) else version.multiprocessors
        if blocks > multiprocessors * version.blocks:
            raise _NotTaken(Reason.RESIDENCE)
