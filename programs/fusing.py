"""Finds a host program, compiles its kernels, fuses it, and writes what came of it.

Where the arrows meet: `dsl` has the program, `harness` the compiler and the assembler, `transforms` the fusion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arch import DEFAULT_TARGET
from ..cli.bench import dsl_errors
from ..cli.outcome import BAD_INPUT, CommandError, usage_error, warn

if TYPE_CHECKING:
    from ..dsl import Program
    from ..dsl.host_program import HostProgram
    from ..transforms.kernel_fusion.benefit import BenefitModel, Resources
    from ..transforms.kernel_fusion.kernel_code import AnyKernel, KernelCode
    from ..transforms.kernel_fusion.kfcm import PhaseOrder, Strategy
    from ..transforms.kernel_fusion.pairs import Benefit
    from ..transforms.kernel_fusion.plan import FusedProgram, FusionOptions
    from ..transforms.remarks import Remark

__all__ = ["FuseRequest", "FuseResult", "fuse", "ptx_resources", "residency"]


@dataclass(frozen=True)
class FuseRequest:
    """What the command line asks for. ``program`` is a file or a name of the suites. ``benefit`` says by what it is
    judged which legal fusions are made: ``costs`` of the machine, ``timing`` with the data of a ``size``, or ``none``:
    all are."""

    program: str
    name: str = ""
    strategy: Strategy = "kfcm"
    order: PhaseOrder = "backward-first"
    independent: frozenset[frozenset[str]] = frozenset()
    benefit: str = "costs"
    size: str = ""
    as_graph: bool = False
    invert_loops: bool = True
    cooperative: bool = True
    may_pad: bool = True
    passes: str = ""
    arch: str = DEFAULT_TARGET


@dataclass
class FuseResult:
    """A fused program, and the modules as they are written."""

    name: str
    before: int
    found: FusedProgram
    modules: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def remarks(self) -> list[Remark]:
        return self.found.remarks

    @property
    def summary(self) -> str:
        """One line."""
        after = _launches(self.found.host)
        kernels = len(self.found.host.kernels)
        return (
            f"{self.name}: {self.found.result.fusions} fusions; {self.before} launches in the text became {after}, "
            f"of {kernels} kernels"
        )

    def write(self, folder: str) -> None:
        """One .ptx file for each kernel, the program, the remarks: all of them or none. Raises `CommandError`."""
        from ..cli.files import Outputs
        from ..dsl.host_printer import module

        into = Path(folder)
        into.mkdir(parents=True, exist_ok=True)
        files = {name: f"{name.replace('.', '_')}.ptx" for name in self.modules}
        outputs = Outputs()
        for name, text in self.modules.items():
            outputs.add(str(into / files[name]), text)
        with dsl_errors():
            outputs.add(str(into / f"{self.name}.py"), module(self.found.host, files))
        outputs.add(str(into / "remarks.yaml"), "".join(remark.yaml for remark in self.remarks))
        outputs.commit()


def fuse(request: FuseRequest) -> FuseResult:
    """Fuse. Raises `CommandError`, `ToolMissing` for a kernel that needs nvcc where there is none, `PtxError`."""
    from ..dsl import PtxSource
    from ..transforms.kernel_fusion.plan import FusionOptions, fuse_program
    from .machine_costs import read_costs

    with dsl_errors():
        program, flags = _program(request.program, request.name)

        @cache
        def nvcc() -> Any:
            from ..suites.runner import compiler

            return compiler(request.arch, flags)

        def ptx(kernel: AnyKernel) -> str:
            return kernel.ptx(None if isinstance(kernel, PtxSource) else nvcc())

        host = program.host
        names = {kernel.name for kernel in host.kernels.values()}
        if unknown := sorted(set[str]().union(*request.independent) - names):
            usage_error(f"--assume-independent: the program launches no {unknown[0]}, but {', '.join(sorted(names))}")
        options = FusionOptions(
            request.strategy,
            request.order,
            request.independent,
            _benefit(request) if request.benefit == "costs" else None,
            invert_loops=request.invert_loops,
            resident=residency(read_costs().multiprocessors) if request.cooperative else None,
            may_pad=request.may_pad,
        )
        if request.benefit == "timing":
            options = replace(options, benefit=_timed(request, host, ptx, options))
        found = fuse_program(host, ptx, options)
    result = FuseResult(host.name, _launches(host), found, found.modules)
    if request.passes:
        for name, kernel in found.host.kernels.items():
            if found.is_fused(kernel):
                result.modules[name] = _optimized(result.modules[name], request.passes)
    return result


def _timed(request: FuseRequest, host: HostProgram, ptx: Callable[[AnyKernel], str], options: FusionOptions) -> Benefit:
    """The benefit that running the program gives. Raises `CommandError`, `DslError`."""
    from ..suites.registry import find, from_file
    from ..transforms.kernel_fusion.plan import fuse_program
    from .fusion_timing import timed_benefit

    file = request.program if request.program.endswith(".py") else ""
    if not file:
        benchmark = find(request.program)
    else:
        benchmark = next((each for each in from_file(file) if each.program.name == host.name), None)
        if benchmark is None:
            raise CommandError(BAD_INPUT, f"{file}: error: --benefit=timing needs a Benchmark of {host.name}: its data")
    plain = {kernel.name: ptx(kernel) for kernel in host.kernels.values()}

    def fused(benefit: Benefit) -> FusedProgram:
        return fuse_program(host, ptx, replace(options, benefit=benefit))

    return timed_benefit(benchmark, file, plain, fused, size=request.size, as_graph=request.as_graph)


def _launches(host: Any) -> int:
    from ..dsl.host_nodes import Launch

    return sum(isinstance(node, Launch) for node in host.nodes())


def _program(text: str, name: str) -> tuple[Program[...], tuple[str, ...]]:
    """The program, and what nvcc is told for its kernels. Raises `DslError`, `OSError`, `CommandError`."""
    from ..suites.registry import find

    if not text.endswith(".py"):
        benchmark = find(text)
        return benchmark.program, tuple(benchmark.flags)
    found = _programs_of(Path(text).resolve())
    chosen = {each: what for each, what in found.items() if not name or each == name}
    if not found:
        raise CommandError(BAD_INPUT, f"{text}: error: no @program stands at its top level")
    if len(chosen) != 1:
        there_are = ", ".join(found)
        usage_error(f"{text} has no program {name}, but {there_are}" if name else f"say which --program: {there_are}")
    return next(iter(chosen.values()))


def _programs_of(file: Path) -> dict[str, tuple[Program[...], tuple[str, ...]]]:
    """The programs of a Python file by name; the file is imported under its own name, as what is written imports it."""
    import importlib.util

    from ..dsl import Program
    from ..suites.registry import Benchmark

    if not file.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(file))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise CommandError(BAD_INPUT, f"{file}: error: this is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise CommandError(BAD_INPUT, f"{file}: error: {error}") from error
    found: dict[str, tuple[Program[...], tuple[str, ...]]] = {}
    for value in vars(module).values():
        if isinstance(value, Program):
            found.setdefault(value.name, (value, ()))
    for value in vars(module).values():
        if isinstance(value, Benchmark):
            found[value.program.name] = (value.program, tuple(value.flags))
    return found


def _benefit(request: FuseRequest) -> BenefitModel:
    from ..toolchain.tools import ToolMissing, find_tool
    from ..transforms.kernel_fusion.benefit import BenefitModel
    from .machine_costs import read_costs

    try:
        find_tool("ptxas")
    except ToolMissing:
        warn("ptxas is not found, so occupancy and spills do not count")
        return BenefitModel(read_costs(), None, request.as_graph)
    return BenefitModel(read_costs(), ptx_resources(), request.as_graph)


@cache
def _assembled(text: str) -> Any:
    """What ptxas makes of a module; it is asked once."""
    from ..harness.arm_code import assemble_arm

    return assemble_arm({"module": text})


def residency(multiprocessors: int) -> Callable[[KernelCode, int, int], int | None]:
    """How many blocks, of so many threads and bytes of dynamic shared memory, run at the same time on a GPU with so
    many multiprocessors; None where there is no ptxas, or the architecture is not known."""
    from ..toolchain.occupancy import occupancy
    from ..toolchain.tools import ToolFailed, ToolMissing

    def resident(code: KernelCode, threads: int, shared: int) -> int | None:
        try:
            figures = _assembled(code.text).kernels["module", code.entry.name].code
        except ToolMissing:
            return None
        except ToolFailed:
            return 0
        held = occupancy(figures.sm, threads, figures.registers, figures.shared_bytes + shared)
        return None if held is None else held.blocks * multiprocessors

    return resident


def ptx_resources() -> Callable[[KernelCode, int], Resources | None]:
    """What ptxas gives a kernel: occupancy for blocks of a size, and spills."""
    from ..arch import MAX_THREADS
    from ..toolchain.occupancy import occupancy
    from ..toolchain.tools import ToolFailed
    from ..transforms.kernel_fusion.benefit import Resources

    def resources(code: KernelCode, threads: int) -> Resources | None:
        try:
            figures = _assembled(code.text).kernels["module", code.entry.name]
        except ToolFailed:
            return Resources(0.0, 0)  # what ptxas refuses fits nowhere
        held = occupancy(
            figures.code.sm, min(max(threads, 1), MAX_THREADS), figures.code.registers, figures.code.shared_bytes
        )
        return None if held is None else Resources(held.share, figures.spill_bytes)

    return resources


def _optimized(text: str, passes: str) -> str:
    from ..driver import Policy, optimize
    from ..transforms.passes import UnknownPass

    try:
        return optimize(text, passes.removeprefix("-"), Policy(gate="off")).text
    except UnknownPass as error:
        usage_error(f"--passes: {error}")
