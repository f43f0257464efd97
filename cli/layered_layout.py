"""The layout of a directed graph with cycles, in layers from top to bottom, with few crossings.

Computes a position for each box and a line for each edge. The edges that close a cycle are given (``back``); the others
are acyclic. There are four steps: layers by the longest path from a source; a point in each layer that a long edge
passes; the order within the layers by barycentres, down and up; positions with the least sum of squared distances to
neighbours, and a gap between boxes.

A back edge runs beside the boxes: from the right side of the lower box, past the layers between, to the right side of
the upper box.

Guarantees: no two boxes overlap; the same graph gives the same layout; the time is linear in the number of boxes, and
of layers that edges pass.
Reference: Sugiyama, Tagawa, Toda, *Methods for visual understanding of hierarchical system structures*, 1981.
Positions: isotonic regression by pooling adjacent violators.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

__all__ = ["GAP_Y", "Layout", "Point", "layered_layout", "layers_of"]

Point = tuple[float, float]

_GAP_X, GAP_Y = 26.0, 34.0
#: The width that an edge needs in a layer that it passes.
_LANE = 9.0
_ORDER_SWEEPS, _PLACE_SWEEPS = 12, 48
#: The weights of neighbours: an edge should above all be straight where it passes layers.
_PULL_BOX, _PULL_MIXED, _PULL_LANE = 1.0, 2.0, 16.0


@dataclass
class Layout:
    """Centres of the boxes, and points of the edges from their start to their end; y grows downwards."""

    centre: list[Point]
    lines: dict[tuple[int, int], list[Point]]
    width: float
    height: float


@dataclass
class _Node:
    """A box, or a point at which an edge passes a layer (``box`` is -1)."""

    layer: int
    width: float
    box: int = -1
    up: list[tuple[int, float]] = field(default_factory=list["tuple[int, float]"])
    down: list[tuple[int, float]] = field(default_factory=list["tuple[int, float]"])
    beside: int = -1  #: the box to its left
    length: int = 0  #: the number of layers that its edge passes, if it is beside a box
    x: float = 0.0


def layered_layout(
    sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]
) -> Layout:
    """The layout of boxes of ``sizes`` (width, height). ``edges`` are acyclic, ``back`` the others."""
    return _Layouter(sizes, edges, back).run()


def layers_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each of ``count`` boxes: the length of the longest path to it along ``edges``, which are acyclic."""
    networkx: Any = importlib.import_module("networkx")
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    layers = [0] * count
    for layer, members in enumerate(networkx.topological_generations(graph)):
        for box in members:
            layers[box] = layer
    # A box without predecessor is placed directly above its first successor.
    leads_to: dict[int, list[int]] = {}
    for one, two in edges:
        leads_to.setdefault(one, []).append(two)
    for box in set(leads_to) - {two for _, two in edges} - {0}:
        layers[box] = max(min(layers[each] for each in leads_to[box]) - 1, 0)
    return layers


class _Layouter:
    def __init__(
        self, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]
    ) -> None:
        self.sizes = sizes
        self.edges = list(dict.fromkeys(edges))
        self.back = list(dict.fromkeys(back))
        self.nodes = [_Node(0, size[0], box) for box, size in enumerate(sizes)]
        self.chains: dict[tuple[int, int], list[int]] = {}
        self.layers: list[list[int]] = []
        self.position: dict[int, int] = {}  #: By node: its index in its layer.

    def run(self) -> Layout:
        if not self.sizes:
            return Layout([], {}, 0.0, 0.0)
        self.assign_layers()
        for edge in self.edges:
            self.cut(edge)
        for edge in self.back:
            self.run_beside(edge)
        self.order()
        self.place()
        return self.finish()

    # --- layers ----------------------------------------------------------------------------------------------------

    def assign_layers(self) -> None:
        for node, layer in zip(self.nodes, layers_of(len(self.sizes), self.edges), strict=True):
            node.layer = layer
        count = max(node.layer for node in self.nodes) + 1
        self.layers = [[] for _ in range(count)]
        for box, node in enumerate(self.nodes):
            self.layers[node.layer].append(box)

    def lane(self, layer: int) -> int:
        number = len(self.nodes)
        self.nodes.append(_Node(layer, _LANE))
        self.layers[layer].append(number)
        return number

    def link(self, upper: int, lower: int) -> None:
        boxes = (self.nodes[upper].box >= 0) + (self.nodes[lower].box >= 0)
        pull = (_PULL_LANE, _PULL_MIXED, _PULL_BOX)[boxes]
        self.nodes[upper].down.append((lower, pull))
        self.nodes[lower].up.append((upper, pull))

    def cut(self, edge: tuple[int, int]) -> None:
        start, end = edge
        chain = [start]
        for layer in range(self.nodes[start].layer + 1, self.nodes[end].layer):
            chain.append(self.lane(layer))
        chain.append(end)
        for upper, lower in pairwise(chain):
            self.link(upper, lower)
        self.chains[edge] = chain[1:-1]

    def run_beside(self, edge: tuple[int, int]) -> None:
        low, high = edge
        top, bottom = sorted((self.nodes[high].layer, self.nodes[low].layer))
        chain = [self.lane(layer) for layer in range(top, bottom + 1)]
        for upper, lower in pairwise(chain):
            self.link(upper, lower)
        ends = (high, low) if self.nodes[high].layer <= self.nodes[low].layer else (low, high)
        self.nodes[chain[0]].beside = ends[0]
        self.nodes[chain[-1]].beside = ends[1] if len(chain) > 1 else ends[0]
        self.nodes[chain[0]].length = self.nodes[chain[-1]].length = len(chain)
        self.chains[edge] = chain

    # --- orders ----------------------------------------------------------------------------------------------------

    def order(self) -> None:
        self.first_order()
        best, fewest = [list(layer) for layer in self.layers], self.crossings()
        for sweep in range(_ORDER_SWEEPS):
            downwards = sweep % 2 == 0
            layers = range(1, len(self.layers)) if downwards else range(len(self.layers) - 2, -1, -1)
            for layer in layers:
                self.sort(layer, downwards=downwards)
            crossings = self.crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self.layers], crossings
        self.layers = best

    def first_order(self) -> None:
        """Depth first from the sources, the left path first. A point beside a box follows the box."""
        placed: set[int] = set()
        order: list[list[int]] = [[] for _ in self.layers]
        roots = [number for layer in self.layers for number in layer if not self.nodes[number].up]
        for root in roots:
            stack = [root]
            while stack:
                number = stack.pop()
                if number in placed or (number != root and any(up not in placed for up, _ in self.nodes[number].up)):
                    continue
                placed.add(number)
                order[self.nodes[number].layer].append(number)
                stack += [lower for lower, _ in reversed(self.nodes[number].down)]
        for layer, numbers in enumerate(self.layers):
            order[layer] += [number for number in numbers if number not in placed]
        self.layers = [self.with_sides(layer) for layer in order]

    def with_sides(self, layer: list[int]) -> list[int]:
        """``layer`` with each node that is beside a box directly after the box, those of short edges first."""
        sides: dict[int, list[int]] = {}
        for number in layer:
            if self.nodes[number].beside >= 0:
                sides.setdefault(self.nodes[number].beside, []).append(number)
        order: list[int] = []
        for number in layer:
            if self.nodes[number].beside < 0:
                order += [number, *sorted(sides.get(number, ()), key=lambda side: self.nodes[side].length)]
        return order

    def sort(self, layer: int, *, downwards: bool) -> None:
        numbers = self.layers[layer]
        place = {number: at for at, number in enumerate(self.layers[layer - 1 if downwards else layer + 1])}
        key: dict[int, float] = {}
        for at, number in enumerate(numbers):
            around = self.nodes[number].up if downwards else self.nodes[number].down
            total = sum(pull for _, pull in around)
            key[number] = sum(place[other] * pull for other, pull in around) / total if around else float(at)
        self.layers[layer] = self.with_sides(sorted(numbers, key=lambda number: key[number]))

    def crossings(self) -> int:
        """How many pairs of lines cross between neighbouring layers."""
        total = 0
        for upper, lower in zip(self.layers, self.layers[1:], strict=False):
            place = {number: at for at, number in enumerate(lower)}
            ends = [at for number in upper for at in sorted(place[other] for other, _ in self.nodes[number].down)]
            total += _inversions(ends, len(lower))
        return total

    # --- positions -------------------------------------------------------------------------------------------------

    def gap(self, left: int, right: int) -> float:
        one, two = self.nodes[left], self.nodes[right]
        between = _GAP_X if one.box >= 0 and two.box >= 0 else _LANE
        return (one.width + two.width) / 2 + between

    def place(self) -> None:
        for layer in self.layers:
            x = 0.0
            for left, number in zip([None, *layer], layer, strict=False):
                x = x + self.gap(left, number) if left is not None else 0.0
                self.nodes[number].x = x
            for number in layer:
                self.nodes[number].x -= x / 2
        self.position = {number: at for layer in self.layers for at, number in enumerate(layer)}
        for sweep in range(_PLACE_SWEEPS):
            downwards = sweep % 2 == 0
            both = sweep >= _PLACE_SWEEPS // 2
            for layer in self.layers if downwards else reversed(self.layers):
                self.place_layer(layer, up=downwards or both, down=not downwards or both)

        for _ in range(3):
            for chain in self.chains.values():
                self.straighten(chain)

    def straighten(self, chain: list[int]) -> None:
        """Align the points of an edge vertically, as far as their neighbours allow it."""
        run: list[int] = []
        low, high = float("-inf"), float("inf")
        for number in chain:
            least, most = self.room(number)
            if run and max(low, least) > min(high, most):
                self.align(run, low, high)
                run, low, high = [], float("-inf"), float("inf")
            run.append(number)
            low, high = max(low, least), min(high, most)
        if run:
            self.align(run, low, high)

    def align(self, run: list[int], low: float, high: float) -> None:
        middle = sum(self.nodes[number].x for number in run) / len(run)
        for number in run:
            self.nodes[number].x = min(max(middle, low), high)

    def room(self, number: int) -> Point:
        """The positions between which a node can move without coming too close to its neighbours."""
        layer, at = self.layers[self.nodes[number].layer], self.position[number]
        left = self.nodes[layer[at - 1]].x + self.gap(layer[at - 1], number) if at > 0 else float("-inf")
        is_last = at + 1 == len(layer)
        right = float("inf") if is_last else self.nodes[layer[at + 1]].x - self.gap(number, layer[at + 1])
        return left, max(left, right)

    def place_layer(self, layer: list[int], *, up: bool, down: bool) -> None:
        wanted: list[float] = []
        weight: list[float] = []
        offset = 0.0
        offsets: list[float] = []
        for left, number in zip([None, *layer], layer, strict=False):
            node = self.nodes[number]
            offset += self.gap(left, number) if left is not None else 0.0
            offsets.append(offset)
            around = (node.up if up else []) + (node.down if down else [])
            if node.beside >= 0:
                around = [*around, (node.beside, 0.5)]
            total = sum(pull for _, pull in around)
            x = sum(self.nodes[other].x * pull for other, pull in around) / total if around else node.x
            wanted.append(x - offset)
            weight.append(total if around else 0.1)
        for number, x, shift in zip(layer, _isotonic(wanted, weight), offsets, strict=True):
            self.nodes[number].x = x + shift

    # --- the result ------------------------------------------------------------------------------------------------

    def finish(self) -> Layout:
        left = min(node.x - node.width / 2 for node in self.nodes)
        right = max(node.x + node.width / 2 for node in self.nodes)
        tops: list[float] = []
        y = 0.0
        heights: list[float] = []
        for layer in self.layers:
            heights.append(max((self.sizes[number][1] for number in layer if number < len(self.sizes)), default=0.0))
        for upper, height in enumerate(heights):
            tops.append(y)
            crowd = sum(len(self.nodes[number].down) for number in self.layers[upper])
            y += height + GAP_Y + 2.0 * min(crowd, 12)
        middles = [top + height / 2 for top, height in zip(tops, heights, strict=True)]
        centre = [(node.x - left, middles[node.layer]) for node in self.nodes[: len(self.sizes)]]
        lines: dict[tuple[int, int], list[Point]] = {}
        for (start, end), chain in self.chains.items():
            lines[start, end] = self.line(start, end, chain, left, tops, heights)
        return Layout(centre, lines, right - left, tops[-1] + heights[-1])

    def line(
        self, start: int, end: int, chain: list[int], left: float, tops: list[float], heights: list[float]
    ) -> list[Point]:
        """Two points for each passed layer: where its boxes begin and where they end."""
        points: list[Point] = []
        is_upwards = self.nodes[start].layer >= self.nodes[end].layer
        for number in reversed(chain) if is_upwards else chain:
            node = self.nodes[number]
            x, top, bottom = node.x - left, tops[node.layer], tops[node.layer] + heights[node.layer]
            points += [(x, bottom), (x, top)] if is_upwards else [(x, top), (x, bottom)]
        return points


def _inversions(values: list[int], limit: int) -> int:
    """Pairs in the wrong order, by a tree of counts."""
    tree = [0] * (limit + 1)
    total = 0
    for count, value in enumerate(values):
        at, not_above = value + 1, 0
        while at > 0:
            not_above += tree[at]
            at -= at & -at
        total += count - not_above
        at = value + 1
        while at <= limit:
            tree[at] += 1
            at += at & -at
    return total


def _isotonic(wanted: list[float], weight: list[float]) -> list[float]:
    """The ascending numbers with the least weighted sum of squared distances to ``wanted``."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for x, w in zip(wanted, weight, strict=True):
        mean, total, count = x, w, 1
        while pools and pools[-1][0] > mean:
            other, other_weight, other_count = pools.pop()
            mean = (mean * total + other * other_weight) / (total + other_weight)
            total, count = total + other_weight, count + other_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
