"""Translates the statements of a kernel into C++ lines.

Python's scopes are kept: a local variable exists until its function ends. It is declared at its first assignment if
nothing outside that block mentions it. Otherwise it is declared before the statement that contains all mentions, and
outside every loop, so that its value survives from one iteration to the next.
Guarantees: `for i in range(a, b, c)` runs as in Python, with bounds that are evaluated once. A step that is not
constant is assumed to be positive. An ``if`` over a constant keeps only the branch that is taken, like ``if
constexpr``.
Refuses: assignments to the variable of a running ``for`` loop, its use after the loop, ``else`` of loops, ``try``,
``with``, nested functions, and everything that is not listed here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from . import types as t
from .calls import call, cast_to
from .cpp_expression import CONDITIONAL, Expr, literal
from .errors import DslError, FunctionSource
from .expressions import Expressions
from .functions import Signature
from .language import Word, type_from
from .mentions import Mentions
from .scope import MISSING, Scope
from .unit import Line, Unit, c_string

__all__ = ["translate"]

_ARRAYS = {"shared", "dynamic_shared", "local"}
_NO_LOOP_ELSE = "a kernel cannot contain the `else` of a loop"


def translate(source: FunctionSource, scope: Scope, unit: Unit, signature: Signature, head: str) -> list[Line]:
    """The definition of a function: ``head``, its parameters, its body."""
    try:
        return _Function(source, scope, unit, signature).lines(head)
    except ValueError as why:  # two different structs have the same name
        raise source.error(str(why), source.tree) from None


@dataclass(slots=True)
class _Level:
    """A block that is being translated. ``slot`` collects the declarations that go before the current statement."""

    block: int
    is_loop: bool
    slot: list[Line] = field(default_factory=list[Line])


class _Function:
    def __init__(self, source: FunctionSource, scope: Scope, unit: Unit, signature: Signature) -> None:
        self.source = source
        self.unit = unit
        self.scope = scope
        self.signature = signature
        self.mentions = Mentions(source, scope)
        self.ex = Expressions(source, scope, unit, self.mentions.locals, call)
        self.levels: list[_Level] = []
        self.made_at: dict[str, int] = {}
        self.loop_variables: list[str] = []
        self.temporaries = 0
        self.has_dynamic = False
        self.names: set[str] = set()

    def lines(self, head: str) -> list[Line]:
        for param in self.signature.params:
            self.unit.use_type(param.type)
            self.ex.variables[param.name] = Expr(self._fresh(param.name), param.type, is_lvalue=True)
        params = ", ".join(self.unit.declared(p.type, self.ex.variables[p.name].text) for p in self.signature.params)
        tree = self.source.tree
        opening = self._line(f"{head}({params}) {{", tree, 0)
        body = self._block(tree.body, 0, is_loop=False)
        if not isinstance(self.signature.result, t.Void) and not _always_returns(tree.body):
            raise self.ex.error(f"not every path through {tree.name} returns {self.signature.result}", tree)
        return [opening, *body, Line("}")]

    def _line(self, text: str, node: ast.AST, depth: int | None = None) -> Line:
        indent = "    " * (len(self.levels) if depth is None else depth)
        return Line(indent + text, self.source.file, self.source.line_of(node))

    def _fresh(self, name: str) -> str:
        """A free C++ name for a Python name."""
        while self.unit.is_taken(name) or name in self.names:
            name += "_"
        self.names.add(name)
        return name

    # --- blocks ------------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], block: int, *, is_loop: bool) -> list[Line]:
        level = _Level(block, is_loop)
        self.levels.append(level)
        out: list[Line] = []
        for statement in body:
            level.slot = []
            lines = self._statement(statement)
            out += [*level.slot, *lines]
        self.levels.pop()
        return out

    def _nested(self, body: list[ast.stmt], owner: ast.stmt, part: str, *, is_loop: bool) -> list[Line]:
        return self._block(body, self.mentions.block_of(owner, part), is_loop=is_loop)

    def _statement(self, node: ast.stmt) -> list[Line]:
        match node:
            case ast.Pass():
                return []
            case ast.Expr(value=ast.Constant(value=str())):
                return []  # a docstring
            case ast.Expr():
                return self._call(node)
            case ast.Assign():
                return self._assign(node)
            case ast.AnnAssign():
                return self._annotated(node)
            case ast.AugAssign():
                return self._augmented(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                return self._while(node)
            case ast.For():
                return self._for(node)
            case ast.Break():
                return [self._line("break;", node)]
            case ast.Continue():
                return [self._line("continue;", node)]
            case ast.Return():
                return self._return(node)
            case ast.Assert():
                return self._assert(node)
            case _:
                name = type(node).__name__.lower()
                raise self.ex.error(f"a kernel cannot contain `{name}`", node)

    def _call(self, node: ast.Expr) -> list[Line]:
        if not isinstance(node.value, ast.Call):
            raise self.ex.error("this statement has no effect", node)
        return [self._line(f"{self.ex.visit(node.value).text};", node)]

    def _return(self, node: ast.Return) -> list[Line]:
        result = self.signature.result
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            if not isinstance(result, t.Void):
                raise self.ex.error(f"{self.source.tree.name} must return {result}", node)
            return [self._line("return;", node)]
        if isinstance(result, t.Void):
            raise self.ex.error(
                "the function declares no result: write `-> type`, which is possible for @device functions only", node
            )
        value = self.ex.convert(self.ex.visit(node.value), result, node.value, "result")
        return [self._line(f"return {value.text};", node)]

    def _assert(self, node: ast.Assert) -> list[Line]:
        self.unit.headers.add("cassert")
        test = self.ex.condition(node.test).text
        if node.msg is None:
            return [self._line(f"assert({test});", node)]
        if not (isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str)):
            raise self.ex.error("the message of an assertion must be a string literal", node.msg)
        return [self._line(f"assert(({test}) && {c_string(node.msg.value)});", node)]

    # --- control -----------------------------------------------------------------------------------------------

    def _if(self, node: ast.If, lead: str = "") -> list[Line]:
        test = self.ex.condition(node.test)
        if test.value is not None and not lead:
            part, body = ("body", node.body) if test.value else ("orelse", node.orelse)
            return self._taken_branch(node, part, body)
        out = [self._line(f"{lead}if ({test.text}) {{", node)]
        out += self._nested(node.body, node, "body", is_loop=False)
        if not node.orelse:
            return [*out, self._line_end()]
        only = node.orelse[0]
        if len(node.orelse) == 1 and isinstance(only, ast.If) and self.mentions.is_elif(node):
            inner = self._elif(only, node)
            return [*out, *inner]
        out.append(Line(self._line_end().text + " else {"))
        return [*out, *self._nested(node.orelse, node, "orelse", is_loop=False), self._line_end()]

    def _elif(self, node: ast.If, owner: ast.If) -> list[Line]:
        # The level of the else block is needed for scoping. It has no text of its own.
        level = _Level(self.mentions.block_of(owner, "orelse"), False)
        self.levels.append(level)
        lines = self._if(node, lead="} else ")
        self.levels.pop()
        return [_outdented(line) for line in lines]

    def _taken_branch(self, node: ast.If, part: str, body: list[ast.stmt]) -> list[Line]:
        """The branch of an ``if`` over a constant that is taken. It needs no braces, because C++ names are unique."""
        if not body:
            return []
        return [_outdented(line) for line in self._nested(body, node, part, is_loop=False)]

    def _line_end(self) -> Line:
        return Line("    " * len(self.levels) + "}")

    def _while(self, node: ast.While) -> list[Line]:
        if node.orelse:
            raise self.ex.error(_NO_LOOP_ELSE, node.orelse[0])
        head = self._line(f"while ({self.ex.condition(node.test).text}) {{", node)
        return [head, *self._nested(node.body, node, "body", is_loop=True), self._line_end()]

    def _for(self, node: ast.For) -> list[Line]:
        if node.orelse:
            raise self.ex.error(_NO_LOOP_ELSE, node.orelse[0])
        if not isinstance(node.target, ast.Name):
            raise self.ex.error("the variable of a `for` must be a name", node.target)
        name = node.target.id
        self.mentions.check_loop_variable(node, name)
        if name in self.loop_variables:
            raise self.ex.error(f"{name} is already the variable of a loop around this one", node.target)
        pragma, call = self._unrolled(node.iter)
        out = [self._line(pragma, node)] if pragma else []
        head, before, kind = self._range(call, name, node)
        self.ex.variables[name] = Expr(head[0], kind)
        self.loop_variables.append(name)
        body = self._nested(node.body, node, "body", is_loop=True)
        self.loop_variables.pop()
        del self.ex.variables[name]
        return [*before, *out, self._line(head[1], node), *body, self._line_end()]

    def _unrolled(self, node: ast.expr) -> tuple[str, ast.Call]:
        """The ``#pragma`` of a loop, and its ``range(...)``."""
        word = self.scope.resolve(node.func, self.ex.locals) if isinstance(node, ast.Call) else MISSING
        if isinstance(node, ast.Call) and isinstance(word, Word) and word.name == "unroll":
            if not 1 <= len(node.args) <= 2 or node.keywords:
                raise self.ex.error("write unroll(range(...)) or unroll(range(...), times)", node)
            times = ""
            if len(node.args) == 2:
                times = f" {self._constant(node.args[1], 'the number of times')}"
            return f"#pragma unroll{times}", self._unrolled(node.args[0])[1]
        if isinstance(node, ast.Call) and word is range and 1 <= len(node.args) <= 3 and not node.keywords:
            return "", node
        raise self.ex.error("a kernel loops over range(...) or unroll(range(...)) only", node)

    def _constant(self, node: ast.expr, what: str) -> int:
        value = self.ex.visit(node)
        if not isinstance(value.value, int) or value.value <= 0:
            raise self.ex.error(f"{what} must be a positive constant", node)
        return value.value

    def _range(self, call: ast.Call, name: str, node: ast.For) -> tuple[tuple[str, str], list[Line], t.Scalar]:
        """The variable and the head of a loop, the lines before it, and the type of the variable."""
        values = [self.ex.visit(argument) for argument in call.args]
        for value, argument in zip(values, call.args, strict=True):
            if not isinstance(value.type, t.Scalar) or not value.type.is_integer:
                raise self.ex.error(f"range() needs integers, not {value.type}", argument)
        zero, one = literal(0), literal(1)
        assert zero is not None and one is not None
        start, stop = (zero, values[0]) if len(values) == 1 else (values[0], values[1])
        step = values[2] if len(values) == 3 else one
        kind = self._loop_type(start, stop, call)
        if step.value == 0:
            raise self.ex.error("the step of range() is 0", call.args[2])
        down = step.value is not None and step.value < 0
        if down and kind.kind == "u":
            raise self.ex.error(
                f"the variable of this loop is {kind} and never gets below 0: convert the bounds, as in i32(n)", call
            )
        before: list[Line] = []
        stop = self._once(stop, call.args[min(1, len(values) - 1)], f"{name}_stop", node, before)
        if len(values) == 3:
            step = self._once(step, call.args[2], f"{name}_step", node, before)
        variable = self._fresh(name)
        self.names.discard(variable)
        advance = f"++{variable}" if step.value == 1 else f"{variable} += {step.text}"
        if step.value is not None and step.value < 0:
            advance = f"--{variable}" if step.value == -1 else f"{variable} -= {-step.value}"
        test = f"{variable} {'>' if down else '<'} {stop.at(CONDITIONAL + 6)}"
        declared = self.unit.declared(kind, variable)
        return (variable, f"for ({declared} = {start.text}; {test}; {advance}) {{"), before, kind

    def _loop_type(self, start: Expr, stop: Expr, call: ast.Call) -> t.Scalar:
        kinds = [value.scalar for value in (start, stop) if value.value is None] or [start.scalar, stop.scalar]
        kind = t.promoted(kinds[0]) if len(kinds) == 1 else t.usual(*kinds)
        assert kind is not None
        for value in (start, stop):
            if isinstance(value.value, int) and not kind.limits[0] <= value.value <= kind.limits[1]:
                raise self.ex.error(f"{value.value} does not fit {kind}, the type of this loop's variable", call)
        return kind

    def _once(self, value: Expr, node: ast.expr, name: str, loop: ast.For, before: list[Line]) -> Expr:
        """``value`` in a form that may be evaluated in each iteration with the effect of one evaluation before the
        loop."""
        if value.value is not None or self.mentions.is_invariant(node, loop):
            return value
        fresh = self._fresh(name)
        assert isinstance(value.type, t.Scalar)
        kind = t.promoted(value.type)
        before.append(self._line(f"const {self.unit.declared(kind, fresh)} = {value.text};", node))
        return Expr(fresh, kind)

    # --- assignment --------------------------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> list[Line]:
        first = node.targets[0]
        if isinstance(first, ast.Tuple) or isinstance(node.value, ast.Tuple):
            return self._several(node)
        if isinstance(first, ast.Name) and len(node.targets) == 1 and (made := self._array(first, node.value)):
            return made
        value = self.ex.visit(node.value)
        lines: list[Line] = []
        for target in reversed(node.targets):
            if isinstance(target, ast.Tuple):
                raise self.ex.error("write one assignment for each target", target)
            lines += self._store(target, value, node)
            if len(node.targets) > 1 and value.value is None and not value.is_weak:
                if not isinstance(target, ast.Name):
                    raise self.ex.error(
                        "write one assignment for each target: C++ would evaluate the value twice", target
                    )
                value = self.ex.variables[target.id]
        return lines

    def _several(self, node: ast.Assign) -> list[Line]:
        """``a, b = b, a``: all values are evaluated before the first assignment."""
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(node.targets) > 1:
            raise self.ex.error("a tuple may only be assigned to a tuple of names, as in `a, b = b, a`", node)
        if len(target.elts) != len(value.elts):
            raise self.ex.error(f"{len(value.elts)} values for {len(target.elts)} targets", node)
        lines: list[Line] = []
        kept: list[Expr] = []
        for part in value.elts:
            assigned = self.ex.decayed(self.ex.visit(part), part)
            if assigned.value is None and not assigned.is_weak:
                self.temporaries += 1
                fresh = self._fresh(f"t{self.temporaries}")
                lines.append(self._line(f"{self.unit.declared(assigned.type, fresh)} = {assigned.text};", part))
                assigned = Expr(fresh, assigned.type)
            kept.append(assigned)
        for part, assigned in zip(target.elts, kept, strict=True):
            lines += self._store(part, assigned, node)
        return lines

    def _store(self, target: ast.expr, value: Expr, node: ast.stmt) -> list[Line]:
        if isinstance(target, ast.Name):
            return self._bind(target, value, node, None)
        if not isinstance(target, ast.Subscript | ast.Attribute):
            raise self.ex.error("only a name, an element or a field can be assigned to", target)
        place = self._writable(target)
        return [self._line(f"{place.text} = {self.ex.convert(value, place.type, node).text};", node)]

    def _writable(self, target: ast.expr) -> Expr:
        place = self.ex.visit(target)
        if place.is_const:
            raise self.ex.error("this is const: use ptr[...] for a buffer that the kernel writes", target)
        if not place.is_lvalue or isinstance(place.type, t.Array):
            raise self.ex.error("this cannot be assigned to", target)
        return place

    def _bind(self, target: ast.Name, value: Expr | None, node: ast.stmt, annotated: t.Type | None) -> list[Line]:
        """Assign to a local variable, or declare it if this is its first assignment. ``annotated`` is the type that the
        statement declares, or None."""
        name = target.id
        if name in self.loop_variables:
            raise self.ex.error(f"{name} is the variable of a `for`: use a `while` loop to change it", target)
        variable = self.ex.variables.get(name)
        if variable is not None:
            if annotated is not None and annotated != variable.type:
                raise self.ex.error(f"{name} is {variable.type} since line {self.made_at.get(name, 0)}", target)
            if value is None:
                return []
            if isinstance(variable.type, t.Array):
                raise self.ex.error(f"{name} is an array, and an array cannot be assigned", target)
            hint = f"new value of {name}"
            converted = self.ex.convert(value, variable.type, node, hint)
            return [self._line(f"{variable.text} = {converted.text};", node)]
        type = annotated if annotated is not None else self._type_of_local(name, value, node)
        text = (
            "" if value is None else self.ex.convert(self.ex.decayed(value, node), type, node, f"value of {name}").text
        )
        return self._declare(name, type, text, node)

    def _type_of_local(self, name: str, value: Expr | None, node: ast.stmt) -> t.Type:
        assert value is not None
        if value.is_weak:
            raise self.ex.error(f"{name} is neither f32 nor f64: write `{name}: f32 = …` or `{name}: f64 = …`", node)
        value = self.ex.decayed(value, node)
        if isinstance(value.type, t.Void):
            raise self.ex.error(f"{value.type} is not a value", node)
        # A copy of a restrict pointer is not restrict: both point to the same memory.
        return replace(value.type, restrict=False) if isinstance(value.type, t.Pointer) else value.type

    def _declare(self, name: str, type: t.Type, text: str, node: ast.stmt, storage: str = "") -> list[Line]:
        self.unit.use_type(type)
        fresh = self._fresh(name)
        self.ex.variables[name] = Expr(fresh, type, is_lvalue=not isinstance(type, t.Array))
        self.made_at[name] = self.source.line_of(node)
        declaration = f"{storage}{self.unit.declared(type, fresh)}"
        level = self._home(name)
        if level is self.levels[-1]:
            return [self._line(f"{declaration} = {text};" if text else f"{declaration};", node)]
        level.slot.append(self._line(f"{declaration};", node, self.levels.index(level) + 1))
        return [self._line(f"{fresh} = {text};", node)] if text else []

    def _home(self, name: str) -> _Level:
        """The block in which a local variable is declared."""
        common = self.mentions.home_of(name)
        blocks = [level.block for level in self.levels]
        depth = blocks.index(common)
        if depth == len(self.levels) - 1:
            return self.levels[-1]
        loops = [at for at in range(depth + 1) if self.levels[at].is_loop]
        depth = loops[0] - 1 if loops else depth
        # No declaration is possible between `else` and `if` of an `elif`.
        while depth and self.mentions.is_elif_block(self.levels[depth].block):
            depth -= 1
        return self.levels[depth]

    def _array(self, target: ast.Name, value: ast.expr) -> list[Line] | None:
        """``name = shared(f32, 16, 16)`` and similar assignments. None if ``value`` is something else."""
        word = self.scope.resolve(value.func, self.ex.locals) if isinstance(value, ast.Call) else MISSING
        if not isinstance(word, Word) or word.name not in _ARRAYS or not isinstance(value, ast.Call):
            return None
        if not value.args or value.keywords:
            raise self.ex.error(f"write {word.name}(type, …)", value)
        if target.id in self.ex.variables:
            raise self.ex.error(f"{target.id} is already a variable", target)
        element = self._element_type(value.args[0])
        dims = tuple(self._constant(dim, "a dimension") for dim in value.args[1:])
        dynamic = word.name == "dynamic_shared"
        if dynamic != (not dims):
            form = "dynamic_shared(type): the launch gives the size" if dynamic else f"{word.name}(type, n, …)"
            raise self.ex.error(f"write {form}", value)
        if dynamic:
            return self._dynamic(target, element, value)
        made = t.Array(element, dims, word.name)
        node = ast.copy_location(ast.Pass(), value)
        return self._declare(target.id, made, "", node, "__shared__ " if word.name == "shared" else "")

    def _element_type(self, node: ast.expr) -> t.Type:
        value = self.scope.annotation(node, self.source)
        try:
            return type_from(value)
        except DslError as why:
            raise self.ex.error(why.message, node) from None

    def _dynamic(self, target: ast.Name, element: t.Type, node: ast.Call) -> list[Line]:
        if self.has_dynamic:
            raise self.ex.error(
                "a kernel may have only one dynamic shared array: divide it with pointer_cast(type, p + n)", node
            )
        self.has_dynamic = True
        self.unit.use_type(element)
        fresh = self._fresh(target.id)
        self.made_at[target.id] = self.source.line_of(node)
        self.ex.variables[target.id] = Expr(fresh, t.Array(element, (), "dynamic"))
        level = self._home(target.id)
        line = self._line(
            f"extern __shared__ {self.unit.spelled(element)}{fresh}[];", node, self.levels.index(level) + 1
        )
        if level is self.levels[-1]:
            return [line]
        level.slot.append(line)
        return []

    def _annotated(self, node: ast.AnnAssign) -> list[Line]:
        if not isinstance(node.target, ast.Name):
            raise self.ex.error("only a name can be annotated", node.target)
        annotated = self._element_type(node.annotation)
        if isinstance(annotated, t.Void):
            raise self.ex.error("None cannot be the type of a variable", node.annotation)
        value = self.ex.visit(node.value) if node.value is not None else None
        return self._bind(node.target, value, node, annotated)

    def _augmented(self, node: ast.AugAssign) -> list[Line]:
        place = self._writable(node.target)
        if isinstance(node.target, ast.Name) and node.target.id in self.loop_variables:
            raise self.ex.error(f"{node.target.id} is the variable of a `for`: use a `while` loop to change it", node)
        right = self.ex.visit(node.value)
        if isinstance(place.type, t.Scalar):
            right = self.ex.settle(right, place.type) if place.type.is_float else right
        result = self.ex.binary(node.op, place, right, node)
        self.ex.convert(result, place.type, node, "result")
        symbol = _AUGMENTED[type(node.op)]
        if self.ex.unit.arithmetic != "nvcc" and isinstance(place.type, t.Scalar) and place.type.is_float:
            return self._rounded_update(node, place, result)
        if place.type is t.F16 and right.type is not t.F16:
            right = cast_to(right, t.F16)
        return [self._line(f"{place.text} {symbol}= {right.text};", node)]

    def _rounded_update(self, node: ast.AugAssign, place: Expr, result: Expr) -> list[Line]:
        """``place += value`` of floats as ``place = sum``, where the sum is a call."""
        if any(isinstance(part, ast.Call) for part in ast.walk(node.target)):
            raise self.ex.error("this place would be computed twice: assign its index to a variable first", node.target)
        return [self._line(f"{place.text} = {result.text};", node)]


_AUGMENTED: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "/",
    ast.Mod: "%",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def _outdented(line: Line) -> Line:
    return Line(line.text[4:], line.file, line.number)


def _always_returns(body: list[ast.stmt]) -> bool:
    """Whether every path through ``body`` ends in a ``return``."""
    for node in body:
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.If) and node.orelse and _always_returns(node.body) and _always_returns(node.orelse):
            return True
        forever = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value is True
        if forever and not any(isinstance(part, ast.Break) for part in ast.walk(node)):
            return True
    return False
