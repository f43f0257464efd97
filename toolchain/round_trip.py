"""A check that parsing and printing does not change PTX, for all files of a folder, by means of ptxas.

Computes, for each `.ptx` file: whether it parses; whether the printed text parses, and prints as the same text; whether
ptxas accepts the file and the printed text; and whether both give the same code and data sections, byte for byte.
Requires: ptxas. If ptxas does not support the target of a module, it assembles both texts for its oldest target. It
assembles a module with the target option `debug` at -O0, as it requires, and a module that calls functions of another
module with `-c`, for the linker.
Guarantees: files are not changed. With a log, a result is reused as long as the file, the printed text, and ptxas are
the same. So an interrupted run can be continued.
Refuses: with `OSError`, a folder that cannot be read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ..ptx import Module, PtxError, load, parse, print_module
from ..python_child import process_pool
from .elf import sections_of
from .tools import PtxasError, ToolTimeout, arch_for, assemble_whole_or_relocatable, find_tool

__all__ = ["FileResult", "Report", "check_file", "check_folder", "sections"]

#: The prefixes of the sections of a cubin that are compared: code, constants, initialised data.
_LOADED = (".text", ".nv.constant", ".nv.global")


@dataclass(frozen=True, slots=True)
class FileResult:
    """The result for one file. `path` is relative to the folder. `message` is the first error."""

    path: str
    parsed: bool
    stable: bool = False  #: the printed text parses, and prints as itself
    accepted_before: bool = False
    accepted_after: bool = False
    identical: bool = False
    message: str = ""

    @property
    def folder(self) -> str:
        """The folder of the file."""
        return os.path.dirname(self.path) or "."

    @property
    def is_failure(self) -> bool:
        """Whether ptxas accepts the file, but it does not parse, or the printed text is not equal in effect."""
        return self.accepted_before and not (self.stable and self.accepted_after and self.identical)


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a folder, ordered by path."""

    files: tuple[FileResult, ...]

    @property
    def failures(self) -> tuple[FileResult, ...]:
        """The files that did not survive the round trip."""
        return tuple(file for file in self.files if file.is_failure)

    def rows(self) -> Iterator[tuple[str, int, int, int, int, int]]:
        """(name, files, parsed, accepted before, accepted after, identical) for each folder, then for all files.

        The last two numbers count only files that were accepted before.
        """
        folders: dict[str, list[FileResult]] = {}
        for file in self.files:
            folders.setdefault(file.folder, []).append(file)
        for folder, files in folders.items():
            yield _row(folder, files)
        yield _row("all", self.files)

    def table(self) -> str:
        """The rows as text, with a heading."""
        lines = [f"{'folder':24}{'files':>8}{'parsed':>8}{'accepted':>10}{'again':>8}{'identical':>11}"]
        for name, *counts in self.rows():
            lines.append(f"{name:24}{counts[0]:8}{counts[1]:8}{counts[2]:10}{counts[3]:8}{counts[4]:11}")
        return "\n".join(lines)


def _row(name: str, files: Iterable[FileResult]) -> tuple[str, int, int, int, int, int]:
    files = list(files)
    accepted = [file for file in files if file.accepted_before]
    return (
        name,
        len(files),
        sum(file.parsed for file in files),
        len(accepted),
        sum(file.accepted_after for file in accepted),
        sum(file.identical for file in accepted),
    )


def check_folder(
    folder: str | os.PathLike[str],
    *,
    jobs: int = 1,
    arch: str | None = None,
    log: str | os.PathLike[str] | None = None,
) -> Report:
    """Check every `.ptx` file below ``folder``, in ``jobs`` processes.

    ``arch`` replaces the target of each module. ``log`` is a file of JSON lines; results are read from it and appended
    to it. Raises ``OSError`` if the folder cannot be read, `ToolMissing`.
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is no folder")
    find_tool("ptxas")
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*.ptx"))
    logged = _read_log(log) if log is not None else {}
    judge = partial(_judge, root, arch, logged)
    results: list[FileResult] = []
    if jobs > 1:
        with process_pool(jobs) as pool:
            for key, result in pool.map(judge, paths):
                results.append(result)
                _append(log, logged, key, result)
    else:
        for key, result in map(judge, paths):
            results.append(result)
            _append(log, logged, key, result)
    return Report(tuple(results))


def _judge(root: Path, arch: str | None, known: dict[str, FileResult], path: str) -> tuple[str, FileResult]:
    """The key of a file in the log, and its result."""
    return check_file(root / path, path, arch, known)


def check_file(
    path: Path, name: str, arch: str | None = None, known: dict[str, FileResult] | None = None
) -> tuple[str, FileResult]:
    """Check one file, with the path ``name`` in the result. ``known[key]`` are earlier results. Returns (key,
    result)."""
    try:
        original = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as error:
        return "", FileResult(name, parsed=False, message=str(error))
    module: Module | None = None
    printed = message = ""
    stable = False
    try:
        module = load(str(path))
        printed = print_module(module)
        stable = print_module(parse(printed, f"{name} as printed")) == printed
        message = "" if stable else "what is printed, parsed and printed again differs from it"
    except PtxError as error:
        message = str(error)
    target = arch or arch_for(original)
    key = _key(original, printed, message, target, find_tool("ptxas").version)
    if known is not None and key in known and known[key].path == name:
        return key, known[key]
    before, refusal = _assemble(original, target)
    if module is None or before is None:
        message = message or refusal
        return key, FileResult(name, module is not None, stable, before is not None, False, False, message)
    after, refusal = _assemble(printed, target)
    if after is not None and before != after:
        refusal = f"sections differ: {', '.join(_different(before, after))}"
    return key, FileResult(name, True, stable, True, after is not None, before == after, message or refusal)


def _assemble(text: str, arch: str) -> tuple[dict[str, bytes] | None, str]:
    """The compared sections of the cubin, or ``None`` and the message of ptxas."""
    heading = text[: text.find("{")] if "{" in text else text
    is_debug = any(".target" in line and "debug" in line for line in heading.splitlines())
    level = 0 if is_debug else 3
    try:
        assembled = assemble_whole_or_relocatable(text, arch, opt_level=level)
    except PtxasError as error:
        return None, str(error.diagnostics[0]) if error.diagnostics else str(error)
    except ToolTimeout as error:
        return None, str(error)
    return sections(assembled.cubin), ""


def sections(cubin: bytes) -> dict[str, bytes]:
    """By name: the contents of the sections of a cubin with code, constants and initialised data."""
    loaded = [section for section in sections_of(cubin, 0, len(cubin)) if section.name.startswith(_LOADED)]
    return {
        each.name: cubin[each.start : each.start + each.size] if each.has_bytes else bytes(each.size) for each in loaded
    }


def _different(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    names = sorted(before.keys() | after.keys())
    return [name for name in names if before.get(name) != after.get(name)]


# The log


def _key(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", errors="surrogateescape")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _read_log(log: str | os.PathLike[str]) -> dict[str, FileResult]:
    """The results in the log by key. A line that an interruption has truncated is ignored."""
    results: dict[str, FileResult] = {}
    path = Path(log)
    if not path.exists():
        return results
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
            key = entry.pop("key")
            results[key] = FileResult(**entry)
        except (ValueError, TypeError, KeyError):
            continue
    return results


def _append(log: str | os.PathLike[str] | None, known: dict[str, FileResult], key: str, result: FileResult) -> None:
    if log is None or not key or key in known:
        return
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, **asdict(result)}, ensure_ascii=True) + "\n")
