"""Finding benchmarks, checking their results, and an example program."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import DslError, host, i32, program
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.programs.host_programs import load_file
from ptxmotion.suites.registry import SIZES, Benchmark, Tolerance, benchmarks, find, from_file, suites
from ptxmotion.suites.rodinia import pathfinder
from ptxmotion.suites.runner import compiler, ptx_of, run
from ptxmotion.toolchain.tools import ToolMissing


@program
def nothing(x: host[i32]) -> None:
    x[0] = 1


EXACT = Tolerance()


def zeros(size: str, seed: int) -> dict[str, Any]:
    return {"x": np.zeros(3, np.int32)}


def made(tolerance: Any = EXACT) -> Benchmark:
    return Benchmark(
        "mine",
        "nothing",
        nothing,
        zeros,
        lambda data: {"x": np.array([1, 0, 0], np.int32)},
        ["nothing"],
        "sets one element",
        tolerance,
        {"tiny": "3"},
    )


def test_every_program_is_found_and_described() -> None:
    assert "rodinia" in suites()
    found = list(benchmarks())
    assert len({benchmark.fullname for benchmark in found}) == len(found)
    for benchmark in found:
        assert benchmark.kernels and benchmark.stresses and benchmark.description
        assert set(benchmark.sizes) == set(SIZES)
    assert find("pathfinder") is find("rodinia/pathfinder") is pathfinder.benchmark
    message = r"no program is called 'rodinia/none'; there are the suites .*`ptxmotion bench list`"
    with pytest.raises(DslError, match=message):
        find("rodinia/none")
    for wrong, right in (("rodina/bfs", "rodinia/bfs"), ("treelogy/kmean", "treelogy/kmeans"), ("rodinai", "rodinia")):
        with pytest.raises(DslError, match=rf"no program is called '{wrong}' \(did you mean '{right}'\?\)"):
            find(wrong)


def test_the_pages_have_the_number_of_programs() -> None:
    root = Path(__file__).parents[2]
    every, images = len(list(benchmarks())), len(list(benchmarks("image")))
    assert f"[{every} programs](docs/suites.md)" in (root / "README.md").read_text()
    text = " ".join((root / "docs" / "suites.md").read_text().split())
    assert f"contain {every} benchmark programs: " in text and f"and {images} image filters and reductions" in text


def test_data_depend_on_size_and_seed_only() -> None:
    for benchmark in benchmarks():
        first, again, other = (benchmark.make_data("tiny", seed) for seed in (0, 0, 1))
        names = {param.name for param in benchmark.program.host.params}
        assert set(first) == set(again) == set(other) == names
        arrays = [name for name, value in first.items() if isinstance(value, np.ndarray)]
        assert all(first[name].tobytes() == again[name].tobytes() for name in arrays)
        assert any(first[name].tobytes() != other[name].tobytes() for name in arrays)


def test_results_are_compared() -> None:
    wanted = {"x": np.array([1.0, np.nan, 3.0], np.float32)}
    exact, loose = made(), made(Tolerance(relative=1e-3))
    assert exact.check(wanted, wanted) == []
    near = {"x": np.array([1.0, np.nan, 3.001], np.float32)}
    assert exact.check(near, wanted) == ["x: 1 of 3 elements differ; [2] is 3.000999927520752, expected 3.0"]
    assert loose.check(near, wanted) == []
    assert made({"x": Tolerance(absolute=0.1)}).check(near, wanted) == []
    assert made({"y": Tolerance(absolute=0.1)}).check(near, wanted) != []
    assert made(Tolerance(mismatches=0.5)).check(near, wanted) == []
    wrong = {"x": np.array([np.nan, np.nan, 3.0], np.float32)}
    assert "1 of 3 elements differ; [0] is nan" in loose.check(wrong, wanted)[0]
    assert made().check({}, wanted) == ["x: the program has no such output"]
    assert "float64[3], but float32[3] is expected" in made().check({"x": wanted["x"].astype(float)}, wanted)[0]
    with pytest.raises(DslError, match="sizes must be some of tiny, small, full, not huge"):
        Benchmark("a", "b", nothing, dict, dict, [], "", sizes={"huge": "1"})  # pyright: ignore[reportArgumentType]


def test_files_declare_benchmarks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        from_file(tmp_path / "none.py")
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    with pytest.raises(DslError, match="declares no Benchmark"):
        from_file(empty)
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1 / 0\n")
    with pytest.raises(DslError, match=r"broken\.py:1:.*ZeroDivisionError"):
        from_file(broken)


def test_a_file_that_changes_twice_in_a_second_is_run_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own loader takes the bytecode of the first text, since size and time of the second one are the same."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "changed.py"
    for letter in "ab":
        file.write_text(f"raise ValueError({letter!r})\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        with pytest.raises(DslError, match=f"ValueError: {letter}"):
            from_file(file)
        with pytest.raises(DslError, match=f"ValueError: {letter}"):
            load_file(file)


def test_the_reference_of_pathfinder_agrees_with_every_path() -> None:
    wall = np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5]], np.int32)
    data = {"wall": wall.ravel(), "rows": 3, "cols": 3}
    best = [
        min(wall[2, c] + wall[1, b] + wall[0, a] for a in range(3) for b in range(3) if abs(a - b) < 2 > abs(b - c))
        for c in range(3)
    ]
    assert pathfinder.reference(data)["costs"].tolist() == best


@pytest.mark.parametrize("schedule", ["order", "random"])
def test_pathfinder_on_the_emulator(schedule: str) -> None:
    try:
        nvcc = compiler()
    except ToolMissing as why:
        pytest.skip(str(why))
    ptx = ptx_of(pathfinder.benchmark, nvcc)
    for seed in range(2):
        backend = EmulatorBackend(schedule=schedule, seed=seed)
        assert run(pathfinder.benchmark, backend, ptx, "tiny", seed).differences == []
        # In the last, shorter pyramid adjacent blocks write equal costs to the same elements, as in the original.
        assert {finding.kind for finding in backend.findings} <= {"same-value-race"}
