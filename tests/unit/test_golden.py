"""The arithmetic of the emulator, compared bit by bit with recorded results of a Hopper GPU. No GPU is needed.

`tests/golden/` has the forms and operands; `tests/gpu/record_golden.py` records the results.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.forms import Case, module_text, rows
from golden.operands import RANDOM_LANES, digest_chunk, width_of
from golden.replay import GOLDEN, digests, emulate, load, operands_of
from ptxmotion.ptx.notation import Op

#: Exact rows without a recording, and why.
NOT_ON_HOPPER = {
    "mixed_add": "requires sm_100",
    "mixed_sub": "requires sm_100",
    "mixed_fma": "requires sm_100",
    "float_min3": "requires sm_100",
    "float_max3": "requires sm_100",
    "move_mov": "`mov` without a type moves vectors and symbols, which the engine packs",
    "move_vector": "moves vector registers, which the engine does not make",
}


@cache
def recorded() -> dict[Op, list[Case]]:
    found: dict[Op, list[Case]] = {}
    for key in load().exact:
        case = Case.from_key(key)
        found.setdefault(case.form.op, []).append(case)
    return found


def describe(case: Case, columns: tuple[npt.NDArray[Any], ...], chunk: int) -> str:
    """The first lanes of a chunk that differs: operands, and the results of the emulator."""
    size = digest_chunk(columns[0].size)
    part = tuple(column[chunk * size : (chunk + 1) * size] for column in columns)
    results = emulate(case, part)
    lanes = [
        " ".join(f"{int(column[lane]):#x}" for column in part)
        + " -> "
        + " ".join(f"{int(column[lane]):#x}" for column in results)
        for lane in range(min(size, 6))
    ]
    return f"{case.key}: lanes {chunk * size} to {chunk * size + size - 1} differ from the GPU; here\n  " + "\n  ".join(
        lanes
    )


@pytest.mark.parametrize("row", recorded(), ids=lambda row: row.pattern.split(" ")[0])
def test_every_bit_is_the_gpus(row: Op) -> None:
    wrong: list[str] = []
    for case in recorded()[row]:
        columns = operands_of(case)
        differs = digests(emulate(case, columns)) != load().exact[case.key]
        if differs.any():
            wrong.append(describe(case, columns, int(np.flatnonzero(differs)[0])))
    assert not wrong, f"{len(wrong)} of {len(recorded()[row])} forms of `{row.pattern}`:\n" + "\n".join(wrong[:5])


def test_every_exact_row_is_recorded() -> None:
    missing = [row.pattern for row in rows() if not row.approximate and row not in recorded()]
    excused = [row.pattern for row in rows() if row.semantics in NOT_ON_HOPPER and row not in recorded()]
    assert missing == excused


def test_each_form_has_enough_operands() -> None:
    for case in map(Case.from_key, load().exact):
        lanes = operands_of(case)[0].size
        few = len(case.kinds) == 1 and lanes == 1 << width_of(case.kinds[0])
        assert lanes > RANDOM_LANES or few, case.key


def test_operands_are_those_of_the_recording() -> None:
    """If the generator changes, a new recording is needed, because the digests no longer match."""
    column = operands_of(Case("fma.rn.f32", 3))[1]
    assert int(np.bitwise_xor.reduce(column * np.arange(1, column.size + 1, dtype=np.uint64))) == 0x1AC3C05E77B8


def test_one_wrong_bit_is_seen() -> None:
    case = Case("mul.lo.s32", 2)
    columns = operands_of(case)
    (right,) = emulate(case, columns)
    for lane in (0, 63, 64, columns[0].size - 1):
        wrong = right.copy()
        wrong[lane] ^= np.uint64(1)
        differs = np.flatnonzero(digests((wrong,)) != digests((right,)))
        assert differs.tolist() == [lane // 64]
    swapped = right.copy()
    swapped[[0, 1]] = right[[1, 0]]
    assert right[0] == right[1] or digests((swapped,))[0] != digests((right,))[0]


def test_recording_fits_in_the_repository() -> None:
    assert GOLDEN.stat().st_size < 5_000_000
    assert "H200" in load().machine["gpu"]


@pytest.mark.slow
def test_recording_has_every_form_that_ptxas_takes() -> None:
    from gpu.record_golden import assembled

    # Which forms ptxas takes does not depend on the level, and without optimization it needs half the time.
    names = {case.key for batch, _, _ in assembled(level=0) for case in batch}
    assert names == set(load().exact) | set(load().approximate)


def test_kernels_name_their_form() -> None:
    text, starts = module_text([Case("add.f32", 2), Case("setp.lt.f16x2", 2)])
    assert "add.f32 %d0, %s0, %s1;" in text.splitlines()
    assert "setp.lt.f16x2 %d0|%d1, %s0, %s1;" in text.splitlines()
    assert [text.splitlines()[start - 1].split("(")[0] for start in starts] == [
        ".visible .entry k0",
        ".visible .entry k1",
    ]
