"""Which recorded operations of a run must wait for which, for CUDA graphs with the real dependences.

An operation waits for those that write what it reads, and for those that use what it overwrites. What a launch reads
and writes is given by the caller, who knows the kernels (`Arm.accesses`). A launch of another kernel waits for
everything before it, and everything after it waits for that launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from .workload import Accesses, Copy, Fill, RecordedLaunch, Step, Write

__all__ = ["in_a_row", "sources_of"]

#: The numbers of buffers that an operation reads, and of those that it writes.
Uses: TypeAlias = "tuple[frozenset[int], frozenset[int]]"


def sources_of(steps: Sequence[Step], modules: Sequence[str], accesses: Accesses) -> list[tuple[int, ...]]:
    """For each step: the steps that it waits for, without those that others of them wait for. ``modules`` are the PTX
    of the modules of launches."""
    #: By buffer: the last step that wrote it, and those that have read it since then.
    writer: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    #: The last step whose buffers are not known, if any.
    barrier: int | None = None
    before: list[set[int]] = []
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        uses = _uses(step, modules, accesses)
        waits: set[int] = {barrier} if barrier is not None else set()
        if uses is None:
            waits |= {*range(number)}
            barrier = number
        else:
            read, written = uses
            waits |= {writer[buffer] for buffer in read | written if buffer in writer}
            waits |= {other for buffer in written for other in readers.get(buffer, ())}
            for buffer in written:
                writer[buffer], readers[buffer] = number, set()
            for buffer in read - written:
                readers.setdefault(buffer, set()).add(number)
        found.append(_least(waits, before))
        before.append(waits.union(*(before[other] for other in waits)))
    return found


def _least(waits: Iterable[int], before: Sequence[set[int]]) -> tuple[int, ...]:
    """The steps of ``waits`` that no other one of them waits for."""
    every = set(waits)
    return tuple(sorted(every - set[int]().union(*(before[other] for other in every))))


def _uses(step: Step, modules: Sequence[str], accesses: Accesses) -> Uses | None:
    """The buffers of a step. None if they are not known."""
    if isinstance(step, Write | Fill):
        return frozenset(), frozenset([step.buffer])
    if isinstance(step, Copy):
        return frozenset([step.source]), frozenset([step.target])
    assert isinstance(step, RecordedLaunch)
    known = accesses.get((modules[step.module], step.kernel))
    if known is None or any(isinstance(each, bytes) for each in step.args):
        return None
    read, written = (frozenset(_buffers(step, positions)) for positions in known)
    return read, written


def _buffers(step: RecordedLaunch, positions: Iterable[int]) -> Iterable[int]:
    return (each for at in positions if isinstance(each := step.args[at], int))


def in_a_row(runs: Sequence[Sequence[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """The sources of several runs of which each begins when the one before has ended."""
    found: list[tuple[int, ...]] = []
    ends: tuple[int, ...] = ()
    for run in runs:
        start = len(found)
        found += [tuple(start + other for other in sources) or ends for sources in run]
        read = {other for sources in run for other in sources}
        ends = tuple(start + number for number in range(len(run)) if number not in read)
    return found
