"""A stand-in for a GPU in tests of tuning: the emulator, with a name, and times that the test states.

The environment variable ``FAKE_SECONDS`` is a JSON object: it maps the name of an arm to its seconds; other arms take
100 µs. ``"control": 2`` makes the second entry of the baseline slower.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fake_backend import FakeStopwatch, Weather
from ptxmotion.contract import TunedMachine
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.machine import Machine
from ptxmotion.harness.protocol import CONTROL

__all__ = ["FAKE", "fake_gpu"]

FAKE = TunedMachine("NVIDIA Fake", 4)
_SECONDS = 100e-6


class FakeGpu(EmulatorBackend):
    """The emulator with the name of a GPU, which ``FAKE_GPU`` may change."""

    @property
    def machine(self) -> TunedMachine:
        return TunedMachine(os.environ.get("FAKE_GPU", FAKE.gpu), FAKE.multiprocessors)

    def describe(self) -> dict[str, Any]:
        return {
            "gpu": self.machine.gpu,
            "compute_capability": 90,
            "multiprocessors": FAKE.multiprocessors,
            "driver": "580.1",
            "driver_cuda": "13.0",
        }


def stopwatch(backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]) -> FakeStopwatch:
    seconds = json.loads(os.environ["FAKE_SECONDS"])
    truth: list[float] = []
    for arm in arms:
        is_control = arm.id.endswith(CONTROL)
        truth.append(_SECONDS * seconds.get("control", 1.0) if is_control else _SECONDS * seconds.get(arm.id, 1.0))
    return FakeStopwatch(truth, Weather(noise=0.003), seed)


def fake_gpu(seconds: Mapping[str, float], gpu: str = FAKE.gpu) -> Machine:
    """A machine on which an arm takes so many times 100 µs."""
    environment = {"FAKE_SECONDS": json.dumps(dict(seconds)), "FAKE_GPU": gpu}
    factory, stopwatch = f"{__name__}:FakeGpu", f"{__name__}:stopwatch"
    return Machine("fake", factory, stopwatch, is_deterministic=True, environment=environment)
