"""Reading a mutated PTX text succeeds or raises `PtxError` in a short time. Printing what was read is stable."""

import random
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from mutate import mutate
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.ptx.verify import problems

SEEDS = [path.read_text() for path in sorted((Path(__file__).parent / "seeds").glob("*.ptx"))]

#: The number of mutants without --fuzz-n, the least number with it, and mutants in one test case.
FIXED = 600
FUZZED = 20_000
SHARE = 100

#: Seconds for one mutant; the seeds take milliseconds.
LIMIT = 10


class TooSlow(Exception):
    """Reading a mutant took longer than `LIMIT`."""


@contextmanager
def time_limit(seconds: int) -> Generator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def survives(text: str) -> bool:
    """Whether ``text`` is read as a valid module.

    An error must have a place. The text that a module prints must be read and printed without a change.
    """
    try:
        module = parse(text, "mutant.ptx")
    except PtxError as error:
        assert error.pos >= 0
        assert str(error).startswith("mutant.ptx:")
        return False
    found = problems(module)
    for error in found:
        assert error.pos >= 0
        assert "error: " in str(error)
    if found:
        return False
    printed = print_module(module)
    again = parse(printed)
    assert print_module(again) == printed
    assert problems(again) == []
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0)
        metafunc.parametrize("share", range((max(count, FUZZED) if count else FIXED) // SHARE))


@pytest.mark.fuzz
def test_mutated_texts_end_no_command_with_an_internal_error(share: int, pytestconfig: pytest.Config) -> None:
    is_random = bool(pytestconfig.getoption("--fuzz-n"))
    seed = random.randrange(1 << 60) if is_random else share
    rng = random.Random(seed)
    for number in range(SHARE):
        text = mutate(SEEDS, rng)
        try:
            with time_limit(LIMIT):
                survives(text)
        except BaseException as error:
            error.add_note(f"mutant {number} of seed {seed}:\n{text}")
            raise


@pytest.mark.parametrize("text", SEEDS, ids=[text.split("\n")[0] for text in SEEDS])
def test_seeds_are_sound(text: str) -> None:
    assert survives(text)


def test_some_mutants_survive_and_some_do_not() -> None:
    """If all or none of them were refused, the other test would show little."""
    rng = random.Random(1)
    alive = sum(survives(mutate(SEEDS, rng)) for _ in range(200))
    assert 10 < alive < 190
