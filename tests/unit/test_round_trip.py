"""The round-trip checker, on valid files and on files with errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ptxmotion.toolchain.round_trip import FileResult, Report, check_folder
from ptxmotion.toolchain.tools import ToolMissing, find_tool

SYNTAX = Path(__file__).parent.parent / "ptx"
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def has_ptxas() -> bool:
    try:
        find_tool("ptxas")
    except ToolMissing:
        return False
    return True


needs_ptxas = pytest.mark.skipif(not has_ptxas(), reason="ptxas is not on this machine")


@needs_ptxas
def test_every_trap_of_the_syntax_comes_back_as_it_was(tmp_path: Path) -> None:
    for path in SYNTAX.glob("syntax_*.ptx"):
        shutil.copy(path, tmp_path)
    traps = check_folder(tmp_path).files
    assert len(traps) >= 9
    for file in traps:
        assert file.parsed and file.stable, f"{file.path}: {file.message}"
        assert file.accepted_before and file.accepted_after and file.identical, f"{file.path}: {file.message}"
        assert not file.is_failure


@needs_ptxas
def test_refused_and_unreadable_files_are_no_failures(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "refused.ptx").write_text(HEAD + ".entry k() { .reg .b32 x; add.f64 x, x, x; ret; }")
    (tmp_path / "a" / "broken.ptx").write_text(HEAD + ".entry k() { add.s32 }")
    (tmp_path / "good.ptx").write_text(HEAD + ".entry k() { ret; }")
    report = check_folder(tmp_path)
    by_name = {file.path: file for file in report.files}
    assert by_name["good.ptx"].identical
    assert by_name["a/refused.ptx"].parsed and not by_name["a/refused.ptx"].accepted_before
    assert not by_name["a/broken.ptx"].parsed and "error:" in by_name["a/broken.ptx"].message
    assert report.failures == ()
    assert list(report.rows()) == [(".", 1, 1, 1, 1, 1), ("a", 2, 1, 0, 0, 0), ("all", 3, 2, 1, 1, 1)] or list(
        report.rows()
    ) == [("a", 2, 1, 0, 0, 0), (".", 1, 1, 1, 1, 1), ("all", 3, 2, 1, 1, 1)]


@needs_ptxas
def test_what_a_linker_binds_is_accepted(tmp_path: Path) -> None:
    body = "{ .param .b32 a; st.param.b32 [a], 1; call f, (a); } ret;"
    (tmp_path / "calls.ptx").write_text(f"{HEAD}.extern .func f(.param .b32 a);\n.visible .entry k() {{ {body} }}")
    (found,) = check_folder(tmp_path).files
    assert found.accepted_before and found.accepted_after and found.identical


@needs_ptxas
def test_what_is_in_the_log_is_not_judged_again(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(HEAD + ".entry k() { ret; }")
    log = tmp_path / "log.jsonl"
    assert check_folder(tmp_path, log=log).files[0].identical
    entry = json.loads(log.read_text())
    entry["message"] = "from the log"
    log.write_text(json.dumps(entry) + '\n{"cut off')
    assert check_folder(tmp_path, log=log).files[0].message == "from the log"
    (tmp_path / "k.ptx").write_text(HEAD + ".entry other() { ret; }")
    assert check_folder(tmp_path, log=log).files[0].message == ""


@needs_ptxas
def test_processes_give_the_same_report(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"k{number}.ptx").write_text(HEAD + f".entry k{number}() {{ ret; }}")
    assert check_folder(tmp_path, jobs=2).files == check_folder(tmp_path).files


def test_a_file_that_ptxas_accepts_and_that_does_not_come_back_is_a_failure() -> None:
    lost = FileResult("s/lost.ptx", parsed=False, accepted_before=True)
    changed = FileResult("s/changed.ptx", True, True, True, True, identical=False)
    unstable = FileResult("s/unstable.ptx", True, False, True, True, identical=True)
    fine = FileResult("s/fine.ptx", True, True, True, True, identical=True)
    report = Report((lost, changed, unstable, fine))
    assert report.failures == (lost, changed, unstable)
    assert report.table().splitlines()[-1].split() == ["all", "4", "3", "4", "3", "2"]


@needs_ptxas
def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        check_folder(tmp_path / "nowhere")
