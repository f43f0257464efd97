"""The progress of long work: one line on stderr, if that is a terminal and the work takes longer than `DELAY`.

The line shows the time since the start. A thread draws it, so it moves also while a step takes long.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["Progress"]

#: Seconds before the line is shown.
DELAY = 0.5


class Progress:
    """A context manager. `update` sets what the line says; `print` writes to stdout, also while the line is shown."""

    def __init__(self) -> None:
        self.is_active = sys.stderr.isatty()
        self._state: dict[str, Any] = {"description": "", "completed": 0, "total": None}
        self._bar: Any = None
        self._task: Any = None
        self._timer = threading.Timer(DELAY, self._show)
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        if self.is_active:
            self._timer.start()
        return self

    def update(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Show ``text``, and a bar with ``done`` of ``total`` steps if there is a total."""
        with self._lock:
            self._state = {"description": text, "completed": done, "total": total}
            if self._bar is not None:
                self._bar.update(self._task, **self._state)

    def print(self, text: str) -> None:
        """Write ``text`` to stdout at once."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            sys.stdout.write(text)
            sys.stdout.flush()
            if self._bar is not None:
                self._bar.start()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        # By default, rich sends to stderr what is printed on stdout while the line is shown.
        bar = Bar(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
        with self._lock:
            self._task = bar.add_task(**self._state)
            bar.start()
            self._bar = bar

    def __exit__(self, *_: object) -> None:
        if self.is_active:
            self._timer.cancel()
            self._timer.join()
        if self._bar is not None:
            self._bar.stop()
