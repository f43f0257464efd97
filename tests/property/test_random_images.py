"""Kernels with textures and surfaces: no pass changes what they store."""

from __future__ import annotations

import random

import pytest
from ladder import Ladder, Launch, refused
from ptxmotion.ptx import parse, print_module
from random_images import RandomImages, random_images
from test_transforms import LISTS, SHUFFLED

SIZES = (6, 12, 25, 50)

#: Programs without --fuzz-n, and programs in one test case.
FIXED, SHARE = 24, 8


def program(seed: int) -> RandomImages:
    return random_images(seed, SIZES[seed % len(SIZES)])


def ladder_of(drawn: RandomImages, seed: int) -> Ladder:
    return Ladder(drawn.ptx, Launch("fuzz", (1,), (32,), 0, drawn.make_inputs), (seed,))


@pytest.mark.fuzz
def test_no_pass_changes_what_threads_read(seeds: list[int]) -> None:
    for seed in seeds:
        ladder = ladder_of(program(seed), seed)
        assert ladder.is_sound, (seed, ladder.fault, ladder.before[0].details)
        rng = random.Random(f"lists:{seed}")
        for passes in (rng.choice(LISTS), ",".join(rng.choice(SHUFFLED) for _ in range(3)), "O3"):
            assert ladder.faults(passes, schedule=rng.choice(["order", "random"])) == [], (seed, passes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_ptxas_accepts_transformed_kernels_with_textures(seed: int) -> None:
    drawn = program(seed)
    assert refused(drawn.ptx) == ""
    assert ladder_of(drawn, seed).faults("O3", ptxas=True) == []


def test_a_lost_store_to_a_surface_is_noticed() -> None:
    """The surfaces are compared, not only the array."""
    noticed = 0
    for seed in range(20):
        drawn = program(seed)
        lines = drawn.ptx.splitlines(keepends=True)
        stores = [at for at, line in enumerate(lines) if line.startswith("\tsust")]
        for at in stores[:1]:
            shorter = "".join(lines[:at] + lines[at + 1 :])
            found = ladder_of(drawn, seed).judge(print_module(parse(shorter)))
            noticed += any("array" in line or "written" in line for line in found)
    assert noticed >= 5


def test_the_programs_cover_the_opcodes() -> None:
    text = "".join(program(seed).ptx for seed in range(60))
    for word in ("tex.2d", "tex.3d", ".s32.f32", "suld.b.2d.b32", "suld.b.2d.b8", "sust.b.2d.b32", "txq.", "suq."):
        assert text.count(word) >= 5, word
