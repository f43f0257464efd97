"""Atomics, loads, stores, packed moves, exchanges: launches, compared bit by bit with recordings of a Hopper GPU.

`tests/golden/launched.py` makes the kernels and operands; `tests/gpu/record_golden.py` records.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.launch import emulated
from golden.launched import Launched, columns_of, launched_cases
from golden.operands import RANDOM_LANES
from golden.replay import GOLDEN, LAUNCHED, MATRIX, VIDEO, digests, load
from ptxmotion.ptx import ROWS, decode
from ptxmotion.ptx.notation import Op

#: Rows that the emulator executes and no recording shows, and why.
WITHOUT_A_RECORDING = {
    "mixed_add": "requires sm_100",
    "mixed_sub": "requires sm_100",
    "mixed_fma": "requires sm_100",
    "float_min3": "requires sm_100",
    "float_max3": "requires sm_100",
    "convert_stochastic": "requires sm_100a",
    "memory_prefetch": "changes nothing that a program sees",
    "memory_createpolicy": "its result is a hint",
    "memory_cp_async_commit": "stands in every form of `cp.async`",
    "memory_cp_async_wait": "stands in every form of `cp.async`",
    "move_vector": "no form takes vector registers as they come: tests/ptx/adversarial/vector_registers.ptx",
    **dict.fromkeys(
        ["texture_fetch", "texture_query", "surface_load", "surface_store"],
        "need a texture or surface: tests/gpu/test_emulator_vs_gpu.py",
    ),
    "control_nop": "changes nothing that a program sees",
    "control_bra": "in every kernel of tests/run",
    "control_brx": "whole kernels: tests/run/control.ptx",
    "control_call": "whole kernels: tests/run/control.ptx",
    "control_ret": "in every kernel of tests/run",
    "control_exit": "whole kernels: tests/run/control.ptx",
    "control_trap": "ends the launch",
    "bulk_commit": "stands in every bulk copy to global memory",
    "bulk_wait": "stands in every bulk copy to global memory",
    "mbarrier_init": "stands before every operation on an mbarrier",
    "mbarrier_pending_count": "stands behind every arrival at an mbarrier",
    "mbarrier_copies": "whole kernels: test_emulator_matrices.py",
    "address_cvta_to": "stands in every form of `cvta` and `isspacep`",
    "sync_bar": "whole kernels: tests/run/blocks.ptx",
    "sync_fence": "orders accesses of other threads: whole kernels, tests/run/atomics.ptx",
}
#: Rows of which another one with the same semantics is recorded.
SPELLED_OTHERWISE = ("div{.ftz}{.sat}.type d, a, b", "mov d, a")


@cache
def rows_of(cases: tuple[Launched, ...]) -> dict[Op, list[Launched]]:
    found: dict[Op, list[Launched]] = {}
    for case in cases:
        found.setdefault(decode(case.row).op, []).append(case)
    return found


ROWS_LAUNCHED = rows_of(tuple(launched_cases().values()))


@pytest.mark.parametrize("row", ROWS_LAUNCHED, ids=lambda row: row.pattern.split(" ")[0])
def test_every_bit_is_the_gpus(row: Op) -> None:
    cases = ROWS_LAUNCHED[row]
    wrong: list[str] = []
    for case, results in zip(cases, emulated(cases), strict=True):
        differs = np.flatnonzero(digests(results) != load(LAUNCHED).exact[case.key])
        if differs.size:
            wrong.append(f"{case.key}: lanes {64 * differs[0]} to {64 * differs[0] + 63} differ from the GPU")
    assert not wrong, "\n".join(wrong[:5])


def test_every_form_is_recorded() -> None:
    assert set(launched_cases()) == set(load(LAUNCHED).exact)


def test_every_row_that_runs_is_recorded_or_says_why_not() -> None:
    recorded = {decode(key.split(" ")[0], int(key.split(" ")[1]) + 1).op for key in load().exact | load().approximate}
    recorded |= {decode(key.split(" ")[0]).op for key in (*load(MATRIX).exact, *load(VIDEO).exact)}
    missing = [row for row in ROWS if row.semantics and row not in recorded and row not in ROWS_LAUNCHED]
    assert {row.semantics for row in missing if row.pattern not in SPELLED_OTHERWISE} == set(WITHOUT_A_RECORDING)
    assert {row.pattern for row in missing if row.semantics not in WITHOUT_A_RECORDING} == set(SPELLED_OTHERWISE)


def test_each_launched_form_has_enough_operands() -> None:
    for case in launched_cases().values():
        assert columns_of(case)[0].size > RANDOM_LANES, case.key


def test_operands_are_those_of_the_recording() -> None:
    """If the generator changes, a new recording is needed, because the digests no longer match."""
    known = {
        "vote.sync.any.pred": 0x16C,
        "match.any.sync.b64": 0x3CBD361CF668B019,
        "atom.global.add.u32": 0x2B788CCDC2A,
    }
    for key, want in known.items():
        columns = columns_of(launched_cases()[key])
        place = np.arange(1, columns[0].size + 1, dtype=np.uint64)
        assert int(np.bitwise_xor.reduce(columns[0] * place)) == want, key


def test_recordings_fit_in_the_repository() -> None:
    assert sum(file.stat().st_size for file in (LAUNCHED, GOLDEN, MATRIX)) < 5_000_000
    assert "H200" in load(LAUNCHED).machine["gpu"]


def test_one_wrong_bit_is_seen() -> None:
    case = launched_cases()["atom.shared.add.f64"]
    (results,) = emulated([case])
    wrong = [column.copy() for column in results]
    wrong[1][700] ^= np.uint64(1)
    assert np.flatnonzero(digests(tuple(wrong)) != load(LAUNCHED).exact[case.key]).tolist() == [700 // 64]


def test_kernels_of_a_form_name_it() -> None:
    case = launched_cases()["atom.global.add.u32"]
    assert "atom.global.add.u32 %d0, [%cell], %s1_0;" in case.body
    assert case.results == ("b32", "b32")
    pair = launched_cases()["shfl.sync.up.b32 and a predicate"]
    assert pair.body[-5].startswith("shfl.sync.up.b32 %d0|%d1, %s0, %s1, %s2, 0xffffffff;")
