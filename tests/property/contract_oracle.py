"""Launches on the emulator with allocations that end exactly at their last byte, and with memory at every address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from ptxmotion.contract import Expression, Extent, Launch
from ptxmotion.contract.conditions import value_in
from ptxmotion.contract.expressions import evaluate
from ptxmotion.emulator import Emulator, EmulatorFault
from ptxmotion.emulator.options import Options
from ptxmotion.emulator.sparse import PAGE, SparseMemory
from ptxmotion.ptx import Kernel, Param
from random_affine_kernels import POINTERS, RandomLaunch

__all__ = ["Device", "Done"]

#: Instructions of one launch.
BUDGET = 4_000
#: The distance of allocations where every address is memory.
FAR = 1 << 40


@dataclass
class Done:
    """``memory``: the bytes of each allocation after the launch. ``kinds``: the kinds of the findings. ``fault``: what
    ended the launch. ``rows``: the trace. ``pointers`` and ``launch``: the facts of the launch."""

    memory: list[bytes]
    kinds: set[str]
    fault: str
    rows: Any
    launch: Launch
    addresses: dict[str, int] = field(default_factory=dict[str, int])


class Device:
    """A module on the emulator. ``sparse``: every address is memory, so that no access ends the launch."""

    def __init__(self, ptx: str, *, sparse: bool = False) -> None:
        self._loaded = Emulator(budget=BUDGET).load(ptx)
        self._sparse = sparse

    def run(
        self, name: str, launch: RandomLaunch, seed: int, *, trace: bool = False, limits: Sequence[Expression] = ()
    ) -> Done:
        """Run an entry. The same seed gives the same memory and the same addresses. ``limits``: the values of the
        parameters behind those of the kernel."""
        loaded = self._loaded
        loaded.reset()
        space = loaded.loaded.space
        space.sparse = SparseMemory(_page) if self._sparse else None
        entry = loaded.entry(name)
        rng = np.random.default_rng(seed)
        objects: list[Any] = []
        if not self._sparse:
            objects = [space.allocate(f"block {k}", "global", size) for k, size in enumerate(launch.allocations)]
        places = [Extent(found.base, found.base + found.nbytes) for found in objects]
        # Memory at every address leaves out what is near an object, so there are no objects.
        if self._sparse:
            places = [Extent(FAR * (k + 1), FAR * (k + 1) + size) for k, size in enumerate(launch.allocations)]
        addresses: dict[str, int] = {}
        for number, found in enumerate(objects):
            # Values are small, so that those that are used as indices stay near.
            data = rng.integers(0, 4, max(launch.allocations[number], 1), np.uint8)
            found.bytes[: data.size] = data
            found.written = None
        for pointer in POINTERS:
            number, offset = launch.places[pointer]
            addresses[pointer] = places[number].begin + offset
        extents = {index: places[launch.places[pointer][0]] for index, pointer in enumerate(POINTERS)}
        own = (entry.params or ())[: len(entry.params or ()) - len(limits)]
        values = [_bytes_of(param, addresses, launch) for param in own]
        facts = Launch(_arguments(entry, values), launch.grid, launch.block, 0, extents)
        values += [evaluate(each, partial(value_in, facts)).to_bytes(4, "little") for each in limits]
        fault, kinds, rows = "", set[str](), None
        try:
            result = loaded.launch_bytes(
                entry, launch.grid, launch.block, values, 0, Options(True, False, trace), keep_going=self._sparse
            )
            kinds = {str(finding.kind) for finding in result.findings}
            rows = result.trace.accesses if result.trace is not None else None
            if rows is not None and space.sparse is not None:
                _to_addresses(rows, space.sparse)
        except EmulatorFault as error:
            fault = str(error.finding.kind)
            kinds = {str(finding.kind) for finding in error.findings}
        memory = [found.bytes[: found.nbytes].tobytes() for found in objects]
        for found in objects:
            space.free(found)
        space.rewind()
        return Done(memory, kinds, fault, rows, facts, addresses)


def _to_addresses(rows: Any, sparse: SparseMemory) -> None:
    """Replace positions in sparse memory, which starts at 0, by addresses modulo 2^64."""
    numbers = np.zeros(len(sparse.slots) + 1, np.int64)
    for number, slot in sparse.slots.items():
        numbers[slot] = number
    inside = rows["address"] < sparse.target.nbytes
    places = rows["address"][inside].astype(np.int64)
    rows["address"][inside] = (numbers[places // PAGE] * PAGE + places % PAGE).astype(np.uint64)


def _page(number: int) -> Any:
    return np.full(PAGE, number % 3, np.uint8)


def _bytes_of(param: Param, addresses: dict[str, int], launch: RandomLaunch) -> bytes:
    name = param.name.removeprefix("p_")
    if name in addresses:
        return addresses[name].to_bytes(8, "little")
    if name == "t":
        return launch.scalars["s"].to_bytes(4, "little") + bytes(4) + addresses["c"].to_bytes(8, "little")
    return launch.scalars[name].to_bytes(param.bytes, "little")


def _arguments(entry: Kernel, values: list[bytes]) -> tuple[int | bytes | None, ...]:
    return tuple(
        value if param.dims else int.from_bytes(value, "little", signed=param.type.kind == "s")
        for param, value in zip(entry.params or (), values, strict=False)
    )
