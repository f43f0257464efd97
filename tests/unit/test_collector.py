"""While a module is made the cyclic collector stands still, and what was made is old for it afterwards."""

import gc
import weakref
from collections import Counter
from pathlib import Path

import pytest
from ptxmotion.ptx import collector, load
from ptxmotion.ptx.collector import paused
from ptxmotion.ptx.verify import verify_kernel
from ptxmotion.transforms.pipeline import Pipeline, pipeline_of
from ptxmotion.transforms.remarks import Remarks

PTX = Path(__file__).parents[1] / "ptx"


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


def _facts_alive() -> Counter[str]:
    """How many objects of analyses and transforms there are, by class."""
    alive: Counter[str] = Counter()
    for each in gc.get_objects():
        if str(type(each).__module__).startswith(("ptxmotion.analysis.", "ptxmotion.transforms.")):
            alive[type(each).__qualname__] += 1
    return alive


@pytest.mark.parametrize("name", ["srqp_stencil", "srqp_refusals", "lcm_diamond", "vectormerge", "deadstores"])
def test_facts_die_without_it(name: str) -> None:
    """Nobody collects while a module is transformed, so what is found out of a kernel must go by itself."""
    first, module = (load(str(PTX / f"{name}.ptx")) for _ in range(2))
    pipeline = Pipeline(pipeline_of("O3"), lambda kernel, of: verify_kernel(kernel, of.source))
    pipeline.run(first, Remarks(first))  # which makes what is kept by opcode
    remarks = Remarks(module)
    gc.collect()
    gc.disable()
    try:
        before = _facts_alive()
        pipeline.run(module, remarks)
        left = _facts_alive() - before
    finally:
        gc.enable()
    assert set(left) <= {"Remark"}
