"""The benefit of fusing two kernels, as the thesis estimates it: equations 3.4 to 3.14.

The unit is a cycle for each pixel of the largest image of the pipeline. Fusion keeps the image between two kernels in
registers (δ_reg) or in shared memory (δ_shared). A producer that a window reads is computed again for each pixel of the
window (φ). A weight is at least ε, which is also the weight of an edge that cannot be fused.

Source: Qiao, thesis, §3.4.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any

from ..graph import Graph
from ..operators import Node, Operator
from .legality import Limits, problem_of_block

__all__ = ["Constants", "EdgeEstimate", "Operations", "edge_estimates", "operations_of"]


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants of a machine, in cycles: an access of global memory and of shared memory, an operation of the ALU and
    of the SFU, further gains of a fusion (γ), and the least weight (ε)."""

    t_global: float = 400
    t_shared: float = 4
    alu: float = 4
    sfu: float = 16
    gamma: float = 0
    epsilon: float = 1e-3


@dataclass(frozen=True, slots=True)
class Operations:
    """How many operations of the ALU and of the SFU one pixel of an operator takes, and how often it reads windows.
    ``functions``: the machine instructions of those of the SFU. ``windows``: the reads of each parameter."""

    alu: int
    sfu: int
    reads: int = 0
    functions: int = 0
    windows: tuple[tuple[str, int], ...] = ()

    def reads_of(self, name: str) -> int:
        """How often a parameter is read."""
        return dict(self.windows).get(name, 0)

    def cost(self, constants: Constants) -> float:
        """Equation 3.8."""
        return constants.alu * self.alu + constants.sfu * self.sfu


@dataclass(frozen=True, slots=True)
class EdgeEstimate:
    """The estimate of an edge. ``scenario`` is ``illegal`` with a reason, ``point-based``, ``point-to-local`` or
    ``local-to-local``. ``delta`` is the gain in locality, ``phi`` the cost of computing pixels again."""

    producer: str
    consumer: str
    scenario: str
    delta: float
    phi: float
    weight: float
    reason: str = ""

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else f": delta {self.delta:g}, phi {self.phi:g}"
        return f"{self.producer} -> {self.consumer}: weight {self.weight:g}, {self.scenario}{why}"


def edge_estimates(graph: Graph, constants: Constants, limits: Limits) -> dict[tuple[int, int], EdgeEstimate]:
    """The estimates of all edges by the numbers of producer and consumer."""
    number = {node: at for at, node in enumerate(graph.nodes)}
    found: dict[tuple[int, int], EdgeEstimate] = {}
    for consumer in graph.nodes:
        for access in consumer.accesses:
            producer = access.image
            if isinstance(producer, Node):
                found[number[producer], number[consumer]] = _estimate(graph, producer, consumer, constants, limits)
    return found


def _estimate(
    graph: Graph, producer: Node[Any], consumer: Node[Any], constants: Constants, limits: Limits
) -> EdgeEstimate:
    reason = problem_of_block(graph, (producer, consumer), limits)
    if reason:
        return EdgeEstimate(producer.name, consumer.name, "illegal", 0, 0, constants.epsilon, reason)
    scale = 1 / max(_pixels(image) for image in (*graph.inputs, *graph.nodes))
    space = _pixels(producer) * scale
    in_registers, in_shared = space * constants.t_global, space * constants.t_global / constants.t_shared
    # The sum over the images that the producer reads.
    inputs = sum(_pixels(image) * scale for image in {access.image for access in producer.accesses})
    again = operations_of(producer).cost(constants) * inputs
    if consumer.operator.kind == "point":
        scenario, delta, phi = "point-based", in_registers, 0.0
    elif producer.operator.kind == "point":
        scenario, delta, phi = "point-to-local", in_registers, again * _window(consumer)
    else:
        fused = (isqrt(_window(consumer)) + isqrt(_window(producer)) // 2 * 2) ** 2
        scenario, delta, phi = "local-to-local", in_shared, again * fused
    weight = max(delta - phi + constants.gamma, constants.epsilon)
    return EdgeEstimate(producer.name, consumer.name, scenario, delta, phi, weight)


def _pixels(image: Any) -> int:
    return int(image.width) * int(image.height)


def _window(node: Node[Any]) -> int:
    """The pixels of the largest window of an operator."""
    sizes = [access.extent.size for access in node.accesses if access.param.is_window]
    return max((width * height for width, height in sizes), default=1)


# --- operations ---------------------------------------------------------------------------------------------------

#: By function that the SFU computes, or that takes about as long: its machine instructions for f32, as nvcc 13.0 makes
#: them for compute capability 9.0, without those for rare arguments.
_FUNCTIONS = {
    name: count
    for names, count in (
        ("exp2 rsqrt", 4),
        ("exp exp10", 8),
        ("sqrt", 9),
        ("tanh cosh cbrt", 15),
        ("atan erf asin acos sinh", 22),
        ("sin cos log log10 log2 hypot tan", 26),
        ("atan2", 38),
        ("pow", 76),
    )
    for name in names.split()
}

#: The instructions of a division.
_DIVISION = 9


def instructions_of_function(name: str) -> int:
    """The machine instructions of a function of the kernel language for f32; 1 for those that the ALU computes."""
    return _FUNCTIONS.get(name, 1)


def operations_of(node: Node[Any]) -> Operations:
    """The operations of an operator, counted in its source. A loop counts as often as its constant range says, and both
    sides of an `if` count. Computations of offsets do not count."""
    return Operations(0, 0) if node.operator.kind == "global" else _counted(node.operator)


@lru_cache(maxsize=1024)
def _counted(operator: Operator[Any]) -> Operations:
    """The operations of an operator that is not global. They depend on its source only."""
    counter = OperationCounter()
    for statement in operator.body.tree.body:
        counter.visit(statement)
    return Operations(counter.alu, counter.sfu, counter.reads, counter.functions, tuple(counter.windows.items()))


class OperationCounter(ast.NodeVisitor):
    """Counts operations."""

    def __init__(self) -> None:
        self.alu = self.sfu = self.reads = self.functions = 0
        self.times = 1
        self.windows: dict[str, int] = {}

    def _count(self, node: ast.AST) -> None:
        self.alu += self.times
        self.generic_visit(node)

    visit_Compare = visit_BoolOp = visit_IfExp = _count

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.operand, ast.Constant):
            return  # a negative number
        self._count(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Div):
            self.sfu += self.times
            self.functions += self.times * _DIVISION
            self.generic_visit(node)
        else:
            self._count(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.alu += self.times
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """A read. Its offsets are not operations of the operator."""
        self.reads += self.times
        if isinstance(node.value, ast.Name):
            self.windows[node.value.id] = self.windows.get(node.value.id, 0) + self.times

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in _FUNCTIONS:
            self.sfu += self.times
            self.functions += self.times * _FUNCTIONS[name]
        elif name != "range":
            self.alu += self.times
        for argument in node.args:
            self.visit(argument)

    def visit_For(self, node: ast.For) -> None:
        before, self.times = self.times, self.times * _steps(node.iter)
        for statement in node.body:
            self.visit(statement)
        self.times = before


def _steps(node: ast.expr) -> int:
    """How often a loop over a range runs; 1 if its bounds are not constant."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "unroll":
        node = node.args[0]
    try:
        bounds = [ast.literal_eval(each) for each in node.args] if isinstance(node, ast.Call) else []
    except ValueError:
        return 1
    return max(0, len(range(*bounds))) if bounds and all(isinstance(each, int) for each in bounds) else 1
