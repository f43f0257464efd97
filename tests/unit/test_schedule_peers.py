"""`docs/experiments/image_schedule_peers.py` and its tables, with a bench and peers that need no GPU."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ptxmotion.harness.machine import DeviceFailed

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "experiments"))
peers: Any = importlib.import_module("image_schedule_peers")
tables: Any = importlib.import_module("image_schedule_tables")

IMAGE = np.ones((96, 96, 1), np.float32)


class Bench(peers.Bench):
    """Images of ones. What a compiled program gives is given."""

    def __init__(self, folder: Path) -> None:
        self.name, self.size, self.folder = "blur", 96, folder
        self.backend = SimpleNamespace(destroy_graph=print)

    def result(self, run: Callable[[], Any]) -> list[Any]:
        return [run()]

    def graph(self, run: Callable[[], Any]) -> Any:
        return run

    def seconds(self, graph: Any) -> float:
        return 1e-6


class Peer:
    """A peer that gives the image times a factor. Raises `RuntimeError` if the factor is zero."""

    def __init__(self, factor: float) -> None:
        if not factor:
            raise RuntimeError("there is no kernel image")
        self.factor = factor

    def result(self) -> list[Any]:
        return [self.factor * IMAGE]

    def seconds(self) -> float:
        return 2e-6


def broken() -> Any:
    raise RuntimeError("too much shared memory")


def too_large() -> Any:
    raise DeviceFailed("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")


def test_a_peer_that_fails_is_written_down_and_the_others_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {
        "naive": lambda: IMAGE,
        "fused": lambda: IMAGE,
        "greedy": lambda: 2 * IMAGE,
        "paper": too_large,
        "peer:app": lambda: IMAGE,
    }
    runs |= {"peer:wrong": lambda: 2 * IMAGE, "peer:broken": broken}

    def given(*_: Any) -> Any:
        return runs.items()

    monkeypatch.setattr(peers, "runs_of", given)
    monkeypatch.setattr(peers, "WRONG", [])
    python = {"torch": lambda: Peer(1.0), "torch stages": lambda: Peer(0.0), "cupy": lambda: Peer(1.1)}
    times, failed = peers.timed(Bench(tmp_path), None, python)
    assert times == {word: pytest.approx(1.0) for word in ("naive", "fused", "peer:app")} | {
        "torch": pytest.approx(2.0)
    }
    assert set(failed) == {"greedy", "paper", "peer:wrong", "peer:broken", "torch stages", "cupy"}
    assert failed["torch stages"] == "RuntimeError: there is no kernel image"
    assert failed["peer:broken"] == "too much shared memory"
    assert failed["cupy"].startswith("differs by 0.1")
    # Only a schedule of our own makes the run fail.
    assert peers.WRONG == [
        "blur 96: greedy does not give the bits of naive kernels",
        "blur 96: paper: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    ]


def test_what_was_compiled_in_time_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def arm(*arguments: Any) -> Any:
        return arguments

    made = SimpleNamespace(Arm=arm, FUNCTIONS={"blur": None})
    monkeypatch.setitem(sys.modules, "image_schedule_torch", made)
    monkeypatch.setitem(sys.modules, "image_schedule_cupy", made)
    file = tmp_path / "compiled.jsonl"
    records = [("blur", 96, "torch stages", ""), ("blur", 96, "torch", "InductorError: no"), ("chain", 64, "torch", "")]
    keys = ("program", "size", "variant", "error")
    file.write_text("".join(json.dumps(dict(zip(keys, each, strict=True))) + "\n" for each in records))
    found, failed = peers.python_peers("blur", 96, file, True)
    assert {word: each() for word, each in found.items()} == {
        "torch stages": ("blur", 96, peers.RUNS, "torch stages"),
        "cupy": ("blur", 96, peers.RUNS),
    }
    assert failed == {"torch": "InductorError: no"}
    assert peers.python_peers("chain", 96, file, True) == ({}, {"torch": "not compiled"})
    assert peers.python_peers("chain", 96, None, False) == ({}, {})


def test_the_best_variant_of_torch_counts() -> None:
    times = {"naive": 9.0, "auto": 2.0, "fused": 2.0, "torch": 6.0, "torch stages": 4.0, "torch eager": 1.0}
    assert tables.of_torch(times) == 4.0
    assert tables.QUOTIENTS["`torch.compile` / best of ours"](times) == 2.0
