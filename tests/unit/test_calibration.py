"""`doctor --calibrate`: the costs of a machine, measured on one whose costs are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from ptxmotion.cli import main
from ptxmotion.harness import calibrate as calibration
from ptxmotion.transforms.kernel_fusion.benefit import MachineCosts

approx: Any = cast("Any", pytest).approx


class Clock:
    """A GPU on which a launch takes 2 us, a graph node 0.5 us, both 1 us more if cooperative, a barrier 30 ns, one of
    the grid 1 us and 2 ns for each block, a copy 1 ms."""

    def __init__(self) -> None:
        self.now = 0.0
        self.allocated = 0
        self.launch_cost = 2e-6

    def load(self, ptx: str, /) -> Any:
        clock = self

        class Module:
            def kernel(self, name: str) -> tuple[str, float]:
                return name, clock.turn("bar.sync" in ptx)

        return Module()

    def turn(self, has_barrier: bool) -> float:
        return 5e-8 if has_barrier else 2e-8

    def cooperative(self, kernel: tuple[str, float], /) -> tuple[str, float]:
        return f"cooperative {kernel[0]}", kernel[1]

    def pack(self, kernel: tuple[str, float], args: Sequence[Any], /) -> Sequence[Any]:
        return args

    def launch_packed(self, kernel: tuple[str, float], grid: Any, block: Any, shared: int, packed: Any, /) -> None:
        name, turn = kernel
        if name == "cooperative grid_turns":
            turn = 1e-6 + 2e-9 * grid[0]
        self.now += self.launch_cost + 1e-6 * name.startswith("cooperative") + turn * sum(map(int, packed))
        self.now += 1e-9 * (grid[0] - 1) if name == "empty" else 0.0

    def allocate(self, nbytes: int, /) -> int:
        self.allocated += 1
        return nbytes

    def free(self, buffer: int, /) -> None:
        self.allocated -= 1

    def fill(self, buffer: int, byte: int, /) -> None: ...

    def copy(self, target: int, source: int, nbytes: int, target_offset: int, source_offset: int, /) -> None:
        self.now += 1e-3

    def synchronize(self) -> None: ...

    def seconds_of(self, work: Callable[[], object]) -> float:
        start = self.now
        work()
        return self.now - start

    def graph(self, body: Callable[[], None], /) -> Callable[[], None]:
        def replay() -> None:
            self.launch_cost = 0.5e-6
            body()
            self.launch_cost = 2e-6

        return replay

    def launch_graph(self, graph: Callable[[], None], /) -> None:
        graph()

    def destroy_graph(self, graph: Any, /) -> None: ...

    def attribute(self, name: str, /) -> int:
        return {"MULTIPROCESSOR_COUNT": 132, "MAX_THREADS_PER_MULTIPROCESSOR": 2048}[name]

    def describe(self) -> dict[str, Any]:
        return {"gpu": "Clock"}


def test_calibration_finds_the_costs_of_a_machine() -> None:
    clock = Clock()
    found = calibration.calibrate(clock)
    assert found["launch"] == approx(2e-6) and found["graph_node"] == approx(0.5e-6)
    assert found["cooperative_launch"] == approx(1e-6) and found["cooperative_node"] == approx(1e-6)
    assert found["barrier"] == approx(3e-8) and found["block"] == approx(1e-9)
    assert found["grid_barrier"] == approx(1e-6 + 132 * 2e-9) and found["grid_block"] == approx(2e-9)
    assert found["bandwidth"] == approx(2 * calibration.COPIED / 1e-3)
    assert clock.allocated == 0
    assert MachineCosts.of(found).machine == "Clock"


def test_calibrated_costs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptxmotion.harness import cuda

    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    monkeypatch.setattr(cuda, "open_backend", Clock)
    assert main(["doctor", "--calibrate"]) == 0
    assert "0.5000 us" in capsys.readouterr().out
    assert json.loads((tmp_path / "machine-costs.json").read_text())["multiprocessors"] == 132
    assert main(["doctor", "--calibrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"] == "Clock"


def test_calibration_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ptxmotion.harness import cuda
    from ptxmotion.harness.machine import MachineMissing

    def missing() -> Any:
        raise MachineMissing("no GPU here", "get one")

    monkeypatch.setattr(cuda, "open_backend", missing)
    assert main(["doctor", "--calibrate"]) == 4
    assert "--calibrate needs a GPU: no GPU here" in capsys.readouterr().err
