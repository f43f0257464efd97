"""What the tests of `ptxmotion run` share: the C library, compiled for the tests, and how a program runs with it."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.python_child import child_environment, python_command

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "injection").glob("*.c") if path.stem != "kernel_times")

#: Runs the verb with the library of the tests; the arguments are its path and those of `ptxmotion run`.
_PROGRAM = """
from ptxmotion.injection import library
path = sys.argv[1]
library.find_library = lambda: path
from ptxmotion.cli import main
sys.exit(main(["run", *sys.argv[2:]]))
"""


def compiler() -> str:
    """The C compiler of the system. Skips the test if there is none."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


def compile_c(target: Path, *arguments: str | Path) -> None:
    """Compile with warnings as errors."""
    command = [compiler(), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", *arguments, "-o", target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def kept_folder(prefix: str) -> Path:
    """A new folder that is removed when the process of the tests ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def built_injection() -> Path:
    """The library, compiled once for each run of the tests; one that was built beside the package, if there is no C
    compiler. Skips the test if there is neither."""
    from ptxmotion.injection.library import NoLibrary, find_library

    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        try:
            return Path(find_library())
        except NoLibrary:
            pytest.skip("no C compiler")
    target = kept_folder("ptxmotion-inject-") / "inject.so"
    compile_c(target, "-Wconversion", "-fvisibility=hidden", "-fPIC", "-shared", *SOURCES, "-ldl", "-lpthread")
    return target


@functools.cache
def built_times() -> Path:
    """The library of `ptxmotion times`, compiled once for each process of the tests."""
    target = kept_folder("ptxmotion-times-library-") / "times.so"
    source = ROOT / "injection" / "kernel_times.c"
    compile_c(target, "-Wconversion", "-fvisibility=hidden", "-fPIC", "-shared", source, "-ldl", "-lpthread")
    return target


@dataclass
class Ran:
    """A program that ran under `ptxmotion run`. ``summary`` is the one of ``--json``."""

    status: int
    output: str
    errors: str
    summary: dict[str, Any]

    @property
    def changed(self) -> int:
        """The number of kernels that changed."""
        return sum(each["changed"] for each in self.summary.get("loaded", ()))

    @property
    def left(self) -> dict[tuple[str, str], int]:
        """(way, reason) → how often."""
        return {(each["way"], each["reason"]): each["times"] for each in self.summary.get("left", ())}


def run_injected(
    folder: Path, command: Sequence[str | Path], variables: Mapping[str, str], timeout: float = 300
) -> Ran:
    """Run a program with `ptxmotion run` in a folder, with a cache of its own."""
    cleared = {name: value for name, value in child_environment().items() if not name.startswith("PTXMOTION_")}
    settings = {**cleared, "PTXMOTION_CACHE": str(folder / "cache"), **variables}
    summary = folder / "summary.json"
    summary.unlink(missing_ok=True)
    words = [str(built_injection()), "--json", str(summary), *map(str, command)]
    done = subprocess.run(
        python_command(f"import sys{_PROGRAM}", *words),
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    found: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {}
    return Ran(done.returncode, done.stdout, done.stderr, found)


def program_on_path(folder: Path, name: str, module: str) -> str:
    """A PATH with a program of this package, as an installation has it."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    code = f"from ptxmotion.cli.{module} import main; raise SystemExit(main())"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    path.chmod(0o755)
    return f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
