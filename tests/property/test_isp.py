"""Iteration space partitioning on random stencils and random checks of coordinates, with the checks of `ladder`."""

from __future__ import annotations

import re
import time
from collections import Counter

import pytest
from ladder import Ladder, Launch
from ptxmotion.ptx import parse, print_module
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks
from random_border_checks import random_border_checks
from random_stencils import random_stencil

LISTS = (
    "isp:least=1",
    "isp:least=1,copyprop,dce,emptyblocks",
    "isp:least=1,O1",
    "isp:least=1,sscm:min_cost=0,dce",
    "isp:least=1:edges=20000",
    "isp:least=1:edges=20000,copyprop,dce,emptyblocks",
    "isp:least=1:edges=20000,sscm:min_cost=0,ssrqp,dce",
)
CHECK_LISTS = (
    *LISTS,
    "isp:least=1,lcm:min_cost=0,sscm:min_cost=0,ssrqp,dce",
    "lcm:min_cost=0,isp:least=1,dce",
    "sscm,ssrqp,isp:least=1,vectormerge,readonly,deadstores,copyprop,dce,emptyblocks",
)
#: A pass over one of these kernels takes less than 0.1 s.
SECONDS = 20.0
SHARE = 20
FIXED = 120


def ladder_of(seed: int) -> Ladder:
    stencil = random_stencil(seed)
    launch = Launch("k", stencil.grid, stencil.block, 0, stencil.arguments)
    return Ladder(stencil.ptx, launch, (seed,), budget=400_000)


@pytest.mark.fuzz
def test_a_stencil_computes_the_same(seeds: list[int]) -> None:
    for seed in seeds:
        ladder = ladder_of(seed)
        assert ladder.is_sound, (seed, ladder.before[0].fault, ladder.before[0].details[:2])
        passes = LISTS[seed % len(LISTS)].replace("O1", "lcm,dce,emptyblocks")
        assert ladder.faults(passes) == [], (seed, passes)


@pytest.mark.fuzz
def test_checks_of_coordinates_have_the_same_outcomes(seeds: list[int]) -> None:
    for seed in seeds:
        checks = random_border_checks(seed)
        passes = CHECK_LISTS[seed % len(CHECK_LISTS)].replace("O1", "lcm,dce,emptyblocks")
        started = time.perf_counter()
        module = parse(checks.ptx)
        is_split = run_passes(module, "isp:least=1", Remarks(module))
        assert time.perf_counter() - started < SECONDS, seed
        if is_split:
            launch = Launch("k", checks.grid, checks.block, 0, checks.arguments)
            ladder = Ladder(checks.ptx, launch, (seed,), budget=400_000)
            assert ladder.is_sound, (seed, ladder.before[0].fault, ladder.before[0].details[:2])
            assert ladder.faults(passes) == [], (seed, passes)


def test_stencils_are_split_and_their_interiors_run() -> None:
    """Most stencils are split, and many launches run the copy. Otherwise the property would test little."""
    counted: Counter[str] = Counter()
    for seed in range(40):
        stencil = random_stencil(seed)
        module = parse(stencil.ptx)
        remarks = Remarks(module)
        counted["all"] += 1
        if not run_passes(module, "isp:least=1", remarks):
            continue
        counted["split"] += 1
        counted["interior"] += runs_interior(print_module(module), seed)
    assert counted["split"] >= 25 and counted["interior"] >= 8, counted


def test_copies_for_edges_run() -> None:
    """Many stencils get copies for edges, and blocks run them."""
    counted: Counter[str] = Counter()
    for seed in range(40):
        module = parse(random_stencil(seed).ptx)
        run_passes(module, "isp:least=1:edges=20000", Remarks(module))
        ptx = print_module(module)
        # The branches to the copies of edges are those between the label of the border and the branch to the body.
        _, _, switch = ptx.partition("$L_isp_border0:")
        switch, body, _ = switch.partition("$L_isp_body0;")
        labels = re.findall(r"@%\w+ bra (\$\w+);", switch) if body else []
        counted["copies"] += len(labels)
        for label in labels:
            counted["run"] += traps(ptx.replace(f"\n{label}:", f"\n{label}:\n\ttrap;", 1), seed)
    assert counted["copies"] >= 40 and counted["run"] >= 20, counted


def runs_interior(ptx: str, seed: int) -> bool:
    """Whether a block runs the copy, which stands before the label of the body."""
    return traps(ptx.replace("isp_border0;", "isp_border0;\n\ttrap;", 1), seed)


def traps(marked: str, seed: int) -> bool:
    """Whether a thread of the launch reaches a trap."""
    stencil = random_stencil(seed)
    launch = Launch("k", stencil.grid, stencil.block, 0, stencil.arguments)
    return bool(Ladder(marked, launch, (seed,), budget=400_000).fault)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_ptxas_accepts_a_split_stencil(seed: int) -> None:
    assert ladder_of(seed).faults("isp:least=1", ptxas=True) == []
