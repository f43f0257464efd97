"""Whole kernels and video instructions on the GPU and on the emulator: all results have the same bits."""

import sys
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.emulator import Emulator

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from golden import launch
from golden.forms import module_text
from golden.video import video_cases, video_columns
from ptx_run import Case, cases

#: The video instructions, in parts that are modules of their own.
PARTS = 8


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


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(PARTS))
def test_video_instructions(part: int) -> None:
    """Every form, with the selectors of `golden.video`; the driver assembles the kernels."""
    from gpu_driver import Gpu

    gpu = Gpu()
    batch = list(video_cases().values())[part::PARTS]
    columns = video_columns()
    inputs, lanes = np.ascontiguousarray(np.stack(columns)), columns[0].size
    module = gpu.load(module_text(batch)[0])
    wrong: list[str] = []
    for number, (case, ours) in enumerate(zip(batch, launch.emulated(batch, lambda _: columns, 0), strict=True)):
        words = np.zeros((len(case.results), lanes), np.uint64)
        gpu.launch(module, f"k{number}", (lanes // 256,), (256,), [inputs, words, np.uint32(lanes)])
        if any((left != right).any() for left, right in zip(launch.trimmed(case, words), ours, strict=True)):
            wrong.append(case.key)
    assert wrong == []
