"""The lock of a machine: checks share the machine, timing has it exclusively.

Guarantees: `exclusive` excludes every other holder. A waiting `exclusive` blocks new `shared` holders, so timing does
not wait forever. The lock is not reentrant.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

__all__ = ["MeasurementLock"]


class MeasurementLock:
    """A readers-writer lock between threads; waiting writers come first.

    >>> lock = MeasurementLock()
    >>> with lock.shared(), lock.shared():
    ...     pass
    >>> with lock.exclusive():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders = 0
        self._waiting = 0
        self._is_exclusive = False

    @contextlib.contextmanager
    def shared(self) -> Generator[None]:
        """Hold the lock together with other `shared` holders."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive and not self._waiting)
            self._holders += 1
        try:
            yield
        finally:
            with self._changed:
                self._holders -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def exclusive(self) -> Generator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_exclusive and not self._holders)
                self._is_exclusive = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()
