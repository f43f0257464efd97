"""Dynamic programming over groups: the cheapest way to compute all operators.

The least cost from a set of operators that are computed already is the least one, over all groups that can be computed
next, of the group and of the rest. All groups of connected operators are considered, and for each of them all tiles,
blocks, pixels of a thread and registers of `shapes`. In a large graph, groups are compared in few shapes. Where a graph
has too many sets (parallel branches), groups are found by the search of fusion (`fusion.planning.searched`) with the
same costs. `regrouped` then looks for better groups, also of operators that are not connected.

Source: Jangda, Guha: Model-Based Warp Overlapped Tiling, §2.4 and §6; Jangda, Bondhugula: An Effective Fusion and Tile
Size Model for Optimizing Image Processing Pipelines (DP-Fusion).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypeAlias

from ...errors import DslError
from ..fusion.partition import Block, Partition, Problem, improved
from ..fusion.planning import searched
from ..graph import Graph
from ..groups import Group, Plan, groups_of
from ..lowered import Options
from ..operators import Image, Node
from .costs import Costed, cheapest
from .known import KnownMembers
from .shapes import FEW, SHAPES, Shape, shapes
from .work import Members, Work, work_of

__all__ = ["Chooser", "Works", "dynamic_plan"]

#: By numbers of operators: the groups of these operators that are compared, and what their kernels do.
Works: TypeAlias = "dict[Block, list[tuple[Group, Work]]]"

#: The most operators of a group, except for those in tiles of lanes in large graphs; and the most sets of computed
#: operators of the exact search.
MOST_OF_GROUP = 12
MOST_SETS = 400
#: The most operators of a graph whose groups are compared in all shapes.
MOST_EXACT = 10
#: The most groups of a larger graph that are compared in the exact search, and in the search that takes its place.
MOST_COMPARED = 700
#: The most groups that are compared after the search over connected groups.
MOST_REGROUPED = 250


@dataclass
class Chooser:
    """Chooses the cheapest schedule of a group. ``works`` keeps what the groups of `shapes` do, and ``members`` the
    members of groups, so that searches with other costs for the same graph and options can use them."""

    graph: Graph
    options: Options
    cost: Callable[[Work], float]
    works: Works = field(default_factory=dict[Block, "list[tuple[Group, Work]]"])
    members: KnownMembers | None = field(default=None, repr=False)
    #: By numbers of operators: the best group and its cost. None if there is no legal group.
    _best: dict[Block, Costed | None] = field(default_factory=dict[Block, "Costed | None"], repr=False)

    def __post_init__(self) -> None:
        self._known = self.members or KnownMembers(self.graph, self.options)

    def best(self, block: Block) -> Costed | None:
        """The cheapest group of these operators. None if no kernel can compute them."""
        if block not in self._best:
            self._best[block] = self._compared(block) if len(block) <= MOST_OF_GROUP else self._in_lanes(block)
        return self._best[block]

    def _compared(self, block: Block) -> Costed | None:
        """The cheapest group of these operators in all shapes that are tried."""
        if block not in self.works:
            members = self._members(block)
            tried = SHAPES if len(self.graph.nodes) <= MOST_EXACT else FEW
            self.works[block] = [(group, work_of(members, group)) for group in shapes(members, tried)]
        best = cheapest(Costed(group, self.cost(work)) for group, work in self.works[block])
        return self._climbed(best) if best is not None else None

    def _in_lanes(self, block: Block) -> Costed | None:
        """The cheapest group of many operators, which are in tiles of lanes."""
        groups = self._of_lanes(block, FEW)
        return cheapest(Costed(group, self.cost(work_of(members, group))) for members, group in groups)

    def _members(self, block: Block) -> Members:
        return self._known.of(tuple(self.graph.nodes[at] for at in sorted(block)))

    def _of_lanes(self, block: Block, tried: Sequence[Shape]) -> Iterator[tuple[Members, Group]]:
        """The groups of many operators with tiles of lanes, where everything that windows read is tiled."""
        members = self._members(block)
        groups = [members.with_(members.read_by_windows, shape) for shape in tried if shape.kind == "lanes"]
        #: By columns of a lane: whether there is a kernel.
        legal: dict[int, bool] = {}
        for group in groups if members.can_be_kept else ():
            columns = group.pixels[0]
            if columns not in legal:
                legal[columns] = next(iter(group.problems(self.options)), None) is None
            if legal[columns]:
                yield members, group

    @property
    def compared(self) -> int:
        """How many groups have been compared."""
        return len(self._best)

    def is_known(self, block: Block) -> bool:
        """Whether the shapes of the group of these operators have been compared."""
        return block in self._best

    def known(self, block: Block) -> Costed | None:
        """The same as `best`, for many operators and where it is known already."""
        return self.best(block) if len(block) > MOST_OF_GROUP else self._best.get(block)

    def _climbed(self, start: Costed) -> Costed:
        """The group after changes of single operators between tiles and places where they are read, while that
        helps."""
        members = self._known.of(start.group.nodes)
        worth = members.read_by_windows | members.repeated if start.group.kind == "block" else frozenset[Node[Any]]()
        candidates = [node for node in members.nodes if node in worth]
        best = start
        while True:
            changed = [replace(best.group, tiled=best.group.tiled ^ {node}) for node in candidates]
            legal = (group for group in changed if members.is_legal(group))
            other = cheapest(Costed(group, self.cost(work_of(members, group))) for group in legal)
            if other is None or other.cost >= best.cost:
                return best
            best = other

    def single(self, at: int) -> Costed:
        """The cheapest group of one operator. Raises `DslError`."""
        best = self.best(frozenset([at]))
        if best is None:
            name = self.graph.nodes[at].name
            raise DslError(f"no kernel can compute {name} alone", self.graph.nodes[at].place)
        return best

    def plan(self, partition: Partition) -> tuple[Plan, float]:
        """The plan of a partition, and its cost."""
        number = {node: at for at, node in enumerate(self.graph.nodes)}
        groups: list[Group] = []
        total = 0.0
        for nodes in groups_of(self.graph, [[self.graph.nodes[at] for at in block] for block in partition]):
            block = frozenset(number[node] for node in nodes)
            best = self.best(block)
            assert best is not None
            if len(self.graph.nodes) > MOST_EXACT:
                members = self._known.of(nodes)
                is_small = len(nodes) <= MOST_OF_GROUP
                tried = shapes(members) if is_small else (each for _, each in self._of_lanes(block, SHAPES))
                others = (Costed(group, self.cost(work_of(members, group))) for group in tried)
                best = cheapest((best, *others)) or best
            groups.append(best.group)
            total += best.cost
        return Plan(self.graph, tuple(groups)), total


class _TooManySets(Exception):
    """The graph has too many sets of computed operators."""


def dynamic_plan(chooser: Chooser, *, regroup: bool = False) -> tuple[Plan, float]:
    """The plan with the least cost, and its cost in microseconds. With ``regroup``, operators without an edge or a
    common input may be in one group, too."""
    try:
        partition = _Exact(chooser).partition()
        if regroup:
            partition = regrouped(chooser, partition)
    except _TooManySets:
        partition = searched(_problem(chooser))
        # The blocks of the search are the costs that are known; among them are those of single operators.
        partition = min(partition, _in_order(chooser), key=lambda each: sum(_cost(chooser, block) for block in each))
    return chooser.plan(partition)


def regrouped(chooser: Chooser, partition: Partition) -> Partition:
    """A partition that costs no more, whose blocks need not be connected. The best one, if not more than
    `MOST_REGROUPED` groups have to be compared for that. Otherwise the given one after small changes: blocks are merged
    and divided anew, and operators are moved (`fusion.partition.improved`), into groups that have been compared."""
    if len(partition) == 1:
        return partition
    try:
        return _Exact(chooser, chooser.compared + MOST_REGROUPED).partition()
    except _TooManySets:
        problem = _problem(chooser, 0)
        # A block may cost as much as its operators alone: then it has no value in the problem.
        return improved(problem, [partition]) if problem.total(partition) is not None else partition


def _cost(chooser: Chooser, block: Block) -> float:
    best = chooser.best(block)
    assert best is not None
    return best.cost


def _in_order(chooser: Chooser) -> Partition:
    """The best partition whose blocks are operators that follow each other in the graph, of those blocks whose costs
    are known and those with more than `MOST_OF_GROUP` operators."""
    size = len(chooser.graph.nodes)
    #: By number of operators: the least cost of the first ones, and the first operator of the last block.
    least: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, size + 1):
        costs = [(least[end - 1][0] + chooser.single(end - 1).cost, end - 1)]
        for start in range(end - 1):
            best = chooser.known(frozenset(range(start, end)))
            if best is not None:
                costs.append((least[start][0] + best.cost, start))
        least.append(min(costs))
    blocks: list[Block] = []
    end = size
    while end:
        blocks.append(frozenset(range(least[end][1], end)))
        end = least[end][1]
    return tuple(reversed(blocks))


class _Exact:
    """The exact search over connected groups, or with ``most`` over all groups, of which at most so many are known in
    the end."""

    def __init__(self, chooser: Chooser, most: int = 0) -> None:
        self.chooser, self.size, self.most = chooser, len(chooser.graph.nodes), most
        number: dict[Image[Any], int] = {node: at for at, node in enumerate(chooser.graph.nodes)}
        nodes = chooser.graph.nodes
        images = [{access.image for access in node.accesses} for node in nodes]
        #: By operator: the operators that it reads; and those that it has an edge with, or an image that both read.
        self.reads = [frozenset(number[image] for image in read if isinstance(image, Node)) for read in images]
        self.beside: list[set[int]] = [
            {
                other
                for other in range(self.size)
                if other != at and (other in self.reads[at] or at in self.reads[other] or images[at] & images[other])
            }
            for at in range(self.size)
        ]
        #: By set of computed operators: the least cost of the others, and the groups, the first one first.
        self._least: dict[Block, tuple[float, Partition]] = {}

    def partition(self) -> Partition:
        return self._rest(frozenset())[1]

    def _rest(self, done: Block) -> tuple[float, Partition]:
        if len(done) == self.size:
            return 0.0, ()
        if done not in self._least:
            if len(self._least) >= MOST_SETS:
                raise _TooManySets
            self._least[done] = 0.0, ()  # counts the sets that are being computed
            least: tuple[float, Partition] | None = None
            for group in self._next(done):
                most = self.most or (MOST_COMPARED if self.size > MOST_EXACT else inf)
                if self.chooser.compared > most:
                    raise _TooManySets
                best = self.chooser.best(group)
                if best is None:
                    continue
                cost, rest = self._rest(done | group)
                if least is None or best.cost + cost < least[0]:
                    least = best.cost + cost, (group, *rest)
            assert least is not None, "single operators are groups"
            self._least[done] = least
        return self._least[done]

    def _next(self, done: Block) -> Iterator[Block]:
        """The groups of operators that can be computed after ``done``, each once; those that are connected, unless
        all are compared."""
        seen: set[Block] = set()
        pending: list[Block] = [frozenset()]
        while pending:
            group = pending.pop()
            if group in seen:
                continue
            seen.add(group)
            if len(seen) > MOST_SETS:
                raise _TooManySets
            if group and (self.most or self._is_connected(group)):
                yield group
            if len(group) < MOST_OF_GROUP:
                computed = done | group
                next_ones = (at for at in range(self.size) if at not in computed and self.reads[at] <= computed)
                pending += [group | {at} for at in next_ones]

    def _is_connected(self, group: Block) -> bool:
        """Whether the operators of a group are connected by edges, or by images that two of them read."""
        first, *_ = group
        reached, pending = {first}, [first]
        while pending:
            more = (self.beside[pending.pop()] & group) - reached
            reached |= more
            pending += more
        return len(reached) == len(group)


def _problem(chooser: Chooser, more: int = MOST_COMPARED) -> Problem:
    """The search problem of fusion: the value of a block is what it saves. At most ``more`` groups are compared that
    are not known yet."""
    graph, most = chooser.graph, chooser.compared + more
    number: dict[Image[Any], int] = {node: at for at, node in enumerate(graph.nodes)}

    def value(block: Block) -> float | None:
        is_compared = chooser.is_known(block) or len(block) == 1 or chooser.compared < most
        whole = chooser.best(block) if len(block) <= MOST_OF_GROUP and is_compared else None
        if whole is None:
            return None
        saved = sum(chooser.single(at).cost for at in block) - whole.cost
        return saved if saved > 0 else None

    edges = sorted(
        {(number[a.image], number[node]) for node in graph.nodes for a in node.accesses if isinstance(a.image, Node)}
    )
    weights = {edge: max(value(frozenset(edge)) or 0.0, 1e-3) for edge in edges}
    reads = [len({access.image for access in node.accesses}) for node in graph.nodes]
    readers = [len(graph.consumers(node)) + (node in graph.outputs) for node in graph.nodes]
    return Problem(len(graph.nodes), weights, value, reads, readers)
