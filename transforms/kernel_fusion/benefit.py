"""Is a fusion worth it? An estimate from the costs of a machine.

Saved: one launch each time, and the bytes that the fused kernel does not move, at the machine's bandwidth. Lost: a
barrier of the block where one is needed, once for each wave of blocks; what the kernels need longer where fewer warps
fit on a multiprocessor; where registers are spilled that were not, everything.

Requires: costs (`MachineCosts`), measured by ``doctor --calibrate`` or the ones given here; with ``resources`` (from
ptxas) occupancy and spills count. What is not known is estimated: threads of a grid that the host computes are one full
wave, an access in a loop counts once. The time that lower occupancy costs is estimated for kernels bound by memory, as
the share of warps that is lost of the time that their bytes take; so it is an upper bound for others.
Guarantees: nothing here decides whether a fusion is right, only whether it is made.
Reference: thesis §5.3.3, §7.2; shared notes, §6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from ...analysis.effects import memory_space
from ...ptx import Effect
from .kernel_code import KernelCode
from .launch_site import Extents, Fusibility, LaunchSite
from .pairs import Estimate

__all__ = ["BenefitModel", "MachineCosts", "Resources"]


#: What a machine may do for nothing, as far as that can be measured.
_MAY_BE_NOTHING = ("cooperative_launch", "cooperative_node", "barrier", "grid_block", "block")


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """Seconds and bytes per second of a machine. Without a calibration: what `doctor --calibrate` gave on one NVIDIA
    H200 with CUDA 13.0 (docs/experiments/fusion.md has all runs).

    A cooperative launch or node costs that much more than another. ``grid_barrier`` is with a block on each
    multiprocessor, and each further block adds ``grid_block``; ``block`` is what one costs that does nothing."""

    machine: str = "NVIDIA H200 (not calibrated here)"
    launch: float = 3.53e-6
    graph_node: float = 0.51e-6
    cooperative_launch: float = 0.0
    cooperative_node: float = 3.7e-7
    barrier: float = 1.5e-8
    grid_barrier: float = 1.07e-6
    grid_block: float = 2.5e-9
    block: float = 6e-10
    bandwidth: float = 4.1e12
    multiprocessors: int = 132
    threads: int = 2048  #: of a multiprocessor

    @staticmethod
    def of(data: Mapping[str, object]) -> MachineCosts:
        """From a calibration file's object. Raises `ValueError` for what is missing, unknown or no cost."""
        known = {each.name: each.type for each in fields(MachineCosts)}
        if set(data) != set(known):
            raise ValueError(f"keys are {', '.join(sorted(known))}; found {', '.join(sorted(data))}")
        for name, value in data.items():
            is_cost = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            is_cost = is_cost and (value != 0 or name in _MAY_BE_NOTHING)
            if not (isinstance(value, str) if name == "machine" else is_cost):
                raise ValueError(f"{name} is {value!r}")
        return MachineCosts(**data)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas gave a kernel: the share of a multiprocessor's warps that it can fill, bytes of spills."""

    occupancy: float
    spill_bytes: int


@dataclass(frozen=True)
class BenefitModel:
    """``resources(code, threads of a block)`` asks the assembler, or is None. ``as_graph``: the program runs as a CUDA
    graph, not launch by launch in a stream, where the GPU waits for the host unless its kernels take longer than
    launches."""

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
        """What the fusion saves and costs each time that it runs; ``sites`` are the launches of the three."""
        costs, site = self.costs, sites[2]
        threads = _count(site.grid, site.block, costs.multiprocessors * costs.threads)
        moved = _bytes(first) + _bytes(second)
        fewer = max(0, moved - _bytes(fused))
        launch = self._launch(moved * threads / costs.bandwidth)
        saved = launch + fewer * threads / costs.bandwidth
        told = [f"saves {_micro(launch)} of launch" + (f" and {fewer} bytes per thread" if fewer else "")]
        lost = 0.0
        if fusibility.kind == "block":
            waves = -(-threads // (costs.multiprocessors * costs.threads))
            lost += costs.barrier * waves
            told.append(f"a barrier costs {_micro(costs.barrier * waves)}")
        for more, what in (self._together(sites, fusibility), self._idle(sites)):
            if what:
                lost += more
                told.append(what)
        more, why = self._occupancy(first, second, fused, site, moved * threads / costs.bandwidth)
        if why:
            lost += more
            told.append(why)
        return Estimate(saved, lost, ", ".join(told))

    def _launch(self, seconds: float) -> float:
        """What one launch less saves, where the two kernels take at least so many seconds."""
        launch, node = self.costs.launch, self.costs.graph_node
        if self.as_graph:
            return node
        return max(2 * launch, seconds + 2 * node) - max(launch, seconds + node)

    def _together(self, sites: tuple[LaunchSite, LaunchSite, LaunchSite], fusibility: Fusibility) -> tuple[float, str]:
        """What a barrier of the grid costs, and launches that have to be cooperative for it."""
        costs, lost, told = self.costs, 0.0, list[str]()
        if fusibility.kind == "grid":
            blocks = _count(sites[2].grid, (1, 1, 1), 2 * costs.multiprocessors)
            more = max(0, blocks - costs.multiprocessors)
            lost = costs.grid_barrier + more * costs.grid_block
            told.append(f"a barrier of the grid costs {_micro(lost)}")
        more_launches = sites[2].cooperative - sites[0].cooperative - sites[1].cooperative
        each = costs.cooperative_node if self.as_graph else costs.cooperative_launch
        if more_launches and each:
            lost += more_launches * each
            told.append(f"a cooperative launch {_micro(abs(each))} {'more' if more_launches > 0 else 'less'}")
        return lost, ", ".join(told)

    def _idle(self, sites: tuple[LaunchSite, LaunchSite, LaunchSite]) -> tuple[float, str]:
        """What blocks cost that belong to neither launch, where grids differ along several axes."""
        grids = [site.grid for site in sites]
        if sum(grids[0][axis] != grids[1][axis] for axis in range(3)) < 2:
            return 0.0, ""
        counts = [_count(grid, (1, 1, 1), 0) for grid in grids]
        if not all(counts):
            return float("inf"), "it is not known how many blocks would have nothing to do"
        idle = counts[2] - max(counts[:2])
        return idle * self.costs.block, f"{idle} blocks have nothing to do, {_micro(idle * self.costs.block)}"

    def _occupancy(
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
        if whole.occupancy >= before:
            return 0.0, ""
        lost = seconds * (1.0 - whole.occupancy / before)
        return lost, f"occupancy falls from {before:.0%} to {whole.occupancy:.0%}, about {_micro(lost)}"


def _count(grid: Extents, block: Extents, otherwise: int) -> int:
    """The product of the extents where all are numbers."""
    product = 1
    for extent in (*grid, *block):
        if not isinstance(extent, int):
            return otherwise
        product *= extent
    return product


def _bytes(code: KernelCode) -> int:
    """Bytes that a thread moves from and to global memory, each instruction counted once; barriers of the grid not."""
    moved = -8 * len(code.counters)  # an atomic and a load by one thread
    for instr in code.entry.instructions():
        form = instr.form
        if not form.effects & (Effect.READ | Effect.WRITE) or form.type is None or instr.address is None:
            continue
        if memory_space(instr) in ("global", "generic"):
            moved += form.type.bytes * form.lanes
    return moved


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
