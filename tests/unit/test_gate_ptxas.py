"""The gate if ptxas, the cache or the disk fails."""

import os
import shutil
from pathlib import Path
from typing import Any, Protocol

import pytest
from motion import DIVISION_AGAIN
from ptxmotion.cli import main
from ptxmotion.toolchain import tools as toolchain
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import Assembled, assemble, find_tool

SOURCE = DIVISION_AGAIN


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "in.ptx"
    path.write_text(SOURCE)
    return path


class Put(Protocol):
    """A function that replaces ptxas by a script, which also prints a version. It returns the path."""

    def __call__(self, body: str, version: str = "") -> Path: ...


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Replace ptxas by a script that prints a version, and otherwise runs the given commands."""
    real = find_tool("ptxas").path

    def put(body: str, version: str = "") -> Path:
        path = tmp_path / "ptxas"
        answer = version or f"exec {real} --version"
        path.write_text(f'#!/bin/sh\ncase "$1" in --version) {answer};; esac\n{body.replace("PTXAS", str(real))}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PTXMOTION_PTXAS", str(path))
        return path

    return put


def opt(*arguments: object) -> int:
    return main(["opt", *map(str, arguments)])


def is_as_given(written: str) -> bool:
    return written.count("div.s32") == 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("kill -SEGV $$", "ptxas was ended by SIGSEGV"),
        ("exit 0", "ptxas failed with status 0"),
        ('for last; do :; done; echo no cubin > "$last"', "no cubin, or a damaged one"),
        ("exec sleep 1000", "ptxas was ended after 0.3 s"),
        ('echo "ptxas fatal   : Memory allocation failure" >&2; exit 255', "Memory allocation failure"),
        # It accepts the original module, and crashes on the module after the passes.
        ('[ $(grep -c div.s32 module.ptx) = 2 ] || kill -SEGV $$; exec PTXAS "$@"', "after the passes: ptxas"),
    ],
)
def test_where_ptxas_gives_no_answer_the_kernel_is_as_it_was_and_that_is_said(
    source: Path, ptxas: Put, capfd: pytest.CaptureFixture[str], body: str, said: str
) -> None:
    ptxas(body)
    assert opt(source, "--gate-timeout=0.3" if "sleep" in body else "--gate=ptxas") == 0
    out, err = capfd.readouterr()
    assert is_as_given(out)
    assert err.startswith("ptxmotion: warning: k: reverted, because it cannot be judged: ")
    assert said in err
    # A figure that ptxas did not return is not cached.
    assert not list((source.parent / "cache").rglob("*.json")) or "after the passes" in said
    ptxas('exec PTXAS "$@"')
    assert opt(source) == 0
    out, err = capfd.readouterr()
    assert not is_as_given(out)
    assert err == ""


def test_what_cannot_be_started_is_said(source: Path, ptxas: Put, capfd: pytest.CaptureFixture[str]) -> None:
    path = ptxas("")
    path.write_bytes(b"\x7fno program")
    assert opt(source) == 0
    out, err = capfd.readouterr()
    assert is_as_given(out)
    assert f"ptxas cannot be run: Exec format error: {path}" in err
    ptxas("", version="sleep 0; exit 1")
    assert opt(source) == 0
    assert "ptxas failed with status 1" in capfd.readouterr().err


def test_a_variable_that_names_no_program_is_reported(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PTXMOTION_PTXAS", "/nowhere/ptxas")
    assert opt(source) == 0
    out, err = capfd.readouterr()
    assert not is_as_given(out)
    assert (
        "PTXMOTION_PTXAS=/nowhere/ptxas is no executable), so the gate goes by accesses to memory and long operations"
        in err
    )
    assert opt(source, "--gate=ptxas") == 4


def test_a_limit_that_limits_nothing_is_refused(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for others in (["--gate=off"], ["--gate=static"], ["-O1"]):
        assert opt(source, "--gate-timeout=5", *others) == 2
        assert "no gate runs ptxas here" in capfd.readouterr().err
    assert opt(source, "--gate-timeout=0") == 2


def test_another_ptxas_of_the_same_version_and_path_is_run_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ptxas"
    shutil.copy2(find_tool("ptxas").path, path)
    monkeypatch.setenv("PTXMOTION_PTXAS", str(path))
    asked: list[str] = []

    def assembled(ptx: str, *arguments: Any, **options: Any) -> Assembled:
        asked.append(ptx)
        return assemble(ptx, *arguments, **options)

    monkeypatch.setattr("ptxmotion.toolchain.ptxas_judge.assemble_whole_or_relocatable", assembled)
    for turn in range(3):
        PtxasJudge(folder=tmp_path / "cache").figures(SOURCE)
        if turn == 1:  # an update in place: other bytes in the same file
            assert len(asked) == 1
            with path.open("ab") as file:
                file.write(b"\0")
            toolchain._identity_of.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert len(asked) == 2


def test_another_version_of_ptxas_is_run_again(source: Path, ptxas: Put, capfd: pytest.CaptureFixture[str]) -> None:
    count = source.parent / "count"
    body = f'echo >> {count}; exec PTXAS "$@"'
    ptxas(body)
    for _ in range(2):
        assert opt(source) == 0
    assert len(count.read_text()) == 1  # for the kernel before and after the passes together
    newer = ptxas(body, version='echo "Cuda compilation tools, release 13.9, V13.9.1"; exit 0')
    moved = newer.rename(newer.with_name("newer"))
    os.environ["PTXMOTION_PTXAS"] = str(moved)
    assert opt(source) == 0
    assert len(count.read_text()) == 2


# --- the cache ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [b"", b"[]", b'{"k": 3}', b'{"k": {"code": "x"}}', b"\xff\xfe", b"null", b"0" * 64 + b'\n{"k": 3}', None],
)
def test_whatever_stands_in_an_entry_the_answer_is_the_same(
    source: Path, capfd: pytest.CaptureFixture[str], damage: bytes | None
) -> None:
    assert opt(source) == 0
    first = capfd.readouterr()
    entries = [path for path in (source.parent / "cache" / "gate").rglob("*") if path.is_file()]
    assert entries
    whole = {entry: entry.read_bytes() for entry in entries}
    for entry in entries:
        if damage is None:
            entry.unlink()
            entry.mkdir()
        else:
            entry.write_bytes(damage)
    assert opt(source) == 0
    assert capfd.readouterr() == first
    if damage is not None:
        assert {entry: entry.read_bytes() for entry in entries} == whole  # the entries were replaced


@pytest.mark.parametrize("kind", ["file", "/dev/full", "/proc/nothing"])
def test_a_cache_that_cannot_be_written_costs_time_only(
    source: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    assert opt(source) == 0
    first = capfd.readouterr()
    monkeypatch.setenv("PTXMOTION_CACHE", str(source) if kind == "file" else kind)
    assert opt(source) == 0
    assert capfd.readouterr() == first


def test_figures_are_read_again_by_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = PtxasJudge(folder=tmp_path)
    judge.figures(SOURCE)
    monkeypatch.setattr("ptxmotion.toolchain.ptxas_judge._readers", lambda: "another")
    judge.figures(SOURCE)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_the_diff_of_the_gate_begins_with_the_result_of_the_last_pass(
    source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kernel with the same machine code is reverted. This change is shown, too."""
    source.write_text(SOURCE.replace("div.s32 %r4, %r1, %r2", "mul.lo.s32 %r5, %r1, %r2;\n\tmul.lo.s32 %r4, %r1, %r2"))
    assert opt(source, "--print-changed=diff", "--remarks=gate", "-o", "/dev/null") == 0
    err = capfd.readouterr().err
    assert "the machine code is the same" in err
    shown = [line for line in err.splitlines() if line.startswith(("--- ", "+++ "))]
    assert shown[0] == "--- k before sscm"
    assert shown[-2:] == ["--- k before gate", "+++ k after gate"]
    removed = [line[1:] for line in err.splitlines() if line.startswith("-\t")]
    added = [line[1:] for line in err.splitlines() if line.startswith("+\t")]
    assert sorted(removed) == sorted(added)
