"""CUDA C++ to PTX: which compiler, kept on disk by content, its errors at the Python line.

The compiler is handed in (``harness.toolchain.compile_cuda``): this package imports no harness.
Guarantees: equal source, flags, target and compiler version give the PTX that was kept; a file of the cache is written
whole or not at all, so that processes may share one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .errors import DslError, Place

__all__ = ["CompileCuda", "Nvcc", "default_cache"]

#: nvcc's and cudafe's forms: `file(12): error: message` and gcc's `file:12:3: error: message`.
_MESSAGE = re.compile(
    r"^(?P<file>[^\n(]+?)(?:\((?P<line>\d+)\)|:(?P<gcc>\d+)(?::\d+)?)"
    r"\s*:\s*(?:fatal |catastrophic )?error\b[^:\n]*:\s*(?P<text>.*)$",
    re.MULTILINE,
)


class CompileCuda(Protocol):
    """Compiles CUDA C++ text to PTX text; its error has nvcc's messages in ``log``."""

    def __call__(self, source: str, arch: str, *, flags: Sequence[str]) -> str: ...


def default_cache() -> Path:
    """``$PTXMOTION_CACHE``, or ``ptxmotion`` in the user's cache folder."""
    if told := os.environ.get("PTXMOTION_CACHE"):
        return Path(told)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptxmotion"


@dataclass(frozen=True)
class Nvcc:
    """A compiler with its version, target and flags; ``cache`` of None keeps nothing.

    >>> Nvcc(compile_cuda, version="13.0.88", flags=("-use_fast_math",))  # doctest: +SKIP
    """

    compile: CompileCuda
    version: str
    arch: str = "sm_90a"
    flags: tuple[str, ...] = ()
    line_info: bool = True
    cache: Path | None = field(default_factory=default_cache)

    def ptx(self, source: str) -> str:
        """The PTX of a unit. Raises `DslError` at the line that nvcc names; what else the compiler raises passes."""
        flags = (*(("-lineinfo",) if self.line_info else ()), *self.flags)
        kept = self._kept(source, flags)
        if kept is not None:
            with contextlib.suppress(FileNotFoundError):
                return kept.read_text(encoding="utf-8")
        try:
            made = self.compile(source, self.arch, flags=flags)
        except Exception as why:
            log = getattr(why, "log", None)
            if not isinstance(log, str):
                raise
            raise _mapped(log, source) from why
        if kept is not None:
            _write(kept, made)
        return made

    def _kept(self, source: str, flags: tuple[str, ...]) -> Path | None:
        if self.cache is None:
            return None
        key = "\0".join((self.version, self.arch, *flags, source))
        return self.cache / "ptx" / f"{hashlib.sha256(key.encode()).hexdigest()}.ptx"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _mapped(log: str, source: str) -> DslError:
    """nvcc's first error at its line; the whole log follows where there are several."""
    found = list(_MESSAGE.finditer(log))
    if not found:
        return DslError(f"nvcc failed:\n{log.strip()}")
    first = found[0]
    number = int(first["line"] or first["gcc"])
    more = f" (and {len(found) - 1} more: {'; '.join(m['text'] for m in found[1:4])})" if len(found) > 1 else ""
    message = f"nvcc: {first['text'].strip()}{more}"
    return DslError(message, _place(first["file"].strip(), number, source))


def _place(file: str, number: int, source: str) -> Place:
    """The line that nvcc names, which may be in the generated text itself."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = source.splitlines()
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    return Place(file, number, len(text) - len(text.lstrip()) + 1, text)
