"""Loads of one warp from the same address in each iteration of a loop, in machine code.

Such a load misses the caches in the first iteration at most. Behind it, the line is in the first-level cache, which is
about ten times as fast as the memory (`arch.LATENCY`). An example is a table that all threads read in a loop whose
stores may change it, so that it is not kept in registers.

Computes: the places of the global loads whose address registers no instruction of their innermost loop writes.
Requires: words of code for sm_75 or newer, with their classes and blocks. Bits 16–23 of a word are the register that is
written, 24–31 the register of the address, 73–75 the size of a load.
Guarantees: the time is linear in the number of instructions, times the depth of loops. Where it is not known which
registers an instruction writes, too many are assumed, so that a load is not listed. An offset in a uniform register is
taken as constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ..graphs import strongly_connected_components

__all__ = ["repeated_loads"]

_GLOBAL = frozenset(["load_global", "load_generic"])
#: Classes of instructions that write no register.
_WRITE_NOTHING = frozenset(("store_global", "store_shared", "store_local", "store_generic", "async_copy")) | frozenset(
    ("cache", "fence", "branch", "exit", "call", "convergence", "nop")
)
#: The register that is always zero. A load with it has its address in uniform registers.
_ZERO = 255
#: The operation that loads matrices from shared memory, and the size of loads of 64 bits.
_LDSM, _SIZE_64 = 0x03B, 5


def repeated_loads(
    words: Sequence[tuple[int, int]],
    classes: Sequence[str],
    uniform: Sequence[bool],
    blocks: Sequence[tuple[int, int]],
    successors: Sequence[Sequence[int]],
    depth: Sequence[int],
) -> list[int]:
    """The numbers of the instructions. ``uniform``: whether an instruction writes uniform registers only.

    >>> load, add = (2 << 16 | 4 << 24, 0), (6 << 16, 0)
    >>> repeated_loads([load, add], ["load_global", "integer"], [False] * 2, [(0, 2)], [[0]], [1])
    [0]
    """
    found: list[int] = []
    loads = [[place for place in range(*block) if classes[place] in _GLOBAL] for block in blocks]
    for level in sorted({depth[block] for block, own in enumerate(loads) if own and depth[block]}):
        inside = [block for block, each in enumerate(depth) if each >= level]
        within = set(inside)
        graph = {block: [after for after in successors[block] if after in within] for block in inside}
        for loop in strongly_connected_components(graph, inside):
            own = [place for block in loop if depth[block] == level for place in loads[block]]
            # A block of a function that is called in a loop may be in no loop of its own.
            if own and (len(loop) > 1 or loop[0] in graph[loop[0]]):
                places = chain.from_iterable(range(*blocks[block]) for block in loop)
                written = _written(words, classes, uniform, places)
                found += [place for place in own if _is_constant(words[place][0], written)]
    return sorted(found)


def _written(
    words: Sequence[tuple[int, int]], classes: Sequence[str], uniform: Sequence[bool], places: Iterable[int]
) -> set[int]:
    """The registers that these instructions write, in pairs of which the first one has an even number."""
    written: set[int] = set()
    for place in places:
        if classes[place] in _WRITE_NOTHING or uniform[place]:
            continue
        low, high = words[place]
        first = (low >> 16 & 0xFF) // 2
        written.update(range(first, first + _pairs(classes[place], low & 0x1FF, high >> 9 & 7)))
    return written


def _pairs(kind: str, operation: int, size: int) -> int:
    """How many pairs of registers an instruction writes at most. ``size`` are bits 73–75: of loads, 6 for 128 bits."""
    if kind == "mma":
        return 64
    if operation == _LDSM or kind == "texture":
        return 2
    return 2 if kind.startswith("load") and size > _SIZE_64 else 1


def _is_constant(low: int, written: set[int]) -> bool:
    register = low >> 24 & 0xFF
    return register != _ZERO and register // 2 not in written
