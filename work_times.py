"""How often something was done, and the seconds that it took, by its name.

Imports no other module of this package, so every folder may import it.
"""

from __future__ import annotations

import time
from types import TracebackType

__all__ = ["WorkTimes"]


class WorkTimes:
    """Name of the work → its seconds, and how often it was done.

    >>> times = WorkTimes()
    >>> with times.measure("sleep"):
    ...     time.sleep(0.01)
    >>> times.numbers, times.seconds["sleep"] > 0.009
    ({'sleep': 1}, True)
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.numbers: dict[str, int] = {}

    def measure(self, name: str) -> _Measurement:
        """A context manager: its block is done once more, and its time is added."""
        return _Measurement(self, name)

    def add(self, name: str, seconds: float) -> None:
        """Count work that took ``seconds``."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self.numbers[name] = self.numbers.get(name, 0) + 1


class _Measurement:
    def __init__(self, times: WorkTimes, name: str) -> None:
        self._times = times
        self._name = name
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._times.add(self._name, time.perf_counter() - self._started)
