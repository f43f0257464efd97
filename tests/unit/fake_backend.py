"""A simulated machine with drift, throttling and faults, for the tests of the measuring protocol.

`FakeStopwatch` gives times from a simulation: slow drift, steps of the SM clock, heavy tails, a device that fails.
`FakeBackend` has buffers in host memory. Its "PTX" has one line `kernel NAME BEHAVIOUR [SECONDS]` for each kernel: a
correct behaviour, or one of the errors that the correctness check must detect.

Guarantees: deterministic for a seed (except the behaviour `racy`); no real clock is read.
Refuses: unknown behaviours raise `ValueError`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from ptxmotion.harness.protocol import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BEHAVIOURS", "FakeBackend", "FakeBuffer", "FakeStopwatch", "Weather", "fake_backend", "fake_module"]


@dataclass(frozen=True, slots=True)
class Weather:
    """The disturbances of a simulated machine.

    ``noise`` is the relative standard deviation of a sample, ``tail`` the probability that a sample takes 1.3 times as
    long. ``drift`` is the amplitude of a periodic change of speed over ``period`` seconds. On average every
    ``step_seconds`` the SM clock changes to one of ``steps`` (fractions of full speed), and the work with it.
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
    """Times arms whose true seconds are ``truth``. After ``vanish_after`` measurements the device fails."""

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
        """Advance the simulated time."""
        self.now += seconds
        return self.truth[arm]

    def measure(self, arm: int, samples: int, /) -> Block:
        """Samples of an arm in the current state of the machine."""
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
        # A sample also takes the time of its L2 flush and its restored inputs.
        self.now += float(seconds.sum()) + samples * 100e-6
        return Block(tuple(seconds.tolist()), self.weather.clock_hz * self._speed)

    def verify(self, arm: int) -> list[str]:
        """No errors: timing does not run the arm."""
        return []

    def how(self) -> dict[str, Any]:
        """How the arms were timed."""
        return {"mode": "stream", "launches_per_sample": 1, "copies": 1, "flushed_bytes": 0}

    def close(self) -> None:
        """Do nothing: there are no resources."""


def fake_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch with little noise. Arms take the seconds that their modules state."""
    return FakeStopwatch([_seconds(arm) for arm in arms], Weather(noise=0.003), seed)


def throttled_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch whose SM clock changes all the time."""
    weather = Weather(step_seconds=0.002, steps=(1.0, 0.9, 0.8))
    return FakeStopwatch([_seconds(arm) for arm in arms], weather, seed)


def vanishing_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch whose device fails after some rounds."""
    return FakeStopwatch([_seconds(arm) for arm in arms], seed=seed, vanish_after=20)


def hanging_stopwatch(
    backend: Any, work: Any, arms: Sequence[Any], seed: int, recorded: Mapping[str, Any]
) -> FakeStopwatch:
    """A stopwatch that never returns."""
    time.sleep(3600)
    raise AssertionError("the limit was not enforced")


def _seconds(arm: Any) -> float:
    words = [line.split() for text in arm.modules.values() for line in text.splitlines()]
    return sum(float(each[3]) for each in words if len(each) > 3) or 100e-6


class FakeBuffer:
    """Bytes that a simulated kernel reads and writes. ``whole`` is the allocation that contains a view."""

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
                raise ValueError(f"not a simulated kernel: {line!r}")
            self._kernels[name] = _FakeKernel(name, behaviour)

    def kernel(self, name: str, /) -> _FakeKernel:
        return self._kernels[name]


def fake_module(**kernels: str) -> str:
    """The "PTX" of kernels and their behaviours. The seconds of the kernel may follow the behaviour.

    >>> fake_module(scale="honest 1e-4")
    'kernel scale honest 1e-4\\n'
    """
    return "".join(f"kernel {name} {behaviour}\n" for name, behaviour in kernels.items())


class FakeBackend:
    """A backend in host memory. A correct kernel takes ``(input, output)``, float32: ``output = 2·input + 1``."""

    name = "fake"

    def __init__(self) -> None:
        self.late: list[Callable[[], None]] = []
        self.cache: dict[int, NDArray[np.float32]] = {}

    def load(self, ptx: str, /) -> _FakeModule:
        """A module of simulated kernels."""
        return _FakeModule(ptx)

    def allocate(self, nbytes: int, /) -> FakeBuffer:
        """Zeroed bytes, as new memory often is, so that an unwritten zero looks correct."""
        return FakeBuffer(np.zeros(nbytes, np.uint8), 0, nbytes)

    def view(self, buffer: FakeBuffer, offset: int, nbytes: int, /) -> FakeBuffer:
        """A part of a buffer."""
        return FakeBuffer(buffer.whole, buffer.offset + offset, nbytes)

    def free(self, buffer: FakeBuffer, /) -> None:
        """Do nothing: Python frees the bytes with the buffer."""

    def write(self, buffer: FakeBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy an array to the buffer."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer.data[offset : offset + raw.size] = raw

    def read(self, buffer: FakeBuffer, dtype: np.dtype[Any], count: int, /, offset: int = 0) -> NDArray[Any]:
        """Copy elements from the buffer."""
        kind = np.dtype(dtype)
        return buffer.data[offset : offset + count * kind.itemsize].copy().view(kind)

    def fill(self, buffer: FakeBuffer, byte: int, /) -> None:
        """Set every byte."""
        buffer.data[:] = byte

    def launch(self, kernel: _FakeKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Run the behaviour of a kernel at once."""
        BEHAVIOURS[kernel.behaviour](self, args[0], args[1])

    def synchronize(self) -> None:
        """Do nothing: the stream is always empty. Work on other streams (`late`) is not waited for."""


def fake_backend() -> FakeBackend:
    """A new backend: the factory that another process calls by name."""
    return FakeBackend()


def _right(source: FakeBuffer) -> NDArray[np.float32]:
    return 2 * source.data.view(np.float32) + np.float32(1)


def _store(target: FakeBuffer, values: NDArray[np.float32]) -> None:
    target.data.view(np.float32)[:] = values


def _stale(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """Computes the first result and then returns it for every input."""
    values = machine.cache.setdefault(target.nbytes, _right(source))
    _store(target, values)


def _first_element_unwritten(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    target.data.view(np.float32)[1:] = _right(source)[1:]


def _other_stream(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """Writes the result on another stream, too late."""
    machine.late.append(lambda: _store(target, _right(source)))


def _changes_input(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source))
    source.data.view(np.float32)[0] += 1


def _overruns(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source))
    target.whole[target.offset + target.nbytes : target.offset + target.nbytes + 4] = 1


def _racy(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    """The last bits depend on the order of operations, as with float atomics."""
    noise = np.random.default_rng().uniform(-1, 1, source.nbytes // 4) * 2e-7
    _store(target, (_right(source) * (1 + noise)).astype(np.float32))


def _wrong_by_a_thousandth(machine: FakeBackend, source: FakeBuffer, target: FakeBuffer) -> None:
    _store(target, _right(source) * np.float32(1.001))


#: The behaviours of simulated kernels by name.
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
