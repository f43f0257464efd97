"""The conditions under which loads that were moved may be executed where the given kernel does not execute them.

The passes may hoist a load above a branch if the launch can tell that the bytes are inside the buffer
(`Promise.inside`). Which loads of the result were hoisted is found by comparing places: a load is at home if a kernel
that is known to be right has the same instruction in the same block. For every other load, the range of its bytes over
all threads must be inside the allocation of its pointer, and the pointer aligned.

Requires: the result of the passes, and kernels that compute the same in every launch in question. Guarantees: in a
launch for which the conditions hold, no load faults that is not in one of these kernels at that place. Refuses
(``None``): a load in a new place whose range is unknown and which no object of known size contains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analysis.manager import Facts
from ..analysis.memory.access_ranges import AccessRanges
from ..analysis.memory.speculation import Bounds
from ..contract import Condition, Holds, Inside, Range
from ..contract.expressions import argument, compare
from ..ptx import Effect, Instr, Kernel, Module

__all__ = ["inside_buffers"]


def inside_buffers(module: Module, kernel: Kernel, others: Sequence[Kernel]) -> tuple[Condition, ...] | None:
    """The conditions for the loads of ``kernel`` that are not at home in one of ``others``; ``None`` if one of them has
    no condition that can be stated."""
    homes = {home for other in others for home, _ in _loads(other)}
    facts = Facts(kernel, module)
    ranges = facts.get(AccessRanges)
    found: dict[Condition, None] = {}
    for home, instr in _loads(kernel):
        if home in homes and home[0] >= 0:
            continue
        reference = facts.memory.reference(instr)
        if reference is not None and facts.get(Bounds).is_inside_object(reference):
            continue
        known = ranges.of(instr)
        scalar = instr.form.type
        if known is None or scalar is None:
            return None
        size = scalar.bytes * instr.form.lanes
        if known.factor % size:
            return None
        found.update(dict.fromkeys(map(Holds, known.needs)))
        if size > 1:
            found[Holds(compare("==", argument(known.pointer) % size, 0))] = None
        found[Inside(Range(known.pointer, known.start, known.stop))] = None
    return tuple(found)


#: A load by its offset in the source, with its block: label, offsets of the branches at its end and before it, next
#: label.
_Home = tuple[int, str, int, int, str]


def _loads(kernel: Kernel) -> Iterator[tuple[_Home, Instr]]:
    """Each load with its home."""
    before = -1
    for number, block in enumerate(kernel.blocks):
        following = kernel.blocks[number + 1].label if number + 1 < len(kernel.blocks) else None
        end = block.terminator
        label = block.label.text if block.label is not None else ""
        place = (label, end.pos if end is not None else -1, before, following.text if following is not None else "")
        for instr in block.instrs:
            if instr.form.effects & Effect.READ and not instr.is_directive:
                yield (instr.pos, *place), instr
        if end is not None:
            before = end.pos
