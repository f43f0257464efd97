"""From a launch in a host program to a `LaunchSite`: extents and arguments as the host knows them, handles as buffers.

Host variables that never change are replaced by what they were assigned, constants of the surroundings by their
values: ``blocks`` becomes ``(n + 255) // 256`` where that is its only assignment and ``n`` is never written. Equal
texts are then equal values all over the program, and so in two launches that come to stand side by side.

Handles: two launches are fused where handles with different names point to different allocations, or the memory is only
read. A handle that may point to what another one points to is refused (`alias`): nothing is decided on a guess.
Refuses, by `Refusal`: an unknown grid or block, possible aliases, a buffer that is not allocated on every way, kernels
whose accesses are not known, arguments that do not fit the parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, cast

from ...dsl.host_cfg import HostCfg
from ...dsl.host_nodes import Assign, Expression, HostCall, Launch, LoopNext, Node
from ...dsl.host_program import HostProgram
from ...dsl.host_values import callable_namespace
from .kernel_code import KernelCode
from .launch_site import Argument, Buffer, Extents, LaunchSite, Scalar

__all__ = ["Refusal", "Sites"]

#: Assignments are followed through this many variables.
_DEPTH = 8


class Refusal(Exception):
    """Two launches are not fused. ``reason`` is an id, the message a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Sites:
    """Sites of the launches of one program. Assignments are those of the program as it was given: fusion adds none."""

    def __init__(self, program: HostProgram) -> None:
        self._constants: dict[str, int | float] = {}
        for name, value in program.namespace.items():
            plain = _plain(value)
            if isinstance(plain, int | float) and not isinstance(plain, bool):
                self._constants[name] = plain
        #: Whether ``max`` is Python's all over the program.
        self.knows_max = program.namespace.get("max", max) is max and "max" not in {p.name for p in program.params}
        self._namespace: dict[str, Any] = {"__builtins__": {}, **callable_namespace(program.namespace)}
        self._writers: dict[str, list[Node]] = {}
        for node in program.nodes():
            for name in node.defines:
                self._writers.setdefault(name, []).append(node)
        self.knows_max = self.knows_max and "max" not in self._writers

    def pair(
        self, first: Launch, second: Launch, at: Node, cfg: HostCfg, codes: tuple[KernelCode, KernelCode]
    ) -> tuple[LaunchSite, LaunchSite]:
        """The sites of two launches that both stand at ``at``. Raises `Refusal`."""
        self._check_handles((first, second), at, cfg, codes)
        return self._site(first, at, cfg, codes[0]), self._site(second, at, cfg, codes[1])

    def _site(self, launch: Launch, at: Node, cfg: HostCfg, code: KernelCode) -> LaunchSite:
        params = code.entry.params or []
        if len(params) != len(launch.args):
            raise Refusal("arguments", f"{launch.kernel_text} takes {len(params)} arguments, not {len(launch.args)}")
        arguments: dict[str, Argument] = {}
        for param, arg in zip(params, launch.args, strict=True):
            arguments[param.name] = Buffer(arg.text) if cfg.buffers(arg.text, at) else Scalar(self.value(arg))
        return LaunchSite(
            code.entry,
            code.module,
            self.extents(launch.grid),
            self.extents(launch.block),
            0 if launch.shared is None else self._integer(launch.shared, "shared memory"),
            arguments,
            launch.cooperative,
            code.counters,
        )

    # --- values ------------------------------------------------------------------------------------------------

    def value(self, expression: Expression) -> int | float | str:
        """A number, or the expression with all that never changes put in."""
        tree = self._replaced(ast.parse(expression.text, mode="eval").body, _DEPTH)
        text = ast.unparse(tree)
        if not any(isinstance(node, ast.Name) and node.id in self._writers for node in ast.walk(tree)):
            try:
                found: Any = eval(text, self._namespace, {})
            except Exception:  # names a parameter, or fails when it runs: then it stays an expression
                return text
            plain = _plain(found)
            if isinstance(plain, int | float):
                return plain
        return text

    def extents(self, expression: Expression) -> Extents:
        """The three extents of a grid or a block. Raises `Refusal` where it may be a tuple that is not written out."""
        tree = ast.parse(expression.text, mode="eval").body
        if isinstance(tree, ast.Tuple):
            parts = [Expression(ast.unparse(part)) for part in tree.elts]
        elif (named := self._tuple_of_surroundings(tree)) is not None:
            parts = [Expression(repr(part)) for part in named]
        else:
            if any(isinstance(writer, HostCall) for name in expression.names for writer in self._writers.get(name, ())):
                raise Refusal("grid-unknown", f"{expression} comes from a call and may be a tuple")
            parts = [expression]
        if not 1 <= len(parts) <= 3:
            raise Refusal("grid-unknown", f"{expression} has {len(parts)} extents")
        x, y, z = (*(self._integer(part, "an extent") for part in parts), 1, 1)[:3]
        return x, y, z

    def _tuple_of_surroundings(self, tree: ast.expr) -> tuple[object, ...] | None:
        found = self._namespace.get(tree.id) if isinstance(tree, ast.Name) else None
        return cast("tuple[object, ...]", found) if isinstance(found, tuple) else None

    def _integer(self, expression: Expression, what: str) -> int | str:
        found = self.value(expression)
        if isinstance(found, float):
            raise Refusal("grid-unknown", f"{what} is {found}")
        return found

    def _replaced(self, tree: ast.expr, depth: int) -> ast.expr:
        sites = self

        class Replacing(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id in sites._constants:
                    return ast.Constant(sites._constants[node.id])
                known = sites._assigned(node.id) if depth else None
                return node if known is None else sites._replaced(known, depth - 1)

        return Replacing().visit(tree)

    def _assigned(self, name: str) -> ast.expr | None:
        """What ``name`` holds throughout, once it holds anything; None where that changes or is not known."""
        writers = self._writers.get(name, [])
        if len(writers) != 1 or not isinstance(writers[0], Assign) or isinstance(writers[0], HostCall):
            return None
        node = writers[0]
        if len(node.targets) != len(node.values) or Expression(name) not in node.targets:
            return None
        value = node.values[node.targets.index(Expression(name))]
        tree = ast.parse(value.text, mode="eval").body
        return tree if self._is_fixed(value, _DEPTH) and not self._has_product(tree) else None

    def _has_product(self, tree: ast.expr) -> bool:
        """Whether variables are multiplied. More is known of a name that is passed as a parameter than of a product."""

        def varies(part: ast.expr) -> bool:
            return any(isinstance(node, ast.Name) and node.id not in self._constants for node in ast.walk(part))

        return any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and varies(node.left) and varies(node.right)
            for node in ast.walk(tree)
        )

    def _is_fixed(self, value: Expression, depth: int) -> bool:
        """Whether the value is made of nothing that is ever written after the program has begun, except once."""
        if depth == 0:
            return False
        for name in value.names:
            for writer in self._writers.get(name, ()):
                if isinstance(writer, LoopNext) or self._assigned_fixed(name, writer, depth - 1) is False:
                    return False
        return True

    def _assigned_fixed(self, name: str, writer: Node, depth: int) -> bool:
        if not isinstance(writer, Assign) or isinstance(writer, HostCall) or len(self._writers[name]) != 1:
            return False
        if len(writer.targets) != len(writer.values) or Expression(name) not in writer.targets:
            return False
        return self._is_fixed(writer.values[writer.targets.index(Expression(name))], depth)

    # --- handles -----------------------------------------------------------------------------------------------

    @staticmethod
    def _check_handles(
        launches: tuple[Launch, Launch], at: Node, cfg: HostCfg, codes: tuple[KernelCode, KernelCode]
    ) -> None:
        handles: dict[str, bool] = {}
        for launch, code in zip(launches, codes, strict=True):
            if code.memory.is_unknown:
                raise Refusal("unknown-accesses", f"what {launch.kernel_text} touches is not known from its PTX")
            for position, arg in enumerate(launch.args):
                if cfg.buffers(arg.text, at):
                    handles[arg.text] = handles.get(arg.text, False) or position in code.memory.writes
        for binding in cfg.bindings(at):
            points = dict(binding)
            for one, other in _pairs(sorted(handles)):
                if one not in points or other not in points:
                    raise Refusal("unallocated", f"{one if one not in points else other} is not allocated on every way")
                if (handles[one] or handles[other]) and points[one] & points[other]:
                    raise Refusal("alias", f"{one} and {other} may be the same buffer, and it is written")


def _plain(value: Any) -> object:
    """A NumPy scalar as the Python number of its value; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and value.shape == () else value


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            yield one, other
