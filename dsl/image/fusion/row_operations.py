"""The operations of an operator that are the same for several rows of a thread.

Rows that read the same row of an image of another size (`tiling.rows`) share what they compute from it, and from the
column, because nvcc finds equal expressions. An operation counts as shared if no name in it may depend on the row or on
an image that is not shared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..operators import Operator
from .benefit import OperationCounter, Operations

__all__ = ["operations_of_rows"]


@lru_cache(maxsize=1024)
def operations_of_rows(operator: Operator[Any], shared: frozenset[str]) -> Operations:
    """The operations of an operator that rows have in common which read the same pixels of the images ``shared``. Its
    other parameters may differ between rows."""
    body = operator.body
    varying = _varying(body.tree, {body.y, *(param.name for param in body.params if param.name not in shared)})
    counter = _SharedCounter(varying)
    for statement in body.tree.body:
        counter.visit(statement)
    return Operations(counter.alu, counter.sfu, counter.reads, counter.functions, tuple(counter.windows.items()))


class _SharedCounter(OperationCounter):
    """Counts the operations that mention no name of ``varying``."""

    def __init__(self, varying: frozenset[str]) -> None:
        super().__init__()
        self.varying = varying

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.AugAssign) and _mentions(node, self.varying):
            self.visit(node.value)
        elif isinstance(node, ast.Subscript) and _mentions(node, self.varying):
            return  # a read of pixels that are not shared; its offsets are not operations
        elif isinstance(node, ast.expr) and _mentions(node, self.varying):
            self.generic_visit(node)
        else:
            super().visit(node)


def _mentions(node: ast.AST, names: frozenset[str] | set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))


def _varying(tree: ast.FunctionDef, start: set[str]) -> frozenset[str]:
    """``start``, and the variables whose values may depend on it."""
    found = set(start)
    while True:
        more = {name for node in ast.walk(tree) for name in _assigned(node, found)} - found
        if not more:
            return frozenset(found)
        found |= more


def _assigned(node: ast.AST, varying: set[str]) -> Iterator[str]:
    """The variables that a statement gives values that may depend on ``varying``."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets if node.value is not None else []:
            yield from _assigned_by(target, node.value, varying)
    elif isinstance(node, ast.If | ast.While | ast.For) and _mentions(_condition(node), varying):
        yield from _stored(node)


def _condition(node: ast.If | ast.While | ast.For) -> ast.expr:
    return node.iter if isinstance(node, ast.For) else node.test


def _assigned_by(target: ast.expr, value: ast.expr | None, varying: set[str]) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned_by(each, part, varying)
    elif value is not None and _mentions(value, varying):
        yield from _stored(target)


def _stored(node: ast.AST) -> Iterator[str]:
    """The names that are assigned in a tree."""
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
