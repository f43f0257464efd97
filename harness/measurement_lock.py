"""Who may be busy while a clock runs: checks go on beside each other, timing waits for them and then runs alone.

Guarantees: `alone` excludes everything else; whoever waits for it is let in before anybody new is, so that timing is
not put off for ever. Not reentrant.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

__all__ = ["Quiet"]


class Quiet:
    """A lock that many may share, or one may have alone.

    >>> quiet = Quiet()
    >>> with quiet.shared(), quiet.shared():
    ...     pass
    >>> with quiet.alone():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting = 0
        self._is_alone = False

    @contextlib.contextmanager
    def shared(self) -> Generator[None]:
        """Be busy beside others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone and not self._waiting)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Be the only one."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_alone and not self._sharing)
                self._is_alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()
