"""Variants of a benchmark whose host program is another one: `kf_trad` and `kfcm`.

An arm is a set of PTX modules. That of a fused program has one module more: its host program, as comments in a module
without kernels. So an arm stays plain data that can be hashed, assembled and sent to another process.
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

__all__ = ["FUSIONS", "HOST", "fused_modules", "host_of", "modules_of"]

#: The variants.
FUSIONS: tuple[Strategy, ...] = ("kf_trad", "kfcm")

#: What the module with the host program is called.
HOST = "host program"
_HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
_COMMENT = "//| "


def fused_modules(
    benchmark: Benchmark,
    plain: Mapping[str, str],
    strategy: Strategy,
    fuser: Fuser | None = None,
    *,
    as_graph: bool = True,
) -> dict[str, str]:
    """The modules of a fused program, by the costs of this machine; ``plain`` where nothing is fused.

    ``as_graph``: it will run as a CUDA graph, as programs of several launches do unless a stream is asked for; barriers
    of the grid pay in a stream only. With a ``fuser`` of the caller's, which may decide otherwise, all that it allows
    is fused, whatever it costs. Raises `DslError`, `CommandError`.
    """
    from ..transforms.kernel_fusion.benefit import BenefitModel
    from ..transforms.kernel_fusion.plan import FusionOptions, fuse_program
    from .fusing import ptx_resources, residency
    from .machine_costs import read_costs

    host = benchmark.program.host
    costs = read_costs()
    options = FusionOptions(strategy)
    if fuser is None:
        benefit = BenefitModel(costs, ptx_resources(), as_graph)
        options = FusionOptions(strategy, benefit=benefit, resident=residency(costs.multiprocessors))
    return modules_of(fuse_program(host, lambda kernel: plain[kernel.name], options, fuser), plain)


def modules_of(found: FusedProgram, plain: Mapping[str, str]) -> dict[str, str]:
    """The modules of a fused program as an arm holds them; ``plain`` where nothing was fused."""
    if not found.result.fusions:
        return dict(plain)
    kernels = found.host.kernels.items()
    made = {name if found.is_fused(kernel) else kernel.name: found.ptx(kernel) for name, kernel in kernels}
    text = "".join(f"{_COMMENT}{line}\n" for line in found.host.to_python().splitlines())
    return {**made, HOST: _HEAD + text}


def host_of(benchmark: Benchmark, modules: Mapping[str, str]) -> tuple[HostProgram, Callable[[AnyKernel], str]]:
    """The host program of an arm, and the PTX of its kernels. Raises `DslError`."""
    host = benchmark.program.host
    if HOST not in modules:
        return host, lambda kernel: modules[kernel.name]
    from ..dsl import program_from_text, ptx_source

    known = {kernel.name for kernel in host.kernels.values()}
    fused = {name: ptx_source(text) for name, text in modules.items() if name != HOST and name not in known}
    lines = modules[HOST].splitlines()
    text = "\n".join(line.removeprefix(_COMMENT) for line in lines if line.startswith(_COMMENT)) + "\n"
    made = program_from_text(text, {**host.namespace, **fused}, f"<{benchmark.fullname}, fused>")
    of_fused: dict[AnyKernel, str] = {kernel: kernel.text for kernel in fused.values()}
    return made, lambda kernel: of_fused[kernel] if kernel in of_fused else modules[kernel.name]
