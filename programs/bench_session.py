"""What a benchmark session is made of: the description of the machine, the commit, the tasks, the session itself."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..arch import target_of_sm
from ..harness.results import ResultFile

if TYPE_CHECKING:
    from ..dsl import Nvcc
    from ..harness.arm_code import ArmCode
    from ..harness.machine import Machine
    from ..harness.protocol import Plan
    from ..harness.session import Task
    from ..suites.registry import Benchmark
    from .variants import Variant, Variants

__all__ = [
    "assembler_for",
    "commit_info",
    "default_jobs",
    "describe_computer",
    "describe_machine",
    "new_result",
    "run_once",
    "tasks_of",
]

#: The most seconds that opening a machine may take.
_OPENING = 120.0


def describe_computer() -> dict[str, Any]:
    """The computer on which this process runs, without its GPUs."""
    return {"machine": platform.machine(), "system": platform.system(), "python": sys.version.split()[0]}


def describe_machine(machine: Machine) -> dict[str, Any]:
    """What a machine reports about itself; a child process opens it. Raises `MachineMissing`, `WorkerError`."""
    from ..harness.worker import Worker

    with Worker(machine) as worker:
        return worker.describe(_OPENING)


def commit_info() -> dict[str, Any]:
    """The git commit of the current folder, or an empty dictionary where there is none.

    An exported tree has no commit: the environment variable PTXMOTION_COMMIT can name it.
    """
    if commit := os.environ.get("PTXMOTION_COMMIT"):
        return {"id": commit, "time": None, "dirty": None}

    def git(*words: str) -> str:
        # The settings of a repository can name programs that git runs. These two settings would do so here.
        command = ["git", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        dirty = bool(git("status", "--porcelain", "--untracked-files=no"))
        return {"id": git("rev-parse", "HEAD"), "time": git("log", "-1", "--format=%cI"), "dirty": dirty}
    except (OSError, subprocess.SubprocessError):
        return {}


def tasks_of(
    programs: Sequence[tuple[Benchmark, str]],
    size: str,
    variants: Sequence[Variant],
    maker: Variants,
    arch: str | None,
    info: Mapping[str, Any],
    sweeps: Mapping[str, Sequence[int | str]] | None = None,
) -> list[Task]:
    """The tasks of each program. ``programs`` are pairs of a Benchmark and its file; ``info`` describes the machine.
    ``sweeps`` are values of parameters; a program has a task for each combination of them.

    nvcc compiles for ``arch``, or for the machine's GPU where ``arch`` is None.
    """
    from .tasks import sweep, task_of

    @cache
    def nvcc() -> Nvcc:
        from ..suites.runner import compiler

        return compiler(arch or target_of_sm(info.get("compute_capability") or None))

    return [
        task_of(benchmark, file, size, variants, maker, nvcc, values)
        for benchmark, file in programs
        for values in sweep(benchmark, sweeps or {})
    ]


def new_result(
    machine: Machine,
    info: Mapping[str, Any],
    plan: Plan,
    *,
    commit: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> ResultFile:
    """An empty result file. ``info`` describes the machine; ``options`` are recorded beside those of the plan."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    recorded = {**plan.options(), **(options or {})}
    return ResultFile(now, __version__, machine.name, dict(info), dict(commit or {}), recorded)


def assembler_for(info: Mapping[str, Any]) -> Callable[[Mapping[str, str]], ArmCode]:
    """The function that assembles the modules of an arm for the machine that ``info`` describes."""
    from ..harness.arm_code import assemble_arm

    return partial(assemble_arm, sm=info.get("compute_capability"))


def default_jobs(machine: Machine, count: int, cores: int) -> int:
    """How many programs run at a time on ``count`` machines. On a GPU several are checked, but one alone is timed.

    >>> from ptxmotion.harness.machine import CUDA, EMULATOR
    >>> [default_jobs(CUDA, *each) for each in ((1, 2), (1, 16), (2, 32))], default_jobs(EMULATOR, 1, 2)
    ([1, 4, 8], 2)
    """
    return count * min(4, max(1, cores // (4 * count))) if machine.stopwatch else cores


def run_once(machine: Machine, tasks: Sequence[Task], report: Callable[[str], None]) -> None:
    """Run each variant once in this process and time nothing, so that a profiler sees these launches only."""
    from ..harness.alias_check import guarded
    from ..harness.contract_guard import under_contracts

    backend = machine.open()
    for task in tasks:
        work, arms = task.make()
        for arm in arms:
            report(f"{task.fullname}: {arm.id}{f': could not be made: {arm.error}' if arm.error else ''}")
            if not arm.error:
                work.run(under_contracts(guarded(backend, arm.promises), arm.contracts), arm.modules, 1)
                backend.synchronize()
