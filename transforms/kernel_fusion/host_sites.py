"""From a launch in a host program to a `LaunchSite`: extents and arguments as the host knows them, handles as buffers.

A host variable is replaced by the expression that it was assigned, where that assignment reaches the launch and the
expression still has the same value there (`host_definitions`), and a constant of the surroundings by its value:
``blocks`` becomes ``(n + 255) // 256`` where neither has been written since. Both launches are resolved where they
come to stand side by side, so equal texts are equal values in the two.

Handles: two launches are fused where handles with different names point to different allocations, or the memory is only
read. A handle that may point to what another one points to is refused (`alias`): nothing is decided on a guess.
Refuses, by `Refusal`: an unknown grid or block, possible aliases, a buffer that is not allocated on every way, kernels
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

#: Assignments are followed through this many variables.
_DEPTH = 8


class Refusal(Exception):
    """Two launches are not fused. ``reason`` is an id, the message a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Sites:
    """Sites of the launches of one program. Fusion may move launches meanwhile, and adds no definition."""

    def __init__(self, program: HostProgram) -> None:
        self.definitions = HostDefinitions(program)
        #: Whether ``max`` is Python's all over the program.
        self.knows_max = self.definitions.is_builtin("max")

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
        """What the expression is just before ``at``: a number, or an expression with all that is known there put in.
        None where it calls something else by the name of ``min`` or ``max``, of which more is said here than is true.
        """
        known = self.definitions.before(at, cfg)
        tree = self._replaced(ast.parse(expression.text, mode="eval").body, known, _DEPTH)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if any(name in names and not self.definitions.is_builtin(name) for name in ("min", "max")):
            return None
        text = ast.unparse(tree)
        if names <= self.definitions.namespace.keys():
            try:
                found: Any = eval(text, self.definitions.namespace, {})
            except Exception:  # it fails whenever it runs: then it stays an expression
                return text
            number = plain(found)
            if isinstance(number, int | float):
                return number
        return text

    def extents(self, expression: Expression, at: Node, cfg: HostCfg) -> Extents:
        """The three extents of a grid or a block. Raises `Refusal` where it may be a tuple that is not written out."""
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
                raise Refusal("grid-unknown", f"{part} is not known to be one number: it may be a tuple")
        x, y, z = (*(self._integer(part, at, cfg, "an extent") for part in parts), 1, 1)[:3]
        return x, y, z

    def _integer(self, expression: Expression, at: Node, cfg: HostCfg, what: str) -> int | str:
        found = self.value(expression, at, cfg)
        if found is None or isinstance(found, float):
            raise Refusal("grid-unknown", f"{what} is {expression if found is None else found}")
        return found

    def _replaced(self, tree: ast.expr, known: Mapping[str, Expression], depth: int) -> ast.expr:
        sites = self

        class Replacing(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id in sites.definitions.constants:
                    return ast.Constant(sites.definitions.constants[node.id])
                if not depth or node.id not in known:
                    return node
                value = ast.parse(known[node.id].text, mode="eval").body
                return node if sites._has_product(value) else sites._replaced(value, known, depth - 1)

        return Replacing().visit(tree)

    def _has_product(self, tree: ast.expr) -> bool:
        """Whether variables are multiplied. More is known of a name that is passed as a parameter than of a product."""

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


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            yield one, other
