"""`program`: a Python function as a host program that runs on any backend.

Guarantees: a run does not change its arguments, and returns the arrays that the program wrote. Every buffer is freed,
even if the run fails. Scalars are converted to the kernel's parameter types and must fit into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from .backend import Backend
from .compilation import Nvcc
from .errors import DslError, FunctionSource, source_from_text, source_of
from .host_cfg import EffectsOf, HostCfg, declared_effects
from .host_program import HostProgram
from .kernel import Kernel
from .scope import Scope

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .run import Loaded

P = ParamSpec("P")

__all__ = ["GeneratedProgram", "Program", "program", "program_from_text"]


class Program(Generic[P]):
    """The result of `program`."""

    def __init__(self, function: Callable[P, None]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *_: P.args, **__: P.kwargs) -> None:
        raise DslError(f"{self.name} is a @program: call {self.name}.run(backend, nvcc, ...)")

    @cached_property
    def source(self) -> FunctionSource:
        """The Python source."""
        return source_of(self.function)

    @cached_property
    def host(self) -> HostProgram:
        """The program as it was written. Transforms change a `HostProgram.clone`. Raises `DslError`."""
        from .host_parser import parse_program

        return parse_program(self.source, Scope(self.function))

    @property
    def kernels(self) -> dict[str, Kernel[...]]:
        """The kernels that it launches, by their names in the program."""
        return self.host.kernels

    def cfg(self, effects: EffectsOf = declared_effects) -> HostCfg:
        """The graph of launches, copies and branches."""
        return self.host.cfg(effects)

    def to_python(self) -> str:
        """The program as Python."""
        return self.host.to_python()

    def load(self, backend: Backend, ptx: Callable[[Kernel[...]], str]) -> Loaded:
        """The program with its kernels loaded. ``ptx`` returns each kernel's module."""
        from .run import Loaded

        return Loaded(self.host, backend, ptx)

    def run(self, backend: Backend, nvcc: Nvcc | None = None, /, **arguments: Any) -> dict[str, NDArray[Any]]:
        """Compile, load and run the program once. The result maps names to the host arrays that it wrote.

        ``nvcc`` is not needed if every kernel is given as PTX. Raises `DslError` and exceptions of the backend.
        """
        return self.load(backend, lambda kernel: kernel.ptx(nvcc)).run(arguments)

    def __repr__(self) -> str:
        return f"<program {self.name}>"


def program(function: Callable[P, None]) -> Program[P]:
    """Make a host program of a Python function. Its source is parsed; it is not run. docs/dsl.md describes what it may
    contain."""
    return Program(function)


def program_from_text(text: str, namespace: Mapping[str, Any], file: str = "<program>") -> HostProgram:
    """A host program from the text of its function, for example from `HostProgram.to_python`. ``namespace`` holds the
    objects that it captures. Raises `DslError`."""
    from .host_parser import parse_program

    return parse_program(source_from_text(text, file), Scope(None, namespace))


class GeneratedProgram(Program[...]):
    """A host program as a `Program`, so that it can be run, measured and fused like one of a Python function."""

    def __init__(self, host: HostProgram) -> None:
        self.name = host.name
        self.__doc__ = host.doc
        self._host = host

    @property
    def host(self) -> HostProgram:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._host

    @property
    def source(self) -> FunctionSource:  # pyright: ignore[reportIncompatibleVariableOverride]
        return source_from_text(self.to_python(), f"<{self.name}>")
