"""Compiles, runs and checks a benchmark once, for tests and the command line.

This module combines `toolchain` (nvcc), `dsl` (compile and run) and `registry` (check).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arch import DEFAULT_TARGET
from ..cache import cache_folder
from ..dsl import Nvcc
from .registry import Benchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..dsl.backend import Backend
    from ..dsl.kernel import Kernel

__all__ = ["Outcome", "compiler", "ptx_of", "run"]


@dataclass(frozen=True)
class Outcome:
    """The outputs of a run, and one line for each output that differs from the reference."""

    outputs: dict[str, NDArray[Any]]
    differences: list[str]


def compiler(arch: str = DEFAULT_TARGET, flags: Sequence[str] = (), cache: Path | None = None) -> Nvcc:
    """The nvcc of this machine. Raises `toolchain.tools.ToolMissing`, whose message says how to install it."""
    from ..toolchain.tools import compile_cuda, find_tool

    tool = find_tool("nvcc")
    return Nvcc(compile_cuda, f"{tool.version} {tool.identity}", arch, tuple(flags), cache=cache or cache_folder())


def ptx_of(benchmark: Benchmark, nvcc: Nvcc) -> dict[str, str]:
    """The PTX of each kernel by its name."""
    from dataclasses import replace

    chosen = replace(nvcc, flags=(*nvcc.flags, *benchmark.flags))
    return {kernel.name: kernel.ptx(chosen) for kernel in benchmark.program.kernels.values()}


def run(
    benchmark: Benchmark,
    backend: Backend,
    ptx: dict[str, str],
    size: str = "tiny",
    seed: int = 0,
) -> Outcome:
    """Run a program once and check it. ``ptx`` maps each kernel's name to its module, which may be optimized. Raises
    `DslError` and exceptions of the backend."""
    data = benchmark.data(size, seed)
    module: Callable[[Kernel[...]], str] = lambda kernel: ptx[kernel.name]  # noqa: E731
    outputs = benchmark.program.load(backend, module).run(data)
    return Outcome(outputs, benchmark.check(outputs, benchmark.reference(data)))
