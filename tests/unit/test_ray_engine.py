"""The engine for Ray clusters, on workers that a fake of Ray loses on demand. `test_ray.py` uses Ray itself."""

import importlib
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import fake_ray
import pytest
from fake_ray import FakeRay, RayError, RayTaskError
from fake_runs import PLAN, arm, assembler, machine, task
from ptxmotion.harness.benchmark_run import Conditions, Prepared, empty_benchmark, prepare
from ptxmotion.harness.machine import MachineMissing
from ptxmotion.harness.results import BenchmarkResult
from ptxmotion.harness.worker import WorkerFailed
from ptxmotion.programs import ray_engine
from ptxmotion.programs.errors import RequirementMissing
from ptxmotion.programs.ray_engine import RayEngine


@pytest.fixture(autouse=True)
def fake_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.exceptions", fake_ray.exceptions)  # type: ignore[arg-type]
    assert importlib.import_module("ray.exceptions") is fake_ray.exceptions
    monkeypatch.setattr(ray_engine, "_START", 0.5)


class Cluster:
    """Workers on nodes of these kinds. ``loses`` maps a program to the errors of its first runs; ``unstarted`` workers
    are lost before they start."""

    def __init__(self, *gpus: str, loses: dict[str, list[Exception]] | None = None, unstarted: int = 0) -> None:
        self.gpus, self.loses, self.unstarted = gpus, loses or {}, unstarted
        self.runs: list[tuple[int, str]] = []
        self.lines: list[str] = []
        self.ray = FakeRay(self.answer)
        self.engine = RayEngine(self.ray, machine(), self.lines.append)

    def answer(self, worker: int, name: str, given: Sequence[Any]) -> Any:
        if name == "describe":
            if self.unstarted:
                self.unstarted -= 1
                raise RayError("the node has no memory")
            return {"node": f"node{worker}", "gpu": self.gpus[worker % len(self.gpus)], "temperature.gpu": worker}
        made: Prepared = given[1]
        self.runs.append((worker, made.work.fullname))
        if errors := self.loses.get(made.work.fullname):
            raise errors.pop(0)
        return empty_benchmark(made)

    def run(self, *names: str) -> list[BenchmarkResult]:
        prepared = {index: prepare(task(name, arm("O3")), assembler) for index, name in enumerate(names)}
        done: dict[int, BenchmarkResult] = {}

        def finish(index: int, result: BenchmarkResult) -> None:
            assert index not in done
            done[index] = result

        self.engine.run(Conditions(machine(), PLAN), prepared, finish, self.lines.append)
        assert sorted(done) == sorted(prepared)
        return [done[index] for index in sorted(done)]


def test_each_worker_is_recorded_and_every_program_runs_once() -> None:
    cluster = Cluster("H200")
    info = cluster.engine.start(2)
    workers = [{"node": "node0", "temperature.gpu": 0}, {"node": "node1", "temperature.gpu": 1}]
    assert info == {"gpu": "H200", "workers": workers}
    names = ["s/a", "s/b", "s/c"]
    assert [each.fullname for each in cluster.run(*names)] == names
    assert sorted(name for _, name in cluster.runs) == names
    cluster.engine.close()
    assert sorted(cluster.ray.killed) == [0, 1]


def test_a_lost_program_is_run_again_by_a_new_worker_that_is_recorded() -> None:
    cluster = Cluster("H200", loses={"s/a": [RayError("the actor died\nmore")]})
    info = cluster.engine.start(1)
    (result, _) = cluster.run("s/a", "s/b")
    assert result.error == "" and cluster.runs == [(0, "s/a"), (1, "s/a"), (1, "s/b")]
    assert [each["node"] for each in info["workers"]] == ["node0", "node1"] and cluster.ray.killed == [0]
    assert cluster.lines[0] == "ray: a worker was lost while it ran s/a: worker 0 on node0: the actor died"


def test_a_program_is_given_up_after_three_workers_and_the_result_says_so() -> None:
    gone: list[Exception] = [
        RayError("gone"),
        RayTaskError(MachineMissing("no GPU")),
        RayError("gone"),
        RayError("never"),
    ]
    cluster = Cluster("H200", loses={"s/a": gone})
    cluster.engine.start(1)
    first, second = cluster.run("s/a", "s/b")
    assert first.error == (
        "given up: 3 workers were lost while they ran it: worker 0 on node0: gone; worker 1 on node1: no GPU; "
        "worker 2 on node2: gone"
    )
    assert second.error == "" and cluster.runs[-1] == (3, "s/b")


def test_another_error_of_a_worker_ends_the_run() -> None:
    cluster = Cluster("H200", loses={"s/a": [RayTaskError(TypeError("a fault of the program"))]})
    cluster.engine.start(1)
    with pytest.raises(TypeError, match="a fault"):
        cluster.run("s/a")


def test_machines_of_several_kinds_are_refused() -> None:
    with pytest.raises(RequirementMissing, match="kinds: node0 and node1: gpu 'H200' and 'A100'"):
        Cluster("H200", "A100").engine.start(2)
    # The second worker replaces the first one.
    later = Cluster("H200", "A100", loses={"s/a": [RayError("gone")]})
    later.engine.start(1)
    with pytest.raises(RequirementMissing, match="of several kinds"):
        later.run("s/a")


def test_workers_that_do_not_start_end_the_run() -> None:
    with pytest.raises(RequirementMissing, match="do not start: the node has no memory"):
        Cluster("H200", unstarted=3).engine.start(1)
    once = Cluster("H200", unstarted=1)
    assert len(once.engine.start(1)["workers"]) == 1


def test_a_cluster_whose_workers_never_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("H200")

    def nothing(calls: Sequence[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return [], list(calls)

    monkeypatch.setattr(cluster.ray, "wait", nothing)
    with pytest.raises(RequirementMissing, match=r"no worker of the Ray cluster started within 0\.5 s"):
        cluster.engine.start(1)


def test_the_errors_of_a_worker_and_prepared_benchmarks_can_be_sent() -> None:
    failed = pickle.loads(pickle.dumps(WorkerFailed("OSError", "no file", "trace", True)))
    assert (str(failed), failed.trace, failed.is_device_failure) == ("OSError: no file", "trace", True)
    made = prepare(task("s/a", arm("O3"), arm("x", "honest 2e-4")), assembler)
    assert pickle.loads(pickle.dumps(made)) == made
