"""Finds the object that a name in a function's source refers to, as Python does: closure, module, builtins.

Guarantees: names are looked up when the function is translated, not when it is defined. Attributes are followed through
modules, classes, enumerations and plain objects. Python does not capture names that only annotations mention. So in
functions that are defined in a function or a class, annotations of parameters and results with such names have the
values that Python gave them. With ``from __future__ import annotations`` there are no such values, and the name is that
of the module.
"""

from __future__ import annotations

import ast
import builtins
import types as python_types
from collections.abc import Callable, Container, Mapping
from typing import Any

from .errors import DslError, FunctionSource
from .language import Word

__all__ = ["MISSING", "Scope"]


class _Missing:
    """The type of `MISSING`."""


#: The result for a name that refers to nothing.
MISSING = _Missing()


class _Undefined(DslError):
    """A name refers to nothing."""


class Scope:
    """The scope of ``function``. ``constants`` maps names to values that replace the captured ones.

    Without a function the scope consists of ``constants`` and Python's builtins."""

    def __init__(self, function: Callable[..., Any] | None, constants: Mapping[str, object] | None = None) -> None:
        self.constants = dict(constants or {})
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})
        code: python_types.CodeType | None = getattr(function, "__code__", None)
        cells: tuple[Any, ...] = getattr(function, "__closure__", None) or ()
        self._cells = dict(zip(code.co_freevars if code else (), cells, strict=True))
        self._function = function

    def lookup(self, name: str) -> Any:
        """The object that the name refers to, or `MISSING`."""
        if name in self.constants:
            return self.constants[name]
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:  # the enclosing function has not assigned the variable yet
                return MISSING
        if name in self._globals:
            return self._globals[name]
        return getattr(builtins, name, MISSING)

    def resolve(self, node: ast.expr, locals_: Container[str] = ()) -> Any:
        """The Python object of a name or attribute chain that does not begin with a local variable, or `MISSING`."""
        if isinstance(node, ast.Name):
            return MISSING if node.id in locals_ else self.lookup(node.id)
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value, locals_)
            if isinstance(base, _Missing | Word):
                return MISSING
            return getattr(base, node.attr, MISSING)
        return MISSING

    def annotation(self, node: ast.expr, source: FunctionSource, name: str = "") -> Any:
        """The value of an annotation: of the parameter ``name``, of the result if it is ``return``, or of a local
        variable. Raises `DslError` at the annotation if it has none."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.copy_location(ast.parse(node.value, mode="eval").body, node)
            except SyntaxError:
                raise source.error(f"{node.value!r} is not a type", node) from None
            ast.fix_missing_locations(node)
        given = self._given(name)
        if given is not MISSING and self._may_be_shadowed(node):
            return given
        try:
            return self._evaluate(node)
        except _Undefined as why:
            if given is not MISSING:
                return given
            hint = ": a function does not capture names of an enclosing one that only annotations mention"
            is_nested = "<locals>" in getattr(self._function, "__qualname__", "")
            raise source.error(why.message + hint * is_nested, node) from None
        except DslError as why:
            raise source.error(why.message, node) from None
        except TypeError as why:  # i32[3], or an object that cannot be indexed
            raise source.error(f"{ast.unparse(node)} is not a type: {why}", node) from None

    def _given(self, name: str) -> Any:
        """The value that Python gave the annotation of a parameter or of the result; `MISSING` if it is a text or not
        known."""
        try:
            given = getattr(self._function, "__annotations__", {}).get(name, MISSING)
        except NameError:  # Python 3.14 evaluates annotations here
            return MISSING
        return MISSING if isinstance(given, str) else given

    def _may_be_shadowed(self, node: ast.expr) -> bool:
        """Whether an annotation mentions a name that the function does not capture, but that may be one of the function
        or the class around it. Constants replace what Python knows."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        is_nested = "." in getattr(self._function, "__qualname__", "")
        return is_nested and not names <= self._cells.keys() and not names & self.constants.keys()

    def _evaluate(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Subscript):
            return self._evaluate(node.value)[self._evaluate(node.slice)]
        if isinstance(node, ast.Tuple):
            return tuple(self._evaluate(element) for element in node.elts)
        captured = self.resolve(node)
        if isinstance(captured, _Missing):
            raise _Undefined(f"{ast.unparse(node)} is not defined")
        return captured
