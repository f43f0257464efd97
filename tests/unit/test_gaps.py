"""The experiments that explain differences from the thesis: `docs/experiments/gaps.py` and others."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from ptxmotion.emulator.backend import EmulatorBackend

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "experiments"))

fusion_gaps: Any = importlib.import_module("fusion_gaps")
gaps: Any = importlib.import_module("gaps")
hot_kernels: Any = importlib.import_module("hot_kernels")

_KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global p, .param .u64 .ptr .global q)
{{
  .reg .b64 %p, %q;
  .reg .f32 %a, %b, %c;
  ld.param.u64 %p, [p];
  ld.param.u64 %q, [q];
  cvta.to.global.u64 %p, %p;
  cvta.to.global.u64 %q, %q;
  ld.global.f32 %a, [%p];
  {between}
  ld.global.f32 %b, [%p{offset}];
  add.f32 %c, %a, %b;
  st.global.f32 [%q], %c;
  ret;
}}
"""
_STORE = "st.global.f32 [%q+4], %a;"


def verdicts(between: str, offset: str, *methods: str) -> dict[str, str]:
    found = gaps.study({"k": _KERNEL.format(between=between, offset=offset)}, methods)
    assert found["base"].loads == 2
    return {method: found[method].verdict for method in methods}


def test_a_class_for_what_a_method_finds_and_ptxas_leaves_of_it() -> None:
    assert verdicts("", "+4", "ssrqp") == {"ssrqp": "nothing"}
    # ptxas merges the two loads by itself.
    assert verdicts("", "", "ssrqp") == {"ssrqp": "undone"}
    # The load can be moved across the store only with a promise.
    assert verdicts(_STORE, "", "ssrqp", "ssrqp@restrict") == {"ssrqp": "nothing", "ssrqp@restrict": "less"}


def test_changes_are_counted_by_class_and_refusals_by_reason() -> None:
    found = gaps.study({"k": _KERNEL.format(between=_STORE, offset="")}, ["ssrqp", "ssrqp@restrict"])
    assert found["ssrqp"].refused["store"] == 1 and not found["ssrqp"].changed
    assert "load global -1" in found["ssrqp@restrict"].changed["k"]
    lines = list(gaps.rows("p", "-O3", found))
    assert len(lines) == 3 and lines[0].startswith("| p | `-O3` |  | 2 |")


def test_loads_pass_l1_by_unless_they_say_how_they_are_cached() -> None:
    assert gaps.past_l1("ld.global.nc.f32 %f1, [%rd1];") == "ld.global.cg.nc.f32 %f1, [%rd1];"
    assert gaps.past_l1("ld.global.v2.f32 {%f2, %f3}, [%rd2];") == "ld.global.cg.v2.f32 {%f2, %f3}, [%rd2];"
    for kept in ("ld.global.cs.u8 %r1, [%rd1];", "ld.global.lu.u8 %r1, [%rd1];", "ld.volatile.global.u32 %r1, [%rd1];"):
        assert gaps.past_l1(kept) == kept


def test_a_program_that_the_thesis_speaks_of_has_its_methods() -> None:
    assert gaps.methods_of("rodinia/cfd")[:4] == ["lcm", "scm", "spre", "sscm"]
    assert gaps.LETTER in gaps.methods_of("rodinia/bfs") and gaps.LETTER not in gaps.methods_of("parboil/mri-q")
    assert {"rodinia/b+tree", "parboil/mri-q"} < set(gaps.programs_of())


def test_what_races_is_fused_as_the_thesis_does() -> None:
    given = argparse.Namespace(size="tiny", launch="stream", emulator=True, rounds=1)
    lines = list(fusion_gaps.rows(EmulatorBackend(), "rodinia/srad_v2", given))
    launches = {line.split(" | ")[1]: int(line.split(" | ")[2]) for line in lines}
    assert launches["as written"] == 4 and launches["kf_trad, racing"] == 2


def test_metrics_are_weighted_by_time_and_the_longest_kernel_is_first() -> None:
    launches = [("0", "short", "1,000", "10"), ("1", "long", "2000", "20"), ("2", "long", "7000", "40")]
    rows = [
        {"ID": id, "Kernel Name": kernel, "Metric Name": metric, "Metric Value": value}
        for id, kernel, time, rate in launches
        for metric, value in zip(hot_kernels.METRICS, (time, rate, rate, rate, "n/a"), strict=True)
    ]
    first, second = hot_kernels.table("p", rows)
    assert first == "| p | long | 2 | 90 % | 36 % | 36 % | 36 % | 0 % |"
    assert second == "|  | short | 1 | 10 % | 10 % | 10 % | 10 % | 0 % |"
