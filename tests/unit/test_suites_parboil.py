"""The Parboil programs: correct on the emulator, before and after the optimizer."""

import numpy as np
import pytest
from ptxmotion.suites.parboil import histo, mri_q
from suite_programs import check_in_another_order, check_program


@pytest.mark.parametrize("name", ["parboil/histo", "parboil/mri-q"])
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parboil/histo", "parboil/mri-q"])
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(name)


def test_the_data_of_histo_reach_every_branch() -> None:
    data = histo.make_data("tiny", 0)
    counts = np.bincount(data["image"], minlength=data["bins"])
    middle = data["bins"] // 2 + 128
    # Two bins in one word overflow in shared memory, in every part of the data.
    assert (counts[middle : middle + 2] > 255 * histo.PARTS).all() and middle % 4 == 0
    assert counts[: 2 * histo.BINS].any() and counts[6 * histo.BINS :].any()
    assert histo.reference(data)["histogram"].max() == 255


def test_the_reference_of_mri_q_agrees_with_the_sum() -> None:
    data = mri_q.make_data("tiny", 0)
    voxel = 3
    phase = 2 * np.pi * sum(data[f"k{axis}"].astype(np.float64) * data[axis][voxel] for axis in "xyz")
    weights = data["phi_real"].astype(np.float64) ** 2 + data["phi_imaginary"].astype(np.float64) ** 2
    q = mri_q.reference(data)
    assert np.isclose(q["q_real"][voxel], (weights * np.cos(phase)).sum(), rtol=1e-5)
    assert np.isclose(q["q_imaginary"][voxel], (weights * np.sin(phase)).sum(), rtol=1e-5)
