"""Checks share a machine; timing has it alone, and does not wait for checks that come later."""

from __future__ import annotations

import threading

from ptxmotion.harness.measurement_lock import MeasurementLock

#: Seconds until a thread that should get the lock has it, and until one that should not would have it.
ENOUGH, SHORT = 20.0, 0.05


class Holder(threading.Thread):
    """Takes the lock and holds it until `leave` is called."""

    def __init__(self, lock: MeasurementLock, *, exclusive: bool) -> None:
        super().__init__(daemon=True)
        self._manager = lock.exclusive() if exclusive else lock.shared()
        self.has_it, self._may_leave = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._manager:
            self.has_it.set()
            self._may_leave.wait(ENOUGH)

    def leave(self) -> None:
        self._may_leave.set()
        self.join(ENOUGH)


def test_timing_excludes_every_other_holder() -> None:
    lock = MeasurementLock()
    one, two = Holder(lock, exclusive=False), Holder(lock, exclusive=False)
    assert one.has_it.wait(ENOUGH) and two.has_it.wait(ENOUGH)
    timing = Holder(lock, exclusive=True)
    one.leave()
    assert not timing.has_it.wait(SHORT)
    two.leave()
    assert timing.has_it.wait(ENOUGH)
    others = [Holder(lock, exclusive=True), Holder(lock, exclusive=False)]
    assert not any(each.has_it.wait(SHORT) for each in others)
    timing.leave()
    for each in others:
        each.leave()
        assert each.has_it.is_set()


def test_checks_that_come_later_let_timing_go_first() -> None:
    lock = MeasurementLock()
    check = Holder(lock, exclusive=False)
    assert check.has_it.wait(ENOUGH)
    timing = Holder(lock, exclusive=True)
    assert not timing.has_it.wait(SHORT)
    later = Holder(lock, exclusive=False)
    assert not later.has_it.wait(SHORT)
    check.leave()
    assert timing.has_it.wait(ENOUGH) and not later.has_it.wait(SHORT)
    timing.leave()
    assert later.has_it.wait(ENOUGH)
    later.leave()
