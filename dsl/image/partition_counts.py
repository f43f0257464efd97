"""How often a kernel of one operator executes its instructions, by region: counts of the emulator.

The launch runs for the first columns and rows of its grid. A difference of such sums gives what the blocks of a region
execute. A number that the pipeline takes is 1 while instructions are counted, and pixels are random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import types as t
from .lowered import Launch, Options
from .operators import Image, Node, ScalarInput
from .partitioning import Axis, axes_of
from .windows import layout_of

if TYPE_CHECKING:
    from ...ptx.ir import Kernel as PtxKernel

__all__ = ["Counts", "Part", "RegionFigures", "counted_arguments", "parts_of"]


@dataclass(frozen=True)
class RegionFigures:
    """The blocks of an image that are at the same edges. ``blocks`` is their number in the real image.

    ``opcodes`` counts the instructions that a warp of these blocks executes on average, by the first word of the
    instruction, such as ``add``.
    """

    name: str
    blocks: int
    opcodes: Mapping[str, float] = field(repr=False)

    @property
    def instructions(self) -> float:
        """The instructions that a warp of these blocks executes on average."""
        return sum(self.opcodes.values())


@dataclass(frozen=True, slots=True)
class _Pixels:
    """A buffer for an image: its number among the images of a launch, the type of its numbers and how many it has.
    ``margin`` is how many numbers may be read before the first one and after the last one."""

    number: int
    dtype: str
    count: int
    margin: int


#: An argument of a launch: a buffer, or a number with its type.
_Argument = _Pixels | tuple[str, int]


def counted_arguments(launch: Launch, rows: int = 0) -> tuple[_Argument, ...]:
    """What the instructions of a launch depend on, besides its kernel and its blocks. ``rows`` is the margin of
    images, in rows."""
    numbers: dict[Image[Any], int] = {}
    found: list[_Argument] = []
    for each in launch.arguments:
        value, type = each.value, each.param.type
        if isinstance(value, Image):
            dtype, lanes = layout_of(value.pixel)
            number = numbers.setdefault(value, len(numbers))
            row = int(value.width) * lanes
            found.append(_Pixels(number, dtype.str, row * int(value.height), row * rows))
        else:
            assert isinstance(type, t.Scalar)
            found.append((type.dtype.str, 1 if isinstance(value, ScalarInput) else int(value)))
    return tuple(found)


class Counts:
    """Runs a launch for the first columns and rows of its grid, and counts the instructions of blocks between them."""

    def __init__(self, ptx: str, entry: str, block: tuple[int, int], arguments: tuple[_Argument, ...]) -> None:
        import numpy as np

        from ...emulator.backend import EmulatorBackend

        self.backend = EmulatorBackend(checks=False)
        self.block = block
        self.kernel = self.backend.load(ptx).kernel(entry)
        memory: dict[int, Any] = {}
        self.arguments: list[Any] = []
        for each in arguments:
            if isinstance(each, _Pixels):
                if each.number not in memory:
                    memory[each.number] = _buffer(self.backend, each)
                first = memory[each.number].address + each.margin * np.dtype(each.dtype).itemsize
                self.arguments.append(np.uint64(first))
            else:
                dtype, value = each
                self.arguments.append(np.dtype(dtype).type(value))
        #: By (columns, rows) of blocks: how often all of these blocks execute each basic block of each function.
        self._sums: dict[tuple[int, int], Counter[tuple[PtxKernel, int]]] = {}

    def regions(
        self, node: Node[Any], small: Node[Any], options: Options, warps: int, pixels: int
    ) -> tuple[RegionFigures, ...]:
        """The figures of the regions of ``node``, by the counts of the smaller node. ``pixels`` are those of a
        thread."""
        found: list[RegionFigures] = []
        (columns, rows), (few_columns, few_rows) = parts_of(node, options, pixels), parts_of(small, options, pixels)
        for row, few_row in zip(rows, few_rows, strict=True):
            for column, few_column in zip(columns, few_columns, strict=True):
                run = (few_column.stop - few_column.start) * (few_row.stop - few_row.start)
                blocks = (column.stop - column.start) * (row.stop - row.start)
                if run > 0 and blocks > 0:
                    counted = self.between(few_column, few_row)
                    opcodes = {name: count / (run * warps) for name, count in sorted(counted.items())}
                    found.append(RegionFigures(f"{row.name}{column.name}" or "body", blocks, opcodes))
        return tuple(found)

    def between(self, column: Part, row: Part) -> Counter[str]:
        """How often the blocks of a column and a row execute each opcode."""
        found: Counter[str] = Counter()
        for (function, number), count in self._executed(column, row).items():
            for instr in function.blocks[number].instrs:
                if not instr.is_directive:
                    found[instr.form.text.partition(".")[0]] += count
        return found

    def in_loops(self, small: Node[Any], options: Options, warps: int, pixels: int) -> tuple[float, float]:
        """The instructions of loops that a warp of the body enters, and how many of them it executes. Without a body,
        none."""
        columns, rows = parts_of(small, options, pixels)
        parts = [part for part in columns if not part.name], [part for part in rows if not part.name]
        if not all(part and part[0].stop > part[0].start for part in parts):
            return 0.0, 0.0
        (column,), (row,) = parts
        run = (column.stop - column.start) * (row.stop - row.start) * warps
        counts = self._executed(column, row)
        written = executed = 0.0
        for function in {function for function, _ in counts}:
            for number in _in_loops(function):
                if count := counts.get((function, number), 0):
                    size = sum(not instr.is_directive for instr in function.blocks[number].instrs)
                    written += size
                    executed += size * count / run
        return written, executed

    def _executed(self, column: Part, row: Part) -> Counter[tuple[PtxKernel, int]]:
        """The counts of the blocks of a column and a row: a difference of sums from the first block on."""
        whole, left = (self._sum(each, row.stop) for each in (column.stop, column.start))
        above, corner = (self._sum(each, row.start) for each in (column.stop, column.start))
        return Counter({key: whole[key] - left[key] - above[key] + corner[key] for key in whole})

    def _sum(self, columns: int, rows: int) -> Counter[tuple[PtxKernel, int]]:
        if columns == 0 or rows == 0:
            return Counter()
        if (columns, rows) not in self._sums:
            self.backend.reset()
            self.backend.launch(self.kernel, (columns, rows, 1), (*self.block, 1), 0, self.arguments)
            self._sums[columns, rows] = Counter(
                {
                    (function, number): warps
                    for function, executions in self.backend.counts.executions.items()
                    for number, (warps, _) in executions.blocks.items()
                }
            )
        return self._sums[columns, rows]


def _in_loops(function: PtxKernel) -> set[int]:
    """The numbers of the basic blocks between a label and a branch back to it."""
    places = {block.label.text: number for number, block in enumerate(function.blocks) if block.label is not None}
    found: set[int] = set()
    for number, block in enumerate(function.blocks):
        branch = block.terminator
        for word in branch.text.replace(";", " ").replace(",", " ").split() if branch is not None else ():
            if word in places:
                found.update(range(places[word], number + 1))
    return found


def _buffer(backend: Any, pixels: _Pixels) -> Any:
    """A buffer with random pixels and its margins: from 0 to 1, or from 0 to 100 for integers."""
    import numpy as np

    dtype = np.dtype(pixels.dtype)
    random = np.random.default_rng(0)
    count = pixels.count + 2 * pixels.margin
    values = random.random(count) if dtype.kind == "f" else random.integers(0, 101, count)
    buffer = backend.allocate(count * dtype.itemsize)
    backend.write(buffer, values.astype(dtype))
    return buffer


@dataclass(frozen=True, slots=True)
class Part:
    """Columns or rows of blocks at the same edges: from ``start`` to ``stop``, without ``stop``."""

    name: str
    start: int
    stop: int


def parts_of(node: Node[Any], options: Options, rows: int = 1) -> tuple[list[Part], list[Part]]:
    x, y = axes_of(node, options, rows)
    return _parts_of_axis(x), _parts_of_axis(y)


def _parts_of_axis(axis: Axis) -> list[Part]:
    blocks = -(-int(axis.size) // axis.block)
    if not axis.is_split():
        return [Part(axis.both.name, 0, blocks)]
    low = min(blocks, int(axis.low_blocks())) if axis.low_end is not None else 0
    high = min(blocks, int(axis.high_block())) if axis.high_start is not None else blocks
    return [Part(axis.low.name, 0, low), Part("", low, high), Part(axis.high.name, high, blocks)]
