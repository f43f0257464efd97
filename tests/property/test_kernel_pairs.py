"""Random pairs of kernels: no verdict is weaker than the true relation requires, and the fused kernel has the effects
of the two kernels.
"""

from collections import Counter

import numpy as np
import pytest
from ptxmotion.emulator.launch import LaunchResult
from ptxmotion.ptx import parse, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.toolchain.tools import ToolMissing, assemble
from ptxmotion.transforms.kernel_fusion.fused_kernel import FusedKernel, build
from ptxmotion.transforms.kernel_fusion.fusibility import decide
from ptxmotion.transforms.pipeline import run_passes
from random_kernel_pairs import Device, Half, Pair, make_pair, race_kinds, truth

FIXED, SHARE = 60, 60

#: By verdict: the true relations for which it would be wrong.
_ILLEGAL = {"thread": ("block", "any"), "block": ("any",), "grid": (), "none": ()}
#: The result of pairs with these findings is not defined.
_RACY = frozenset(["race", "out-of-bounds"])


def check(seed: int, *, with_ptxas: bool) -> str:
    """Check one pair; the result of the check."""
    pair = make_pair(seed)
    first, second = pair.first.site(), pair.second.site()
    device = Device(seed)
    one, other = (device.launch(site, trace=True) for site in (first, second))
    check_races(one, pair.first)
    check_races(other, pair.second)
    verdict = decide(first, second, may_pad=True)
    assert truth(one, other, pair) not in _ILLEGAL[verdict.kind], (seed, verdict)
    check_symbolic(pair, truth(one, other, pair))
    known = {finding.kind for finding in (*one.findings, *other.findings)}
    if verdict.kind == "none" or known & _RACY:
        return verdict.kind
    dead = frozenset("a" if seed % 3 == 0 else "")
    fused = build(first, second, verdict, name="fused", dead_buffers=dead, grid_barrier=verdict.kind == "grid")
    wanted = {name: found for name, found in device.contents().items() if name not in dead}
    for schedule, number in (("order", 0), ("random", seed), ("random", seed + 1)):
        compare(seed, fused, wanted, known, schedule, number)
    again = parse(print_module(fused.module))
    verify(again)
    assert print_module(again) == print_module(fused.module)
    if with_ptxas:
        assemble(print_module(fused.module))
        run_passes(fused.module, "O2", verify_each=True)
        compare(seed, fused, wanted, known, "order", 0)
        assemble(print_module(fused.module))
    return f"fused {verdict.kind}"


def check_races(result: LaunchResult, half: Half) -> None:
    """The emulator must report a race if two accesses of the trace race, whichever of them came first. Without
    barriers, it must report no race otherwise."""
    found = {finding.kind for finding in result.findings} & {"race", "same-value-race"}
    real = race_kinds(result, half)
    assert "race" in found or "read write" not in real, result.findings
    assert found or not real, result.findings
    if not half.has_barriers:
        assert real or not found, result.findings


def check_symbolic(pair: Pair, real: str) -> None:
    """The verdict for host variables instead of numbers must hold for all values that pass the checks."""
    same = pair.first.grid == pair.second.grid
    first, values = pair.first.symbolic_site(0, same)
    second, more = pair.second.symbolic_site(1, same)
    for may_check in (False, True):
        verdict = decide(first, second, may_pad=True, may_check=may_check)
        if all(eval(text, {}, {**values, **more}) for text in verdict.checks):
            assert real not in _ILLEGAL[verdict.kind], verdict


def compare(
    seed: int, fused: FusedKernel, wanted: dict[str, np.ndarray], known: set[str], schedule: str, number: int
) -> None:
    device = Device(seed)
    done = device.launch(fused.site, schedule=schedule, seed=number)
    assert {finding.kind for finding in done.findings} <= known, (seed, schedule, done.findings[:2])
    found = device.contents()
    for name, contents in wanted.items():
        assert np.array_equal(found[name], contents), (seed, schedule, name)


def test_no_verdict_is_better_than_the_truth(seeds: list[int]) -> None:
    came = Counter(check(seed, with_ptxas=False) for seed in seeds)
    assert {"fused thread", "fused block", "fused grid"} <= came.keys(), came


@pytest.mark.parametrize("seed", [4, 11, 19])
def test_ptxas_accepts_fused_kernels(seed: int) -> None:
    try:
        check(seed, with_ptxas=True)
    except ToolMissing as why:
        pytest.skip(str(why))
