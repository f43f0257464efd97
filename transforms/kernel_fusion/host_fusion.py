"""A host program as something that the phases of fusion can transform.

Guarantees: the program given is left as it is, a clone is changed; every snapshot is of the clone's current version;
what the phases insert prints as Python, in the place that its edge has there. Where a fusion is right only if some
expressions of host variables are true, the program asks for them, and else launches the kernels one by one. A launch
whose kernel may touch memory that nobody knows is a modification statement of everything that touches device memory,
and everything of it.
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
from .kept_apart import kept_apart
from .kernel_code import AnyKernel
from .launch_graph import Applied, EdgePoint, LaunchGraph, Place, Step
from .launch_graph import Node as GraphNode
from .loop_inversion import ALWAYS
from .pairs import FusedPair, Pairs, mentions_max

__all__ = ["FusingHost"]


class FusingHost:
    """A clone of ``program`` that is being fused; ``fused`` are the fused launches in it."""

    def __init__(self, program: HostProgram, pairs: Pairs) -> None:
        self.program, _ = program.clone()
        self.pairs = pairs
        self.sites = Sites(self.program)
        self.fused: dict[Launch, FusedPair] = {}
        #: Of each fused launch that is right only sometimes: the two that it took in, and what must be true for it.
        self._parts: dict[Launch, tuple[tuple[Launch, Launch], tuple[str, ...]]] = {}
        self._bound: dict[AnyKernel, str] = {}
        self._waits_for_grid = False

    # --- Editable ----------------------------------------------------------------------------------------------

    def cfg(self) -> HostCfg:
        """The graph of the current version, with what the kernels touch."""
        return self.program.cfg(self._effects)

    def graph(self) -> LaunchGraph:
        """The snapshot for the phases."""
        cfg = self.cfg()
        return LaunchGraph(cfg.entry, cfg.exit, _edges(cfg), cfg.launches(), self._modifies)

    def may_fuse(self, first: GraphNode, second: GraphNode, at: GraphNode) -> bool:
        """Whether the pair is legal and worth it; remarks say why not."""
        return self._pair(_launch(first), _launch(second), _launch(at)) is not None

    def allow_more(self) -> bool:
        """Fuse from now on what needs a barrier of the grid, too: it holds for some sizes only, and costs most, so that
        it must not take the place of what is better. False where that is allowed already, or not at all."""
        more = self.pairs.resident is not None and not self._waits_for_grid
        self._waits_for_grid = self._waits_for_grid or more
        return more

    def apply(self, step: Step) -> Applied:
        """Insert, fuse, and take the launch out."""
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
            self.pairs.tell(first, second, pair, step.phase)
            self.program.replace(partner, [new])
            self.fused[new] = pair
            every = (*self._checks_of(first), *self._checks_of(second), *pair.fusibility.checks)
            if checks := tuple(dict.fromkeys(every)):
                self._parts[new] = (first, second), checks
            made.append(new)
        self.program.remove(launch)
        for copied in (each for nodes in inserted for each in nodes):
            if launch in self.fused:
                self.fused[copied] = self.fused[launch]
                if launch in self._parts:
                    self._parts[copied] = self._parts[launch]
        for gone in (launch, *(_launch(node) for node in step.fusions)):
            self.fused.pop(gone, None)
        return Applied(inserted, tuple(made))

    def kept_apart(self) -> Iterator[Remark]:
        """Remarks about launches between which something stands that neither may pass."""
        return kept_apart(self.cfg(), self._modifies)

    def drop_dead_stores(self) -> None:
        """Let no fused kernel store what nobody reads, once all is fused: neither it, nor anything that can follow.

        Requires: `guard` has been called. Where a check fails later, the two parts are launched instead, and these may
        read what the fused kernel does not: so the graph has to show them.
        """
        for launch, pair in list(self.fused.items()):
            dead = frozenset(name for name in self._only_written(launch, pair) if self._is_dead(name, launch))
            if not dead:
                continue
            found = self.pairs.without_stores(pair, dead)
            if found is pair:
                continue
            passed = dict(zip(pair.parameters, launch.args, strict=True))
            args = tuple(passed[parameter] for parameter in found.parameters)
            new = replace(launch, kernel=found.kernel, kernel_text=self._name(found), args=args)
            self.program.replace(launch, [new])
            self.pairs.tell_stores(found, sorted(dead))
            self.fused[new] = found
            del self.fused[launch]

    def _only_written(self, launch: Launch, pair: FusedPair) -> set[str]:
        """The handles whose memory the fused kernel writes and does not read."""
        memory = pair.code.memory
        named = {at: arg.text for at, arg in enumerate(launch.args) if self.cfg().buffers(arg.text, launch)}
        read = {name for at, name in named.items() if at in memory.reads}
        return set() if memory.is_unknown else {name for at, name in named.items() if at in memory.writes} - read

    def _is_dead(self, handle: str, launch: Launch) -> bool:
        """Whether nothing that may run after ``launch`` reads a buffer that ``handle`` may point to."""
        cfg = self.cfg()
        written = cfg.buffers(handle, launch)
        seen, waiting = set[Node](), [edge.target for edge in cfg.succs(launch)]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            unknown = isinstance(node, Launch) and self.pairs.codes.of(node.kernel).memory.is_unknown
            if unknown or cfg.access(node).reads & written:
                return False
            waiting += [edge.target for edge in cfg.succs(node)]
        return True

    def guard(self) -> None:
        """Put each fused launch that has checks under an ``if``, once all is fused; ``else`` come its two parts, which
        may have fewer checks."""
        for fused in self.fused:
            if fused in self._parts:
                self.program.replace(fused, self._guarded(fused, fused))

    def _guarded(self, known: Launch, launch: Launch) -> Body:
        """The launch, which is ``known`` or a copy of it, with what is launched else."""
        if known not in self._parts:
            return [launch]
        parts, checks = self._parts[known]
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
        cfg, mine = self.cfg(), _launch(launch)
        if self._changes_values(node, mine):
            return True
        if self.pairs.codes.of(mine.kernel).memory.is_unknown:
            access = cfg.access(node)
            if access.reads or access.writes:
                return True
        return cfg.is_modification(node, mine)

    def _changes_values(self, node: Node, launch: Launch) -> bool:
        """Whether ``node`` may change what the launch's expressions, or the checks of its fusion, are worth without
        writing a variable that the launch itself mentions."""
        definitions, names = self.sites.definitions, launch.uses - {launch.kernel_text}
        checked = frozenset[str]().union(*(Expression(check).names for check in self._checks_of(launch)))
        if node.defines & (checked | definitions.arrays_shown(names | checked)):
            return True
        return isinstance(node, HostCall) and definitions.is_changed_by_call(names)

    def _pair(self, first: Launch, second: Launch, at: Launch) -> FusedPair | None:
        pair = self.pairs.fused(first, second, at, self.cfg(), self.sites)
        if pair is not None and pair.fusibility.kind == "grid" and not self._waits_for_grid:
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
        elif place.at_exit or isinstance(node, LoopInit):  # behind bounds is before the loop, once for all ways there
            self.program.insert_after(_node(node), [copy.copy(launch)])
        else:
            self.program.insert_before(_node(node), [copy.copy(launch)])
        return tuple(node for node in self.program.nodes() if node not in before and isinstance(node, Launch))

    def _insert_on(self, edges: list[Edge], launch: Launch) -> None:
        for wanted in edges:
            # Each insertion makes a new version; an edge is still the only one of its source and kind.
            edge = next(e for e in self.cfg().edges if e.source is wanted.source and e.kind == wanted.kind)
            self.program.insert_on_edge(edge, [copy.copy(launch)])


def _edges(cfg: HostCfg) -> list[tuple[Node, Node, Edge]]:
    """The edges without the bounds of ``for``: nothing stands between these and the head, and no launch changes them.

    What stands right before the bounds is shown right before the head, where it cannot be sunk further. Bounds to which
    several ways lead stay a node, behind which one launch serves all of them; that is then put before the bounds.
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
    """Whether the edge leaves a ``while True`` by its test."""
    return edge.kind == "false" and isinstance(edge.source, Branch) and edge.source.test == ALWAYS


def _node(node: GraphNode) -> Node:
    assert isinstance(node, Node)
    return node


def _launch(node: GraphNode) -> Launch:
    assert isinstance(node, Launch)
    return node
