"""Makes a `LaunchSite` of a launch in a host program: extents and arguments as the host knows them, handles as buffers.

A host variable is replaced by the expression that was assigned to it, if that assignment reaches the launch and the
expression still has the same value there (`host_definitions`). A captured constant is replaced by its value. For
example ``blocks`` becomes ``(n + 255) // 256`` if neither variable has been written since. Both launches are resolved
at the same program point, so equal texts are equal values in both.

A handle is a host variable that points to a device buffer. Two launches are fused only if handles with different names
point to different allocations, or if the memory is only read. A handle that may point to the same allocation as another
one is refused (``alias``).
Refuses, by `Refusal`: an unknown grid or block, possible aliases, a buffer that is not allocated on every path, kernels
whose accesses are not known, arguments that do not fit the parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from ...dsl.host_cfg import HostCfg
from ...dsl.host_nodes import Expression, Launch, Node
from ...dsl.host_program import HostProgram
from .host_definitions import HostDefinitions, plain
from .kernel_code import KernelCode
from .launch_site import Argument, Buffer, Extents, LaunchSite, Scalar

__all__ = ["Refusal", "Sites"]

#: The longest chain of assignments that is followed.
_DEPTH = 8


class Refusal(Exception):
    """Two launches are not fused. ``reason`` is an id; the message is a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Sites:
    """Sites of the launches of one program. The program may change as long as only launches are moved, added and
    removed."""

    def __init__(self, program: HostProgram) -> None:
        self.definitions = HostDefinitions(program)
        #: Whether ``max`` means Python's function everywhere in the program.
        self.knows_max = self.definitions.is_builtin("max")

    def pair(
        self, first: Launch, second: Launch, at: Node, cfg: HostCfg, codes: tuple[KernelCode, KernelCode]
    ) -> tuple[LaunchSite, LaunchSite]:
        """The sites of two launches as if both were at ``at``. Raises `Refusal`."""
        self._check_handles((first, second), at, cfg, codes)
        return self._site(first, at, cfg, codes[0]), self._site(second, at, cfg, codes[1])

    def _site(self, launch: Launch, at: Node, cfg: HostCfg, code: KernelCode) -> LaunchSite:
        params = code.entry.params or []
        if len(params) != len(launch.args):
            raise Refusal("arguments", f"{launch.kernel_text} takes {len(params)} arguments, not {len(launch.args)}")
        arguments: dict[str, Argument] = {}
        for param, arg in zip(params, launch.args, strict=True):
            is_handle = bool(cfg.buffers(arg.text, at))
            arguments[param.name] = Buffer(arg.text) if is_handle else Scalar(self.value(arg, at, cfg))
        return LaunchSite(
            code.entry,
            code.module,
            self.extents(launch.grid, at, cfg),
            self.extents(launch.block, at, cfg),
            0 if launch.shared is None else self._integer(launch.shared, at, cfg, "shared memory"),
            arguments,
            launch.cooperative,
            code.counters,
        )

    # --- values ------------------------------------------------------------------------------------------------

    def value(self, expression: Expression, at: Node, cfg: HostCfg) -> int | float | str | None:
        """The value of the expression just before ``at``: a number, or an expression in which known variables are
        replaced.

        None if the program uses the name ``min`` or ``max`` for something else, since the analysis gives these names
        bounds.
        """
        values = self.definitions.before(at, cfg)
        tree = self._replaced(ast.parse(expression.text, mode="eval").body, values, _DEPTH)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if any(name in names and not self.definitions.is_builtin(name) for name in ("min", "max")):
            return None
        text = ast.unparse(tree)
        if names <= self.definitions.namespace.keys():
            try:
                result: Any = eval(text, self.definitions.namespace, {})
            except Exception:  # it raises whenever the program runs, so it stays an expression
                return text
            number = plain(result)
            if isinstance(number, int | float):
                return number
        return text

    def extents(self, expression: Expression, at: Node, cfg: HostCfg) -> Extents:
        """The three extents of a grid or a block. Raises `Refusal` if the value may be a tuple whose elements are not
        visible."""
        tree = ast.parse(expression.text, mode="eval").body
        if isinstance(tree, ast.Tuple):
            parts = [Expression(ast.unparse(part)) for part in tree.elts]
        elif isinstance(tree, ast.Name) and (named := self.definitions.tuple_of(tree.id)) is not None:
            parts = [Expression(repr(part)) for part in named]
        else:
            parts = [expression]
        if not 1 <= len(parts) <= 3:
            raise Refusal("grid-unknown", f"{expression} has {len(parts)} extents")
        for part in parts:
            if not self.definitions.is_number(part):
                raise Refusal("grid-unknown", f"{part} may be a tuple instead of a number")
        x, y, z = (*(self._integer(part, at, cfg, "an extent") for part in parts), 1, 1)[:3]
        return x, y, z

    def _integer(self, expression: Expression, at: Node, cfg: HostCfg, what: str) -> int | str:
        value = self.value(expression, at, cfg)
        if value is None or isinstance(value, float):
            raise Refusal("grid-unknown", f"{what} is {expression if value is None else value}")
        return value

    def _replaced(self, tree: ast.expr, values: Mapping[str, Expression], depth: int) -> ast.expr:
        """``tree`` with constants and the variables of ``values`` replaced. Variables of a replacement are replaced,
        too, up to ``depth`` times."""
        sites = self

        class Replacing(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id in sites.definitions.constants:
                    return ast.Constant(sites.definitions.constants[node.id])
                if not depth or node.id not in values:
                    return node
                value = ast.parse(values[node.id].text, mode="eval").body
                return node if sites._has_product(value) else sites._replaced(value, values, depth - 1)

        return Replacing().visit(tree)

    def _has_product(self, tree: ast.expr) -> bool:
        """Whether variables are multiplied. Such a variable is not replaced, because a name that is passed as an
        argument has tighter bounds than a product."""

        def varies(part: ast.expr) -> bool:
            constants = self.definitions.constants
            return any(isinstance(node, ast.Name) and node.id not in constants for node in ast.walk(part))

        return any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and varies(node.left) and varies(node.right)
            for node in ast.walk(tree)
        )

    # --- handles -----------------------------------------------------------------------------------------------

    @staticmethod
    def _check_handles(
        launches: tuple[Launch, Launch], at: Node, cfg: HostCfg, codes: tuple[KernelCode, KernelCode]
    ) -> None:
        handles: dict[str, bool] = {}  #: by name: whether one of the kernels writes the buffer
        for launch, code in zip(launches, codes, strict=True):
            if code.memory.is_unknown:
                raise Refusal(
                    "unknown-accesses", f"the PTX of {launch.kernel_text} does not show which memory it accesses"
                )
            for position, arg in enumerate(launch.args):
                if cfg.buffers(arg.text, at):
                    handles[arg.text] = handles.get(arg.text, False) or position in code.memory.writes
        for binding in cfg.bindings(at):
            points_to = dict(binding)
            for one, other in _pairs(sorted(handles)):
                if one not in points_to or other not in points_to:
                    missing = one if one not in points_to else other
                    raise Refusal("unallocated", f"{missing} is not allocated on every path")
                if (handles[one] or handles[other]) and points_to[one] & points_to[other]:
                    raise Refusal("alias", f"{one} and {other} may be the same buffer, and a kernel writes it")


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            yield one, other
