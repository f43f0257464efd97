"""Groups of operators that one kernel computes, and where each keeps its pixels.

A kernel of a group computes its results in tiles, one tile for each block of threads, or one for each warp. An
operator whose image is only used inside of the group is computed again wherever it is read (*inline*), or once for each
tile, with the pixels around the tile that are needed, in shared memory (*tiled*). Neighbouring tiles overlap.

Sources: Qiao, thesis, §3.3.2 (legality); Jangda, Guha: Model-Based Warp Overlapped Tiling, §2 (overlapped tiles).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from ...spelling import did_you_mean
from .. import types as t
from ..errors import DslError
from .fusion.pixel_images import with_pixel_images
from .fusion.point_copies import named_copies
from .graph import Graph
from .lowered import Options
from .lowering import checks_of
from .operator_body import MOST_UNROLLED
from .operators import Image, Node
from .partitioning import ROWS
from .reach import Reach, window_of
from .tiling.lane_layout import LaneLayout, can_be_shuffled, layout_of_lanes
from .tiling.padding import Reads
from .tiling.strips import MOST_ROWS_OF_STRIP, Use, pitch_of, strips_of
from .tiling.teams import KINDS, WARP, Kind, Team, problem_of_block, team_of

__all__ = [
    "MOST_UNROLLED_COPIES",
    "SHARED_BYTES",
    "Group",
    "Plan",
    "Reach",
    "groups_of",
    "has_large_loops",
    "plan_from_json",
    "separate",
    "window_of",
]

#: Bytes of shared memory that a block may have without a special attribute of the kernel.
SHARED_BYTES = 48 * 1024

#: Bytes of a word of shared memory.
_WORD = 4

#: The most pixels of an inline operator that one pixel of a result may need, so that code stays small.
MOST_COPIES = 1024

#: The most copies of an operator, over all pixels of a thread, for which loops of operators are unrolled.
MOST_UNROLLED_COPIES = 640

#: The most pixels of a thread along x or y. Coordinates at the end of the last tile must fit in i32.
MOST_PIXELS = 1 << 16

#: The members of a plan and of each group in JSON.
_PLAN_MEMBERS = ("pipeline", "groups")
_GROUP_MEMBERS = ("nodes", "tiled", "tiles", "block", "pixels", "in_registers", "regions")

#: Whether the kernel of one operator has regions that check different indices (`partitioning`): none, or those of
#: blocks, or those of blocks and of warps, or those of a kernel whose threads compute several pixels.
Regions: TypeAlias = Literal["", "isp", "isp_warp", "isp_rows"]
REGIONS: tuple[Regions, ...] = ("", "isp", "isp_warp", "isp_rows")


@dataclass(frozen=True)
class Group:
    """Operators of a graph that one kernel computes.

    ``nodes`` are in the order of the graph. The images of ``tiled`` are kept in shared memory. ``block`` are the
    threads of a block along x and y; a thread computes ``pixels`` pixels of each result along x and y. ``kind`` says
    what computes a tile: a block, or a warp. In hybrid tiles, a warp keeps the last ``in_registers`` of its ``pixels``
    along x in registers. In tiles of lanes, ``pixels`` are the columns of a lane and the rows of a warp. A group of one
    operator may have ``regions`` instead of tiles.
    """

    graph: Graph
    nodes: tuple[Node[Any], ...]
    tiled: frozenset[Node[Any]] = frozenset()
    block: tuple[int, int] = (32, 8)
    pixels: tuple[int, int] = (1, 1)
    kind: Kind = "block"
    in_registers: int = 0
    regions: Regions = ""

    @property
    def team(self) -> Team:
        """The threads that compute a tile."""
        return team_of(self.kind, self.block)

    @property
    def tile(self) -> tuple[int, int]:
        """The pixels of a result that a team computes, along x and y."""
        threads = self.team.threads
        if self.kind == "lanes":
            return self.lanes.width(self.pixels[0]), self.pixels[1]
        return threads[0] * self.pixels[0], threads[1] * self.pixels[1]

    @property
    def lanes(self) -> LaneLayout:
        """What the lanes of a warp keep in tiles of lanes."""
        return layout_of_lanes(self.nodes, self.tiled, self.stored)

    @property
    def scratch(self) -> tuple[int, int]:
        """The pixels of a result for which tiles in shared memory have place, along x and y."""
        threads, (pixels_x, pixels_y) = self.team.threads, self.pixels
        return threads[0] * max(1, pixels_x - self.in_registers), threads[1] * pixels_y

    @property
    def stored(self) -> tuple[Node[Any], ...]:
        """The results: images that are outputs of the graph, or are read by operators of other groups."""
        return self.graph.results_of(self.nodes)

    def reaches(self, options: Options) -> dict[Image[Any], Reach]:
        """By image that near accesses read, and by node of the group: how far it is needed around the tile."""
        found: dict[Image[Any], Reach] = dict.fromkeys(self.stored, Reach())
        for node in reversed(self.nodes):
            if node not in found:
                continue  # only far accesses read it
            for access in node.accesses:
                window = window_of(access, node, options)
                if window is not None:
                    reach = found[node].around(window)
                    found[access.image] = found[access.image].with_(reach) if access.image in found else reach
        return found

    def tile_shape(self, reach: Reach) -> tuple[int, int]:
        """Width and height of the tile in shared memory of an image that is needed this far around results."""
        width, height = self.scratch
        return width + reach.left + reach.right, height + reach.up + reach.down

    def pitches(self, options: Options) -> dict[Node[Any], int]:
        """By tile: the distance of its rows in shared memory, in pixels."""
        reaches = self.reaches(options)
        tiles = [node for node in self.nodes if node in self.tiled and node in reaches]
        sources = {node: self.sources(node, options) for node in tiles}
        return self.pitches_of(tiles, reaches, sources, self.rows_of_strip(options) if tiles else 1)

    def pitches_of(
        self,
        tiles: Sequence[Node[Any]],
        reaches: Mapping[Image[Any], Reach],
        sources: Mapping[Node[Any], frozenset[Node[Any]]],
        most: int,
    ) -> dict[Node[Any], int]:
        """The pitches of tiles, whose pixels are computed from the tiles ``sources`` in strips of at most ``most``
        pixels. Pixels that are not of four bytes, and hybrid tiles, are next to each other. Tiles of lanes are not in
        shared memory."""
        if self.kind == "lanes":
            return dict.fromkeys(tiles, 0)
        uses: dict[Node[Any], list[Use]] = {node: [] for node in tiles}
        for node in tiles:
            width, height = self.tile_shape(reaches[node])
            strips = strips_of(width, height, self.team.size, most)
            uses[node].append((width, strips.count, strips.rows, strips.rows))
            for source in sources[node]:
                own, other = reaches[node], reaches[source]
                columns = 1 + other.left - own.left + other.right - own.right
                rows = strips.rows + other.up - own.up + other.down - own.down
                uses[source].append((width, strips.count, strips.rows, max(1, rows * columns)))
        return {
            node: pitch_of(self.tile_shape(reaches[node])[0], tuple(uses[node]))
            if self.kind != "hybrid" and t.size_of(node.pixel) == _WORD
            else self.tile_shape(reaches[node])[0]
            for node in tiles
        }

    def sources(self, node: Node[Any], options: Options) -> frozenset[Node[Any]]:
        """The tiles that near accesses read for a pixel of a node, also those of inline operators."""
        found: set[Node[Any]] = set()
        for access in node.accesses:
            image = access.image
            if isinstance(image, Node) and image in self.nodes and window_of(access, node, options) is not None:
                found |= {image} if image in self.tiled else self.sources(image, options)
        return frozenset(found)

    def shared_bytes(self, options: Options) -> int:
        """Bytes of shared memory of a block."""
        reaches, pitches = self.reaches(options), self.pitches(options)
        sizes = (pitch * self.tile_shape(reaches[node])[1] * t.size_of(node.pixel) for node, pitch in pitches.items())
        return self.team.teams * sum(sizes)

    def copies(self, options: Options) -> dict[Node[Any], int]:
        """By node: how many of its pixels are computed for one pixel of a result, or of a tile that needs them."""
        inside = set(self.nodes)
        #: By node: how often it is computed by far accesses, and by other ones.
        far, near = dict.fromkeys(self.nodes, 0), dict.fromkeys(self.nodes, 0)
        for node in reversed(self.nodes):
            if node in self.tiled or node in self.stored:
                near[node] += 1
            for access in node.accesses:
                image = access.image
                if not isinstance(image, Node) or image not in inside:
                    continue
                width, height = access.extent.size
                reads, is_near = width * height, window_of(access, node, options) is not None
                far[image] += reads * (far[node] + (0 if is_near else near[node]))
                if is_near and image not in self.tiled:
                    near[image] += reads * near[node]
        return {node: far[node] + near[node] for node in self.nodes}

    def is_unrolled(self, options: Options) -> bool:
        """Whether small loops of operators are unrolled, so that pixels of a thread share what they read. With many
        copies, nvcc would take too long."""
        pixels = self.pixels[0] * (1 if self.kind == "lanes" else self.pixels[1])
        return max(self.copies(options).values()) * pixels <= MOST_UNROLLED_COPIES

    def rows_of_strip(self, options: Options) -> int:
        """The most pixels of a tile that a thread computes together. Where loops are not unrolled, they would share
        nothing."""
        if not self.is_unrolled(options) or any(map(has_large_loops, self.nodes)):
            return 1
        return max(1, min(MOST_ROWS_OF_STRIP, MOST_UNROLLED_COPIES // max(self.copies(options).values())))

    def check(self, options: Options) -> None:
        """Raise `DslError` if one kernel cannot compute the group."""
        for problem in self.problems(options):
            names = ", ".join(node.name for node in self.nodes)
            raise DslError(f"one kernel cannot compute {names}: {problem}", self.nodes[-1].place)

    def problems(self, options: Options) -> Iterator[str]:
        """Why one kernel cannot compute the group."""
        if any(node.operator.kind == "global" for node in self.nodes) and len(self.nodes) > 1:
            yield "a global operator has a kernel of its own"
            return
        yield from self._dependences()
        spaces = {(int(n.space.width), int(n.space.height), n.space.x0, n.space.y0) for n in self.stored}
        if len(spaces) > 1:
            yield f"the results {', '.join(node.name for node in self.stored)} have different pixels"
        if self.block[0] * self.block[1] > 1024 or min(*self.block, *self.pixels) < 1:
            yield f"a block has 1 to 1024 threads, and a thread at least one pixel: {self.block}, {self.pixels}"
            return
        if max(self.pixels) > MOST_PIXELS:
            yield f"a thread computes at most {MOST_PIXELS} pixels along x or y, not {max(self.pixels)}"
            return
        if problem := problem_of_block(self.kind, self.block):
            yield problem
            return
        yield from self.hybrid_problems()
        if self.kind == "lanes":
            yield from self.lane_problems(options)
        if self.regions:
            yield from self._region_problems()
        if not self.tiled <= set(self.nodes):
            yield "only operators of the group can be kept in tiles"
        elif (needed := self.shared_bytes(options)) > SHARED_BYTES:
            yield f"the tiles need {needed} bytes of shared memory, and a block has {SHARED_BYTES}"
        for node, copies in self.copies(options).items():
            if copies > MOST_COPIES:
                yield f"{node.name} would be computed {copies} times for a pixel"

    def hybrid_problems(self) -> Iterator[str]:
        """What is wrong with the part of tiles that is in registers. Requires: warps divide the block
        (`problem_of_block`)."""
        if self.kind != "hybrid":
            if self.in_registers:
                owner = "lanes" if self.kind == "lanes" else f"a {self.kind}"
                yield f"{self.in_registers} columns in registers need hybrid tiles, not tiles of {owner}"
            return
        if not 1 <= self.in_registers <= self.pixels[0]:
            yield f"hybrid tiles have 1 to {self.pixels[0]} columns in registers, not {self.in_registers}"
        if self.team.threads != (WARP, 1):
            yield f"hybrid tiles need blocks whose width is a multiple of {WARP}, not {self.block[0]}"
        if not self.tiled:
            yield "hybrid tiles need operators that are tiled"
        for node in self.nodes:
            if node in self.tiled and not can_be_shuffled(node.pixel):
                yield f"threads cannot exchange the pixels of {node.name}, which are {node.pixel}"

    def lane_problems(self, options: Options) -> Iterator[str]:
        """Why lanes cannot compute the group."""
        if any(map(has_large_loops, self.nodes)) or not self.is_unrolled(options):
            yield "tiles of lanes need operators whose loops are unrolled"
            return
        yield from self.lanes.problems(self.pixels[0])
        reads = Reads(self.nodes, options, frozenset(item for item in self.lanes.items if isinstance(item, Node)))
        for node in self.nodes:
            for access in node.accesses:
                is_exchanged = window_of(access, node, options) is not None and any(checks_of(access, node, options))
                if access.image in self.nodes and is_exchanged and not reads.is_padded(access, node):
                    yield f"lanes cannot read {access.image.name} with the boundary that {node.name} has"
                    return

    def _region_problems(self) -> Iterator[str]:
        """Why a kernel of this group cannot have regions."""
        if len(self.nodes) > 1 or any(node.operator.kind == "global" for node in self.nodes):
            yield "a kernel with regions computes one operator, which is not a global one"
        rows = ROWS if self.regions == "isp_rows" else 1
        if self.kind != "block" or self.tiled or self.pixels != (1, rows):
            yield f"a kernel with regions {self.regions} has no tiles, and its threads compute 1 x {rows} pixels"
        if self.regions == "isp_warp" and self.block[0] % WARP:
            yield f"regions of warps need blocks whose width is a multiple of {WARP}, not {self.block[0]}"

    def _dependences(self) -> Iterator[str]:
        """An operator outside of the group that is computed from the group and read by it."""
        inside = set(self.nodes)
        after: set[Node[Any]] = set()
        for node in self.graph.nodes:
            sources = [access.image for access in node.accesses]
            if node not in inside:
                if any(source in inside or source in after for source in sources):
                    after.add(node)
            elif needed := [source.name for source in sources if source in after]:
                yield f"{node.name} needs {needed[0]}, which is computed from the group outside of it"

    def __str__(self) -> str:
        def word(node: Node[Any]) -> str:
            where = [*(["stored"] if node in self.stored else []), *(["tiled"] if node in self.tiled else [])]
            return f"{node.name} ({', '.join(where) or 'inline'})"

        x, y = self.tile
        owner = {"block": "", "lanes": " of lanes"}.get(self.kind, " of a warp")
        parts = [f"tile{owner} {x} x {y}", f"block {self.block[0]} x {self.block[1]}"]
        parts += [f"{self.in_registers} of {self.pixels[0]} columns in registers"] if self.kind == "hybrid" else []
        parts += [f"{self.pixels[0]} columns of a lane"] if self.kind == "lanes" else []
        parts += [f"regions {self.regions}"] if self.regions else []
        return f"{', '.join(map(word, self.nodes))}; {', '.join(parts)}"


@dataclass(frozen=True)
class Plan:
    """A partition of the operators of a graph into groups, in an order in which they can be computed."""

    graph: Graph
    groups: tuple[Group, ...]

    def check(self, options: Options) -> None:
        """Raise `DslError` unless each operator is in one group, and kernels can compute the groups in this order."""
        computed: set[Image[Any]] = set(self.graph.inputs)
        for group in self.groups:
            group.check(options)
            inside = set(group.nodes)
            for node in group.nodes:
                if node in computed:
                    raise DslError(f"{node.name} is in two groups", node.place)
                missing = [a.image.name for a in node.accesses if a.image not in inside and a.image not in computed]
                if missing:
                    raise DslError(f"the group of {node.name} comes before that of {missing[0]}", node.place)
            computed |= inside
        if missing := [node.name for node in self.graph.nodes if node not in computed]:
            raise DslError(f"no group computes {', '.join(missing)}")

    def on(self, graph: Graph) -> Plan:
        """The same plan for the graph of the same pipeline for other sizes of images."""
        there = dict(zip(self.graph.nodes, graph.nodes, strict=True))
        groups = tuple(
            replace(
                group,
                graph=graph,
                nodes=tuple(there[node] for node in group.nodes),
                tiled=frozenset(there[node] for node in group.tiled),
            )
            for group in self.groups
        )
        return Plan(graph, groups)

    def to_json(self) -> str:
        """The plan as text, with the names of operators' images. `plan_from_json` reads it."""
        groups = [
            {
                "nodes": [node.name for node in group.nodes],
                "tiled": [node.name for node in group.nodes if node in group.tiled],
                "block": list(group.block),
                "pixels": list(group.pixels),
                "tiles": group.kind,
                "in_registers": group.in_registers,
                **({"regions": group.regions} if group.regions else {}),
            }
            for group in self.groups
        ]
        text = json.dumps({"pipeline": self.graph.name, "groups": groups}, indent=2)
        return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n"

    def __str__(self) -> str:
        return "\n".join([f"plan of {self.graph.name}", *(f"  {group}" for group in self.groups)])


def plan_from_json(graph: Graph, text: str, options: Options) -> Plan:
    """The plan of a graph that `Plan.to_json` wrote, or that was edited. It may name images of functions
    (`fusion.pixel_images`) and copies of operators (`fusion.point_copies`). Raises `DslError` if it is not a legal plan
    of this graph."""
    by_name: dict[str, Node[Any]] = {}
    try:
        document: Any = json.loads(text)
        graph = _named(graph, document)
        by_name = {node.name: node for node in graph.nodes}
        _check_members(document, _PLAN_MEMBERS, f"a plan of {graph.name}")
        name: object = document["pipeline"]
        if name != graph.name:
            raise DslError(f"this is a plan of {name}, not of {graph.name}")
        for group in document["groups"]:
            _check_members(group, _GROUP_MEMBERS, "a group of a plan")
        groups = tuple(
            Group(
                graph,
                tuple(by_name[name] for name in group["nodes"]),
                frozenset(by_name[name] for name in group["tiled"]),
                _pair(group["block"]),
                _pair(group["pixels"]),
                _kind(group.get("tiles", "block")),
                _integer(group.get("in_registers", 0)),
                _regions(group.get("regions", "")),
            )
            for group in document["groups"]
        )
    except (json.JSONDecodeError, RecursionError) as why:
        raise DslError(f"this is not the JSON of a plan: {why}") from None
    except KeyError as why:
        raise DslError(f"a plan of {graph.name} has no {why}") from None
    except (TypeError, ValueError):
        raise DslError("a plan has an object for each group, whose block and pixels are two integers") from None
    order = {node: number for number, node in enumerate(graph.nodes)}
    for group in groups:
        if not group.nodes or [*group.nodes] != sorted(set(group.nodes), key=order.__getitem__):
            raise DslError(f"a group has operators in the order of the graph, each once: {', '.join(by_name)}")
    plan = Plan(graph, groups)
    plan.check(options)
    return plan


def _named(graph: Graph, document: Any) -> Graph:
    """The graph with those images of functions, and copies of point operators, that the plan names."""
    named = {name for group in document["groups"] for name in group["nodes"]}
    for base in (graph, with_pixel_images(graph)):
        made = named_copies(base, named)
        if named <= {node.name for node in made.nodes}:
            return made
    return graph


def _check_members(value: Any, known: Sequence[str], owner: str) -> None:
    """Raise `DslError` if an object has a member that is not one of ``known``; `TypeError` if it is no object."""
    if not isinstance(value, dict):
        raise TypeError
    for member in cast("dict[str, Any]", value):
        if member not in known:
            raise DslError(f"{owner} has no member '{member}'{did_you_mean(member, known)}")


@lru_cache(maxsize=1024)
def has_large_loops(node: Node[Any]) -> bool:
    """Whether an operator has loops over so many pixels that nvcc does not unroll them."""
    sizes = [width * height for access in node.accesses for width, height in [access.extent.size]]
    return max(sizes, default=1) > MOST_UNROLLED and any(
        isinstance(n, ast.For) for n in ast.walk(node.operator.body.tree)
    )


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    if type(first) is not int or type(second) is not int:
        raise TypeError
    return first, second


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _kind(value: Any) -> Kind:
    if value not in KINDS:
        raise DslError(f"tiles of a group are one of {', '.join(KINDS)}, not {value!r}")
    return value


def _regions(value: Any) -> Regions:
    if value not in REGIONS:
        raise DslError(f"regions of a group are one of {', '.join(REGIONS[1:])}, not {value!r}")
    return value


def separate(graph: Graph, block: tuple[int, int] = (32, 8)) -> Plan:
    """The plan in which each operator has a kernel of its own."""
    return Plan(graph, tuple(Group(graph, (node,), block=block) for node in graph.nodes))


def groups_of(graph: Graph, parts: Sequence[Sequence[Node[Any]]]) -> list[tuple[Node[Any], ...]]:
    """The parts of a partition in an order in which they can be computed, each in the order of the graph. Raises
    `DslError` if two parts need each other."""
    order = {node: number for number, node in enumerate(graph.nodes)}
    remaining = [tuple(sorted(part, key=order.__getitem__)) for part in parts]
    made: list[tuple[Node[Any], ...]] = []
    computed: set[Image[Any]] = set(graph.inputs)
    while remaining:
        ready = [
            part
            for part in remaining
            if all(a.image in computed or a.image in set(part) for node in part for a in node.accesses)
        ]
        if not ready:
            names = ", ".join(node.name for part in remaining for node in part)
            raise DslError(f"groups of {names} need each other")
        chosen = min(ready, key=lambda part: order[part[-1]])
        remaining.remove(chosen)
        made.append(chosen)
        computed |= set(chosen)
    return made
