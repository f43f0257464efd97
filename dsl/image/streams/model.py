"""Estimates of the time of a plan, with its launches one after the other or several at a time.

A multiprocessor holds as many blocks of a kernel as its registers, shared memory, threads and block slots allow
(equation 4.1). All multiprocessors together hold a *wave* of blocks; a kernel runs in whole waves and a tail (4.3 to
4.5), each of which takes its time divided by its waves (4.6). In one stream, kernels follow each other (4.7). In a
graph, a kernel is ready when those that it waits for have ended. Blocks are started in the order in which their kernels
got ready, as the thesis assumes: a kernel gets what the kernels before it leave of the multiprocessors (4.2), which is
nothing until they are in their tails. The driver runs a graph on several streams. The first kernel that waits for
another one follows it in its stream. All other edges take an event (O_event; `Machine.event`), and each further kernel
that waits for none begins a branch (`Machine.branch`). Events and branches are handled one after the other.

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

#: Times and shares below this are none.
_LEAST = 1e-12

__all__ = ["KernelTime", "Timeline", "graph_time", "pipelined_time", "serial_edges", "stream_time"]


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


class _Graph:
    """A graph of kernels whose times are computed."""

    def __init__(self, kernels: Sequence[KernelTime], edges: Iterable[Edge], machine: Machine) -> None:
        self.kernels, self.machine = kernels, machine
        self.sources: list[list[int]] = [[] for _ in kernels]
        self.readers: list[list[int]] = [[] for _ in kernels]
        for first, second in sorted(edges):
            self.sources[second].append(first)
            self.readers[first].append(second)
        #: By step: the step that it follows in its stream; -1 if there is none.
        self.follows = [
            next((first for first in each if self.readers[first][0] == number), -1)
            for number, each in enumerate(self.sources)
        ]
        #: When the last event or branch so far is handled.
        self.handled = 0.0
        self.begins, self.ends = [-1.0] * len(kernels), [0.0] * len(kernels)
        #: By step: when it is ready, as far as the steps that have ended say; the seconds that it still needs alone.
        self.ready = [0.0] * len(kernels)
        self.left = [kernel.seconds for kernel in kernels]

    def after_event(self, time: float) -> float:
        """When an event that is recorded at ``time`` is handled. Events are handled one after the other."""
        self.handled = max(time, self.handled) + self.machine.event
        return self.handled

    def shares(self, order: Sequence[int]) -> dict[int, float]:
        """By step, in the order in which they got ready: the part of the machine that it wants and gets."""
        free, found = 1.0, dict[int, float]()
        for number in order:
            found[number] = min(self.wanted(number), free)
            free -= found[number]
        return found

    def wanted(self, number: int) -> float:
        """The part of the machine that the blocks of a step fill which have not ended."""
        kernel = self.kernels[number]
        is_last_wave = self.left[number] <= kernel.seconds / kernel.waves(self.machine) + _LEAST
        return kernel.tail(self.machine) or 1.0 if is_last_wave else 1.0

    def step(self, now: float, shares: dict[int, float], waiting: Iterable[int]) -> float:
        """The seconds until a step ends, comes to its last wave, or is ready."""
        times = [self.ready[number] - now for number in waiting]
        for number, share in shares.items():
            if share > _LEAST:
                kernel, rate = self.kernels[number], share / self.wanted(number)
                last = kernel.seconds / kernel.waves(self.machine)
                goal = self.left[number] - last if self.left[number] > last + _LEAST else self.left[number]
                times.append(goal / rate)
        return max(min(times), 0.0)

    def run(self) -> Timeline:
        missing = [len(each) for each in self.sources]
        waiting: list[int] = []
        for number, each in enumerate(self.sources):
            if not each:
                self.ready[number] = self.handled + self.machine.node
                self.handled += self.machine.branch
                waiting.append(number)
        running: list[int] = []
        now = 0.0
        while waiting or running:
            for number in sorted((n for n in waiting if self.ready[n] <= now + _LEAST), key=self.ready.__getitem__):
                waiting.remove(number)
                running.append(number)
            shares = self.shares(running)
            wanted = {number: self.wanted(number) for number in running}
            passed = self.step(now, shares, waiting)
            for number, share in shares.items():
                if share > _LEAST and self.begins[number] < 0:
                    self.begins[number] = now
                self.left[number] -= passed * share / wanted[number]
            now += passed
            for number in [number for number in running if self.left[number] <= _LEAST]:
                running.remove(number)
                self.ends[number] = now
                if self.begins[number] < 0:  # a step that takes no time
                    self.begins[number] = now
                for second in self.readers[number]:
                    missing[second] -= 1
                    time = now if self.follows[second] == number else self.after_event(now)
                    self.ready[second] = max(self.ready[second], time + self.machine.node)
                    if not missing[second]:
                        waiting.append(second)
        return Timeline(tuple(self.begins), tuple(self.ends))


def graph_time(kernels: Sequence[KernelTime], edges: Iterable[Edge], machine: Machine) -> Timeline:
    """When the steps of a graph run."""
    return _Graph(kernels, edges, machine).run()


def pipelined_time(kernels: Sequence[KernelTime], edges: Iterable[Edge], machine: Machine) -> float:
    """Seconds of a graph in which kernels that do not wait for each other have complementary resources and run at full
    speed (equation 4.19 without overhead): the longest way through the graph."""
    ends: list[float] = []
    sources: list[list[int]] = [[] for _ in kernels]
    for first, second in edges:
        sources[second].append(first)
    for number, kernel in enumerate(kernels):
        begin = max((ends[source] for source in sources[number]), default=0.0)
        events = machine.event * max(0, len(sources[number]) - 1)
        ends.append(begin + events + machine.node + kernel.seconds)
    return max(ends, default=0.0)
