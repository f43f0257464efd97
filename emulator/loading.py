"""A module on the emulated device: its variables have addresses and initial values.

Requires: a parsed module. Guarantees: variables keep their values between launches, as on a device, also those declared
in the body of a function. Functions have addresses, 16 bytes apart, which no instruction can read. Refuses, with
`LaunchError`: an ``extern`` variable that is used but not defined, and an initializer that cannot be evaluated.
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


#: The largest size of a variable in bytes.
MOST_BYTES = 1 << 32


class Loaded:
    """``module`` in the address space ``space``.

    ``variables`` has the global and constant variables of the module by name. ``inner`` has those declared in the body
    of a function, by declaration and name, since names may occur again. ``code`` has the addresses of functions by
    name. ``_images`` has the compiled kernels by name and options.
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
        #: The variables with an initializer, and their initial bytes.
        self._first_values: list[tuple[MemoryObject, bytes]] = []
        self._images: dict[tuple[str, Options], Image] = {}
        self._define()
        #: Functions whose address is taken.
        self.addressed: list[str] = sorted(self._addressed())

    def _define(self) -> None:
        defined: dict[str, Variable] = {}
        for variable in self.module.variables:
            if variable.space not in ("global", "const"):
                continue
            for name in names_of(variable):
                earlier = defined.get(name)
                if earlier is None or ".extern" in earlier.linkage:
                    defined[name] = variable
        for name, variable in defined.items():
            if (variable.bytes is None or ".extern" in variable.linkage) and variable.initializer is None:
                continue
            self.variables[name] = self._allocated(variable, name)
        for name, target in self.variables.items():
            self._initialize(target, defined[name], self.address)
        for kernel in self.module.kernels:
            self._define_inner(kernel)

    def _define_inner(self, kernel: Kernel) -> None:
        """Define the global and constant variables that the body of ``kernel`` declares.

        They exist once, like static variables in C. Initializers may use the variables declared before.
        """
        by_name: dict[str, int] = {}

        def address(name: str) -> int:
            return by_name[name] if name in by_name else self.address(name)

        for variable in local_variables(kernel):
            if variable.space not in ("global", "const") or ".extern" in variable.linkage:
                continue
            for name in names_of(variable):
                target = self._allocated(variable, name)
                self.inner[variable, name] = target
                by_name[name] = target.base
                self._initialize(target, variable, address)

    def _allocated(self, variable: Variable, name: str) -> MemoryObject:
        nbytes = variable.bytes if variable.bytes is not None else _unsized(variable)
        if nbytes > MOST_BYTES:
            raise LaunchError(f"variable '{name}' has {nbytes} bytes, more than {MOST_BYTES}")
        # Without an initializer a variable is zero (PTX ISA 9.0, §5.4.4), so it counts as written.
        target = self.space.allocate(name, variable.space, nbytes, is_written=True, align=alignment(variable))
        target.is_read_only = variable.space == "const"
        return target

    def _initialize(self, target: MemoryObject, variable: Variable, address: Callable[[str], int]) -> None:
        if variable.initializer is None:
            return
        try:
            data = initial_bytes(variable, address, target.nbytes)
        except ValueError as error:
            raise LaunchError(str(error)) from None
        target.fill_from(data)
        self._first_values.append((target, data))

    def reset(self) -> None:
        """Give all variables their initial values again."""
        for target in (*self.variables.values(), *self.inner.values()):
            target.bytes[:] = 0
        for target, data in self._first_values:
            target.fill_from(data)

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
        """The generic address of ``variable``, or of the variable ``name`` in its range."""
        target = self.inner.get((variable, name))
        return target.base if target is not None else self.address(name)

    def address(self, name: str) -> int:
        """The generic address of a variable or function."""
        target = self.variables.get(name)
        if target is not None:
            return target.base
        if name in self.code:
            return self.code[name]
        raise LaunchError(f"'{name}' is declared but not defined")

    def image(self, kernel: Kernel, options: Options) -> Image:
        """The compiled kernel; it is made once for each set of options."""
        image = self._images.get((kernel.name, options))
        if image is None:
            image = self._images[kernel.name, options] = Image(self, kernel, options)
        return image

    def line(self, pos: int) -> int:
        """The 1-based line of an offset in the text; 0 if the offset is negative."""
        return self.module.source.line_column(pos)[0] if pos >= 0 else 0

    def source_place(self, instr: Instr) -> str:
        """``file:line`` of the ``.loc`` of the instruction; empty if it has none."""
        if instr.loc is None:
            return ""
        file, line, _ = instr.loc.file_line_column
        files: Mapping[int, str] = self.module.files
        return f"{files.get(file, f'file {file}')}:{line}"


def _unsized(variable: Variable) -> int:
    assert variable.initializer is not None
    count = variable.initializer.count(",") + 1
    return count * variable.type.bytes * variable.lanes
