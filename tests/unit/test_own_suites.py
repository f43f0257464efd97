"""A user's own programs: files, folders, shell patterns of files, and packages with entry points."""

import csv
import io
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from fake_runs import arm, counted_task, machine, session, task
from own_kernels import COALESCED, write_program
from ptxmotion.cli import main
from ptxmotion.dsl import DslError
from ptxmotion.harness.exporters import export
from ptxmotion.harness.results import read
from ptxmotion.harness.throughput import ROOF, throughput_text, throughputs
from ptxmotion.programs.tasks import Problems, select

ROOT = Path(__file__).parents[2]


def named(path: Path, name: str) -> Path:
    """A program `mine/NAME` in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_program(path, COALESCED)
    path.write_text(path.read_text().replace('"mine", "scale"', f'"mine", "{name}"'))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two programs, a script that must not run, and files in hidden folders."""
    named(tmp_path / "own" / "a.py", "a")
    named(tmp_path / "own" / "deep" / "b.py", "b")
    (tmp_path / "own" / "script.py").write_text("raise SystemExit('it ran')\n")
    named(tmp_path / "own" / ".hidden" / "c.py", "c")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own"


def selected(*names: str) -> list[tuple[str, str]]:
    return [(benchmark.fullname, os.path.relpath(file)) for benchmark, file in select(names, None)]


def test_a_folder_and_a_pattern_select_files(folder: Path) -> None:
    every = [("mine/a", "own/a.py"), ("mine/b", "own/deep/b.py")]
    assert selected("own") == selected(str(folder)) == selected("own/**/[ab].py") == every
    assert selected("own/a*.py") == selected("own/a.py") == every[:1]
    assert selected("own", "own/a.py") == every
    (folder.parent / "empty").mkdir()
    for name, message in (
        ("own/x*.py", "no file matches 'own/x"),
        ("empty", "no file .* declares a Benchmark"),
        ("own/x", "no program is called"),
    ):
        with pytest.raises(DslError, match=message):
            select([name], None)


def test_one_bad_file_does_not_end_the_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "none.py").write_text("# no Benchmark here\n")
    run = ["bench", "run", "--backend=emulator", "--seeds=1", "--variant=cse", "--json=r.json"]
    assert main([*run, "own"]) == 0
    err = capfd.readouterr().err
    assert "warning: own/none.py declares no Benchmark: left out" in err
    assert "mine/a: cse IDENTICAL" in err and "mine/b: cse IDENTICAL" in err
    (folder / "broken.py").write_text("Benchmark = 1 / 0\n")
    # The others run, and the exit code says that an input is bad.
    assert main([*run, "own"]) == 3
    err = capfd.readouterr().err
    assert "own/broken.py:1:1: error: ZeroDivisionError" in err and "mine/b: cse IDENTICAL" in err
    assert main(["bench", "list", "own"]) == 3
    out, err = capfd.readouterr()
    assert "mine/a" in out and "ZeroDivisionError" in err
    # Nothing is left to run.
    assert main([*run, "own/none.py"]) == 3
    assert "own/none.py declares no Benchmark" in capfd.readouterr().err
    with pytest.raises(DslError):
        select(["own"], None)
    problems = Problems()
    assert len(select(["own"], None, problems)) == 2 and len(problems.errors) == 2


@pytest.mark.slow
def test_a_package_adds_programs_by_entry_points(tmp_path: Path) -> None:
    """A package as pip installs it: a folder with its metadata on the path."""
    site = tmp_path / "site"
    named(site / "ours" / "fast.py", "fast")
    (site / "ours" / "__init__.py").write_text("")
    metadata = site / "ours-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[ptxmotion.suites]\nmine = ours\ngone = ours.no_such_module\nagain = ours.fast:benchmark\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "typings"), str(site)])}

    def bench(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ptxmotion", "bench", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    listed = bench("list", "mine")
    assert listed.returncode == 0 and "mine/fast" in listed.stdout, listed.stderr
    assert "entry point 'gone' (ours.no_such_module): ModuleNotFoundError" in listed.stderr
    assert "entry point 'mine' (ours): there is already a mine/fast" in listed.stderr
    done = bench("run", "mine/fast", "--backend=emulator", "--seeds=1", "--variant=cse", "--json=r.json")
    assert done.returncode == 0 and "mine/fast: cse IDENTICAL" in done.stderr, done.stderr


# --- parameters and throughput

_SWEPT = """\
import numpy as np
from ptxmotion.dsl import allocate, blockDim, blockIdx, copy, host, i32, kernel, program, ptr, threadIdx
from ptxmotion.suites.registry import Benchmark

@kernel
def twice(n: i32, x: ptr[i32]) -> None:
    i: i32 = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        x[i] = 2 * x[i]

@program
def run(n: i32, x: host[i32]) -> None:
    dx = allocate(i32, n)
    copy(dx, x)
    twice[(n + 127) // 128, 128](n, dx)
    copy(x, dx)

def make_data(size, seed, n, low):
    return {"n": n, "x": np.random.default_rng(seed).integers(low, 1000, n).astype(np.int32)}

benchmark = Benchmark("mine", "twice", run, make_data, lambda data: {"x": 2 * data["x"]}, [], "",
                      sizes={"tiny": "n"}, parameters={"n": 64, "low": 0},
                      work=lambda data: {"bytes": 8 * data["n"], "elements": data["n"]})
"""


def test_a_sweep_runs_every_combination(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "twice.py").write_text(_SWEPT)
    run = ["bench", "run", "own/twice.py", "own/a.py", "--backend=emulator", "--seeds=1", "--variant=cse"]
    assert main([*run, "--param=n=1k,1Ki", "--param=low=0,1", "--json=r.json"]) == 0
    result = read("r.json")
    names = [f"mine/twice[n={n},low={low}]" for n in (1000, 1024) for low in (0, 1)]
    assert [each.fullname for each in result.benchmarks] == [*names, "mine/a"]
    assert [each.params for each in result.benchmarks][1] == {"size": "tiny", "n": 1000, "low": 1}
    assert result.benchmarks[2].work == {"bytes": 8192.0, "elements": 1024.0} and result.benchmarks[4].work == {}
    counts = [each.arm("O3").emulated["global_load_sectors"] for each in result.benchmarks]
    assert counts[0] == 125 and counts[2] == 128
    # Without --param the default values are used.
    assert main([*run[:3], *run[4:], "--json=r.json"]) == 0
    assert [each.fullname for each in read("r.json").benchmarks] == ["mine/twice"]
    capfd.readouterr()
    assert main([*run, "--param=n=5,6", "--dry-run"]) == 0
    assert (
        capfd.readouterr().out == "mine/twice[n=5] tiny: O3, cse\nmine/twice[n=6] tiny: O3, cse\nmine/a tiny: O3, cse\n"
    )
    for text, message in (
        ("m=1", "--param: no program has a parameter 'm'; there are low, n"),
        ("n=x", "--param: 'n' of mine/twice is a number, not 'x'"),
        ("n", "is not a parameter with values"),
        ("n=1T", "is not a parameter with values"),
    ):
        assert main([*run, f"--param={text}"]) == 2
        assert message in capfd.readouterr().err


def test_throughputs_are_the_work_by_the_median_time() -> None:
    done = session().run([counted_task("suite/a", arm("O3", "honest 1e-4"), arm("lcm", "honest 0.5e-4"))])
    (benchmark,) = done.benchmarks
    rates = throughputs(benchmark, benchmark.arm("lcm"))
    assert rates["bytes"] == pytest.approx(8000 / 0.5e-4, rel=0.02)
    assert throughput_text(done, benchmark, benchmark.arm("O3")).startswith("0.0")
    done.machine_info[ROOF] = 320e6
    assert re.fullmatch(
        r"0\.1[56]\d* GB/s \((49|50|51) % of the bandwidth of a copy\), 0\.0(2|19\d|20\d)\d* G elements/s",
        throughput_text(done, benchmark, benchmark.arm("lcm")),
    )
    (first, second) = list(csv.DictReader(io.StringIO(export(done, "csv"))))
    assert float(second["bytes_per_s"]) == rates["bytes"] and float(first["elements_per_s"]) < rates["elements"]
    assert "| suite/a | lcm | 0.1" in export(done, "markdown")
    untimed = session(machine("")).run([counted_task("suite/a", arm("O3"), arm("lcm", "honest 1"))])
    assert throughput_text(untimed, untimed.benchmarks[0], untimed.benchmarks[0].arm("O3")) == ""


def test_a_timed_run_prints_throughputs_and_fails_where_it_shall(capfd: pytest.CaptureFixture[str]) -> None:
    from ptxmotion.cli.bench_run import _conclude

    done = session().run([counted_task("suite/a", arm("O3", "honest 1e-4"), arm("lcm", "honest 2e-4"))])
    assert done.benchmarks[0].candidates[0].regressed
    assert [_conclude(done, fails) for fails in (set[str](), {"slower"}, {"worse", "invalid"})] == [0, 1, 0]
    err = capfd.readouterr().err
    assert re.search(r"^suite/a +lcm +SLOWER +0\.\d+ ", err, re.MULTILINE)
    assert re.search(r"^suite/a +O3 +0\.0\d+ GB/s, 0\.0\d+ G elements/s$", err, re.MULTILINE)
    throttled = session(machine("throttled_stopwatch")).run([task("suite/a", arm("O3"), arm("x", "honest 2e-4"))])
    assert [_conclude(throttled, fails) for fails in (set[str](), {"invalid"}, {"slower"})] == [0, 5, 0]
    assert "no verdict counts" in capfd.readouterr().err


def test_the_roof_is_that_of_the_gpu_that_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with different GPUs may share a cache folder, and workers of a cluster are calibrated by themselves."""
    from ptxmotion.programs.machine_costs import costs_file_text, measured_bandwidth, read_costs

    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    costs = {**asdict(read_costs()), "machine": "NVIDIA H200", "bandwidth": 4e12}
    assert measured_bandwidth("NVIDIA H200") is None
    (tmp_path / "machine-costs.json").write_text(costs_file_text(costs))
    assert measured_bandwidth("NVIDIA H200") == 4e12
    assert measured_bandwidth("NVIDIA A100") is None
    done = session().run([counted_task("suite/a", arm("O3", "honest 1e-4"))])
    (benchmark,) = done.benchmarks
    assert benchmark.timing is not None and " of a copy" not in throughput_text(done, benchmark, benchmark.arm("O3"))
    benchmark.timing.machine = 1
    for workers, share in (([{ROOF: 1e6}, {ROOF: 160e6}], "50 %"), ([{ROOF: 160e6}, {}], ""), ([{ROOF: 160e6}], "")):
        done.machine_info = {"workers": workers}
        text = throughput_text(done, benchmark, benchmark.arm("O3"))
        assert (share in text) if share else ("%" not in text), text
    benchmark.work["bytes"] = 8.0
    done.machine_info = {ROOF: 160e6}
    assert "(0.05 % of the bandwidth of a copy)" in throughput_text(done, benchmark, benchmark.arm("O3"))
