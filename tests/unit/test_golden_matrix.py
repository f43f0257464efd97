"""`mma`, `ldmatrix`, `stmatrix`, mbarriers, bulk copies: launches, compared bit by bit with recordings of a Hopper GPU.

`tests/golden/matrix.py` and `collective.py` make the kernels and operands; `tests/gpu/record_matrix.py` records.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.collective import UNDEFINED, collective_cases
from golden.forms import Frame, module_text
from golden.launch import trimmed
from golden.launched import BLOCK, CELL, columns_of
from golden.matrix import Matrix, matrix_cases
from golden.matrix import columns_of as matrix_columns
from golden.replay import MATRIX, digests, load
from ptxmotion.emulator import Emulator

Lanes = npt.NDArray[Any]

COLLECTIVE = {key: case for key, case in collective_cases().items() if not key.endswith(UNDEFINED)}
#: Cases that are slow on the emulator, since every thread has its own copy. Only their first blocks run.
FEW_BLOCKS = {key for key in COLLECTIVE if key.startswith("cp.async.bulk")}
#: Forms that are not recorded.
NOT_RECORDED: set[str] = set()


def emulated(case: Frame, columns: tuple[Lanes, ...], blocks: int) -> tuple[Lanes, ...]:
    lanes = columns[0].size
    text, _ = module_text([case], CELL * lanes)
    words = np.zeros((len(case.results), lanes), np.uint64)
    inputs = np.ascontiguousarray(np.stack(columns))
    module = Emulator().load(text)
    result = module.launch("k0", blocks, BLOCK, [inputs, words, np.uint32(lanes)], checks=blocks == 1, counts=False)
    assert result.findings == []
    return trimmed(case, words)


@pytest.mark.parametrize("key", [key for key in matrix_cases() if key not in NOT_RECORDED])
def test_every_bit_of_a_product_is_the_gpus(key: str) -> None:
    case = matrix_cases()[key]
    columns = matrix_columns(case)
    results = emulated(case, columns, columns[0].size // BLOCK)
    wrong = np.flatnonzero(digests(results) != load(MATRIX).exact[key])
    assert not wrong.size, f"warps {2 * wrong[0]} and {2 * wrong[0] + 1} differ from the GPU"


@pytest.mark.parametrize("key", [key for key in COLLECTIVE if key not in NOT_RECORDED])
def test_every_bit_of_what_warps_do_together_is_the_gpus(key: str) -> None:
    case = COLLECTIVE[key]
    columns = columns_of(case)
    recorded = load(MATRIX).exact[key]
    blocks = 1 if key in FEW_BLOCKS else columns[0].size // BLOCK
    results = emulated(case, columns, blocks)
    count = blocks * BLOCK // 64
    assert np.array_equal(digests(results)[:count], recorded[:count])


def test_every_form_is_recorded() -> None:
    assert {*matrix_cases(), *COLLECTIVE} - NOT_RECORDED == set(load(MATRIX).exact)
    assert "H200" in load(MATRIX).machine["gpu"]


def test_one_wrong_bit_is_seen() -> None:
    case: Matrix = matrix_cases()["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    columns = matrix_columns(case)
    wrong = [column.copy() for column in emulated(case, columns, columns[0].size // BLOCK)]
    wrong[2][900] ^= np.uint64(1)
    assert np.flatnonzero(digests(tuple(wrong)) != load(MATRIX).exact[case.key]).tolist() == [900 // 64]
