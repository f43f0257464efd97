"""`ptxmotion opt` for several files, in parallel: `opt A.ptx B.ptx -o DIR/`, `opt DIR -o DIR2/`.

Each input has an output of its own below the folder that ``-o`` names: under the name of the file, or for an input
folder under the file's path below that folder. The options that write files (`--remarks-output`, `--stats-json=`,
`--dump`) then name folders, too, with one file, or one folder of dumps, for each input.

Requires: arguments that `opt` has checked. Guarantees: a file that fails does not end the others, also where its
process is killed. Messages appear in the order of the inputs, whatever the number of processes. The exit code is the
highest of the single ones, and one line on stderr says how many files changed and failed, and with ``--contract`` how
many versions of kernels were added.
Refuses: two inputs with the same output, stdin among the inputs, and an output that is no folder. If no such folder
exists, a name such as `one.ptx` is that of a file, unless it ends with a slash.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from .files import is_folder
from .opt_one import FileResult, FileRun, recorded, run_one
from .outcome import BAD_INPUT, INTERNAL, CommandError, say, usage_error

__all__ = ["output_name", "run_files"]

#: What a name ends with instead of `.ptx`, by what `--emit` writes.
_SUFFIXES = {"cubin": ".cubin", "sass": ".sass", "cfg-dot": ".dot", "json": ".json"}
_INTERRUPTED = (130, 141)


def run_files(arguments: argparse.Namespace, one_file: Callable[[argparse.Namespace], FileRun]) -> int:
    """Run `opt` for each of the inputs of ``arguments``; the highest exit code."""
    outputs = _outputs(arguments)
    tasks = {path: _arguments_of(arguments, path, name) for path, name in outputs.items()}
    results = _results(arguments, tasks, one_file)
    changed = versions = 0
    failed: list[str] = []
    worst = 0
    with contextlib.closing(results), _progress(len(tasks)) as advance:
        for path, result in results:
            advance()
            if result.messages:
                print(result.messages, end="", file=sys.stderr, flush=True)
            if result.code in _INTERRUPTED:
                return result.code
            worst = max(worst, result.code)
            changed += result.is_changed and not result.code
            versions += 0 if result.code else result.versions
            if result.code:
                failed.append(path)
    names = f": {', '.join(failed[:3])}{', …' if len(failed) > 3 else ''}" if failed else ""
    counts = [f"{changed} changed", *([_counted(versions, "version") + " added"] if arguments.contract else [])]
    say(f"ptxmotion: {_counted(len(outputs), 'file')}: {', '.join(counts)}, {len(failed)} failed{names}")
    return worst


def _results(
    arguments: argparse.Namespace,
    tasks: Mapping[str, argparse.Namespace],
    one_file: Callable[[argparse.Namespace], FileRun],
) -> Generator[tuple[str, FileResult]]:
    """The results in the order of the tasks: on a Ray cluster, in several processes, or in this one."""
    if arguments.engine == "ray":
        from .opt_ray import on_cluster

        return on_cluster(tasks, one_file, arguments.jobs, arguments.output)
    jobs = min(arguments.jobs or len(os.sched_getaffinity(0)), len(tasks))
    return _in_parallel(tasks, one_file, jobs) if jobs > 1 else _one_by_one(tasks, one_file)


def _counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> _counted(1, "file"), _counted(0, "file")
    ('1 file', '0 files')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _one_by_one(
    tasks: Mapping[str, argparse.Namespace], one_file: Callable[[argparse.Namespace], FileRun]
) -> Generator[tuple[str, FileResult]]:
    for path, own in tasks.items():
        yield path, FileResult(*run_one(one_file, path, own), "")


def _in_parallel(
    tasks: Mapping[str, argparse.Namespace], one_file: Callable[[argparse.Namespace], FileRun], jobs: int
) -> Generator[tuple[str, FileResult]]:
    """The results in the order of the tasks. If a process ends unexpectedly, its remaining files run in
    processes of their own."""
    from concurrent.futures.process import BrokenProcessPool

    from ..python_child import process_pool

    pool = process_pool(jobs)
    try:
        futures = {path: pool.submit(recorded, one_file, path, own) for path, own in tasks.items()}
        for path, own in tasks.items():
            try:
                yield path, futures[path].result()
            except BrokenProcessPool:
                yield path, _alone(one_file, path, own)
    except KeyboardInterrupt:
        yield "", FileResult(_INTERRUPTED[0], False, 0, "")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _alone(one_file: Callable[[argparse.Namespace], FileRun], path: str, own: argparse.Namespace) -> FileResult:
    from concurrent.futures.process import BrokenProcessPool

    from ..python_child import process_pool

    with process_pool(1) as pool:
        try:
            return pool.submit(recorded, one_file, path, own).result()
        except BrokenProcessPool:
            return FileResult(INTERNAL, False, 0, f"{path}: error: the process that optimizes it was killed\n")


@contextlib.contextmanager
def _progress(number: int) -> Generator[Callable[[], None]]:
    """A progress bar on stderr, if that is a terminal. The value is a function that counts one file."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Without a thread that draws, because processes are forked.
    with Progress(console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("optimize", total=number)

        def advance() -> None:
            bar.advance(task)
            bar.refresh()

        yield advance


#: The names with these endings are those of files, unless there is such a folder.
_FILES = (".ptx", ".json", ".yaml", ".yml", *_SUFFIXES.values())


def _require_folder(option: str, path: str) -> None:
    """Raise `CommandError` if ``path`` is not the name of a folder."""
    if path == "-" or (not is_folder(path) and (os.path.exists(path) or path.endswith(_FILES))):
        slash = "" if path == "-" or os.path.exists(path) else f" ('{path}/' is one)"
        usage_error(f"with several files or a folder, {option} names a folder to write to{slash}, not '{path}'")


def _outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """By path of each input: its output's path below the output folder."""
    _require_folder("-o", arguments.output)
    for option in ("remarks_output", "contract", "stats_json", "dump"):
        if path := getattr(arguments, option):
            _require_folder("--" + option.replace("_", "-"), path)
    found: dict[str, Path] = {}
    by_stem: dict[str, str] = {}
    for given in arguments.files:
        for path, name in _inputs_of(given):
            other = by_stem.setdefault(_stem(name), path)
            if other != path:
                usage_error(f"'{other}' and '{path}' have the same output '{Path(arguments.output) / name}'")
            found[path] = name
    return found


def _inputs_of(given: str) -> list[tuple[str, Path]]:
    """Each PTX file that ``given`` names, with its path below an output folder."""
    if given == "-":
        usage_error("stdin cannot be one of several files")
    folder = Path(given)
    if not folder.is_dir():
        return [(given, Path(folder.name))]
    paths = sorted(path for path in folder.rglob("*.ptx") if path.is_file())
    if not paths:
        raise CommandError(BAD_INPUT, f"{given}: error: there is no file *.ptx below this folder")
    return [(str(path), path.relative_to(folder)) for path in paths]


def _arguments_of(arguments: argparse.Namespace, path: str, name: Path) -> argparse.Namespace:
    """The arguments for one input. Creates the folders that its outputs go to."""
    emit: str = arguments.emit or "ptx"
    own = argparse.Namespace(**vars(arguments))
    own.file = path
    stem = _stem(name)
    own.output = _place(arguments.output, output_name(str(name), emit))
    if arguments.remarks_output:
        own.remarks_output = _place(arguments.remarks_output, f"{stem}.opt.yaml")
    if arguments.contract:
        own.contract = _place(arguments.contract, f"{stem}.contract.json")
    if arguments.stats_json:
        own.stats_json = _place(arguments.stats_json, f"{stem}.json")
    if arguments.dump is not None:
        own.dump = str(Path(arguments.dump) / stem)
    return own


def output_name(name: str, emit: str) -> str:
    """The name of the output for the input ``name``. ``emit`` is the value of ``--emit``.

    >>> output_name("a.ptx", "ptx"), output_name("a.ptx", "cubin")
    ('a.ptx', 'a.cubin')
    """
    return name if emit == "ptx" else name.removesuffix(".ptx") + _SUFFIXES[emit]


def _stem(name: Path) -> str:
    return str(name).removesuffix(".ptx")


def _place(folder: str, name: str) -> str:
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)
