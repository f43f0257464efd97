"""Estimates of the time of a plan, with its launches one after the other or several at a time.

A multiprocessor holds as many blocks of a kernel as its registers, shared memory, threads and block slots allow
(equation 4.1). All multiprocessors together hold a *wave* of blocks; a kernel runs in whole waves and a tail (4.3 to
4.5), each of which takes its time divided by its waves (4.6). In one stream, kernels follow each other (4.7). In a
graph, a kernel begins when those that it waits for have ended, and the multiprocessors have room: the kernels that run
share the machine by the part of a wave that they fill (4.2). While they want more than all of it, all are slower in
proportion. A kernel that waits for several others, or is not the first that waits for another, begins later
by the time of an event (O_event; `Machine.event`), because a graph runs on several streams of the driver.

The thesis distinguishes phases: fine levels with at least one wave a kernel run one after the other (4.8), coarse ones
run at a time (4.9), and then levels are expanded (4.11). Here the dependences of the graph order kernels, so that any
graph can be estimated.

Source: Qiao, thesis, §4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from ..fusion.machine import Machine
from .dependences import Edge

__all__ = ["KernelTime", "Timeline", "graph_time", "serial_edges", "stream_time"]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """A step of a plan. ``seconds``: its time alone, without its launch. ``blocks``: its blocks. ``resident``: how many
    blocks of it a multiprocessor holds (N_blk)."""

    seconds: float
    blocks: int
    resident: int

    def wave(self, machine: Machine) -> int:
        """The blocks of a wave."""
        return self.resident * machine.multiprocessors

    def waves(self, machine: Machine) -> int:
        """Equation 4.4, rounded up."""
        return ceil(self.blocks / self.wave(machine))

    def tail(self, machine: Machine) -> float:
        """The part of a wave that the last blocks fill (equation 4.5); 0 if it is full."""
        return self.blocks / self.wave(machine) % 1

    def share(self, machine: Machine) -> float:
        """The part of the machine that it fills while it runs."""
        return min(1.0, self.blocks / self.wave(machine))


@dataclass(frozen=True, slots=True)
class Timeline:
    """When each step of a graph begins and ends, in seconds."""

    begins: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The end of the last step."""
        return max(self.ends, default=0.0)

    @property
    def overlapped(self) -> float:
        """The seconds in which more than one step runs."""
        times = sorted({*self.begins, *self.ends})
        found = 0.0
        for first, second in pairwise(times):
            running = sum(b <= first and e >= second for b, e in zip(self.begins, self.ends, strict=True))
            found += second - first if running > 1 else 0.0
        return found


def stream_time(kernels: Sequence[KernelTime], machine: Machine) -> float:
    """Seconds of launches in one stream. The host makes launches while kernels run (equation 4.7 with launches)."""
    host = device = 0.0
    for kernel in kernels:
        host += machine.launch
        device = max(device + machine.node, host) + kernel.seconds
    return device


def serial_edges(size: int) -> frozenset[Edge]:
    """Each step waits for the one before it."""
    return frozenset((number, number + 1) for number in range(size - 1))


def graph_time(kernels: Sequence[KernelTime], edges: Iterable[Edge], machine: Machine) -> Timeline:
    """When the steps of a graph run."""
    sources: list[list[int]] = [[] for _ in kernels]
    first_reader: dict[int, int] = {}
    for first, second in sorted(edges):
        sources[second].append(first)
        first_reader.setdefault(first, second)
    delays = [
        machine.node + (machine.event if len(each) > 1 or any(first_reader[s] != number for s in each) else 0.0)
        for number, each in enumerate(sources)
    ]
    begins, ends = [0.0] * len(kernels), [0.0] * len(kernels)
    #: By step that waits or runs: when it can begin; how many seconds it still needs alone.
    ready = {number: delays[number] for number, each in enumerate(sources) if not each}
    left: dict[int, float] = {}
    missing = [len(each) for each in sources]
    now = 0.0
    while ready or left:
        for number in [number for number, time in ready.items() if time <= now]:
            del ready[number]
            left[number], begins[number] = kernels[number].seconds, now
        rate = 1 / max(1.0, sum(kernels[number].share(machine) for number in left))
        step = min([*(each / rate for each in left.values()), *(time - now for time in ready.values())])
        now += step
        for number in list(left):
            left[number] -= step * rate
            if left[number] <= 1e-12:
                del left[number]
                ends[number] = now
                for second in range(number + 1, len(kernels)):
                    if number in sources[second]:
                        missing[second] -= 1
                        if not missing[second]:
                            ready[second] = now + delays[second]
    return Timeline(tuple(begins), tuple(ends))
