"""Point operators that are computed again in each kernel that reads them, instead of once for all.

`with_copies` gives a graph in which each reader of a point operator has a copy of it, called after both. A group with
the reader and its copy needs no image of the operator. `schedule.copied_points` decides where that is worth it.

Guarantees: the same bits, because each copy does the same operations on the same pixels. A graph and a name have one
result, so that a plan can be read again from its text.
Refuses: operators that are outputs; names of copies that the graph has already.
"""

from __future__ import annotations

import copy
from collections.abc import Container
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..graph import Graph, Retrace, graph_of
from ..operators import Access, Argument, Image, Node

__all__ = ["name_of_copy", "named_copies", "with_copies"]


def name_of_copy(node: Node[Any], reader: Node[Any]) -> str:
    """The name of the copy of a point operator that a reader has."""
    return f"{node.name}_for_{reader.name}"


@lru_cache(maxsize=256)
def with_copies(graph: Graph, name: str) -> Graph:
    """The graph in which each reader of the point operator ``name`` has a copy of it. The graph itself if there is no
    such operator, or if it cannot be copied."""
    node = next((each for each in graph.nodes if each.name == name), None)
    if node is None or node.operator.kind != "point" or node in graph.outputs:
        return graph
    names = {name_of_copy(node, reader) for reader in graph.consumers(node)}
    if names & {image.name for image in (*graph.inputs, *graph.scalars, *graph.nodes)}:
        return graph
    #: By node: the one that is made again, because it reads another image.
    new: dict[Image[Any], Node[Any]] = {}
    for each in graph.nodes:
        if each is node:
            continue
        own = copy.copy(node) if node in {access.image for access in each.accesses} else node
        own.name = name_of_copy(node, each) if own is not node else own.name
        arguments = tuple(_read(argument, node, own, new) for argument in each.arguments)
        if any(one is not other for one, other in zip(arguments, each.arguments, strict=True)):
            made = new[each] = copy.copy(each)
            made.arguments = arguments
            made.accesses = tuple(argument for argument in arguments if isinstance(argument, Access))
    retrace = graph.retrace
    again: Retrace | None = (lambda shapes: with_copies(retrace(shapes), name)) if retrace is not None else None
    outputs = [new.get(each, each) for each in graph.outputs]
    return graph_of(graph.name, outputs, graph.inputs, graph.scalars, again)


def _read(argument: Argument, node: Node[Any], own: Node[Any], new: dict[Image[Any], Node[Any]]) -> Argument:
    """The argument with the copy of the node, or with a node that was made again."""
    if not isinstance(argument, Access):
        return argument
    image = own if argument.image is node else new.get(argument.image, argument.image)
    return argument if image is argument.image else replace(argument, image=image)


def named_copies(graph: Graph, names: Container[str]) -> Graph:
    """The graph with the copies that are among some names."""
    made = graph
    for node in graph.nodes:
        found = next((each for each in made.nodes if each.name == node.name), None)
        if found is not None and any(name_of_copy(found, reader) in names for reader in made.consumers(found)):
            made = with_copies(made, node.name)
    return made
