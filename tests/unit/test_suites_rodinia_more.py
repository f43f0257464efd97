"""More Rodinia programs: correct on the emulator, before and after the optimizer."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.suites.rodinia import huffman, lavamd, particlefilter, srad_v1, srad_v2
from suite_programs import check_in_another_order, check_program

QUICK = ["rodinia/huffman", "rodinia/srad_v1", "rodinia/srad_v2"]
SLOWER = ["rodinia/lavaMD", "rodinia/particlefilter"]


@pytest.mark.parametrize("name", QUICK)
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(name)


@pytest.mark.parametrize("name", SLOWER)
def test_a_slower_program_computes_its_reference(name: str) -> None:
    check_program(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK + SLOWER)
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(name)


def test_the_reference_of_huffman_is_a_code() -> None:
    data = huffman.make_data("tiny", 0)
    result = huffman.reference(data)
    assert sum(2.0 ** -result["lengths"][result["lengths"] > 0].astype(float)) == 1
    symbol_of = {
        f"{word:0{length}b}": symbol
        for symbol, (word, length) in enumerate(zip(result["codewords"], result["lengths"], strict=True))
        if length
    }
    decoded: list[int] = []
    seen = ""
    for bit in "".join(f"{word:032b}" for word in result["packed"][:20]):
        seen += bit
        if seen in symbol_of:
            decoded.append(symbol_of[seen])
            seen = ""
    assert len(decoded) > 100
    assert np.array_equal(decoded, data["words"].astype(">u4").view(np.uint8)[: len(decoded)])
    # Codes cross word boundaries, most blocks do not begin at a word, and a second level of sums is needed.
    assert (result["bits"] % 32 != 0).any() and data["blocks"] > 2 * data["scan_threads"]


def test_the_reference_of_lavamd_agrees_with_a_pair_by_pair_sum() -> None:
    data = lavamd.make_data("tiny", 0)
    rv, i = data["rv"], 5
    total = np.zeros(4)
    for j in range(2 * lavamd.PARTICLES):  # the first box and its only neighbour
        dot = sum(rv[axis][i] * rv[axis][j] for axis in "xyz")
        near = data["qv"][j] * np.exp(-2 * data["alpha"] ** 2 * (rv["v"][i] + rv["v"][j] - dot))
        total += near * np.array([1, *(2 * (rv[axis][i] - rv[axis][j]) for axis in "xyz")])
    assert np.allclose(lavamd.reference(data)["forces"].reshape(-1, 4)[i], total)


def test_the_filter_follows_the_disk() -> None:
    data = particlefilter.make_data("full", 0)
    result = particlefilter.reference(data)
    moved = data["frames"] - 2
    expected = [data["size"] // 2 + moved, data["size"] // 2 - 2 * moved]
    assert np.allclose([result[axis] @ result["weight"] for axis in "xy"], expected, atol=2.5)


def roughness(columns: NDArray[Any]) -> float:
    return float(np.abs(np.diff(columns)).mean())


def test_speckle_is_reduced_in_the_references_of_srad() -> None:
    data = srad_v1.make_data("tiny", 0)
    assert roughness(srad_v1.reference(data)["image"]) < 0.9 * roughness(data["image"])
    data = srad_v2.make_data("tiny", 0)
    assert roughness(srad_v2.reference(data)["image"]) < 0.9 * roughness(data["image"])
