"""Compiles CUDA C++ to PTX, caches the result on disk, and reports errors at the Python line.

The compiler is an argument (``toolchain.tools.compile_cuda``), because this package does not import the toolchain.
Guarantees: equal source, flags, target, compiler and included files give the cached PTX (`includes`, `cache`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..arch import DEFAULT_TARGET
from ..cache import cache_folder
from .errors import DslError, Place
from .includes import IncludingCache, include_folders, may_include, read_dependencies

__all__ = ["CompileCuda", "Nvcc"]

#: Flags with which nvcc lists dependencies. The cache adds its own flags for that, so it does not work with these.
_LISTING = ("-M", "--generate-dep", "--dependency")

#: Environment variables that affect nvcc's preprocessor.
_PATHS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "NVCC_CCBIN")

#: An error message of nvcc or cudafe, `file(12): error: message`, or of gcc, `file:12:3: error: message`.
_MESSAGE = re.compile(
    r"^(?P<file>[^\n(]+?)(?:\((?P<line>\d+)\)|:(?P<gcc>\d+)(?::\d+)?)"
    r"\s*:\s*(?:fatal |catastrophic )?error\b[^:\n]*:\s*(?P<text>.*)$",
    re.MULTILINE,
)


class CompileCuda(Protocol):
    """Compiles CUDA C++ text to PTX text. Its exception has nvcc's messages in the attribute ``log``."""

    def __call__(self, source: str, arch: str, *, flags: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class Nvcc:
    """A compiler with its version, target and flags. With a ``cache`` of None nothing is cached.

    >>> Nvcc(compile_cuda, version="13.0.88", flags=("-use_fast_math",))  # doctest: +SKIP
    """

    compile: CompileCuda
    version: str
    arch: str = DEFAULT_TARGET
    flags: tuple[str, ...] = ()
    line_info: bool = True
    cache: Path | None = field(default_factory=cache_folder)

    def ptx(self, source: str) -> str:
        """The PTX of a translation unit. Raises `DslError` at the line of nvcc's first error, and other exceptions of
        the compiler."""
        flags = (*(("-lineinfo",) if self.line_info else ()), *self.flags)
        if self.cache is None:
            return self._compiled(source, flags)
        entries = IncludingCache(self.cache)
        key = (self.version, self.arch, str(len(flags)), *flags, source, *(os.environ.get(name, "") for name in _PATHS))
        folders = include_folders(flags)
        cached = entries.get(key, folders)
        if cached is not None:
            return cached
        if not may_include(source, flags):
            made = self._compiled(source, flags)
            entries.put(made, key, {}, folders)
            return made
        if "__has_include" in source or any(flag.startswith(_LISTING) for flag in flags):
            return self._compiled(source, flags)  # its dependencies cannot be listed, or are listed elsewhere
        with tempfile.TemporaryDirectory(prefix="ptxmotion-", ignore_cleanup_errors=True) as scratch:
            listed = Path(scratch) / "dependencies"
            made = self._compiled(source, (*flags, "-MD", "-MF", str(listed)))
            files = read_dependencies(listed, folders)
        if files is not None:
            entries.put(made, key, files, folders)
        return made

    def _compiled(self, source: str, flags: tuple[str, ...]) -> str:
        try:
            return self.compile(source, self.arch, flags=flags)
        except Exception as why:
            log = getattr(why, "log", None)
            if not isinstance(log, str):
                raise
            raise _mapped(log, source) from why


def _mapped(log: str, source: str) -> DslError:
    """nvcc's first error at its line. Up to three more errors are quoted in the message."""
    errors = list(_MESSAGE.finditer(log))
    if not errors:
        return DslError(f"nvcc failed:\n{log.strip()}")
    first = errors[0]
    number = int(first["line"] or first["gcc"])
    more = f" (and {len(errors) - 1} more: {'; '.join(m['text'] for m in errors[1:4])})" if len(errors) > 1 else ""
    message = f"nvcc: {first['text'].strip()}{more}"
    return DslError(message, _place(first["file"].strip(), number, source))


def _place(file: str, number: int, source: str) -> Place:
    """The line that nvcc names. It may be a line of the generated text."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = source.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return Place(file, number, len(text) - len(text.lstrip()) + 1, text)
