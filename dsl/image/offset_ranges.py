"""The ranges of the integers that an operator uses as offsets.

Computes, for an expression, a range that contains its values. Known are constants, captured integers, variables of
loops over ``range(...)``, variables that are only assigned known values, sums, differences, products, ``min`` and
``max``. Everything else is not known, and so is every value from 2^20 on: what is known does not overflow.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..language import Word
from ..scope import Scope

__all__ = ["OffsetRanges", "Range"]

_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """The integers from ``low`` to ``high``."""

    low: int
    high: int

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


class OffsetRanges:
    """The ranges of the variables of one function."""

    def __init__(self, tree: ast.FunctionDef, scope: Scope) -> None:
        self.scope = scope
        #: By variable: what is assigned to it: an expression, a loop over a range, or None for anything else.
        self._values: dict[str, list[ast.expr | ast.For | None]] = {}
        for argument in (*tree.args.posonlyargs, *tree.args.args):
            self._values[argument.arg] = [None]
        for node in ast.walk(tree):
            self._note(node)
        #: By mention of a variable: the loop around it whose variable it is.
        self._loops: dict[ast.Name, ast.For] = {}
        self._note_loops(tree, {})
        #: Variables whose range is being computed.
        self._open: set[str] = set()

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._values.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name)):
                # A variable of another type could wrap.
                is_int = node.value is not None and str(self.scope.resolve(node.annotation)) == "i32"
                self._values.setdefault(name, []).append(node.value if is_int else None)
            case ast.For(target=ast.Name(id=name)):
                self._values.setdefault(name, []).append(node)
            case ast.Assign() | ast.AugAssign() | ast.For():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for part in (part for target in targets for part in ast.walk(target)):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        self._values.setdefault(part.id, []).append(None)
            case ast.Call(func=func, args=args):
                word = self.scope.resolve(func, self._values)
                if isinstance(word, Word) and word.name == "addr":
                    for part in args:
                        if isinstance(part, ast.Name):
                            self._values.setdefault(part.id, []).append(None)
            case _:
                pass

    def _note_loops(self, node: ast.AST, around: dict[str, ast.For]) -> None:
        if isinstance(node, ast.Name) and node.id in around:
            self._loops[node] = around[node.id]
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self._note_loops(node.iter, around)
            inside = {**around, node.target.id: node}
            for statement in node.body:
                self._note_loops(statement, inside)
            return
        for child in ast.iter_child_nodes(node):
            self._note_loops(child, around)

    def of(self, node: ast.expr) -> Range | None:
        """The range of an expression; None if it is not known."""
        found = self._of(node)
        return found if found is not None and -_LIMIT < found.low and found.high < _LIMIT else None

    def _of(self, node: ast.expr) -> Range | None:
        match node:
            case ast.Constant(value=value):
                return Range(value, value) if type(value) is int else None
            case ast.Name() if node in self._loops:
                return self._of_loop(self._loops[node])
            case ast.Name(id=name) if name in self._values:
                return self._of_variable(name)
            case ast.Name() | ast.Attribute():
                value = self.scope.resolve(node, self._values)
                return Range(value, value) if type(value) is int else None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.of(operand)
                return None if inner is None else Range(-inner.high, -inner.low)
            case ast.BinOp(left=left, op=op, right=right):
                return self._of_operation(op, self.of(left), self.of(right))
            case ast.Call(func=func, args=[first, second], keywords=[]):
                function = self.scope.resolve(func, self._values)
                a, b = self.of(first), self.of(second)
                if a is None or b is None or function not in (min, max):
                    return None
                return Range(function(a.low, b.low), function(a.high, b.high))
            case _:
                return None

    def _of_operation(self, op: ast.operator, left: Range | None, right: Range | None) -> Range | None:
        if left is None or right is None:
            return None
        match op:
            case ast.Add():
                return Range(left.low + right.low, left.high + right.high)
            case ast.Sub():
                return Range(left.low - right.high, left.high - right.low)
            case ast.Mult():
                products = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
                return Range(min(products), max(products))
            case _:
                return None

    def _of_variable(self, name: str) -> Range | None:
        if name in self._open:
            return None
        self._open.add(name)
        found: Range | None = None
        for value in self._values[name]:
            each = None if value is None else self._of_loop(value) if isinstance(value, ast.For) else self.of(value)
            if each is None:
                found = None
                break
            found = each if found is None else found | each
        self._open.discard(name)
        return found

    def _of_loop(self, loop: ast.For) -> Range | None:
        call = loop.iter
        word = self.scope.resolve(call.func, self._values) if isinstance(call, ast.Call) else None
        if isinstance(word, Word) and word.name == "unroll" and isinstance(call, ast.Call) and call.args:
            call = call.args[0]
            word = self.scope.resolve(call.func, self._values) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or word is not range or not 1 <= len(call.args) <= 3:
            return None
        bounds = [self.of(argument) for argument in call.args]
        if len(bounds) == 1:
            bounds.insert(0, Range(0, 0))
        step = bounds[2] if len(bounds) == 3 else Range(1, 1)
        start, stop = bounds[0], bounds[1]
        if start is None or stop is None or step is None or step.low <= 0 <= step.high:
            return None
        if step.low > 0:
            return Range(start.low, max(start.low, stop.high - 1))
        return Range(min(start.high, stop.low + 1), start.high)
