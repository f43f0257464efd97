"""Rodinia programs: correct on the emulator, before and after the optimizer. Data and references are compared with
values computed by hand.
"""

from typing import Any

import numpy as np
import pytest
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.registry import find
from ptxmotion.suites.rodinia import bfs, btree, cfd, gaussian, hotspot, kmeans, lud, nw
from ptxmotion.suites.runner import run
from suite_programs import check_in_another_order, check_program, compiled

#: By program: the kinds of findings that are allowed. In `bfs` many threads write equal flags.
PROGRAMS = {
    "b+tree": [],
    "bfs": ["same-value-race"],
    "cfd": [],
    "gaussian": [],
    "hotspot": [],
    "kmeans": [],
    "lud": [],
    "nw": [],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(f"rodinia/{name}", findings=PROGRAMS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(f"rodinia/{name}", findings=PROGRAMS[name])


@pytest.mark.parametrize(
    ("name", "launches"), [("gaussian", 2 * 15), ("lud", 3 * 2 + 1), ("nw", 2 * 4 - 1), ("b+tree", 2)]
)
def test_programs_launch_as_often_as_the_original(name: str, launches: int) -> None:
    backend = EmulatorBackend()
    run(find(f"rodinia/{name}"), backend, compiled(f"rodinia/{name}"))
    assert backend.counts.launches == launches


def test_the_reference_of_bfs_agrees_with_a_queue() -> None:
    data = bfs.make_data("tiny", 3)
    distance, queue = {0: 0}, [0]
    for node in queue:
        first, count = data["nodes"][node]
        for other in data["edges"][first : first + count].tolist():
            if other not in distance:
                distance[other] = distance[node] + 1
                queue.append(other)
    assert bfs.reference(data)["costs"].tolist() == [distance.get(node, -1) for node in range(data["n"])]
    assert max(distance.values()) > 4


def test_the_tree_leads_to_every_key() -> None:
    keys = np.sort(np.random.default_rng(0).permutation(5000)[:700]).astype(np.int32)
    nodes, height = btree.build(keys, 9)
    assert height == 2 and nodes["is_leaf"].sum() == 78 and nodes["num_keys"].max() == 11
    for record, key in enumerate(keys.tolist()):
        node = nodes[0]
        for _ in range(height):
            node = nodes[node["indices"][np.searchsorted(node["keys"], key, side="right") - 1]]
        assert node["is_leaf"]
        (place,) = np.flatnonzero(node["keys"] == key)
        assert node["indices"][place] == record


def test_queries_of_btree_have_answers_and_none() -> None:
    data = btree.make_data("tiny", 0)
    small = {**data, "start": np.array([data["knodes"]["keys"][-1, 1]]), "end": np.array([10**6])}
    leaf = data["knodes"]["keys"][-1]
    small["end"][0] = leaf[leaf < btree.HIGHEST].max()
    found = btree.reference(small)
    last = data["knodes"][-1]
    assert found["rec_start"][0] == last["indices"][1] and found["rec_len"][0] == last["num_keys"] - 2
    full = btree.reference(btree.make_data("small", 0))
    assert 0.9 < (full["ans"]["value"] != -1).mean() < 1


def closed(data: dict[str, Any]) -> np.ndarray[Any, Any]:
    return data["normals"].reshape(3, cfd.FACES, -1).sum(axis=1)


def test_elements_of_cfd_are_closed_and_faces_belong_to_both_sides() -> None:
    data = cfd.make_data("tiny", 0)
    assert np.abs(closed(data)).max() < 1e-6
    count = 26 * 13
    neighbours = data["neighbours"].reshape(cfd.FACES, -1)[:, :count]
    normals = data["normals"].reshape(3, cfd.FACES, -1)[..., :count]
    assert (neighbours == -1).sum() == 26 and (neighbours == -2).sum() == 26 + 2 * 13
    for face, element in np.argwhere(neighbours >= 0):
        (back,) = np.flatnonzero(neighbours[:, neighbours[face, element]] == element)
        assert np.allclose(normals[:, back, neighbours[face, element]], -normals[:, face, element], atol=1e-6)


def test_the_reference_of_cfd_keeps_a_free_stream() -> None:
    data = cfd.make_data("tiny", 0)
    data["neighbours"] = np.where(data["neighbours"] == -1, -2, data["neighbours"])
    state = cfd.reference(data)["result"].reshape(cfd.VARIABLES, -1)
    speed = cfd.MACH
    stream = [1.4, 1.4 * speed, 0, 0, 0.7 * speed**2 + 2.5]
    assert np.allclose(state.T, stream, atol=1e-5)


def test_the_reference_of_gaussian_agrees_with_elimination() -> None:
    data = gaussian.make_data("tiny", 2)
    n = data["size"]
    a, b = data["a"].reshape(n, n).astype(np.float64), data["b"].astype(np.float64)
    for t in range(n):
        for row in range(t + 1, n):
            factor = a[row, t] / a[t, t]
            a[row] -= factor * a[t]
            b[row] -= factor * b[t]
    wanted = gaussian.reference(data)
    assert np.allclose(a.ravel(), wanted["a"], atol=1e-5) and np.allclose(b, wanted["b"], atol=1e-5)


def test_the_reference_of_hotspot_agrees_at_a_corner() -> None:
    data = hotspot.make_data("tiny", 0)
    data["steps"] = 1
    t = data["temperature"].reshape(data["rows"], -1).astype(np.float64)
    heat = data["power"][0] + (t[1, 0] - t[0, 0]) / data["ry"] + (t[0, 1] - t[0, 0]) / data["rx"]
    heat += (hotspot.AMBIENT - t[0, 0]) / data["rz"]
    assert np.isclose(hotspot.reference(data)["temperature"][0], t[0, 0] + data["step"] / data["cap"] * heat, rtol=1e-6)


def test_rounds_of_kmeans_are_several_and_its_reference_is_stable() -> None:
    data = kmeans.make_data("tiny", 0)
    found = kmeans.reference(data)
    points, centres = data["points"].reshape(data["npoints"], -1), found["clusters"].reshape(data["nclusters"], -1)
    distances = ((points[:, None] - centres) ** 2).sum(axis=2)
    assert np.array_equal(distances.argmin(axis=1), found["membership"])
    for cluster, centre in enumerate(centres):
        assert np.allclose(points[found["membership"] == cluster].mean(axis=0), centre, atol=1e-4)
    assert not np.allclose(found["clusters"], data["clusters"], atol=0.1)


def test_the_factors_of_lud_give_the_matrix_back() -> None:
    data = lud.make_data("tiny", 1)
    both = lud.reference(data)["m"].reshape(data["dim"], -1).astype(np.float64)
    product = (np.tril(both, -1) + np.eye(data["dim"])) @ np.triu(both)
    assert np.allclose(product.ravel(), data["m"], atol=1e-4)


def test_the_reference_of_nw_agrees_with_the_recurrence() -> None:
    data = nw.make_data("tiny", 5)
    n, penalty = data["cols"], data["penalty"]
    score, similarity = data["score"].reshape(n, n).copy(), data["similarity"].reshape(n, n)
    for i in range(1, n):
        for j in range(1, n):
            gap = max(score[i, j - 1], score[i - 1, j]) - penalty
            score[i, j] = max(score[i - 1, j - 1] + similarity[i, j], gap)
    assert np.array_equal(nw.reference(data)["score"], score.ravel())
