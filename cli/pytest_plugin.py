"""The pytest plugin: `kernel_benchmark`, a fixture on top of pytest-benchmark.

    def test_bfs(kernel_benchmark):
        found = kernel_benchmark("rodinia/bfs", variants=["-O2", "cse,lcm"])
        assert found.candidates[0].verdict != "SLOWER"

Options: `--kernel-backend=auto|cuda|emulator`, `--kernel-size`, `--kernel-rounds`. With `--benchmark-disable`, variants
are only checked. pytest loads this module in every run where ptxmotion is installed: it imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ..arch import target_of_sm

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.results import BenchmarkResult

_CHOSEN = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("ptxmotion kernels")
    group.addoption("--kernel-backend", choices=("auto", "cuda", "emulator"), default="auto", help="where kernels run")
    group.addoption("--kernel-size", choices=("tiny", "small", "full"), help="default: full on a GPU, else tiny")
    group.addoption("--kernel-rounds", type=int, default=30, metavar="N", help="rounds of timing (default: 30)")


def _machine(config: pytest.Config) -> tuple[Machine, dict[str, Any]]:
    """The machine of this run, chosen once. Raises `MachineMissing`."""
    if _CHOSEN not in config.stash:
        from ..harness.machine import choose
        from ..harness.worker import Worker

        machine, _, _ = choose(str(config.getoption("--kernel-backend")))
        with Worker(machine) as worker:
            config.stash[_CHOSEN] = machine, worker.describe(120.0)
    return config.stash[_CHOSEN]


@pytest.fixture
def kernel_benchmark(request: pytest.FixtureRequest) -> Callable[..., BenchmarkResult]:
    """``kernel_benchmark(program, variants=[…], baseline="O3", size=None)``: run, check, time or count, compare.

    Without ``variants``, nvcc's output is compared with what `opt` makes of it by default.
    Each variant appears among pytest-benchmark's results. Fails the test where a variant computes something else.
    """
    try:
        fixture: Any = request.getfixturevalue("benchmark")
    except pytest.FixtureLookupError:
        pytest.fail("kernel_benchmark needs pytest-benchmark: python -m pip install pytest-benchmark", pytrace=False)

    def run(
        program: str, variants: Sequence[str] = (), baseline: str = "O3", size: str | None = None
    ) -> BenchmarkResult:
        from dataclasses import replace

        from ..harness.arm_code import assemble_arm
        from ..harness.machine import EMULATOR
        from ..harness.protocol import Plan
        from ..harness.pytest_plugin import measure, record
        from ..programs.tasks import select, task_of
        from ..programs.variants import DEFAULT, Variants, parse_variants
        from ..suites.runner import compiler

        machine, told = _machine(request.config)
        if fixture.disabled:
            machine = replace(machine, stopwatch="")
        sm = told.get("compute_capability")
        ((benchmark, file),) = select([program], None)
        wanted = size or request.config.getoption("--kernel-size") or ("tiny" if machine == EMULATOR else "full")
        chosen = [variant for each in (baseline, *(variants or [DEFAULT])) for variant in parse_variants(each)]
        arch = target_of_sm(sm or None)
        plan = Plan(rounds=int(request.config.getoption("--kernel-rounds") or 30))
        with Variants() as maker:
            task = task_of(benchmark, file, wanted, chosen, maker, lambda: compiler(arch))
            found = measure(task, machine, plan, partial(assemble_arm, sm=sm), told)
        if not fixture.disabled:
            record(fixture, found)
        else:
            fixture._mode = "kernel_benchmark(...)"
        return found

    return run
