"""While a module is made the cyclic collector stands still, and what was made is old for it afterwards."""

import gc
import weakref

import pytest
from ptxmotion.ptx import collector
from ptxmotion.ptx.collector import paused


class Node:
    """Something that can stand in a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.mark.parametrize("promotes", [False, True])
def test_it_runs_again_afterwards(promotes: bool) -> None:
    with paused(promotes=promotes):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="bad"), paused(promotes=promotes):
        raise ValueError("bad")
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with paused(promotes=True):
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_made_is_of_the_oldest_generation() -> None:
    with paused(promotes=True):
        node = Node()
    assert any(each is node for each in gc.get_objects(2))
    assert gc.get_freeze_count() == 0


def test_what_the_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        with paused(promotes=True):
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_garbage_that_was_promoted_is_found_in_the_end() -> None:
    with paused(promotes=True):
        node = Node()
    found = weakref.ref(node)
    del node
    for _ in range(collector._MOST_PROMOTIONS + 1):  # pyright: ignore[reportPrivateUsage]
        with paused(promotes=True):
            pass
    assert found() is None
