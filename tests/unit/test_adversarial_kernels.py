"""Kernels that are written to break the passes (`tests/ptx/adversarial`). Each states its difficulty at its head.

Each kernel runs on the emulator before and after several lists of passes, without a gate. All buffers must contain the
same bytes, with no fault and no new finding. ptxas must accept the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ladder import Launch, refused, run, transformed
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.ptx import parse, print_module

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptx_run import Case, cases

FOLDER = Path(__file__).parents[1] / "ptx" / "adversarial"
#: Only code motion, only scalar replacement, with all speculation, and the passes of a level.
LISTS = (
    "O3",
    "cse,sscm:min_cost=0,copyprop,dce",
    "lcm:min_cost=0",
    "spre:min_cost=0:lazy=false,ssrqp_s,deadstores",
    "ssrqp:guarded=true,vectormerge,readonly,copyprop,dce",
)
PROMISED = "// RESTRICT"


@pytest.mark.parametrize("case", cases(folder=FOLDER), ids=lambda case: case.name)
def test_computes_the_same(case: Case) -> None:
    ptx = case.file.read_text(encoding="utf-8")
    launch = Launch(case.kernel, case.grid, case.block, case.shared, lambda _: case.args())
    before = run(ptx, launch, 0)
    assert not before.fault
    done = {print_module(parse(ptx))}
    for promise in (CONSERVATIVE, Promise.parse("restrict")) if PROMISED in ptx else (CONSERVATIVE,):
        for passes in LISTS:
            text = print_module(transformed(ptx, passes, promise))
            if text in done:
                continue
            done.add(text)
            after = run(text, launch, 0)
            assert not after.fault, passes
            for number, (old, new) in enumerate(zip(before.arrays, after.arrays, strict=True)):
                assert old.tobytes() == new.tobytes(), f"{passes}: array {number} differs"
            assert set(after.findings) <= set(before.findings), (passes, after.details)
            assert passes != "O3" or not refused(text)
