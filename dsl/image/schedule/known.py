"""The members of the groups of one graph, each made once, so that searches share what they have computed about them."""

from __future__ import annotations

from typing import Any

from ..graph import Graph
from ..lowered import Options
from ..operators import Node
from .counted import Counts
from .members import Members

__all__ = ["KnownMembers"]


class KnownMembers:
    """The members of groups of ``graph`` with these options."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        #: By operators, in the order of the graph: the members.
        self._known: dict[tuple[Node[Any], ...], Members] = {}
        #: What threads do, of all groups (`Members.counted`).
        self._counted: dict[Any, Counts] = {}

    def of(self, nodes: tuple[Node[Any], ...]) -> Members:
        """The members of a group of these operators."""
        if nodes not in self._known:
            self._known[nodes] = Members(self.graph, nodes, self.options, self._counted)
        return self._known[nodes]
