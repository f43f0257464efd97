"""Refuses operators that use what depends on threads: indices, barriers, warps, shared memory, atomics, clocks.

A lowering chooses which threads compute a pixel, with which others, and how often. Only operators that are functions of
pixels, numbers and coordinates have the same result in every lowering. A barrier in an operator may not be reached by
all threads of a block.
Requires: nothing; names are looked up when an operator is called, as Python does.
Refuses: `DslError` at the line that uses such a word, also in device functions that the operator calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..errors import FunctionSource
from ..functions import DeviceFunction
from ..intrinsics import Intrinsic
from ..language import Word
from ..scope import Scope

__all__ = ["check_function", "check_operator"]

_WORDS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "shared", "dynamic_shared"})


def check_operator(source: FunctionSource, scope: Scope) -> None:
    """Raise `DslError` if the function of an operator depends on threads."""
    _check(source, scope, set())


def check_function(function: DeviceFunction) -> None:
    """Raise `DslError` if a device function depends on threads."""
    _check(function.source(), function.scope({}), {function})


def _check(source: FunctionSource, scope: Scope, seen: set[DeviceFunction]) -> None:
    """``seen`` are the device functions that need no further check."""
    for node, value in _captured(source.tree, scope):
        if (isinstance(value, Word) and value.name in _WORDS) or (isinstance(value, Intrinsic) and value.of_threads):
            message = f"{value.name} depends on threads, and a lowering chooses which threads compute a pixel"
            raise source.error(f"{message}: an operator computes with pixels, numbers and here()", node)
        if isinstance(value, DeviceFunction) and value not in seen:
            seen.add(value)
            _check(value.source(), value.scope({}), seen)


def _captured(tree: ast.FunctionDef, scope: Scope) -> Iterator[tuple[ast.expr, object]]:
    """The names and attributes in the body of a function that are not local, and their objects."""
    locals_ = {argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)}
    nodes = [node for statement in tree.body for node in ast.walk(statement)]
    locals_ |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            yield node, scope.resolve(node, locals_)
