"""Work items, arms and sessions on the fake machine, for the tests of the protocol."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fake_backend import FakeBackend, FakeStopwatch, fake_module, fake_stopwatch
from numpy.typing import NDArray
from ptxmotion.harness.machine import Machine, MachineMissing
from ptxmotion.harness.protocol import Plan
from ptxmotion.harness.results import ResultFile
from ptxmotion.harness.session import Limits, Session, Task
from ptxmotion.harness.stats import Rule
from ptxmotion.harness.workload import Arm, KernelWork

FAKE = "fake_backend"
PLAN = Plan(rounds=12, doublings=1, warm_up_seconds=0.0, rule=Rule(resamples=500))


def machine(stopwatch: str = "fake_stopwatch") -> Machine:
    return Machine("fake", f"{FAKE}:fake_backend", f"{FAKE}:{stopwatch}" if stopwatch else "")


def work(name: str = "suite/scale") -> KernelWork:
    arrays = {"source": ("float32", 1000), "target": ("float32", 1000)}
    one = (1, 1, 1)
    return KernelWork(name, "m", "scale", one, one, arrays, ("source", "target"), ("target",), group="suite")


@dataclass(frozen=True)
class CountedWork(KernelWork):
    """A work that declares 8000 bytes of traffic and 1000 elements."""

    @property
    def amounts(self) -> dict[str, float]:
        return {"bytes": 8000.0, "elements": 1000.0}


def counted_task(name: str, *arms: Arm) -> Task:
    """A task that runs a `CountedWork`."""
    plain = work(name)
    fields = {each: getattr(plain, each) for each in plain.__dataclass_fields__}
    return Task(name, lambda: (CountedWork(**fields), list(arms)))


def arm(id: str, behaviour: str = "honest") -> Arm:
    return Arm(id, {"m": fake_module(scale=behaviour)})


@dataclass(frozen=True)
class FakeCode:
    """An arm whose "machine code" is its text."""

    text: str

    @property
    def cubin_sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def is_same_code(self, other: FakeCode, /) -> bool:
        return self.text == other.text

    def static(self, launches: Mapping[str, tuple[int, int]] | None = None, /) -> dict[str, dict[str, Any]]:
        return {"scale": {"registers": len(self.text)}}


def assembler(modules: Mapping[str, str]) -> FakeCode:
    return FakeCode("".join(modules.values()))


def empty_result(**options: Any) -> ResultFile:
    return ResultFile("2026-01-01T00:00:00+00:00", "0", "fake", {}, {}, options)


def session(
    on: Machine | None = None,
    path: Path | None = None,
    plan: Plan = PLAN,
    check: float = 60.0,
    jobs: int = 1,
    messages: list[str] | None = None,
    machines: int = 1,
) -> Session:
    lines = messages if messages is not None else []
    limits = Limits(check=check, round=check)
    return Session(
        on or machine(),
        plan,
        empty_result(),
        assembler=assembler,
        path=path,
        limits=limits,
        jobs=jobs,
        machines=machines,
        report=lines.append,
    )


def flaky_backend() -> FakeBackend:
    """A backend that fails after the file of that name exists."""
    if Path(os.environ["GONE"]).exists():
        raise MachineMissing("no GPU can be used: cuInit says CUDA_ERROR_NO_DEVICE")
    return FakeBackend()


def dying_stopwatch(
    backend: FakeBackend, timed: KernelWork, arms: list[Arm], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch whose device fails on the second work item and ends the process."""
    if timed.fullname.endswith("/b"):
        Path(os.environ["GONE"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return fake_stopwatch(backend, timed, arms, seed, recorded)


def biased_stopwatch(
    backend: FakeBackend, timed: KernelWork, arms: list[Arm], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch that measures the second baseline as slower than the first."""
    watch = fake_stopwatch(backend, timed, arms, seed, recorded)
    watch.truth = [seconds * (1.03 if number == 1 else 1) for number, seconds in enumerate(watch.truth)]
    return watch


def logging_stopwatch(
    backend: FakeBackend, timed: KernelWork, arms: list[Arm], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch that writes to a file of its machine when it begins and ends, and takes some time."""

    class Noting(FakeStopwatch):
        def close(self) -> None:
            note("end")

    def note(what: str) -> None:
        with Path(os.environ["NOTES"], os.environ["CUDA_VISIBLE_DEVICES"]).open("a") as file:
            file.write(f"{what} {timed.fullname}\n")

    note("begin")
    time.sleep(0.05)
    return Noting(fake_stopwatch(backend, timed, arms, seed, recorded).truth)


def noting_backend() -> FakeBackend:
    """A backend that logs every launch to the same file as the stopwatch above."""

    class Noting(FakeBackend):
        def launch(self, *given: Any) -> None:
            with Path(os.environ["NOTES"], os.environ["CUDA_VISIBLE_DEVICES"]).open("a") as file:
                file.write("launch\n")
            super().launch(*given)

    return Noting()


def task(name: str, *arms: Arm) -> Task:
    return Task(name, lambda: (work(name), list(arms)))


def array(values: list[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)
