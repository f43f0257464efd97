"""The composite action and the GitLab job: their steps are run by a shell, with a regression and an improvement."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from own_kernels import COALESCED, STRIDED, write_program
from ptxmotion.harness.change_report import Annotation, changes_markdown, github_commands, gitlab_report
from ptxmotion.harness.compare import Change
from ptxmotion.harness.results import read

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests" / "results" / "h200_planted.json"


@dataclass(frozen=True)
class Shell:
    """A folder with `ptxmotion` on the path, as a job has it after the installation."""

    folder: Path

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "typings"), **variables}
        environment["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{environment['PATH']}"
        for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
            environment.setdefault(name, str(self.folder / name.lower()))
        # The shell of GitHub's `shell: bash`.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shim = tmp_path / "bin" / "ptxmotion"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m ptxmotion "$@"\n')
    shim.chmod(0o755)
    (tmp_path / "benchmarks").mkdir()
    return Shell(tmp_path)


def action_steps() -> dict[str, tuple[dict[str, str], str]]:
    """The environment and the script of each step of the action that runs a script."""
    text = (ROOT / "action.yml").read_text()
    found: dict[str, tuple[dict[str, str], str]] = {}
    for part in text.partition("  steps:\n")[2].split("\n    - ")[0:]:
        name = re.search(r"name: (.*)", part)
        run = re.search(r"^ {6}run: (?:\|\n((?: {8}.*\n?)+)|(.*))", part, re.MULTILINE)
        if name and run:
            script = re.sub(r"^ {8}", "", run[1] or run[2], flags=re.MULTILINE)
            found[name[1]] = dict(re.findall(r"^ {8}([A-Z_]+): (.*)$", part, re.MULTILINE)), script
    return found


def inputs() -> dict[str, str]:
    """The default value of each input of the action."""
    text = (ROOT / "action.yml").read_text().partition("inputs:\n")[2].partition("outputs:\n")[0]
    return dict(re.findall(r'^  ([\w-]+):\n(?:    .*\n)*?    default: "?(.*?)"?$', text, re.M))


def run_action(shell: Shell, **given: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """The steps of the action up to the first that fails, except the installation."""
    values = {f"inputs.{name}": value for name, value in {**inputs(), **given}.items()}
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    for name, (environment, script) in action_steps().items():
        if name == "Install":
            continue
        variables: dict[str, str] = {}
        for variable, text in environment.items():
            expression = re.fullmatch(r"\$\{\{ ([\w.-]+) \}\}", text)
            assert expression, text
            variables[variable] = values[expression[1]]
        outputs = shell.folder / f"outputs_of_{name.lower()}"
        done[name] = shell.run(script, GITHUB_OUTPUT=str(outputs), **variables)
        for line in outputs.read_text().splitlines() if outputs.exists() else ():
            output, _, value = line.partition("=")
            values[f"steps.{name.lower()}.outputs.{output}"] = value
        if done[name].returncode:
            break
    return done


#: By the index of the program: the file that `bench track --update` has written.
_BASELINES: dict[str, str] = {}


def make_baseline(shell: Shell, index: str) -> None:
    write_program(shell.folder / "benchmarks" / "mine.py", index)
    baseline = shell.folder / "benchmarks" / "baseline.json"
    if index in _BASELINES:
        baseline.write_text(_BASELINES[index])
        return
    run = "ptxmotion bench run benchmarks/*.py --backend=emulator --json r.json"
    track = "ptxmotion bench track r.json --baseline benchmarks/baseline.json --update"
    done = shell.run(f"{run}\n{track}")
    assert done.returncode == 0, done.stderr
    _BASELINES[index] = baseline.read_text()


def test_the_steps_of_the_action_are_found() -> None:
    assert list(action_steps()) == ["Install", "Run", "Compare", "Page", "Summary", "Result"]
    assert inputs()["fail-on"] == "slower,worse,mismatch,missing"
    assert inputs()["backend"] == "emulator" and inputs()["options"] == ""


@pytest.mark.slow
def test_the_action_finds_a_planted_regression(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    make_baseline(shell, COALESCED)
    program = write_program(shell.folder / "benchmarks" / "mine.py", STRIDED)
    done = run_action(shell, programs="benchmarks/*.py")
    assert done["Result"].returncode == 1
    assert (shell.folder / "outputs_of_compare").read_text() == "exit-code=1\n"
    (line,) = [line for line in done["Compare"].stdout.splitlines() if "global_load_sectors" in line]
    place = re.match(
        r"::warning file=benchmarks/mine\.py,line=(\d+),title=ptxmotion%3A worse::worse: mine/scale:", line
    )
    assert place, line
    assert "512 → 4096 sectors of 32 bytes (+700.0 %25)" in line
    around = program.read_text().splitlines()[int(place[1]) - 2 : int(place[1]) + 1]
    assert any("def scale" in text or STRIDED in text for text in around), around
    summary = (shell.folder / "github_step_summary").read_text()
    assert (
        "**Failed**: " in summary
        and "| **worse** | mine/scale:(all 2 variants):emulated:global_load_sectors" in summary
    )
    page = (shell.folder / "ptxmotion-results" / "report.html").read_text()
    assert "Since the baseline" in page and "global load sectors" in page and "+700.0 %" in page
    assert (shell.folder / "ptxmotion-results" / "comment.md").read_text() == summary


@pytest.mark.slow
def test_the_action_passes_for_a_planted_improvement(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    make_baseline(shell, STRIDED)
    write_program(shell.folder / "benchmarks" / "mine.py", COALESCED)
    done = run_action(shell, programs="benchmarks/*.py")
    assert done["Result"].returncode == 0
    assert "::warning" not in done["Compare"].stdout
    assert "::notice file=benchmarks/mine.py,line=" in done["Compare"].stdout
    assert "**Passed**: " in (shell.folder / "github_step_summary").read_text()


def make_wrong(shell: Shell) -> None:
    """Make the kernel of the benchmark compute another result than the benchmark expects."""
    program = shell.folder / "benchmarks" / "mine.py"
    program.write_text(program.read_text().replace("x[i] * 3 + 1", "x[i] * 3 + 2"))


@pytest.mark.slow
def test_the_action_shows_a_wrong_result(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    make_baseline(shell, COALESCED)
    make_wrong(shell)
    done = run_action(shell, programs="benchmarks/*.py")
    assert list(done) == ["Run", "Compare", "Page", "Summary", "Result"] and done["Result"].returncode == 1
    assert (shell.folder / "outputs_of_run").read_text() == "exit-code=1\n"
    assert "::warning" in done["Compare"].stdout
    assert "**Failed**: " in (shell.folder / "github_step_summary").read_text()
    assert "MISMATCH" in (shell.folder / "ptxmotion-results" / "report.html").read_text()


@pytest.mark.parametrize(
    ("run", "track", "steps", "code"),
    [
        (0, 0, 5, 0),
        (1, 0, 5, 1),
        (5, 0, 5, 5),
        (5, 1, 5, 1),
        (1, 5, 5, 1),
        (0, 5, 5, 5),
        (1, 3, 5, 1),
        (3, 0, 1, 3),
        (4, 0, 1, 4),
    ],
)
def test_the_exit_code_of_the_action(shell: Shell, run: int, track: int, steps: int, code: int) -> None:
    """``run`` and ``track`` are the exit codes of `bench run` and `bench track`; ``steps`` how many steps are run."""
    codes = f"case $2 in run) exit {run};; track) exit {track};; esac"
    (shell.folder / "bin" / "ptxmotion").write_text(f"#!/bin/sh\n{codes}\n")
    done = run_action(shell, programs="x")
    assert (len(done), list(done.values())[-1].returncode) == (steps, code)
    commands = gitlab_commands()
    expected = run if steps == 1 else track or run
    assert shell.run("\n".join(commands)).returncode == expected


def gitlab_commands() -> list[str]:
    """The commands of the job for GitLab."""
    text = (ROOT / "docs" / "benchmarks-gitlab.yml").read_text()
    return re.findall(r"^    - (.*)$", text.partition("  script:\n")[2].partition("  artifacts:")[0], re.MULTILINE)


@pytest.mark.slow
def test_the_gitlab_job_finds_it_too(shell: Shell) -> None:
    pytest.importorskip("matplotlib")
    commands = gitlab_commands()
    make_baseline(shell, COALESCED)
    assert shell.run("\n".join(commands)).returncode == 0
    assert json.loads((shell.folder / "quality.json").read_text()) == []
    write_program(shell.folder / "benchmarks" / "mine.py", STRIDED)
    assert shell.run("\n".join(commands)).returncode == 1
    issues = json.loads((shell.folder / "quality.json").read_text())
    (issue,) = [each for each in issues if "global_load_sectors" in each["description"]]
    assert issue["location"]["path"] == "benchmarks/mine.py" and issue["location"]["lines"]["begin"] > 1
    assert len({each["fingerprint"] for each in issues}) == len(issues)
    write_program(shell.folder / "benchmarks" / "mine.py", COALESCED)
    make_wrong(shell)
    shutil.rmtree(shell.folder / "report")
    assert shell.run("\n".join(commands)).returncode == 1
    assert (shell.folder / "report" / "report.html").is_file()
    assert any("mismatch" in each["description"] for each in json.loads((shell.folder / "quality.json").read_text()))


def test_texts_of_files_cannot_add_commands_or_rows() -> None:
    change = Change("mismatch", "a:b\n::error::x", None, None, "50 %\n| x |")
    (line, end) = github_commands([Annotation(change.subject, change, "a,b:c.py", 3)]).split("\n")
    assert end == "" and line.startswith("::warning file=a%2Cb%3Ac.py,line=3,") and "50 %25%0A" in line
    assert json.loads(gitlab_report([Annotation("s", change)]))[0]["location"] == {
        "path": "unknown",
        "lines": {"begin": 1},
    }
    result = read(PLANTED)
    result.benchmarks = result.benchmarks[:1]
    table = changes_markdown([change], result, result, {"mismatch"}).partition("<details>")[0]
    assert sum(row.startswith("| **") for row in table.splitlines()) == 1
    assert "Passed**: no differences" in changes_markdown([], result, result, set())
