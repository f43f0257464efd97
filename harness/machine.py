"""Machines that benchmarks run on, described so that another process can open them; and which one `auto` is.

Guarantees: nothing of CUDA is loaded here; whether there is a GPU is asked in a child process, so that the caller's own
process stays free of the driver.
Refuses: `MachineMissing`, which names what is missing and how to get it.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..python_child import child_environment, python_command
from .protocol import Stopwatch
from .workload import Arm, Recording, Work

__all__ = ["CUDA", "EMULATOR", "DeviceFailed", "Machine", "MachineMissing", "choose", "gpu_count"]


class MachineMissing(Exception):
    """There is no such machine here. ``advice`` says what to do."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(f"{reason}\n{advice}" if advice else reason)
        self.reason, self.advice = reason, advice


class DeviceFailed(OSError):
    """A device that was there failed: a kernel faulted, or the device is gone."""


@dataclass(frozen=True)
class Machine:
    """How to open a backend, and a stopwatch on it; both are named as ``module:function``.

    ``stopwatch`` is empty where nothing can be timed. ``is_deterministic``: the same run gives the same bytes.
    """

    name: str
    backend: str
    stopwatch: str = ""
    is_deterministic: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def open(self) -> Any:
        """Open the backend. Raises `MachineMissing`."""
        return _named(self.backend)()

    def open_stopwatch(
        self, backend: Any, work: Work, arms: list[Arm], seed: int, recorded: Mapping[str, Recording]
    ) -> Stopwatch:
        """Make arms ready to be timed. ``recorded`` has runs, by arm, that are known to give the same each time."""
        return _named(self.stopwatch)(backend, work, arms, seed, recorded)


_HERE = __package__ or ""
CUDA = Machine("cuda", f"{_HERE}.cuda:open_backend", f"{_HERE}.cuda_stopwatch:CudaStopwatch")
EMULATOR = Machine("emulator", f"{_HERE.rpartition('.')[0]}.emulator.backend:EmulatorBackend", is_deterministic=True)


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def gpu_count() -> tuple[int, str]:
    """How many GPUs can be used here; and, if none, why."""
    script = f"from {_HERE}.cuda import probe; print(*probe(), sep='\\n')"
    done = subprocess.run(python_command(script), env=child_environment(), capture_output=True, text=True, timeout=120)
    count, _, reason = done.stdout.strip().partition("\n")
    if not count.isdecimal():
        return 0, f"asking the driver failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
    return int(count), reason


def choose(wanted: str, require_gpu: bool = False) -> tuple[Machine, int, str]:
    """The machine for `auto`, `cuda` or `emulator`; how many of it there are; and a line that says why this one.

    Raises `MachineMissing` where a GPU is asked for and there is none.
    """
    if wanted == "emulator" and not require_gpu:
        return EMULATOR, 1, "emulator: as asked for"
    count, reason = gpu_count()
    if count:
        return CUDA, count, f"cuda: {count} GPU{'s' if count > 1 else ''}"
    if wanted == "cuda" or require_gpu:
        raise MachineMissing(f"no GPU: {reason}", "without one, --backend=emulator counts instead of timing")
    return EMULATOR, 1, f"emulator: no GPU: {reason}"
