"""Kernels: from Python (`kernel`), from CUDA C++ (`cuda_source`), from PTX (`ptx_source`).

Guarantees: a kernel is translated once, when its code is first used. A kernel has one entry in its PTX.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from . import types as t
from .compilation import Nvcc
from .errors import DslError, FunctionSource, source_from_text, source_of
from .functions import DeviceFunction, GeneratedFunction, Param, Signature, signature_of
from .language import type_from
from .scope import Scope
from .unit import RESERVED, Arithmetic, TablesIn, Unit, c_string

if TYPE_CHECKING:
    from ..ptx import Kernel as PtxKernel

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "CudaKernel",
    "GeneratedKernel",
    "Kernel",
    "PtxSource",
    "PythonKernel",
    "cuda_source",
    "device",
    "device_from_text",
    "kernel",
    "kernel_from_text",
    "ptx_source",
]


class Kernel(Generic[P]):
    """A kernel that host programs launch as ``k[grid, block](...)`` or ``k[grid, block, shared_bytes](...)``.

    ``name`` is its name in programs and reports. ``params`` is None if its source does not declare them.
    """

    def __init__(self, name: str, params: Sequence[Param] | None) -> None:
        self.name = name
        self._params = None if params is None else tuple(params)

    @property
    def params(self) -> tuple[Param, ...] | None:
        """The parameters; None if the source does not declare them."""
        return self._params

    def __getitem__(self, launch: Any) -> Callable[P, None]:
        raise DslError(f"{self.name}[...](...) launches a kernel and may only be used in a @program")

    def ptx(self, nvcc: Nvcc | None = None) -> str:
        """The PTX module. ``nvcc`` is needed unless the kernel was given as PTX. Raises `DslError`."""
        raise NotImplementedError

    def entry(self, ptx: str) -> str:
        """The name of this kernel's ``.entry`` in a module."""
        return self.entry_among(_entries(ptx)).name

    def entry_among(self, entries: list[PtxKernel]) -> PtxKernel:
        """The ``.entry`` of this kernel among those of a module."""
        name = _entry(entries, self.name, "the PTX")
        return next(entry for entry in entries if entry.name == name)

    def reads_and_writes(self) -> tuple[frozenset[int], frozenset[int]] | None:
        """Positions of the pointer parameters that its source declares as read, and as written. None if it declares
        nothing."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class PythonKernel(Kernel[P]):
    """The result of `kernel`: a kernel that is a Python function."""

    arithmetic: Arithmetic = "nvcc"
    tables: TablesIn = "constant"

    def __init__(
        self,
        function: Callable[P, None],
        bounds: tuple[int, ...] = (),
        name: str = "",
        constants: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name or function.__name__, None)
        self.function = function
        self.bounds = bounds
        self.constants = dict(constants or {})
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__wrapped__ = function

    def with_constants(self, name: str = "", **constants: object) -> PythonKernel[P]:
        """The kernel with other values of captured constants, like an instance of a template.

        Without ``name`` the values are appended to its name: ``reduce_BLOCK128``. Device functions of this kernel see
        the new values, too. Raises `DslError` for a name that the kernel does not mention.
        """
        code: Any = getattr(self.function, "__code__", None)
        mentioned = {*code.co_names, *code.co_freevars}
        if unknown := sorted(set(constants) - mentioned):
            raise DslError(f"{self.name} uses no constant {', '.join(unknown)}")
        suffix = "".join(f"_{key}{value}" for key, value in constants.items())
        made = name or re.sub(r"\W", "_", self.name + suffix)
        return PythonKernel(self.function, self.bounds, made, {**self.constants, **constants})

    @cached_property
    def source(self) -> FunctionSource:
        """The Python source."""
        return source_of(self.function)

    @property
    def scope(self) -> Scope:
        """The objects that its names refer to."""
        return Scope(self.function, self.constants)

    @cached_property
    def signature(self) -> Signature:
        """The parameters, from the annotations. Raises `DslError` for an annotation that is no type of the language,
        for a result, and for a name that is reserved in CUDA C++."""
        signature = signature_of(self.source, self.scope, self.name)
        if not isinstance(signature.result, t.Void):
            message = "a kernel cannot return a value: write its results through a ptr[...]"
            raise self.source.error(message, self.source.tree)
        if self.name in RESERVED:
            raise self.source.error(f"{self.name} cannot be the name of a kernel in CUDA C++", self.source.tree)
        return signature

    @property
    def params(self) -> tuple[Param, ...]:
        return self.signature.params

    @cached_property
    def _translated(self) -> tuple[str, str]:
        from .statements import translate

        unit = Unit(translate, self.constants, self.name, self.arithmetic, self.tables)
        bounds = f"__launch_bounds__({', '.join(map(str, self.bounds))}) " if self.bounds else ""
        head = f'extern "C" __global__ void {bounds}{self.name}'
        lines = translate(self.source, self.scope, unit, self.signature, head)
        return unit.text(lines, lines=False), unit.text(lines, lines=True)

    @property
    def cuda(self) -> str:
        """The CUDA C++ text. Raises `DslError` at the Python line that cannot be translated."""
        return self._translated[0]

    @property
    def cuda_with_lines(self) -> str:
        """The same text with ``#line`` directives, for nvcc."""
        return self._translated[1]

    def ptx(self, nvcc: Nvcc | None = None) -> str:
        return _compiler(nvcc, self.name).ptx(self.cuda_with_lines)

    def reads_and_writes(self) -> tuple[frozenset[int], frozenset[int]]:
        pointers = {at: p.type for at, p in enumerate(self.params) if isinstance(p.type, t.Pointer)}
        return frozenset(pointers), frozenset(at for at, type in pointers.items() if not type.const)


class GeneratedKernel(PythonKernel[...]):
    """A kernel that is given as the text of a Python function, by `kernel_from_text`."""

    def __init__(
        self,
        source: FunctionSource,
        names: Mapping[str, object],
        bounds: tuple[int, ...] = (),
        arithmetic: Arithmetic = "nvcc",
        tables: TablesIn = "constant",
    ) -> None:
        Kernel.__init__(self, source.tree.name, None)
        self.arithmetic = arithmetic
        self.tables = tables
        self.bounds = bounds
        self.constants = {}
        self.names = dict(names)
        self._source = source
        self.__doc__ = ast.get_docstring(source.tree)
        self.__name__ = self.name

    @property
    def source(self) -> FunctionSource:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._source

    @property
    def scope(self) -> Scope:
        return Scope(None, self.names)

    @property
    def python(self) -> str:
        """The kernel as Python."""
        return ast.unparse(self._source.tree) + "\n"

    def with_constants(self, name: str = "", **constants: object) -> PythonKernel[...]:
        raise DslError(f"{self.name} was made from text: make it again with other names")


class CudaKernel(Kernel[P]):
    """A kernel written in CUDA C++."""

    def __init__(self, text: str, name: str, params: Sequence[Param] | None, flags: tuple[str, ...]) -> None:
        super().__init__(name, params)
        self.cuda = text
        self.flags = flags

    def ptx(self, nvcc: Nvcc | None = None) -> str:
        compiler = _compiler(nvcc, self.name)
        if self.flags:
            from dataclasses import replace

            compiler = replace(compiler, flags=(*compiler.flags, *self.flags))
        made = compiler.ptx(self.cuda)
        self.entry(made)
        return made


class PtxSource(Kernel[P]):
    """A kernel written in PTX."""

    def __init__(self, text: str, name: str, params: Sequence[Param] | None) -> None:
        super().__init__(name, params)
        self.text = text

    def ptx(self, nvcc: Nvcc | None = None) -> str:
        return self.text


@overload
def kernel(function: Callable[P, None]) -> PythonKernel[P]: ...
@overload
def kernel(
    *, max_threads: int = 0, min_blocks: int = 0, name: str = ""
) -> Callable[[Callable[P, None]], PythonKernel[P]]: ...
def kernel(
    function: Callable[..., None] | None = None, *, max_threads: int = 0, min_blocks: int = 0, name: str = ""
) -> Any:
    """Make a kernel of a Python function. ``max_threads`` and ``min_blocks`` become ``__launch_bounds__``.

    The function's source is translated; it is not run. docs/dsl.md describes the Python that it may use. Raises
    `DslError`.
    """
    if min_blocks and not max_threads:
        raise DslError("min_blocks needs max_threads, as __launch_bounds__ does")
    bounds = tuple(bound for bound in (max_threads, min_blocks) if bound)
    if function is None:
        return lambda given: PythonKernel(given, bounds, name)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType, reportUnknownArgumentType]
    return PythonKernel(function, bounds, name)


@overload
def device(function: F) -> F: ...
@overload
def device(*, inline: bool | None = None) -> Callable[[F], F]: ...
def device(function: Callable[..., Any] | None = None, *, inline: bool | None = None) -> Any:
    """Make a device function of a Python function. ``inline`` forces or forbids inlining; with None nvcc decides."""
    if function is None:
        return lambda given: DeviceFunction(given, inline)  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType, reportUnknownArgumentType]
    return DeviceFunction(function, inline)


def kernel_from_text(
    text: str,
    names: Mapping[str, object],
    *,
    max_threads: int = 0,
    file: str = "<kernel>",
    arithmetic: Arithmetic = "nvcc",
    tables: TablesIn = "constant",
) -> GeneratedKernel:
    """A kernel from the text of its function, for programs that generate kernels.

    ``names`` holds everything that the text mentions, except Python's builtins. ``file`` is the name of the text in
    messages. ``arithmetic`` is that of floats in the kernel and in all functions that it calls (`unit.Arithmetic`), and
    ``tables`` is the memory of tables of constants (`unit.TablesIn`). Raises `DslError`.
    """
    bounds = (max_threads,) if max_threads else ()
    return GeneratedKernel(source_from_text(text, file), names, bounds, arithmetic, tables)


def device_from_text(
    text: str, names: Mapping[str, object], *, inline: bool | None = None, file: str = "<device function>"
) -> GeneratedFunction:
    """A device function from the text of its function, as `kernel_from_text`."""
    return GeneratedFunction(source_from_text(text, file), names, inline)


def cuda_source(
    source: str | Path,
    name: str = "",
    *,
    params: Sequence[object] | None = None,
    flags: Sequence[str] = (),
) -> CudaKernel[...]:
    """A kernel written in CUDA C++: the text, or a `Path` (or a string that ends in ``.cu``) of a file.

    ``name`` is the function's name in the source, with or without ``extern "C"``. Without it the source must have
    exactly one ``__global__`` function. ``params`` are its parameter types, as in ``[const_ptr[f32], i32]``; without
    them, arguments are checked against the PTX only. ``flags`` are added to nvcc's flags. Raises `DslError`,
    `OSError`.
    """
    text, file, first = _text_of(source, ".cu")
    chosen = name or _only_global(text, file)
    include = (f"-I{Path(file).resolve().parent}",) if _is_path(source, ".cu") else ()
    return CudaKernel(f"#line {first} {c_string(file)}\n{text}", chosen, _params(params), (*include, *flags))


def ptx_source(source: str | Path, name: str = "", *, params: Sequence[object] | None = None) -> PtxSource[...]:
    """A kernel written in PTX: the text, or a `Path` (or a string that ends in ``.ptx``) of a file.

    ``name`` is its ``.entry``, mangled or not. Without it the module must have exactly one entry. Raises `DslError`,
    `PtxError` if the text is not PTX, `OSError`.
    """
    text, file, _ = _text_of(source, ".ptx")
    entry_name = _entry(_entries(text, file), name, file)
    return PtxSource(text, name or entry_name, _params(params))


def _is_path(source: str | Path, suffix: str) -> bool:
    return isinstance(source, Path) or (source.endswith(suffix) and "\n" not in source)


def _text_of(source: str | Path, suffix: str) -> tuple[str, str, int]:
    """The text, the file that contains it, and the line on which it starts."""
    if _is_path(source, suffix):
        path = Path(source)
        return path.read_text(encoding="utf-8", errors="surrogateescape"), str(path), 1
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    text = cast("str", source)
    if frame is None:
        return text, f"<{suffix[1:]} source>", 1
    file = frame.f_code.co_filename
    try:
        around = Path(file).read_text(encoding="utf-8")
    except OSError:
        return text, f"<{suffix[1:]} source>", 1
    at = around.find(text)
    if at < 0 or around.find(text, at + 1) >= 0:  # the text contains escapes or occurs twice, so its line is not known
        return text, f"<{suffix[1:]} source of {Path(file).name}>", 1
    return text, file, around.count("\n", 0, at) + 1


def _only_global(text: str, file: str) -> str:
    names = re.findall(r"__global__[^;{]*?\b(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", text))
    if len(names) != 1:
        raise DslError(f"{file} has {len(names)} __global__ functions: choose one, as in name={names[:1] or ['k']!r}")
    return names[0]


def _params(types: Sequence[object] | None) -> tuple[Param, ...] | None:
    return None if types is None else tuple(Param(f"p{at}", type_from(type)) for at, type in enumerate(types))


def _entries(ptx: str, file: str = "<ptx>") -> list[PtxKernel]:
    from ..ptx import parse

    return parse(ptx, file).entries


def _entry(entries: list[PtxKernel], name: str, where: str) -> str:
    """The entry called ``name``, mangled (Itanium C++ ABI, §5.1.2) or not. The only entry if ``name`` is empty."""
    names = [entry.name for entry in entries]
    if name in names:
        return name
    pattern = re.compile(rf"_ZN?(?:\d+\w+?)*?{len(name)}{re.escape(name)}(?!\d)")
    matching = [entry for entry in names if not name or pattern.match(entry)]
    if len(matching) != 1:
        what = f"{len(matching)} entries that match {name!r}" if name else f"{len(names)} entries: choose one by name="
        raise DslError(f"{where} has {what}; its entries are {', '.join(names) or '(none)'}")
    return matching[0]


def _compiler(nvcc: Nvcc | None, name: str) -> Nvcc:
    if nvcc is None:
        raise DslError(f"{name} must be compiled: pass a compiler, as in kernel.ptx(nvcc)")
    return nvcc
