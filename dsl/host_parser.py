"""Parses host programs from Python source.

Input: a restricted Python function with assignments of scalars, `allocate`, `copy`, `fill`, `read`, `write`, `free`,
launches, ``if``, ``while``, ``for`` over ``range``, ``break``, ``continue`` and ``return``. Expressions are Python
expressions and are evaluated as Python: host integers do not overflow, and ``//`` is floor division.
Guarantees: every variable is a scalar, a host array or a buffer everywhere, and its kind is known.
Refuses: device buffers except in copies, launches and assignments of handles (``a, b = b, a``); a second name for a
host array; closures, recursion, comprehensions, ``try``, ``with``; calls of other programs.
"""

from __future__ import annotations

import ast
import math
from typing import Any

from ..arch import MAX_THREADS
from . import types as t
from .errors import DslError, FunctionSource
from .host_language import HostArray
from .host_nodes import (
    Allocate,
    Assign,
    Body,
    Branch,
    CopyDevice,
    CopyIn,
    CopyOut,
    Expression,
    For,
    Free,
    HostCall,
    If,
    Item,
    Jump,
    Launch,
    LoopInit,
    LoopNext,
    Memset,
    Node,
    Read,
    Region,
    While,
    Write,
)
from .host_program import HostParam, HostProgram
from .kernel import Kernel
from .language import Word, type_from
from .scope import MISSING, Scope

__all__ = ["parse_program"]

_ALLOWED = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Subscript,
    ast.Attribute, ast.Tuple, ast.Slice, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip

_PURE = (min, max, abs, int, float, bool, len, round, divmod)


def parse_program(source: FunctionSource, scope: Scope) -> HostProgram:
    """The program that a function's source describes. Raises `DslError` for code that a host program cannot contain."""
    return _Parser(source, scope).program()


class _Parser:
    def __init__(self, source: FunctionSource, scope: Scope) -> None:
        self.source = source
        self.scope = scope
        self.namespace: dict[str, Any] = {}
        #: By variable: ``scalar``, ``array`` or ``buffer``.
        self.kinds: dict[str, str] = {}
        tree = source.tree
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self.locals = stored | {argument.arg for argument in tree.args.args}

    def program(self) -> HostProgram:
        tree = self.source.tree
        params = self._params(tree.args)
        body = tree.body
        doc = ast.get_docstring(tree, clean=True) or ""
        if doc:
            body = body[1:]
        return HostProgram(tree.name, params, self._body(body, in_loop=False), self.namespace, doc)

    def _params(self, arguments: ast.arguments) -> tuple[HostParam, ...]:
        for extra in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.defaults):
            if extra is not None:
                raise self.source.error("a program has plain parameters only, without default values", extra)
        params: list[HostParam] = []
        for argument in (*arguments.posonlyargs, *arguments.args):
            node = argument.annotation
            if node is None:
                raise self.source.error(f"parameter {argument.arg} needs a type: host[i32], or i32", argument)
            value = self.scope.annotation(node, self.source)
            if value != self.scope.annotation(node, self.source, argument.arg):
                message = f"{ast.unparse(node)} is another type where the program is defined: it does not capture names"
                raise self.source.error(f"{message} of an enclosing function that only annotations mention", node)
            if not isinstance(value, HostArray | t.Scalar):
                raise self.source.error("a program takes host[type] arrays and scalars such as i32", node)
            for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
                self.namespace[name] = self.scope.lookup(name)
            self.kinds[argument.arg] = "array" if isinstance(value, HostArray) else "scalar"
            params.append(HostParam(argument.arg, value, ast.unparse(node)))
        return tuple(params)

    # --- statements --------------------------------------------------------------------------------------------

    def _body(self, body: list[ast.stmt], *, in_loop: bool) -> Body:
        out: Body = []
        for statement in body:
            for part in self._split(statement):
                item = self._statement(part, in_loop)
                if item is not None:
                    out.append(item)
        return out

    def _split(self, node: ast.stmt) -> list[ast.stmt]:
        """``a, b = allocate(...), allocate(...)`` as two statements; every other statement unchanged."""
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            return [node]
        target, values = node.targets[0], node.value.elts
        calls = [value for value in values if isinstance(value, ast.Call)]
        is_made = any(isinstance(self.scope.resolve(call.func, self.locals), Word) for call in calls)
        if not is_made or not isinstance(target, ast.Tuple) or len(target.elts) != len(values):
            return [node]
        names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        if any(isinstance(part, ast.Name) and part.id in names for value in values for part in ast.walk(value)):
            raise self.source.error("write one assignment for each target: a value mentions a target", node)
        pairs = zip(target.elts, values, strict=True)
        return [ast.copy_location(ast.Assign([to], value), node) for to, value in pairs]

    def _statement(self, node: ast.stmt, in_loop: bool) -> Item | None:
        match node:
            case ast.Pass():
                return None
            case ast.Expr():
                made = self._expression_statement(node)
            case ast.Assign():
                made = self._assign(node)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value):
                made = self._assign(ast.copy_location(ast.Assign([node.target], value), node))
            case ast.AugAssign():
                made = self._augmented(node)
            case ast.If():
                branch = self._branch(node.test)
                body, orelse = (self._body(part, in_loop=in_loop) for part in (node.body, node.orelse))
                return If(branch, body, orelse)
            case ast.While():
                branch = self._branch(node.test)
                body = self._body(node.body, in_loop=True)
                return While(branch, body, self._body(node.orelse, in_loop=in_loop))
            case ast.For():
                return self._for(node, in_loop)
            case ast.Break() | ast.Continue():
                return Jump(type(node).__name__.lower(), self.source.place_of(node))
            case ast.Return(value=None):
                return Jump("return", self.source.place_of(node))
            case ast.Return():
                raise self.source.error("a program cannot return a value: copy results to a host[...] parameter", node)
            case _:
                name = type(node).__name__.lower()
                raise self.source.error(f"a host program cannot contain `{name}`", node)
        made.place = self.source.place_of(node)
        return made

    def _branch(self, test: ast.expr) -> Branch:
        return Branch(self._scalar(test), place=self.source.place_of(test))

    def _for(self, node: ast.For, in_loop: bool) -> For:
        if not isinstance(node.target, ast.Name):
            raise self.source.error("the variable of a `for` must be a name", node.target)
        call = node.iter
        is_range = isinstance(call, ast.Call) and self.scope.resolve(call.func, self.locals) is range
        if not is_range or not isinstance(call, ast.Call) or call.keywords or not 1 <= len(call.args) <= 3:
            raise self.source.error("a host program loops over range(...) only", node.iter)
        bounds = [self._scalar(argument) for argument in call.args]
        if len(bounds) == 1:
            bounds.insert(0, Expression("0"))
        if len(bounds) == 2:
            bounds.append(Expression("1"))
        self._make(node.target, "scalar")
        place = self.source.place_of(node)
        name = node.target.id
        body = self._body(node.body, in_loop=True)
        orelse = self._body(node.orelse, in_loop=in_loop)
        return For(LoopInit(name, *bounds, place=place), LoopNext(name, place=place), body, orelse)

    def _make(self, target: ast.Name, kind: str) -> None:
        """Record the kind of a variable. Raises `DslError` if it already has another kind."""
        old = self.kinds.setdefault(target.id, kind)
        if old != kind:
            raise self.source.error(f"{target.id} is a {old} and cannot become a {kind}", target)

    def _expression_statement(self, node: ast.Expr) -> Node:
        call = node.value
        if not isinstance(call, ast.Call):
            raise self.source.error("this statement has no effect", node)
        if isinstance(call.func, ast.Subscript):
            return self._launch(call, call.func)
        word = self.scope.resolve(call.func, self.locals)
        if isinstance(word, Word):
            self._note(call.func)
            return self._word(word.name, call)
        if isinstance(word, Kernel):
            raise self.source.error(f"launch it as {ast.unparse(call.func)}[grid, block](...)", node)
        return self._call([], call, node)

    def _word(self, word: str, call: ast.Call) -> Node:
        if call.keywords:
            raise self.source.error(f"{word}() takes no keyword arguments", call)
        arguments = call.args
        count = {"free": 1, "copy": 2, "fill": 2, "write": 3}.get(word)
        if count is None:
            raise self.source.error(f"write `name = {word}(...)`", call)
        if len(arguments) != count:
            raise self.source.error(f"{word}() takes {count} arguments, not {len(arguments)}", call)
        match word:
            case "free":
                return Free(self._handle(arguments[0]))
            case "copy":
                return self._copy(arguments[0], arguments[1], call)
            case "fill":
                return Memset(Region(self._handle(arguments[0])), self._scalar(arguments[1]))
            case _:
                return Write(self._handle(arguments[0]), self._scalar(arguments[1]), self._scalar(arguments[2]))

    def _copy(self, target: ast.expr, source: ast.expr, call: ast.Call) -> Node:
        to, since = self._region(target), self._region(source)
        if to is not None and since is not None:
            return CopyDevice(to, since)
        if to is not None:
            return CopyIn(to, self._array(source))
        if since is not None:
            made = self._array(target)
            root = target.value if isinstance(target, ast.Subscript) else target
            assert isinstance(root, ast.Name)
            return CopyOut(made, root.id, since)
        raise self.source.error("one side of copy() must be a device buffer", call)

    def _region(self, node: ast.expr) -> Region | None:
        """A buffer or a slice of one; None if ``node`` is neither."""
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "buffer":
            return Region(node.id)
        is_slice = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
        if not isinstance(node, ast.Subscript) or not is_slice or self._region(node.value) is None:
            return None
        assert isinstance(node.value, ast.Name)
        bounds = node.slice
        if not isinstance(bounds, ast.Slice) or bounds.step is not None:
            raise self.source.error("use a slice of the buffer, as in buffer[a:b], or read() and write()", node)
        lower = self._scalar(bounds.lower) if bounds.lower else None
        upper = self._scalar(bounds.upper) if bounds.upper else None
        return Region(node.value.id, lower, upper)

    def _array(self, node: ast.expr) -> Expression:
        root = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(root, ast.Name) or self.kinds.get(root.id) != "array":
            raise self.source.error("copy() takes device buffers and host arrays, or slices of them", node)
        return self._expression(node)

    def _handle(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "buffer":
            return node.id
        raise self.source.error("this must be a device buffer", node)

    def _launch(self, call: ast.Call, func: ast.Subscript) -> Launch:
        kernel = self.scope.resolve(func.value, self.locals)
        if not isinstance(kernel, Kernel):
            raise self.source.error(f"{ast.unparse(func.value)} is not a kernel", func)
        self._note(func.value)
        parts = list(func.slice.elts) if isinstance(func.slice, ast.Tuple) else [func.slice]
        is_cooperative = isinstance(parts[-1], ast.Constant) and parts[-1].value == "cooperative"
        if is_cooperative:
            parts.pop()
        if not 2 <= len(parts) <= 3 or call.keywords:
            raise self.source.error(
                "a launch is kernel[grid, block](...) or kernel[grid, block, shared_bytes](...); "
                '"cooperative" may be the last element in the brackets',
                call,
            )
        self._check_extents("grid", parts[0])
        self._check_extents("block", parts[1])
        made: Kernel[...] = kernel
        grid, block, *shared = (self._scalar(part) for part in parts)
        args = tuple(self._argument(argument) for argument in call.args)
        params = made.params
        if params is not None:
            self._check_arguments(made, call)
        dynamic = shared[0] if shared else None
        return Launch(made, ast.unparse(func.value), grid, block, args, dynamic, is_cooperative)

    def _check_extents(self, name: str, node: ast.expr) -> None:
        """Refuse literals that no launch can have as its grid or block."""
        elements = node.elts if isinstance(node, ast.Tuple) else [node]
        numbers = [each.value for each in elements if isinstance(each, ast.Constant)]
        if not 1 <= len(elements) <= 3 or any(type(number) is not int for number in numbers):
            raise self.source.error(f"a {name} is an integer or a tuple of up to three integers", node)
        integers = [number for number in numbers if isinstance(number, int)]
        if any(number < 1 for number in integers):
            raise self.source.error(f"each extent of a {name} is at least 1", node)
        if name == "block" and math.prod(integers) > MAX_THREADS:
            raise self.source.error(f"a block has at most {MAX_THREADS} threads", node)

    def _check_arguments(self, made: Kernel[...], call: ast.Call) -> None:
        params = made.params or ()
        if len(params) != len(call.args):
            raise self.source.error(f"{made.name} takes {len(params)} arguments, not {len(call.args)}", call)
        for param, argument in zip(params, call.args, strict=True):
            is_buffer = isinstance(argument, ast.Name) and self.kinds.get(argument.id) == "buffer"
            if is_buffer != isinstance(param.type, t.Pointer):
                raise self.source.error(f"argument {param.name} of {made.name} must be {param.type}", argument)

    def _argument(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "buffer":
            return Expression(node.id)
        return self._scalar(node)

    # --- assignment --------------------------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> Node:
        if len(node.targets) > 1:
            raise self.source.error("write one assignment for each target", node)
        target, value = node.targets[0], node.value
        if isinstance(value, ast.Call):
            word = self.scope.resolve(value.func, self.locals)
            if isinstance(word, Word):
                return self._made_by_word(target, value, word.name)
            if not self._is_pure(word):
                targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
                return self._call(targets, value, node)
        targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
        values = list(value.elts) if isinstance(value, ast.Tuple) else [value]
        if len(targets) != len(values):
            raise self.source.error(f"{len(values)} values for {len(targets)} targets", node)
        made = [self._value(part) for part in values]
        for part, (_, kind) in zip(targets, made, strict=True):
            self._target(part, kind)
        names = tuple(Expression(ast.unparse(part)) for part in targets)
        return Assign(names, tuple(value for value, _ in made))

    def _value(self, node: ast.expr) -> tuple[Expression, str]:
        """A value and its kind."""
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "buffer":
            return Expression(node.id), "buffer"
        if isinstance(node, ast.IfExp):
            parts = [self._value(part) for part in (node.body, node.orelse)]
            if {kind for _, kind in parts} == {"buffer"}:
                self._scalar(node.test)
                return Expression(ast.unparse(node)), "buffer"
        return self._scalar(node), "scalar"

    def _target(self, node: ast.expr, kind: str) -> None:
        if isinstance(node, ast.Name):
            self._make(node, kind)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if self.kinds.get(node.value.id) != "array" or kind != "scalar" or isinstance(node.slice, ast.Slice):
                raise self.source.error(
                    "an element of a host array must be set to a scalar; use write() for buffers", node
                )
            self._expression(node.slice)
        else:
            raise self.source.error("only names and elements of host arrays can be assigned", node)

    def _made_by_word(self, target: ast.expr, call: ast.Call, word: str) -> Node:
        self._note(call.func)
        if not isinstance(target, ast.Name) or call.keywords:
            raise self.source.error(f"write `name = {word}(...)`", call)
        if word in ("allocate", "zeros"):
            if len(call.args) != 2:
                raise self.source.error(f"write {word}(type, count)", call)
            element = self._element(call.args[0])
            count = self._scalar(call.args[1])
            self._make(target, "buffer" if word == "allocate" else "array")
            if word == "zeros":
                return Assign((Expression(target.id),), (Expression(ast.unparse(call)),))
            return Allocate(target.id, ast.unparse(call.args[0]), element, count)
        if word == "read" and 1 <= len(call.args) <= 2:
            index = self._scalar(call.args[1]) if len(call.args) == 2 else Expression("0")
            handle = self._handle(call.args[0])
            self._make(target, "scalar")
            return Read(target.id, handle, index)
        raise self.source.error(f"{word}() has no value here", call)

    def _element(self, node: ast.expr) -> t.Type:
        try:
            made = type_from(self.scope.annotation(node, self.source))
        except DslError as why:
            raise why if why.place else self.source.error(why.message, node) from None
        self._note(node)
        return made

    def _augmented(self, node: ast.AugAssign) -> Node:
        value = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
        return self._assign(ast.copy_location(ast.Assign([node.target], value), node))

    def _call(self, targets: list[ast.expr], call: ast.Call, node: ast.AST) -> Node:
        """A call of a Python function, alone or as the value of an assignment."""
        function = self.scope.resolve(call.func, self.locals)
        if function is MISSING or not callable(function) or hasattr(function, "to_python"):
            what = "a program, and a program cannot call programs" if hasattr(function, "to_python") else "not defined"
            raise self.source.error(f"{ast.unparse(call.func)} is {what}", call)
        changed: set[str] = set()
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            self._expression(argument)
            names = {part.id for part in ast.walk(argument) if isinstance(part, ast.Name)}
            changed |= {name for name in names if self.kinds.get(name) == "array"}
        for part in targets:
            self._target(part, "scalar")
        self._note(call.func)
        names = tuple(Expression(ast.unparse(part)) for part in targets)
        return HostCall(names, (Expression(ast.unparse(call)),), frozenset(changed))

    # --- expressions -------------------------------------------------------------------------------------------

    def _is_pure(self, function: object) -> bool:
        return (
            any(function is pure for pure in _PURE)
            or isinstance(function, t.Scalar)
            or getattr(function, "__module__", None) == "math"
        )

    def _scalar(self, node: ast.expr) -> Expression:
        if isinstance(node, ast.Name) and self.kinds.get(node.id) == "array":
            raise self.source.error(f"{node.id} is a host array, which cannot have a second name", node)
        return self._expression(node)

    def _expression(self, node: ast.expr) -> Expression:
        for part in ast.walk(node):
            if isinstance(part, ast.keyword) or not isinstance(part, _ALLOWED):
                kind = type(part).__name__
                raise self.source.error(
                    f"a host program cannot contain this syntax ({kind})", part if hasattr(part, "lineno") else node
                )
            if isinstance(part, ast.Call) and not self._is_pure(self.scope.resolve(part.func, self.locals)):
                raise self.source.error(
                    f"write `name = {ast.unparse(part)}` first: a call cannot be part of an expression", part
                )
            if isinstance(part, ast.Name):
                self._check_name(part)
        return Expression(ast.unparse(node))

    def _check_name(self, node: ast.Name) -> None:
        if self.kinds.get(node.id) == "buffer":
            raise self.source.error(
                f"{node.id} is a device buffer: it can be used only in copies, read(), write() and launches", node
            )
        if node.id in self.kinds:
            return
        if node.id in self.locals:
            raise self.source.error(f"{node.id} is used before it is assigned", node)
        self._note(node)

    def _note(self, node: ast.expr) -> None:
        """Record the object that a captured name refers to."""
        root = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self.locals:
            return
        captured = self.scope.lookup(root.id)
        if captured is MISSING:
            raise self.source.error(f"{root.id} is not defined", root)
        self.namespace[root.id] = captured


def _loaded(node: ast.expr) -> ast.expr:
    """The target of an augmented assignment as an expression."""
    made = ast.parse(ast.unparse(node), mode="eval").body
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made
