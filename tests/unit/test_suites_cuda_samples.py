"""The programs of the CUDA samples suite: correct on the emulator, before and after the optimizer."""

from typing import Any, cast

import numpy as np
import pytest
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.cuda_samples import bilateral_filter, eigenvalues, fdtd3d, line_of_sight, sobel_filter
from suite_programs import check_in_another_order, check_program, compiled, emulated

QUICK = ["FDTD3d", "SobelFilter", "SobelFilter-consecutive", "bilateralFilter-consecutive"]
OTHERS = ["bilateralFilter", "eigenvalues", "lineOfSight"]


@pytest.mark.parametrize("name", QUICK)
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(f"cuda_samples/{name}")


@pytest.mark.parametrize("name", OTHERS)
def test_program_as_compiled(name: str) -> None:
    check_program(f"cuda_samples/{name}", level=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *OTHERS])
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(f"cuda_samples/{name}")


def test_the_reference_of_fdtd3d_agrees_with_the_sum() -> None:
    data: dict[str, Any] = {**fdtd3d.make_data("tiny", 0), "steps": 1}
    x, y, z = data["dimx"] + 8, data["dimy"] + 8, data["dimz"] + 8
    volume = data["volume"].reshape(z, y, x).astype(np.float64)
    out = cast("Any", fdtd3d.reference(data)["volume"]).reshape(z, y, x)
    at = np.array([5, 7, 9])
    axes = np.eye(3, dtype=int)
    around = sum(volume[tuple(at + d * axis)] for d in (-4, -3, -2, -1, 1, 2, 3, 4) for axis in axes)
    assert np.isclose(out[tuple(at)], 0.1 * (volume[tuple(at)] + around), rtol=1e-6)
    assert np.array_equal(out[:4], volume[:4].astype(np.float32))


def test_the_reference_of_sobel_finds_an_edge() -> None:
    image = np.pad(np.repeat(np.array([[0, 0, 10, 10]], np.uint8), 3, axis=0), 1, mode="edge")
    data = {"image": image.ravel(), "width": 4, "height": 3}
    assert sobel_filter.reference(data)["edges"].reshape(3, 4).tolist() == [[0, 40, 40, 0]] * 3


def test_both_patterns_of_a_filter_give_the_same() -> None:
    for filter in (sobel_filter, bilateral_filter):
        one, other = (
            emulated(each, compiled(each.fullname), 0, ()).outputs for each in (filter.coalesced, filter.reusing)
        )
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_bilateral_filter_keeps_one_colour_and_edges() -> None:
    data = bilateral_filter.make_data("tiny", 0)
    wide = (data["height"] + 2 * data["radius"], data["pitch"])
    columns = cast("Any", np.arange(wide[1]))
    steps = np.where(columns < 20, 0x10101010, 0xF0F0F0F0).astype(np.uint32)
    flat = bilateral_filter.reference(data | {"image": np.broadcast_to(steps, wide).ravel()})["filtered"]
    channels = flat.reshape(data["height"], data["width"])[3].copy().view(np.uint8)[::4]
    assert np.abs(channels[:17].astype(int) - 0x10).max() <= 1 >= np.abs(channels[17:].astype(int) - 0xF0).max()


def test_the_reference_of_line_of_sight_sees_what_no_hill_hides() -> None:
    data = line_of_sight.make_data("tiny", 0)
    heights = np.zeros((20, 5000), np.float32)
    heights[:, 100] = 50.0
    heights[:, 3000] = 5000.0
    seen = line_of_sight.reference(data | {"heights": heights.ravel()})["visible"].astype(bool)
    assert seen[:99].all() and seen[99] and not seen[100:2999].any() and seen[2999] and not seen[3000:].any()
    ordinary = line_of_sight.reference(data)["visible"]
    assert 20 < ordinary.sum() < ordinary.size // 2


def tridiagonal(n: int, diagonal: float, above: float) -> tuple[Any, Any, Any]:
    """The matrix with constant diagonals, as the program takes it, and its eigenvalues from the closed form."""
    superdiagonal = np.full(n, above, np.float32)
    superdiagonal[0] = 0
    values = diagonal + 2 * above * np.cos(np.pi * cast("Any", np.arange(n, 0, -1)) / (n + 1))
    return np.full(n, diagonal, np.float32), superdiagonal, values


def test_the_reference_of_eigenvalues_agrees_with_the_closed_form() -> None:
    diagonal, superdiagonal, values = tridiagonal(7, 1.5, 0.5)
    found = eigenvalues.reference({"diagonal": diagonal, "superdiagonal": superdiagonal})["values"]
    assert np.allclose(found, values, atol=1e-6)


@pytest.mark.slow
def test_eigenvalues_of_multiplicity_two() -> None:
    diagonal, superdiagonal, values = (np.tile(each, 2) for each in tridiagonal(24, 1.5, 0.5))
    data = eigenvalues.make_data("tiny", 0) | {"lower": 0.49, "upper": 2.51}
    data |= {"diagonal": diagonal, "superdiagonal": superdiagonal}
    ptx, backend = compiled("cuda_samples/eigenvalues"), EmulatorBackend()
    found = eigenvalues.benchmark.program.load(backend, lambda kernel: ptx[kernel.name]).run(data)["values"]
    assert np.allclose(found, np.sort(values), atol=5e-5) and not backend.findings
