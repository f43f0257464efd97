"""How often a kernel of one operator executes its instructions, by region: counts of the emulator.

The launch runs once, and the emulator counts by regions of blocks. A number that the pipeline takes is 1 while
instructions are counted, and pixels are random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
    """Runs a launch for the first columns and rows of its grid, and counts the instructions of its regions."""

    def __init__(self, ptx: str, entry: str, block: tuple[int, int], arguments: tuple[_Argument, ...]) -> None:
        import numpy as np

        from ...emulator.backend import EmulatorBackend

        self.backend = EmulatorBackend(checks=False, counts=False)
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
        #: By parts: for each row and column of them, how often their blocks execute each basic block of each function.
        self._counts: dict[tuple[tuple[Part, ...], tuple[Part, ...]], list[list[Counter[tuple[PtxKernel, int]]]]] = {}
        #: By function and number of a basic block: its instructions by opcode.
        self._opcodes: dict[tuple[PtxKernel, int], Counter[str]] = {}

    def regions(
        self, node: Node[Any], small: Node[Any], options: Options, warps: int, pixels: int
    ) -> tuple[RegionFigures, ...]:
        """The figures of the regions of ``node``, by the counts of the smaller node. ``pixels`` are those of a
        thread."""
        found: list[RegionFigures] = []
        (columns, rows), (few_columns, few_rows) = parts_of(node, options, pixels), parts_of(small, options, pixels)
        counts = self._executed(few_columns, few_rows)
        for row, few_row, of_row in zip(rows, few_rows, counts, strict=True):
            for column, few_column, counted in zip(columns, few_columns, of_row, strict=True):
                run = few_column.size * few_row.size
                if run > 0 and column.size * row.size > 0:
                    by_opcode = self._by_opcode(counted)
                    opcodes = {name: count / (run * warps) for name, count in sorted(by_opcode.items())}
                    found.append(RegionFigures(f"{row.name}{column.name}" or "body", column.size * row.size, opcodes))
        return tuple(found)

    def between(self, column: Part, row: Part) -> Counter[str]:
        """How often the blocks of a column and a row execute each opcode. Only the blocks up to them run."""
        columns, rows = ([Part("", 0, part.start), part] for part in (column, row))
        return self._by_opcode(self._executed(columns, rows)[1][1])

    def _by_opcode(self, counts: Counter[tuple[PtxKernel, int]]) -> Counter[str]:
        found: Counter[str] = Counter()
        for place, count in counts.items():
            for opcode, written in self._opcodes_of(place).items():
                found[opcode] += written * count
        return found

    def _opcodes_of(self, place: tuple[PtxKernel, int]) -> Counter[str]:
        if place not in self._opcodes:
            function, number = place
            instrs = [instr for instr in function.blocks[number].instrs if not instr.is_directive]
            self._opcodes[place] = Counter(instr.form.text.partition(".")[0] for instr in instrs)
        return self._opcodes[place]

    def in_loops(self, small: Node[Any], options: Options, warps: int, pixels: int) -> tuple[float, float]:
        """The instructions of loops that a warp of the body enters, and how many of them it executes. Without a body,
        none."""
        columns, rows = parts_of(small, options, pixels)
        middle = [
            [number for number, part in enumerate(each) if not part.name and part.size] for each in (columns, rows)
        ]
        if not all(middle):
            return 0.0, 0.0
        (column,), (row,) = middle
        run = columns[column].size * rows[row].size * warps
        counts = self._executed(columns, rows)[row][column]
        written = executed = 0.0
        for function in {function for function, _ in counts}:
            for number in _in_loops(function):
                if count := counts.get((function, number), 0):
                    size = sum(not instr.is_directive for instr in function.blocks[number].instrs)
                    written += size
                    executed += size * count / run
        return written, executed

    def _executed(self, columns: Sequence[Part], rows: Sequence[Part]) -> list[list[Counter[tuple[PtxKernel, int]]]]:
        """The counts of the blocks of each row and column of parts. The parts follow each other from the first block
        on."""
        key = tuple(columns), tuple(rows)
        if key not in self._counts:
            self._counts[key] = self._launched(columns, rows)
        return self._counts[key]

    def _launched(self, columns: Sequence[Part], rows: Sequence[Part]) -> list[list[Counter[tuple[PtxKernel, int]]]]:
        import numpy as np

        from ...emulator.block_groups import BlockGroups

        across, down = (np.repeat(np.arange(len(each)), [part.size for part in each]) for each in (columns, rows))
        groups = BlockGroups((down[:, None] * len(columns) + across).reshape(-1))
        grid = (across.size, down.size, 1)
        self.backend.launch_in_groups(self.kernel, grid, (*self.block, 1), 0, self.arguments, groups)
        found = [[Counter[tuple[Any, int]]() for _ in columns] for _ in rows]
        for place, warps in groups.warps.items():
            for group in np.flatnonzero(warps).tolist():
                found[group // len(columns)][group % len(columns)][place] = int(warps[group])
        return found


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

    @property
    def size(self) -> int:
        """The number of columns or rows."""
        return self.stop - self.start


def parts_of(node: Node[Any], options: Options, rows: int = 1) -> tuple[list[Part], list[Part]]:
    """The parts of both axes of the grid of a partitioned kernel, columns first. ``rows``: pixels of a thread."""
    x, y = axes_of(node, options, rows)
    return _parts_of_axis(x), _parts_of_axis(y)


def _parts_of_axis(axis: Axis) -> list[Part]:
    blocks = -(-int(axis.size) // axis.block)
    if not axis.is_split():
        return [Part(axis.both.name, 0, blocks)]
    low = min(blocks, int(axis.low_blocks())) if axis.low_end is not None else 0
    high = min(blocks, int(axis.high_block())) if axis.high_start is not None else blocks
    return [Part(axis.low.name, 0, low), Part("", low, high), Part(axis.high.name, high, blocks)]
