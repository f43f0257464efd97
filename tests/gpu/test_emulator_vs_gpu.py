"""Whole kernels on the GPU and on the emulator: all arrays have the same bits."""

import sys
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.emulator import Emulator

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptx_run import Case, cases


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_same_bits(case: Case) -> None:
    from gpu_driver import Gpu

    gpu = Gpu()
    there, here = case.args(), case.args()
    text = case.file.read_text(encoding="utf-8")
    gpu.launch(gpu.load(text), case.kernel, case.grid, case.block, there, case.shared)
    Emulator().load(text).launch(case.kernel, case.grid, case.block, here, case.shared)
    for number, (silicon, emulated) in enumerate(zip(there, here, strict=True)):
        if isinstance(silicon, np.ndarray):
            wrong = np.flatnonzero(silicon.view(np.uint8) != emulated.view(np.uint8))
            assert not wrong.size, f"argument {number}: byte {wrong[0]} and {wrong.size - 1} more differ"
