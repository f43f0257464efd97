"""Noise-free figures: what counts as better and worse, the thresholds, the estimate of time, and the audit of them."""

import copy
from typing import Any

import pytest
from ptxmotion.harness.audit import audit
from ptxmotion.harness.compare import compare_results
from ptxmotion.harness.figures import (
    FIGURES,
    compare_figures,
    estimate_time,
    estimated_cycles,
    judge_figures,
    noise_free,
    parse_threshold,
)
from ptxmotion.harness.results import (
    ArmResult,
    BenchmarkResult,
    ComparisonResult,
    Correctness,
    ResultFile,
    settle,
)

SHA = "0" * 64
STATIC = {"registers": 32, "spill_bytes": 0, "code_bytes": 1024, "occupancy": 0.5, "cycles_per_warp": 100.0}
COUNTS = {
    "warp_instructions": 1000,
    "branches_diverged": 10,
    "global_load_sectors": 400,
    "global_store_sectors": 100,
    "shared_bank_conflicts": 0,
    "launches": 2,
    "warps_by_kernel": {"k": 8},
}


def arm(id: str = "x", role: str = "candidate", /, **changes: float) -> ArmResult:
    static = {**STATIC, **{name: value for name, value in changes.items() if name in STATIC}}
    counts: dict[str, Any] = {**COUNTS, **{name: value for name, value in changes.items() if name in COUNTS}}
    return ArmResult(id, role, SHA, SHA, Correctness("ok"), {"k": static}, counts)


def verdict(*thresholds: str, **changes: float) -> tuple[str, str]:
    found = compare_figures(
        "s/b", arm("O3", "baseline"), arm(**changes), [parse_threshold(each) for each in thresholds]
    )
    return judge_figures(found)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "EQUAL"),
        ({"registers": 33}, "EQUAL"),
        ({"registers": 40}, "WORSE"),
        ({"registers": 24}, "BETTER"),
        ({"code_bytes": 1152}, "EQUAL"),
        ({"code_bytes": 2048}, "WORSE"),
        ({"spill_bytes": 4}, "WORSE"),
        ({"occupancy": 0.25}, "WORSE"),
        ({"occupancy": 1.0}, "BETTER"),
        ({"warp_instructions": 1010}, "EQUAL"),
        ({"warp_instructions": 1011}, "WORSE"),
        ({"warp_instructions": 900}, "BETTER"),
        ({"branches_diverged": 11}, "WORSE"),
        ({"global_load_sectors": 500}, "WORSE"),
        ({"global_store_sectors": 50}, "BETTER"),
        ({"shared_bank_conflicts": 1}, "WORSE"),
        ({"launches": 3}, "WORSE"),
        ({"warp_instructions": 500, "launches": 3}, "WORSE"),
        ({"warp_instructions": 500, "registers": 36}, "BETTER"),
        ({"cycles_per_warp": 200.0}, "EQUAL"),  # an estimate decides nothing
    ],
)
def test_the_verdict_over_all_figures(changes: dict[str, float], expected: str) -> None:
    assert verdict(**changes)[0] == expected


def test_the_reason_has_names_values_and_percentages() -> None:
    assert verdict(warp_instructions=1200, registers=16, shared_bank_conflicts=7)[1] == (
        "worse: executed warp instructions 1000 → 1200 (+20.0 %), shared bank conflicts 0 → 7 (from 0); "
        "better: registers of k 32 → 16 (-50.0 %)"
    )


def test_a_threshold_replaces_the_tolerance_of_the_figures_that_it_matches() -> None:
    assert verdict("instructions=20%", warp_instructions=1200)[0] == "EQUAL"
    assert verdict("registers=0%", registers=33)[0] == "WORSE"
    assert verdict("s/b:x:k:registers=25%", registers=40)[0] == "EQUAL"
    assert verdict("s/b:y=25%", registers=40)[0] == "WORSE"
    # Better, but by less than what counts.
    assert verdict("instructions=20%", warp_instructions=900)[0] == "EQUAL"


def test_without_a_common_figure_there_is_no_verdict() -> None:
    other = ArmResult("x", "candidate", SHA, SHA, Correctness("ok"), {"j": dict(STATIC)}, {})
    assert judge_figures(compare_figures("s/b", arm(), other))[0] == "UNTIMED"


def test_every_figure_that_an_arm_has_is_in_the_table() -> None:
    from ptxmotion.emulator.counts import Counts

    counted = {name for name, value in Counts().as_dict().items() if isinstance(value, int | float)}
    assert counted <= {name for name, each in FIGURES.items() if each.is_emulated}
    assert all(each.unit and each.label for each in FIGURES.values())
    assert "k:cycles_per_warp" not in noise_free(arm()) and "emulated:warps_by_kernel" not in noise_free(arm())


def test_the_estimate_is_cycles_per_warp_times_launched_warps() -> None:
    assert estimated_cycles(arm()) == 800.0
    found = estimate_time(arm(), arm(cycles_per_warp=50.0))
    assert found is not None and (found.baseline_cycles, found.candidate_cycles, found.speedup) == (800.0, 400.0, 2.0)
    unknown = arm()
    del unknown.static["k"]["cycles_per_warp"]
    assert estimated_cycles(unknown) is None and estimate_time(arm(), unknown) is None
    nothing = arm()
    nothing.emulated = {}
    assert estimated_cycles(nothing) is None


def result(**changes: float) -> ResultFile:
    base, other = arm("O3", "baseline"), arm(**changes)
    figures = compare_figures("s/b", base, other)
    found, reason = judge_figures(figures)
    comparison = ComparisonResult("O3", "x", None, None, None, 0, 0, found, reason, figures, estimate_time(base, other))
    made = ResultFile("", "0", "emulator", {}, {}, {})
    made.benchmarks = [BenchmarkResult("s/b", "b", "s", {}, [base, other], [comparison])]
    settle(made)
    return made


def test_an_audit_computes_figures_and_estimates_again() -> None:
    good = result(warp_instructions=1200)
    assert audit(good) == []
    forged = copy.deepcopy(good)
    forged.benchmarks[0].comparisons[0].verdict = "BETTER"
    settle(forged)
    assert audit(forged) == ["s/b: O3 and x: BETTER, but the figures give WORSE"]
    forged = copy.deepcopy(good)
    forged.benchmarks[0].comparisons[0].figures[0].after += 1
    assert audit(forged) == ["s/b: O3 and x: the figures differ from those of the arms"]
    forged = copy.deepcopy(good)
    forged.benchmarks[0].arms[1].static["k"]["cycles_per_warp"] = 1.0
    assert audit(forged) == ["s/b: O3 and x: the estimate differs from that of the arms"]
    good.options["thresholds"] = ["instructions=20%"]
    assert audit(good)[-1] == "s/b: O3 and x: WORSE, but the figures give EQUAL"


def test_two_runs_are_compared_without_tolerance() -> None:
    (change,) = compare_results(result(), result(warp_instructions=1001))
    assert change.regressed and change.percent == pytest.approx(0.1)
    assert str(change) == "worse: s/b:x:emulated:warp_instructions 1000 → 1001 instructions (+0.1 %)"
    (change,) = compare_results(result(warp_instructions=1001), result())
    assert not change.regressed and change.kind == "better"
