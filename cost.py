"""The cost of a kernel: the weight of loops, the figures of its machine code, and the comparison of two versions.

To change the costs that the gate uses, change this module.

- A loop is assumed to run `TRIPS` times, so an instruction at loop depth d has weight ``TRIPS ** min(d, DEEPEST)``.
- `Figures` describe one kernel. `worse` returns the figure that got worse, `is_better` whether the kernel got better,
  `gain` all differences in words. `transforms/gate/gate.py` describes the rule.

Imports no other module of this package, so every folder may import it. Guarantees: no kernel is both worse and better;
no kernel is better than itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = [
    "BLOCK_WARPS",
    "DEEPEST",
    "FITTED_SM",
    "HOIST_WARPS",
    "LEAST_EFFECT",
    "LEAST_GAIN",
    "LEAST_PREFERENCE",
    "MOST_WARPS",
    "RESERVE",
    "RESERVE_TO_HOIST",
    "RESOLUTION",
    "SCHEDULERS",
    "TRIPS",
    "Figures",
    "Piece",
    "gain",
    "is_better",
    "loop_weight",
    "preferred_between_barriers",
    "preferred_warps",
    "slower_loops",
    "too_small",
    "worse",
]

#: How often a loop is assumed to run where there is no profile, and the loop depth from which the weight is constant.
TRIPS = 8.0
DEEPEST = 6

#: Instructions that a multiprocessor issues in a cycle.
SCHEDULERS = 4

#: Figures that differ by less than this share are equal.
RESOLUTION = 0.001

#: A difference of times that counts.
LEAST_EFFECT = 0.01

#: The architecture on which the times were measured from which the next two numbers come (docs/experiments/gate.md).
FITTED_SM = 90
#: A kernel is better if a figure gets better by this share; on other architectures, by twice this share.
LEAST_GAIN = 0.0025
#: A version with hoisted loads is preferred if the model expects it to be faster by this share; on other architectures,
#: by twice this share.
LEAST_PREFERENCE = 0.005
#: The least ratio of the latencies of a warp to the work of all warps of its scheduler at which fewer warps may be
#: resident. From this ratio on, fewer instructions alone are no gain. The middle between a kernel that became slower
#: with fewer warps (1.3) and one that became faster (1.99).
RESERVE = 1.6
#: The least ratio at which loads are executed early although they may not be needed.
RESERVE_TO_HOIST = 4.0

#: Loads are executed early for launches with at most so many warps per scheduler, unless any number is preferred. The
#: further loads of all warps share the first-level cache, which the figures do not contain: barneshut with 6 warps was
#: 0.977, although its latencies are 7 times the work of these warps.
HOIST_WARPS = 4

#: The usual sizes of blocks, as how many warps a scheduler has of one: blocks of 128, 256, 512 and 1024 threads.
BLOCK_WARPS = (1, 2, 4, 8)

#: By which share loads before barriers have to be faster if all warps wait at the same time (on other architectures by
#: twice this share), and by which they may be slower if the blocks wait at different times (experiments/versions.md)
LEAST_GAIN_IN_STEP = 0.02
MOST_LOSS_APART = 0.015

#: The most warps that a scheduler can have.
MOST_WARPS = 16


def loop_weight(depth: int) -> float:
    """How often an instruction at this loop depth is assumed to run, per execution of its kernel.

    >>> loop_weight(0), loop_weight(2)
    (1.0, 64.0)
    """
    return TRIPS ** min(depth, DEEPEST)


class Piece(NamedTuple):
    """The code between two barriers: the cycles of one warp, the instructions, and those of them that the load/store
    unit executes, weighted as in `Figures`."""

    cycles: float
    weight: float
    requests: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one kernel. ``code`` is equal for equal machine code; ``warps`` is how many fit on a
    multiprocessor; ``weight`` is the sum of the weights of the instructions; ``spills`` counts accesses to local
    memory; ``cycles`` are those of one warp alone, 0 where the judge knows no schedule. ``exposed`` are the cycles in
    which it waits for global loads (`toolchain/warp_schedule.py`), `None` if they are not known. ``cached`` are
    the cycles if a load of the same address in each iteration of a loop is a hit from the second iteration on.
    ``looped`` and ``quickest`` are cycles in loops, ``fetched`` those in which the warp waits for their instructions;
    ``weight_in_loops`` is the weight of these instructions (`slower_loops`). ``sm`` is the architecture, 90 for sm_90a.
    ``requests`` are the weights of the instructions that the load/store unit executes. ``threads`` are those of the
    largest usual block that can be launched, 0 where that is not known. ``pieces`` is the code between barriers on the
    slowest way through the kernel, empty if no barrier is in a loop. ``barriers`` is the sum of the weights of
    barriers. ``resident`` is how many warps fit on a multiprocessor for each size of block in `BLOCK_WARPS`, empty if
    that is not known.

    ``is_static``: the figures are those of a judge without an assembler. Then ``weight`` counts accesses to memory and
    long operations, ``spills`` the 32-bit values that are live beyond the registers of a thread, and neither warps nor
    registers are compared.
    """

    code: str
    registers: int
    spills: int
    warps: float
    weight: float
    cycles: float = 0.0
    is_static: bool = False
    sm: int = FITTED_SM
    exposed: float | None = None
    cached: float | None = None
    looped: float | None = None
    quickest: float | None = None
    fetched: float = 0.0
    weight_in_loops: float | None = None
    requests: float = 0.0
    threads: int = 0
    pieces: tuple[Piece, ...] = ()
    barriers: float = 0.0
    resident: tuple[int, ...] = ()

    def work(self, warps: float) -> float:
        """The cycles for which a warp needs its scheduler or the load/store unit, if the scheduler has ``warps`` warps.
        The unit takes one instruction in a cycle (docs/experiments/gate.md). The schedulers of a multiprocessor share
        it; but if each has one warp at most, that may be the only one."""
        return _work(self.weight, self.requests, warps)

    def cycles_among(self, warps: float) -> float:
        """The cycles of a scheduler per warp if ``warps`` warps are resident. It is the larger one of two numbers: the
        work of a warp, and the latencies of a warp divided by the number of warps."""
        return max(self.work(warps), self.cycles / warps)

    def cycles_of_block(self, warps: float) -> float:
        """The cycles of a block of which a scheduler has ``warps`` warps. They wait for each other at the end of each
        of the `pieces`; so a piece takes the work of all warps, or the latencies of one, whichever is longer."""
        return sum(max(each.cycles, _work(each.weight, each.requests, warps) * warps) for each in self.pieces)

    def cycles_among_blocks(self, warps: float, blocks: int) -> float:
        """The cycles of a scheduler per warp if ``blocks`` blocks are resident, of each of which it has ``warps``
        warps. While the warps of one block wait, those of the others work."""
        every = warps * blocks
        return max(self.slowest_way.work(every), self.cycles_of_block(warps) / every)

    def cycles_in_step(self, warps: float) -> float:
        """The cycles of a scheduler per warp if ``warps`` warps are resident that go on together: each one works, and
        then all of them wait for the latencies of one."""
        return (self.cycles + (warps - 1) * self.work(warps)) / warps

    @property
    def slowest_way(self) -> Figures:
        """These figures for the way of the `pieces` only."""
        cycles, weight, requests = (sum(column) for column in zip(*self.pieces, strict=True))
        return replace(self, cycles=cycles, weight=weight, requests=requests)

    def resident_warps(self, index: int) -> float:
        """The warps on a multiprocessor with blocks of the size ``BLOCK_WARPS[index]``."""
        return self.resident[index] if self.resident else self.warps

    def waits(self, warps: float, reserve: float) -> bool:
        """Whether the latencies of a warp are at least ``reserve`` times the instructions that its scheduler issues for
        ``warps`` warps.

        It does not count the load/store unit, as `work` does for hoisted loads: `RESERVE` was chosen for this ratio.
        FDTD3d, which gains 6 to 8 % with fewer resident warps, has 2.6; with the unit it has 1.7
        (docs/experiments/gate.md).
        """
        return self.cycles >= reserve * warps * self.weight

    @property
    def strictness(self) -> float:
        """The factor by which the least gains are multiplied: 1 on the architecture on which they were measured."""
        return 1.0 if self.is_static or self.sm == FITTED_SM else 2.0

    @property
    def full(self) -> float:
        """Cycles per warp on a full multiprocessor."""
        return max(self.weight / SCHEDULERS, self.cycles / max(self.warps, 1.0))


def _work(weight: float, requests: float, warps: float) -> float:
    return max(weight, (SCHEDULERS if warps > 1 else 1) * requests)


@dataclass(frozen=True, slots=True)
class _Term:
    """One figure of two kernels, as a cost; ``change`` is the difference in words."""

    before: float
    after: float
    change: str

    @property
    def is_worse(self) -> bool:
        return _is_less(self.before, self.after, RESOLUTION)

    def is_better(self, by: float) -> bool:
        """Whether it gets better by this share."""
        return _is_less(self.after, self.before, by)


def _terms(before: Figures, after: Figures) -> list[_Term]:
    """The figures that must not get worse, besides spills."""
    if before.is_static:
        counted = f"weighted accesses and long operations {after.weight:g} instead of {before.weight:g}"
        return [_Term(before.weight, after.weight, counted)]
    # In a large launch, all warps that fit are resident.
    warps = _Term(-before.warps, -after.warps, f"{after.warps:g} warps on a multiprocessor instead of {before.warps:g}")
    if before.cycles and after.cycles:
        alone = f"{after.cycles:.0f} cycles of one warp alone instead of {before.cycles:.0f}"
        full = f"{after.full:.2f} cycles per warp on a full multiprocessor instead of {before.full:.2f}"
        both = [_Term(before.cycles, after.cycles, alone), _Term(before.full, after.full, full)]
        # If the work of the warps nearly fills the time, the kernel does not wait for latencies. Then fewer warps cost
        # more than the schedule of one warp shows.
        return both if _is_waiting(before) else [*both, warps]
    weight = f"weighted machine instructions {after.weight:g} instead of {before.weight:g}"
    return [warps, _Term(before.weight, after.weight, weight)]


def _is_less(left: float, right: float, by: float) -> bool:
    return right - left > by * abs(right)


def worse(before: Figures, after: Figures) -> str:
    """The first figure in which ``after`` is worse than ``before``, in words; empty where there is none."""
    if after.spills > before.spills:
        more = "live values beyond a thread's registers" if before.is_static else "accesses to local memory"
        return f"{after.spills - before.spills} more {more}"
    if 0 < after.threads < before.threads:
        # The driver would refuse launches of the program.
        return f"blocks of at most {after.threads} threads instead of {before.threads}, since it has more registers"
    return slower_loops(before, after) or next((term.change for term in _terms(before, after) if term.is_worse), "")


def slower_loops(before: Figures, after: Figures) -> str:
    """In words, that a warp needs more cycles in loops, if all of their blocks are executed or only those of the
    shortest ways; empty if it does not, or if that is not known. How often loops run is not known, so a gain before and
    behind them may be smaller.

    A gain of instructions in the loops is no such gain. So where it is the larger share, and the work of a full
    multiprocessor is more than the latencies of a warp, the loops are not slower.

    Where a loop begins in its line of the instruction cache changes with any other change of the code, and other warps
    hide the wait for the next line. So the cycles of `Figures.fetched` count only if they make a difference that could
    be measured in a launch of one warp, `LEAST_EFFECT`."""
    by = RESOLUTION
    if before.weight_in_loops and after.weight_in_loops is not None and not before.waits(before.warps / SCHEDULERS, 1):
        by = max(by, 1 - after.weight_in_loops / before.weight_in_loops)
    for old, new, where in (
        (before.looped, after.looped, "in loops"),
        (before.quickest, after.quickest, "on the shortest ways through loops"),
    ):
        if old is None or new is None:
            continue
        if _is_less(old, new, by):
            return f"{new:.0f} cycles of one warp {where} instead of {old:.0f}"
        old, new = old + before.fetched, new + after.fetched
        if _is_less(old, new, max(by, LEAST_EFFECT)):
            return f"{new:.0f} cycles of one warp {where}, with the fetch of instructions, instead of {old:.0f}"
    return ""


def is_better(before: Figures, after: Figures) -> bool:
    """Whether ``after`` is worse in no figure, and better in at least one. Fewer instructions alone are no gain if the
    warps of a full multiprocessor wait for latencies."""
    if worse(before, after):
        return False
    by = RESOLUTION if before.is_static else LEAST_GAIN * before.strictness
    if after.spills < before.spills or any(term.is_better(by) for term in _terms(before, after)):
        return True
    return not before.is_static and not _is_waiting(before) and _is_less(after.weight, before.weight, by)


def _is_waiting(figures: Figures) -> bool:
    """Whether the warps of a full multiprocessor wait for latencies, so that instructions take no time."""
    return figures.cycles > 0 and figures.waits(figures.warps / SCHEDULERS, RESERVE)


def too_small(before: Figures, after: Figures) -> str:
    """The reason why a kernel that is neither worse nor better is reverted, in words."""
    if _is_waiting(before) and _is_less(after.weight, before.weight, LEAST_GAIN * before.strictness):
        return "only instructions decrease, and the warps of a full multiprocessor wait for latencies"
    if before.strictness == 1:
        return f"no figure gets better by {LEAST_GAIN:.2%}"
    by = LEAST_GAIN * before.strictness
    return f"no figure gets better by {by:.2%}, which sm_{before.sm} needs, since the rule was fitted on sm_{FITTED_SM}"


def preferred_warps(before: Figures, after: Figures) -> int | None:
    """The largest number of warps per scheduler at which ``after`` is expected to be faster, although it may execute
    loads that ``before`` does not need: 0 for none, `None` for any number.

    Such loads overlap latencies. This is faster if ``before`` waits for latencies, which is so if the latencies of a
    warp are longer than the work of the warps of its scheduler. The factor `RESERVE_TO_HOIST` allows for what the
    figures do not contain. If the warp waits for global loads as long as before, nothing overlaps: then ptxas has put
    the loads back behind their branches, and only the computation of their addresses is executed early.

    A load of the same address in each iteration of a loop is in the first-level cache from the second one on, so it has
    little latency to overlap, unless the data of many warps displace its line. So it has to be faster both with
    `Figures.cycles` and with `Figures.cached`, with hits for up to `HOIST_WARPS` warps.
    """
    if before.is_static or after.spills > before.spills or not (before.cycles and after.cycles):
        return 0
    # Loads that are executed early make the shortest ways through loops longer. In a small launch, latencies count.
    if not _waits_less(before, after) or slower_loops(replace(before, quickest=None, weight_in_loops=None), after):
        return 0
    warps = _faster_up_to(before, after)
    with_hits = _faster_up_to(_with_hits(before), _with_hits(after))
    if warps == MOST_WARPS and with_hits >= HOIST_WARPS:
        return None
    return min(warps, with_hits, HOIST_WARPS)


def preferred_between_barriers(before: Figures, after: Figures) -> tuple[int | None, ...]:
    """For each size of block in `BLOCK_WARPS`, the largest number of warps per scheduler at which ``after``, whose
    loads are issued before the barriers that precede them, is expected to be faster: 0 for none, `None` for any number.

    It executes no load more than ``before``, but more other instructions, and the loads need registers. The blocks of a
    multiprocessor wait at their barriers at different times or at the same time, and both happen: blocks that begin
    together go on together for a while. So two models have to agree. In the first one the work of a block covers the
    latencies of another (`Figures.cycles_among_blocks`); there ``after`` may be slower by `MOST_LOSS_APART`, since the
    work is then nearly all of the time, and a few instructions more are within the error of the model. In the other one
    nothing covers the latencies of a warp (`Figures.cycles_in_step`); there it has to be faster, and so has the slowest
    way through it, for which the launch waits. The resident warps of a launch must fit with the registers of ``after``.

    If the numbers of barriers differ, ptxas has unrolled a loop of one of the two, but not of the other. Then the
    weights of the loops count another number of iterations, and the figures cannot be compared.

    >>> preferred_between_barriers(Figures("a", 32, 0, 64.0, 99.0), Figures("b", 32, 0, 64.0, 98.0))
    (0, 0, 0, 0)
    """
    if not (before.pieces and after.pieces) or before.barriers != after.barriers:
        return (0,) * len(BLOCK_WARPS)
    if after.spills > before.spills or after.threads < before.threads:
        return (0,) * len(BLOCK_WARPS)
    return tuple(_faster_blocks_up_to(before, after, index) for index in range(len(BLOCK_WARPS)))


def _faster_blocks_up_to(before: Figures, after: Figures, index: int) -> int | None:
    """`preferred_between_barriers` for one size of block."""
    size, warps = BLOCK_WARPS[index], 0
    while warps < MOST_WARPS and _is_faster_among_blocks(before, after, index, warps // size + 1):
        warps += size
    return None if warps >= MOST_WARPS else warps


def _is_faster_among_blocks(before: Figures, after: Figures, index: int, blocks: int) -> bool:
    """Whether ``after`` is faster if so many blocks are resident."""
    size = BLOCK_WARPS[index]
    warps = size * blocks
    if warps * SCHEDULERS > after.resident_warps(index) < before.resident_warps(index):
        return False
    apart = before.cycles_among_blocks(size, blocks) / after.cycles_among_blocks(size, blocks)
    least = 1 + LEAST_GAIN_IN_STEP * before.strictness
    return apart >= 1 - MOST_LOSS_APART and all(
        old.cycles_in_step(warps) > least * new.cycles_in_step(warps)
        for old, new in ((before, after), (before.slowest_way, after.slowest_way))
    )


def _faster_up_to(before: Figures, after: Figures) -> int:
    warps = 0
    while warps < MOST_WARPS and _is_faster(before, after, warps + 1):
        warps += 1
    return warps


def _with_hits(figures: Figures) -> Figures:
    return figures if figures.cached is None else replace(figures, cycles=figures.cached)


def _waits_less(before: Figures, after: Figures) -> bool:
    """Whether ``after`` waits for fewer latencies of global loads, as far as that is known."""
    if before.exposed is None or after.exposed is None:
        return True
    return _is_less(after.exposed, before.exposed, RESOLUTION)


def _is_faster(before: Figures, after: Figures, warps: int) -> bool:
    """Whether ``after`` is faster if a scheduler has so many warps of a launch."""
    if warps * SCHEDULERS > after.warps < before.warps:
        return False  # fewer warps are resident than before
    waits = before.cycles >= RESERVE_TO_HOIST * warps * before.work(warps)
    return waits and before.cycles_among(warps) > (1 + LEAST_PREFERENCE * before.strictness) * after.cycles_among(warps)


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"


def gain(before: Figures, after: Figures) -> str:
    """All figures that differ, in words."""
    weight, registers = "weighted instructions", "registers"
    if before.is_static:
        weight, registers = "weighted accesses and long operations", "live registers"
    parts = [
        f"{what} {_short(old)} → {_short(new)}"
        for what, old, new in (
            ("cycles of one warp", before.cycles, after.cycles),
            (weight, before.weight, after.weight),
            (registers, before.registers, after.registers),
            ("spills", before.spills, after.spills),
            ("warps", before.warps, after.warps),
        )
        if old != new
    ]
    return ", ".join(parts)
