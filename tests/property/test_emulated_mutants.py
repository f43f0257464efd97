"""If the verifier accepts a module, the emulator runs it, refuses it by name, or ends it with a finding."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from mutate import mutate
from ptxmotion.emulator import Emulator, EmulatorError
from ptxmotion.ptx import Kernel, Module, PtxError, parse
from ptxmotion.ptx.verify import problems
from test_mutants import SEEDS, SHARE, time_limit

#: The number of mutants without --fuzz-n, and the least number with it.
FIXED = 300
FUZZED = 20_000
#: Seconds for one mutant, and instructions that one launch may issue.
LIMIT, BUDGET = 20, 1_000
#: The largest parameter that an entry may have; mutants have larger ones.
MOST_BYTES = 4352
#: Elements of each array.
WORDS = 1024


def accepted(text: str) -> Module | None:
    """The module, if parser and verifier accept it."""
    try:
        module = parse(text, "mutant.ptx")
    except PtxError:
        return None
    return None if problems(module) else module


def arguments(entry: Kernel) -> list[np.ndarray[Any, Any] | bytes]:
    """An array for each parameter that may be a pointer, zeros for the others."""
    return [
        np.arange(WORDS, dtype=np.uint32) if param.type.bits == 64 and not param.dims else bytes(param.bytes)
        for param in entry.params or ()
    ]


def ran(module: Module) -> int:
    """How many entries of ``module`` were run to their end. All others must raise an `EmulatorError`."""
    count = 0
    for entry in module.entries:
        if any(not 0 < param.bytes <= MOST_BYTES for param in entry.params or ()):
            continue
        try:
            Emulator(budget=BUDGET).load(module).launch(entry.name, 2, 64, arguments(entry), keep_going=True)
            count += 1
        except EmulatorError:
            continue
    return count


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0)
        metafunc.parametrize("share", range((max(count, FUZZED) if count else FIXED) // SHARE))


@pytest.mark.fuzz
def test_mutants_end_in_order(share: int, pytestconfig: pytest.Config) -> None:
    seed = random.randrange(1 << 60) if pytestconfig.getoption("--fuzz-n") else share
    rng = random.Random(seed)
    for number in range(SHARE):
        text = mutate(SEEDS, rng)
        try:
            with time_limit(LIMIT):
                module = accepted(text)
                if module is not None:
                    ran(module)
        except BaseException as error:
            error.add_note(f"mutant {number} of seed {seed}:\n{text}")
            raise


def test_some_mutants_run_and_some_do_not() -> None:
    rng = random.Random(1)
    modules = [module for module in (accepted(mutate(SEEDS, rng)) for _ in range(150)) if module is not None]
    count = sum(ran(module) > 0 for module in modules)
    assert len(modules) // 10 < count < len(modules)
