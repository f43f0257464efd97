"""`memory_oracle` for the launches of the suite programs in their smallest size.

The first launches of each kernel are traced. Then the whole program runs again, with copies of loads wherever they may
be speculated. It must give the same result without a fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from memory_oracle import Tally, check_accesses, speculated
from ptxmotion.analysis import Facts
from ptxmotion.emulator.backend import EmulatorBackend, EmulatorKernel
from ptxmotion.ptx import parse
from ptxmotion.suites.registry import Benchmark
from ptxmotion.suites.runner import run

__all__ = ["check_suite_program"]

_LAUNCHES = 2
#: The largest number of rows of a trace that are checked. These are the first blocks of a large grid.
_MOST_ROWS = 60_000


class Tracing(EmulatorBackend):
    """A backend that compares the accesses of the first launches of each kernel with the facts of its PTX."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(counts=False)
        self.tally = tally
        self.faults: list[str] = []
        self._launches: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._facts: dict[str, tuple[Any, Facts]] = {}

    def load(self, ptx: str) -> Any:
        loaded = super().load(ptx)
        self._texts[id(loaded.module)] = ptx
        self._kept = [*getattr(self, "_kept", []), loaded]  # keeps the object alive, so that its id is not used again
        return loaded

    def launch(self, kernel: EmulatorKernel, grid: Any, block: Any, shared: int, args: Any) -> None:
        number = self._launches[kernel.name] = self._launches.get(kernel.name, 0) + 1
        if number > _LAUNCHES:
            super().launch(kernel, grid, block, shared, args)
            return
        plain = self.options
        self.options = type(plain)(plain.checks, plain.counts, trace=True, fine=plain.fine)
        try:
            super().launch(kernel, grid, block, shared, args)
        finally:
            self.options = plain
        trace = self.traces.pop()
        ptx = self._texts[id(kernel.module)]
        if kernel.name not in self._facts:
            module = parse(ptx)
            self._facts[kernel.name] = (module, Facts(module.kernel(kernel.name), module))
        module, facts = self._facts[kernel.name]
        self.faults += check_accesses(module, facts, trace.accesses[:_MOST_ROWS], self.tally)


def check_suite_program(benchmark: Benchmark, ptx: dict[str, str], tally: Tally) -> list[str]:
    """The wrong claims about the kernels of the program."""
    backend = Tracing(tally)
    outcome = run(benchmark, backend, ptx, "tiny", 0)
    made: dict[str, str] = {}
    for name, text in ptx.items():
        module = parse(text)
        made[name] = text
        for kernel in module.entries:
            made[name] = speculated(module, kernel, 0, tally)
    again = run(benchmark, EmulatorBackend(counts=False), made, "tiny", 0)
    found = list(backend.faults)
    for name, wanted in outcome.outputs.items():
        if not np.array_equal(again.outputs[name].view(np.uint8), wanted.view(np.uint8)):
            found.append(f"speculated: {name} comes out otherwise")
    return found
