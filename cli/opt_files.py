"""`ptxmotion opt` for several files in one process: `opt A.ptx B.ptx -o DIR/`, `opt DIR -o DIR2/`.

Each input has an output of its own below the folder that ``-o`` names: under the name of the file, or for an input
folder under the file's path below that folder. The options that write files (`--remarks-output`, `--stats-json=`,
`--dump`) then name folders, too, with one file, or one folder of dumps, for each input.

Requires: arguments that `opt` has checked. Guarantees: a file that fails does not end the others. The exit code is the
highest of the single ones, and one line on stderr says how many files changed and failed.
Refuses: two inputs with the same output, stdin among the inputs, and an output that is no folder.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from .outcome import BAD_INPUT, CommandError, guarded, say, usage_error

__all__ = ["run_files"]

#: What a name ends with instead of `.ptx`, by what `--emit` writes.
_SUFFIXES = {"cubin": ".cubin", "sass": ".sass", "cfg-dot": ".dot", "json": ".json"}
_INTERRUPTED = (130, 141)


class FileRun(Protocol):
    """`opt` for one file. ``is_changed`` says after `run` whether a kernel changed."""

    is_changed: bool

    def run(self) -> int:
        """Run it; the exit code."""
        ...


def run_files(arguments: argparse.Namespace, one_file: Callable[[argparse.Namespace], FileRun]) -> int:
    """Run `opt` for each of the inputs of ``arguments``; the highest exit code."""
    outputs = _outputs(arguments)
    changed = 0
    failed: list[str] = []
    worst = 0
    for path, name in outputs.items():
        each = one_file(_arguments_of(arguments, path, name))
        code = guarded(_command(arguments, path), lambda _, each=each: each.run())
        if code in _INTERRUPTED:
            return code
        worst = max(worst, code)
        changed += each.is_changed and not code
        if code:
            failed.append(path)
    names = f": {', '.join(failed[:3])}{', …' if len(failed) > 3 else ''}" if failed else ""
    say(f"ptxmotion: {len(outputs)} files: {changed} changed, {len(failed)} failed{names}")
    return worst


def _command(arguments: argparse.Namespace, path: str) -> list[str]:
    """The command that does for one input what this one does."""
    return [word for word in arguments.command if word not in arguments.files] + [path]


def _outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """By path of each input: its output's path below the output folder."""
    if arguments.output == "-" or (os.path.exists(arguments.output) and not os.path.isdir(arguments.output)):
        usage_error("with several files or a folder, -o names a folder to write to: -o DIR")
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
    own.output = _place(arguments.output, str(name) if emit == "ptx" else stem + _SUFFIXES[emit])
    if arguments.remarks_output:
        own.remarks_output = _place(arguments.remarks_output, f"{stem}.opt.yaml")
    if arguments.contract:
        own.contract = _place(arguments.contract, f"{stem}.contract.json")
    if arguments.stats_json:
        own.stats_json = _place(arguments.stats_json, f"{stem}.json")
    if arguments.dump is not None:
        own.dump = str(Path(arguments.dump) / stem)
    return own


def _stem(name: Path) -> str:
    return str(name).removesuffix(".ptx")


def _place(folder: str, name: str) -> str:
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)
