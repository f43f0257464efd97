"""Plans of a graph by search, and the lowering ``fused``.

`thesis_problem` has the blocks, weights and limits of the thesis. `group_problem` has the groups that one kernel can
compute, with the model of time: the value of a block is the time of its kernels less the time of the group, and the
weight of an edge is the value of its two kernels. `fused` lowers the plan of the second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..graph import Graph
from ..group_lowering import lower_plan
from ..groups import Group, Plan, groups_of
from ..lowered import Lowered, Options
from ..operators import Image, Node
from ..schedule.known import KnownMembers
from .benefit import Constants, EdgeEstimate, edge_estimates
from .cost import GroupCost, best_group, cost_of
from .legality import Limits, problem_of_block
from .machine import Machine, machine_here
from .partition import MOST_EXHAUSTIVE, Block, Partition, Problem, along_edges, improved, min_cut
from .pixel_images import with_pixel_images

__all__ = ["GroupProblem", "fused", "fused_horizontally", "names_of", "plan_by_model", "searched", "thesis_problem"]


#: The most kernels of a group that the search considers, so that its time stays small.
MOST_OF_GROUP = 12


def _numbers(graph: Graph) -> tuple[list[int], list[int]]:
    """For each node: how many images it reads, and how many nodes read it; an output counts as read once more."""
    reads = [len({access.image for access in node.accesses}) for node in graph.nodes]
    return reads, [len(graph.consumers(node)) + (node in graph.outputs) for node in graph.nodes]


def _pairs_beside(graph: Graph) -> list[tuple[int, int]]:
    """The pairs of operators that compute the same pixels, of which none needs the other one."""
    number: dict[Image[Any], int] = {node: at for at, node in enumerate(graph.nodes)}
    before: list[set[int]] = []
    for node in graph.nodes:
        direct = [number[access.image] for access in node.accesses if access.image in number]
        before.append({*direct, *(other for at in direct for other in before[at])})
    spaces = [(int(n.space.width), int(n.space.height), n.space.x0, n.space.y0) for n in graph.nodes]
    return [
        (first, second)
        for second in range(len(graph.nodes))
        for first in range(second)
        if spaces[first] == spaces[second] and first not in before[second]
    ]


def thesis_problem(
    graph: Graph, constants: Constants | None = None, limits: Limits | None = None
) -> tuple[Problem, dict[tuple[int, int], EdgeEstimate]]:
    """The search problem of the thesis with the estimates of its edges: blocks are worth the weights of their edges."""
    constants, limits = constants or Constants(), limits or Limits()
    estimates = edge_estimates(graph, constants, limits)
    weights = {edge: estimate.weight for edge, estimate in estimates.items()}

    def value(block: Block) -> float | None:
        if problem_of_block(graph, [graph.nodes[at] for at in sorted(block)], limits):
            return None
        return sum(weight for (a, b), weight in weights.items() if a in block and b in block)

    return Problem(len(graph.nodes), weights, value, *_numbers(graph)), estimates


class GroupProblem:
    """The search problem over groups of a graph. ``horizontal``: operators of the same pixels that do not need each
    other are joined by edges, too. ``known``: what other searches of the graph have computed."""

    def __init__(
        self,
        graph: Graph,
        options: Options,
        machine: Machine | None = None,
        *,
        horizontal: bool = False,
        known: KnownMembers | None = None,
    ) -> None:
        self.graph, self.options, self.machine = graph, options, machine or machine_here()
        self.known = known or KnownMembers(graph, options)
        #: By block: the best group and its cost. None if there is no legal group.
        self._best: dict[Block, tuple[Group, GroupCost] | None] = {}
        number: dict[Image[Any], int] = {node: at for at, node in enumerate(graph.nodes)}
        edges = {
            (number[access.image], number[node])
            for node in graph.nodes
            for access in node.accesses
            if isinstance(access.image, Node)
        }
        #: By (producer, consumer): what fusing only these two saves, at least a small positive number, in microseconds.
        self.weights = {edge: max(self._value(frozenset(edge)) or 0.0, 1e-3) for edge in sorted(edges)}
        #: By two operators that compute the same pixels and do not need each other: what one kernel for both saves, in
        #: microseconds. Pairs for which it saves nothing are left out. Empty unless ``horizontal``.
        self.beside = {
            pair: saved
            for pair in (_pairs_beside(graph) if horizontal else ())
            if (saved := self._value(frozenset(pair)))
        }
        self.problem = Problem(len(graph.nodes), self.weights, self._value, *_numbers(graph), self.beside)

    def best(self, block: Block) -> tuple[Group, GroupCost] | None:
        """The best group of a block, and its cost. None if no kernel can compute it."""
        if block not in self._best:
            nodes = tuple(self.graph.nodes[at] for at in sorted(block))
            self._best[block] = best_group(self.known.of(nodes), self.machine)
        return self._best[block]

    def _value(self, block: Block) -> float | None:
        """Microseconds that the group saves. None if no kernel can compute it, if it saves nothing, or if it has
        more than `MOST_OF_GROUP` kernels."""
        saved = self._saved(block) if len(block) <= MOST_OF_GROUP else None
        return saved if saved is not None and saved > 0 else None

    def _saved(self, block: Block) -> float | None:
        """Microseconds that one kernel saves, which may be negative. None if no kernel can compute the block."""
        whole = self.best(block)
        if whole is None:
            return None
        singles = 0.0
        for at in block:
            single = self.best(frozenset([at]))
            assert single is not None
            singles += single[1].seconds
        return (singles - whole[1].seconds) * 1e6

    def lines(self) -> list[str]:
        """The estimate of each edge, or why no kernel can compute both operators, and the estimate of each pair of
        operators that could be fused beside each other (``|``)."""
        names = [node.name for node in self.graph.nodes]
        found: list[str] = []
        for first, second in self.weights:
            saved = self._saved(frozenset([first, second]))
            if saved is None:
                members = self.known.of((self.graph.nodes[first], self.graph.nodes[second]))
                word = f"no kernel: {members.problem or 'no tiles fit'}"
            else:
                word = f"saves {saved:.2f} us" if saved > 0 else f"loses {-saved:.2f} us"
            found.append(f"{names[first]} -> {names[second]}: {word}")
        found += [f"{names[a]} | {names[b]}: saves {saved:.2f} us" for (a, b), saved in self.beside.items()]
        return found

    def plan(self, partition: Partition) -> Plan:
        """The plan of a partition. Raises `DslError` if it is not legal."""
        groups: list[Group] = []
        number = {node: at for at, node in enumerate(self.graph.nodes)}
        for nodes in groups_of(self.graph, [[self.graph.nodes[at] for at in block] for block in partition]):
            found = self.best(frozenset(number[node] for node in nodes))
            assert found is not None
            groups.append(found[0])
        return Plan(self.graph, tuple(groups))


def names_of(graph: Graph, partition: Sequence[Block]) -> list[list[str]]:
    """The names of the nodes of each block."""
    return [[graph.nodes[at].name for at in sorted(block)] for block in partition]


def searched(problem: Problem) -> Partition:
    """The best partition that is found from minimum cuts, from chains of edges, from single kernels and, in a small
    graph, from each pair of kernels that is legal."""
    singles = tuple(frozenset([at]) for at in range(problem.size))
    starts = [min_cut(problem), along_edges(problem), singles]
    if problem.size <= MOST_EXHAUSTIVE:
        for pair in map(frozenset[int], (*problem.weights, *problem.beside)):
            start = (pair, *(single for single in singles if not single <= pair))
            starts += [start] if problem.total(start) is not None else []
    return improved(problem, starts)


def plan_by_model(
    graph: Graph,
    options: Options,
    machine: Machine | None = None,
    *,
    horizontal: bool = False,
    known: KnownMembers | None = None,
) -> Plan:
    """The plan with the least estimated time that the search finds (`GroupProblem`). Costly functions of single pixels
    may have images of their own in it; ``known`` is that of the graph with these images."""
    problem = GroupProblem(with_pixel_images(graph), options, machine, horizontal=horizontal, known=known)
    return problem.plan(searched(problem.problem))


def fused(graph: Graph, options: Options) -> Lowered:
    """One kernel for each group of `plan_by_model`."""
    return _lowered(plan_by_model(graph, options), options, "fused")


def fused_horizontally(graph: Graph, options: Options) -> Lowered:
    """One kernel for each group of `plan_by_model` with horizontal fusion."""
    return _lowered(plan_by_model(graph, options, horizontal=True), options, "fused+h")


def _lowered(plan: Plan, options: Options, name: str) -> Lowered:
    """The plan as launches, with their estimates as notes."""
    machine, made = machine_here(), lower_plan(plan, options, name)
    launches = [
        replace(launch, notes=(*launch.notes, f"estimate: {cost_of(group, options, machine)} ({machine.name})"))
        for launch, group in zip(made.launches, plan.groups, strict=True)
    ]
    return replace(made, launches=tuple(launches))
