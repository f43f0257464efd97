"""Whole kernels on the emulator: results equal to those of a GPU; no finding, or the finding of the planted fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.emulator import Emulator, EmulatorFault, EmulatorModule, Finding

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptx_run import RUN, Case, cases, digest

CLEAN = cases()
FAULTY = cases(folder=RUN / "faults")
SILICON = RUN / "silicon.json"


def load(case: Case, **options: int) -> EmulatorModule:
    return Emulator(**options).load(case.file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_a_correct_kernel_has_no_findings(case: Case) -> None:
    args = case.args()
    result = load(case).launch(case.kernel, case.grid, case.block, args, case.shared)
    noted = ["absent-lane"] if case.kernel == "leaving" else []  # its `shfl` reads lanes that have exited
    assert [finding.kind for finding in result.findings] == noted, [str(finding) for finding in result.findings]
    assert sorted(result.output.splitlines()) == sorted(case.output)
    if SILICON.exists():
        recorded = json.loads(SILICON.read_text(encoding="utf-8"))["cases"]
        if case.name in recorded:
            assert digest(args) == recorded[case.name]


@pytest.mark.slow
@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_random_schedule_gives_the_same(case: Case) -> None:
    args, other = case.args(), case.args()
    load(case).launch(case.kernel, case.grid, case.block, args, case.shared, checks=False)
    # With a few blocks at a time, results must be the same, unless blocks wait for each other.
    lanes = 1 << 16 if case.kernel == "handoff" else 256
    load(case, lanes=lanes).launch(
        case.kernel, case.grid, case.block, other, case.shared, schedule="random", seed=7, checks=False, counts=False
    )
    for mine, theirs in zip(args, other, strict=True):
        if isinstance(mine, np.ndarray):
            assert mine.tobytes() == theirs.tobytes()


def findings(case: Case, schedule: str) -> list[Finding]:
    try:
        module = load(case, budget=5000)
        return module.launch(
            case.kernel, case.grid, case.block, case.args(), case.shared, schedule=schedule, seed=1
        ).findings
    except EmulatorFault as fault:
        return fault.findings


@pytest.mark.parametrize("schedule", ["order", "random"])
@pytest.mark.parametrize("case", FAULTY, ids=lambda case: case.name)
def test_a_planted_fault_is_found_with_its_place(case: Case, schedule: str) -> None:
    found = [finding for finding in findings(case, schedule) if finding.kind == case.finding]
    assert found, f"{case.finding} is not found"
    assert found[0].line > 0
    assert found[0].place is not None
    assert found[0].opcode


def test_there_are_enough_kernels() -> None:
    assert len(CLEAN) >= 60
    assert len(FAULTY) >= 40
