"""A lowered image pipeline as an SVG picture.

Draws: images and operators in layers from top to bottom; for each operator its result, how it reads, its kernel, and
what the model decided; for a partitioned kernel a map of its regions with the share of the pixels of each. Regions at
the edges are drawn wider than they are.
Guarantees: the same pipeline gives the same picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ..dsl.image.lowered import Launch, Lowered
from ..dsl.image.operators import Access, Image, Node, Number, ScalarInput
from ..dsl.image.partitioning import Axis, axes_of, has_warps
from .layered_layout import Point, layered_layout

__all__ = ["draw_pipeline", "parts_of_axis"]

_CHARACTER, _LINE, _PADDING = 6.6, 15.0, 8.0  #: of a monospace font of 11 pixels
_MARGIN, _HEAD = 24.0, 30.0
_MAP = (216.0, 120.0)  #: width and height of a map of regions
_EDGE = 0.26  #: the share of the map that a region at an edge gets
_LONGEST = 44  #: characters of a line
_WARP = 32

_INK, _PALE = "#1f2933", "#7b8794"
_FILLS = {"input": "#e9edf1", "point": "#eef6ee", "local": "#e3eefa", "global": "#fbf0dd"}
#: The colours of regions, by the number of edges that they check.
_REGION_FILLS = ("#ffffff", "#ffe3c2", "#ffb98a", "#f08a5d", "#d9534f")


@dataclass(frozen=True)
class _Part:
    """A part of an axis of the result: the letters of the edges that it checks, and its pixels."""

    name: str
    start: int
    stop: int


def parts_of_axis(axis: Axis, grain: int) -> list[_Part]:
    """The parts of an axis, from the first pixel on. ``grain``: the threads of a warp, or 0 for parts of blocks."""
    size = int(axis.size)
    if not axis.is_split(grain):
        return [_Part(axis.both.name, 0, size)]
    step = grain or axis.block
    low = min(size, int(axis.low_blocks(grain)) * step) if axis.low_end is not None else 0
    high = min(size, int(axis.high_block(grain)) * step) if axis.high_start is not None else size
    parts = [_Part(axis.low.name, 0, low), _Part("", low, high), _Part(axis.high.name, high, size)]
    return [part for part in parts if part.start < part.stop]


@dataclass(frozen=True)
class _Box:
    """An image: its lines of text, the first in bold, and the parts of both axes if its kernel has regions."""

    lines: tuple[str, ...]
    fill: str
    is_output: bool = False
    columns: tuple[_Part, ...] = ()
    rows: tuple[_Part, ...] = ()

    @property
    def size(self) -> Point:
        width = max(len(line) for line in self.lines) * _CHARACTER + 2 * _PADDING
        height = len(self.lines) * _LINE + 2 * _PADDING
        if self.columns:
            width, height = max(width, _MAP[0] + 2 * _PADDING + 40), height + _MAP[1] + 1.5 * _LINE + _PADDING
        return width, height


@dataclass
class _Svg:
    """The elements of a picture."""

    elements: list[str] = field(default_factory=list[str])

    def text(self, x: float, y: float, text: str, *, bold: bool = False, anchor: str = "", fill: str = _INK) -> None:
        weight = ' font-weight="bold"' if bold else ""
        where = f' text-anchor="{anchor}"' if anchor else ""
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{weight}{where}>{escape(text)}</text>')

    def box(self, at: Point, size: Point, fill: str, *, stroke: str = _PALE, width: float = 1.0) -> None:
        self.elements.append(
            f'<rect x="{at[0]:.1f}" y="{at[1]:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{width}"/>'
        )

    def arrow(self, points: Sequence[Point]) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.elements.append(f'<polyline points="{joined}" fill="none" stroke="{_PALE}" marker-end="url(#end)"/>')

    def document(self, width: float, height: float, title: str) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11" '
            f'xml:space="preserve" aria-label={quoteattr(title)}>'
        )
        marker = (
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{_PALE}"/></marker></defs>'
        )
        ground = f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        return "\n".join([head, f"<title>{escape(title)}</title>", marker, ground, *self.elements, "</svg>", ""])


def draw_pipeline(lowered: Lowered) -> str:
    """The picture as the text of an SVG file."""
    graph = lowered.graph
    images: list[Image[Any]] = [*graph.inputs, *graph.nodes]
    number = {image: index for index, image in enumerate(images)}
    edges = [
        (number[access.image], number[node])
        for node in graph.nodes
        for access in node.accesses
        if access.image in number
    ]
    boxes = [_box(image, lowered) for image in images]
    layout = layered_layout([box.size for box in boxes], edges, [])
    title = f"{graph.name}: {lowered.lowering}, blocks of {lowered.options.block[0]} x {lowered.options.block[1]}"
    svg = _Svg()
    svg.text(_MARGIN, _MARGIN, title, bold=True)
    shift: Point = (_MARGIN, _MARGIN + _HEAD)
    centres = [(x + shift[0], y + shift[1]) for x, y in layout.centre]
    for start, end in dict.fromkeys(edges):
        between = [(x + shift[0], y + shift[1]) for x, y in layout.lines.get((start, end), [])]
        (x0, y0), (x1, y1) = centres[start], centres[end]
        first, last = (x0, y0 + boxes[start].size[1] / 2), (x1, y1 - boxes[end].size[1] / 2)
        svg.arrow([first, *between, last])
    for (x, y), box in zip(centres, boxes, strict=True):
        width, height = box.size
        _draw_box(svg, (x - width / 2, y - height / 2), box)
    width = max(layout.width, len(title) * _CHARACTER * 1.1) + 2 * _MARGIN
    return svg.document(width, layout.height + 2 * _MARGIN + _HEAD, title)


# --- boxes --------------------------------------------------------------------------------------------------------


def _box(image: Image[Any], lowered: Lowered) -> _Box:
    shape = f"{image.pixel} {int(image.width)} x {int(image.height)}"
    if not isinstance(image, Node):
        return _Box((image.name, f"input, {shape}"), _FILLS["input"])
    node: Node[Any] = image
    position, launch = next(
        (position, launch) for position, launch in enumerate(lowered.launches, 1) if node in launch.nodes
    )
    lines = [node.name, f"{node.operator.kind} {node.operator.name}, {shape}"]
    lines += [_argument(argument) for argument in node.arguments]
    x, y = (int(each) for each in launch.grid)
    lines.append(f"launch {position}: {launch.kernel.name}, {x} x {y} blocks")
    lines += [part for note in launch.notes for part in _note(note)]
    has_regions = node is launch.nodes[-1] and any(note.startswith("regions: ") for note in launch.notes)
    columns, rows = _parts(node, launch, lowered) if has_regions else ([], [])
    is_output = node in lowered.graph.outputs
    return _Box(tuple(lines), _FILLS[node.operator.kind], is_output, tuple(columns), tuple(rows))


def _argument(argument: Access | Number) -> str:
    if isinstance(argument, Number):
        value = argument.value
        shown = f"the number {value.name}" if isinstance(value, ScalarInput) else value
        return f"{argument.param.name} = {shown}"
    width, height = argument.extent.size
    window = f", window {width} x {height}, {argument.boundary.kind}" if argument.param.is_window else ""
    return f"{argument.param.name} = {argument.image.name}{window}"


def _note(note: str) -> list[str]:
    """The lines for a note of a launch, without what the map of regions shows."""
    return [] if note.startswith("regions: ") else wrap(note.partition(" (")[0], _LONGEST, subsequent_indent="  ")


def _parts(node: Node[Any], launch: Launch, lowered: Lowered) -> tuple[list[_Part], list[_Part]]:
    rows, options = launch.pixels[1], replace(lowered.options, block=launch.block)
    x, y = axes_of(node, options, rows)
    by_warp = (rows > 1 and has_warps(options)) or lowered.lowering == "isp_warp" or "chosen: isp_warp" in launch.notes
    return parts_of_axis(x, _WARP if by_warp and x.block > _WARP else 0), parts_of_axis(y, 0)


def _draw_box(svg: _Svg, at: Point, box: _Box) -> None:
    x, y = at
    svg.box(at, box.size, box.fill, stroke=_INK if box.is_output else _PALE, width=2.5 if box.is_output else 1.0)
    for number, line in enumerate(box.lines):
        svg.text(x + _PADDING, y + _PADDING + (number + 0.75) * _LINE, line, bold=number == 0)
    if box.columns:
        left = x + (box.size[0] - _MAP[0]) / 2 + 12
        _draw_map(svg, (left, y + _PADDING + (len(box.lines) + 1.5) * _LINE), box)


def _draw_map(svg: _Svg, at: Point, box: _Box) -> None:
    """The regions of a kernel, with the first pixel of each column and row."""
    pixels = box.columns[-1].stop * box.rows[-1].stop
    xs, ys = _stretched(box.columns, _MAP[0]), _stretched(box.rows, _MAP[1])
    for column, (left, right) in zip(box.columns, xs, strict=True):
        svg.text(at[0] + left, at[1] - 3, str(column.start), fill=_PALE)
        for row, (top, bottom) in zip(box.rows, ys, strict=True):
            name = f"{row.name}{column.name}"
            fill = _REGION_FILLS[len(name)]
            svg.box((at[0] + left, at[1] + top), (right - left, bottom - top), fill)
            share = (column.stop - column.start) * (row.stop - row.start) / pixels
            middle = at[0] + (left + right) / 2
            svg.text(middle, at[1] + (top + bottom) / 2 - 1, name or "body", anchor="middle", bold=True)
            shown = f"{share:.2%}" if share >= 0.0001 else "< 0.01%"
            svg.text(middle, at[1] + (top + bottom) / 2 + 11, shown, anchor="middle")
    for row, (top, _) in zip(box.rows, ys, strict=True):
        svg.text(at[0] - 4, at[1] + top + 9, str(row.start), anchor="end", fill=_PALE)


def _stretched(parts: Sequence[_Part], length: float) -> list[tuple[float, float]]:
    """Where parts are drawn: those at an edge get a fixed share."""
    shares = [_EDGE if part.name and len(parts) > 1 else 0.0 for part in parts]
    rest = shares.count(0.0)
    if rest:
        shares = [share or (1 - sum(shares)) / rest for share in shares]
    found: list[tuple[float, float]] = []
    start = 0.0
    for share in shares:
        stop = start + length * share / sum(shares)
        found.append((start, stop))
        start = stop
    return found
