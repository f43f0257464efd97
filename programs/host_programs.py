"""Finds the host program that `fuse` transforms: a program of the suites, or a ``@program`` of a Python file.

Guarantees: every error of a user's file is a `BadInput`, `DslError` or `PtxError` with the file, and the line where it
is known. Refuses: a file with several programs of which none was chosen (`BadRequest`).
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from ..dsl import DslError, Program
from ..ptx import PtxError
from ..spelling import did_you_mean
from ..suites.registry import Benchmark, error_in_file, find, spec_of
from .errors import BadInput, BadRequest

__all__ = ["FoundProgram", "find_program", "load_file"]


@dataclass(frozen=True)
class FoundProgram:
    """A host program, and its Benchmark if there is one, which has data for it and the nvcc options of its kernels."""

    program: Program[...]
    benchmark: Benchmark | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """The nvcc options that its kernels need."""
        return tuple(self.benchmark.flags) if self.benchmark is not None else ()


def find_program(source: str, name: str) -> FoundProgram:
    """The program of the suites called ``source``, or the one called ``name`` of the Python file ``source``.

    ``name`` may be empty where the file has one program. Raises `DslError`, `OSError`, `BadInput`, `BadRequest`.
    """
    if not source.endswith(".py"):
        if Path(source).is_file():
            raise BadInput("this is not a Python file: a host program is a .py file", source)
        benchmark = find(source)
        if name and name != benchmark.program.name:
            raise BadRequest(f"{benchmark.fullname} has one program, {benchmark.program.name}, and no '{name}'")
        return FoundProgram(benchmark.program, benchmark)
    programs = _programs_of(Path(source).resolve())
    if not programs:
        raise BadInput("the file has no @program at its top level", source)
    if not name and len(programs) > 1:
        raise BadRequest(f"choose one with --program: {', '.join(programs)}", source)
    if name and name not in programs:
        similar = did_you_mean(name, programs)
        listed = ", ".join(programs)
        raise BadRequest(f"there is no program '{name}'{similar} in this file; there are {listed}", source)
    return programs[name] if name else next(iter(programs.values()))


def _programs_of(file: Path) -> dict[str, FoundProgram]:
    """The programs of a Python file by name. Of a program with a Benchmark, it has that, too."""
    values = list(vars(load_file(file)).values())
    programs: dict[str, FoundProgram] = {}
    for each in values:
        if isinstance(each, Program):
            programs.setdefault(each.name, FoundProgram(each))
    for each in values:
        if isinstance(each, Benchmark):
            programs[each.program.name] = FoundProgram(each.program, each)
    return programs


def load_file(file: Path) -> ModuleType:
    """Run a Python file as the module that its name gives: the fused host program imports it by this name. Raises
    `DslError`, `PtxError`, `OSError`, `BadInput`."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    spec = spec_of(file.stem, file)
    if spec is None or spec.loader is None:
        raise BadInput("this is not a Python file", str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    try:
        spec.loader.exec_module(module)
    except (DslError, PtxError, OSError):
        raise
    except SystemExit as error:
        raise BadInput(f"the file calls sys.exit({error.code!r}) when it is imported", str(file)) from error
    except Exception as error:
        raise error_in_file(file, error) from error
    return module
