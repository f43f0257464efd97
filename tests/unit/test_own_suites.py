"""A user's own programs: files, folders, shell patterns of files, and packages with entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from own_kernels import COALESCED, write_program
from ptxmotion.cli import main
from ptxmotion.dsl import DslError
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
