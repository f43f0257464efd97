"""The graph of a pipeline: images and the operators that make them.

A graph is built by calling operators on images; `graph_of` collects what the outputs depend on. Nodes are in an order
in which they can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from ..errors import DslError
from .operators import Access, Image, InputImage, Node, Number, ScalarInput

__all__ = ["Graph", "Retrace", "graph_of"]

#: Builds the same graph for other sizes of the inputs: (width, height) of each.
Retrace: TypeAlias = "Callable[[Sequence[tuple[int, int]]], Graph]"


@dataclass(frozen=True)
class Graph:
    """A pipeline for images of given sizes. ``retrace`` is None if the graph was not built by a pipeline function.

    Names of images are unique; they are names of the generated code.
    """

    name: str
    inputs: tuple[InputImage[Any], ...]
    scalars: tuple[ScalarInput, ...]
    nodes: tuple[Node[Any], ...]
    outputs: tuple[Node[Any], ...]
    retrace: Retrace | None = field(default=None, repr=False)

    @property
    def internal(self) -> tuple[Node[Any], ...]:
        """The images that are not outputs."""
        outputs = set(self.outputs)
        return tuple(node for node in self.nodes if node not in outputs)

    def consumers(self, image: Image[Any]) -> tuple[Node[Any], ...]:
        """The nodes that read an image."""
        return self._readers.get(image, ())

    def results_of(self, nodes: tuple[Node[Any], ...]) -> tuple[Node[Any], ...]:
        """Those of some nodes that are outputs of the graph, or are read by other nodes."""
        if nodes not in self._results:
            inside, outputs = set(nodes), set(self.outputs)
            self._results[nodes] = tuple(
                node
                for node in nodes
                if node in outputs or any(reader not in inside for reader in self.consumers(node))
            )
        return self._results[nodes]

    @cached_property
    def _results(self) -> dict[tuple[Node[Any], ...], tuple[Node[Any], ...]]:
        """By nodes: `results_of`."""
        return {}

    @cached_property
    def _readers(self) -> dict[Image[Any], tuple[Node[Any], ...]]:
        """By image: the nodes that read it."""
        found: dict[Image[Any], list[Node[Any]]] = {}
        for node in self.nodes:
            for image in dict.fromkeys(access.image for access in node.accesses):
                found.setdefault(image, []).append(node)
        return {image: tuple(nodes) for image, nodes in found.items()}

    def __str__(self) -> str:
        lines = [f"pipeline {self.name}"]
        lines += [f"  input {_shape(image)}" for image in self.inputs]
        lines += [f"  number {scalar.name}: {scalar.type}" for scalar in self.scalars]
        outputs = set(self.outputs)
        for node in self.nodes:
            word = "output" if node in outputs else "image"
            arguments = ", ".join(_argument(each) for each in node.arguments)
            lines.append(f"  {word} {_shape(node)} = {node.operator.kind} {node.operator.name}({arguments})")
        return "\n".join(lines)


def _shape(image: Image[Any]) -> str:
    space = f" from ({image.space.x0}, {image.space.y0})" if isinstance(image, Node) and _is_moved(image) else ""
    return f"{image.name}: {image.pixel} {int(image.width)} x {int(image.height)}{space}"


def _is_moved(node: Node[Any]) -> bool:
    return (node.space.x0, node.space.y0) != (0, 0)


def _argument(argument: Access | Number) -> str:
    if isinstance(argument, Number):
        value = argument.value
        return value.name if isinstance(value, ScalarInput) else repr(value)
    if argument.boundary.kind == "undefined" and not argument.param.is_window:
        return argument.image.name
    x, y = argument.centres
    width, height = argument.extent.size
    parts = [argument.image.name, str(argument.boundary)]
    parts += [f"{width} x {height}"] if argument.param.is_window else []
    if x.text("x") != "x" or y.text("y") != "y":
        parts.append(f"at ({x.text('x')}, {y.text('y')})")
    return f"[{', '.join(parts)}]"


def graph_of(
    name: str,
    outputs: Sequence[Image[Any]],
    inputs: Sequence[InputImage[Any]],
    scalars: Sequence[ScalarInput] = (),
    retrace: Retrace | None = None,
) -> Graph:
    """The graph of everything that the outputs depend on. Raises `DslError` for an output that is an input, and for
    inputs that are not given."""
    order: dict[Node[Any], None] = {}
    known = set(inputs)
    for output in outputs:
        if not isinstance(output, Node):
            raise DslError(f"{name} must return images that operators make, and not {output.name}")
        _visit(output, order, known, name)
    if len(set(outputs)) < len(outputs):
        raise DslError(f"{name} returns an image twice")
    _name(order, [*(each.name for each in inputs), *(each.name for each in scalars)])
    chosen = tuple(output for output in outputs if isinstance(output, Node))
    return Graph(name, tuple(inputs), tuple(scalars), tuple(order), chosen, retrace)


def _visit(node: Node[Any], order: dict[Node[Any], None], inputs: set[InputImage[Any]], name: str) -> None:
    """Add a node after everything that it depends on."""
    pending = [node]
    while pending:
        at = pending[-1]
        missing: list[Node[Any]] = []
        for access in at.accesses:
            image = access.image
            if isinstance(image, Node):
                missing += [image] if image not in order else []
            elif image not in inputs:
                raise DslError(f"{image.name} is not an input of {name}", at.place)
        if missing:
            pending += reversed(missing)
        else:
            pending.pop()
            order[at] = None


def _name(nodes: dict[Node[Any], None], taken: Sequence[str]) -> None:
    """Make the names of nodes unique: a node whose name is taken is called after its operator, with a number."""
    used = set(taken)
    for node in nodes:
        name, number = node.name, 2
        while name in used:
            name, number = f"{node.operator.name}_{number}", number + 1
        used.add(name)
        node.name = name
