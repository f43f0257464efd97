"""The control-flow graph of a kernel as a picture, with its divergence.

Draws: blocks in layers from top to bottom, each with its label, its source lines and a summary of its instructions.
Branches that can be divergent are red; blocks outside of the control dependence region of non-divergence (CDRND) are
shaded; loops have coloured stripes and back edges.
Requires: matplotlib (the extra `plots`) and networkx, imported when a picture is drawn; no Graphviz.
Guarantees: the same kernel gives the same picture; the text size is fixed, so a larger graph has a larger picture.
Refuses: `PictureError` for a format that is not in `FORMS`, a missing library, or more than `MOST_BLOCKS` blocks.
"""

from __future__ import annotations

import importlib
import io
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from ..ptx.operations import Operation
from .layered_layout import GAP_Y, Layout, Point, layered_layout, layers_of

if TYPE_CHECKING:
    from ..analysis.manager import Facts
    from ..ptx import Instr

__all__ = ["FORMS", "MOST_BLOCKS", "PictureError", "draw_cfg"]

FORMS = ("svg", "png")
MOST_BLOCKS = 1500
#: The most pixels that a PNG may have in one direction.
_MOST_PIXELS = 30_000

_FONT, _LINE, _PADDING, _STRIPE = 8.0, 11.0, 7.0, 5.0
_CHARACTER = 0.602 * _FONT  #: the width of one in DejaVu Sans Mono
_LONGEST = 46  #: characters of a line
_MARGIN, _HEAD = 24.0, 64.0
#: A picture that is higher than this, and than twice its width, is divided into columns.
_HIGHEST = 1300.0
_COLUMN_GAP = 60.0

_INK, _PALE, _RED = "#1f2933", "#7b8794", "#c0182b"
_INSIDE, _OUTSIDE = "#eef6ee", "#fbe3d6"
_LOOPS = ("#2c6fbb", "#8a4fbf", "#0f8b8d", "#b8720a", "#5a7d1e", "#b03a8c")


class PictureError(Exception):
    """No picture can be drawn; ``is_missing``: because a library is not installed."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


@dataclass(frozen=True)
class _Line:
    text: str
    colour: str = _INK
    is_bold: bool = False


def draw_cfg(facts: Facts, form: str, place: Callable[[Instr], tuple[str, int, int]]) -> bytes:
    """The picture of the kernel of ``facts`` as an SVG or PNG file; ``place`` gives the source line of instructions."""
    if form not in FORMS:
        raise PictureError(f"a picture is {' or '.join(FORMS)}, not '{form}'")
    count = len(facts.cfg)
    if count > MOST_BLOCKS:
        raise PictureError(f"{facts.kernel.name} has {count} blocks, and no more than {MOST_BLOCKS} are drawn")
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
        matplotlib: Any = importlib.import_module("matplotlib")
        importlib.import_module("networkx")
    except ImportError as error:
        install = "python -m pip install 'ptxmotion[plots]'"
        raise PictureError(
            f"a picture needs matplotlib: {error}\ninstall it with: {install}", is_missing=True
        ) from None
    with matplotlib.rc_context(
        {"svg.hashsalt": "ptxmotion", "svg.fonttype": "none", "font.family": "DejaVu Sans Mono"}
    ):
        figure = _Drawing(_Contents(facts, place)).draw(figures)
        width, height = figure.get_size_inches()
        dpi = min(130.0, _MOST_PIXELS / max(width, height))
        data = io.BytesIO()
        figure.savefig(data, format=form, dpi=dpi, metadata={"Date": None} if form == "svg" else None)
    return data.getvalue()


@dataclass(frozen=True)
class _Box:
    """A block, or a link to or from a block in another column (``block`` is -1)."""

    block: int
    lines: tuple[_Line, ...]
    loops: tuple[int, ...] = ()
    colour: str = _PALE

    @property
    def size(self) -> tuple[float, float]:
        left = _PADDING + _STRIPE * len(self.loops)
        width = left + max(len(line.text) for line in self.lines) * _CHARACTER + _PADDING
        return width, len(self.lines) * _LINE + (2 * _PADDING - 3 if self.block >= 0 else 4)


@dataclass(frozen=True)
class _Stroke:
    """The line with which an edge is drawn."""

    colour: str
    style: str = "-"
    width: float = 1.1


@dataclass
class _Column:
    """A part of the layers: boxes, and edges between them by their indices in ``boxes``."""

    boxes: list[_Box]
    forward: dict[tuple[int, int], _Stroke]
    back: dict[tuple[int, int], _Stroke]

    def laid_out(self) -> Layout:
        return layered_layout([box.size for box in self.boxes], list(self.forward), list(self.back))


class _Contents:
    """The content of the picture: a box for each block, a stroke for each edge, and the columns."""

    def __init__(self, facts: Facts, place: Callable[[Instr], tuple[str, int, int]]) -> None:
        self.facts = facts
        self.place = place
        self.cfg = facts.cfg
        self.divergence = facts.divergence
        self.expected = facts.expected_divergence
        self.loops = facts.loops.loops
        self.loop_at = {loop.header: loop.index for loop in self.loops}
        self.boxes = [self.box(block) for block in range(len(self.cfg))]
        self.forward: dict[tuple[int, int], _Stroke] = {}
        self.back: dict[tuple[int, int], _Stroke] = {}
        self.split_edges()

    def split_edges(self) -> None:
        """The back edges of a depth-first order; the other edges are acyclic."""
        number = {block: at for at, block in enumerate(self.cfg.rpo)}
        for block in range(len(self.cfg)):  # unreachable blocks come last
            number.setdefault(block, len(number))
        for block in range(len(self.cfg)):
            for successor in dict.fromkeys(self.cfg.succ[block]):
                edge = (block, successor)
                if number[successor] <= number[block]:
                    self.back[edge] = _Stroke(self.loop_colour(successor), width=2.0)
                else:
                    falls = successor == block + 1 and _may_fall(self.cfg.blocks[block].terminator)
                    colour = _RED if self.divergence.is_divergent(block) else _INK
                    self.forward[edge] = _Stroke(colour, "--" if falls else "-")

    def loop_colour(self, header: int) -> str:
        """The colour of the loop with this header, or of the innermost loop around it."""
        index = self.loop_at.get(header, self.facts.loops.loop_of[header])
        return _loop_colour(index) if index >= 0 else _INK

    # --- the text of a box -------------------------------------------------------------------------------------------

    def box(self, block: int) -> _Box:
        code = self.cfg.blocks[block]
        where = self.source_lines(block)
        title = self.name(block)
        lines = [_Line(_cut(f"{title}   {where}" if where else title), is_bold=True)]
        instrs = [instr for instr in code.instrs if not instr.is_directive]
        lines.append(_Line(_cut(_contents(instrs)), _PALE))
        if block in self.loop_at:
            loop = self.loops[self.loop_at[block]]
            kind = "irreducible loop" if loop.is_irreducible else "loop"
            apart = ", left lane by lane" if self.divergence.has_divergent_exit(loop.index) else ""
            lines.append(_Line(f"↻ {kind} {loop.index}{apart}", _loop_colour(loop.index)))
        terminator = code.terminator
        is_divergent = self.divergence.is_divergent(block)
        is_indexed = terminator is not None and terminator.form.operation is Operation.INDEXED_BRANCH
        if terminator is not None and (terminator.guard is not None or is_indexed):
            lines.append(_Line(_cut(terminator.text), _RED if is_divergent else _INK))
            counts = self.expected.measured(block)
            if counts is not None:
                lines.append(_Line(f"parted {counts[1]} of {counts[0]} warps", _RED if counts[1] else _PALE))
        elif not self.cfg.reachable[block]:
            lines.append(_Line("never reached", _PALE))
        return _Box(
            block,
            tuple(lines),
            tuple([loop.index for loop in self.facts.loops.around(block)]),
            _RED if is_divergent else _PALE,
        )

    def name(self, block: int) -> str:
        label = self.cfg.blocks[block].label
        return f"{block}  {label.text}" if label is not None else str(block)

    def source_lines(self, block: int) -> str:
        places = [self.place(instr) for instr in self.cfg.blocks[block].instrs if instr.loc is not None]
        lines = sorted({line for _, line, _ in places if line})
        if not lines:
            return ""
        name = places[0][0].rsplit("/", 1)[-1]
        return f"{name}:{lines[0]}" if lines[0] == lines[-1] else f"{name}:{lines[0]}–{lines[-1]}"

    # --- columns ---------------------------------------------------------------------------------------------------

    def columns(self) -> list[_Column]:
        """One column, or several if it would be much higher than wide."""
        whole = _Column(self.boxes, self.forward, self.back)
        layout = whole.laid_out()
        if layout.height <= max(_HIGHEST, 2 * layout.width):
            return [whole]
        count = round(math.sqrt(layout.height / (0.8 * (layout.width + _COLUMN_GAP))))
        layers = layers_of(len(self.boxes), list(self.forward))
        column_of = self.cut(layers, max(count, 2))
        return [self.column(column_of, number) for number in range(max(column_of) + 1)]

    def cut(self, layers: list[int], count: int) -> list[int]:
        """The column of each block. Columns have about equal heights and are cut where few edges pass."""
        depth = max(layers) + 1
        heights = [0.0] * depth
        for box, layer in zip(self.boxes, layers, strict=True):
            heights[layer] = max(heights[layer], box.size[1] + GAP_Y)
        passing = [0] * (depth + 1)
        for one, two in (*self.forward, *self.back):
            low, high = sorted((layers[one], layers[two]))
            passing[low] += 1
            passing[high] -= 1
        bottoms, over = list(accumulate(heights)), list(accumulate(passing))
        cuts: list[int] = []
        for number in range(1, count):
            target, slack = bottoms[-1] * number / count, bottoms[-1] / count / 4
            near = [layer for layer in range(depth - 1) if abs(bottoms[layer] - target) <= slack]
            if near:
                cuts.append(min(near, key=lambda layer: (over[layer], abs(bottoms[layer] - target))))
        return [bisect_left(sorted(set(cuts)), layer) for layer in layers]

    def column(self, column_of: list[int], number: int) -> _Column:
        """The blocks of one column, with links for blocks of other columns."""
        blocks = [block for block, column in enumerate(column_of) if column == number]
        found = _Column([self.boxes[block] for block in blocks], {}, {})
        place = {block: at for at, block in enumerate(blocks)}
        links: dict[tuple[str, int, str], int] = {}
        sources: dict[tuple[str, int, str], list[int]] = {}

        def link(kind: str, block: int, stroke: _Stroke) -> int:
            key = (kind, block, stroke.colour if stroke.width > 1.5 else "")
            if key not in links:
                links[key] = len(found.boxes)
                found.boxes.append(_Box(-1, (_Line(f"to {self.name(block)}", stroke.colour),), (), stroke.colour))
            return links[key]

        for edges, is_back in ((self.forward, False), (self.back, True)):
            for (one, two), stroke in edges.items():
                if one in place and two in place:
                    (found.back if is_back else found.forward)[place[one], place[two]] = stroke
                elif one in place:
                    found.forward[place[one], link("to", two, stroke)] = stroke
                elif two in place:
                    plain = stroke if is_back else _Stroke(_INK)
                    key = ("from", two, plain.colour if is_back else "")
                    sources.setdefault(key, []).append(one)
                    found.forward[link("from", two, plain), place[two]] = plain
        for key, blocks in sources.items():
            old = found.boxes[links[key]]
            text = _cut("from " + ", ".join(map(str, blocks)))
            found.boxes[links[key]] = _Box(-1, (_Line(text, old.colour),), (), old.colour)
        return found


class _Drawing:
    """One picture. Lengths are points (1/72 inch)."""

    def __init__(self, contents: _Contents) -> None:
        self.contents = contents
        self.divergence = contents.divergence
        self.columns = contents.columns()
        self.layouts = [column.laid_out() for column in self.columns]
        self.ax: Any = None

    def draw(self, figures: Any) -> Any:
        inner = sum(layout.width for layout in self.layouts) + _COLUMN_GAP * (len(self.layouts) - 1)
        width = max(inner, 640.0) + 2 * _MARGIN
        height = max(layout.height for layout in self.layouts) + 2 * _MARGIN + _HEAD
        figure = figures.Figure(figsize=(width / 72, height / 72))
        self.ax = figure.add_axes((0, 0, 1, 1))
        self.ax.set_xlim(0, width)
        self.ax.set_ylim(height, 0)
        self.ax.axis("off")
        self.draw_head()
        left = (width - inner) / 2
        for column, layout in zip(self.columns, self.layouts, strict=True):
            _ColumnDrawing(self, column, layout, (left, _MARGIN + _HEAD)).draw()
            left += layout.width + _COLUMN_GAP
        return figure

    def text(self, x: float, y: float, text: str, colour: str = _INK, **more: Any) -> None:
        more = {"fontsize": _FONT, "va": "center", **more}
        self.ax.text(x, y, text, color=colour, **more)

    def patch(self, kind: str, *arguments: Any, **options: Any) -> None:
        patches: Any = importlib.import_module("matplotlib.patches")
        self.ax.add_patch(getattr(patches, kind)(*arguments, **options))

    def draw_head(self) -> None:
        found, cfg = self.divergence, self.contents.cfg
        branches, divergent, inside = len(found.dependence.branches), len(found.divergent_branches), sum(found.cdrnd)
        self.text(_MARGIN, _MARGIN, self.contents.facts.kernel.name, fontsize=_FONT + 3, fontweight="bold")
        counts = (
            f"{_many(len(cfg), 'block')}, {_many(len(self.contents.loops), 'loop')}, "
            f"{_many(branches, 'branch', 'es')}: {divergent} may part a warp; "
            f"{_many(inside, 'block')} under no such branch"
        )
        self.text(_MARGIN, _MARGIN + 17, counts, _PALE)
        x, y = _MARGIN, _MARGIN + 37
        for fill, edge, text in (
            (_INSIDE, _PALE, "under no divergent branch"),
            (_OUTSIDE, _PALE, "under a divergent branch"),
            ("white", _RED, "may part a warp"),
        ):
            self.patch("Rectangle", (x, y - 5), 16, 10, facecolor=fill, edgecolor=edge, linewidth=1.2)
            self.text(x + 21, y, text)
            x += 21 + len(text) * _CHARACTER + 18
        for style, colour, text in (("-", _INK, "taken"), ("--", _INK, "falls through"), ("-", _LOOPS[0], "loop")):
            self.ax.plot([x, x + 18], [y, y], color=colour, linestyle=style, linewidth=2.0 if text == "loop" else 1.1)
            self.text(x + 23, y, text)
            x += 23 + len(text) * _CHARACTER + 18


class _ColumnDrawing:
    """One column, at a position in the picture."""

    def __init__(self, drawing: _Drawing, column: _Column, layout: Layout, shift: Point) -> None:
        self.drawing = drawing
        self.column = column
        self.layout = layout
        self.shift = shift
        self.ports: dict[tuple[tuple[int, int], int], float] = {}
        self.find_ports()

    def draw(self) -> None:
        for edge, stroke in self.column.back.items():
            self.draw_back(edge, stroke)
        for edge, stroke in self.column.forward.items():
            self.draw_forward(edge, stroke)
        for number, box in enumerate(self.column.boxes):
            self.draw_box(number, box)

    def at(self, point: Point) -> Point:
        return point[0] + self.shift[0], point[1] + self.shift[1]

    def draw_box(self, number: int, box: _Box) -> None:
        (x, y), (width, height) = self.at(self.layout.centre[number]), box.size
        left, top = x - width / 2, y - height / 2
        is_link, is_divergent = box.block < 0, box.colour == _RED
        self.drawing.patch(
            "FancyBboxPatch",
            (left, top),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={height / 2 if is_link else 3}",
            facecolor="white" if is_link else self.fill(box.block),
            edgecolor=box.colour,
            linewidth=1.8 if is_divergent and not is_link else 0.9,
            zorder=3,
        )
        for at, loop in enumerate(box.loops):
            stripe = (left + 1.5 + at * _STRIPE, top + 3)
            self.drawing.patch("Rectangle", stripe, _STRIPE - 2, height - 6, facecolor=_loop_colour(loop), zorder=4)
        first = y - len(box.lines) * _LINE / 2
        for at, line in enumerate(box.lines):
            weight = "bold" if line.is_bold else "normal"
            text_x = left + _PADDING + _STRIPE * len(box.loops)
            self.drawing.text(text_x, first + (at + 0.5) * _LINE, line.text, line.colour, fontweight=weight, zorder=5)

    def fill(self, block: int) -> str:
        found = self.drawing.divergence
        return _INSIDE if found.cdrnd[block] else _OUTSIDE if found.cfg.reachable[block] else "#f1f1f1"

    def find_ports(self) -> None:
        """Where lines leave the lower side of their box (0) and enter the upper side (1): in the order of their paths,
        so that they do not cross there."""
        for side in (0, 1):
            by_box: dict[int, list[tuple[int, int]]] = {}
            for edge in self.column.forward:
                by_box.setdefault(edge[side], []).append(edge)
            for number, edges in by_box.items():
                edges.sort(key=lambda edge: self.heading(edge, side))
                width = self.column.boxes[number].size[0]
                step = min(22.0, (width - 12) / len(edges))
                for at, edge in enumerate(edges):
                    self.ports[edge, side] = self.layout.centre[number][0] + (at - (len(edges) - 1) / 2) * step

    def heading(self, edge: tuple[int, int], side: int) -> float:
        line = self.layout.lines[edge]
        return line[-side][0] if line else self.layout.centre[edge[1 - side]][0]

    def draw_forward(self, edge: tuple[int, int], stroke: _Stroke) -> None:
        ends: list[Point] = []
        for side, sign in ((0, 1), (1, -1)):
            y = self.layout.centre[edge[side]][1] + sign * self.column.boxes[edge[side]].size[1] / 2
            ends.append(self.at((self.ports[edge, side], y)))
        (start, end), points = ends, [self.at(point) for point in self.layout.lines[edge]]
        codes, corners = [_MOVE], [start]
        _through([start, *points, (end[0], end[1] - 4)], codes, corners)
        self.draw_path(codes, corners, stroke, 1)
        arrow = [end, (end[0] - 3, end[1] - 6), (end[0] + 3, end[1] - 6)]
        self.drawing.patch("Polygon", arrow, color=stroke.colour, zorder=2)

    def draw_back(self, edge: tuple[int, int], stroke: _Stroke) -> None:
        """From the right side of the lower box, up beside the boxes, to the right side of the upper box."""
        (x, y), (width, height) = self.at(self.layout.centre[edge[0]]), self.column.boxes[edge[0]].size
        (to_x, to_y), (to_width, to_height) = self.at(self.layout.centre[edge[1]]), self.column.boxes[edge[1]].size
        start = (x + width / 2, y + height * self.share(edge, 0) / 2)
        end = (to_x + to_width / 2 + 5, to_y - to_height * self.share(edge, 1) / 2)
        points = [self.at(point) for point in self.layout.lines[edge]]
        first, last = (points[0][0], start[1] - 8), (points[-1][0], end[1] + 8)
        codes, corners = [_MOVE, _BEND, _BEND], [start, (first[0], start[1]), first]
        _through([first, *points[1:-1], last], codes, corners)
        codes += [_BEND, _BEND]
        corners += [(last[0], end[1]), end]
        self.draw_path(codes, corners, stroke, 2)
        tip = (end[0] - 5, end[1])
        arrow = [tip, (tip[0] + 7, tip[1] - 3.5), (tip[0] + 7, tip[1] + 3.5)]
        self.drawing.patch("Polygon", arrow, color=stroke.colour, zorder=4)

    def share(self, edge: tuple[int, int], side: int) -> float:
        """The distance of the end of a back edge from the middle of a box, in half heights; larger for longer edges."""
        edges = [each for each in self.column.back if each[side] == edge[side]]
        edges.sort(key=lambda each: len(self.layout.lines[each]))
        return 0.3 + 0.5 * (edges.index(edge) + 1) / (len(edges) + 1)

    def draw_path(self, codes: list[int], corners: list[Point], stroke: _Stroke, zorder: int) -> None:
        paths: Any = importlib.import_module("matplotlib.path")
        self.drawing.patch(
            "PathPatch",
            paths.Path(corners, codes),
            facecolor="none",
            edgecolor=stroke.colour,
            linestyle=stroke.style,
            linewidth=stroke.width,
            zorder=zorder,
        )


#: The codes of matplotlib for parts of a path: start, straight line, quadratic and cubic curve.
_MOVE, _STRAIGHT, _BEND, _CURVE = 1, 2, 3, 4


def _through(points: Sequence[Point], codes: list[int], corners: list[Point]) -> None:
    """Continue through ``points``, with a vertical tangent at each of them."""
    for (x, y), (to_x, to_y) in pairwise(points):
        if abs(x - to_x) < 0.5:
            codes.append(_STRAIGHT)
            corners.append((to_x, to_y))
        else:
            middle = (y + to_y) / 2
            codes += [_CURVE, _CURVE, _CURVE]
            corners += [(x, middle), (to_x, middle), (to_x, to_y)]


def _may_fall(terminator: Instr | None) -> bool:
    return terminator is None or terminator.guard is not None


def _loop_colour(index: int) -> str:
    return _LOOPS[index % len(_LOOPS)]


def _many(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}{ending if number != 1 else ''}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _contents(instrs: Sequence[Instr]) -> str:
    """The number of instructions, and those that access memory or synchronize."""
    from ..analysis.effects import memory_space
    from ..ptx import Effect

    counts: Counter[str] = Counter()
    for instr in instrs:
        effects, base = instr.form.effects, instr.form.op.base
        if instr.form.is_opaque or instr.form.is_call or effects & Effect.BARRIER:
            counts[base or instr.form.text] += 1
        elif instr.address is not None and effects & (Effect.READ | Effect.WRITE):
            counts[f"{base}.{memory_space(instr)}"] += 1
    parts = [f"{number}× {name}" if number > 1 else name for name, number in counts.items()]
    return ", ".join([_many(len(instrs), "instruction"), *parts])
