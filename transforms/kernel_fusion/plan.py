"""Fuses a host program; the entry point of kernel fusion.

Requires: the PTX of every kernel.
Guarantees: the given program is not changed. The result runs on every backend and computes the same outputs. If nothing
is fused, the result is the given program.
Reference: thesis §5.2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from ...dsl.host_nodes import Launch
from ...dsl.host_program import HostProgram
from ..remarks import Remark
from .host_fusion import FusingHost
from .kernel_code import AnyKernel, KernelCodes
from .kfcm import PhaseOrder, Result, Strategy, transform
from .launch_site import Fusibility, LaunchSite
from .loop_inversion import inverted, invertible
from .objective import Allowed, best_fusions
from .pairs import Benefit, FusedCode, FusedPair, Fuser, Pairs, Resident

Objective: TypeAlias = Literal["pairs", "total"]

#: Why a fusion that an attempt made is not in the program with the most fusions.
_LESS_FUSED = "fusing these two would leave more launches elsewhere", "less-fused"

__all__ = ["FusedProgram", "FusionOptions", "fuse_program"]


@dataclass(frozen=True)
class FusionOptions:
    """``independent`` are pairs of kernel names that the user promises to be independent (`Pairs`). Without ``benefit``
    every legal pair is fused. ``objective``: ``pairs`` makes each fusion that saves time, ``total`` those that save
    most together, which needs ``benefit``. ``tidy`` undoes motions of launches that no fusion used. ``invert_loops``
    allows loops to test at their end if KFCM then fuses more. ``resident`` gives the number of blocks that run at the
    same time, which cooperative launches need; without it there are no such launches. ``may_pad`` allows to fuse
    launches with different grids."""

    strategy: Strategy = "kfcm"
    order: PhaseOrder = "backward-first"
    independent: frozenset[frozenset[str]] = frozenset()
    benefit: Benefit | None = None
    objective: Objective = "pairs"
    tidy: bool = True
    invert_loops: bool = True
    resident: Resident | None = None
    may_pad: bool = True


@dataclass
class FusedProgram:
    """``host`` is the new host program, ``fused`` its fused launches, ``given`` the kernels of the original program,
    and ``result`` the steps of the transformation."""

    host: HostProgram
    codes: KernelCodes
    fused: dict[Launch, FusedPair]
    result: Result
    given: frozenset[AnyKernel]
    remarks: list[Remark] = field(default_factory=list[Remark])

    def ptx(self, kernel: AnyKernel) -> str:
        """The PTX module of a kernel of the new program; `run.Loaded` takes this method."""
        return self.codes.of(kernel).text

    def is_fused(self, kernel: AnyKernel) -> bool:
        """Whether fusion made this kernel of the new program."""
        return kernel not in self.given

    @property
    def modules(self) -> dict[str, str]:
        """The module of each kernel, by the kernel's name in the new program."""
        return {name: self.ptx(kernel) for name, kernel in self.host.kernels.items()}


class PtxFuser:
    """Decides by `fusibility` and builds by `fused_kernel`."""

    def __init__(self, *, may_pad: bool = True) -> None:
        self.may_pad = may_pad

    def decide(self, first: LaunchSite, second: LaunchSite, *, assume_independent: bool, may_check: bool) -> Fusibility:
        """Whether the second launch may be fused with the first, and what that needs."""
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
    is_total = options.objective == "total" and options.benefit is not None
    make_pairs = partial(Pairs, codes, fuser, options.independent, options.benefit, options.resident, taken)
    pairs = make_pairs()
    blocked = list(FusingHost(program, pairs).blocked_pairs())
    host, result = _best(program, pairs, options)
    if is_total:
        pairs = make_pairs(each_saves=False)
        host, result = _best_total(program, pairs, options)
    if result.fusions:
        host.guard()
        host.drop_dead_stores()
    why = ("other fusions save more together", "saves-less") if is_total else _LESS_FUSED
    pairs.withdraw_others(host.fused.values(), *why)
    reported = {remark.kernel for remark in pairs.remarks.values()}
    remarks = [*pairs.remarks.values(), *(remark for remark in blocked if remark.kernel not in reported)]
    if not result.fusions:
        return FusedProgram(program, codes, {}, result, given, remarks)
    return FusedProgram(host.program, codes, host.fused, result, given, remarks)


def _best_total(program: HostProgram, pairs: Pairs, options: FusionOptions) -> tuple[FusingHost, Result]:
    """The transformed program whose fusions save most together."""
    count = sum(isinstance(node, Launch) for node in program.nodes())

    def attempt(allowed: Allowed | None) -> _Fused:
        return _Fused(*_best(program, pairs, options, allowed))

    found = best_fusions(count, attempt, attempt(None))
    return found.host, found.result


@dataclass(frozen=True)
class _Fused:
    """A transformed program."""

    host: FusingHost
    result: Result

    @property
    def saved(self) -> float:
        return self.host.saved

    @property
    def fused_launches(self) -> list[frozenset[int]]:
        return self.host.fused_launches


def _best(
    program: HostProgram, pairs: Pairs, options: FusionOptions, allowed: Allowed | None = None
) -> tuple[FusingHost, Result]:
    """The transformed program with the most fusions, and among these one with few inverted loops."""

    def attempt(loops: frozenset[int]) -> tuple[FusingHost, Result]:
        source = inverted(program, loops) if loops else program
        return transform(lambda: FusingHost(source, pairs, allowed), options.strategy, options.order, tidy=options.tidy)

    best = attempt(frozenset())
    loops = frozenset(invertible(program)) if options.invert_loops and options.strategy == "kfcm" else frozenset[int]()
    if not loops:
        return best
    with_loops = attempt(loops)
    if with_loops[1].rank <= best[1].rank:
        return best
    for loop in sorted(loops):
        without_loop = attempt(loops - {loop})
        if without_loop[1].rank >= with_loops[1].rank:
            loops, with_loops = loops - {loop}, without_loop
    return with_loops
