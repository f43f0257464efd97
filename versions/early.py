"""Versions whose loads in loops are issued before the barriers that precede them (`transforms.memory.early_loads`).

Such a load has to be of memory that nothing writes during the kernel, which mostly needs that buffers are disjoint. So
the version extends the one for disjoint buffers, and its conditions are those for all pairs of parameters that the two
need. No thread executes a load that it does not execute in the kernel, so nothing has to be inside of a buffer.

ptxas decides what becomes of the order of the loads: it moves read-only loads over barriers in both directions, plain
ones over none, and the moved loads need registers. So the pass runs with several distances, and the machine code that
needs the fewest cycles between its barriers is taken, in the geometric mean over the usual sizes of blocks
(`Figures.cycles_of_block`).

Requires: a kernel that computes the same as the given one if ``pairs`` are disjoint. Guarantees: so does each result
if its pairs are disjoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.manager import Facts
from ..analysis.memory.alias import Promise
from ..contract import Condition
from ..ptx import Effect, Kernel, Module, print_kernel
from ..transforms.passes import passes_of
from ..transforms.remarks import Remarks
from .disjointness import by_allocation, by_ranges
from .pairs import Pair, needed_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..transforms.pipeline import KernelTransform

__all__ = ["DISTANCES", "Early", "early_kernels", "early_requirements"]

#: The values of the option ``distance`` that are tried. Without figures of the machine code, only the first is.
DISTANCES = (64, 16, 32, 128, 256)

_PASSES = "earlyloads:distance={},copyprop,dce,emptyblocks"


@dataclass(frozen=True)
class Early:
    """A kernel with loads before barriers, and how it was made of ``given``."""

    kernel: Kernel
    given: Kernel
    transform: KernelTransform

    def needed(self, module: Module, relevant: frozenset[Pair]) -> frozenset[Pair]:
        """The pairs of parameters that have to be disjoint for it. ``relevant``: those of which one is written."""
        return needed_pairs(self.transform, module, self.given, relevant)


def early_kernels(transform: KernelTransform, module: Module, kernel: Kernel) -> Iterator[Early]:
    """The results of the pass for `DISTANCES`, without those with the same text, if all pairs of parameters are
    disjoint."""
    if not any(instr.form.effects & Effect.BARRIER and not instr.is_directive for instr in kernel.instructions()):
        return
    known = {print_kernel(kernel)}
    for distance in DISTANCES:
        own = replace(transform, passes=passes_of(_PASSES.format(distance)), timings={}, observer=None)
        moved, log = kernel.clone(), Remarks(module)
        replace(own, promise=Promise(everything=True))(module, moved, log)
        if not any(remark.name == "Moved" for remark in log.items):
            return
        text = print_kernel(moved)
        if text not in known:
            known.add(text)
            yield Early(moved, kernel, own)


def early_requirements(
    facts: Facts, lower: Mapping[str, tuple[Condition, ...]], pairs: frozenset[Pair], more: frozenset[Pair]
) -> dict[str, tuple[Condition, ...]]:
    """By description the conditions of a version that extends one with the conditions ``lower``, for ``pairs``, and
    assumes that ``more`` are disjoint, too. ``facts``: of the kernel as it was given."""
    if not more:
        return {_named(what): conditions for what, conditions in lower.items()}
    numbers = {param.name: number for number, param in enumerate(facts.kernel.params or ())}
    every = pairs | more
    kinds = {"disjoint buffers": by_allocation(numbers, every), "disjoint accesses": by_ranges(facts, every)}
    found: dict[str, tuple[Condition, ...]] = {}
    for what, conditions in lower.items():
        for kind, own in kinds.items():
            if own is not None and (what.startswith(kind) or not pairs):
                rest = what.removeprefix(kind).removeprefix(", ")
                found[_named(f"{kind}{', ' if rest else ''}{rest}")] = tuple(dict.fromkeys((*conditions, *own)))
    return found


def _named(what: str) -> str:
    return f"{what}{', ' if what else ''}loads before barriers"
