"""Random host programs with assignments between their launches, fused: the same results for sizes for which the checks
of the fusions are true, and for others. See `random_assignments`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.dsl.host_nodes import Launch
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.dsl.run import Loaded
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.transforms.kernel_fusion.host_fusion import FusingHost
from ptxmotion.transforms.kernel_fusion.kernel_code import AnyKernel
from ptxmotion.transforms.kernel_fusion.kfcm import ORDERS
from ptxmotion.transforms.kernel_fusion.plan import FusionOptions, fuse_program
from random_assignments import random_body

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from test_checked_fusion import SIZE, given, program

#: Programs without --fuzz-n, and programs in one test case.
FIXED, SHARE = 24, 12
#: Values of ``n``, the pitch, and ``m``. Some checks are true for some of them.
SIZES = ((64, 96), (32, 64), (96, 64), (128, 32))


def run(host: HostProgram, ptx: Callable[[AnyKernel], str], n: int, m: int) -> tuple[bytes, set[str]]:
    """The data afterwards, and the kinds of findings."""
    backend = EmulatorBackend(schedule="order", keep_going=True)
    data = Loaded(host, backend, ptx).run({"data": np.arange(SIZE, dtype=np.int32), "n": n, "m": m})["data"]
    return data.tobytes(), {finding.kind for finding in backend.findings}


def faults(seed: int) -> tuple[int, list[str]]:
    """The number of fusions, and the sizes for which the fused program computes something else."""
    before = program(random_body(seed))
    strategy = "kf_trad" if seed % 7 == 6 else "kfcm"
    after = fuse_program(before, given, FusionOptions(strategy, ORDERS[seed // 7 % 4]))
    found: list[str] = []
    for n, m in SIZES if after.result.fusions else ():
        wanted, known = run(before, given, n, m)
        # If blocks race, the result is not defined. Blocks that write the same value are no such race.
        if known & {"race", "out-of-bounds"}:
            continue
        data, kinds = run(after.host, after.ptx, n, m)
        if data != wanted or not kinds <= known:
            found.append(f"n = {n}, m = {m}: {sorted(kinds)}")
    return after.result.fusions, found


@pytest.mark.fuzz
def test_fused_programs_compute_the_same(seeds: list[int]) -> None:
    fusions = 0
    for seed in seeds:
        number, found = faults(seed)
        fusions += number
        assert found == [], (seed, random_body(seed))
    assert fusions


def test_a_motion_that_only_parts_forbid_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_parts(self: FusingHost, launch: Launch) -> frozenset[str]:
        return launch.uses - {launch.kernel_text}

    monkeypatch.setattr(FusingHost, "_names_of", without_parts)
    assert any(faults(seed)[1] for seed in range(1, 40))
