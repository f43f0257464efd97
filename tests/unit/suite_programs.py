"""Checks of every suite program that need no GPU, for the tests of the suites."""

import functools
from collections.abc import Iterable

import numpy as np
import pytest
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import parse, print_module
from ptxmotion.suites.registry import Benchmark, find
from ptxmotion.suites.runner import Outcome, compiler, ptx_of, run
from ptxmotion.toolchain.tools import ToolMissing, assemble
from ptxmotion.transforms.pipeline import run_passes


@functools.cache
def compiled(name: str) -> dict[str, str]:
    """The PTX of a program's kernels by name. Skips the test if there is no nvcc."""
    try:
        return ptx_of(find(name), compiler())
    except ToolMissing as why:
        pytest.skip(str(why))


def optimized(ptx: str, level: str) -> str:
    module = parse(ptx)
    run_passes(module, level)
    return print_module(module)


def emulated(benchmark: Benchmark, ptx: dict[str, str], seed: int, findings: Iterable[str]) -> Outcome:
    """Run the smallest size. The emulator may report only findings of the kinds ``findings``."""
    backend = EmulatorBackend(schedule="random" if seed else "order", seed=seed)
    outcome = run(benchmark, backend, ptx, "tiny", seed)
    assert {finding.kind for finding in backend.findings} <= set(findings), backend.findings[:3]
    return outcome


def check_program(name: str, findings: Iterable[str] = (), level: str | None = "O2") -> None:
    """The program is correct by its reference, gives equal bits at ``level``, and all of it can be assembled. Without a
    level, only the program itself is checked."""
    benchmark, ptx = find(name), compiled(name)
    baseline = emulated(benchmark, ptx, 0, findings)
    assert baseline.differences == []
    for text in ptx.values():
        assemble(text)
    if level is None:
        return
    made = {kernel: optimized(text, level) for kernel, text in ptx.items()}
    outputs = emulated(benchmark, made, 0, findings).outputs
    assert outputs.keys() == baseline.outputs.keys()
    for output, wanted in baseline.outputs.items():
        assert np.array_equal(outputs[output].view(np.uint8), wanted.view(np.uint8)), output
    for kernel, text in made.items():
        if text != ptx[kernel]:
            assemble(text)


def check_in_another_order(name: str, findings: Iterable[str] = (), level: str = "O1") -> None:
    """The optimized program is correct by its reference for other data, and with its threads in a random order."""
    made = {kernel: optimized(text, level) for kernel, text in compiled(name).items()}
    assert emulated(find(name), made, 1, findings).differences == []
