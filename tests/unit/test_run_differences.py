"""What two runs on equal inputs show: the same, a difference, or nothing that can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptxmotion.emulator import Finding
from ptxmotion.harness.verification.input_runs import EmulatedRun
from ptxmotion.harness.verification.run_differences import DIFFERENT, INCONCLUSIVE, SAME, judge
from ptxmotion.ptx import parse

MODULE = parse(".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u32 seen;\n.global .u32 hidden;\n")


def finding(kind: str, opcode: str = "ld.global.u32") -> Finding:
    return Finding(kind, f"a {kind}", "k", opcode, 7, None)


def run(values: list[int] | None = None, **rest: Any) -> EmulatedRun:
    """A run that starts with zeros and ends with ``values`` in its only array."""
    after = np.array(values if values is not None else [1, 2], np.uint32)
    return EmulatedRun([after], [np.zeros_like(after)], rest.pop("variables", {}), rest.pop("first", {}), **rest)


@pytest.mark.parametrize(
    ("first", "second", "outcome", "detail"),
    [
        (run(), run(), SAME, ""),
        (run([0, 0]), run([0, 0]), INCONCLUSIVE, "changes nothing"),
        (
            run(),
            run([1, 3]),
            DIFFERENT,
            "argument 0 differs in 1 bytes, first at element 1: np.uint32(2) and np.uint32(3)",
        ),
        (run(output=["a"]), run(output=["b"]), DIFFERENT, "the printed output differs"),
        (
            run(variables={"seen": b"1"}, first={"seen": b"0"}),
            run(variables={"seen": b"2"}),
            DIFFERENT,
            "variable seen differs",
        ),
        (run(variables={"seen": b"1"}, first={"seen": b"0"}), run(), DIFFERENT, "variable seen is missing"),
        (run(variables={"hidden": b"1"}, first={"hidden": b"0"}), run(), SAME, ""),
        # The order of a race decides, so a difference proves nothing.
        (
            run(findings=[finding("race")]),
            run([1, 3], findings=[finding("race")]),
            INCONCLUSIVE,
            "the first run has a race",
        ),
        (run(findings=[finding("race")]), run(findings=[finding("race")]), SAME, ""),
        # A fault of the second run alone is a difference, whatever the results are.
        (run(), run(findings=[finding("race")]), DIFFERENT, "new: "),
        (run(findings=[finding("race")]), run(findings=[finding("race", "st.global.u32")]), DIFFERENT, "new: "),
        (run(fault=finding("misaligned")), run(), DIFFERENT, "only the first ends with"),
        (run(), run(fault=finding("misaligned")), DIFFERENT, "only the second ends with"),
        (run(fault=finding("misaligned")), run(fault=finding("misaligned")), INCONCLUSIVE, "both end with"),
        (run(), run(skipped={("out-of-bounds", "global", "reads"): {16}}), DIFFERENT, "only the second reads global"),
        (
            run(skipped={("out-of-bounds", "global", "reads"): {16}}),
            run(),
            INCONCLUSIVE,
            "the first run skips accesses",
        ),
    ],
)
def test_the_outcome_of_two_runs(first: EmulatedRun, second: EmulatedRun, outcome: str, detail: str) -> None:
    found, details, _ = judge(first, second, MODULE, hex)
    assert found == outcome, details
    assert detail in "\n".join(details) and bool(details) == bool(detail)


def test_the_bytes_that_the_first_run_changed_are_counted() -> None:
    first = run([1, 0x300], variables={"seen": b"12"}, first={"seen": b"02"}, output=["abc"])
    assert judge(first, run(variables={"seen": b"12"}), MODULE, hex)[2] == 1 + 1 + 1 + len("abc\n")
