"""A CUDA C++ translation unit: one kernel with the structs and device functions that it uses.

Guarantees: everything that is used is defined once, before its use. `Unit.text` with ``lines=True`` contains ``#line``
directives, so that nvcc's messages and ``-lineinfo`` refer to the Python file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeAlias

from . import types as t
from .errors import FunctionSource
from .functions import DeviceFunction, Signature, signature_of
from .scope import Scope

__all__ = ["RESERVED", "Arithmetic", "Line", "TablesIn", "Translate", "Unit", "c_string"]

#: Names that a C++ variable cannot have, or that would hide a name that the generated code uses.
RESERVED = frozenset(
    """alignas alignof and_eq asm auto bitand bitor bool case catch char class compl concept const constexpr const_cast
    continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto
    if inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq min max abs llabs fabs fabsf fmin fmax fminf fmaxf assert warpSize threadIdx blockIdx blockDim gridDim NAN
    INFINITY printf main errno linux unix signbit stdin stdout stderr""".split()
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of C++ and the Python line that it was made from. ``number`` is 0 if there is none."""

    text: str
    file: str = ""
    number: int = 0


def c_string(text: str) -> str:
    """``text`` as a C string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


#: How sums, differences and products of floats are translated. ``nvcc``: as C++ operators; the flags of nvcc decide
#: which products and sums it contracts, and inlining changes that. ``rounded``: each operation rounds. ``contracted``:
#: a product that is an operand of a sum or difference in the same expression makes one `fma` with it, and every other
#: operation rounds. The last two give the same bits wherever a function is inlined, with all flags of nvcc about `fma`.
Arithmetic: TypeAlias = Literal["nvcc", "rounded", "contracted"]

#: The memory of tables: constant memory, which is slow if lanes read different elements or a multiprocessor holds more
#: than eight blocks; or global memory.
TablesIn: TypeAlias = Literal["constant", "global"]

#: Translates one function: its source, its scope, the unit, its signature, and the C++ text before its parameters.
Translate: TypeAlias = "Callable[[FunctionSource, Scope, Unit, Signature, str], list[Line]]"


class Unit:
    """Collects what a kernel needs. ``translate`` translates a device function. ``constants`` replace captured names in
    every function of the unit. ``kernel`` is the name of the kernel; no device function gets it. ``arithmetic`` is that
    of floats in all functions. ``tables`` is the memory of tables."""

    def __init__(
        self,
        translate: Translate,
        constants: Mapping[str, object] | None = None,
        kernel: str = "",
        arithmetic: Arithmetic = "nvcc",
        tables: TablesIn = "constant",
    ) -> None:
        self._translate = translate
        self.tables: TablesIn = tables
        self.arithmetic: Arithmetic = arithmetic
        self.kernel = kernel
        self.constants = dict(constants or {})
        self.headers: set[str] = set()
        #: By name: the structs that the kernel uses.
        self._structs: dict[str, t.Struct] = {}
        self._struct_lines: list[Line] = []
        #: By (declarator, values): the C++ name of the table.
        self._tables: dict[tuple[str, ...], str] = {}
        self._signatures: dict[DeviceFunction, Signature] = {}
        #: Functions whose translation has begun and not ended.
        self._open: set[DeviceFunction] = set()
        self._prototypes: list[Line] = []
        self._functions: list[Line] = []
        self._intrinsic_names: set[str] | None = None

    # --- types -------------------------------------------------------------------------------------------------

    def spelled(self, type: t.Type) -> str:
        """The type as C++ writes it before a name, with the blank between them."""
        match type:
            case t.Scalar():
                return type.cuda + " "
            case t.Struct():
                return type.name + " "
            case t.Void():
                return "void "
            case t.Pointer():
                inner = self.spelled(type.target)
                words = ("const " if type.const else "") + ("volatile " if type.volatile else "")
                # The `const` of a pointer to pointers comes after the inner star.
                star = f"{inner}{words}*" if isinstance(type.target, t.Pointer) else f"{words}{inner}*"
                return star + ("__restrict__ " if type.restrict else "")
            case t.Array():
                return self.spelled(type.element)

    def declared(self, type: t.Type, name: str) -> str:
        """The declaration of ``name``, such as ``float tile[16][16]``."""
        dims = "".join(f"[{dim}]" for dim in type.dims) if isinstance(type, t.Array) else ""
        return f"{self.spelled(type)}{name}{dims}"

    def use_type(self, type: t.Type) -> None:
        """Make sure that ``type`` is defined."""
        match type:
            case t.Pointer():
                self.use_type(type.target)
            case t.Array():
                self.use_type(type.element)
            case t.Struct() if not type.native and self._structs.get(type.name) != type:
                self._define(type)
            case t.Scalar() if type is t.F16:
                self.headers.add("cuda_fp16.h")
            case _:
                pass

    def _define(self, struct: t.Struct) -> None:
        if struct.name in self._structs:
            raise ValueError(f"two different structs are called {struct.name}")
        self._structs[struct.name] = struct
        for _, type in struct.fields:
            self.use_type(type)
        body = [Line(f"    {self.declared(type, name)};") for name, type in struct.fields]
        self._struct_lines += [Line(f"struct {struct.name} {{"), *body, Line("};"), Line("")]

    def use_table(self, name: str, type: t.Array, values: list[str]) -> str:
        """The C++ name of a table. Equal tables are defined once."""
        declarator = self.declared(type, "")
        key = (declarator, *values)
        if key not in self._tables:
            taken = {*self._tables.values(), *(signature.name for signature in self._signatures.values())}
            chosen = name.rpartition(".")[2] + "_table"
            while chosen in taken:
                chosen += "_"
            self._tables[key] = chosen
            memory = "__constant__" if self.tables == "constant" else "__device__"
            text = f"{memory} const {self.declared(type, chosen)} = {{{', '.join(values)}}};"
            self._struct_lines += [Line(text), Line("")]
        return self._tables[key]

    # --- functions ---------------------------------------------------------------------------------------------

    def use_function(self, function: DeviceFunction, caller: FunctionSource, node: ast.AST) -> Signature:
        """The signature of a device function, which is added to the unit."""
        if function in self._signatures:
            if function in self._open:
                self._forward_declare(function)
            return self._signatures[function]
        source = function.source()
        scope = function.scope(self.constants)
        taken = {self.kernel, *(signature.name for signature in self._signatures.values())}
        name = function.name
        while name in taken or name in RESERVED or name in self.intrinsic_names:
            name += "_"
        signature = signature_of(source, scope, name)
        self._signatures[function] = signature
        self._open.add(function)
        lines = self._translate(source, scope, self, signature, self._head(function, signature))
        self._open.discard(function)
        self._functions += [*lines, Line("")]
        return signature

    def _head(self, function: DeviceFunction, signature: Signature) -> str:
        for type in (signature.result, *(param.type for param in signature.params)):
            self.use_type(type)
        inline = {None: "", True: "__forceinline__ ", False: "__noinline__ "}[function.inline]
        return f"static __device__ {inline}{self.spelled(signature.result)}{signature.name}"

    def _forward_declare(self, function: DeviceFunction) -> None:
        signature = self._signatures[function]
        params = ", ".join(self.declared(param.type, param.name) for param in signature.params)
        line = Line(f"{self._head(function, signature)}({params});")
        if line not in self._prototypes:
            self._prototypes.append(line)

    @property
    def intrinsic_names(self) -> set[str]:
        """The C names that generated calls use. No variable may hide them."""
        if self._intrinsic_names is None:
            from .intrinsics import INTRINSICS

            rows = INTRINSICS.values()
            self._intrinsic_names = {spelled for row in rows for _, spelled in row.spellings}
            self._intrinsic_names |= {overload.cuda for row in rows for overload in row.overloads}
        return self._intrinsic_names

    def is_taken(self, name: str) -> bool:
        """Whether a variable must not be called ``name``."""
        functions = {signature.name for signature in self._signatures.values()}
        return (
            name in RESERVED
            or name in self._structs
            or name in functions
            or name in self._tables.values()
            or name in self.intrinsic_names
        )

    # --- text --------------------------------------------------------------------------------------------------

    def text(self, kernel: list[Line], lines: bool) -> str:
        """The unit with the kernel at its end, with ``#line`` directives if ``lines``."""
        headers = [Line(f"#include <{header}>") for header in sorted(self.headers)]
        parts = [*headers, *([Line("")] if headers else []), *self._struct_lines]
        parts += [*self._prototypes, *([Line("")] if self._prototypes else []), *self._functions, *kernel]
        if not lines:
            return "\n".join(line.text for line in parts) + "\n"
        return "\n".join(_with_directives(parts)) + "\n"


def _with_directives(lines: list[Line]) -> list[str]:
    """The lines, with a ``#line`` directive wherever the compiler's own line count would be wrong."""
    out: list[str] = []
    file, expected = "", 0
    for line in lines:
        if line.number and (line.file != file or line.number != expected):
            name = f" {c_string(PurePath(line.file).as_posix())}" if line.file != file else ""
            out.append(f"#line {line.number}{name}")
            file, expected = line.file, line.number
        out.append(line.text)
        expected += 1
    return out
