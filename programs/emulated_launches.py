"""Runs a program and its fused form on the emulator: counts their launches, and compares their outputs.

Requires: a Benchmark, which has data for the program.
Guarantees: both run on the same data. Refuses: `BadRequest` for a size that the Benchmark does not have, `WrongOutputs`
for outputs that differ by more than the Benchmark's tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..dsl.host_program import HostProgram
from ..dsl.run import Loaded
from .errors import BadRequest, WrongOutputs

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..suites.registry import Benchmark

__all__ = ["emulated"]

_SEED = 0


def emulated(
    benchmark: Benchmark,
    size: str,
    ptx: Callable[[Kernel[...]], str],
    fused: HostProgram,
    modules: Mapping[str, str],
) -> str:
    """One line: the launches of the program and of ``fused``, and that their outputs agree. ``ptx`` is the PTX of a
    kernel of the program; ``modules`` are those of ``fused``, by the names of its kernels."""
    import numpy as np

    if size not in benchmark.sizes:
        raise BadRequest(f"{benchmark.fullname} has no size '{size}'; there are {', '.join(benchmark.sizes)}")
    data = benchmark.make_data(size, _SEED)
    names = {kernel: name for name, kernel in fused.kernels.items()}
    before, wanted = _run(benchmark.program.host, ptx, data)
    after, outputs = _run(fused, lambda kernel: modules[names[kernel]], data)
    counts = f"on the emulator, size {size}: {before} → {after} launches"
    if all(np.array_equal(wanted[name].view(np.uint8), outputs[name].view(np.uint8)) for name in wanted):
        return f"{counts}, equal outputs"
    if differences := benchmark.check(outputs, wanted):
        raise WrongOutputs(f"{counts}, but the outputs differ: {'; '.join(differences[:2])}")
    return f"{counts}, outputs equal within the tolerance of the Benchmark"


def _run(host: HostProgram, ptx: Callable[[Kernel[...]], str], data: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The number of launches, and the outputs."""
    from ..emulator.backend import EmulatorBackend

    backend = EmulatorBackend()
    outputs = Loaded(host, backend, ptx).run(data)
    return int(backend.counts.as_dict()["launches"]), outputs
