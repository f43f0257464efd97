"""`ptxmotion opt` with several files, and with folders."""

import argparse
import json
import os
import signal
from pathlib import Path

import pytest
from motion import DIVISION_AGAIN, SUM_IN_MEMORY
from ptxmotion.cli import main
from ptxmotion.cli.opt_files import run_files


def opt(*arguments: object) -> int:
    return main(["opt", "--no-config", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files that the passes change, one of them in a subfolder, and a file that they do not change."""
    inner = tmp_path / "in" / "inner"
    inner.mkdir(parents=True)
    for path in (tmp_path / "in" / "a.ptx", inner / "b.ptx"):
        path.write_text(DIVISION_AGAIN)
    (tmp_path / "in" / "same.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n")
    (tmp_path / "in" / "notes.txt").write_text("no PTX")
    return tmp_path / "in"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_mirrored(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert opt("-O1", folder, "-o", out) == 0
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == "ptxmotion: 3 files: 2 changed, 0 failed\n"
    assert names(out) == ["a.ptx", "inner/b.ptx", "same.ptx"]
    assert opt("-O1", folder / "a.ptx") == 0
    alone = capfd.readouterr().out
    assert (out / "a.ptx").read_text() == (out / "inner" / "b.ptx").read_text() == alone


def test_files_keep_their_names(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt("-O1", folder / "a.ptx", folder / "inner" / "b.ptx", "-o", tmp_path / "new" / "out") == 0
    assert names(tmp_path / "new" / "out") == ["a.ptx", "b.ptx"]
    assert "2 files: 2 changed" in capfd.readouterr().err


def test_one_that_fails_does_not_end_the_others(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "b.ptx").write_text("this is no PTX")
    assert opt("-O1", folder, tmp_path / "missing.ptx", "-o", tmp_path / "out") == 3
    printed = capfd.readouterr().err
    assert printed.endswith(
        f"ptxmotion: 5 files: 2 changed, 2 failed: {folder / 'b.ptx'}, {tmp_path / 'missing.ptx'}\n"
    )
    assert f"{folder / 'b.ptx'}:1:1: error:" in printed
    assert names(tmp_path / "out") == ["a.ptx", "inner/b.ptx", "same.ptx"]


def test_the_worst_exit_code_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_PTXAS", str(tmp_path / "none"))
    (folder / "b.ptx").write_text("this is no PTX")
    assert opt("-O1", "--emit=cubin", folder, "-o", tmp_path / "out") == 4
    assert "5 files" not in capfd.readouterr().err


def test_what_else_is_written_is_one_for_each_file(folder: Path, tmp_path: Path) -> None:
    printed = [f"--remarks-output={tmp_path / 'remarks'}", f"--stats-json={tmp_path / 'stats'}"]
    assert opt("-O1", folder, "-o", tmp_path / "out", *printed, f"--dump={tmp_path / 'dump'}", "--emit=json") == 0
    assert names(tmp_path / "out") == ["a.json", "inner/b.json", "same.json"]
    assert names(tmp_path / "remarks") == ["a.opt.yaml", "inner/b.opt.yaml", "same.opt.yaml"]
    assert names(tmp_path / "stats") == ["a.json", "inner/b.json", "same.json"]
    document = json.loads((tmp_path / "stats" / "inner" / "b.json").read_text())
    assert document["file"] == str(folder / "inner" / "b.ptx")
    assert {Path(name).parent.as_posix() for name in names(tmp_path / "dump")} == {"a", "inner/b"}


def test_outputs_may_replace_the_inputs(folder: Path) -> None:
    assert opt("-O1", folder, "-o", folder) == 0
    assert (folder / "a.ptx").read_text() not in ("", DIVISION_AGAIN)
    assert names(folder) == ["a.ptx", "inner/b.ptx", "notes.txt", "same.ptx"]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["a.ptx", "same.ptx"], "-o names a folder"),
        (["a.ptx", "same.ptx", "-o", "one.ptx"], "-o names a folder to write to ('one.ptx/' is one), not 'one.ptx'"),
        (["-O2", "--emit=cubin", "a.ptx", "same.ptx", "-o", "one.cubin"], "not 'one.cubin'"),
        ([".", "-o", "out", "--contract", "c.json"], "--contract names a folder"),
        ([".", "-o", "out", "--remarks-output", "r.yaml"], "--remarks-output names a folder"),
        (["-", "-o", "out/"], "stdin has no name for a file in it"),
        (["."], "-o names a folder"),
        (["a.ptx", "same.ptx", "-o", "notes.txt"], "-o names a folder"),
        (["a.ptx", "-", "-o", "out"], "stdin cannot be one of several files"),
        ([".", "inner/b.ptx", "a.ptx", "../in/a.ptx", "-o", "out"], "have the same output"),
    ],
)
def test_wrong_usage_of_opt_with_files_writes_nothing(
    folder: Path, arguments: list[str], printed: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert opt(*arguments) == 2
    assert printed in capfd.readouterr().err
    assert names(folder) == ["a.ptx", "inner/b.ptx", "notes.txt", "same.ptx"]


@pytest.mark.parametrize("exists", [False, True])
def test_one_input_with_a_folder_for_its_output(folder: Path, tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "out" / "deep"
    if exists:
        out.mkdir(parents=True)
    assert opt("-O1", folder / "a.ptx", "-o", f"{out}/") == 0
    assert opt("-O1", folder / "a.ptx", "-o", out, "--emit=json") == 0
    assert names(out) == ["a.json", "a.ptx"]
    (folder / "b.ptx").write_text("this is no PTX")
    assert opt(folder / "b.ptx", "-o", f"{tmp_path / 'none'}/") == 3
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").touch()
    assert opt("-O1", folder / "a.ptx", "-o", f"{tmp_path / 'file'}/") == 3


def test_folders_with_the_ending_of_a_file(folder: Path, tmp_path: Path) -> None:
    assert opt("-O1", folder, "-o", f"{tmp_path / 'one.ptx'}/") == 0
    assert opt("-O1", folder, "-o", tmp_path / "one.ptx") == 0
    assert names(tmp_path / "one.ptx") == ["a.ptx", "inner/b.ptx", "same.ptx"]


def test_versions_are_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    given.mkdir()
    (given / "a.ptx").write_text(SUM_IN_MEMORY)
    assert opt("-O3", "--gate=off", given, "-o", out, f"--contract={tmp_path / 'contracts'}") == 0
    document = json.loads((tmp_path / "contracts" / "a.contract.json").read_text())
    added = sum(len(kernel["versions"]) - 1 for kernel in document["kernels"].values())
    assert added > 0
    word = "version" if added == 1 else "versions"
    assert capfd.readouterr().err.endswith(f"ptxmotion: 1 file: 0 changed, {added} {word} added, 0 failed\n")


def test_a_folder_without_ptx_is_bad_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt(tmp_path, "-o", tmp_path / "out") == 3
    assert "there is no file *.ptx below this folder" in capfd.readouterr().err


@pytest.mark.parametrize("jobs", [1, 3])
def test_messages_come_in_order_for_any_number_of_processes(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], jobs: int
) -> None:
    (folder / "b.ptx").write_text("this is no PTX")
    assert opt("-O1", "--remarks=lcm", f"-j{jobs}", folder, "-o", tmp_path / "out") == 3
    lines = capfd.readouterr().err.splitlines()
    places = [line.partition(":")[0] for line in lines if ".ptx:" in line]
    assert places == sorted(places) and len(set(places)) == 3, lines
    assert lines[-1] == f"ptxmotion: 4 files: 2 changed, 1 failed: {folder / 'b.ptx'}"
    assert names(tmp_path / "out") == ["a.ptx", "inner/b.ptx", "same.ptx"]


class Dies:
    """In place of `OneFile`: kills its process for one file."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.is_changed = False
        self.versions = 0
        self.file = arguments.file

    def run(self) -> int:
        if self.file.endswith("a.ptx"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.is_changed = True
        return 0


def test_a_process_that_is_killed_does_not_end_the_others(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = argparse.Namespace(files=[str(folder)], output=str(tmp_path / "out"), jobs=2, emit=None, engine="local")
    arguments.remarks_output = arguments.stats_json = arguments.dump = arguments.contract = None
    arguments.command = ["opt"]
    assert run_files(arguments, Dies) == 70
    printed = capfd.readouterr().err
    assert f"{folder / 'a.ptx'}: error: the process that optimizes it was killed" in printed
    assert printed.endswith(f"3 files: 2 changed, 1 failed: {folder / 'a.ptx'}\n")


def test_a_number_of_processes_is_checked(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt(folder, "-o", folder / "out", "-j", "0") == 2
    assert "'0' is not a number of processes" in capfd.readouterr().err
