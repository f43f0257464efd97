"""Algorithms on graphs whose nodes are numbers. Imports nothing of this package, so every folder may import it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["strongly_connected_components"]


def strongly_connected_components(
    succ: Sequence[Iterable[int]] | Mapping[int, Iterable[int]], nodes: Iterable[int]
) -> list[list[int]]:
    """The strongly connected components of the graph on ``nodes``, each before those from which it is reached.

    ``succ[node]`` are the successors of a node. Edges to nodes outside of ``nodes`` are left out. Tarjan's algorithm
    (SIAM J. Comput. 1(2), 1972), without recursion; linear in nodes and edges.

    >>> strongly_connected_components([[1], [2, 0], [2], [0]], range(4))
    [[2], [0, 1], [3]]
    """
    allowed = dict.fromkeys(nodes)
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    is_open: set[int] = set()
    path: list[int] = []
    found: list[list[int]] = []
    for root in allowed:
        if root in number:
            continue
        stack = [(root, iter(succ[root]))]
        number[root] = low[root] = len(number)
        path.append(root)
        is_open.add(root)
        while stack:
            node, after = stack[-1]
            for to in after:
                if to not in allowed:
                    continue
                if to not in number:
                    number[to] = low[to] = len(number)
                    path.append(to)
                    is_open.add(to)
                    stack.append((to, iter(succ[to])))
                    break
                if to in is_open:
                    low[node] = min(low[node], number[to])
            else:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                if low[node] == number[node]:
                    component = [path.pop()]
                    while component[-1] != node:
                        component.append(path.pop())
                    component.reverse()
                    is_open.difference_update(component)
                    found.append(component)
    return found
