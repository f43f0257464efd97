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
a margin. The margin is larger for kernels that hold fewer warps than the naive one, and for several pixels of a thread
in blocks that are narrower than a warp: their estimates are less certain.

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
from math import lcm
from typing import TYPE_CHECKING, Any

from ...arch import WARP
from ...cost import TRIPS, Figures, loop_weight
from .. import types as t
from .borders import Boundary, Checks
from .compiling import compiler
from .global_operators import GlobalNode
from .graph import Graph
from .lowered import Launch, Lowered, Options
from .lowering import LowerNode, checks_of, lower_nodes, naive_node
from .operators import Access, Argument, Image, InputImage, Node
from .partition_counts import Counts, Part, RegionFigures, counted_arguments, parts_of
from .partition_kernels import NODE_LOWERINGS, Compiled, SameKernel, compile_kernels, has_body, rows_of
from .partition_time import Work, seconds
from .partitioning import ROWS, checks_edges, has_warps

if TYPE_CHECKING:
    from ...toolchain.cubin import KernelCode

__all__ = [
    "Estimate",
    "KernelFigures",
    "RegionFigures",
    "by_choice",
    "estimate",
    "estimates",
    "isp_model",
    "lowerings_of",
    "node_launch",
    "shrunk",
    "unchecked",
]


#: Two estimates that differ by less than this share count as equal. Then the naive kernel is taken.
UNCERTAIN = 0.01
#: What is added to this for a kernel that would hold no warps where the naive one holds some, and for several pixels of
#: a thread in blocks that are narrower than a warp. Estimates of gains spread more there
#: (docs/experiments/image-kernels.md).
HELD_UNCERTAIN, NARROW_UNCERTAIN = 0.2, 0.05
#: The most that a region executes, as a multiple of the naive kernel.
MOST_OF_NAIVE = 1.5
#: Cycles that a warp waits for a load from memory, by its schedule (`toolchain/warp_schedule.py`).
LOAD = 480.0
#: Cycles of a warp alone for an instruction of a rare case, which the schedule counts.
RARE = 4.8
#: Bytes of a sector of the cache.
SECTOR = 32


@dataclass(frozen=True)
class KernelFigures:
    """A kernel on an image: its regions, the warps of a block, registers and theoretical occupancy.

    ``code`` are the figures of the machine code that most blocks execute, and ``kinds`` its instructions by class, each
    as often as it is executed. ``rows`` are the pixels of a thread. ``size`` counts the machine instructions of all
    regions. ``trips`` is how often an instruction in a loop is executed on average. ``across`` are the threads of a
    block along x.
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
    trips: float = TRIPS
    across: int = WARP

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

    def work(self, kernel: KernelFigures) -> Work:
        """What a kernel does, for `partition_time`."""
        node, code, kinds = self.node, kernel.code, kernel.kinds
        more, most = self._more(kernel)
        naive, rows = self.kernels[0].code, kernel.rows
        if kernel is not self.kernels[0] and not any(each.name == "body" for each in kernel.regions):
            # The machine code is that of all regions, of which a warp executes one.
            share = self._executed(kernel) / self._executed(self.kernels[0]) * naive.weight / code.weight
            kinds = {kind: count * share for kind, count in kinds.items()}
            code = replace(code, cycles=code.cycles * share, exposed=(code.exposed or 0.0) * share)
        waits, naive_waits = (min(each.exposed or 0.0, each.cycles) for each in (code, naive))
        # A wait that all rows of a thread share, and one for each row where loads depend on tests.
        shared = min(naive_waits, LOAD)
        at_edge = shared + rows * (naive_waits - shared)
        computing, at_edge_computing = code.cycles - waits, rows * (naive.cycles - naive_waits)
        size, naive_size = sum(kinds.values()), sum(self.kernels[0].kinds.values())
        edge_waits = waits + most * max(0.0, at_edge - waits)
        return Work(
            blocks=sum(each.blocks for each in kernel.regions),
            warps=kernel.warps,
            resident=_resident(kernel),
            rows=kernel.rows,
            warp_rows=-(-WARP // kernel.across),
            kinds=kinds,
            cycles=code.cycles,
            exposed=waits,
            edge_cycles=edge_waits + computing + most * max(0.0, at_edge_computing - computing),
            edge_exposed=edge_waits,
            code=size,
            edge_code=size + most * max(0.0, rows * naive_size - size),
            more=more,
            is_partitioned=kernel is not self.kernels[0] and _has_edges(kernel),
            pixels=int(node.width) * int(node.height),
            moved=_bytes_of(node),
            pixel_bytes=min([t.size_of(access.image.pixel) for access in node.accesses], default=4),
            sectors=_sectors(node),
        )

    @staticmethod
    def _executed(kernel: KernelFigures) -> float:
        """The PTX instructions that a warp executes on average."""
        return kernel.instructions / kernel.warps / sum(each.blocks for each in kernel.regions)

    def seconds(self, kernel: KernelFigures) -> float:
        """The estimated time of a kernel."""
        return seconds(self.work(kernel))

    def _more(self, kernel: KernelFigures) -> tuple[float, float]:
        """How many times the machine instructions of its body a warp of a kernel executes on average; and where the
        warps that execute the most are between the body, 0, and the naive kernel, 1."""
        naive = self.kernels[0]
        body = next((region.instructions for region in kernel.regions if region.name == "body"), 0.0)
        # A naive kernel is the same in all regions. Without a body, the figures are those of all regions.
        if kernel is naive or not body:
            return 1.0, 0.0
        blocks = sum(each.blocks for each in naive.regions)
        whole = kernel.rows * sum(each.blocks * each.instructions for each in naive.regions) / blocks
        longer = kernel.rows * naive.code.weight / kernel.code.weight - 1
        if whole <= body or longer <= 0:
            return 1.0, 0.0
        shares = [min(max((each.instructions - body) / (whole - body), 0.0), MOST_OF_NAIVE) for each in kernel.regions]
        mean = sum(each.blocks * share for each, share in zip(kernel.regions, shares, strict=True))
        return 1 + longer * mean / sum(each.blocks for each in kernel.regions), max(shares)

    def expected(self, kernel: KernelFigures) -> float:
        """The expected speedup over the naive kernel, by which the model decides."""
        return self.seconds(self.kernels[0]) / self.seconds(kernel)

    def margin(self, kernel: KernelFigures) -> float:
        """The share by which the estimate of a kernel must be shorter than that of the naive one."""
        narrow = NARROW_UNCERTAIN if kernel.rows > 1 and kernel.across < WARP else 0.0
        return UNCERTAIN + narrow + HELD_UNCERTAIN * max(0.0, 1 - self.held(kernel) / self.held(self.kernels[0]))

    @staticmethod
    def held(kernel: KernelFigures) -> int:
        """The warps of a kernel that a multiprocessor holds at a time."""
        return _resident(kernel) * kernel.warps

    def worse(self, kernel: KernelFigures) -> str:
        """Why a kernel is not expected to be faster than the naive one; empty if it is."""
        if self.expected(kernel) > 1 + self.margin(kernel):
            return ""
        estimates = f"{self.seconds(kernel) * 1e6:.2f} us instead of {self.seconds(self.kernels[0]) * 1e6:.2f}"
        return f"the estimate is {estimates}; it must be shorter by {self.margin(kernel):.0%}"

    @property
    def best(self) -> KernelFigures:
        """The kernel that is expected to gain the most beyond its margin; the naive one if none does."""
        naive, *others = self.kernels
        surely: Callable[[KernelFigures], float] = lambda each: self.expected(each) / (1 + self.margin(each))  # noqa: E731
        return max([each for each in others if not self.worse(each)], key=surely, default=naive)

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


def _has_edges(kernel: KernelFigures) -> bool:
    """Whether blocks test at which edges they are. Several pixels of a thread alone need a test at the bottom only."""
    return any(each.name not in ("body", "b") for each in kernel.regions)


def _resident(kernel: KernelFigures) -> int:
    """The blocks that a multiprocessor holds at a time."""
    return max(1, int(kernel.code.warps // kernel.warps))


def _sectors(node: Node[Any]) -> float:
    """The sectors of the cache that a warp needs for a row of pixels of the result, over those that it would need if
    each row began at one."""
    pixel = t.size_of(node.pixel)
    return 1.0 if int(node.width) * pixel % SECTOR == 0 else 1 + SECTOR / (32 * pixel)


def _bytes_of(node: Node[Any]) -> int:
    """The bytes of the images that a node reads and of the one that it makes."""
    images: dict[Image[Any], None] = dict.fromkeys([*(access.image for access in node.accesses), node])
    return sum(int(image.width) * int(image.height) * t.size_of(image.pixel) for image in images)


def isp_model(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, partitioned where the model expects a gain. The notes of a launch say why."""
    found = estimates(graph.nodes, options)
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
    lower: LowerNode = lambda node, kernel, each: NODE_LOWERINGS[chosen[node]](node, kernel, each)  # noqa: E731
    again: Callable[[Graph], Lowered] = lambda other: by_choice(other, options, lowerings, name)  # noqa: E731
    return replace(lower_nodes(graph, name, options, lower), again=again)


def estimate(node: Node[Any], options: Options) -> Estimate | None:
    """The model for one node; None if nothing has to be checked. Raises what compiling and emulating raise."""
    (found,) = estimates([node], options)
    return found


def estimates(nodes: Sequence[Node[Any]], options: Options) -> list[Estimate | None]:
    """The models for several nodes. Kernels that nodes share are compiled and counted once."""
    options = options if options.nvcc else replace(options, nvcc=compiler())
    lowerings = [lowerings_of(node, options) for node in nodes]
    kernels = [
        {word: SameKernel(word, shrunk(node, options, rows_of(word)), options) for word in words}
        if len(words) > 1
        else {}
        for node, words in zip(nodes, lowerings, strict=True)
    ]
    compiled = compile_kernels(dict.fromkeys(same for each in kernels for same in each.values()))
    return [
        Estimate(node, tuple(_figures(node, same, compiled[same]) for same in each.values())) if each else None
        for node, each in zip(nodes, kernels, strict=True)
    ]


def lowerings_of(node: Node[Any], options: Options) -> list[str]:
    """The lowerings that give a node different kernels: ``naive``; the partitioned ones if an index is checked; and
    ``isp_rows`` if some blocks are inside of the image."""
    found = ["naive"]
    if isinstance(node, GlobalNode):
        return found
    if checks_edges(node, options):
        found += ["isp", *(["isp_warp"] if has_warps(options) else [])]
    return [*found, *(["isp_rows"] if has_body(node, options, ROWS) else [])]


def node_launch(node: Node[Any], lowering: str, name: str, options: Options) -> Launch:
    """The launch of a node by one of these lowerings. ``name`` names its kernel."""
    return NODE_LOWERINGS[lowering](node, name, options)


def _figures(node: Node[Any], same: SameKernel, compiled: Compiled) -> KernelFigures:
    from ...toolchain.occupancy import occupancy
    from ...toolchain.ptxas_judge import figures_of

    lowering, small, options, rows = same.lowering, same.node, same.options, rows_of(same.lowering)
    code, usual, counts = compiled.code, compiled.usual, compiled.counts
    threads = options.block[0] * options.block[1]
    share = occupancy(code.sm, threads, code.registers, code.shared_bytes)
    warps = -(-threads // WARP)
    regions = counts.regions(node, small, options, warps, rows)
    figures = replace(figures_of(usual), registers=code.registers, warps=float(share.warps if share else 0))
    occupied = share.share if share else 1.0
    trips = _trips(usual, counts.in_loops(small, options, warps, rows))
    kinds = _kinds(usual, trips)
    rare = sum(loop_weight(depth) * sum(each.values()) for depth, each in enumerate(usual.called))
    share = sum(kinds.values()) / max(figures.weight - rare, 1.0)
    cycles, waits = max(figures.cycles - RARE * rare, 0.0) * share, (figures.exposed or 0.0) * share
    figures = replace(figures, weight=sum(kinds.values()), cycles=cycles, exposed=waits)
    return KernelFigures(
        lowering,
        regions,
        warps,
        code.registers,
        occupied,
        figures,
        kinds,
        rows,
        code.instructions,
        trips,
        options.block[0],
    )


def _trips(code: KernelCode, in_loops: tuple[float, float]) -> float:
    """How often a machine instruction in a loop is executed on average. ``in_loops`` are the PTX instructions in loops,
    and how many of them are executed. ptxas unrolls loops, so the machine instructions of loops are executed at most as
    often as those of the PTX."""
    written, executed = in_loops
    machine = sum(code.in_loops.values())
    if not written or not machine:
        return TRIPS
    return executed / max(written, machine)


def _kinds(code: KernelCode, trips: float) -> dict[str, float]:
    """The machine instructions by class, those in loops ``trips`` times. What only a call reaches is left out: ptxas
    calls the rare cases of divisions and roots."""
    found: Counter[str] = Counter()
    for sign, counted in ((1, code.by_depth), (-1, code.called)):
        for depth, kinds in enumerate(counted):
            for kind, count in kinds.items():
                found[kind] += sign * count * (trips if depth else 1.0)  # pyright: ignore[reportArgumentType]
    return {kind: float(count) for kind, count in found.items() if count}


def unchecked(node: Node[Any], options: Options) -> RegionFigures | None:
    """The instructions of a warp in the interior if no index is checked and the kernel has no regions. None if no block
    is in the interior."""
    small = shrunk(node, options)
    if not has_body(small, options):
        return None
    column, row = (next(part for part in parts if not part.name) for parts in parts_of(small, options))
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
    counts = Counts(ptx, launch.kernel.entry(ptx), launch.block, counted_arguments(launch, reach))
    run = (column.stop - column.start) * (row.stop - row.start) * -(-options.block[0] * options.block[1] // 32)
    counted = counts.between(column, row)
    return RegionFigures("kernel", 1, {name: count / run for name, count in sorted(counted.items())})


# --- a smaller image with the same regions ------------------------------------------------------------------------


def shrunk(node: Node[Any], options: Options, rows: int = 1) -> Node[Any]:
    """The node for smaller images, in which blocks in the middle are left out. Its kernels are the same, and the blocks
    at the edges stay the same. ``rows`` are the pixels of a thread."""
    across, down = parts_of(node, options, rows)
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


def _left_out(node: Node[Any], axis: int, parts: list[Part]) -> int:
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
