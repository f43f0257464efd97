"""KF_trad: fuses launches that stand one behind the other, and moves nothing out of its basic block.

The thesis compares with a method that fuses only originally consecutive kernels, and says no more (§5.3.1). Here two
launches are consecutive where the second follows the first in one basic block, no launch is between them, and either
nothing between is a modification statement of the second (it is taken up) or nothing is one of the first (it is taken
down). What was fused is a launch that the next one may be consecutive to; so chains are fused from their first launch
on.

Guarantees: no launch is executed on a way on which it was not, nor is one copied.
Reference: thesis §5.1, figure 5.1; §5.3.1.
"""

from __future__ import annotations

from .backward import Fusible
from .launch_graph import LaunchGraph, Node, Step

__all__ = ["traditional_step"]


def traditional_step(graph: LaunchGraph, fusible: Fusible) -> Step | None:
    """The first fusion in reverse postorder; None where there is none left."""
    for launch in graph.launches:
        following = next((node for node in graph.straight_from(launch) if node in graph.is_launch), None)
        if following is None or following == launch:
            continue
        between = _between(graph, launch, following)
        if all(graph.is_transparent(node, following) for node in between) and fusible(launch, following, launch):
            return Step("backward", following, (launch,))
        if all(graph.is_transparent(node, launch) for node in between) and fusible(launch, following, following):
            return Step("forward", launch, (following,))
    return None


def _between(graph: LaunchGraph, first: Node, second: Node) -> list[Node]:
    found: list[Node] = []
    for node in graph.straight_from(first):
        if node == second:
            break
        found.append(node)
    return found
