"""Functions of device code before translation, and their signatures."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import types as t
from .errors import DslError, FunctionSource, source_of
from .language import type_from
from .scope import Scope

__all__ = ["DeviceFunction", "GeneratedFunction", "Param", "Signature", "signature_of"]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a kernel or device function."""

    name: str
    type: t.Type


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters and result of a function. ``name`` is its name in C++."""

    name: str
    params: tuple[Param, ...]
    result: t.Type


class DeviceFunction:
    """The result of `device`. ``inline`` is None if nvcc decides whether to inline it."""

    def __init__(self, function: Callable[..., Any], inline: bool | None) -> None:
        self.function: Callable[..., Any] | None = function
        self.name = function.__name__
        self.inline = inline
        self.__doc__ = function.__doc__

    def __call__(self, *_: object, **__: object) -> Any:
        raise DslError(f"{self.name} is a @device function: only kernels can call it")

    def source(self) -> FunctionSource:
        """The source of the function."""
        assert self.function is not None
        return source_of(self.function)

    def scope(self, constants: Mapping[str, object]) -> Scope:
        """What the names of the function refer to; ``constants`` come first."""
        return Scope(self.function, constants)


class GeneratedFunction(DeviceFunction):
    """A device function that is given as a syntax tree, for example by `kernel.device_from_text`.

    ``names`` maps names of the tree to objects. The other names are those that ``function`` captures, or only Python's
    builtins if it is None.
    """

    def __init__(
        self,
        source: FunctionSource,
        names: Mapping[str, object],
        inline: bool | None = None,
        function: Callable[..., Any] | None = None,
    ) -> None:
        self.function = function
        self.name = source.tree.name
        self.inline = inline
        self.names = dict(names)
        self._source = source
        self.__doc__ = ast.get_docstring(source.tree)

    def source(self) -> FunctionSource:
        return self._source

    def scope(self, constants: Mapping[str, object]) -> Scope:
        return Scope(self.function, {**constants, **self.names})


def signature_of(source: FunctionSource, scope: Scope, name: str) -> Signature:
    """The signature that the annotations give. Raises `DslError` for a missing annotation, default values, ``*`` and
    ``**``."""
    arguments = source.tree.args
    for extra in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs):
        if extra is not None:
            raise source.error("a kernel has plain parameters only, without * and **", extra)
    for default in arguments.defaults:
        raise source.error("a parameter of device code has no default value", default)
    params: list[Param] = []
    for argument in (*arguments.posonlyargs, *arguments.args):
        if argument.annotation is None:
            raise source.error(f"parameter {argument.arg} needs a type, as in `{argument.arg}: i32`", argument)
        params.append(Param(argument.arg, _annotated(argument.annotation, source, scope, argument.arg)))
        if isinstance(params[-1].type, t.Void | t.Array):
            raise source.error(f"a parameter cannot be {params[-1].type}", argument)
    returns = source.tree.returns
    result = t.VOID if returns is None else _annotated(returns, source, scope, "return")
    return Signature(name, tuple(params), result)


def _annotated(node: ast.expr, source: FunctionSource, scope: Scope, name: str) -> t.Type:
    value = scope.annotation(node, source, name)
    try:
        return type_from(value)
    except DslError as why:
        raise source.error(why.message, node) from None
