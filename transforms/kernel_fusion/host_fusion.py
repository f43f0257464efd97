"""A host program that the fusion phases can transform.

Guarantees: the given program is not changed; a clone is. Each snapshot shows the current version of the clone. Inserted
launches print as Python at the place of their edge. If a fusion is legal only while some expressions of host variables
are true, the program tests these checks and otherwise launches the kernels one by one. If it is not known which memory
a kernel accesses, its launch is a modification statement of everything that accesses device memory, and the reverse.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from ...dsl.host_cfg import Edge, Effects, HostCfg
from ...dsl.host_nodes import Body, Branch, Expression, HostCall, If, Launch, LoopInit, Node
from ...dsl.host_program import HostProgram
from ..remarks import Remark
from .host_sites import Sites
from .kernel_code import AnyKernel
from .launch_graph import Applied, EdgePoint, LaunchGraph, Place, Step
from .launch_graph import Node as GraphNode
from .loop_inversion import ALWAYS
from .objective import Allowed
from .pairs import FusedPair, Pairs, mentions_max
from .refusals import blocked_pairs

__all__ = ["FusingHost"]


class FusingHost:
    """A clone of ``program`` that is being fused. ``fused`` maps its fused launches to their pairs. ``allowed`` says
    whether launches with these numbers, which are those of the order in the program, may be fused to one. ``saved``
    are the seconds that all fusions so far save by their estimates."""

    def __init__(self, program: HostProgram, pairs: Pairs, allowed: Allowed | None = None) -> None:
        self.program, _ = program.clone()
        self.allowed, self.saved = allowed, 0.0
        self.pairs = pairs
        self.sites = Sites(self.program)
        self.fused: dict[Launch, FusedPair] = {}
        #: By fused launch whose fusion has checks: its two parts, and the checks.
        self._parts: dict[Launch, tuple[tuple[Launch, Launch], tuple[str, ...]]] = {}
        #: By fused kernel: its name in the program.
        self._bound: dict[AnyKernel, str] = {}
        self._allows_grid_barriers = False
        launches = [node for node in self.program.nodes() if isinstance(node, Launch)]
        #: By launch: the numbers of the launches of the given program that it does the work of.
        self._numbers = {launch: frozenset([number]) for number, launch in enumerate(launches)}

    @property
    def fused_launches(self) -> list[frozenset[int]]:
        """For each fused launch: the numbers of the launches of the given program that it does the work of."""
        return [self._numbers[launch] for launch in self.fused]

    # --- Editable ----------------------------------------------------------------------------------------------

    def cfg(self) -> HostCfg:
        """The graph of the current version, with the memory that the kernels access."""
        return self.program.cfg(self._effects)

    def graph(self) -> LaunchGraph:
        """The launch graph of the current program, as a snapshot."""
        cfg = self.cfg()
        return LaunchGraph(cfg.entry, cfg.exit, _edges(cfg), cfg.launches(), self._modifies)

    def may_fuse(self, first: GraphNode, second: GraphNode, at: GraphNode) -> bool:
        """Whether fusing the pair is legal and saves time. If not, a remark says why."""
        both = self._numbers[_launch(first)] | self._numbers[_launch(second)]
        if self.allowed is not None and not self.allowed(both):
            return False
        return self._pair(_launch(first), _launch(second), _launch(at)) is not None

    def allow_more(self) -> bool:
        """Allow fusions with a grid barrier from now on. They come last because they are legal for some sizes only and
        cost most, so they must not replace better fusions. False if they were allowed already, or are not enabled."""
        more = self.pairs.resident is not None and not self._allows_grid_barriers
        self._allows_grid_barriers = self._allows_grid_barriers or more
        return more

    def apply(self, step: Step) -> Applied:
        """Insert copies of the launch, fuse it, and remove it."""
        launch = _launch(step.launch)
        built = [
            (_launch(f), _launch(s), self._pair(_launch(f), _launch(s), _launch(o)), _launch(o))
            for (f, s), o in zip(step.pairs, step.fusions, strict=True)
        ]
        inserted = tuple(self._insert(place, launch) for place in step.insertions)
        made: list[Launch] = []
        for first, second, pair, partner in built:
            if pair is None:
                raise AssertionError(f"{first.kernel_text} and {second.kernel_text} were fusible")
            new = pair.launch(first, second, self._name(pair))
            if mentions_max(pair.site):
                self.program.namespace["max"] = max
            self.pairs.report_fusion(first, second, pair, step.phase)
            self._numbers[new] = self._numbers[first] | self._numbers[second]
            self.saved += pair.estimate.saved - pair.estimate.lost if pair.estimate is not None else 0.0
            self.program.replace(partner, [new])
            self.fused[new] = pair
            every = (*self._checks_of(first), *self._checks_of(second), *pair.fusibility.checks)
            if checks := tuple(dict.fromkeys(every)):
                self._parts[new] = (first, second), checks
            made.append(new)
        self.program.remove(launch)
        for copied in (each for nodes in inserted for each in nodes):
            self._numbers[copied] = self._numbers[launch]
            if launch in self.fused:
                self.fused[copied] = self.fused[launch]
                if launch in self._parts:
                    self._parts[copied] = self._parts[launch]
        for gone in (launch, *(_launch(node) for node in step.fusions)):
            self.fused.pop(gone, None)
        return Applied(inserted, tuple(made))

    def blocked_pairs(self) -> Iterator[Remark]:
        """Remarks about pairs of launches with statements between them that neither may move past."""
        return blocked_pairs(self.cfg(), self._modifies)

    def drop_dead_stores(self) -> None:
        """Remove stores of fused kernels whose results nothing reads: neither the kernel itself nor anything that may
        run later.

        Requires: all fusions are done and `guard` has been called. If a check fails at run time, the two parts are
        launched instead, and they may read what the fused kernel does not read. So the graph must contain them.
        """
        for launch, pair in list(self.fused.items()):
            dead = frozenset(name for name in self._only_written(launch, pair) if self._is_dead(name, launch))
            if not dead:
                continue
            smaller = self.pairs.without_stores(pair, dead)
            if smaller is pair:
                continue
            argument_of = dict(zip(pair.parameters, launch.args, strict=True))
            args = tuple(argument_of[parameter] for parameter in smaller.parameters)
            new = replace(launch, kernel=smaller.kernel, kernel_text=self._name(smaller), args=args)
            self.program.replace(launch, [new])
            self.pairs.report_dead_stores(smaller, sorted(dead))
            self.fused[new] = smaller
            self._numbers[new] = self._numbers[launch]
            del self.fused[launch]

    def _only_written(self, launch: Launch, pair: FusedPair) -> set[str]:
        """The handles of buffers that the fused kernel writes and does not read."""
        memory = pair.code.memory
        named = {at: arg.text for at, arg in enumerate(launch.args) if self.cfg().buffers(arg.text, launch)}
        read = {name for at, name in named.items() if at in memory.reads}
        return set() if memory.is_unknown else {name for at, name in named.items() if at in memory.writes} - read

    def _is_dead(self, handle: str, launch: Launch) -> bool:
        """Whether nothing that may run after ``launch`` reads a buffer that ``handle`` may point to."""
        cfg = self.cfg()
        written = cfg.buffers(handle, launch)
        visited, waiting = set[Node](), [edge.target for edge in cfg.succs(launch)]
        while waiting:
            node = waiting.pop()
            if node in visited:
                continue
            visited.add(node)
            unknown = isinstance(node, Launch) and self.pairs.codes.of(node.kernel).memory.is_unknown
            if unknown or cfg.access(node).reads & written:
                return False
            waiting += [edge.target for edge in cfg.succs(node)]
        return True

    def guard(self) -> None:
        """Put each fused launch that has checks under an ``if``. The ``else`` branch launches its two parts, which may
        have fewer checks. Requires: all fusions are done."""
        for fused in self.fused:
            if fused in self._parts:
                self.program.replace(fused, self._guarded(fused, fused))

    def _guarded(self, original: Launch, launch: Launch) -> Body:
        """``launch``, which is ``original`` or a copy of it, with the launches to run instead if a check fails."""
        if original not in self._parts:
            return [launch]
        parts, checks = self._parts[original]
        test = Expression(" and ".join(f"({check})" for check in checks))
        separate = [item for part in parts for item in self._guarded(part, copy.copy(part))]
        return [If(Branch(test, place=launch.place), [launch], separate)]

    # --- parts -------------------------------------------------------------------------------------------------

    def _checks_of(self, launch: Launch) -> tuple[str, ...]:
        return self._parts[launch][1] if launch in self._parts else ()

    def _effects(self, launch: Launch) -> Effects:
        return self.pairs.codes.of(launch.kernel).effects

    def _modifies(self, node: GraphNode, launch: GraphNode) -> bool:
        assert isinstance(node, Node)
        cfg, moved = self.cfg(), _launch(launch)
        if self._changes_values(node, moved):
            return True
        if self.pairs.codes.of(moved.kernel).memory.is_unknown:
            access = cfg.access(node)
            if access.reads or access.writes:
                return True
        return cfg.is_modification(node, moved)

    def _changes_values(self, node: Node, launch: Launch) -> bool:
        """Whether ``node`` may change the values of the launch's expressions, or of its checks, although it writes no
        variable that the launch itself mentions."""
        definitions, names = self.sites.definitions, launch.uses - {launch.kernel_text}
        checked = frozenset[str]().union(*(Expression(check).names for check in self._checks_of(launch)))
        if node.defines & (checked | definitions.viewed_arrays(names | checked)):
            return True
        return isinstance(node, HostCall) and definitions.is_changed_by_call(names)

    def _pair(self, first: Launch, second: Launch, at: Launch) -> FusedPair | None:
        pair = self.pairs.fused(first, second, at, self.cfg(), self.sites)
        if pair is not None and pair.fusibility.kind == "grid" and not self._allows_grid_barriers:
            return None
        return pair

    def _name(self, pair: FusedPair) -> str:
        if pair.kernel not in self._bound:
            self._bound[pair.kernel] = self.program.bind(pair.kernel.name, pair.kernel)
        return self._bound[pair.kernel]

    def _insert(self, place: Place, launch: Launch) -> tuple[Launch, ...]:
        before = set(self.program.nodes())
        node, cfg = place.node, self.cfg()
        if isinstance(node, EdgePoint):
            assert isinstance(node.edge, Edge)
            self._insert_on([node.edge], launch)
        elif node is self.program.exit:
            self._insert_on([edge for edge in cfg.preds(self.program.exit) if not _is_never_taken(edge)], launch)
        elif isinstance(node, Branch) and place.at_exit:
            self._insert_on([edge for edge in cfg.succs(node) if not _is_never_taken(edge)], launch)
        elif place.at_exit or isinstance(node, LoopInit):
            # After the bounds of a loop means before the loop: one copy serves all edges that lead there.
            self.program.insert_after(_node(node), [copy.copy(launch)])
        else:
            self.program.insert_before(_node(node), [copy.copy(launch)])
        return tuple(node for node in self.program.nodes() if node not in before and isinstance(node, Launch))

    def _insert_on(self, edges: list[Edge], launch: Launch) -> None:
        for wanted in edges:
            # Each insertion makes a new version of the graph. An edge is identified by its source and its kind.
            edge = next(e for e in self.cfg().edges if e.source is wanted.source and e.kind == wanted.kind)
            self.program.insert_on_edge(edge, [copy.copy(launch)])


def _edges(cfg: HostCfg) -> list[tuple[Node, Node, Edge]]:
    """The edges of the graph, without the nodes that evaluate the bounds of a ``for``.

    Nothing can be between the bounds and the head of a loop, and no launch changes the bounds. What is right before the
    bounds is shown right before the head, from where it cannot be sunk further. If several edges lead to the bounds,
    they stay a node: one launch after it serves all these edges, and is then inserted before the bounds.
    """
    heads: dict[Node, Node] = {}
    for node in cfg.nodes:
        if isinstance(node, LoopInit) and sum(not _is_never_taken(edge) for edge in cfg.preds(node)) == 1:
            heads[node] = cfg.succs(node)[0].target
    return [
        (edge.source, heads.get(edge.target, edge.target), edge)
        for edge in cfg.edges
        if edge.source not in heads and not _is_never_taken(edge)
    ]


def _is_never_taken(edge: Edge) -> bool:
    """Whether the edge leaves a ``while True`` by a false test."""
    return edge.kind == "false" and isinstance(edge.source, Branch) and edge.source.test == ALWAYS


def _node(node: GraphNode) -> Node:
    assert isinstance(node, Node)
    return node


def _launch(node: GraphNode) -> Launch:
    assert isinstance(node, Launch)
    return node
