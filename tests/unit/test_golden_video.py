"""Video instructions, compared with recordings of a Hopper GPU. `tests/golden/video.py` makes the kernels.

The emulator computes what the manual says. ptxas 13.0 compiles some forms to code that computes something else. These
are listed in `tests/golden/video_differences.txt`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.launch import emulated
from golden.replay import VIDEO, VIDEO_DIFFERENCES, digests, load
from golden.video import video_cases, video_columns

#: Forms for which the GPU does not compute what the manual says.
DIFFERENT = set(VIDEO_DIFFERENCES.read_text(encoding="utf-8").splitlines())


def test_every_bit_is_the_gpus_or_the_form_is_listed() -> None:
    batch = list(video_cases().values())
    found: set[str] = set()
    for case, results in zip(batch, emulated(batch, lambda _: video_columns(), 0), strict=True):
        if not np.array_equal(digests(results), load(VIDEO).exact[case.key]):
            found.add(case.key)
    assert found == DIFFERENT


def test_every_form_is_recorded() -> None:
    assert set(load(VIDEO).exact) == set(video_cases())
    assert "H200" in load(VIDEO).machine["gpu"]
