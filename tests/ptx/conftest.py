"""Collects the `.ptx` files of this folder. Comments at the head of a file have the commands to run. Comments beside
its code have the expected output.

    // RUN: opt --passes=lcm %s                 arguments of ptxmotion; %s is this file
    // RUN-STATS: opt --remarks %s 2>&1         with stderr; the checks of this run are named STATS, STATS-NEXT …
    // EXIT: 3                                  the exit code of all runs; 0 without this line
    // CHECK: mul.wide.s32                      a check of LLVM's FileCheck, which the package `filecheck` implements
    // BLESSED                                  the checks below this line are written by --bless

A file without a RUN line is data of another test. `--bless` rewrites what is below a line `// BLESSED` with the
output of the first run, line by line.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser
from ptxmotion.cli import main

_RUN = re.compile(r"^//\s*RUN(?:-(\w+))?:\s*(.*)$", re.MULTILINE)
_EXIT = re.compile(r"^//\s*EXIT:\s*(\d+)\s*$", re.MULTILINE)
_BLESSED = "// BLESSED\n"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".ptx":
        return cast(Any, PtxFile).from_parent(parent, path=file_path)
    return None


class PtxFile(pytest.File):
    """A file that describes itself. Each of its runs is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text(encoding="utf-8")
        code = _EXIT.search(text)
        for number, (prefix, command) in enumerate(_RUN.findall(text)):
            name = prefix.lower() or f"run{number or ''}"
            yield cast(Any, PtxRun).from_parent(
                self,
                name=name,
                command=command,
                prefix=prefix or "CHECK",
                code=int(code[1]) if code else 0,
                first=not number,
            )


class PtxRun(pytest.Item):
    """One run of a file, and the checks of its output."""

    def __init__(self, *, command: str, prefix: str, code: int, first: bool, **rest: Any) -> None:
        cast(Any, super()).__init__(**rest)
        self.command = command
        self.prefix = prefix
        self.code = code
        self.first = first

    def runtest(self) -> None:
        code, output, messages = run(self.command, self.path)
        if code != self.code:
            raise CheckFailed(f"ended with {code}, not {self.code}:\n{output}{messages}")
        if self.first and self.config.getoption("--bless"):
            bless(self.path, output)
        reported = check(self.path, self.prefix, output)
        if reported:
            raise CheckFailed(reported)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckFailed):
            return f"// RUN: {self.command}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name} [{self.name}]"


class CheckFailed(Exception):
    """The output differs from the checks of the file."""


def run(command: str, path: Path) -> tuple[int, str, str]:
    """Exit code, output and messages of ``ptxmotion command``. The file's own folder is left out of the output."""
    both = command.endswith("2>&1")
    words = shlex.split(command.removesuffix("2>&1").replace("%s", str(path)))
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)
    errors = output if both else io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main([*words, "--no-config", "--color=never"])
    output.flush()
    text = output.buffer.getvalue().decode("utf-8", errors="surrogateescape")  # pyright: ignore
    return code, text.replace(f"{path.parent}/", ""), "" if both else errors.getvalue()  # pyright: ignore


def check(path: Path, prefix: str, output: str) -> str:
    """What FileCheck reports about the output; the empty string if it reports nothing."""
    options = Options(match_filename=str(path), check_prefixes=[prefix])
    reported = io.StringIO()
    with contextlib.redirect_stderr(reported), contextlib.redirect_stdout(reported):
        matcher = Matcher(options, FInput("output", output), Parser.from_opts(options))
        code = matcher.run()
    return f"{reported.getvalue()}\noutput:\n{output}" if code else ""


def bless(path: Path, output: str) -> None:
    """Rewrite the checks below the line ``// BLESSED``; a file without this line is not changed."""
    text = path.read_text(encoding="utf-8")
    head, blessed, _ = text.partition(_BLESSED)
    if not blessed:
        return
    checks: list[str] = []
    for line in output.rstrip().splitlines():
        next_line = "-NEXT" if checks else ""
        checks.append(f"// CHECK{next_line}: {_literal(line.strip())}" if line.strip() else "// CHECK-EMPTY:")
    path.write_text(f"{head}{_BLESSED}" + "".join(f"{line}\n" for line in checks), encoding="utf-8")
    print(f"blessed {path.name}", file=sys.stderr)


def _literal(line: str) -> str:
    """``line`` as FileCheck text that matches it literally: ``{{`` and ``[[`` would begin a pattern, so they are
    escaped."""
    return re.sub(r"\{\{|\[\[", lambda match: "{{" + re.escape(match[0]).replace("{{", r"\{\{") + "}}", line)
