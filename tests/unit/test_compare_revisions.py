"""The script that compares two revisions reports each difference, and nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "compare_revisions.py"

#: A small optimizer that accepts any file. BODY computes what it writes.
STUB = """
import sys
def main(argv):
    file, output, remarks = argv[1], argv[argv.index("-o") + 1], argv[argv.index("--remarks-output") + 1]
    text, level = open(file).read(), argv[-2] if argv[-1].startswith("--gate") else argv[-1]
    note, code = "nothing", 0
    BODY
    open(output, "w").write(text)
    open(remarks, "w").write(note)
    return code
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "typings").mkdir()
    (folder / "typings" / "ptxmotion").symlink_to("..")
    (folder / "__init__.py").write_text("")
    commit(folder, "pass")
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "one.ptx").write_text("first\n")
    (folder / "two.ptx").write_text("second\n")
    return folder


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True)


def commit(folder: Path, body: str, module: str = "cli.py") -> None:
    """Commit the small optimizer with ``body``, as the file ``module`` of the package."""
    for old in ("cli.py", "cli"):
        path = folder / old
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (folder / module).parent.mkdir(exist_ok=True)
    (folder / module).write_text(STUB.replace("BODY", body))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", body)


def compare(repository: Path, files: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--repository", str(repository), "--base", "HEAD~1", "--new", "HEAD"]
    return subprocess.run([*command, "--files", str(files), *more], capture_output=True, text=True, check=False)


def test_revisions_with_equal_outputs_have_no_differences(repository: Path, files: Path) -> None:
    commit(repository, "text = text", "cli/__init__.py")  # the module is a package now; its results are the same
    done = compare(repository, files, "--options", "-O3", "--options", "-O1 --gate=static")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "-O1 --gate=static: 0 of 2 files differ",
        "-O3 --gate=off: 0 of 2 files differ",
    ]
    assert not list(repository.glob(".git/worktrees/*"))


def test_another_output_is_printed_as_a_difference(repository: Path, files: Path) -> None:
    commit(repository, "text = text.replace('second', 'third') if level == '-O3' else text")
    done = compare(repository, files)
    assert done.returncode == 1
    assert f"{files / 'two.ptx'}: different output with -O3 --gate=off" in done.stdout
    assert "    -second\n    +third\n" in done.stdout
    assert "-O2 --gate=off: 0 of 2 files differ" in done.stdout
    assert "one.ptx" not in done.stdout


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("note = 'something'", "remarks"),
        ("code = 3", "exit code"),
        ("code = 70; note = ''", "exit code and remarks"),
    ],
)
def test_other_remarks_and_exit_codes(repository: Path, files: Path, body: str, what: str) -> None:
    commit(repository, body)
    done = compare(repository, files, "--options", "-O1")
    assert done.returncode == 1
    assert f"{files / 'one.ptx'}: different {what} with -O1 --gate=off" in done.stdout


def test_the_gate_for_some_files(repository: Path, files: Path) -> None:
    commit(repository, "text += argv[-1]")
    done = compare(repository, files, "--options", "-O3", "--gated", "2")
    assert "-O3 --gate=ptxas: 1 of 1 files differ" in done.stdout
    assert "-O3 --gate=off: 2 of 2 files differ" in done.stdout


def test_a_process_that_ends_early(repository: Path, files: Path) -> None:
    commit(repository, "import os; os._exit(9)")
    done = compare(repository, files, "--options", "-O1")
    assert done.returncode == 3
    assert "exit code 9" in done.stderr
    assert "-O1 --gate=off: 0 of 2 files differ, 2 without a result" in done.stdout


def test_a_file_that_takes_too_long(repository: Path, files: Path) -> None:
    commit(repository, "import time; time.sleep(60 if text == 'first\\n' else 0)")
    done = compare(repository, files, "--options", "-O1", "--seconds", "0.5")
    assert done.returncode == 0
    assert f"{files / 'one.ptx'}: not compared" in done.stdout
    assert "-O1 --gate=off: 0 of 2 files differ, 1 too slow" in done.stdout


def test_a_list_of_files(repository: Path, files: Path) -> None:
    commit(repository, "text = ''")
    (files / "list.txt").write_text("one.ptx\n\none.ptx\n")
    done = compare(repository, files / "list.txt", "--options", "-O1")
    assert "1 of 1 files differ" in done.stdout
    (files / "list.txt").write_text("three.ptx\n")
    done = compare(repository, files / "list.txt", "--options", "-O1")
    assert "three.ptx: no such file" in done.stderr
    assert "differ" not in done.stdout


def test_this_checkout_against_itself() -> None:
    command = [sys.executable, str(SCRIPT), "--base", str(ROOT), "--files", str(ROOT / "tests/ptx/lcm_diamond.ptx")]
    done = subprocess.run([*command, "--options", "-O3"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "-O3 --gate=off: 0 of 1 files differ\n"), done.stderr
