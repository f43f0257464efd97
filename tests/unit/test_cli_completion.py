"""`ptxmotion completion`: the candidates, and the scripts in the shells that this machine has."""

import argparse
import os
import pty
import random
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ptxmotion.cli import main
from ptxmotion.cli.arguments import VERBS, build_parser
from ptxmotion.cli.candidates import FILES, FOLDERS, MIXED, VALUES, candidates
from ptxmotion.cli.command_parser import actions_of
from ptxmotion.cli.completion import words_of

ROOT = Path(__file__).resolve().parents[2]
BREAKS = " \t\n\"'><=;|&(:"


def texts(*words: str) -> list[str]:
    """The whole words that may replace the last one of ``words``."""
    found = candidates(words[:-1], words[-1])
    return [found.prefix + value for value, _ in found.values]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("o", ["opt"]),
        ("bench r", ["run", "report"]),
        ("--color=al", ["--color=always"]),
        ("--color never op", ["opt"]),
        ("opt --gate=p", ["--gate=ptxas"]),
        ("opt --gate s", ["static"]),
        ("opt a.ptx --al", ["--alias"]),
        ("opt -O", ["-O0", "-O1", "-O2", "-O3"]),
        ("opt --passes=vec", ["--passes=vectormerge"]),
        ("opt --passes lcm,dc", ["lcm,dce"]),
        ("opt --passes=lcm:rounds=1,sscm:l", ["--passes=lcm:rounds=1,sscm:lazy="]),
        ("opt --passes=O3", ["--passes=O3"]),
        ("opt --arch=sm_9", ["--arch=sm_90", "--arch=sm_90a"]),
        ("opt --remarks=dead", ["--remarks=deadstores"]),
        ("fuse --arch sm_8", ["sm_80", "sm_86", "sm_87", "sm_89"]),
        ("bench run rodinia/l", ["rodinia/lavaMD", "rodinia/lud"]),
        ("bench run pathf", ["pathfinder"]),
        ("bench list cuda_samples/F", ["cuda_samples/FDTD3d"]),
        ("bench run --variant -O1 --variant=kf", ["--variant=kf_trad", "--variant=kfcm"]),
        ("image show image/gau", ["image/gaussian3x3", "image/gaussian5x5"]),
        ("image show harris --lowering isp_", ["isp_warp", "isp_rows"]),
        ("bench run gaussian3x3 --variant lowering:isp+", ["lowering:isp+m"]),
        ("bench compare a b --fail-on=slower,inv", ["--fail-on=slower,invalid"]),
        ("bench export r.json --format c", ["csv"]),
        ("opt --alias=r", ["--alias=restrict"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("run --js", ["--json"]),
        ("emulate --grid ", []),
        ("nonsense ", []),
        ("opt --gate=nonsense", []),
    ],
)
def test_the_candidates_for_the_word_at_the_cursor(words: str, expected: list[str]) -> None:
    assert texts(*words_of(words)) == expected


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("opt ", FILES),
        ("opt a.ptx b", FILES),
        ("opt -o ", FILES),
        ("opt --remarks ", FILES),  # its value would follow an `=`
        ("opt --profile=x", FILES),
        ("opt --dump ", FOLDERS),
        ("verify --round-trip=", FOLDERS),
        ("fuse ", MIXED),
        ("bench run -- -", MIXED),
        ("diff a b", FILES),
        ("diff a b ", VALUES),
        ("opt --gate ", VALUES),
        ("opt -- -x", FILES),
    ],
)
def test_files_and_folders(words: str, kind: str) -> None:
    assert candidates(words_of(words)[:-1], words_of(words)[-1]).kind == kind


def test_kernels_of_the_files_on_the_line(tmp_path: Path) -> None:
    path = tmp_path / "two.ptx"
    path.write_text(".visible .entry first(.param .u64 p)\n{ ret; }\n.entry second()\n{ ret; }\n")
    assert texts("opt", str(path), "--kernel=") == ["--kernel=first", "--kernel=second"]
    assert texts("opt", str(path), "--alias=restrict:s") == ["--alias=restrict:second"]
    assert texts("opt", str(tmp_path / "none.ptx"), "--kernel=") == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_every_verb(verb: str) -> None:
    """Each option completes from its first letters, and finding its values raises nothing."""

    def check(parser: argparse.ArgumentParser, words: list[str]) -> None:
        for action in actions_of(parser):
            for option in action.option_strings:
                if option.startswith("--"):
                    assert option in texts(*words, option[:-1])
                if action.nargs is None:
                    candidates([*words, option], "")
            if action.nargs == argparse.PARSER:
                for name, each in dict(action.choices or {}).items():  # pyright: ignore[reportCallIssue, reportArgumentType]
                    check(each, [*words, name])

    (kinds,) = [action for action in actions_of(build_parser([verb])) if action.nargs == argparse.PARSER]
    check(dict(kinds.choices or {})[verb], [verb])  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_any_words_have_candidates() -> None:
    """Words in any order, known and unknown ones, raise nothing."""
    rng = random.Random(17)
    known = [
        *VERBS,
        "run",
        "export",
        "--",
        "-",
        "--passes",
        "--passes=lcm:x=1:",
        "--alias=restrict:",
        "-O",
        "-O3",
        "-o",
    ]
    known += [
        "--gate",
        "--gate=",
        "--kernel",
        "--fail-on=a,",
        "--format",
        "--variant",
        "x.ptx",
        "",
        "=",
        ",",
        "--nothing",
        "é",
    ]
    for _ in range(300):
        words = rng.choices(known, k=rng.randint(0, 5))
        current = rng.choice(known)
        found = candidates(words, current)
        assert current.startswith(found.prefix), (words, current)
        assert all((found.prefix + value).startswith(current) for value, _ in found.values), (words, current)


@pytest.mark.parametrize("words", [[], ["ksh", "opt", ""], ["zsh"]])
def test_wrong_calls_of_scripts(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--complete", *words]) == 2
    assert "is for the scripts" in capfd.readouterr().err


def test_words_of_a_line() -> None:
    assert words_of(r"p opt my\ file 'a b' \"c") == ["p", "opt", "my file", "a b", '"c']
    assert words_of("p  opt 'a b") == ["p", "opt", "a b"]


def test_a_bad_settings_file_does_not_matter(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ptxmotion.toml").write_text("this is no TOML")
    monkeypatch.chdir(tmp_path)
    assert main(["completion", "--complete", "zsh", "opt", "--gate=s"]) == 0
    assert capfd.readouterr().out == "values\n--gate=\nstatic\t\n"


# --- the scripts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to complete, and with the command in a folder `bin`."""
    command = tmp_path / "bin" / "ptxmotion"
    command.parent.mkdir()
    path = os.pathsep.join([str(ROOT / "typings"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -m ptxmotion \"$@\"\n")
    command.chmod(0o755)
    for name in ("my file.ptx", "particles.ptx"):
        (tmp_path / name).write_text("")
    (tmp_path / "output").mkdir()
    return tmp_path


#: What is typed before a tab, and what the line is then.
TYPED = [
    ("ptxmotion opt part", "ptxmotion opt particles.ptx"),
    ("ptxmotion opt my", r"ptxmotion opt my\ file.ptx"),
    ("ptxmotion opt --profile=part", "ptxmotion opt --profile=particles.ptx"),
    ("ptxmotion opt --dump out", "ptxmotion opt --dump output/"),
    ("ptxmotion opt --gate=p", "ptxmotion opt --gate=ptxas"),
    ("ptxmotion opt --passes=lcm,vec", "ptxmotion opt --passes=lcm,vectormerge"),
    ("ptxmotion opt --passes lcm:rounds=1,sscm:laz", "ptxmotion opt --passes lcm:rounds=1,sscm:lazy="),
    ("ptxmotion bench run pathf", "ptxmotion bench run pathfinder"),
    ("ptxmotion bench rep", "ptxmotion bench report"),
]


def environment_of(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C"}


class Terminal:
    """A shell that runs in a pseudo-terminal."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, environment_of(folder))

    def type(self, keys: str, expected: str, seconds: float = 30.0) -> str:
        """Send keys and return what the terminal shows, until ``expected`` is in it or the time ends."""
        os.write(self.handle, keys.encode())
        shown, end = "", time.monotonic() + seconds
        while expected not in shown and time.monotonic() < end:
            if select.select([self.handle], [], [], 0.2)[0]:
                # Control sequences and the bell are not part of the text.
                shown = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\x07|\r", "", shown + os.read(self.handle, 65536).decode())
        return shown

    def close(self) -> None:
        os.close(self.handle)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_in_a_terminal(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    begin = "" if shell == "bash" else "autoload -U compinit; compinit -u -D; "
    terminal = Terminal(command, folder)
    try:
        terminal.type(f"PS1=; {begin}eval \"$(ptxmotion completion {shell})\"; echo rea''dy\n", "ready")
        for typed, expected in TYPED:
            rest = expected.removeprefix(typed)
            assert rest in terminal.type(f"{typed}\t", expected), typed
            terminal.type("\x15echo do''ne\n", "done")  # delete the line
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("typed", "expected"), TYPED)
def test_completion_in_fish(typed: str, expected: str, folder: Path) -> None:
    script = f"ptxmotion completion fish | source; complete -C '{typed}'"
    done = subprocess.run(
        ["fish", "-c", script], capture_output=True, text=True, cwd=folder, env=environment_of(folder), check=True
    )
    (word,) = {line.partition("\t")[0] for line in done.stdout.splitlines()}
    assert word == words_of(expected)[-1]
