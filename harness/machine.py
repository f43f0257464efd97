"""The machines that benchmarks run on, as descriptions that another process can open; the choice for `auto`.

Guarantees: this module loads nothing of CUDA. A child process looks for a GPU, so that the process of the caller does
not load the driver.
Refuses: `MachineMissing`, which names what is missing and how to install it.
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
    """There is no such machine. ``reason`` says why, ``advice`` what to do."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(f"{reason}\n{advice}" if advice else reason)
        self.reason, self.advice = reason, advice


class DeviceFailed(OSError):
    """A device failed: a kernel faulted, or the device is gone."""


@dataclass(frozen=True)
class Machine:
    """The functions that open a backend and a stopwatch on it, named as ``module:function``.

    ``stopwatch`` is empty if nothing can be timed. ``is_deterministic``: equal runs give equal bytes.
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
        """Prepare arms for timing. ``recorded`` maps the id of an arm to the recording of a deterministic run."""
        return _named(self.stopwatch)(backend, work, arms, seed, recorded)


_HERE = __package__ or ""
CUDA = Machine("cuda", f"{_HERE}.cuda:open_backend", f"{_HERE}.cuda_stopwatch:CudaStopwatch")
EMULATOR = Machine("emulator", f"{_HERE.rpartition('.')[0]}.emulator.backend:EmulatorBackend", is_deterministic=True)


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def gpu_count() -> tuple[int, str]:
    """The number of usable GPUs; if it is 0, also the reason."""
    script = f"from {_HERE}.cuda import probe; print(*probe(), sep='\\n')"
    done = subprocess.run(python_command(script), env=child_environment(), capture_output=True, text=True, timeout=120)
    count, _, reason = done.stdout.strip().partition("\n")
    if not count.isdecimal():
        return 0, f"querying the driver failed: {done.stderr.strip().splitlines()[-1:] or done.returncode}"
    return int(count), reason


def choose(wanted: str, require_gpu: bool = False) -> tuple[Machine, int, str]:
    """The machine for `auto`, `cuda` or `emulator`; how many of them there are; and the reason for the choice.

    Raises `MachineMissing` if a GPU is required and there is none.
    """
    if wanted == "emulator" and not require_gpu:
        return EMULATOR, 1, "emulator: chosen with --backend"
    count, reason = gpu_count()
    if count:
        return CUDA, count, f"cuda: {count} GPU{'s' if count > 1 else ''}"
    if wanted == "cuda" or require_gpu:
        raise MachineMissing(f"no GPU: {reason}", "without one, --backend=emulator counts instead of timing")
    return EMULATOR, 1, f"emulator: no GPU: {reason}"
