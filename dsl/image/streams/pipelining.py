"""Kernel pipelining: an order of launches in which kernels with complementary use of resources run at a time.

A block takes a share of the registers, of the shared memory and of the threads of a multiprocessor (equations 4.13 to
4.15); the largest one is that of its kernel (4.16). Kernels are complementary if each takes more than half of a
multiprocessor, so that no two blocks of one kernel fit, and blocks of all of them fit together (4.17). A graph starts
kernels in breadth-first order, in which the kernels of one level have the same needs and wait for each other.
`pipelined` follows algorithm 4: a kernel that is not complementary to those that are running is postponed, and a reader
of the kernel before it is issued instead.

Differences from the thesis: kernels wait for all kernels that ran at a time before them, by edges of the graph, and not
by the order in which streams are captured. If no reader can be issued, the postponed kernel is.

Source: Qiao, thesis, §4.5 (equations 4.13 to 4.19, algorithm 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....arch import REGISTERS, WARP, Architecture
from .dependences import Edge, reduced

__all__ = ["Usage", "is_complementary", "pipelined", "usage_of"]


@dataclass(frozen=True, slots=True)
class Usage:
    """The shares of a multiprocessor that a block takes."""

    registers: float
    shared: float
    threads: float

    @property
    def dominant(self) -> float:
        """Equation 4.16."""
        return max(self.registers, self.shared, self.threads)

    def __str__(self) -> str:
        parts = f"{self.registers:.0%} of the registers, {self.shared:.0%} of shared memory"
        return f"{parts}, {self.threads:.0%} of the threads"


def usage_of(threads: int, registers: int, shared: int, machine: Architecture) -> Usage:
    """The shares of a block with so many ``threads``, ``registers`` of a thread and bytes of ``shared`` memory
    (equations 4.13 to 4.15)."""
    return Usage(threads * registers / REGISTERS, shared / machine.shared, threads / (machine.warps * WARP))


def is_complementary(usages: Sequence[Usage]) -> bool:
    """Equation 4.17. A kernel alone is not complementary to anything."""
    sums = [sum(getattr(each, name) for each in usages) for name in ("registers", "shared", "threads")]
    return len(usages) > 1 and all(each.dominant > 0.5 for each in usages) and max(sums) < 1


def pipelined(usages: Sequence[Usage], edges: Iterable[Edge]) -> tuple[list[int], frozenset[Edge]] | None:
    """An order of steps with these uses and dependences, and edges between the places in this order. None if no two
    steps that may run at a time are complementary."""
    dependences = frozenset(edges)
    sources: list[set[int]] = [{a for a, b in dependences if b == number} for number in range(len(usages))]
    breadth_first = _breadth_first(sources)
    order: list[int] = []
    #: The steps that run at a time, and those that ran before them.
    running: list[int] = []
    ended: list[int] = []
    waits: set[Edge] = set(dependences)
    has_pairs = False
    while len(order) < len(usages):
        chosen = next(step for step in breadth_first if step not in order and sources[step] <= {*order})
        may_join = not sources[chosen] & {*running}
        if may_join and is_complementary([usages[each] for each in (*running, chosen)]):
            has_pairs = True
            running.append(chosen)
        else:
            chosen = _reader_of_last(order, sources, breadth_first, chosen) if running else chosen
            running, ended = [chosen], running
        waits |= {(other, chosen) for other in ended}
        order.append(chosen)
    place = {step: number for number, step in enumerate(order)}
    made = reduced(len(order), [(place[first], place[second]) for first, second in waits])
    return (order, made) if has_pairs else None


def _breadth_first(sources: Sequence[set[int]]) -> list[int]:
    """The steps by their level, which is the longest way to them."""
    levels: list[int] = []
    for each in sources:
        levels.append(1 + max((levels[source] for source in each), default=0))
    return sorted(range(len(sources)), key=lambda step: (levels[step], step))


def _reader_of_last(
    order: Sequence[int], sources: Sequence[set[int]], breadth_first: Sequence[int], postponed: int
) -> int:
    """The step to issue in place of a postponed one: a reader of the last steps that can run, or else itself."""
    done = {*order}
    for last in reversed(order):
        for step in breadth_first:
            if step not in done and last in sources[step] and sources[step] <= done:
                return step
    return postponed
