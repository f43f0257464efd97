"""Where each local variable of a function is mentioned.

Computes: the local variables (names that are assigned, including parameters); for each the innermost block that
contains all its mentions; and the names that a loop assigns. A block is a list of statements. The function's body is
block 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .errors import FunctionSource
from .language import Word
from .scope import Scope

__all__ = ["Mentions"]


class Mentions:
    """The mentions of one function's locals."""

    def __init__(self, source: FunctionSource, scope: Scope) -> None:
        self.source = source
        #: By block: the block around it.
        self._parents: list[int] = [-1]
        #: By (statement, ``body`` or ``orelse``): the block.
        self._blocks: dict[tuple[ast.stmt, str], int] = {}
        self._elif_blocks: set[int] = set()
        #: By variable: the innermost block that contains all its mentions.
        self._home: dict[str, int] = {}
        tree = source.tree
        self.locals: set[str] = {argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)}
        self._assigned: set[str] = set(self.locals)
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.locals.add(node.id)
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                self._assigned |= _direct_targets(node)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        self._addressed = {name for call in calls for name in _addressed(call, scope, self.locals)}
        self._walk(tree.body, 0)

    def _walk(self, body: list[ast.stmt], block: int) -> None:
        for statement in body:
            for name in _own_names(statement):
                home = self._home.get(name)
                self._home[name] = block if home is None else self._common(home, block)
            for part, inner in _parts(statement):
                self._parents.append(block)
                number = len(self._parents) - 1
                self._blocks[statement, part] = number
                if part == "orelse" and isinstance(statement, ast.If) and self.is_elif(statement):
                    self._elif_blocks.add(number)
                self._walk(inner, number)

    def _common(self, a: int, b: int) -> int:
        above = {a}
        while a:
            a = self._parents[a]
            above.add(a)
        while b not in above:
            b = self._parents[b]
        return b

    def block_of(self, owner: ast.stmt, part: str) -> int:
        """The block ``owner.body`` or ``owner.orelse``."""
        return self._blocks[owner, part]

    def home_of(self, name: str) -> int:
        """The innermost block that contains every mention of ``name``."""
        return self._home[name]

    def is_elif(self, node: ast.If) -> bool:
        """Whether the ``else`` of ``node`` is an ``elif``."""
        return (
            len(node.orelse) == 1
            and isinstance(node.orelse[0], ast.If)
            and node.orelse[0].col_offset == node.col_offset
        )

    def is_elif_block(self, block: int) -> bool:
        """Whether ``block`` consists of an ``elif``."""
        return block in self._elif_blocks

    def is_invariant(self, node: ast.expr, loop: ast.For) -> bool:
        """Whether ``node`` reads no memory, calls nothing, and mentions nothing that ``loop`` assigns."""
        stored = (part for part in ast.walk(loop) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
        # A variable whose address was taken may be written through the pointer.
        changed = self._addressed | {part.id for part in stored}
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript | ast.Call | ast.IfExp):
                return False
            if isinstance(part, ast.Name) and part.id in changed:
                return False
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in self.locals:
                return False
        return True

    def check_loop_variable(self, loop: ast.For, name: str) -> None:
        """Raise `DslError` if ``name``, the variable of ``loop``, is also assigned by other statements than ``for``."""
        if name in self._assigned:
            raise self.source.error(
                f"{name} is the variable of this `for` and is also assigned elsewhere: use two different names",
                loop,
            )


def _direct_targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        part.id
        for target in targets
        for part in ast.walk(target)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def _addressed(call: ast.Call, scope: Scope, locals_: set[str]) -> Iterator[str]:
    """The local variables whose address ``call`` takes."""
    word = scope.resolve(call.func, locals_)
    if isinstance(word, Word) and word.name == "addr":
        yield from (arg.id for arg in call.args if isinstance(arg, ast.Name))


def _parts(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    for part in ("body", "orelse"):
        inner = getattr(node, part, None)
        if isinstance(node, ast.If | ast.For | ast.While) and inner:
            yield part, inner


def _own_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement mentions outside of its nested blocks."""
    skipped = {id(inner) for _, body in _parts(node) for inner in body}
    stack: list[ast.AST] = [node]
    while stack:
        at = stack.pop()
        if id(at) in skipped:
            continue
        if isinstance(at, ast.Name):
            yield at.id
        stack.extend(ast.iter_child_nodes(at))
