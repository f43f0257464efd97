"""The numbers of a GPU that estimates use.

The defaults are those of an NVIDIA H200. `Machine.measured` takes what ``doctor --calibrate`` measured on another one:
the time of a node of a graph, the bandwidth of a copy, and the number of multiprocessors. The rest is scaled with the
number of multiprocessors, or kept. Numbers that were fitted to times of schedules on this computer
(`schedule.fitting`) take the place of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ....arch import H200_CLOCK, H200_MULTIPROCESSORS
from ....cache import cache_folder
from ...errors import DslError

__all__ = ["FITTED", "H200", "Machine", "machine_here", "multiprocessors_here", "weights_path"]

#: The bandwidth of a copy in the memory of an H200, in bytes per second.
_COPY = 4.1e12


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU. Times are in seconds.

    ``node``: a kernel of a CUDA graph that does nothing. ``launch``: a launch in a stream, by the host. ``event``: an
    edge of a graph between two branches. ``branch``: the begin of a further branch. ``block``: what each
    block adds to the time of the bytes. It is fitted together with the other numbers. So it is not the time
    between the starts of two blocks (`partition_time`, measured alone): other terms contain a part of that.
    ``instruction``: one instruction of a thread that runs alone; ``edge_instruction``: one of those that a thread at an
    edge executes besides. ``latency``: what a thread waits for the loads of a strip of a tile, or for those of its
    results.

    ``memory`` and ``l2`` are the bytes per second of memory and of the L2 cache; up to ``l2_bytes`` bytes stay in the
    cache. ``l1``: the bytes of inputs that stay in the L1 cache of a multiprocessor. ``code``: instructions of code
    that is fetched without delay; ``fetched`` more of them double the time of all. ``occupancy``: the share of warps
    from which on more of them do not help. ``drain``: how much longer instructions and accesses take where a
    multiprocessor has one block only; with more, others work while the last warps of a block end or wait. ``overlap``:
    the power of the norm that joins the times of bytes, of instructions and of accesses.
    """

    name: str = "built-in numbers of an H200"
    node: float = 0.51e-6
    launch: float = 4.5e-6
    event: float = 0.6e-6
    branch: float = 1.7e-6
    block: float = 0.267e-9
    instruction: float = 3.25e-9
    edge_instruction: float = 0.731e-9
    latency: float = 0.874e-6
    memory: float = 3.46e12
    l2: float = 6.37e12
    l2_bytes: float = 36.4e6
    #: 128 lanes of each multiprocessor, of which 96 % are reached.
    instructions_per_second: float = 0.96 * 128 * H200_CLOCK * H200_MULTIPROCESSORS
    #: 32 lanes of each multiprocessor for loads, stores and shuffles, of which 84 % are reached.
    accesses_per_second: float = 0.84 * 32 * H200_CLOCK * H200_MULTIPROCESSORS
    l1: float = 140e3
    code: float = 1240
    fetched: float = 12100
    occupancy: float = 0.21
    drain: float = 0.42
    overlap: float = 2.21
    multiprocessors: int = H200_MULTIPROCESSORS

    def kept(self, count: float) -> float:
        """The share of bytes that stay in the L2 cache while this many are moved. Between once and twice the size of
        the cache, a part of them stays there."""
        return min(1.0, max(0.0, 2 - count / self.l2_bytes))

    def moving(self, count: float) -> float:
        """Seconds for moving bytes that a kernel before has just used."""
        kept = self.kept(count)
        return count * (kept / self.l2 + (1 - kept) / self.memory)

    @staticmethod
    def measured(costs: Mapping[str, object]) -> Machine:
        """The numbers of a GPU by the costs that ``doctor --calibrate`` wrote. Raises `ValueError` if one is missing or
        no positive number."""
        values: dict[str, float] = {}
        for name in ("graph_node", "launch", "bandwidth", "multiprocessors"):
            value = costs.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise ValueError(f"{name} is {value!r}")
            values[name] = value
        share = values["multiprocessors"] / H200_MULTIPROCESSORS
        return Machine(
            name=str(costs.get("machine", "a GPU")),
            node=values["graph_node"],
            launch=values["launch"],
            memory=H200.memory / _COPY * values["bandwidth"],
            l2=H200.l2 * share,
            l2_bytes=H200.l2_bytes * share,
            block=H200.block / share,
            instructions_per_second=H200.instructions_per_second * share,
            accesses_per_second=H200.accesses_per_second * share,
            multiprocessors=int(values["multiprocessors"]),
        )


H200 = Machine()

#: The numbers that are fitted to times of schedules.
FITTED = (
    *(
        "block",
        "instruction",
        "edge_instruction",
        "latency",
        "memory",
        "l2",
        "l2_bytes",
        "code",
        "fetched",
        "occupancy",
    ),
    *("drain", "overlap", "instructions_per_second", "accesses_per_second"),
)


@cache
def multiprocessors_here() -> int:
    """The multiprocessors of the first GPU of this computer, or those of an H200 if there is none."""
    from ....harness.cuda import call_driver, require_driver
    from ....harness.machine import MachineMissing

    try:
        driver = require_driver()
    except MachineMissing:
        return H200_MULTIPROCESSORS
    kind = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return int(call_driver(driver, "cuDeviceGetAttribute", kind, call_driver(driver, "cuDeviceGet", 0)))


def weights_path() -> Path | None:
    """The file with the numbers and weights that were fitted on this GPU."""
    folder = cache_folder()
    return folder / "schedule-weights.json" if folder is not None else None


def machine_here(path: Path | None = None) -> Machine:
    """The numbers of this computer: those that were fitted to schedules, which are in the file ``path`` or in
    `weights_path`; those that ``doctor --calibrate`` measured; those of an H200. Raises `DslError` for a broken
    file."""
    found = _calibrated()
    path = path or weights_path()
    if path is None or not path.is_file():
        return found
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        values = {name: document["time"][name] for name in FITTED}
        if any(type(value) not in (int, float) or value <= 0 for value in values.values()):
            raise ValueError("numbers of a machine are positive")
        return replace(found, name=str(document["machine"]), **values)
    except (ValueError, KeyError, TypeError, RecursionError) as why:
        message = f"{path} does not have the numbers of a machine ({why}): fit them again, or delete the file"
        raise DslError(message) from None


def _calibrated() -> Machine:
    """The numbers that ``doctor --calibrate`` measured, or those of an H200 if it has not run."""
    folder = cache_folder()
    path = folder / "machine-costs.json" if folder is not None else None
    if path is None or not path.is_file():
        return H200
    try:
        return Machine.measured(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, AttributeError, RecursionError) as error:
        message = f"{path} is no calibration ({error}): run `ptxmotion doctor --calibrate`, or delete the file"
        raise DslError(message) from error
