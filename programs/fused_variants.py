"""The variants `kf_trad` and `kfcm` of a benchmark: kernel fusion changes its host program.

An arm is a set of PTX modules by name. A fused arm has one more module: it has no kernels, and its comments are the
text of the fused host program. So every arm is plain data that can be hashed, assembled and sent to another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..dsl.host_program import HostProgram
    from ..suites.registry import Benchmark
    from ..transforms.kernel_fusion.kernel_code import AnyKernel
    from ..transforms.kernel_fusion.kfcm import Strategy
    from ..transforms.kernel_fusion.pairs import Fuser
    from ..transforms.kernel_fusion.plan import FusedProgram

__all__ = ["FUSIONS", "HOST", "fused_modules", "host_module", "host_of", "modules_of"]

#: The variants that this module makes, by the strategy of `fuse`.
FUSIONS: tuple[Strategy, ...] = ("kf_trad", "kfcm")

#: The name of the module that holds the host program.
HOST = "host program"
_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
_COMMENT = "//| "
#: A line of the host module: the program has no kernel of the benchmark, even if the names are equal.
_REPLACES_ALL = "// every kernel is in the modules\n"


def fused_modules(
    benchmark: Benchmark,
    plain: Mapping[str, str],
    strategy: Strategy,
    fuser: Fuser | None = None,
    *,
    as_graph: bool = True,
) -> dict[str, str]:
    """The modules of the fused program; ``plain`` (PTX by kernel name) where nothing was fused.

    The costs of this machine decide what is fused. ``as_graph`` says that the program runs as a CUDA graph: a barrier
    of the grid can be worth its cost only in a stream. A ``fuser`` replaces the legality test; then everything that it
    allows is fused, whatever the cost. Raises `DslError`, `ProgramError`.
    """
    from ..transforms.kernel_fusion.benefit import BenefitModel
    from ..transforms.kernel_fusion.plan import FusionOptions, fuse_program
    from .kernel_resources import ptx_resources, residency
    from .machine_costs import read_costs

    host = benchmark.program.host
    costs = read_costs()
    options = FusionOptions(strategy)
    if fuser is None:
        benefit = BenefitModel(costs, ptx_resources(), as_graph)
        options = FusionOptions(strategy, benefit=benefit, resident=residency(costs.multiprocessors))
    return modules_of(fuse_program(host, lambda kernel: plain[kernel.name], options, fuser), plain)


def modules_of(fused: FusedProgram, plain: Mapping[str, str]) -> dict[str, str]:
    """The modules of a fused program as an arm holds them; ``plain`` where nothing was fused."""
    if not fused.result.fusions:
        return dict(plain)
    kernels = fused.host.kernels.items()
    modules = {name if fused.is_fused(kernel) else kernel.name: fused.ptx(kernel) for name, kernel in kernels}
    return {**modules, HOST: host_module(fused.host.to_python())}


def host_module(program: str, *, replaces_all: bool = False) -> str:
    """The module that holds the text of a host program. ``replaces_all``: each of its kernels is a module of the arm;
    without it, a kernel with the name of one of the benchmark is that kernel."""
    lines = "".join(f"{_COMMENT}{line}\n" for line in program.splitlines())
    return _HEAD + (_REPLACES_ALL if replaces_all else "") + lines


def host_of(benchmark: Benchmark, modules: Mapping[str, str]) -> tuple[HostProgram, Callable[[AnyKernel], str]]:
    """The host program of an arm, and a function from its kernels to their PTX. Raises `DslError`."""
    host = benchmark.program.host
    if HOST not in modules:
        return host, lambda kernel: modules[kernel.name]
    from ..dsl import program_from_text, ptx_source

    original = {kernel.name for kernel in host.kernels.values() if _REPLACES_ALL not in modules[HOST]}
    fused = {name: ptx_source(text) for name, text in modules.items() if name != HOST and name not in original}
    lines = modules[HOST].splitlines()
    text = "\n".join(line.removeprefix(_COMMENT) for line in lines if line.startswith(_COMMENT)) + "\n"
    program = program_from_text(text, {**host.namespace, **fused}, f"<{benchmark.fullname}, changed>")
    ptx_of_fused: dict[AnyKernel, str] = {kernel: kernel.text for kernel in fused.values()}
    return program, lambda kernel: ptx_of_fused[kernel] if kernel in ptx_of_fused else modules[kernel.name]
