"""Which definitions of a host program's variables reach a node, and what its captured names mean.

A captured name is a name that the program takes from the enclosing Python scope.
Computes: for each node the variables whose value is known there, each as an expression that has the same value at that
node (available copies); whether a name can hold anything but a number; which names may be views of a host array that
may be written later.
Guarantees: the incoming value of a parameter is a definition of it, and so is each node that writes it. A variable has
a known value at a node only if every path to the node passes the same assignment, and neither the variable nor anything
that the assigned expression mentions has been written since. A captured name counts as a constant only if its object
cannot change, and if no variable of the program has the same name.
Reference: Aho, Lam, Sethi, Ullman, *Compilers*, §9.1.5 (copy propagation), §9.2.6 (available expressions).
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping
from types import BuiltinFunctionType
from typing import Any, TypeAlias, cast

from ...dsl import types as t
from ...dsl.host_cfg import HostCfg
from ...dsl.host_language import HostArray
from ...dsl.host_nodes import Assign, Expression, HostCall, LoopNext, Node, Read
from ...dsl.host_program import HostProgram
from ...dsl.host_values import callable_namespace, is_number

__all__ = ["HostDefinitions", "Values", "plain", "values_before"]

#: By name of a variable: an expression with the same value.
Values: TypeAlias = "dict[str, Expression]"

#: Functions that return one number for all arguments.
_TO_NUMBER = frozenset(["int", "float", "bool", "len"])
#: Functions that return one number if each argument is a number.
_OF_NUMBERS = frozenset(["min", "max", "abs", "round"])
_ARRAY_NUMBERS = frozenset(["size", "ndim", "nbytes", "itemsize"])


class HostDefinitions:
    """Definitions of the variables of one program. Edits of the program must not add or remove definitions. Fusion
    moves, adds and removes launches only."""

    def __init__(self, program: HostProgram) -> None:
        #: By variable: the nodes that write it.
        self._writers: dict[str, list[Node]] = {}
        for node in program.nodes():
            for name in node.defines:
                self._writers.setdefault(name, []).append(node)
        self._params = {param.name: param.type for param in program.params}
        self._captured = {name: plain(value) for name, value in program.namespace.items() if not self.is_variable(name)}
        fixed = {name: value for name, value in self._captured.items() if _is_fixed(value)}
        #: The names that `eval` may use: only objects that cannot change.
        self.namespace: dict[str, Any] = {"__builtins__": {}, **callable_namespace(fixed)}
        #: Captured numbers by name.
        self.constants: dict[str, int | float] = {
            name: value
            for name, value in fixed.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        #: The latest graph, and the values that are known before each of its nodes.
        self._latest: tuple[HostCfg, dict[Node, Values]] | None = None
        #: By variable: the host arrays that it may be a view of.
        self._views = self._possible_views()

    def is_variable(self, name: str) -> bool:
        """Whether the name is a parameter or is written by the program."""
        return name in self._params or name in self._writers

    def is_trackable(self, name: str) -> bool:
        """Whether the value can change only at a node that defines the name."""
        return self.is_variable(name) or name in self.namespace

    def is_builtin(self, name: str) -> bool:
        """Whether the name refers to Python's builtin function."""
        own = getattr(builtins, name)
        return not self.is_variable(name) and self._captured.get(name, own) is own

    def before(self, node: Node, cfg: HostCfg) -> Mapping[str, Expression]:
        """The known values just before ``node`` of a graph of the program; none if the node is not reachable."""
        if self._latest is None or self._latest[0] is not cfg:
            self._latest = cfg, values_before(cfg, self)
        return self._latest[1].get(node, {})

    def tuple_of(self, name: str) -> tuple[object, ...] | None:
        """The tuple that a captured name refers to; None for every other name."""
        value = self._captured.get(name)
        return cast("tuple[object, ...]", value) if isinstance(value, tuple) and name in self.namespace else None

    def is_changed_by_call(self, names: frozenset[str]) -> bool:
        """Whether a call of a Python function may change the value of one of the names without a definition."""
        return any(not self.is_trackable(name) for name in names)

    def viewed_arrays(self, names: frozenset[str]) -> frozenset[str]:
        """The host arrays that one of the names may be a view of. NumPy returns views for rows and for records."""
        return frozenset[str]().union(*(self._views.get(name, frozenset()) for name in names))

    def _possible_views(self) -> dict[str, frozenset[str]]:
        views: dict[str, frozenset[str]] = {}
        changed = True
        while changed:
            changed = False
            for name, writers in self._writers.items():
                viewed = views.get(name, frozenset[str]())
                for node in writers:
                    if isinstance(node, Assign):
                        sources = [value for value in node.values if isinstance(node, HostCall) or _is_part(value)]
                        names = frozenset[str]().union(*(value.names for value in sources))
                        arrays = {each for each in names if isinstance(self._params.get(each), HostArray)}
                        viewed |= (arrays | self._zeros(names)).union(*(views.get(each, frozenset()) for each in names))
                if viewed != views.get(name, frozenset()):
                    views[name], changed = viewed, True
        return views

    def _zeros(self, names: frozenset[str]) -> frozenset[str]:
        """The names whose value comes from ``zeros`` or from an unknown function."""
        made = {
            name
            for name in names
            for node in self._writers.get(name, ())
            if isinstance(node, HostCall) or (isinstance(node, Assign) and any("zeros" in v.names for v in node.values))
        }
        return frozenset(made)

    # --- numbers and tuples --------------------------------------------------------------------------------------

    def is_number(self, expression: Expression) -> bool:
        """Whether the value is one number in every run. A tuple or an array would be several extents."""
        return self._is_number(ast.parse(expression.text, mode="eval").body, set())

    def _is_number(self, tree: ast.expr, assumed: set[str]) -> bool:
        match tree:
            case ast.Constant():
                return isinstance(tree.value, int | float)
            case ast.Name():
                return self._holds_number(tree.id, assumed)
            case ast.UnaryOp():
                return self._is_number(tree.operand, assumed)
            case ast.BinOp():
                return self._is_number(tree.left, assumed) and self._is_number(tree.right, assumed)
            case ast.IfExp():
                return self._is_number(tree.body, assumed) and self._is_number(tree.orelse, assumed)
            case ast.BoolOp():
                return all(self._is_number(value, assumed) for value in tree.values)
            case ast.Compare():
                return all(self._is_number(part, assumed) for part in (tree.left, *tree.comparators))
            case ast.Call(func=ast.Name(id=name)):
                return self._gives_number(name, tree, assumed)
            case ast.Attribute(value=ast.Name(id=name)):
                return tree.attr in _ARRAY_NUMBERS and isinstance(self._params.get(name), HostArray)
            case ast.Subscript():
                return self._is_element(tree, assumed)
            case _:
                return False

    def _holds_number(self, name: str, assumed: set[str]) -> bool:
        """Whether each definition of the name gives a number. ``assumed`` are the names that are being decided."""
        if not self.is_variable(name):
            return name in self.constants
        if name in assumed:
            return True
        if isinstance(self._params.get(name), HostArray):
            return False
        assumed = {*assumed, name}
        return all(self._defines_number(name, node, assumed) for node in self._writers.get(name, ()))

    def _defines_number(self, name: str, node: Node, assumed: set[str]) -> bool:
        if isinstance(node, LoopNext | Read):
            return True
        if not isinstance(node, Assign) or isinstance(node, HostCall) or len(node.targets) != len(node.values):
            return False
        values = [value for target, value in zip(node.targets, node.values, strict=True) if target.text == name]
        return bool(values) and all(self._is_number(ast.parse(v.text, mode="eval").body, assumed) for v in values)

    def _gives_number(self, name: str, call: ast.Call, assumed: set[str]) -> bool:
        if isinstance(self._captured.get(name), t.Scalar):
            return True
        if name in _TO_NUMBER:
            return self.is_builtin(name)
        are_numbers = len(call.args) > (name in ("min", "max")) and all(self._is_number(a, assumed) for a in call.args)
        return name in _OF_NUMBERS and self.is_builtin(name) and are_numbers

    def _is_element(self, tree: ast.Subscript, assumed: set[str]) -> bool:
        """Whether it is an element of an array's shape, or of a captured tuple."""
        if isinstance(tree.slice, ast.Slice | ast.Tuple) or not self._is_number(tree.slice, assumed):
            return False
        match tree.value:
            case ast.Attribute(value=ast.Name(id=name), attr="shape"):
                return isinstance(self._params.get(name), HostArray)
            case ast.Name(id=name):
                elements = self.tuple_of(name)
                return elements is not None and all(is_number(each) for each in elements)
            case _:
                return False


def values_before(cfg: HostCfg, definitions: HostDefinitions) -> dict[Node, Values]:
    """For each reachable node, the values that are known before it on every path."""
    before: dict[Node, Values] = {cfg.entry: {}}
    order = cfg.reverse_postorder()
    changed = True
    while changed:
        changed = False
        for node in order:
            if node not in before:
                continue
            after = _after(node, before[node], definitions)
            for edge in cfg.succs(node):
                old = before.get(edge.target)
                new = after if old is None else {name: value for name, value in old.items() if after.get(name) == value}
                if new != old:
                    before[edge.target] = new
                    changed = True
    return before


def _after(node: Node, before: Values, definitions: HostDefinitions) -> Values:
    """The values that are known after ``node``."""
    written = node.defines
    after = {name: value for name, value in before.items() if name not in written and not value.names & written}
    if isinstance(node, Assign) and not isinstance(node, HostCall) and len(node.targets) == len(node.values):
        targets = [target.text for target in node.targets]
        for target, value in zip(node.targets, node.values, strict=True):
            is_only_write = target.is_name and targets.count(target.text) == 1 and not value.names & written
            if is_only_write and all(definitions.is_trackable(name) for name in value.names):
                after[target.text] = value
    return after


def _is_fixed(value: object) -> bool:
    """Whether the object can never change, and a call of it always returns the same value for the same arguments."""
    if isinstance(value, tuple):
        return all(_is_fixed(part) for part in cast("tuple[object, ...]", value))
    if value is None or isinstance(value, int | float | str | t.Scalar | BuiltinFunctionType):
        return True
    return any(value is each for each in (math, int, float, bool, range))


def _is_part(value: Expression) -> bool:
    """Whether the value may be a view of an array. The result of arithmetic never is."""
    tree = ast.parse(value.text, mode="eval").body
    return isinstance(tree, ast.Name | ast.Subscript | ast.Attribute | ast.IfExp | ast.BoolOp)


def plain(value: Any) -> object:
    """A NumPy scalar as a Python number; other values unchanged."""
    return value.item() if type(value).__module__ == "numpy" and value.shape == () else value
