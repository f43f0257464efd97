"""Which definitions of a host program's variables reach a node, and what the names of its surroundings stand for.

Computes: for each node the names of which the value is known there, as an expression that has the same value when it is
evaluated there (available copies); whether a name can hold anything but a number; which names show parts of a host
array that may be written later.
Guarantees: the incoming value of a parameter is a definition of it, as is each node that writes it. A name has a known
value at a node only where one assignment has been passed on every way there, and neither the name nor anything that the
assigned expression mentions has been written since. A name of the surroundings counts as a constant only where its
object cannot change, and where no variable of the program hides it.
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

#: A name, and an expression that has its value.
Values: TypeAlias = "dict[str, Expression]"

#: Functions of a program's expressions that give one number, whatever they are given.
_TO_NUMBER = frozenset(["int", "float", "bool", "len"])
#: Functions that give one number where each argument is one.
_OF_NUMBERS = frozenset(["min", "max", "abs", "round"])
_ARRAY_NUMBERS = frozenset(["size", "ndim", "nbytes", "itemsize"])


class HostDefinitions:
    """Definitions of the variables of one program. The program may be edited as long as no edit adds or removes a
    definition: fusion moves, adds and removes launches only."""

    def __init__(self, program: HostProgram) -> None:
        self._writers: dict[str, list[Node]] = {}
        for node in program.nodes():
            for name in node.defines:
                self._writers.setdefault(name, []).append(node)
        self._params = {param.name: param.type for param in program.params}
        self._surroundings = {
            name: plain(value) for name, value in program.namespace.items() if not self.is_variable(name)
        }
        fixed = {name: value for name, value in self._surroundings.items() if _is_fixed(value)}
        #: What `eval` may see: only objects that cannot change.
        self.namespace: dict[str, Any] = {"__builtins__": {}, **callable_namespace(fixed)}
        #: Numbers of the surroundings, by name.
        self.constants: dict[str, int | float] = {
            name: value
            for name, value in fixed.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._known: tuple[HostCfg, dict[Node, Values]] | None = None
        self._shown = self._arrays_shown()

    def is_variable(self, name: str) -> bool:
        """Whether the name is a parameter, or something in the program writes it."""
        return name in self._params or name in self._writers

    def is_trackable(self, name: str) -> bool:
        """Whether the value can change only at a node that defines the name."""
        return self.is_variable(name) or name in self.namespace

    def is_builtin(self, name: str) -> bool:
        """Whether a mention of the name means Python's own function."""
        own = getattr(builtins, name)
        return not self.is_variable(name) and self._surroundings.get(name, own) is own

    def before(self, node: Node, cfg: HostCfg) -> Mapping[str, Expression]:
        """The known values just before ``node`` of a graph of the program; none where it cannot be reached."""
        if self._known is None or self._known[0] is not cfg:
            self._known = cfg, values_before(cfg, self)
        return self._known[1].get(node, {})

    def tuple_of(self, name: str) -> tuple[object, ...] | None:
        """The tuple that a name of the surroundings stands for; None for every other name."""
        found = self._surroundings.get(name)
        return cast("tuple[object, ...]", found) if isinstance(found, tuple) and name in self.namespace else None

    def is_changed_by_call(self, names: frozenset[str]) -> bool:
        """Whether a call of a Python function may change what one of the names holds, other than by a definition."""
        return any(not self.is_trackable(name) for name in names)

    def arrays_shown(self, names: frozenset[str]) -> frozenset[str]:
        """The host arrays of which one of the names may show a part: NumPy gives views of rows and of records."""
        return frozenset[str]().union(*(self._shown.get(name, frozenset()) for name in names))

    def _arrays_shown(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        changed = True
        while changed:
            changed = False
            for name, writers in self._writers.items():
                shown = found.get(name, frozenset[str]())
                for node in writers:
                    if isinstance(node, Assign):
                        sources = [value for value in node.values if isinstance(node, HostCall) or _is_part(value)]
                        names = frozenset[str]().union(*(value.names for value in sources))
                        arrays = {each for each in names if isinstance(self._params.get(each), HostArray)}
                        shown |= (arrays | self._zeros(names)).union(*(found.get(each, frozenset()) for each in names))
                if shown != found.get(name, frozenset()):
                    found[name], changed = shown, True
        return found

    def _zeros(self, names: frozenset[str]) -> frozenset[str]:
        """Those of the names that were made by ``zeros``, or by a call that is not known."""
        made = {
            name
            for name in names
            for node in self._writers.get(name, ())
            if isinstance(node, HostCall) or (isinstance(node, Assign) and any("zeros" in v.names for v in node.values))
        }
        return frozenset(made)

    # --- numbers and tuples --------------------------------------------------------------------------------------

    def is_number(self, expression: Expression) -> bool:
        """Whether the value is one number in every run; a tuple or an array would be several extents."""
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
        """Whether each definition of the name gives a number. ``assumed`` are names for which this is being decided."""
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
        if isinstance(self._surroundings.get(name), t.Scalar):
            return True
        if name in _TO_NUMBER:
            return self.is_builtin(name)
        are_numbers = len(call.args) > (name in ("min", "max")) and all(self._is_number(a, assumed) for a in call.args)
        return name in _OF_NUMBERS and self.is_builtin(name) and are_numbers

    def _is_element(self, tree: ast.Subscript, assumed: set[str]) -> bool:
        """An element of an array's shape, or of a tuple of the surroundings."""
        if isinstance(tree.slice, ast.Slice | ast.Tuple) or not self._is_number(tree.slice, assumed):
            return False
        match tree.value:
            case ast.Attribute(value=ast.Name(id=name), attr="shape"):
                return isinstance(self._params.get(name), HostArray)
            case ast.Name(id=name):
                found = self.tuple_of(name)
                return found is not None and all(is_number(each) for each in found)
            case _:
                return False


def values_before(cfg: HostCfg, definitions: HostDefinitions) -> dict[Node, Values]:
    """For each node that can be reached the values that are known before it, whatever way leads there."""
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
                known = before.get(edge.target)
                met = after if known is None else {name: e for name, e in known.items() if after.get(name) == e}
                if met != known:
                    before[edge.target] = met
                    changed = True
    return before


def _after(node: Node, before: Values, definitions: HostDefinitions) -> Values:
    """The values that are known behind ``node``."""
    written = node.defines
    kept = {name: value for name, value in before.items() if name not in written and not value.names & written}
    if isinstance(node, Assign) and not isinstance(node, HostCall) and len(node.targets) == len(node.values):
        targets = [target.text for target in node.targets]
        for target, value in zip(node.targets, node.values, strict=True):
            is_last_word = target.is_name and targets.count(target.text) == 1 and not value.names & written
            if is_last_word and all(definitions.is_trackable(name) for name in value.names):
                kept[target.text] = value
    return kept


def _is_fixed(value: object) -> bool:
    """Whether the object can never change, nor what a call of it gives for the same arguments."""
    if isinstance(value, tuple):
        return all(_is_fixed(part) for part in cast("tuple[object, ...]", value))
    if value is None or isinstance(value, int | float | str | t.Scalar | BuiltinFunctionType):
        return True
    return any(value is each for each in (math, int, float, bool, range))


def _is_part(value: Expression) -> bool:
    """Whether the value may be a part of an array itself, as arithmetic never gives one."""
    tree = ast.parse(value.text, mode="eval").body
    return isinstance(tree, ast.Name | ast.Subscript | ast.Attribute | ast.IfExp | ast.BoolOp)


def plain(value: Any) -> object:
    """A NumPy scalar as the Python number of its value; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and value.shape == () else value
