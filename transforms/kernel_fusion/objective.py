"""The set of fusions whose estimates together are largest, in place of all fusions that save time alone.

KFCM fuses a pair as soon as it is legal and saves time. That may prevent a better fusion later, and a fusion that only
helps together with another one is never made. Here launches are divided into blocks, and KFCM may fuse launches of one
block only. The search starts with what KFCM does without blocks, with one block of all launches, and with a block for
each launch. It then merges two blocks or moves one launch, as long as the sum of the estimates grows. Two launches that
do not need each other may be in a block, too (horizontal fusion).

Guarantees: the fusions are legal, as each of them is one of KFCM; their estimates are at least those of KFCM alone. The
number of programs that are tried is limited (`MOST_TRIED`).
Reference: thesis §5.2.3; Qiao, thesis, §3.5, for the search over partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Generic, Protocol, TypeAlias, TypeVar

__all__ = ["MOST_TRIED", "Allowed", "Attempt", "best_fusions"]

#: The most programs that are tried.
MOST_TRIED = 200

#: Seconds below this are none.
_LEAST = 1e-12

Block: TypeAlias = "frozenset[int]"
Blocks: TypeAlias = "frozenset[Block]"

#: Whether launches with these numbers may be fused to one.
Allowed: TypeAlias = "Callable[[Block], bool]"


class Attempt(Protocol):
    """A program that was fused."""

    @property
    def saved(self) -> float:
        """The seconds that its fusions save by their estimates."""
        ...

    @property
    def fused_launches(self) -> Sequence[Block]:
        """For each fused launch: the numbers of the launches of the given program that it does the work of."""
        ...


A = TypeVar("A", bound=Attempt)


def best_fusions(count: int, attempt: Callable[[Allowed], A], first: A) -> A:
    """The attempt that saves most. ``attempt`` fuses a program with ``count`` launches where that is allowed; ``first``
    is what KFCM does without blocks."""
    search = _Search(attempt)
    singles = frozenset(frozenset([number]) for number in range(count))
    starts = [_blocks_of(first, count), frozenset([frozenset(range(count))]) if count else singles, singles]
    best = first
    for start in starts:
        found = search.climb(start)
        if found.saved > best.saved + _LEAST:
            best = found
    return best


def _blocks_of(made: Attempt, count: int) -> Blocks:
    """The launches that are fused with each other, and the others alone. A launch of which copies were fused with
    different launches joins all of them."""
    blocks: list[set[int]] = [{number} for number in range(count)]
    for fused in made.fused_launches:
        joined = [block for block in blocks if block & fused]
        blocks = [block for block in blocks if not block & fused]
        blocks.append(set[int]().union(*joined, fused))
    return frozenset(map(frozenset[int], blocks))


class _Search(Generic[A]):
    def __init__(self, attempt: Callable[[Allowed], A]) -> None:
        self.attempt = attempt
        #: By blocks: the program that was fused within them.
        self.tried: dict[Blocks, A] = {}

    def made(self, blocks: Blocks) -> A | None:
        """The program fused within blocks. None if too many were tried."""
        if blocks not in self.tried:
            if len(self.tried) >= MOST_TRIED:
                return None
            self.tried[blocks] = self.attempt(lambda numbers: any(numbers <= block for block in blocks))
        return self.tried[blocks]

    def climb(self, start: Blocks) -> A:
        """The best program that changes of the blocks lead to."""
        at, best = start, self.made(start)
        if best is None:
            return max(self.tried.values(), key=lambda made: made.saved)
        while True:
            better = at
            for blocks in _changes(at):
                made = self.made(blocks)
                if made is not None and made.saved > best.saved + _LEAST:
                    better, best = blocks, made
            if better == at:
                return best
            at = better


def _changes(blocks: Blocks) -> Iterator[Blocks]:
    """The blocks with two of them merged, or with a launch in another block or alone."""
    for first, second in combinations(sorted(blocks, key=sorted), 2):
        yield (blocks - {first, second}) | {first | second}
        for source, target in ((first, second), (second, first)):
            for number in sorted(source) if len(source) > 1 else ():
                yield (blocks - {source, target}) | {source - {number}, target | {number}}
    for block in sorted(blocks, key=sorted):
        for number in sorted(block) if len(block) > 1 else ():
            yield (blocks - {block}) | {block - {number}, frozenset([number])}
