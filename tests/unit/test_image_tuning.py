"""Lowerings by measured times: the choice, what is kept, and the refusals. A stand-in for the GPU gives the times."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.cli import main
from ptxmotion.dsl import DslError, f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Mask, Window, local, pipeline, point, tuning
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.lowered import Launch, Options
from ptxmotion.dsl.image.tuning import KeptTimes, Timing, tuned
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.harness.machine import MachineMissing

WEIGHTS = Mask(np.ones((3, 3), np.float32))


@local(WEIGHTS)
def box(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


@point
def double(value: f32) -> f32:
    return value + value


@pipeline
def twice(src: Image[f32]) -> Image[f32]:
    return double(box(Accessor(box(Accessor(src, Boundary.CLAMP)), Boundary.CLAMP)))


class FixedTimes:
    """A timer with the same times for every local operator; kernels of a point operator take the same time. ``calls``
    counts the local operators that it timed."""

    def __init__(self, *micros: float, machine: str = "GPU 1, driver 2") -> None:
        self.micros, self.machine, self.calls = micros, machine, 0

    def seconds(self, launches: Sequence[Launch], ptx: Sequence[str]) -> list[float]:
        assert len(launches) == len(ptx)
        assert all(launch.kernel.entry(text) in text for launch, text in zip(launches, ptx, strict=True))
        if launches[0].nodes[0].operator.kind == "point":
            return [1e-6 for _ in launches]
        assert len(launches) == len(self.micros)
        self.calls += 1
        return [each * 1e-6 for each in self.micros]


def options(block: tuple[int, int] = (64, 4)) -> Options:
    return Options(block, nvcc=compiler())


@pytest.mark.parametrize(
    ("micros", "chosen"),
    [
        ((10.0, 8.0, 9.0, 9.5), "isp"),
        ((10.0, 9.0, 8.0, 8.5), "isp_warp"),
        ((10.0, 9.0, 8.0, 7.0), "isp_rows"),
        ((8.0, 9.0, 10.0, 11.0), "naive"),
        ((10.0, 9.95, 9.99, 9.98), "naive"),
    ],
)
def test_the_fastest_lowering_is_chosen(micros: tuple[float, ...], chosen: str) -> None:
    timer = FixedTimes(*micros)
    made = tuned(twice.graph(200, 60), options(), lambda: timer, KeptTimes(None))
    first, second, last = made.launches
    assert timer.calls == 1, "the second operator has the kernels and sizes of the first one"
    for launch in (first, second):
        assert launch.notes[-1] == f"chosen: {chosen}"
        times = ", ".join(
            f"{name} {value:.2f} us"
            for name, value in zip(("naive", "isp", "isp_warp", "isp_rows"), micros, strict=True)
        )
        assert times in launch.notes[-2] and launch.notes[-2].startswith("measured on GPU 1, driver 2, 20")
        assert any("regions" in note for note in launch.notes) is (chosen != "naive")
    assert last.notes[-1] == "chosen: naive"


def test_tuned_pipelines_compute_the_same() -> None:
    image = np.random.default_rng(0).random((21, 150), np.float32)
    expected = twice.compile((21, 150))(image, backend=EmulatorBackend())
    for micros in ((3.0, 2.0, 1.0), (2.0, 1.0, 3.0)):
        made = tuned(twice.graph(150, 21), options(), lambda micros=micros: FixedTimes(*micros), KeptTimes(None))
        data: dict[str, Any] = {"src": image.reshape(-1), made.graph.outputs[0].name: np.zeros(image.size, np.float32)}
        results = made.program().run(EmulatorBackend(), compiler(), **data)
        assert results[made.graph.outputs[0].name].tobytes() == expected.tobytes()


def test_times_are_kept_by_machine_kernel_and_size(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "image-times.json"

    def measured(timer: FixedTimes, *, width: int = 200, block: tuple[int, int] = (64, 4)) -> int:
        """How many times are measured."""
        before = timer.calls
        tuned(twice.graph(width, 60), options(block), lambda: timer, KeptTimes(path))
        return timer.calls - before

    timer = FixedTimes(10, 8, 9, 9)
    assert [measured(timer), measured(timer)] == [1, 0]
    assert measured(timer, width=201) == 1, "another size"
    assert measured(timer, block=(64, 2)) == 1, "another block"
    assert measured(FixedTimes(10, 8, 9, 9, machine="GPU 2")) == 1, "another machine"
    (first, *_) = entries = json.loads(path.read_text())
    assert len(entries) == 8 and [measured(timer), measured(timer, width=201)] == [0, 0]
    assert {name: first[name] for name in ("machine", "node", "size", "block")} == {
        "machine": "GPU 1, driver 2",
        "node": "box",
        "size": [200, 60],
        "block": [64, 4],
    }
    assert first["seconds"] == pytest.approx({"naive": 10e-6, "isp": 8e-6, "isp_warp": 9e-6, "isp_rows": 9e-6})
    # A kept time overrides what would be measured now.
    slower = FixedTimes(1, 8, 9, 9)
    made = tuned(twice.graph(200, 60), options(), lambda: slower, KeptTimes(path))
    assert made.launches[0].notes[-1] == "chosen: isp" and slower.calls == 0


def test_other_processes_entries_stay(tmp_path: Path) -> None:
    path = tmp_path / "image-times.json"
    one, two = KeptTimes(path), KeptTimes(path)
    one.add([Timing("a", "GPU", "2026-01-01", "box", (1, 2), (3, 4), {"naive": 1e-6})])
    two.add([Timing("b", "GPU", "2026-01-01", "box", (1, 2), (3, 4), {"naive": 1e-6})])
    assert sorted(KeptTimes(path).entries) == [("GPU", "a"), ("GPU", "b")]


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"key": "a"}]', "{}x", '[{"seconds": {}}]'])
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "image-times.json"
    path.write_text(text)
    with pytest.raises(DslError, match=r"image-times\.json has no times of image kernels .*: delete it"):
        KeptTimes(path)


def test_nothing_is_measured_where_there_is_one_kernel() -> None:
    @pipeline
    def doubled(src: Image[f32]) -> Image[f32]:
        return double(src)

    def refused() -> Any:
        raise AssertionError("no timer is needed")

    assert tuned(doubled.graph(64, 8), options(), refused, KeptTimes(None)).launches[0].notes == ()


def no_gpu() -> Any:
    raise MachineMissing("the driver sees no device", "is CUDA_VISIBLE_DEVICES empty?")


def test_without_a_gpu_tuning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxmotion.harness.cuda.open_backend", no_gpu)
    with pytest.raises(MachineMissing, match="times are measured on a GPU: the driver sees no device"):
        twice.compile((40, 80), tune=True)
    with pytest.raises(DslError, match="tune=True chooses the lowering of each operator, so it cannot be 'isp'"):
        twice.compile((40, 80), tune=True, lowering="isp")


def test_compile_and_the_command_line_tune(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "GpuTimer", lambda: FixedTimes(10, 8))
    compiled = twice.compile((40, 80), tune=True)
    assert compiled.lowered.lowering == "tuned" and compiled.lowered.launches[0].notes[-1] == "chosen: isp"
    assert twice.compile((40, 80)).lowered.lowering == "naive"
    assert main(["image", "show", "gaussian3x3", "--tune", "--size=96x64"]) == 0
    shown = capfd.readouterr()
    assert "gaussian3x3: tuned" in shown.out and "naive 10.00 us, isp 8.00 us" in shown.out
    assert f"the times are kept in {tmp_path / 'image-times.json'}" in shown.err
    assert main(["image", "show", "gaussian3x3", "--tune", "--lowering=isp"]) == 2
    assert "--tune chooses the lowering of each operator: leave out --lowering" in capfd.readouterr().err


def test_the_command_line_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("ptxmotion.harness.cuda.open_backend", no_gpu)
    assert main(["image", "show", "gaussian3x3", "--tune", "--size=96x64"]) == 4
    assert "times are measured on a GPU: the driver sees no device" in capfd.readouterr().err
