"""The pytest plugin: `kernel_benchmark`, a fixture on top of pytest-benchmark.

    def test_bfs(kernel_benchmark):
        result = kernel_benchmark("rodinia/bfs", variants=["-O2", "cse,lcm"])
        for each in result.candidates:
            assert not each.regressed, each.reason

A variant has regressed if it is SLOWER than the baseline on a GPU, or WORSE in a noise-free figure without one.

With `--kernel-baseline FILE`, a result file of `bench run`, the test also fails if the program or a variant of it got
worse since then.

Options: `--kernel-backend=auto|cuda|emulator`, `--kernel-size`, `--kernel-rounds`, `--kernel-threshold`,
`--kernel-baseline`. With `--benchmark-disable`, variants are checked and not timed. pytest loads this module in every
run where ptxmotion is installed, so it imports little.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ..arch import target_of_sm

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.results import BenchmarkResult

_MACHINE = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("ptxmotion kernels")
    group.addoption("--kernel-backend", choices=("auto", "cuda", "emulator"), default="auto", help="where kernels run")
    group.addoption("--kernel-size", choices=("tiny", "small", "full"), help="default: full on a GPU, else tiny")
    group.addoption("--kernel-rounds", type=int, default=30, metavar="N", help="rounds of timing (default: 30)")
    group.addoption(
        "--kernel-threshold",
        action="append",
        default=[],
        metavar="REGEX=P%",
        help="how much a figure may be worse if its name benchmark:variant:kernel:figure matches; may be repeated",
    )
    group.addoption(
        "--kernel-baseline",
        metavar="FILE",
        help="fail if a program got worse than in this result file of `ptxmotion bench run`",
    )


def _machine(config: pytest.Config) -> tuple[Machine, dict[str, Any]]:
    """The machine of this run and its description, found once. Raises `MachineMissing`."""
    if _MACHINE not in config.stash:
        from ..harness.machine import choose
        from ..programs.bench_session import describe_machine

        machine, _, _ = choose(str(config.getoption("--kernel-backend")))
        config.stash[_MACHINE] = machine, describe_machine(machine)
    return config.stash[_MACHINE]


def _compare(earlier: str, machine: Machine, found: BenchmarkResult, thresholds: Sequence[str]) -> None:
    """Fail the test if the program got worse than in the result file ``earlier``. A program that the file does not have
    is a warning."""
    from dataclasses import replace

    from ..harness.compare import change_lines, compare_results
    from ..harness.figures import parse_threshold
    from ..harness.results import ResultFile, read

    try:
        before = read(earlier)
    except (OSError, ValueError) as error:
        raise pytest.fail.Exception(f"--kernel-baseline: {error}", pytrace=False) from None
    former = before.benchmark(found.fullname)
    if former is None:
        warnings.warn(f"{earlier} does not have {found.fullname}", stacklevel=2)
        return
    ids = {arm.id for arm in found.arms}
    former = replace(former, arms=[arm for arm in former.arms if arm.id in ids])
    before = replace(before, benchmarks=[former])
    after = ResultFile("", "", machine.name, {}, {}, {}, benchmarks=[found])
    changes = compare_results(before, after, [parse_threshold(each) for each in thresholds])
    failing = [each for each in changes if each.regressed or each.kind in ("mismatch", "missing")]
    if failing:
        pytest.fail("\n".join([f"compared with {earlier}:", *change_lines(failing, before)]), pytrace=False)


@pytest.fixture
def kernel_benchmark(request: pytest.FixtureRequest) -> Callable[..., BenchmarkResult]:
    """``kernel_benchmark(program, variants=[…], baseline="O3", size=None)``: check, time or count, compare variants.

    Without ``variants``, the default of `opt` is compared with the output of nvcc. Each variant becomes a benchmark of
    pytest-benchmark. The test fails if a variant has wrong outputs, and with ``--kernel-baseline`` if the program or a
    variant got worse.
    """
    from ..harness.pytest_plugin import Replay

    timer = Replay()
    former = request.node.get_closest_marker("benchmark")
    options: dict[str, Any] = dict(former.kwargs) if former is not None else {}
    request.node.add_marker(pytest.mark.benchmark(**{**options, "timer": timer}), append=False)
    try:
        fixture: Any = request.getfixturevalue("benchmark")
    except pytest.FixtureLookupError:
        pytest.fail("kernel_benchmark needs pytest-benchmark: python -m pip install pytest-benchmark", pytrace=False)
    unused, fresh = copy.copy(fixture), [fixture]

    def run(
        program: str, variants: Sequence[str] = (), baseline: str = "O3", size: str | None = None
    ) -> BenchmarkResult:
        from dataclasses import replace

        from ..harness.machine import EMULATOR
        from ..harness.protocol import Plan
        from ..harness.pytest_plugin import measure, record
        from ..programs.bench_session import assembler_for
        from ..programs.tasks import select, task_of
        from ..programs.variants import DEFAULT, Variants, parse_variants
        from ..suites.runner import compiler

        machine, info = _machine(request.config)
        if fixture.disabled:
            machine = replace(machine, stopwatch="")
        ((benchmark, file),) = select([program], None)
        chosen_size = size or request.config.getoption("--kernel-size") or ("tiny" if machine == EMULATOR else "full")
        specs = (baseline, *(variants or [DEFAULT]))
        parsed = [variant for spec in specs for variant in parse_variants(spec)]
        arch = target_of_sm(info.get("compute_capability") or None)
        thresholds: list[str] = request.config.getoption("--kernel-threshold") or []
        plan = Plan(rounds=int(request.config.getoption("--kernel-rounds") or 30), thresholds=tuple(thresholds))
        with Variants() as maker:
            task = task_of(benchmark, file, chosen_size, parsed, maker, lambda: compiler(arch))
            result = measure(task, machine, plan, assembler_for(info), info)
        if fixture.disabled:
            if fresh:
                fresh.pop().pedantic(lambda: None)
        else:
            # A fixture can be used once. The first one must be used, or pytest-benchmark prints a warning.
            record(lambda: fresh.pop() if fresh else copy.copy(unused), timer, result)
        if earlier := request.config.getoption("--kernel-baseline"):
            _compare(earlier, machine, result, thresholds)
        return result

    return run
