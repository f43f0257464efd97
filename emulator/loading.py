"""A module on the emulated device: its variables have addresses and their first values.

Requires: a parsed module. Guarantees: variables keep their values between launches, as on a device; functions have
addresses, 16 bytes apart, that nothing can read. Refuses, with `LaunchError`: an ``extern`` variable that nobody
defines when something uses it, an initializer that makes no sense.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ..ptx.ir import Instr, Kernel, Module, RawDirective, Variable
from .checks import LaunchError
from .image import Image
from .initializer import initial_bytes
from .layout import alignment, names_of
from .memory import AddressSpace, MemoryObject
from .options import Options
from .segments import called_names

__all__ = ["Loaded"]

_ALIAS = re.compile(r"\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;")
_WORD = re.compile(r"[A-Za-z_$%][\w$]*")


class Loaded:
    """``module`` in the address space ``space``; ``variables`` are its global and constant objects by name."""

    def __init__(self, module: Module, space: AddressSpace) -> None:
        self.module = module
        self.space = space
        self.functions: dict[str, Kernel] = {kernel.name: kernel for kernel in module.kernels}
        self.aliases: dict[str, str] = {}
        for item in module.items:
            if isinstance(item, RawDirective) and (match := _ALIAS.match(item.text)):
                self.aliases[match.group(1)] = match.group(2)
        names = [item.name for item in module.items if isinstance(item, Kernel)]
        self.code: dict[str, int] = {
            name: space.windows.code + 16 * number for number, name in enumerate(dict.fromkeys(names))
        }
        for alias, name in self.aliases.items():
            self.code[alias] = self.code.get(name, 0)
        self.variables: dict[str, MemoryObject] = {}
        #: The bytes that each variable holds when the module is loaded, by its name.
        self._first_values: dict[str, bytes] = {}
        self._images: dict[tuple[str, Options], Image] = {}
        self._define()
        #: Functions whose address something takes.
        self.addressed: list[str] = sorted(self._addressed())

    def _define(self) -> None:
        defined: dict[str, Variable] = {}
        for variable in self.module.variables:
            if variable.space not in ("global", "const"):
                continue
            for name in names_of(variable):
                known = defined.get(name)
                if known is None or ".extern" in known.linkage:
                    defined[name] = variable
        for name, variable in defined.items():
            if (variable.bytes is None or ".extern" in variable.linkage) and variable.initializer is None:
                continue
            nbytes = variable.bytes if variable.bytes is not None else _unsized(variable)
            # Without an initializer a variable is zero (PTX ISA 9.0, §5.4.4), so it counts as written.
            found = self.space.allocate(name, variable.space, nbytes, is_written=True, align=alignment(variable))
            found.is_read_only = variable.space == "const"
            self.variables[name] = found
        for name, found in self.variables.items():
            try:
                data = initial_bytes(defined[name], self.address, found.nbytes)
            except ValueError as error:
                raise LaunchError(str(error)) from None
            found.fill_from(data)
            self._first_values[name] = found.bytes.tobytes()

    def reset(self) -> None:
        """Give all variables their first values again."""
        for name, data in self._first_values.items():
            self.variables[name].bytes[:] = np.frombuffer(data, np.uint8)

    def _addressed(self) -> set[str]:
        names: set[str] = set()
        for variable in self.module.variables:
            if variable.initializer is not None:
                names.update(word for word in _WORD.findall(variable.initializer) if word in self.functions)
        for kernel in self.module.kernels:
            for name in called_names(kernel):
                names.add(self.aliases.get(name, name))
        return names & set(self.functions)

    def address(self, name: str) -> int:
        """The generic address of a variable or function."""
        found = self.variables.get(name)
        if found is not None:
            return found.base
        if name in self.code:
            return self.code[name]
        raise LaunchError(f"'{name}' is declared but defined nowhere")

    def image(self, kernel: Kernel, options: Options) -> Image:
        """The compiled kernel, made once for each set of options."""
        found = self._images.get((kernel.name, options))
        if found is None:
            found = self._images[kernel.name, options] = Image(self, kernel, options)
        return found

    def line(self, pos: int) -> int:
        """The 1-based line of an offset in the text; 0 where there is none."""
        return self.module.source.line_column(pos)[0] if pos >= 0 else 0

    def source_place(self, instr: Instr) -> str:
        """``file:line`` of the instruction's ``.loc``, or nothing."""
        if instr.loc is None:
            return ""
        file, line, _ = instr.loc.file_line_column
        files: Mapping[int, str] = self.module.files
        return f"{files.get(file, f'file {file}')}:{line}"


def _unsized(variable: Variable) -> int:
    assert variable.initializer is not None
    count = variable.initializer.count(",") + 1
    return count * variable.type.bytes * variable.lanes
