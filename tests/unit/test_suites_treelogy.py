"""The Treelogy programs: correct on the emulator, before and after the optimizer."""

from typing import Any

import numpy as np
import pytest
from ptxmotion.suites.treelogy import barneshut, kmeans, knearestneighbor
from suite_programs import check_in_another_order, check_program

PROGRAMS = ["treelogy/barneshut", "treelogy/kmeans", "treelogy/knearestneighbor"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(name, level="O2")


def test_the_reference_of_barneshut_converges_to_the_direct_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    data: dict[str, Any] = {**barneshut.make_data("tiny", 0), "steps": 1}
    place = barneshut.rows(data["points"]["cofm"]).astype(np.float64)
    away = place - place[:, None]
    square = (away**2).sum(axis=2) + 2 * barneshut.SOFTENING**2
    direct = np.einsum("j,ijk->ik", data["points"]["mass"], away / square[..., None] ** 1.5)
    errors: list[float] = []
    for theta in (barneshut.THETA, barneshut.THETA / 2, 0.01):
        monkeypatch.setattr(barneshut, "THETA", theta)
        error = barneshut.reference(data)["acc"].reshape(-1, 3) - direct
        errors.append(float(np.linalg.norm(error) / np.linalg.norm(direct)))
    assert 0.05 > errors[0] > 2 * errors[1] > 0
    assert errors[2] < 1e-6


def test_every_round_of_kmeans_comes_nearer() -> None:
    data = kmeans.make_data("tiny", 0)

    def spread(rounds: int) -> float:
        result = kmeans.reference(data | {"rounds": rounds})
        centres = result["centres"].reshape(-1, kmeans.DIM)
        return float(((data["points"]["coord"] - centres[result["labels"]]) ** 2).sum())

    assert spread(1) > spread(2) > spread(3)


def test_the_reference_of_knearestneighbor_agrees_with_all_distances() -> None:
    data = knearestneighbor.make_data("tiny", 0)
    result = knearestneighbor.reference(data)
    query = data["queries"]["coord"][5]
    all_distances = ((data["nodes0"]["coord"] - query) ** 2).sum(axis=1)
    order = np.argsort(all_distances)[: knearestneighbor.K][::-1]
    assert np.array_equal(result["indices"].reshape(-1, knearestneighbor.K)[5], data["nodes1"]["index"][order])
