"""KF_trad: fuses consecutive launches, and moves no launch out of its basic block.

The thesis compares KFCM with a method that fuses only originally consecutive kernels, and gives no more details
(§5.3.1). Here two launches are consecutive if the second follows the first in the same basic block, no launch is
between them, and either nothing between them is a modification statement of the second launch (it is moved up) or
nothing is one of the first (it is moved down). A fused launch may be consecutive to the next launch. So a chain is
fused starting at its first launch.

Guarantees: no launch is copied, and no launch runs on a path on which it did not run before.
Reference: thesis §5.1, figure 5.1; §5.3.1.
"""

from __future__ import annotations

from .backward import Fusible
from .launch_graph import LaunchGraph, Node, Step

__all__ = ["traditional_step"]


def traditional_step(graph: LaunchGraph, fusible: Fusible) -> Step | None:
    """The first possible fusion in reverse postorder, or None."""
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
    between: list[Node] = []
    for node in graph.straight_from(first):
        if node == second:
            break
        between.append(node)
    return between
