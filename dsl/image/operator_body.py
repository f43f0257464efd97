"""From the Python source of an operator to a device function of the kernel language.

`read_operator` checks a function once: loops over masks and domains become copies of their bodies, `here()` becomes the
coordinates, and every read of a window must have an offset that is known to lie in the window. `OperatorBody.bind` then
makes the device function for given load functions; it is called once for each region of a kernel. The function has the
parameters ``(x, y)``, the parameters that its load functions take, and the numbers of the operator. Its statements keep
the lines of the user's file.

Refuses, with `DslError` at the user's line: offsets that are not built from constants and loops over constant ranges,
offsets outside of the window, windows that are used for anything but reading, `break` and `continue` of a loop over a
mask.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from .. import types as t
from ..errors import DslError, FunctionSource
from ..functions import DeviceFunction, GeneratedFunction, Param
from ..language import unroll
from ..scope import Scope
from .offset_ranges import OffsetRanges, Range
from .windows import Domain, Mask, WindowExtent, WindowType, here, pixel_type

#: The most steps of loops that are unrolled.
MOST_UNROLLED = 64

__all__ = ["MOST_UNROLLED", "Centre", "PixelFunction", "OperatorBody", "OperatorParam", "RowOf", "read_operator"]


@dataclass(frozen=True, slots=True)
class OperatorParam:
    """A parameter of an operator: a window, or a number, which may be a pixel. ``pixel`` is the type of the number, or
    of the pixels of the window."""

    name: str
    pixel: t.Scalar | t.Struct
    is_window: bool


@dataclass(frozen=True, slots=True)
class PixelFunction:
    """A device function ``(x, y, *params) -> pixel``, which gives a pixel of an image."""

    function: DeviceFunction
    params: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Centre:
    """The pixel at the centre of a window, along one axis: ``at * numerator // denominator + offset`` for the
    coordinate ``at`` of the result."""

    numerator: int = 1
    denominator: int = 1
    offset: int = 0

    def __call__(self, at: int) -> int:
        return at * self.numerator // self.denominator + self.offset

    def text(self, at: str) -> str:
        """The same as an expression of the kernel language, for a coordinate that is not negative."""
        text = at if self.numerator == 1 else f"{at} * {self.numerator}"
        text = text if self.denominator == 1 else f"{text} // {self.denominator}"
        sign = "-" if self.offset < 0 else "+"
        return f"{text} {sign} {abs(self.offset)}" if self.offset else text


#: Gives the parameter whose value a centre along y may be computed from in place of the row: another row with the same
#: centre. None if there is none.
RowOf: TypeAlias = "Callable[[Centre], Param | None]"


@dataclass(frozen=True, slots=True)
class OperatorBody:
    """A checked operator. ``tree`` has no loops over masks any more; ``source`` is the source before that.

    ``names`` maps names of the tree to objects, such as the weights of masks that are indexed in loops. The other names
    are those that ``function`` captures. ``extents`` maps each window to how far it is read. ``x`` and ``y`` are the
    names of the coordinates in the tree."""

    source: FunctionSource
    function: Callable[..., Any] | None
    names: Mapping[str, object]
    params: tuple[OperatorParam, ...]
    result: t.Scalar | t.Struct
    tree: ast.FunctionDef
    extents: Mapping[str, WindowExtent]
    x: str
    y: str

    @property
    def windows(self) -> tuple[OperatorParam, ...]:
        """The parameters that are windows."""
        return tuple(param for param in self.params if param.is_window)

    def bind(
        self,
        name: str,
        loads: Mapping[str, PixelFunction],
        centres: Mapping[str, tuple[Centre, Centre]],
        *,
        unrolled: bool = False,
        rows: RowOf | None = None,
    ) -> tuple[GeneratedFunction, tuple[Param, ...]]:
        """The device function called ``name`` that reads its windows by ``loads``, and the parameters that it takes
        between ``(x, y)`` and the numbers. ``unrolled``: nvcc has to unroll loops of few steps. ``rows``: gives
        parameters that take the place of ``y`` (`RowOf`)."""
        tree = _copied(self.tree)
        tree.name = name
        names: dict[str, object] = dict(self.names)
        # The coordinates are not in the tree if the operator does not mention them.
        fresh = _Fresh(tree, self.x, self.y)
        if unrolled:
            names[word := fresh("unroll")] = unroll
            _Unroll(word).visit(tree)
        reads: dict[str, _Read] = {}
        #: By name of a parameter of load functions: the parameter, and its name in this function.
        taken: dict[str, tuple[Param, str]] = {}
        prologue: list[ast.stmt] = []
        for param in self.windows:
            load = loads[param.name]
            for each in load.params:
                if each.name not in taken:
                    taken[each.name] = each, fresh(each.name)
            called = fresh(load.function.name)
            names[called] = load.function
            centre_names: list[str] = []
            row = rows(centres[param.name][1]) if rows is not None else None
            if row is not None and row.name not in taken:
                taken[row.name] = row, fresh(row.name)
            below = taken[row.name][1] if row is not None else self.y
            for axis, at, centre in zip("xy", (self.x, below), centres[param.name], strict=True):
                centre_names.append(at)
                if centre != Centre():
                    centre_names[-1] = fresh(f"{param.name}_{axis}")
                    text = f"{centre_names[-1]} = {centre.text(at)}"
                    prologue.append(ast.copy_location(ast.parse(text).body[0], tree))
            arguments = [taken[each.name][1] for each in load.params]
            reads[param.name] = _Read(called, (centre_names[0], centre_names[1]), tuple(arguments))
        tree.body = [*prologue, *tree.body]
        _Bind(reads).visit(tree)
        numbers = [argument for argument in tree.args.args if argument.arg not in loads]
        tree.args.args = [
            _argument(self.x, t.I32, names, fresh, tree),
            _argument(self.y, t.I32, names, fresh, tree),
            *(_argument(local, each.type, names, fresh, tree) for each, local in taken.values()),
            *numbers,
        ]
        ast.fix_missing_locations(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.expr) and getattr(node, "lineno", 0) == 0:
                ast.copy_location(node, tree)
        source = FunctionSource(self.source.file, self.source.first_line, self.source.lines, self.source.indent, tree)
        made = GeneratedFunction(source, names, inline=True, function=self.function)
        return made, tuple(each for each, _ in taken.values())


_Tree = TypeVar("_Tree", bound=ast.AST)


def _copied(tree: _Tree) -> _Tree:
    """A copy of a tree. It takes a fraction of the time of ``copy.deepcopy``, which keeps a table of all objects."""
    made = type(tree)()
    for name, value in vars(tree).items():
        if isinstance(value, list):
            parts = cast("list[object]", value)
            setattr(made, name, [_copied(each) if isinstance(each, ast.AST) else each for each in parts])
        else:
            setattr(made, name, _copied(value) if isinstance(value, ast.AST) else value)
    return made


@dataclass(frozen=True, slots=True)
class _Read:
    """How a window is read: the name of the load function, of the coordinates of the centre, of further arguments."""

    called: str
    centre: tuple[str, str]
    arguments: tuple[str, ...]


class _Bind(ast.NodeTransformer):
    """Replaces reads of windows by calls of load functions."""

    def __init__(self, reads: Mapping[str, _Read]) -> None:
        self.reads = reads

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        read = self.reads.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if read is None or not isinstance(node.slice, ast.Tuple):
            return node
        places = [_sum(at, offset) for at, offset in zip(read.centre, node.slice.elts, strict=True)]
        arguments = [ast.Name(each, ast.Load()) for each in read.arguments]
        call = ast.Call(ast.Name(read.called, ast.Load()), [*places, *arguments], [])
        for part in ast.walk(call):
            if not hasattr(part, "lineno"):
                _place(part, node)
        return call


class _Unroll(ast.NodeTransformer):
    """Marks loops over constant ranges of at most `MOST_UNROLLED` steps, which loops within multiply. ``word`` is the
    name of `unroll`."""

    def __init__(self, word: str) -> None:
        self.word = word

    def visit_For(self, node: ast.For) -> ast.AST:
        steps = _steps(node)
        if steps is None or steps > MOST_UNROLLED:
            return node
        for each in ast.walk(node):
            if isinstance(each, ast.For):
                each.iter = ast.copy_location(ast.Call(ast.Name(self.word, ast.Load()), [each.iter], []), each.iter)
                _place(each.iter.func, node)
        return node


def _steps(node: ast.For) -> int | None:
    """The steps of a loop over a constant range, with those of the loops in it. None if a range is not constant."""
    call = node.iter
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
        return None
    bounds = [bound for each in call.args if (bound := _constant(each)) is not None]
    if len(bounds) != len(call.args) or (len(bounds) == 3 and bounds[2] == 0):
        return None
    most = 1
    for each in node.body:
        for inner in ast.walk(each):
            if isinstance(inner, ast.While):
                return None
            if isinstance(inner, ast.For):
                steps = _steps(inner)
                if steps is None:
                    return None
                most = max(most, steps)
    return len(range(*bounds)) * most


def _sum(at: str, offset: ast.expr) -> ast.expr:
    centre = ast.Name(at, ast.Load())
    if isinstance(offset, ast.Constant) and isinstance(offset.value, int):
        if offset.value == 0:
            return centre
        operator = ast.Sub() if offset.value < 0 else ast.Add()
        return ast.BinOp(centre, operator, ast.Constant(abs(offset.value)))
    return ast.BinOp(centre, ast.Add(), offset)


def _argument(
    name: str, type: t.Type, names: dict[str, object], fresh: Callable[[str], str], tree: ast.FunctionDef
) -> ast.arg:
    spelled = fresh(f"type_of_{name}")
    names[spelled] = type
    made = ast.arg(name, ast.Name(spelled, ast.Load()))
    for part in ast.walk(made):
        _place(part, tree)
    return made


def _place(node: ast.AST, at: ast.AST) -> ast.AST:
    """Give ``node`` the place of ``at``. It gets no end, because the source does not contain it."""
    ast.copy_location(node, at)
    if isinstance(node, ast.expr):
        node.end_lineno = None
    return node


class _Fresh:
    """Makes names that a function does not mention, other than ``taken``."""

    def __init__(self, tree: ast.FunctionDef, *taken: str) -> None:
        self.taken = {*taken, *_names_in(tree)}

    def __call__(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _names_in(tree: ast.FunctionDef) -> set[str]:
    """The names that a function mentions."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


# --- checks -------------------------------------------------------------------------------------------------------


def read_operator(
    source: FunctionSource,
    scope: Scope,
    windows: Sequence[Mask | Domain],
    function: Callable[..., Any] | None = None,
    names: Mapping[str, object] | None = None,
) -> OperatorBody:
    """Check the function of an operator. ``windows`` are what its windows may read: one for all of them, or one for
    each. ``function`` or ``names`` is what ``scope`` was made from. Raises `DslError`."""
    params, result = _signature(source, scope)
    window_params = [param for param in params if param.is_window]
    if len(windows) not in (1, len(window_params)) and window_params:
        message = f"{len(windows)} windows are declared, but the operator has {len(window_params)} Window parameters"
        raise source.error(message, source.tree)
    by_name = {param.name: windows[at if len(windows) > 1 else 0] for at, param in enumerate(window_params)}
    tree = _copied(source.tree)
    tree.decorator_list = []
    fresh = _Fresh(tree)
    expand = _Expand(source, scope, tree, fresh)
    tree.body = expand.body(tree.body)
    all_names = {**(names or {}), **expand.tables}
    ranges = OffsetRanges(tree, scope)
    extents = _check_reads(source, tree, by_name, ranges)
    expand.check_tables(ranges)
    return OperatorBody(source, function, all_names, params, result, tree, extents, expand.x, expand.y)


def _signature(source: FunctionSource, scope: Scope) -> tuple[tuple[OperatorParam, ...], t.Scalar | t.Struct]:
    arguments = source.tree.args
    for extra in (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.defaults):
        if extra is not None:
            raise source.error("an operator has plain parameters only, without default values", extra)
    params: list[OperatorParam] = []
    for argument in (*arguments.posonlyargs, *arguments.args):
        if argument.annotation is None:
            raise source.error(f"parameter {argument.arg} needs a type, such as Window[f32] or f32", argument)
        value = scope.annotation(argument.annotation, source, argument.arg)
        if isinstance(value, WindowType):
            params.append(OperatorParam(argument.arg, value.pixel, True))
        else:
            params.append(OperatorParam(argument.arg, _pixel(value, source, argument.annotation), False))
    returns = source.tree.returns
    if returns is None:
        raise source.error(f"{source.tree.name} needs the type of its result, as in `-> f32`", source.tree)
    return tuple(params), _pixel(scope.annotation(returns, source, "return"), source, returns)


def _pixel(value: object, source: FunctionSource, node: ast.expr) -> t.Scalar | t.Struct:
    try:
        return pixel_type(value)
    except DslError as why:
        raise source.error(why.message, node) from None


def _check_reads(
    source: FunctionSource, tree: ast.FunctionDef, windows: Mapping[str, Mask | Domain], ranges: OffsetRanges
) -> dict[str, WindowExtent]:
    """How far each window is read. Raises `DslError` for a read outside of a window, and other uses of windows."""
    extents = {name: WindowExtent() for name in windows}
    reads: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id not in windows:
            continue
        name = node.value.id
        reads.add(id(node.value))
        if not isinstance(node.ctx, ast.Load):
            raise source.error(f"{name} is a window, which cannot be written: return the new pixel", node)
        if not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
            raise source.error(f"a window is read as {name}[dx, dy]", node)
        extents[name] |= _extent_of_read(source, node, node.slice.elts, windows[name], ranges)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in windows and id(node) not in reads:
            raise source.error(f"{node.id} is a window, which can only be read as {node.id}[dx, dy]", node)
    return extents


def _extent_of_read(
    source: FunctionSource, node: ast.Subscript, offsets: list[ast.expr], window: Mask | Domain, ranges: OffsetRanges
) -> WindowExtent:
    xs, ys = (_known(source, each, ranges) for each in offsets)
    extent = window.extent
    inside = -extent.left <= xs.low and xs.high <= extent.right and -extent.up <= ys.low and ys.high <= extent.down
    is_one = xs.low == xs.high and ys.low == ys.high
    if isinstance(window, Domain) and is_one:
        inside = inside and (xs.low, ys.low) in window
    if not inside:
        shown = f"({xs}, {ys})"
        width, height = extent.size
        what = f"{width} x {height} pixels"
        if isinstance(window, Domain) and len(window.offsets) < width * height:
            what = f"{len(window.offsets)} offsets"
        raise source.error(f"the offset {shown} is outside of the window of {what}", node)
    return WindowExtent(max(0, -xs.low), max(0, xs.high), max(0, -ys.low), max(0, ys.high))


def _known(source: FunctionSource, node: ast.expr, ranges: OffsetRanges) -> Range:
    found = ranges.of(node)
    if found is None:
        message = (
            f"`{ast.unparse(node)}` is not known to lie within the window: build offsets from constants and from the "
            "variables of loops over range(...) with constant bounds"
        )
        raise source.error(message, node)
    return found


class _Expand:
    """Replaces loops over masks and domains, weights of masks, and `here()`."""

    def __init__(self, source: FunctionSource, scope: Scope, tree: ast.FunctionDef, fresh: _Fresh) -> None:
        self.source = source
        self.scope = scope
        self.fresh = fresh
        self.locals = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.locals |= {argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)}
        self.x, self.y = fresh("x"), fresh("y")
        #: By name in the tree: the weights of a mask.
        self.tables: dict[str, object] = {}
        #: By id of a mask: the name of its weights.
        self._names: dict[int, str] = {}
        self._indexed: list[tuple[Mask, ast.Subscript, list[ast.expr]]] = []

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [made for statement in statements for made in self._statement(statement)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.For):
            iterated = self.scope.resolve(node.iter, self.locals)
            if isinstance(iterated, Mask | Domain):
                return self._unrolled(node, iterated)
            if isinstance(node.target, ast.Tuple):
                raise self.source.error(f"`{ast.unparse(node.iter)}` is neither a Mask nor a Domain", node.iter)
        if isinstance(node, ast.If | ast.For | ast.While):
            node.body, node.orelse = self.body(node.body), self.body(node.orelse)
            self._expressions(node)
            return [node]
        if isinstance(node, ast.Assign) and self._is_here(node.value):
            node.value = self._coordinates(node.value)
        self._expressions(node)
        return [node]

    def _expressions(self, node: ast.stmt) -> None:
        """Replace in the expressions of a statement, but not in the statements in it."""
        replace = _Weights(self)
        if isinstance(node, ast.Assign):
            node.targets = [replace.visit(each) for each in node.targets]
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, replace.visit(value))

    def _is_here(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.scope.resolve(node.func, self.locals) is here

    def _coordinates(self, node: ast.expr) -> ast.expr:
        assert isinstance(node, ast.Call)
        if node.args or node.keywords:
            raise self.source.error("here() takes no arguments", node)
        made = ast.Tuple([ast.Name(self.x, ast.Load()), ast.Name(self.y, ast.Load())], ast.Load())
        for part in ast.walk(made):
            _place(part, node)
        return made

    def check_call(self, node: ast.Call) -> None:
        if self._is_here(node):
            raise self.source.error("write `x, y = here()`", node)

    # --- loops -------------------------------------------------------------------------------------------------

    def _unrolled(self, node: ast.For, iterated: Mask | Domain) -> list[ast.stmt]:
        names = self._targets(node, iterated)
        if node.orelse:
            raise self.source.error("a loop over a mask or a domain has no `else`", node.orelse[0])
        self._check_jumps(node.body)
        for part in node.body:
            for name in ast.walk(part):
                if isinstance(name, ast.Name) and name.id in names and not isinstance(name.ctx, ast.Load):
                    raise self.source.error(f"{name.id} is a constant in this loop and cannot be assigned", name)
        out: list[ast.stmt] = []
        for values in iterated:
            constants = dict(zip(names, values, strict=True))
            for statement in node.body:
                made = _Substitute(constants).visit(_copied(statement))
                out += self._statement(made)
        return out

    def _targets(self, node: ast.For, iterated: Mask | Domain) -> list[str]:
        count = 3 if isinstance(iterated, Mask) else 2
        form = "dx, dy, weight" if isinstance(iterated, Mask) else "dx, dy"
        parts = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [part.id for part in parts if isinstance(part, ast.Name)]
        if len(names) != count or len(parts) != count:
            raise self.source.error(f"write `for {form} in {ast.unparse(node.iter)}:`", node.target)
        if len(set(names)) < count and any(names.count(name) > 1 and name != "_" for name in names):
            raise self.source.error("a name occurs twice", node.target)
        return names

    def _check_jumps(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Break | ast.Continue):
                word = type(node).__name__.lower()
                raise self.source.error(f"a loop over a mask or a domain is unrolled and has no `{word}`", node)
            if isinstance(node, ast.If):
                self._check_jumps(node.body)
                self._check_jumps(node.orelse)
            if isinstance(node, ast.For) and isinstance(self.scope.resolve(node.iter, self.locals), Mask | Domain):
                self._check_jumps(node.body)

    # --- weights -----------------------------------------------------------------------------------------------

    def weight(self, mask: Mask, node: ast.Subscript) -> ast.expr:
        """A weight of a mask: a constant if the offset is constant, otherwise an element of a table."""
        if not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
            raise self.source.error("a mask is indexed as MASK[dx, dy]", node)
        offsets = node.slice.elts
        constants = [_constant(each) for each in offsets]
        if constants[0] is not None and constants[1] is not None:
            try:
                return ast.Constant(mask[constants[0], constants[1]])
            except IndexError as why:
                raise self.source.error(str(why), node) from None
        name = self._names.get(id(mask))
        if name is None:
            self._names[id(mask)] = name = self.fresh(ast.unparse(node.value).replace(".", "_") + "_weights")
            self.tables[name] = mask.array
        self._indexed.append((mask, node, offsets))
        places = [_shifted(each, by) for each, by in zip(reversed(offsets), reversed(mask.origin), strict=True)]
        return ast.Subscript(ast.Name(name, ast.Load()), ast.Tuple(places, ast.Load()), ast.Load())

    def check_tables(self, ranges: OffsetRanges) -> None:
        """Raise `DslError` for an offset that may be outside of its mask."""
        for mask, node, offsets in self._indexed:
            _extent_of_read(self.source, node, offsets, mask, ranges)


class _Substitute(ast.NodeTransformer):
    """Replaces names by constants."""

    def __init__(self, constants: Mapping[str, object]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.constants or node.id == "_":
            return node
        value: Any = self.constants[node.id]
        return _place(ast.Constant(value), node)


class _Weights(ast.NodeTransformer):
    """Replaces the weights of masks in an expression."""

    def __init__(self, expand: _Expand) -> None:
        self.expand = expand

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        mask = self.expand.scope.resolve(node.value, self.expand.locals)
        if not isinstance(mask, Mask):
            return node
        if not isinstance(node.ctx, ast.Load):
            raise self.expand.source.error("the weights of a mask cannot be changed", node)
        made = self.expand.weight(mask, node)
        for part in ast.walk(made):
            if not hasattr(part, "lineno"):
                _place(part, node)
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.expand.check_call(node)
        return self.generic_visit(node)


def _constant(node: ast.expr) -> int | None:
    """The value of an integer literal, also with a sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _shifted(node: ast.expr, by: int) -> ast.expr:
    return node if by == 0 else ast.BinOp(node, ast.Add(), ast.Constant(by))
