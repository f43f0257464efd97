"""Estimates from the costs of a machine whether a fusion saves time.

Savings: one launch, and the bytes that the fused kernel does not move, at the machine's bandwidth. Costs: a block
barrier if one is needed, once for each wave of blocks; a grid barrier if one is needed; time lost because fewer warps
fit on a multiprocessor. New register spills forbid the fusion, and so do registers with which a block that the host
computes could not be launched any more.

Requires: costs (`MachineCosts`), measured by ``doctor --calibrate`` or the defaults below. With ``resources`` (from
ptxas), occupancy and spills are included. Unknown quantities are estimated: a grid that the host computes counts as one
full wave of threads, and an access in a loop counts once. The time that lower occupancy costs is estimated for kernels
that are limited by memory: the lost share of warps times the time to move their bytes. So it is an upper bound for
other kernels.
Guarantees: this module does not decide whether a fusion is legal, only whether it is made.
Reference: thesis §5.3.3, §7.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import prod

from ...analysis.divergence.sources import block_shape, most_threads
from ...analysis.effects import memory_space
from ...arch import ALWAYS_FITS, H200_MULTIPROCESSORS, PARTITIONS, WARP
from ...ptx import Effect
from .kernel_code import KernelCode
from .launch_site import Extents, Fusibility, LaunchSite
from .pairs import Estimate

__all__ = ["BenefitModel", "MachineCosts", "Resources"]


#: Costs that may be 0, as far as they can be measured.
_MAY_BE_ZERO = ("cooperative_launch", "cooperative_node", "barrier", "grid_block", "block")


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """Costs of a machine, in seconds and bytes per second.

    The defaults are the results of `doctor --calibrate` on one NVIDIA H200 with CUDA 13.0 (docs/experiments/fusion.md
    has all runs). ``cooperative_launch`` and ``cooperative_node`` are the additional costs of a cooperative launch or
    graph node. ``grid_barrier`` is the cost with one block per multiprocessor, and each further block adds
    ``grid_block``. ``block`` is the cost of a block that does nothing.
    """

    machine: str = "one NVIDIA H200"
    launch: float = 3.53e-6
    graph_node: float = 0.51e-6
    cooperative_launch: float = 0.0
    cooperative_node: float = 3.7e-7
    barrier: float = 1.5e-8
    grid_barrier: float = 1.07e-6
    grid_block: float = 2.5e-9
    block: float = 6e-10
    bandwidth: float = 4.1e12
    multiprocessors: int = H200_MULTIPROCESSORS
    threads: int = 2048  #: threads per multiprocessor

    @property
    def is_calibrated(self) -> bool:
        """Whether these are measured costs, and not the defaults."""
        return self != MachineCosts()

    @staticmethod
    def of(data: Mapping[str, object]) -> MachineCosts:
        """The costs in a calibration file's object. Raises `ValueError` for keys that are missing or unknown and for
        invalid values."""
        names = {each.name for each in fields(MachineCosts)}
        if set(data) != names:
            raise ValueError(f"keys are {', '.join(sorted(names))}; found {', '.join(sorted(data))}")
        for name, value in data.items():
            is_cost = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            is_cost = is_cost and (value != 0 or name in _MAY_BE_ZERO)
            if not (isinstance(value, str) if name == "machine" else is_cost):
                raise ValueError(f"{name} is {value!r}")
        return MachineCosts(**data)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Resources:
    """Results of ptxas for a kernel: the share of a multiprocessor's warps that it can fill, and bytes of spills."""

    occupancy: float
    spill_bytes: int


@dataclass(frozen=True)
class BenefitModel:
    """``resources(code, threads per block)`` runs the assembler; without it, occupancy and spills are ignored.

    ``as_graph``: the program runs as a CUDA graph. Otherwise it is launched step by step in a stream, where the GPU
    waits for the host unless kernels take longer than launches.
    """

    costs: MachineCosts = MachineCosts()
    resources: Callable[[KernelCode, int], Resources | None] | None = None
    as_graph: bool = False

    def __call__(
        self,
        first: KernelCode,
        second: KernelCode,
        fused: KernelCode,
        sites: tuple[LaunchSite, LaunchSite, LaunchSite],
        fusibility: Fusibility,
    ) -> Estimate:
        """The savings and costs of the fusion for each run. ``sites`` are the launches of the three kernels."""
        costs, site = self.costs, sites[2]
        threads = _count(site.grid, site.block, costs.multiprocessors * costs.threads)
        moved = _bytes(first) + _bytes(second)
        fewer = max(0, moved - _bytes(fused))
        launch = self._saved_launch(moved * threads / costs.bandwidth)
        saved = launch + fewer * threads / costs.bandwidth
        texts = [f"saves {_micro(launch)} of launch time" + (f" and {fewer} bytes per thread" if fewer else "")]
        lost = 0.0
        if fusibility.kind == "block":
            waves = -(-threads // (costs.multiprocessors * costs.threads))
            lost += costs.barrier * waves
            texts.append(f"a block barrier costs {_micro(costs.barrier * waves)}")
        for seconds, text in (
            self._grid_barrier_cost(sites, fusibility),
            self._idle_cost(sites),
            self._occupancy_cost(first, second, fused, site, moved * threads / costs.bandwidth),
        ):
            if text:
                lost += seconds
                texts.append(text)
        return Estimate(saved, lost, ", ".join(texts))

    def _saved_launch(self, seconds: float) -> float:
        """Seconds that one launch less saves, if the two kernels run for at least ``seconds``."""
        launch, node = self.costs.launch, self.costs.graph_node
        if self.as_graph:
            return node
        return max(2 * launch, seconds + 2 * node) - max(launch, seconds + node)

    def _grid_barrier_cost(
        self, sites: tuple[LaunchSite, LaunchSite, LaunchSite], fusibility: Fusibility
    ) -> tuple[float, str]:
        """Seconds for a grid barrier and for the cooperative launches that it needs, and a text about them."""
        costs, lost, texts = self.costs, 0.0, list[str]()
        if fusibility.kind == "grid":
            blocks = _count(sites[2].grid, (1, 1, 1), 2 * costs.multiprocessors)
            more = max(0, blocks - costs.multiprocessors)
            lost = costs.grid_barrier + more * costs.grid_block
            texts.append(f"a grid barrier costs {_micro(lost)}")
        more_launches = sites[2].cooperative - sites[0].cooperative - sites[1].cooperative
        each = costs.cooperative_node if self.as_graph else costs.cooperative_launch
        if more_launches and each:
            lost += more_launches * each
            difference = "more" if more_launches > 0 else "less"
            texts.append(f"a cooperative launch costs {_micro(abs(each))} {difference}")
        return lost, ", ".join(texts)

    def _idle_cost(self, sites: tuple[LaunchSite, LaunchSite, LaunchSite]) -> tuple[float, str]:
        """Seconds for blocks that have no work in either body, which exist if the grids differ along several axes."""
        grids = [site.grid for site in sites]
        if sum(grids[0][axis] != grids[1][axis] for axis in range(3)) < 2:
            return 0.0, ""
        counts = [_count(grid, (1, 1, 1), 0) for grid in grids]
        if not all(counts):
            return float("inf"), "the number of blocks without work is not known"
        idle = counts[2] - max(counts[:2])
        return idle * self.costs.block, f"{idle} blocks without work cost {_micro(idle * self.costs.block)}"

    def _occupancy_cost(
        self, first: KernelCode, second: KernelCode, fused: KernelCode, site: LaunchSite, seconds: float
    ) -> tuple[float, str]:
        threads = _count((1, 1, 1), site.block, 256)
        if self.resources is None:
            return 0.0, ""
        parts = [self.resources(code, threads) for code in (first, second)]
        whole = self.resources(fused, threads)
        if whole is None or parts[0] is None or parts[1] is None:
            return 0.0, ""
        if whole.spill_bytes > parts[0].spill_bytes + parts[1].spill_bytes:
            return float("inf"), f"the fused kernel spills {whole.spill_bytes} bytes"
        before = min(parts[0].occupancy, parts[1].occupancy)
        if whole.occupancy <= 0.0:
            return float("inf"), "a block of the fused kernel does not fit on a multiprocessor"
        if size := self._refused_size(first, second, fused, site.block):
            return float("inf"), f"the fused kernel has too many registers for blocks of {size} threads"
        if whole.occupancy >= before:
            return 0.0, ""
        lost = seconds * (1.0 - whole.occupancy / before)
        return lost, f"occupancy falls from {before:.0%} to {whole.occupancy:.0%}, which costs about {_micro(lost)}"

    def _refused_size(self, first: KernelCode, second: KernelCode, fused: KernelCode, block: Extents) -> int:
        """The threads of a block with which the two kernels can be launched and the fused one cannot, if the host
        computes the block; else 0."""
        resources = self.resources
        if resources is None or all(isinstance(extent, int) for extent in block):
            return 0

        def fits(code: KernelCode, threads: int) -> bool:
            found = resources(code, threads)
            return found is None or found.occupancy > 0.0

        stated = block_shape(fused.entry)
        largest = prod(stated) if stated else most_threads(fused.entry)
        sizes = range(largest, ALWAYS_FITS, -PARTITIONS * WARP)
        return next((each for each in sizes if fits(first, each) and fits(second, each) and not fits(fused, each)), 0)


def _count(grid: Extents, block: Extents, otherwise: int) -> int:
    """The product of the extents if all are numbers, otherwise ``otherwise``."""
    product = 1
    for extent in (*grid, *block):
        if not isinstance(extent, int):
            return otherwise
        product *= extent
    return product


def _bytes(code: KernelCode) -> int:
    """Bytes of global memory that a thread accesses. Each instruction counts once. Grid barriers do not count."""
    moved = -8 * len(code.counters)  # a grid barrier's atomic and load, by one thread
    for instr in code.entry.instructions():
        form = instr.form
        if not form.effects & (Effect.READ | Effect.WRITE) or form.type is None or instr.address is None:
            continue
        if memory_space(instr) in ("global", "generic"):
            moved += form.type.bytes * form.lanes
    return moved


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
