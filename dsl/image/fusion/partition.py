"""Searches for the partition of a graph of kernels whose blocks have the largest sum of values.

A `Problem` has kernels with numbers, weights of edges, and a value for each legal block. The searches:

- `along_edges`: chains of kernels of which each is read by the next one only (algorithm 1 of the thesis);
- `min_cut`: an illegal block is cut where its edges weigh least, until all blocks are legal (algorithm 2);
- `improved`: blocks are merged, also with what is between them, single kernels are moved, and small blocks with their
  neighbours are divided anew, while that helps;
- `exhaustive`: the best partition, for at most `MOST_EXHAUSTIVE` kernels.

Guarantees: blocks are legal, and can be computed one after the other.

Source: Qiao, thesis, §3.5; Stoer, Wagner: A simple min-cut algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

__all__ = ["MOST_EXHAUSTIVE", "Block", "Partition", "Problem", "along_edges", "exhaustive", "improved", "min_cut"]

#: The most kernels of an exhaustive search.
MOST_EXHAUSTIVE = 12

#: The most kernels of two blocks that `improved` divides anew in the best way.
MOST_OF_PAIR = 8

#: The most kernels of a block and the blocks that it has edges with, which `improved` divides anew.
MOST_AROUND = 8

#: Differences of values below this are none.
_LEAST = 1e-9

Block: TypeAlias = frozenset[int]
Partition: TypeAlias = tuple[Block, ...]


@dataclass
class Problem:
    """Kernels 0 … ``size`` - 1, in an order in which they can be computed.

    ``weights`` maps each edge (producer, consumer) to its positive weight. ``value_of`` gives the value of a block of
    several kernels, None if it is not legal; a single kernel has the value 0. ``reads`` and ``readers`` are, for each
    kernel, how many images it reads, and how many kernels read its image; a result of the pipeline counts as read once
    more. ``beside`` maps pairs of kernels (lower, higher) that do not need each other to the positive weight of fusing
    them (horizontal fusion). These edges join blocks as the others do, and order nothing.
    """

    size: int
    weights: Mapping[tuple[int, int], float]
    value_of: Callable[[Block], float | None]
    reads: Sequence[int]
    readers: Sequence[int]
    beside: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    #: By block: its value.
    _values: dict[Block, float | None] = field(default_factory=dict[Block, "float | None"], repr=False)

    def value(self, block: Block) -> float | None:
        """The value of a block. None if it is not legal."""
        if len(block) == 1:
            return 0.0
        if block not in self._values:
            self._values[block] = self.value_of(block)
        return self._values[block]

    def between(self, block: Block) -> Block:
        """The block and all kernels on paths between its kernels."""
        after, before = set(block), set(block)
        edges = sorted(self.weights)
        for first, second in sorted(edges, key=lambda edge: edge[0]):
            if first in after:
                after.add(second)
        for first, second in sorted(edges, key=lambda edge: -edge[1]):
            if second in before:
                before.add(first)
        return frozenset(after & before)

    def touch(self, block: Block, other: Block) -> bool:
        """Whether the blocks are the same or have an edge between them."""
        return block == other or any(not other.isdisjoint(self.neighbours[kernel]) for kernel in block)

    @cached_property
    def neighbours(self) -> dict[int, set[int]]:
        """By kernel: those that it has an edge with. Edges do not change."""
        found: dict[int, set[int]] = {kernel: set() for kernel in range(self.size)}
        for first, second in (*self.weights, *self.beside):
            found[first].add(second)
            found[second].add(first)
        return found

    def total(self, partition: Sequence[Block]) -> float | None:
        """The value of a partition. None if a block is not legal or blocks need each other."""
        values = [self.value(block) for block in partition]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) and self.cycle(partition) is None else None

    def cycle(self, partition: Sequence[Block]) -> Block | None:
        """A block that needs another block which needs it. None if there is none."""
        block_of = {kernel: number for number, block in enumerate(partition) for kernel in block}
        needs: dict[int, set[int]] = {number: set() for number in range(len(partition))}
        for first, second in self.weights:
            if first in block_of and second in block_of and block_of[first] != block_of[second]:
                needs[block_of[second]].add(block_of[first])
        while ready := [number for number, sources in needs.items() if not sources]:
            for number in ready:
                del needs[number]
            for sources in needs.values():
                sources.difference_update(ready)
        several = [partition[number] for number in needs if len(partition[number]) > 1]
        return min(several, key=lambda block: (self.value(block) or 0.0, sorted(block))) if several else None


def ordered(partition: Sequence[Block]) -> Partition:
    """The blocks by their first kernels."""
    return tuple(sorted(partition, key=min))


# --- along edges --------------------------------------------------------------------------------------------------


def along_edges(problem: Problem) -> Partition:
    """Chains of kernels in which each kernel reads nothing but the one before, which nothing else reads. While a chain
    is not legal, its last kernels start another chain."""
    after = {a: b for a, b in problem.weights if problem.readers[a] == 1 and problem.reads[b] == 1}
    seen: set[int] = set()
    blocks: list[Block] = []
    for kernel in range(problem.size):
        if kernel in seen:
            continue
        chain = [kernel]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        seen.update(chain)
        while chain:
            count = len(chain)
            while problem.value(frozenset(chain[:count])) is None:
                count -= 1
            blocks.append(frozenset(chain[:count]))
            chain = chain[count:]
    return ordered(blocks)


# --- minimum cuts -------------------------------------------------------------------------------------------------


def min_cut(problem: Problem) -> Partition:
    """Start with one block of all kernels. Cut a block that is not legal along its minimum cut, and a block that is in
    a cycle of blocks."""
    working: list[Block] = [frozenset(range(problem.size))]
    ready: list[Block] = []
    while working:
        block = working.pop()
        if problem.value(block) is not None:
            ready.append(block)
        else:
            working += _cut(problem, block)
        if not working and (found := problem.cycle(ready)) is not None:
            ready.remove(found)
            working += _cut(problem, found)
    return ordered(ready)


def _cut(problem: Problem, block: Block) -> list[Block]:
    """The parts of a block of several kernels: its components, or the two sides of a minimum cut."""
    import networkx

    nx: Any = networkx
    graph = nx.Graph()
    graph.add_nodes_from(sorted(block))
    for (first, second), weight in sorted({**problem.beside, **problem.weights}.items()):
        if first in block and second in block:
            graph.add_edge(first, second, weight=weight)
    components = [frozenset[int](part) for part in nx.connected_components(graph)]
    if len(components) > 1:
        return components
    _, (first, second) = nx.stoer_wagner(graph)
    return [frozenset(first), frozenset(second)]


# --- exhaustive ---------------------------------------------------------------------------------------------------


def exhaustive(problem: Problem) -> Partition:
    """A partition with the largest value. Raises `ValueError` for more than `MOST_EXHAUSTIVE` kernels."""
    if problem.size > MOST_EXHAUSTIVE:
        raise ValueError(f"an exhaustive search takes at most {MOST_EXHAUSTIVE} kernels, not {problem.size}")
    return ordered(_best(problem, list(range(problem.size))))


def _best(problem: Problem, kernels: Sequence[int]) -> list[Block]:
    """The best partition of some kernels into blocks that can be computed one after the other."""
    places = {kernel: place for place, kernel in enumerate(sorted(kernels))}
    count, order = len(places), sorted(kernels)
    sources = [0] * count
    for first, second in problem.weights:
        if first in places and second in places:
            sources[places[second]] |= 1 << places[first]
    full = (1 << count) - 1
    done = [sets for sets in range(full + 1) if all(not sets >> i & 1 or not sources[i] & ~sets for i in range(count))]
    #: By a set of kernels that can be computed first: the largest value, and the last block.
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}
    for whole in done[1:]:
        for part in done:
            if part >= whole:
                break
            block = whole & ~part
            if part & ~whole:
                continue
            value = problem.value(frozenset(order[i] for i in range(count) if block >> i & 1))
            if value is not None and (whole not in best or best[part][0] + value > best[whole][0] + _LEAST):
                best[whole] = best[part][0] + value, block
    blocks: list[Block] = []
    at = full
    while at:
        block = best[at][1]
        blocks.append(frozenset(order[i] for i in range(count) if block >> i & 1))
        at &= ~block
    return blocks


# --- improvement --------------------------------------------------------------------------------------------------


def improved(problem: Problem, starts: Sequence[Partition]) -> Partition:
    """The best of the partitions that small changes of each of ``starts`` lead to."""
    return max((_climbed(problem, start) for start in starts), key=lambda made: problem.total(made) or 0.0)


def _climbed(problem: Problem, start: Partition) -> Partition:
    at, value = list(start), problem.total(start)
    assert value is not None
    while True:
        found = max(_changes(problem, at), key=lambda change: change[0], default=None)
        if found is None or found[0] <= value + _LEAST:
            return ordered(at)
        value, at = found


def _changes(problem: Problem, at: Sequence[Block]) -> Iterator[tuple[float, list[Block]]]:
    """Partitions that differ a little, with their values. In graphs of more than `MOST_EXHAUSTIVE` kernels, only blocks
    with an edge between them are changed together, and none are divided anew."""
    for made in _candidates(problem, at):
        value = problem.total(made)
        if value is not None:
            yield value, made


def _candidates(problem: Problem, at: Sequence[Block]) -> Iterator[list[Block]]:
    is_small = problem.size <= MOST_EXHAUSTIVE
    for first, second in combinations(at, 2):
        if not is_small and not problem.touch(first, second):
            continue
        rest = [block for block in at if block not in (first, second)]
        yield [*rest, first | second]
        between = problem.between(first | second)
        if not between <= first | second:
            joined = [block for block in at if block & between]
            yield [*(block for block in at if not block & between), frozenset[int]().union(*joined)]
        if is_small and 2 < len(first) + len(second) <= MOST_OF_PAIR:
            yield [*rest, *_best(problem, sorted(first | second))]
        for source, target in ((first, second), (second, first)):
            for kernel in source:
                left = source - {kernel}
                yield [*rest, *([left] if left else []), target | {kernel}]
    for block in at:
        rest = [each for each in at if each != block]
        around = [each for each in at if problem.touch(block, each)]
        if is_small and 2 < sum(map(len, around)) <= MOST_AROUND:
            others = [each for each in at if each not in around]
            yield [*others, *_best(problem, sorted(frozenset[int]().union(*around)))]
        for kernel in block if len(block) > 1 else ():
            yield [*rest, block - {kernel}, frozenset([kernel])]
        if len(block) > 2:
            yield [*rest, *_cut(problem, block)]
