"""The model that decides whether a kernel is partitioned (isp+m), and its figures.

For one operator, the naive kernel and the partitioned one are compiled. Both run on the emulator, on an image that is
shrunk in the middle: it has every kind of block, and few of each. Each block of instructions of the PTX is counted as
often as it is executed, for each region of blocks. Together with how many blocks of each region the real image has,
this gives the instructions of both kernels, N_naive and N_ISP. The gain is

    G = N_naive / N_ISP · O_ISP / O_naive

with the theoretical occupancy O that follows from the registers that ptxas needs.

PTX does not show what ptxas makes of it, and a kernel that executes less may wait for something else. So the decision
is by an estimate of the time (`partition_time`), from the machine instructions of the body and the number of blocks.
Blocks at an edge execute more: a region whose PTX is as long as that of the naive kernel has its machine instructions,
and one in between a share of them. A kernel other than the naive one is chosen if the estimate is shorter by more than
`UNCERTAIN`.

The paper estimates N_naive and N_ISP from the instructions of one check, of the kernel and of the switch (equations 3
to 8). Here they are counted, so loops, and checks that the compiler shares, are included. A number that the pipeline
takes is 1 while instructions are counted.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning, equations 3 to 10, table I.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import lcm
from typing import TYPE_CHECKING, Any

from ...cost import Figures, loop_weight
from .. import types as t
from .borders import Boundary, Checks
from .compiling import compiler
from .global_operators import GlobalNode
from .graph import Graph
from .lowered import Launch, Lowered, Options
from .lowering import LowerNode, checks_of, lower_nodes, naive_node
from .operators import Access, Argument, Image, InputImage, Node, ScalarInput
from .partition_time import MULTIPROCESSORS, Work, seconds
from .partitioning import ROWS, Axis, axes_of, checks_edges, has_warps, isp_node, isp_rows_node, isp_warp_node
from .windows import layout_of

if TYPE_CHECKING:
    from ...toolchain.cubin import KernelCode
    from ..compilation import Nvcc

__all__ = [
    "Estimate",
    "KernelFigures",
    "RegionFigures",
    "by_choice",
    "estimate",
    "isp_model",
    "lowerings_of",
    "node_launch",
    "shrunk",
    "unchecked",
]


#: Two estimates that differ by less than this share count as equal. Then the naive kernel is taken.
UNCERTAIN = 0.03
#: The most that a region executes, as a multiple of the naive kernel.
MOST_OF_NAIVE = 1.5


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


@dataclass(frozen=True)
class KernelFigures:
    """A kernel on an image: its regions, the warps of a block, registers and theoretical occupancy.

    ``code`` are the figures of the machine code that most blocks execute, and ``kinds`` its instructions by class,
    weighted by loops. ``rows`` are the pixels of a thread. ``size`` counts the machine instructions of all regions.
    """

    lowering: str
    regions: tuple[RegionFigures, ...]
    warps: int
    registers: int
    occupancy: float
    code: Figures
    kinds: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)
    rows: int = 1
    size: int = 0

    @property
    def instructions(self) -> float:
        """The instructions that all warps execute."""
        return self.warps * sum(each.blocks * each.instructions for each in self.regions)


@dataclass(frozen=True)
class Estimate:
    """The model for one node. ``kernels`` are the naive kernel and the partitioned ones."""

    node: Node[Any]
    kernels: tuple[KernelFigures, ...]

    def gain(self, kernel: KernelFigures) -> float:
        """G, the expected speedup of a kernel over the naive one."""
        naive = self.kernels[0]
        return naive.instructions / kernel.instructions * kernel.occupancy / naive.occupancy

    def seconds(self, kernel: KernelFigures) -> float:
        """The estimated time of a kernel."""
        node = self.node
        return seconds(
            Work(
                blocks=sum(each.blocks for each in kernel.regions),
                warps=kernel.warps,
                resident=_resident(kernel),
                rows=kernel.rows,
                kinds=kernel.kinds,
                more=self._more(kernel),
                is_partitioned=kernel is not self.kernels[0],
                pixels=int(node.width) * int(node.height),
                moved=_bytes_of(node),
                pixel_bytes=min([t.size_of(access.image.pixel) for access in node.accesses], default=4),
            )
        )

    def _more(self, kernel: KernelFigures) -> float:
        """How many times the machine instructions of its body an average warp of a kernel executes."""
        naive = self.kernels[0]
        body = next((region.instructions for region in kernel.regions if region.name == "body"), 0.0)
        # A naive kernel is the same in all regions. Without a body, the figures are those of all regions.
        if kernel is naive or not body:
            return 1.0
        blocks = sum(each.blocks for each in naive.regions)
        whole = kernel.rows * sum(each.blocks * each.instructions for each in naive.regions) / blocks
        longer = kernel.rows * naive.code.weight / kernel.code.weight - 1
        if whole <= body or longer <= 0:
            return 1.0
        shares = [
            each.blocks * min(max((each.instructions - body) / (whole - body), 0.0), MOST_OF_NAIVE)
            for each in kernel.regions
        ]
        return 1 + longer * sum(shares) / sum(each.blocks for each in kernel.regions)

    def expected(self, kernel: KernelFigures) -> float:
        """The expected speedup over the naive kernel, by which the model decides."""
        return self.seconds(self.kernels[0]) / self.seconds(kernel)

    def worse(self, kernel: KernelFigures) -> str:
        """Why a kernel is not expected to be faster than the naive one; empty if it is."""
        blocks = sum(each.blocks for each in kernel.regions)
        held = MULTIPROCESSORS * _resident(kernel)
        # Then a kernel takes as long as its slowest block, and the estimate does not know how long that is.
        if blocks < held:
            return f"it has {blocks} blocks, and the GPU holds {held} at a time"
        gain = self.expected(kernel)
        if gain > 1 + UNCERTAIN:
            return ""
        estimates = f"{self.seconds(kernel) * 1e6:.2f} us instead of {self.seconds(self.kernels[0]) * 1e6:.2f}"
        return f"the estimate is {estimates}; it must be shorter by {UNCERTAIN:.0%}"

    @property
    def best(self) -> KernelFigures:
        """The kernel with the shortest estimate among those that are expected to be faster; otherwise the naive one."""
        naive, *others = self.kernels
        return max([each for each in others if not self.worse(each)], key=self.expected, default=naive)

    def lines(self) -> list[str]:
        """The figures and the decision, as lines of text."""
        found: list[str] = []
        for each in self.kernels:
            counts = ", ".join(f"{region.name} {region.blocks} x {region.instructions:.0f}" for region in each.regions)
            found.append(
                f"{each.lowering}: {each.instructions:.4g} warp instructions, {each.registers} registers, "
                f"occupancy {each.occupancy:.0%}, {each.code.cycles:.0f} cycles of one warp, "
                f"gain {self.gain(each):.3f}, estimated {self.seconds(each) * 1e6:.2f} us "
                f"(blocks x instructions of a warp: {counts})"
            )
            if each is not self.kernels[0] and (reason := self.worse(each)):
                found.append(f"not {each.lowering}: {reason}")
        return [*found, f"chosen: {self.best.lowering}"]


def _resident(kernel: KernelFigures) -> int:
    """The blocks that a multiprocessor holds at a time."""
    return max(1, int(kernel.code.warps // kernel.warps))


def _bytes_of(node: Node[Any]) -> int:
    """The bytes of the images that a node reads and of the one that it makes."""
    images: dict[Image[Any], None] = dict.fromkeys([*(access.image for access in node.accesses), node])
    return sum(int(image.width) * int(image.height) * t.size_of(image.pixel) for image in images)


_NODE_LOWERINGS: dict[str, LowerNode] = {
    "naive": naive_node,
    "isp": isp_node,
    "isp_warp": isp_warp_node,
    "isp_rows": isp_rows_node,
}
#: By partitioned lowering: the kernel with its body only.
_BODIES: dict[str, LowerNode] = {
    "isp": partial(isp_node, body_only=True),
    "isp_warp": partial(isp_warp_node, body_only=True),
    "isp_rows": partial(isp_rows_node, body_only=True),
}
#: By lowering: the pixels of a thread, one below the other; 1 for the others.
_ROWS = {"isp_rows": ROWS}


def isp_model(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, partitioned where the model expects a gain. The notes of a launch say why."""
    found = [estimate(node, options) for node in graph.nodes]
    made = by_choice(graph, options, [each.best.lowering if each else "naive" for each in found], "isp+m")
    notes = [tuple(each.lines()) if each else () for each in found]
    launches = [
        replace(launch, notes=(*launch.notes, *more)) for launch, more in zip(made.launches, notes, strict=True)
    ]
    return replace(made, launches=tuple(launches))


def by_choice(graph: Graph, options: Options, lowerings: Sequence[str], name: str) -> Lowered:
    """One kernel for each operator, by the lowering that ``lowerings`` has for its node: ``naive``, ``isp`` or
    ``isp_warp``. ``name`` names the whole. The choices are kept for other sizes."""
    chosen = dict(zip(graph.nodes, lowerings, strict=True))
    lower: LowerNode = lambda node, kernel, each: _NODE_LOWERINGS[chosen[node]](node, kernel, each)  # noqa: E731
    again: Callable[[Graph], Lowered] = lambda other: by_choice(other, options, lowerings, name)  # noqa: E731
    return replace(lower_nodes(graph, name, options, lower), again=again)


def estimate(node: Node[Any], options: Options) -> Estimate | None:
    """The model for one node; None if nothing has to be checked. Raises what compiling and emulating raise."""
    names = lowerings_of(node, options)
    if len(names) == 1:
        return None
    nvcc = options.nvcc or compiler()
    return Estimate(node, tuple(_figures(each, node, options, nvcc) for each in names))


def lowerings_of(node: Node[Any], options: Options) -> list[str]:
    """The lowerings that give a node different kernels: ``naive``; the partitioned ones if an index is checked; and
    ``isp_rows`` if some blocks are inside of the image."""
    found = ["naive"]
    if isinstance(node, GlobalNode):
        return found
    if checks_edges(node, options):
        found += ["isp", *(["isp_warp"] if has_warps(options) else [])]
    return [*found, *(["isp_rows"] if _has_body(node, options, ROWS) else [])]


def node_launch(node: Node[Any], lowering: str, name: str, options: Options) -> Launch:
    """The launch of a node by one of these lowerings. ``name`` names its kernel."""
    return _NODE_LOWERINGS[lowering](node, name, options)


def _figures(lowering: str, node: Node[Any], options: Options, nvcc: Nvcc) -> KernelFigures:
    from ...toolchain.occupancy import occupancy
    from ...toolchain.ptxas_judge import figures_of

    rows = _ROWS.get(lowering, 1)
    small = shrunk(node, options, rows)
    launch = _NODE_LOWERINGS[lowering](small, "kernel", options)
    ptx = launch.kernel.ptx(nvcc)
    code = usual = _machine_code(ptx)
    if lowering in _BODIES and _has_body(small, options, rows):
        usual = _machine_code(_BODIES[lowering](small, "kernel", options).kernel.ptx(nvcc))
    threads = options.block[0] * options.block[1]
    share = occupancy(code.sm, threads, code.registers, code.shared_bytes)
    warps = -(-threads // 32)
    counts = _counts(ptx, launch.kernel.entry(ptx), launch.block, _arguments(launch))
    regions = counts.regions(node, small, options, warps, rows)
    figures = replace(figures_of(usual), registers=code.registers, warps=float(share.warps if share else 0))
    occupied = share.share if share else 1.0
    kinds = _kinds(usual)
    return KernelFigures(lowering, regions, warps, code.registers, occupied, figures, kinds, rows, code.instructions)


def _kinds(code: KernelCode) -> dict[str, float]:
    """The machine instructions by class, each weighted by `cost.loop_weight`."""
    found: dict[str, float] = {}
    for depth, kinds in enumerate(code.by_depth):
        for kind, count in kinds.items():
            found[kind] = found.get(kind, 0.0) + count * loop_weight(depth)
    return found


def _machine_code(ptx: str) -> KernelCode:
    from ...toolchain.cubin import read_cubin
    from ...toolchain.cubin_cache import assemble_kept
    from ...toolchain.tools import arch_for

    (code,) = read_cubin(assemble_kept(ptx, arch_for(ptx)).cubin).values()
    return code


def _has_body(node: Node[Any], options: Options, rows: int = 1) -> bool:
    """Whether some blocks check nothing."""
    return all(any(not part.name and part.stop > part.start for part in parts) for parts in _parts(node, options, rows))


def unchecked(node: Node[Any], options: Options) -> RegionFigures | None:
    """The instructions of a warp in the interior if no index is checked and the kernel has no regions. None if no block
    is in the interior."""
    small = shrunk(node, options)
    if not _has_body(small, options):
        return None
    column, row = (next(part for part in parts if not part.name) for parts in _parts(small, options))
    arguments = [
        replace(each, boundary=Boundary.UNDEFINED) if isinstance(each, Access) else each for each in small.arguments
    ]
    launch = naive_node(Node(small.operator, tuple(arguments), small.space, small.place), "kernel", options)
    ptx = launch.kernel.ptx(options.nvcc or compiler())
    # Blocks at the edges run, too. They read as far outside of the images as the windows reach.
    reach = max(
        [1]
        + [
            access.extent.up + access.extent.down + access.extent.left + access.extent.right + abs(centre.offset) + 1
            for access in small.accesses
            for centre in access.centres
        ]
    )
    counts = _counts(ptx, launch.kernel.entry(ptx), launch.block, _arguments(launch, reach))
    run = (column.stop - column.start) * (row.stop - row.start) * -(-options.block[0] * options.block[1] // 32)
    counted = counts.between(column, row)
    return RegionFigures("kernel", 1, {name: count / run for name, count in sorted(counted.items())})


# --- counts -------------------------------------------------------------------------------------------------------


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


def _arguments(launch: Launch, rows: int = 0) -> tuple[_Argument, ...]:
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


@lru_cache(maxsize=32)
def _counts(ptx: str, entry: str, block: tuple[int, int], arguments: tuple[_Argument, ...]) -> _Counts:
    """The counts of a launch. Images that only differ in how many blocks are inside shrink to the same launch."""
    return _Counts(ptx, entry, block, arguments)


class _Counts:
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
        #: By (columns, rows) of blocks: how often all of these blocks execute each opcode.
        self._sums: dict[tuple[int, int], Counter[str]] = {}

    def regions(
        self, node: Node[Any], small: Node[Any], options: Options, warps: int, pixels: int
    ) -> tuple[RegionFigures, ...]:
        """The figures of the regions of ``node``, by the counts of the smaller node. ``pixels`` are those of a
        thread."""
        found: list[RegionFigures] = []
        (columns, rows), (few_columns, few_rows) = _parts(node, options, pixels), _parts(small, options, pixels)
        for row, few_row in zip(rows, few_rows, strict=True):
            for column, few_column in zip(columns, few_columns, strict=True):
                run = (few_column.stop - few_column.start) * (few_row.stop - few_row.start)
                blocks = (column.stop - column.start) * (row.stop - row.start)
                if run > 0 and blocks > 0:
                    counted = self.between(few_column, few_row)
                    opcodes = {name: count / (run * warps) for name, count in sorted(counted.items())}
                    found.append(RegionFigures(f"{row.name}{column.name}" or "body", blocks, opcodes))
        return tuple(found)

    def between(self, column: _Part, row: _Part) -> Counter[str]:
        """The counts of the blocks of a column and a row: a difference of sums from the first block on."""
        whole, left = (self._sum(each, row.stop) for each in (column.stop, column.start))
        above, corner = (self._sum(each, row.start) for each in (column.stop, column.start))
        names = set(whole)
        return Counter({name: whole[name] - left[name] - above[name] + corner[name] for name in names})

    def _sum(self, columns: int, rows: int) -> Counter[str]:
        if columns == 0 or rows == 0:
            return Counter()
        if (columns, rows) not in self._sums:
            self.backend.reset()
            self.backend.launch(self.kernel, (columns, rows, 1), (*self.block, 1), 0, self.arguments)
            counted: Counter[str] = Counter()
            for function, executions in self.backend.counts.executions.items():
                for number, (warps, _) in executions.blocks.items():
                    for instr in function.blocks[number].instrs:
                        if not instr.is_directive:
                            counted[instr.form.text.partition(".")[0]] += warps
            self._sums[columns, rows] = counted
        return self._sums[columns, rows]


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
class _Part:
    """Columns or rows of blocks at the same edges: from ``start`` to ``stop``, without ``stop``."""

    name: str
    start: int
    stop: int


def _parts(node: Node[Any], options: Options, rows: int = 1) -> tuple[list[_Part], list[_Part]]:
    x, y = axes_of(node, options, rows)
    return _parts_of_axis(x), _parts_of_axis(y)


def _parts_of_axis(axis: Axis) -> list[_Part]:
    blocks = -(-int(axis.size) // axis.block)
    if not axis.is_split():
        return [_Part(axis.both.name, 0, blocks)]
    low = min(blocks, int(axis.low_blocks())) if axis.low_end is not None else 0
    high = min(blocks, int(axis.high_block())) if axis.high_start is not None else blocks
    return [_Part(axis.low.name, 0, low), _Part("", low, high), _Part(axis.high.name, high, blocks)]


# --- a smaller image with the same regions ------------------------------------------------------------------------


def shrunk(node: Node[Any], options: Options, rows: int = 1) -> Node[Any]:
    """The node for smaller images, in which blocks in the middle are left out. Its kernels are the same, and the blocks
    at the edges stay the same. ``rows`` are the pixels of a thread."""
    across, down = _parts(node, options, rows)
    left_out = [_left_out(node, axis, parts) for axis, parts in ((0, across), (1, down))]
    tile = options.block[0], options.block[1] * rows
    while True:
        small = _without(node, [count * pixels for count, pixels in zip(left_out, tile, strict=True)])
        # In an image that is much smaller than what is read, other maps of indices would be needed.
        if small is not None and (not any(left_out) or _checks(small, options) == _checks(node, options)):
            return small
        left_out = [count // (2 * step) * step for count, step in zip(left_out, _steps(node), strict=True)]


def _checks(node: Node[Any], options: Options) -> list[tuple[Checks, Checks]]:
    return [checks_of(access, node, options) for access in node.accesses]


def _without(node: Node[Any], removed: Sequence[int]) -> Node[Any] | None:
    """The node without so many pixels along x and y. None if an image would have no pixel."""
    #: By image and its smaller size: the smaller image. Accesses with different scales need images of different sizes.
    images: dict[tuple[Image[Any], int, int], InputImage[Any]] = {}
    arguments: list[Argument] = []
    for argument in node.arguments:
        if isinstance(argument, Access):
            image = argument.image
            width, height = (
                int(size) - less * centre.numerator // centre.denominator
                for size, less, centre in zip(image.size, removed, argument.centres, strict=True)
            )
            if width < 1 or height < 1:
                return None
            made: InputImage[Any] = InputImage(image.name, image.pixel, width, height)
            argument = replace(argument, image=images.setdefault((image, width, height), made))
        arguments.append(argument)
    space = replace(node.space, width=int(node.width) - removed[0], height=int(node.height) - removed[1])
    return Node(node.operator, tuple(arguments), space, node.place)


def _left_out(node: Node[Any], axis: int, parts: list[_Part]) -> int:
    """How many blocks along an axis can be left out, so that one with no checks remains."""
    middle = [part for part in parts if not part.name]
    if not middle:
        return 0
    step = _steps(node)[axis]
    return max(0, middle[0].stop - middle[0].start - 1) // step * step


def _steps(node: Node[Any]) -> tuple[int, int]:
    """The numbers of blocks that can be left out along x and y, so that no centre moves by a part of a pixel."""
    x, y = (lcm(*(access.centres[axis].denominator for access in node.accesses)) for axis in (0, 1))
    return x, y
