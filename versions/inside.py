"""The conditions under which loads that were moved may be executed where the given kernel does not execute them.

The passes may hoist a load above a branch if it is known at the launch that the bytes are inside the buffer
(`Promise.inside`, `compared_loads`). Which loads of the result were hoisted is found by comparing places: a load is at
home if a kernel that is known to be right has the same instruction in the same block. For every other load, the range
of its bytes over all threads must be inside the allocation of its pointer, and the pointer aligned, if that is what the
passes have assumed of it. If it is not known what they have assumed of a load, everything is required that they have
assumed of any load. A vector load that the passes have made is never at home: one of its parts may have been hoisted
to the place of the first one.

Requires: the result of the passes, and kernels that compute the same in every launch in question. Guarantees: in a
launch for which the conditions hold, no load faults that is not in one of these kernels at that place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..analysis.manager import Facts
from ..analysis.memory.access_ranges import AccessRange, AccessRanges
from ..analysis.memory.assumptions import Assumptions, Element, Limit
from ..analysis.memory.clamped_indices import ClampedIndices
from ..analysis.memory.speculation import Bounds
from ..contract import Condition, Holds, Inside, Range
from ..contract.expressions import argument, begin, compare, end
from ..ptx import Effect, Instr, Kernel, Module

__all__ = ["inside_buffers", "loads_at_home"]


def inside_buffers(
    module: Module, kernel: Kernel, others: Sequence[Kernel], assumed: Assumptions, limits: Sequence[Limit] = ()
) -> tuple[Condition, ...]:
    """The conditions for the loads of ``kernel`` that are not at home in one of ``others``. The first of these is the
    kernel as it was given. ``assumed``: by the passes that made the kernel. ``limits``: those of its clamped indices,
    whose loads need nothing else than `clamped.limit_conditions`."""
    homes = {home for other in others for home, _ in _loads(other)}
    vectors = {home for home, instr in _loads(others[0]) if instr.form.lanes > 1}
    facts = Facts(kernel, module)
    ranges = facts.get(AccessRanges)
    clamped = ClampedIndices(facts, limits)
    found: dict[Condition, None] = {}
    needs_everything = False
    for home, instr in _loads(kernel):
        if home[0] >= 0 and home in (homes if instr.form.lanes == 1 else vectors):
            continue
        reference = facts.memory.reference(instr)
        if reference is not None and facts.get(Bounds).is_inside_object(reference):
            continue
        if reference is not None and clamped.limit_of(reference) is not None:
            continue
        known = ranges.of(instr)
        if known is None or reference is None or (known, reference.bytes) not in assumed.ranges:
            if not needs_everything:
                found.update(dict.fromkeys(_everything(assumed)))
            needs_everything = True
        else:
            found.update(dict.fromkeys(_inside(known, reference.bytes)))
    return tuple(found)


def loads_at_home(kernel: Kernel, given: Kernel) -> frozenset[int]:
    """The offsets in the source of the loads that stand in ``kernel`` where they stand in ``given``."""
    homes = {home for home, _ in _loads(given)}
    return frozenset(home[0] for home, _ in _loads(kernel) if home[0] >= 0 and home in homes)


def _everything(assumed: Assumptions) -> Iterator[Condition]:
    for known, size in assumed.ranges:
        yield from _inside(known, size)
    for element in assumed.elements:
        yield from _whole_elements(element)


def _inside(known: AccessRange, size: int) -> Iterator[Condition]:
    """The conditions that the range is inside its buffer, and that the pointer is aligned to ``size`` bytes."""
    yield from map(Holds, known.needs)
    yield from _aligned(known.pointer, size)
    yield Inside(Range(known.pointer, known.start, known.stop))


def _aligned(pointer: int, size: int) -> Iterator[Condition]:
    if size > 1:
        yield Holds(compare("==", argument(pointer) % size, 0))


def _whole_elements(element: Element) -> Iterator[Condition]:
    """The conditions that the buffer consists of whole elements before and behind the pointer."""
    pointer, stride = element.pointer, element.stride
    yield from _aligned(pointer, element.align)
    yield Holds(compare("==", (end(pointer) - argument(pointer)) % stride, 0))
    yield Holds(compare("==", (argument(pointer) - begin(pointer)) % stride, 0))


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
