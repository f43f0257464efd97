"""Python's cyclic garbage collector while a module is made or transformed.

What is parsed is many small objects that live long and stand in no cycles, so that looking through them for garbage is
in vain. The collector would do so thrice: once when it comes back, and once for each generation that they survive.
Facts about a kernel are many more, which die with it; they stand in no cycles either, once `Facts.drop` has run.

Guarantees: the collector is on or off afterwards as it was before; garbage in cycles is still found.
Reference: the documentation of Python's module ``gc``, ``gc.freeze``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["is_large", "paused"]

#: A text of this many characters makes so many objects that looking for garbage among them costs more than a look at
#: everything else.
_LARGE = 1 << 17

#: Promotions that may follow each other before everything is looked through: each one sets back the counts by which
#: the collector knows that this is due.
_MOST_PROMOTIONS = 16


class _Promotions:
    """Moves all objects to the oldest generation without looking at them, and sees to it that this one is looked
    through now and then."""

    def __init__(self) -> None:
        self.since_collection = 0

    def prepare(self) -> None:
        """Collect garbage if that is due, while there is little to look through."""
        if self.since_collection >= _MOST_PROMOTIONS:
            self.since_collection = 0
            gc.collect()

    def promote(self) -> None:
        if gc.get_freeze_count() == 0:  # else the program has frozen objects, which are to stay so
            gc.freeze()
            gc.unfreeze()
            self.since_collection += 1


_PROMOTIONS = _Promotions()


def is_large(text: str) -> bool:
    """Whether what is made of ``text`` is worth promoting."""
    return len(text) >= _LARGE


@contextmanager
def paused(*, promotes: bool) -> Generator[None]:
    """Do without collections; with ``promotes``, what is made meanwhile counts as old and known to be in use."""
    if not gc.isenabled():
        yield
        return
    if promotes:
        _PROMOTIONS.prepare()
    gc.disable()
    try:
        yield
    finally:
        if promotes:
            _PROMOTIONS.promote()
        gc.enable()
