"""Fuse a host program: strategy, order of the phases, promises; the result with its kernels and remarks.

Requires: the PTX of every kernel. Guarantees: the program given is unchanged; what comes back runs on any backend and
leaves the same outputs; without a fusion it is the program that was given.
Reference: thesis §5.2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...dsl.host_nodes import Launch
from ...dsl.host_program import HostProgram
from ..remarks import Remark
from .host_fusion import FusingHost
from .kernel_code import AnyKernel, KernelCodes
from .kfcm import PhaseOrder, Result, Strategy, transform
from .launch_site import Fusibility, LaunchSite
from .loop_inversion import inverted, invertible
from .pairs import Benefit, FusedCode, FusedPair, Fuser, Pairs, Resident

__all__ = ["FusedProgram", "FusionOptions", "fuse_program"]


@dataclass(frozen=True)
class FusionOptions:
    """``independent`` are pairs of kernel names (`Pairs`); ``benefit`` of None fuses all that may be fused; ``tidy``
    undoes motions of launches that came to nothing; ``invert_loops`` lets loops test at their end where KFCM fuses more
    for it. ``resident`` says how many blocks run at a time, so that blocks may wait for each other in a cooperative
    launch; with None there are no such launches. ``may_pad`` fuses launches whose grids differ."""

    strategy: Strategy = "kfcm"
    order: PhaseOrder = "backward-first"
    independent: frozenset[frozenset[str]] = frozenset()
    benefit: Benefit | None = None
    tidy: bool = True
    invert_loops: bool = True
    resident: Resident | None = None
    may_pad: bool = True


@dataclass
class FusedProgram:
    """``host`` is the new host program; ``fused`` its fused launches; ``given`` the kernels that there were before;
    ``result`` the steps that made it."""

    host: HostProgram
    codes: KernelCodes
    fused: dict[Launch, FusedPair]
    result: Result
    given: frozenset[AnyKernel]
    remarks: list[Remark] = field(default_factory=list[Remark])

    def ptx(self, kernel: AnyKernel) -> str:
        """The module of a kernel of the new program, as ``run.Loaded`` wants it."""
        return self.codes.of(kernel).text

    def is_fused(self, kernel: AnyKernel) -> bool:
        """Whether a kernel of the new program was made by fusion."""
        return kernel not in self.given

    @property
    def modules(self) -> dict[str, str]:
        """The module of each kernel, by what the new program calls the kernel."""
        return {name: self.ptx(kernel) for name, kernel in self.host.kernels.items()}


class PtxFuser:
    """Decides by `fusibility` and builds by `fused_kernel`."""

    def __init__(self, *, may_pad: bool = True) -> None:
        self.may_pad = may_pad

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        """Whether and how the second may be fused with the first."""
        from .fusibility import decide

        return decide(first, second, assume_independent=assume_independent, may_check=may_check, may_pad=self.may_pad)

    def build(
        self, first: LaunchSite, second: LaunchSite, fusibility: Fusibility, *, name: str, dead_buffers: frozenset[str]
    ) -> FusedCode:
        """The fused kernel."""
        from .fused_kernel import build

        return build(first, second, fusibility, name=name, dead_buffers=dead_buffers, grid_barrier=True)


def fuse_program(
    program: HostProgram,
    ptx: Callable[[AnyKernel], str],
    options: FusionOptions = FusionOptions(),
    fuser: Fuser | None = None,
) -> FusedProgram:
    """Fuse the launches of ``program``. Raises `DslError`, `PtxError`."""
    codes = KernelCodes(ptx)
    fuser = fuser or PtxFuser(may_pad=options.may_pad)
    given = frozenset(program.kernels.values())
    taken = {kernel.name for kernel in given}
    pairs = Pairs(codes, fuser, options.independent, options.benefit, options.resident, taken)
    apart = list(FusingHost(program, pairs).kept_apart())
    host, result = _best(program, pairs, options)
    if result.fusions:
        host.guard()
        host.drop_dead_stores()
    pairs.take_back(host.fused.values())
    told = {remark.kernel for remark in pairs.remarks.values()}
    remarks = [*pairs.remarks.values(), *(each for each in apart if each.kernel not in told)]
    if not result.fusions:
        return FusedProgram(program, codes, {}, result, given, remarks)
    return FusedProgram(host.program, codes, host.fused, result, given, remarks)


def _best(program: HostProgram, pairs: Pairs, options: FusionOptions) -> tuple[FusingHost, Result]:
    """The transformed program, with as few loops inverted as give the most fusions."""

    def attempt(loops: frozenset[int]) -> tuple[FusingHost, Result]:
        given = inverted(program, loops) if loops else program
        return transform(lambda: FusingHost(given, pairs), options.strategy, options.order, tidy=options.tidy)

    best = attempt(frozenset())
    loops = frozenset(invertible(program)) if options.invert_loops and options.strategy == "kfcm" else frozenset[int]()
    if not loops:
        return best
    every = attempt(loops)
    if every[1].rank <= best[1].rank:
        return best
    for loop in sorted(loops):
        fewer = attempt(loops - {loop})
        if fewer[1].rank >= every[1].rank:
            loops, every = loops - {loop}, fewer
    return every
