"""The options ``--print-changed`` and ``--dump`` of `opt`: what passes changed, on stderr and as files."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ptx import Kernel, Module
    from ..transforms.passes import Pass

__all__ = ["Observers", "observer_of"]


def observer_of(prints: bool, dump: str | None) -> Observers | None:
    """The observer for ``--print-changed`` and ``--dump``; `None` where neither is given."""
    if not prints and dump is None:
        return None
    return Observers(prints, dump)


@dataclass
class Observers:
    """Prints a diff after each pass if ``prints``, and writes the module after each pass into the folder ``dump``.

    ``shown`` maps the name of a kernel to its lines at the time of the last diff. ``dumped`` counts the files.
    """

    prints: bool
    dump: str | None
    shown: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    dumped: int = 0

    def started(self, module: Module, kernel: Kernel) -> None:
        """The passes start on a kernel. They may start again, after the gate has reverted a change."""
        if self.prints and kernel.name in self.shown:
            self._print_difference(kernel, "before gate", "after gate")
        elif self.prints:
            self.shown[kernel.name] = _lines(kernel)

    def changed(self, module: Module, kernel: Kernel, number: int, each: Pass) -> None:
        """A pass has changed ``kernel``."""
        if self.prints:
            self._print_difference(kernel, f"before {each.name}", f"after {each.name}")
        if self.dump is not None:
            self._write(module, kernel, number, each)

    def finished(self, module: Module) -> None:
        """The module is final: print the changes that the gate reverted."""
        for kernel in module.kernels:
            if kernel.name in self.shown:
                self._print_difference(kernel, "before gate", "after gate")

    def _print_difference(self, kernel: Kernel, old: str, new: str) -> None:
        import difflib

        before, after = self.shown[kernel.name], _lines(kernel)
        self.shown[kernel.name] = after
        for line in difflib.unified_diff(before, after, f"{kernel.name} {old}", f"{kernel.name} {new}", lineterm=""):
            print(line, file=sys.stderr)

    def _write(self, module: Module, kernel: Kernel, number: int, each: Pass) -> None:
        assert self.dump is not None
        from ..ptx import print_module

        os.makedirs(self.dump, exist_ok=True)
        name = re.sub(r"[^\w.$-]", "_", kernel.name)[:80]
        path = os.path.join(self.dump, f"{self.dumped:04}-{number:02}-{each.name}-{name}.ptx")
        self.dumped += 1  # so that every file has its own name
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(print_module(module))


def _lines(kernel: Kernel) -> list[str]:
    from ..ptx import print_kernel

    return print_kernel(kernel).splitlines()
