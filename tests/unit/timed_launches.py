"""A machine for `fuse --benefit=timing`. A launch takes 10 us; the name of a fused kernel states its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fake_backend import FakeStopwatch, Weather
from ptxmotion.harness.machine import Machine
from ptxmotion.programs.fused_variants import HOST

#: Seconds that a run saves for each pair of kernels that one of its modules fuses.
GAINS = {"scale_shift": -40e-6, "shift_twice": 30e-6}
WHOLE = 200e-6

MACHINE = Machine(
    "emulator", "ptxmotion.emulator.backend:EmulatorBackend", f"{__name__}:stopwatch", is_deterministic=True
)


def seconds(modules: Mapping[str, str]) -> float:
    """The time of a run with these modules in seconds."""
    return WHOLE - sum(gain for pair, gain in GAINS.items() if any(pair in name for name in modules if name != HOST))


def stopwatch(backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]) -> FakeStopwatch:
    """The stopwatch that `MACHINE` names."""
    return FakeStopwatch([seconds(arm.modules) for arm in arms], Weather(noise=0.003), seed)
