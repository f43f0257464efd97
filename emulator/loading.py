"""A module on the emulated device: its variables have addresses and their first values.

Requires: a parsed module. Guarantees: variables keep their values between launches, as on a device, those declared in
a function's body too; functions have addresses, 16 bytes apart, that nothing can read. Refuses, with `LaunchError`: an
``extern`` variable that nobody defines when something uses it, an initializer that makes no sense.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..ptx.instructions import Instr
from ..ptx.ir import Kernel, Module, RawDirective, Variable
from .checks import LaunchError
from .image import Image
from .initializer import initial_bytes
from .layout import alignment, local_variables, names_of
from .memory import AddressSpace, MemoryObject
from .options import Options
from .segments import called_names

__all__ = ["Loaded"]

_ALIAS = re.compile(r"\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)\s*;")
_WORD = re.compile(r"[A-Za-z_$%][\w$]*")


#: The largest variable.
MOST_BYTES = 1 << 32


class Loaded:
    """``module`` in the address space ``space``; ``variables`` are its global and constant objects by name.

    ``inner`` has those that are declared in the body of a function: by declaration and name, since names may recur.
    """

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
        self.inner: dict[tuple[Variable, str], MemoryObject] = {}
        #: The variables that are not zero when the module is loaded, with the bytes that they hold then.
        self._first_values: list[tuple[MemoryObject, bytes]] = []
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
            self.variables[name] = self._allocated(variable, name)
        for name, found in self.variables.items():
            self._initialize(found, defined[name], self.address)
        for kernel in self.module.kernels:
            self._define_inner(kernel)

    def _define_inner(self, kernel: Kernel) -> None:
        """The global and constant variables that the body of ``kernel`` declares. There is one of each, as for a
        static variable of C; initializers may name those declared before."""
        by_name: dict[str, int] = {}

        def address(name: str) -> int:
            return by_name[name] if name in by_name else self.address(name)

        for variable in local_variables(kernel):
            if variable.space not in ("global", "const") or ".extern" in variable.linkage:
                continue
            for name in names_of(variable):
                found = self._allocated(variable, name)
                self.inner[variable, name] = found
                by_name[name] = found.base
                self._initialize(found, variable, address)

    def _allocated(self, variable: Variable, name: str) -> MemoryObject:
        nbytes = variable.bytes if variable.bytes is not None else _unsized(variable)
        if nbytes > MOST_BYTES:
            raise LaunchError(f"variable '{name}' has {nbytes} bytes, more than {MOST_BYTES}")
        # Without an initializer a variable is zero (PTX ISA 9.0, §5.4.4), so it counts as written.
        found = self.space.allocate(name, variable.space, nbytes, is_written=True, align=alignment(variable))
        found.is_read_only = variable.space == "const"
        return found

    def _initialize(self, found: MemoryObject, variable: Variable, address: Callable[[str], int]) -> None:
        if variable.initializer is None:
            return
        try:
            data = initial_bytes(variable, address, found.nbytes)
        except ValueError as error:
            raise LaunchError(str(error)) from None
        found.fill_from(data)
        self._first_values.append((found, data))

    def reset(self) -> None:
        """Give all variables their first values again."""
        for found in (*self.variables.values(), *self.inner.values()):
            found.bytes[:] = 0
        for found, data in self._first_values:
            found.fill_from(data)

    def _addressed(self) -> set[str]:
        names: set[str] = set()
        for variable in self.module.variables:
            if variable.initializer is not None:
                names.update(word for word in _WORD.findall(variable.initializer) if word in self.functions)
        for kernel in self.module.kernels:
            for name in called_names(kernel):
                names.add(self.aliases.get(name, name))
        return names & set(self.functions)

    def address_of(self, variable: Variable, name: str) -> int:
        """The generic address of ``variable``, or of ``name`` in its range."""
        found = self.inner.get((variable, name))
        return found.base if found is not None else self.address(name)

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
