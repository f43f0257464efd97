"""Fuses a host program for `fuse`: finds it, compiles its kernels, fuses launches, optimizes the fused kernels.

`dsl` has the program, `toolchain` the compiler and assembler, `transforms` the fusion; this module connects them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..arch import DEFAULT_TARGET
from .emulated_launches import emulated
from .errors import BadInput, BadRequest
from .host_programs import FoundProgram, find_program
from .kernel_resources import ptx_resources, residency
from .launch_counts import count_launches
from .machine_costs import read_costs

if TYPE_CHECKING:
    from ..dsl import Nvcc
    from ..dsl.host_program import HostProgram
    from ..suites.registry import Benchmark
    from ..transforms.kernel_fusion.benefit import BenefitModel
    from ..transforms.kernel_fusion.kernel_code import AnyKernel
    from ..transforms.kernel_fusion.kfcm import PhaseOrder, Strategy
    from ..transforms.kernel_fusion.pairs import Benefit
    from ..transforms.kernel_fusion.plan import FusedProgram, FusionOptions, Objective
    from ..transforms.passes import Pass
    from ..transforms.remarks import Remark

__all__ = ["FuseRequest", "FuseResult", "fuse", "program_graph"]


#: The reasons of refusals that may come from the number of multiprocessors.
_RESIDENCE = ("grid-wide", "not-resident")


@dataclass(frozen=True)
class FuseRequest:
    """The options of `fuse`.

    ``program`` is a Python file or the name of a program of the suites; ``name`` chooses a program of the file.
    ``objective``: each fusion that saves time, or those that save most together. ``benefit`` decides which legal
    fusions are made: ``costs`` estimates them with the costs of this machine, ``timing`` runs the program on the data
    of a ``size``, and ``none`` makes all of them. ``passes`` is a level or a list of passes for the fused kernels.
    ``emulate`` is a size of the data: both programs run on it in the emulator.
    """

    program: str
    name: str = ""
    strategy: Strategy = "kfcm"
    objective: Objective = "pairs"
    order: PhaseOrder = "backward-first"
    independent: frozenset[frozenset[str]] = frozenset()
    benefit: str = "costs"
    size: str = ""
    as_graph: bool = False
    invert_loops: bool = True
    cooperative: bool = True
    may_pad: bool = True
    passes: str = "none"
    arch: str = DEFAULT_TARGET
    emulate: str = ""


@dataclass
class FuseResult:
    """A fused program. ``original`` is the program that was given. ``modules`` holds PTX by the name of the kernel in
    the new program. ``warnings`` is text for the user, and ``costs`` and ``emulated`` are lines of the summary."""

    original: HostProgram
    fused: FusedProgram
    modules: dict[str, str] = field(default_factory=dict[str, str])
    warnings: list[str] = field(default_factory=list[str])
    costs: str = ""
    emulated: str = ""

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.original.name

    @property
    def remarks(self) -> list[Remark]:
        """Which pairs of launches were fused, which were not, and why."""
        return self.fused.remarks

    @property
    def summary(self) -> list[str]:
        """Lines for the user: the fusions, the launches of one call before and after, and what the estimates use."""
        made = self.fused.result.fusions
        before, after = count_launches(self.original), count_launches(self.fused.host, self.original)
        counts = f"{before} → {after}" if made else f"{before}, as before"
        lines = [f"{self.name}: {made} fusion{'s' if made != 1 else ''}; launches in one call: {counts}"]
        legend = dict.fromkeys(text for each in (before, after) for text in each.explained.split("; ") if text)
        lines += [f"  {text}" for text in legend]
        if made and after.least != after.most:
            lines.append("  (a range: checks at run time decide which launches are made)")
        return [*lines, *(text for text in (self.emulated, self.costs) if text)]

    def files(self) -> dict[str, str]:
        """The output files by name: one .ptx file for each kernel, the new host program, the remarks. Raises
        `DslError` where the program cannot be written as Python."""
        from ..dsl.host_printer import module

        ptx_files = {name: f"{name.replace('.', '_')}.ptx" for name in self.modules}
        files = {ptx_files[name]: text for name, text in self.modules.items()}
        files[f"{self.name}.py"] = module(self.fused.host, ptx_files)
        files["remarks.yaml"] = "".join(remark.yaml for remark in self.remarks)
        return files


def fuse(request: FuseRequest, report: Callable[[str], None] = lambda line: None) -> FuseResult:
    """Fuse the launches of a host program. ``report`` receives lines of progress.

    Raises `ProgramError`, `DslError`, `PtxError`, and `ToolMissing` where a kernel needs nvcc and there is none.
    """
    from ..transforms.kernel_fusion.plan import fuse_program

    passes = _passes_of(request.passes)
    job = _Job(request, find_program(request.program, request.name), report)
    fused = fuse_program(job.host, job.ptx, job.options())
    result = FuseResult(job.host, fused, fused.modules, job.warnings)
    if job.uses_costs(fused):
        result.costs = job.costs_used()
    for name, kernel in fused.host.kernels.items():
        if passes and fused.is_fused(kernel):
            result.modules[name] = _optimized(result.modules[name], passes)
    if request.emulate:
        benchmark, _ = job.benchmark()
        result.emulated = emulated(benchmark, request.emulate, job.ptx, fused.host, result.modules)
    return result


def program_graph(program: str, name: str = "") -> Any:
    """The launch graph of a host program (`graph_exports.launch_graph`), with the memory that its kernels access by
    their PTX. ``program`` and ``name`` are those of a `FuseRequest`. Raises what `fuse` raises."""
    from ..transforms.kernel_fusion.kernel_code import KernelCodes
    from .graph_exports import launch_graph

    job = _Job(FuseRequest(program, name), find_program(program, name), lambda line: None)
    codes = KernelCodes(job.ptx)
    return launch_graph(job.host, lambda launch: codes.of(launch.kernel).effects)


class _Job:
    """One request with its program and its kernels' PTX."""

    def __init__(self, request: FuseRequest, found: FoundProgram, report: Callable[[str], None]) -> None:
        self.request, self.found, self.report = request, found, report
        self.host: HostProgram = found.program.host
        self.warnings: list[str] = []
        self.costs = read_costs()
        self._nvcc: Callable[[], Nvcc] = cache(self._find_nvcc)
        names = {kernel.name for kernel in self.host.kernels.values()}
        if unknown := sorted(set[str]().union(*request.independent) - names):
            launched = ", ".join(sorted(names))
            raise BadRequest(f"--assume-independent: the program launches no {unknown[0]}, but {launched}")

    def ptx(self, kernel: AnyKernel) -> str:
        """The PTX of a kernel, compiled by nvcc unless it is PTX already."""
        from ..dsl import PtxSource

        return kernel.ptx(None if isinstance(kernel, PtxSource) else self._nvcc())

    def options(self) -> FusionOptions:
        """The options of the fusion; with ``--benefit=timing`` this runs the program."""
        from ..transforms.kernel_fusion.plan import FusionOptions

        request = self.request
        options = FusionOptions(
            request.strategy,
            request.order,
            request.independent,
            self._cost_model() if request.benefit == "costs" else None,
            request.objective,
            invert_loops=request.invert_loops,
            resident=residency(self.costs.multiprocessors) if request.cooperative else None,
            may_pad=request.may_pad,
        )
        return replace(options, benefit=self._timed(options)) if request.benefit == "timing" else options

    def uses_costs(self, fused: FusedProgram) -> bool:
        """Whether the costs of the machine have decided something."""
        from ..dsl.host_nodes import Launch

        if self.request.benefit == "costs" and fused.result.fusions:
            return True
        reasons = {remark.reason for remark in fused.remarks}
        if self.request.benefit == "costs" and "no-benefit" in reasons:
            return True
        launches = [node for node in fused.host.nodes() if isinstance(node, Launch)]
        has_barrier = any(node.cooperative and fused.is_fused(node.kernel) for node in launches)
        return self.request.cooperative and (has_barrier or not reasons.isdisjoint(_RESIDENCE))

    def costs_used(self) -> str:
        """A line about the machine whose costs the estimates use."""
        request, costs = self.request, self.costs
        if request.benefit == "costs":
            kind = "graph node" if request.as_graph else "launch"
            seconds = costs.graph_node if request.as_graph else costs.launch
            figures = f"a {kind} {seconds * 1e6:.2f} us, {costs.bandwidth / 1e12:.2f} TB/s, "
            what = "estimates"
        else:
            figures, what = "", "limits of grid barriers"
        figures += f"{costs.multiprocessors} multiprocessors"
        if costs.is_calibrated:
            return f"{what}: costs of {costs.machine}, measured by doctor --calibrate ({figures})"
        return (
            f"{what}: built-in costs of {costs.machine} ({figures}); no machine was calibrated here: on the one with "
            "the GPU, run ptxmotion doctor --calibrate"
        )

    def _find_nvcc(self) -> Nvcc:
        from ..suites.runner import compiler

        return compiler(self.request.arch, self.found.flags)

    def _cost_model(self) -> BenefitModel:
        from ..toolchain.tools import ToolMissing, find_tool
        from ..transforms.kernel_fusion.benefit import BenefitModel

        try:
            find_tool("ptxas")
        except ToolMissing:
            self.warnings.append("ptxas is not found, so the costs ignore occupancy and spills")
            return BenefitModel(self.costs, None, self.request.as_graph)
        return BenefitModel(self.costs, ptx_resources(), self.request.as_graph)

    def _timed(self, options: FusionOptions) -> Benefit:
        """The decisions that running the program gives."""
        from ..transforms.kernel_fusion.plan import fuse_program
        from .fusion_timing import TimedProgram, timed_benefit

        benchmark, file = self.benchmark()
        plain = {kernel.name: self.ptx(kernel) for kernel in self.host.kernels.values()}

        def fused(benefit: Benefit) -> FusedProgram:
            return fuse_program(self.host, self.ptx, replace(options, benefit=benefit))

        program = TimedProgram(benchmark, file, plain, fused)
        return timed_benefit(program, size=self.request.size, as_graph=self.request.as_graph, report=self.report)

    def benchmark(self) -> tuple[Benchmark, str]:
        """The Benchmark of the program, which has the data to run it on, and its file (empty for the suites)."""
        file = self.request.program
        if self.found.benchmark is None:
            option = "--emulate" if self.request.emulate else "--benefit=timing"
            raise BadInput(
                f"{option} needs a Benchmark of {self.host.name}, which has its data (docs/writing-a-benchmark.md)",
                file,
            )
        return self.found.benchmark, file if file.endswith(".py") else ""


def _passes_of(text: str) -> list[Pass]:
    from ..transforms.passes import UnknownPass, passes_of

    try:
        return passes_of(text)
    except UnknownPass as error:
        raise BadRequest(f"--passes: {error}") from error


def _optimized(ptx: str, passes: list[Pass]) -> str:
    from ..driver import Policy, optimize

    return optimize(ptx, passes, Policy(gate="off")).text
