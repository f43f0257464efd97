"""Compare the outputs of two revisions for the same PTX files. Use it for changes that must not change any output.

    python tests/compare_revisions.py --base main --files corpus/ list.txt kernel.ptx
    python tests/compare_revisions.py --base v0.1 --new main --suites --options "-O3" --options "-O2 --kernel=reduce"
    python tests/compare_revisions.py --base main --files corpus/ --gated 20

``--base`` and ``--new`` are revisions of the repository, or folders with a checkout; ``--new`` is by default the
checkout that this file belongs to, with its uncommitted changes. ``--files`` takes folders, which are searched for
``*.ptx``, PTX files, and lists of them, with one path in a line. ``--suites`` adds the PTX of every program of the
suites; nvcc compiles it once, by the checkout of this file, so it needs nvcc.

Each list of options of `ptxmotion opt` (by default ``-O1``, ``-O2``, ``-O3``, and ``-O3 --alias=restrict``) runs over
all files with ``--gate=off``, and with ``--gated N`` over every Nth file also with ``--gate=ptxas``. One process for
each checkout and list of options calls ``ptxmotion.cli.main`` for one file after another. Nothing else of a revision is
used, so its folders and modules may differ. ``-j`` processes run at once.

Exit codes, written text, and remarks are compared. A file that takes longer than ``--seconds`` in one of the two is
not compared, and its name is printed. The exit code is 1 if anything differs, 3 if a process ended early or nothing
could be compared, else 0.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEVELS = ("-O1", "-O2", "-O3", "-O3 --alias=restrict")
SAME, DIFFERENT, NOT_COMPARED = 0, 1, 3

#: The parts of a result that are compared: each is one file, named by its suffix.
PARTS = {".code": "exit code", ".ptx": "output", ".yaml": "remarks"}
#: Recorded instead of the exit code of a file that took too long.
TOO_SLOW = "too slow"


@dataclass(frozen=True)
class Run:
    """One process: ``checkout`` runs ``options`` over ``files`` (paths) and writes results N.code, … to ``results``."""

    checkout: Path
    options: tuple[str, ...]
    files: tuple[str, ...]
    results: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit code."""
    arguments = _arguments(argv)
    with tempfile.TemporaryDirectory(prefix="compare-revisions-") as name:
        folder = Path(name)
        files = [str(path) for path in _ptx_files(arguments.files)]
        if arguments.suites:
            files += _suite_files(folder / "suites")
        if not files:
            print("no PTX files", file=sys.stderr)
            return NOT_COMPARED
        with (
            _checkout(arguments.base, arguments.repository, folder / "base") as base,
            _checkout(arguments.new, arguments.repository, folder / "new") as new,
        ):
            pairs = list(_pairs(arguments, files, base, new, folder))
            with ThreadPoolExecutor(arguments.jobs) as pool:
                runs = [run for pair in pairs for run in pair]
                failures = list(pool.map(_run, runs, [arguments.seconds] * len(runs)))
        reported = [failure for failure in failures if failure]
        for failure in reported:
            print(failure, file=sys.stderr)
        differing, compared = _report(pairs, arguments.excerpts, arguments.lines)
    if differing:
        return DIFFERENT
    return NOT_COMPARED if reported or not compared else SAME


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", required=True, metavar="REV", help="a revision, or a folder with a checkout")
    parser.add_argument("--new", default=str(ROOT), metavar="REV", help="the same; by default this checkout")
    parser.add_argument("--repository", type=Path, default=ROOT, metavar="DIR", help="where the revisions are")
    parser.add_argument("--files", nargs="+", default=[], type=Path, metavar="PATH", help="folders, lists or PTX files")
    parser.add_argument("--suites", action="store_true", help="also the PTX of the suites' programs")
    parser.add_argument("--options", action="append", metavar="LIST", help="of opt; may be repeated")
    parser.add_argument("--gated", type=int, default=0, metavar="N", help="every Nth file with the gate, too")
    parser.add_argument("--seconds", type=float, default=120, metavar="S", help="the limit for one file")
    parser.add_argument("-j", dest="jobs", type=int, default=2, metavar="N", help="processes at once")
    parser.add_argument("--excerpts", type=int, default=10, metavar="N", help="differences shown with an excerpt")
    parser.add_argument("--lines", type=int, default=30, metavar="N", help="lines of an excerpt")
    return parser.parse_args(list(_joined(sys.argv[1:] if argv is None else argv)))


def _joined(argv: Sequence[str]) -> Iterator[str]:
    """The arguments, with each ``--options VALUE`` joined by ``=``. Otherwise argparse reads ``-O3`` as an option."""
    rest = iter(argv)
    for argument in rest:
        yield f"{argument}={next(rest, '')}" if argument == "--options" else argument


def _ptx_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The PTX files that ``paths`` name, each once, as absolute paths. Raises `SystemExit` for one that is missing."""
    seen: set[Path] = set()
    for path in _named(paths):
        whole = path.resolve()
        if not whole.is_file():
            raise SystemExit(f"{path}: no such file")
        if whole not in seen:
            seen.add(whole)
            yield whole


def _named(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.ptx"))
        elif path.suffix == ".ptx":
            yield path
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            yield from (path.parent / line.strip() for line in lines if line.strip())


def _suite_files(folder: Path) -> list[str]:
    """Compile the programs of the suites into ``folder``; the files, one for each different text."""
    sys.path.insert(0, str(ROOT / "typings"))
    from ptxmotion.suites.registry import benchmarks
    from ptxmotion.suites.runner import compiler, ptx_of

    nvcc = compiler()
    names: dict[str, str] = {}  # a text: its file
    folder.mkdir()
    for benchmark in benchmarks():
        for kernel, text in ptx_of(benchmark, nvcc).items():
            if text not in names:
                path = folder / f"{benchmark.suite}-{benchmark.name}-{kernel}.ptx"
                path.write_text(text, encoding="utf-8")
                names[text] = str(path)
    return list(names.values())


@contextlib.contextmanager
def _checkout(revision: str, repository: Path, folder: Path) -> Generator[Path]:
    """A folder with a checkout of ``revision``; one that is made here is removed at the end."""
    if (Path(revision) / "typings").is_dir():
        yield Path(revision).resolve()
        return
    git = ["git", "-C", str(repository), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), revision], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def _pairs(
    arguments: argparse.Namespace, files: list[str], base: Path, new: Path, folder: Path
) -> Iterator[tuple[Run, Run]]:
    """The runs of both checkouts for each list of options."""
    lists = [tuple(shlex.split(text)) for text in arguments.options or LEVELS]
    chosen = [(options, files) for options in lists if any(option.startswith("--gate=") for option in options)]
    ungated = [options for options in lists if not any(option.startswith("--gate=") for option in options)]
    chosen += [((*options, "--gate=off"), files) for options in ungated]
    if arguments.gated:
        chosen += [((*options, "--gate=ptxas"), files[:: arguments.gated]) for options in ungated]
    for number, (options, those) in enumerate(chosen):
        results = folder / f"results-{number}"
        yield (
            Run(base, options, tuple(those), results / "base"),
            Run(new, options, tuple(those), results / "new"),
        )


def _run(run: Run, seconds: float) -> str:
    """Run a process. The result is an error message if it ended early, else the empty string."""
    run.results.mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(run.checkout / "typings"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(run.results / "cache"),  # the cache of the gate is valid for one revision only
    }
    work = {"options": run.options, "files": run.files, "results": str(run.results), "seconds": seconds}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WORKER, str(Path(__file__).resolve()), str(run.checkout)],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        env=environment,
        cwd=run.results,  # where there is no settings file
        check=False,
    )
    if done.returncode:
        return f"{run.checkout}, {shlex.join(run.options)}: exit code {done.returncode}\n{done.stderr.strip()}"
    return ""


#: The program of a process: `work` of this file, imported as a module, with the package of the other checkout.
_WORKER = """
import runpy, sys
here, checkout = sys.argv[1:]
runpy.run_path(here)["work"](checkout)
"""


class _TooSlowError(BaseException):
    """A file takes too long. Not an `Exception`, which the command would report as an internal error."""


def work(checkout: str) -> None:
    """Optimize each file that stdin names (JSON: options, files, results, seconds), and write its results."""
    import ptxmotion
    from ptxmotion.cli import main as command

    if not Path(checkout).samefile(Path(str(ptxmotion.__file__)).parent.resolve()):
        raise SystemExit(f"imports {ptxmotion.__file__}, which is not of {checkout}")
    described = json.load(sys.stdin)

    def stop(*_: object) -> None:
        raise _TooSlowError

    signal.signal(signal.SIGALRM, stop)
    for number, file in enumerate(described["files"]):
        stem = Path(described["results"]) / str(number)
        written = ["-o", f"{stem}.ptx", "--remarks-output", f"{stem}.yaml"]
        messages = io.StringIO()
        try:
            signal.setitimer(signal.ITIMER_REAL, described["seconds"])
            with contextlib.redirect_stderr(messages):
                code = str(command(["opt", file, *written, *described["options"]]))
        except _TooSlowError:
            code = TOO_SLOW
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        Path(f"{stem}.code").write_text(code + "\n", encoding="utf-8")
        Path(f"{stem}.err").write_text(messages.getvalue(), encoding="utf-8", errors="surrogateescape")


def _report(pairs: list[tuple[Run, Run]], excerpts: int, lines: int) -> tuple[int, int]:
    """Print the differences. The result is the number of files that differ and the number that were compared."""
    differing = compared = 0
    for base, new in pairs:
        found: list[tuple[str, Path, Path, list[str]]] = []
        slow: list[str] = []
        missing = 0
        for number, file in enumerate(base.files):
            one, other = base.results / str(number), new.results / str(number)
            codes = {_part(one, ".code"), _part(other, ".code")}
            if "" in codes:
                missing += 1
            elif TOO_SLOW + "\n" in codes:
                slow.append(file)
            else:
                compared += 1
                if parts := [part for part in PARTS if _part(one, part) != _part(other, part)]:
                    found.append((file, one, other, parts))
        for file, one, other, parts in found:
            what = " and ".join(PARTS[part] for part in parts)
            print(f"{file}: different {what} with {shlex.join(base.options)}")
            if differing < excerpts:
                print("".join(_excerpt(one, other, parts, lines)), end="")
            differing += 1
        for file in slow:
            print(f"{file}: not compared with {shlex.join(base.options)}, it takes too long")
        others = f", {len(slow)} too slow" * bool(slow) + f", {missing} without a result" * bool(missing)
        print(f"{shlex.join(base.options)}: {len(found)} of {len(base.files)} files differ{others}", flush=True)
    return differing, compared


def _part(stem: Path, part: str) -> str:
    """The text of a part of a result; empty if it was not written."""
    path = Path(f"{stem}{part}")
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""


def _excerpt(one: Path, other: Path, parts: list[str], most: int) -> Iterator[str]:
    """The first lines of the unified diff of each part; for other exit codes also what each printed."""
    for part in [*parts, *([".err"] if ".code" in parts else [])]:
        before, after = _part(one, part).splitlines(), _part(other, part).splitlines()
        changed = list(difflib.unified_diff(before, after, f"base{part}", f"new{part}", lineterm=""))
        yield from (f"    {line}\n" for line in changed[:most])
        if len(changed) > most:
            yield f"    … {len(changed) - most} more lines\n"


if __name__ == "__main__":
    sys.exit(main())
