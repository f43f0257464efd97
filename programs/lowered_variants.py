"""The variants `lowering:isp` …: the image pipeline of a benchmark by another lowering of `dsl.image`.

Kernels, launches and host program are those of this lowering for the size of the data. The host program travels with
the modules of the arm, as that of a fused program does (`fused_variants`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import BadRequest
from .fused_variants import HOST, host_module

if TYPE_CHECKING:
    from ..dsl import Nvcc
    from ..suites.registry import Benchmark
    from .variants import Variant

__all__ = ["check_lowerings", "lowered_modules"]


def check_lowerings(benchmark: Benchmark, variants: Sequence[Variant]) -> None:
    """Raise `BadRequest` for a lowering of a program that is no image pipeline."""
    for variant in variants:
        if variant.lowering and benchmark.pipeline is None:
            raise BadRequest(
                f"variant '{variant.id}': {benchmark.fullname} is no image pipeline, so it has no lowerings"
            )


def lowered_modules(benchmark: Benchmark, lowering: str, data: Mapping[str, Any], nvcc: Nvcc) -> dict[str, str]:
    """The modules of the program by a lowering, for the size of these data. Raises `DslError`."""
    from ..dsl.image import Options, lower

    pipeline = benchmark.pipeline
    assert pipeline is not None, benchmark.fullname
    sizes = {name: (int(data[f"{name}_width"]), int(data[f"{name}_height"])) for name in pipeline.images}
    chosen = replace(nvcc, flags=(*nvcc.flags, *benchmark.flags))
    host = lower(pipeline.graph(sizes=sizes), lowering, Options(nvcc=chosen)).program(any_size=True).host
    modules = {name: kernel.ptx(chosen) for name, kernel in host.kernels.items()}
    return {**modules, HOST: host_module(host.to_python(), replaces_all=True)}
