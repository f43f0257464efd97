"""How long builds with `ptxmotion nvcc` take, as ratios to what nvcc takes for the same programs in the same run.

    python bench/builds.py FOLDER… [--variable CC] [--word ARCH=sm_90] [--repeat 2] [--against DIR] [--save FILE]

Each folder has a Makefile, whose variable `--variable` names the compiler. The arms of a program are built in turn, in
copies of the folder, each `--repeat` times:

    nvcc             nvcc itself
    cold, warm       `ptxmotion nvcc`, with an empty cache, and with a cache that contains everything
    contract cold, contract warm    the same with PTXMOTION_CONTRACT=1

With `--against`, the four arms are also built with the package in another folder, which is named `ptxmotion`. What is
made once for a compiler is in the cache before: the view of the toolkit and the launch library. A figure is the least
of its repetitions: user and system time of make and all its processes, and wall time. A program that an arm cannot
build is left out, with the reason on stderr, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxmotion.python_child import FOLDER, import_paths

#: The folders in the cache whose files do not depend on the program.
_MADE_ONCE = ("toolkits", "launch")

_PROGRAM = "import sys\nfrom ptxmotion.cli.nvcc import main\nsys.exit(main())\n"


class NotBuilt(Exception):
    """make failed; the text says why."""


@dataclass(frozen=True)
class Compiler:
    """``path`` is a program with the arguments of nvcc; ``settings`` are added to its environment."""

    path: str
    settings: dict[str, str]


@dataclass
class Seconds:
    """What builds took at least."""

    cpu: float = float("inf")
    wall: float = float("inf")

    def add(self, other: Seconds) -> None:
        self.cpu, self.wall = min(self.cpu, other.cpu), min(self.wall, other.wall)


class Builds:
    """Builds the arms. ``work`` is an empty folder, ``words`` are those of make, ``variable`` names the compiler."""

    def __init__(self, work: Path, words: Sequence[str], variable: str) -> None:
        self._work, self._words, self._variable = work, list(words), variable

    def compilers(self, name: str, package: Path) -> dict[str, Compiler]:
        """The arms of the package in a folder: name → compiler, without a cache."""
        script = self._work / f"{name or 'own'}-nvcc"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}.py" "$@"\n')
        script.chmod(0o755)
        paths = [str(package.parent), *(each for each in import_paths() if Path(each) != Path(FOLDER).parent)]
        Path(f"{script}.py").write_text(f"import sys\nsys.path[:] = {paths!r}\n{_PROGRAM}")
        prefix = f"{name} " if name else ""
        contract = {"PTXMOTION_CONTRACT": "1"}
        return {
            f"{prefix}cold": Compiler(str(script), {}),
            f"{prefix}contract cold": Compiler(str(script), contract),
        }

    def build(self, folder: Path, compiler: Compiler, cache: Path | None) -> Seconds:
        """Build a copy of ``folder``. Raises `NotBuilt`."""
        copy = self._work / "program"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        environment = {**os.environ, **compiler.settings}
        if cache is not None:
            environment["PTXMOTION_CACHE"] = str(cache)
        command = ["make", "-s", f"{self._variable}={compiler.path}", *self._words]
        subprocess.run([*command, "clean"], cwd=copy, capture_output=True)
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, errors="replace")
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        if done.returncode or "runs without the optimizer" in done.stderr:
            raise NotBuilt(" ".join(done.stderr.split())[-300:])
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Seconds(cpu, ended - started)

    def prepare(self, folder: Path, compiler: Compiler) -> Path:
        """A cache that contains only what a compiler makes once for all programs (`_MADE_ONCE`)."""
        cache = self._work / f"{Path(compiler.path).name}-once"
        if not cache.exists():
            self.build(folder, Compiler(compiler.path, {"PTXMOTION_CONTRACT": "1"}), cache)
            for each in cache.iterdir():
                if each.name not in _MADE_ONCE:
                    shutil.rmtree(each)
        return cache

    def measure(self, folder: Path, compilers: dict[str, Compiler], repeat: int) -> dict[str, Seconds]:
        """The seconds of each arm. Raises `NotBuilt`."""
        found: dict[str, Seconds] = {"nvcc": Seconds()}
        for _ in range(repeat):
            found["nvcc"].add(self.build(folder, Compiler("nvcc", {}), None))
            for name, compiler in compilers.items():
                once, cache = self.prepare(folder, compiler), self._work / "cache"
                shutil.rmtree(cache, ignore_errors=True)
                shutil.copytree(once, cache, symlinks=True)
                for arm in (name, name.replace("cold", "warm")):
                    found.setdefault(arm, Seconds()).add(self.build(folder, compiler, cache))
        return found


def ratios(rows: dict[str, dict[str, Seconds]], arm: str, what: str) -> list[float]:
    """For each program the seconds of an arm, divided by those of nvcc."""
    return [getattr(row[arm], what) / getattr(row["nvcc"], what) for row in rows.values()]


def table(rows: dict[str, dict[str, Seconds]]) -> Iterator[str]:
    arms = list(next(iter(rows.values())))
    yield f"{'CPU s':16}" + "".join(f"{arm:>20}" for arm in arms)
    for program, row in rows.items():
        yield f"{program:16}" + "".join(f"{row[arm].cpu:20.2f}" for arm in arms)
    for what in ("cpu", "wall"):
        for arm in arms[1:]:
            each = ratios(rows, arm, what)
            mean = statistics.geometric_mean(each)
            yield f"{what:4} {arm:24} {mean:.3f} of nvcc ({min(each):.2f} to {max(each):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--variable", default="NVCC", help="of the Makefile, for the compiler (default: NVCC)")
    parser.add_argument("--word", action="append", default=[], metavar="NAME=VALUE", help="another word for make")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--against", type=Path, metavar="DIR", help="another version of the package")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the seconds to this file as JSON")
    arguments = parser.parse_args()
    rows: dict[str, dict[str, Seconds]] = {}
    failed = False
    with tempfile.TemporaryDirectory(prefix="builds-") as work:
        builds = Builds(Path(work), arguments.word, arguments.variable)
        compilers = builds.compilers("", Path(FOLDER))
        if arguments.against:
            if arguments.against.resolve().name != "ptxmotion":
                parser.error("--against: the folder of the other version has to be named ptxmotion")
            compilers |= builds.compilers("against", arguments.against.resolve())
        for folder in arguments.folders:
            try:
                rows[folder.name] = builds.measure(folder.resolve(), compilers, arguments.repeat)
            except NotBuilt as reason:
                print(f"{folder}: not built: {reason}", file=sys.stderr)
                failed = True
                continue
            print(f"{folder.name}: nvcc {rows[folder.name]['nvcc'].cpu:.2f} s", file=sys.stderr, flush=True)
            if arguments.save:
                plain = {name: {arm: vars(each) for arm, each in row.items()} for name, row in rows.items()}
                arguments.save.write_text(json.dumps(plain, indent=1))
    if rows:
        print("\n".join(table(rows)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
