"""The script that studies the model of the gate: ranks, order, decisions and losses, on synthetic data."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.transforms.gate.gate import Figures

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "experiments"))

study: Any = importlib.import_module("gate_model")

BASE = Figures(code="0", registers=32, spills=0, warps=64, weight=1000, cycles=10_000)
PTX = Figures(code="0", registers=20, spills=0, warps=0, weight=100, is_static=True)


def alone(kernel: Figures, _: Figures) -> float:
    return kernel.cycles


def arm(name: str, ratio: float, cycles: float, accesses: float = 100) -> Any:
    kernel = replace(BASE, code=name, cycles=cycles)
    return study.Arm("suite/program", name, ratio, {"k": kernel}, {"k": replace(PTX, code=name, weight=accesses)})


def by_ptxas(arm: Any) -> Any:
    return arm.kernels


NVCC = study.Arm("suite/program", "O3", 1.0, {"k": BASE}, {"k": PTX})


def test_a_right_prediction_has_rank_one_and_no_loss() -> None:
    programs = [[NVCC, arm("a", 1.10, 9_000), arm("b", 0.90, 11_000), arm("c", 1.05, 9_500)]]
    assert study.rank(programs, alone) == pytest.approx(1)
    assert study.order(programs, alone) == "6 : 0"
    assert study.loss(programs, alone) == "0.00%, 0.0%"
    assert study.decisions(programs, by_ptxas) == "2: 0 | 1: 0"


def test_a_wrong_prediction_has_a_loss() -> None:
    programs = [[NVCC, arm("slow", 0.90, 8_000), arm("fast", 1.10, 9_000)], [NVCC]]
    assert study.rank([programs[0]], alone) == pytest.approx(-1)
    assert study.order(programs, alone) == "1 : 2"
    # The slow arm is chosen, which costs 1.1 / 0.9. The other program has only the arm of nvcc; the mean is geometric.
    assert study.loss(programs, alone) == f"{(1.1 / 0.9) ** 0.5 - 1:.2%}, 22.2%"
    assert study.decisions(programs, by_ptxas) == "2: 1 | 0: 0"
    given_back = [[NVCC, arm("fast", 1.10, 12_000)]]
    assert study.decisions(given_back, by_ptxas) == "0: 0 | 1: 1"
    assert study.loss(given_back, alone) == "10.00%, 10.0%"


def test_small_differences_are_in_no_order() -> None:
    programs = [[NVCC, arm("measured alike", 1.005, 9_000), arm("foretold alike", 1.10, 10_001)]]
    assert study.order(programs, alone) == "0 : 1"


def test_the_two_gates_are_held_against_each_other_kernel_by_kernel() -> None:
    programs = [
        [NVCC, arm("both", 1, 9_000, 90), arm("ptxas", 1, 9_100), arm("none", 1, 11_000), arm("static", 1, 11_001, 90)]
    ]
    assert study.agreement(programs) == "2 of 4"
    assert study.agreement(programs * 2) == "2 of 4"  # equal code counts once


def test_every_committed_file_is_there() -> None:
    assert all((study.RESULTS / name).exists() for name in study.FILES)
