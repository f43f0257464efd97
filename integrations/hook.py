"""What the hooks share: the optimizer, the functions that are replaced, and which kernels were seen and changed.

Guarantees: a kernel is replaced only by PTX that ptxas accepts for the same target and options. Whatever fails is a
`RuntimeWarning`, and the library uses its own code.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from ..cache import source_identity
from ..driver import Policy, optimize
from ..python_child import FOLDER
from ..toolchain.places import version_numbers

__all__ = ["Hook", "NotSupported", "import_library"]

#: The folders whose code the optimized PTX depends on.
_OPTIMIZER = (".", "analysis", "ptx", "toolchain", "transforms")

#: The names of the libraries whose hook is enabled.
_enabled: set[str] = set()


class NotSupported(RuntimeError):
    """The version of the library lacks a function that the hook replaces."""


def import_library(module: str) -> Any:
    """A module of a library. Raises `ModuleNotFoundError`, which says how to install a library that is missing."""
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        message = f"the hook for {library} needs {module}: pip install 'ptxmotion[{library}]' ({error})"
        raise ModuleNotFoundError(message, name=error.name, path=error.path) from error


class Hook:
    """A hook that is enabled, until `disable` or the end of a ``with``.

    ``seen`` are the names of the kernels that the optimizer has read, ``changed`` those that it has changed.
    """

    def __init__(self, library: str, passes: str, policy: Policy | None) -> None:
        if library in _enabled:
            raise RuntimeError(f"the hook for {library} is enabled already")
        self.library = library
        self.seen: list[str] = []
        self.changed: list[str] = []
        self._passes = passes
        self._policy = policy or Policy()
        self._undo: list[Callable[[], object]] = []
        _enabled.add(library)

    def disable(self) -> None:
        """Undo what the hook has replaced. Kernels that are compiled stay as they are."""
        while self._undo:
            self._undo.pop()()
        _enabled.discard(self.library)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.disable()

    def digest(self) -> str:
        """A text that differs for other passes, another policy, another optimizer and another ptxas; for the keys of
        the library's own cache."""
        from ..toolchain.tools import ToolchainError, find_tool

        try:
            tool = find_tool("ptxas").identity
        except (ToolchainError, OSError):
            tool = ""
        parts = (self._passes, self._policy, tool, source_identity(FOLDER, _OPTIMIZER))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def optimized(self, ptx: str, arch: str, options: Sequence[str] = ()) -> str | None:
        """The optimized PTX; `None` if nothing changed, or something failed. ``options`` are those of ptxas."""
        from ..toolchain.ptxas_judge import PtxasJudge

        try:
            result = optimize(ptx, self._passes, replace(self._policy, arch=arch, ptxas_options=tuple(options)))
            self.seen += [kernel.name for kernel in result.module.kernels if not kernel.is_declaration]
            if not result.changed:
                return None
            PtxasJudge(arch, options=options).figures(result.text)  # raises an error if ptxas refuses the text
        except Exception as error:
            self.warn(error)
            return None
        self.changed += result.changed
        return result.text

    def warn(self, problem: Exception | str) -> None:
        """Warn that the library uses its own code."""
        text = " ".join(str(problem).split())
        warnings.warn(f"ptxmotion: a kernel of {self.library} is not optimized: {text}", RuntimeWarning, stacklevel=3)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace an attribute by what ``make`` returns for it. Raises `NotSupported`."""
        attributes: Mapping[str, Any] = owner.__dict__
        if name not in attributes:
            self.disable()
            raise NotSupported(f"this version of {self.library} has no {name}")
        original = attributes[name]
        setattr(owner, name, make(original))
        self.on_disable(lambda: setattr(owner, name, original))

    def on_disable(self, undo: Callable[[], object]) -> None:
        """Call ``undo`` when the hook is disabled."""
        self._undo.append(undo)

    def set_variables(self, values: Mapping[str, str]) -> None:
        """Set environment variables."""
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)

        def undo() -> None:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

        self.on_disable(undo)


def is_driver_new_enough(driver: int) -> bool:
    """Whether a driver, as in 13000, loads what ptxas writes. Raises `ToolchainError`."""
    from ..toolchain.tools import find_tool

    return (driver // 1000, driver % 1000 // 10) >= version_numbers(find_tool("ptxas").version)[:2]
