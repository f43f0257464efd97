"""A machine that only pretends: scripted drift, throttling and faults for the tests of the protocol.

`FakeStopwatch` is a clock on which arms take the times that a script says: slow drift, steps of the SM clock, heavy
tails, a device that vanishes. `FakeBackend` keeps buffers in host memory and runs kernels that its "PTX" names, one
`kernel NAME BEHAVIOUR [SECONDS]` a line: an honest kernel and each of the cheats that the correctness check must catch.

Guarantees: deterministic for a seed (the behaviour `racy` apart); nothing is timed by a real clock.
Refuses: unknown behaviours raise `ValueError`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .protocol import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BEHAVIOURS", "FakeBackend", "FakeBuffer", "FakeStopwatch", "Weather", "fake_backend", "fake_module"]


@dataclass(frozen=True, slots=True)
class Weather:
    """What befalls a fake machine.

    ``noise`` is the relative standard deviation of a sample, ``tail`` the chance of one that takes 1.3 times as long.
    ``drift`` is the relative change of speed over ``period`` seconds, up and down. Every ``step_seconds`` or so the SM
    clock jumps to one of ``steps``, as shares of full speed; the work slows down with it.
    """

    noise: float = 0.01
    tail: float = 0.01
    drift: float = 0.0
    period: float = 5.0
    step_seconds: float = math.inf
    steps: tuple[float, ...] = (1.0,)
    clock_hz: float = 1.98e9


@dataclass
class FakeStopwatch:
    """Times arms whose true seconds are ``truth``; ``vanish_after`` measurements, the device is gone."""

    truth: Sequence[float]
    weather: Weather = field(default_factory=Weather)
    seed: int = 0
    vanish_after: float = math.inf
    now: float = 0.0
    measured: int = 0

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)
        self._speed = 1.0
        self._next_step = self._random.exponential(self.weather.step_seconds) if self._steps else math.inf
        self._phase = self._random.uniform(0, 2 * math.pi)

    @property
    def _steps(self) -> bool:
        return math.isfinite(self.weather.step_seconds)

    def warm_up(self, arm: int, seconds: float, /) -> float:
        """Let that time pass."""
        self.now += seconds
        return self.truth[arm]

    def measure(self, arm: int, samples: int, /) -> Block:
        """Samples of an arm at the machine's present state."""
        self.measured += 1
        if self.measured > self.vanish_after:
            raise OSError("the device is gone")
        while self.now >= self._next_step:
            self._speed = float(self._random.choice(self.weather.steps))
            self._next_step += self._random.exponential(self.weather.step_seconds)
        factor = 1 + self.weather.drift * math.sin(2 * math.pi * self.now / self.weather.period + self._phase)
        noise = np.exp(self._random.normal(0, self.weather.noise, samples))
        noise *= np.where(self._random.random(samples) < self.weather.tail, 1.3, 1.0)
        seconds = self.truth[arm] * factor / self._speed * noise
        # A sample also costs its L2 flush and its restored inputs.
        self.now += float(seconds.sum()) + samples * 100e-6
        return Block(tuple(seconds.tolist()), self.weather.clock_hz * self._speed)

    def verify(self, arm: int) -> list[str]:
        """Nothing changes what a fake arm computes."""
        return []

    def how(self) -> dict[str, Any]:
        """How it was timed."""
        return {"mode": "stream", "launches_per_sample": 1, "copies": 1, "flushed_bytes": 0}

    def close(self) -> None:
        """There is nothing to give back."""


def fake_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch in fair weather, on which arms take the seconds that their modules say."""
    return FakeStopwatch([_seconds(arm) for arm in arms], Weather(noise=0.003), seed)


def throttled_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """One whose SM clock never holds still."""
    weather = Weather(step_seconds=0.002, steps=(1.0, 0.9, 0.8))
    return FakeStopwatch([_seconds(arm) for arm in arms], weather, seed)


def vanishing_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """One whose device is gone after some rounds."""
    return FakeStopwatch([_seconds(arm) for arm in arms], seed=seed, vanish_after=20)


def hanging_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """One that never comes back."""
    time.sleep(3600)
    raise AssertionError("somebody waited for an hour")


def _seconds(arm: Any) -> float:
    words = [line.split() for text in arm.modules.values() for line in text.splitlines()]
    return sum(float(each[3]) for each in words if len(each) > 3) or 100e-6


class FakeBuffer:
    """Bytes that a fake kernel reads and writes; ``whole`` is the allocation that a view looks into."""

    def __init__(self, whole: NDArray[np.uint8], offset: int, nbytes: int) -> None:
        self.whole, self.offset, self.nbytes = whole, offset, nbytes

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes."""
        return self.whole[self.offset : self.offset + self.nbytes]


@dataclass(frozen=True, slots=True)
class _FakeKernel:
    name: str
    behaviour: str


class _FakeModule:
    def __init__(self, ptx: str) -> None:
        self._kernels: dict[str, _FakeKernel] = {}
        for line in ptx.splitlines():
            word, name, behaviour = line.split()[:3]
            if word != "kernel" or behaviour not in BEHAVIOURS:
                raise ValueError(f"no fake kernel: {line!r}")
            self._kernels[name] = _FakeKernel(name, behaviour)

    def kernel(self, name: str, /) -> _FakeKernel:
        return self._kernels[name]


def fake_module(**kernels: str) -> str:
    """The "PTX" of kernels and their behaviours; a behaviour may be followed by the seconds that the kernel takes.

    >>> fake_module(scale="honest 1e-4")
    'kernel scale honest 1e-4\\n'
    """
    return "".join(f"kernel {name} {behaviour}\n" for name, behaviour in kernels.items())


class FakeBackend:
    """A backend in host memory. A kernel takes ``(input, output)``, float32, and is to set ``output = 2·input + 1``."""

    name = "fake"

    def __init__(self) -> None:
        self.late: list[Callable[[], None]] = []
        self.cache: dict[int, NDArray[np.float32]] = {}

    def load(self, ptx: str, /) -> _FakeModule:
        """A module of fake kernels."""
        return _FakeModule(ptx)

    def allocate(self, nbytes: int, /) -> FakeBuffer:
        """Zeroed bytes, as fresh memory often is: what is never written looks right."""
        return FakeBuffer(np.zeros(nbytes, np.uint8), 0, nbytes)

    def view(self, buffer: FakeBuffer, offset: int, nbytes: int, /) -> FakeBuffer:
        """A part of a buffer."""
        return FakeBuffer(buffer.whole, buffer.offset + offset, nbytes)

    def free(self, buffer: FakeBuffer, /) -> None:
        """Nothing keeps the bytes but the buffer."""

    def write(self, buffer: FakeBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy an array in."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer.data[offset : offset + raw.size] = raw

    def read(self, buffer: FakeBuffer, dtype: np.dtype[Any], count: int, /, offset: int = 0) -> NDArray[Any]:
        """Copy elements out."""
        kind = np.dtype(dtype)
        return buffer.data[offset : offset + count * kind.itemsize].copy().view(kind)

    def fill(self, buffer: FakeBuffer, byte: int, /) -> None:
        """Set every byte."""
        buffer.data[:] = byte

    def launch(self, kernel: _FakeKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Run a kernel's behaviour at once."""
        BEHAVIOURS[kernel.behaviour](self, args[0], args[1])

    def synchronize(self) -> None:
        """Wait for this backend's own stream, which is all a reader of its results waits for."""


def fake_backend() -> FakeBackend:
    """A new one; named as a factory where another process makes its own."""
    return FakeBackend()


def _right(source: FakeBuffer) -> NDArray[np.float32]:
    return 2 * source.data.view(np.float32) + np.float32(1)


def _store(target: FakeBuffer, values: NDArray[np.float32]) -> None:
    target.data.view(np.float32)[:] = values


def _stale(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """Computes once, then gives the same answer to every question."""
    values = machine.cache.setdefault(target.nbytes, _right(source))
    _store(target, values)


def _first_element_unwritten(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    target.data.view(np.float32)[1:] = _right(source)[1:]


def _other_stream(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """What is done elsewhere is done when nobody waits for it any more."""
    machine.late.append(lambda: _store(target, _right(source)))


def _changes_input(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source))
    source.data.view(np.float32)[0] += 1


def _overruns(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source))
    target.whole[target.offset + target.nbytes : target.offset + target.nbytes + 4] = 1


def _racy(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """The last bits depend on an order that nobody fixes, as with float atomics."""
    noise = np.random.default_rng().uniform(-1, 1, source.nbytes // 4) * 2e-7
    _store(target, (_right(source) * (1 + noise)).astype(np.float32))


def _wrong_by_a_thousandth(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source) * np.float32(1.001))


#: What a fake kernel may do.
BEHAVIOURS: dict[str, Callable[[FakeBackend, FakeBuffer, FakeBuffer], None]] = {
    "honest": lambda machine, source, target: _store(target, _right(source)),
    "stale": _stale,
    "unwritten": lambda machine, source, target: None,
    "first_element_unwritten": _first_element_unwritten,
    "other_stream": _other_stream,
    "changes_input": _changes_input,
    "nan": lambda machine, source, target: _store(target, np.full(target.nbytes // 4, np.nan, np.float32)),
    "overruns": _overruns,
    "racy": _racy,
    "wrong_by_a_thousandth": _wrong_by_a_thousandth,
    "never_ends": lambda machine, source, target: time.sleep(3600),
}
