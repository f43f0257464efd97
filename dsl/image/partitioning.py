"""Iteration space partitioning: one kernel with up to nine regions, each with the checks that it needs (ISP).

Blocks at the left edge of an image check for indices below 0 only, blocks at the right edge for those from the width
on, and blocks inside do not check at all; the same along y. `isp` switches by the number of the block. `isp_warp`
switches by the warp along x: in a block at the left or right edge, warps that reach nothing outside take the region
without the check. It needs blocks whose width is a multiple of 32. Listing 5 of the paper tests the block first and
then the warp. Here one comparison of x with a multiple of 32 does both.

In `isp_rows`, a thread computes several pixels, one below the other. So fewer blocks have to be started, index
arithmetic is shared, and a pixel that several of them read is loaded once. Threads of the last row of blocks whose
pixels are partly below the image compute one pixel after the other. An operator without any check gets such a kernel,
too.

With a constant boundary, a region reads the nearest pixel of the image and then selects the constant. The reads are not
behind tests, so threads load addresses, and pixels that several rows read, only once. The naive kernel has the reads
behind tests, which take fewer instructions there.

The bounds differ from equation 2 of the paper, which rounds the numbers of blocks at the left and at the top down: with
a window that reaches less than a block that is 0, and no block would check. They are rounded up here. A block that is
at both edges of an axis gets both checks. If there is such a block, all blocks of this axis do.
Guarantees: a region has each check that one of its reads needs, for every boundary, scale, offset and size.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning, listings 3 and 5, equation 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import DslError
from ..functions import Param
from .borders import Checks
from .graph import Graph
from .lowered import Launch, Lowered, Options
from .lowering import (
    Arguments,
    Store,
    arguments_for,
    checks_of,
    grid_of,
    load_function,
    lower_nodes,
    naive_node,
    region,
    store_kernel,
)
from .operator_body import PixelFunction
from .operators import Node
from .sizes import ceil_div, largest, smallest

__all__ = [
    "Axis",
    "ROWS",
    "Side",
    "axes_of",
    "has_warps",
    "isp",
    "isp_node",
    "isp_rows",
    "isp_rows_node",
    "isp_warp",
    "isp_warp_node",
]

WARP = 32
#: The pixels that a thread of `isp_rows` computes, one below the other.
ROWS = 4


@dataclass(frozen=True, slots=True)
class Side:
    """The edges of an axis that a region checks. ``name`` has a letter for each of them."""

    name: str
    low: bool
    high: bool

    def of(self, checks: Checks) -> Checks:
        """The checks of an access that this side needs."""
        return replace(checks, low=checks.low and self.low, high=checks.high and self.high)


@dataclass(frozen=True, slots=True)
class Axis:
    """How an axis is partitioned. Pixels count from the first one that is computed.

    The pixels before ``low_end`` need the low check, and those from ``high_start`` on need the high check. None: no
    pixel does. ``size`` is the number of pixels, and ``block`` the threads of a block along the axis. ``letters`` are
    the names of the edges.
    """

    low_end: int | None
    high_start: int | None
    size: int
    block: int
    letters: str

    def low_blocks(self, grain: int = 0) -> int:
        """The number of blocks, or of warps of ``grain`` threads, that need the low check."""
        assert self.low_end is not None
        return ceil_div(largest(self.low_end, 0), grain or self.block)

    def high_block(self, grain: int = 0) -> int:
        """The first block, or warp of ``grain`` threads, that needs the high check."""
        assert self.high_start is not None
        return largest(self.high_start, 0) // (grain or self.block)

    def is_split(self, grain: int = 0) -> bool:
        """Whether no block, or warp, needs both checks."""
        if self.low_end is None or self.high_start is None:
            return True
        return self.low_blocks(grain) <= self.high_block(grain)

    @property
    def low(self) -> Side:
        """The side of the blocks that need the low check only."""
        return Side(self.letters[0], True, False)

    @property
    def middle(self) -> Side:
        """The side of the blocks that need no check."""
        return Side("", False, False)

    @property
    def high(self) -> Side:
        """The side of the blocks that need the high check only."""
        return Side(self.letters[1], False, True)

    @property
    def both(self) -> Side:
        """The side of the blocks that need both checks."""
        return Side(self.letters, True, True)


def axes_of(node: Node[Any], options: Options, rows: int = 1) -> tuple[Axis, Axis]:
    """The partition of a node along x and y. ``rows``: the pixels of a thread, one below the other."""
    x, y = options.block
    across, down = _axis(node, options, 0, x, "lr"), _axis(node, options, 1, y * rows, "tb")
    if rows == 1:
        return across, down
    # The last row of blocks may be partly below the image.
    last = down.size - 1
    return across, replace(down, high_start=last if down.high_start is None else smallest(down.high_start, last))


def _axis(node: Node[Any], options: Options, axis: int, block: int, letters: str) -> Axis:
    space = node.space
    start, size = ((space.x0, space.width), (space.y0, space.height))[axis]
    low: list[int] = []
    high: list[int] = []
    for access in node.accesses:
        checks, centre = checks_of(access, node, options)[axis], access.centres[axis]
        extent = access.extent
        before, after = ((extent.left, extent.right), (extent.up, extent.down))[axis]
        # centre(at) - before >= 0 from the pixel `inside` on; centre(at) + after < size of the image before `outside`
        if checks.low:
            inside = ceil_div((before - centre.offset) * centre.denominator, centre.numerator)
            low.append(inside - start)
        if checks.high:
            reach = access.image.size[axis] - (after + centre.offset)
            high.append(ceil_div(reach * centre.denominator, centre.numerator) - start)
    return Axis(largest(*low) if low else None, smallest(*high) if high else None, size, block, letters)


def isp_node(node: Node[Any], name: str, options: Options, *, body_only: bool = False) -> Launch:
    """The kernel of a node with regions of blocks. A node without any check gets the naive kernel. With ``body_only``,
    the other regions are left out; their threads end after the tests."""
    return _partitioned(node, name, options, by_warp=False, body_only=body_only)


def isp_warp_node(node: Node[Any], name: str, options: Options, *, body_only: bool = False) -> Launch:
    """The kernel of a node with regions of blocks and, along x, of warps."""
    if options.block[0] % WARP:
        raise DslError(f"isp_warp needs blocks whose width is a multiple of {WARP}, not {options.block[0]}")
    # A block that is one warp wide has no other warps along x.
    return _partitioned(node, name, options, by_warp=options.block[0] > WARP, body_only=body_only)


def checks_edges(node: Node[Any], options: Options, rows: int = 1) -> bool:
    """Whether a thread of the node checks an index, so that regions differ. ``rows``: the pixels of a thread."""
    return any(bound is not None for axis in axes_of(node, options, rows) for bound in (axis.low_end, axis.high_start))


def isp_rows_node(node: Node[Any], name: str, options: Options, *, body_only: bool = False) -> Launch:
    """The kernel of a node with regions, in which a thread computes `ROWS` pixels. Regions are those of warps along x
    if a block is several warps wide."""
    return _partitioned(node, name, options, by_warp=has_warps(options), body_only=body_only, rows=ROWS)


def has_warps(options: Options) -> bool:
    """Whether blocks have several warps along x."""
    return options.block[0] > WARP and options.block[0] % WARP == 0


def _partitioned(
    node: Node[Any], name: str, options: Options, *, by_warp: bool, body_only: bool, rows: int = 1
) -> Launch:
    if not checks_edges(node, options, rows):
        return naive_node(node, name, options)
    x, y = axes_of(node, options, rows)
    return _Kernel(node, options, x, y, by_warp, body_only, rows).launch(name)


class _Kernel:
    """A kernel with regions that is being made."""

    def __init__(
        self, node: Node[Any], options: Options, x: Axis, y: Axis, by_warp: bool, body_only: bool, rows: int
    ) -> None:
        self.node, self.options, self.x, self.y = node, options, x, y
        self.by_warp, self.body_only, self.rows = by_warp, body_only, rows
        sides = [f"{row}{column}" for row in ("", "t", "b", "tb") for column in ("", "l", "r", "lr")]
        functions = [_region_name(node, side) for side in sides]
        loads = [_load_name(access.param.name, side) for access in node.accesses for side in sides]
        variables = ["block_x", "block_y", "row", *(f"value_{row}" for row in range(self.rows))]
        self.arguments: Arguments = arguments_for(node, *functions, *loads, *variables)
        #: By name of a region: its function.
        self.regions: dict[str, PixelFunction] = {}
        self.bounds: list[Param] = []

    def launch(self, name: str) -> Launch:
        rows = self._rows()
        lines: Callable[[Store], list[str]] = lambda store: self._lines(rows, store)  # noqa: E731
        regions = list(self.regions.values())
        kernel, arguments = store_kernel(
            name, self.node, self.arguments, regions, lines, self.options, self.bounds, self.rows
        )
        block, tile = self.options.block, (self.x.block, self.y.block)
        notes = tuple(self._notes())
        grid = grid_of(self.node, tile)
        return Launch(kernel, grid, block, arguments, (self.node,), notes, pixels=(1, self.rows))

    def _notes(self) -> list[str]:
        shown = ", ".join(each or "body" for each in self.regions)
        return [f"regions: {shown}", *([f"{self.rows} pixels of a thread"] if self.rows > 1 else [])]

    def _bound(self, name: str, value: int) -> str:
        """A parameter of the kernel with a bound of the partition; its name."""
        param = self.arguments.integer(name, value)
        if param not in self.bounds:
            self.bounds.append(param)
        return param.name

    def _region(self, row: Side, column: Side) -> PixelFunction | None:
        """The region at these sides. None if it is left out."""
        name = f"{row.name}{column.name}"
        if self.body_only and name:
            return None
        if name not in self.regions:
            loads: dict[str, PixelFunction] = {}
            for access in self.node.accesses:
                x, y = checks_of(access, self.node, self.options)
                called = _load_name(access.param.name, name)
                checks = column.of(x), row.of(y)
                loads[access.param.name] = load_function(access, checks, self.arguments, called, selected=True)
            self.regions[name] = region(self.node, loads, self.arguments, _region_name(self.node, name))
        return self.regions[name]

    # --- switching ---------------------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[str, Side, _Switch]]:
        """The tests of rows of blocks, each with their side and the columns of these rows. The last test is empty."""
        y = self.y
        if not y.is_split():
            return [("", y.both, self._columns(y.both))]
        found: list[tuple[str, Side, _Switch]] = []
        if y.low_end is not None:
            found.append((f"block_y < {self._bound('top', y.low_blocks())}", y.low, self._columns(y.low)))
        if y.high_start is not None:
            found.append((f"block_y >= {self._bound('bottom', y.high_block())}", y.high, self._columns(y.high)))
        return [*found, ("", y.middle, self._columns(y.middle))]

    def _columns(self, row: Side) -> _Switch:
        """The tests of columns of blocks or of warps, each with its region. The last test is empty."""
        x = self.x
        grain = WARP if self.by_warp else 0
        if not x.is_split(grain):
            return [("", self._region(row, x.both))]
        found: _Switch = []
        if x.low_end is not None:
            # The bound is a multiple of a warp, so that all threads of a warp take the same region.
            bound = self._bound("left", x.low_blocks(grain) * (grain or 1))
            found.append((f"{'x' if grain else 'block_x'} < {bound}", self._region(row, x.low)))
        if x.high_start is not None:
            bound = self._bound("right", x.high_block(grain) * (grain or 1))
            found.append((f"{'x' if grain else 'block_x'} >= {bound}", self._region(row, x.high)))
        return [*found, ("", self._region(row, x.middle))]

    def _lines(self, rows: Sequence[tuple[str, Side, _Switch]], store: Store) -> list[str]:
        switches = [test for test, _, _ in rows] + [test for _, _, columns in rows for test, _ in columns]
        lines = [
            f"block_{axis} = i32(blockIdx.{axis})" for axis in "xy" if any(f"block_{axis} " in t for t in switches)
        ]

        def statements(part: PixelFunction | None, row: Side) -> list[str]:
            return ["return"] if part is None else store(part, cut=row.high)

        inner = [
            (test, _chain([(each, statements(part, row)) for each, part in columns])) for test, row, columns in rows
        ]
        return lines + _chain(inner)


#: Tests of columns of blocks with the regions that follow them. The last test is empty.
_Switch = list[tuple[str, PixelFunction | None]]


def _chain(parts: Sequence[tuple[str, list[str]]]) -> list[str]:
    """``if``, ``elif`` and ``else`` over tests with their lines. The last test is empty."""
    if len(parts) == 1:
        return parts[0][1]
    lines: list[str] = []
    for number, (test, body) in enumerate(parts):
        head = "else" if not test else f"{'elif' if number else 'if'} {test}"
        lines += [f"{head}:", *(f"    {line}" for line in body)]
    return lines


def _region_name(node: Node[Any], name: str) -> str:
    return f"{node.operator.name}_{name or 'body'}"


def _load_name(param: str, name: str) -> str:
    return f"load_{param}_{name or 'body'}"


def isp(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, with regions of blocks."""
    return lower_nodes(graph, "isp", options, isp_node)


def isp_warp(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, with regions of blocks and, along x, of warps."""
    return lower_nodes(graph, "isp_warp", options, isp_warp_node)


def isp_rows(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, with regions, in which each thread computes several pixels."""
    return lower_nodes(graph, "isp_rows", options, isp_rows_node)
