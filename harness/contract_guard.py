"""Launches the version of a kernel that its contract allows, for measurements of variants with a contract.

`ContractGuard` wraps a backend, as `alias_check.AliasGuard` does. At each launch it takes the first version of the
kernel that is preferred, whose conditions hold, and whose block fits. Outside of a recorder it makes the recording
contain the versions, so a timed replay launches them. The time of the decision itself is not part of the replay
(`docs/experiments/launches.md` has it).

Requires: contracts by the PTX of their modules. Guarantees: the kernel itself is launched where no version is allowed.
The extent of an argument is the buffer that is passed; a part of a buffer has no known extent. If a contract is tuned
for the machine of the backend (its attribute ``machine``), what was measured decides which versions are preferred.
Refuses: `ContractError` for text that is no contract, or that does not fit its module.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from ..contract import (
    Contract,
    ContractError,
    Extent,
    KernelContract,
    Launch,
    TunedMachine,
    Undecidable,
    Version,
    holds,
    loads,
)
from ..contract.conditions import value_in, warps_per_scheduler
from ..contract.expressions import evaluate
from ..ptx import Kernel, parse

__all__ = ["ContractGuard", "address_of", "extra_arguments", "is_allowed", "under_contracts"]

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class _Kernel:
    """A kernel of a module with a contract. ``handles`` are those of its versions by entry. ``extra``: by entry the
    sizes in bytes of the parameters behind those of the kernel."""

    name: str
    inner: Any
    contract: KernelContract | None = None
    handles: Mapping[str, Any] = field(default_factory=dict[str, Any])
    extra: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])


class _Module:
    def __init__(self, inner: Any, contract: Contract | None, ptx: str) -> None:
        self.inner, self.contract, self._ptx = inner, contract, ptx

    @cached_property
    def _entries(self) -> Mapping[str, Kernel]:
        return {entry.name: entry for entry in parse(self._ptx).entries}

    def kernel(self, name: str, /) -> _Kernel:
        contract = self.contract.kernels.get(name) if self.contract is not None else None
        if contract is None:
            return _Kernel(name, self.inner.kernel(name))
        entries = dict.fromkeys(version.entry for version in contract.versions)
        handles = {entry: self.inner.kernel(entry) for entry in entries}
        extra = {
            version.entry: tuple(each.bytes for each in (self._entries[version.entry].params or ())[count:])
            for count in (len(contract.parameters),)
            for version in contract.versions
            if version.launch is not None
        }
        return _Kernel(name, handles[name], contract, handles, extra)


@dataclass
class ContractGuard:
    """A backend around ``inner``. ``contracts`` maps the PTX of a module to its contract.

    ``taken`` counts the launches by kernel and description of the version, the empty text for the kernel itself.
    ``_alive`` maps the id of each allocated buffer to the buffer and its extent.
    """

    inner: Any
    contracts: Mapping[str, Contract]
    taken: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _alive: dict[int, tuple[Any, Extent]] = field(default_factory=dict[int, "tuple[Any, Extent]"])

    @property
    def name(self) -> str:
        return self.inner.name

    def load(self, ptx: str, /) -> _Module:
        """Load a module with its versions."""
        return _Module(self.inner.load(ptx), self.contracts.get(ptx), ptx)

    def allocate(self, nbytes: int, /) -> Any:
        """A buffer of the inner backend."""
        buffer = self.inner.allocate(nbytes)
        address = address_of(buffer)
        if address is not None:
            self._alive[id(buffer)] = (buffer, Extent(address, address + nbytes))
        return buffer

    def free(self, buffer: Any, /) -> None:
        """Free a buffer."""
        self._alive.pop(id(buffer), None)
        self.inner.free(buffer)

    def cooperative(self, kernel: _Kernel, /) -> _Kernel:
        """The kernel itself, for cooperative launches: its blocks wait for each other, so no version is taken."""
        return _Kernel(kernel.name, self.inner.cooperative(kernel.inner))

    def launch(self, kernel: _Kernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Launch the first version that the contract allows, otherwise the kernel itself."""
        handle, description = kernel.inner, ""
        more: Sequence[Any] = ()
        if kernel.contract is not None:
            launch = self.facts(kernel, _three(grid), _three(block), shared, args)
            version = self.choose(kernel, launch)
            handle, description = kernel.handles[version.entry], version.description
            more = extra_arguments(kernel, version, launch) or ()
        self.taken[kernel.name, description] += 1
        self.inner.launch(handle, grid, block, shared, [*args, *more])

    def facts(self, kernel: _Kernel, grid: Triple, block: Triple, shared: int, args: Sequence[Any]) -> Launch:
        """The facts of a launch that the conditions of a contract read."""
        contract = cast("KernelContract", kernel.contract)
        arguments: list[int | bytes | None] = []
        extents: dict[int, Extent | None] = {}
        for index, (parameter, arg) in enumerate(zip(contract.parameters, args, strict=True)):
            if id(arg) in self._alive:
                extent = self._alive[id(arg)][1]
                arguments.append(extent.begin)
                extents[index] = extent
            elif isinstance(arg, np.generic | bytes):
                raw = arg if isinstance(arg, bytes) else arg.tobytes()
                arguments.append(parameter.value(raw))
            else:
                arguments.append(None)
        warps = self._warps_per_scheduler(kernel, grid, block, shared)
        return Launch(tuple(arguments), grid, block, shared, extents, warps)

    def choose(self, kernel: Any, launch: Launch) -> Version:
        """The first version that is preferred, whose conditions hold in a launch, and whose block fits."""
        contract = cast("KernelContract", kernel.contract)
        for version in contract.versions[:-1]:
            is_chosen = _is_preferred(version, launch) and is_allowed(kernel, version, launch)
            if is_chosen and self._fits(kernel.handles[version.entry], launch):
                return version
        return contract.versions[-1]

    def _warps_per_scheduler(self, kernel: _Kernel, grid: Triple, block: Triple, shared: int) -> int | None:
        """The warps that a scheduler has at a time, rounded up; None on a backend that does not know them."""
        backend, handle = self._innermost(kernel.inner)
        if backend is None:
            return None
        blocks = backend.occupancy(handle, math.prod(block), shared)
        return warps_per_scheduler(grid, block, backend.attribute("MULTIPROCESSOR_COUNT"), blocks)

    def _fits(self, handle: Any, launch: Launch) -> bool:
        """Whether a block of a kernel can be launched, as far as the backend knows. Registers may be too many."""
        backend, handle = self._innermost(handle)
        return backend is None or backend.occupancy(handle, math.prod(launch.block), launch.shared) > 0

    def _innermost(self, handle: Any) -> tuple[Any, Any]:
        """The backend that knows occupancies, and its handle of a kernel; None on backends that do not know them."""
        backend = self.inner
        while not hasattr(backend, "occupancy"):
            if not hasattr(backend, "inner"):
                return None, None
            backend, handle = backend.inner, handle.inner
        return backend, handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def is_allowed(kernel: Any, version: Version, launch: Launch) -> bool:
    """Whether the conditions of a version of a kernel of a guard hold, and its further arguments have values. A version
    that is launched with another grid, block or shared memory is not allowed here."""
    change = version.launch
    if change is not None and (change.grid or change.block or change.shared is not None):
        return False
    has_arguments = extra_arguments(kernel, version, launch) is not None
    return has_arguments and all(holds(each, launch) for each in version.requires)


def extra_arguments(kernel: Any, version: Version, launch: Launch) -> list[np.generic] | None:
    """The arguments of a version behind those of the kernel; ``None`` if one has no value, or one that does not fit."""
    found: list[np.generic] = []
    arguments = version.launch.arguments if version.launch is not None else ()
    for expression, size in zip(arguments, kernel.extra.get(version.entry, ()), strict=True):
        try:
            value = evaluate(expression, lambda symbol: value_in(launch, symbol))
        except Undecidable:
            return None
        if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            return None  # as in the runtime (`choice`)
        found.append(np.dtype(f"u{size}").type(value % (1 << (8 * size))))
    return found


def _is_preferred(version: Version, launch: Launch) -> bool:
    if version.prefer_when is None:
        return True
    try:
        return bool(evaluate(version.prefer_when, lambda symbol: value_in(launch, symbol)))
    except Undecidable:
        return False


def _machine_of(backend: Any) -> TunedMachine | None:
    """The kind of the machine under all wrappers; None if the backend does not say."""
    while "machine" not in dir(backend) and "inner" in dir(backend):
        backend = backend.inner
    return getattr(backend, "machine", None)


def address_of(buffer: Any) -> int | None:
    """The address of a buffer of a backend, also within the wrappers of a recorder; None if it has none."""
    while buffer is not None:
        address = getattr(buffer, "address", getattr(buffer, "pointer", None))
        if address is not None:
            return int(address)
        buffer = getattr(buffer, "inner", None)
    return None


def _three(size: Any) -> Triple:
    parts = (int(size),) if isinstance(size, int) else tuple(int(each) for each in size)
    x, y, z = (*parts, 1, 1, 1)[:3]
    return x, y, z


def under_contracts(backend: Any, contracts: Mapping[str, str]) -> Any:
    """The backend, wrapped if there are contracts. ``contracts`` maps the PTX of a module to the text of its contract.
    Raises `ContractError`."""
    if not contracts:
        return backend
    machine = _machine_of(backend)
    read = {ptx: loads(text).tuned_for(machine) for ptx, text in contracts.items()}
    for ptx, contract in read.items():
        if not contract.matches(ptx):
            raise ContractError("a contract is of another module")
    return ContractGuard(backend, read)
