"""Launches of groups of operators: one kernel for each group of a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import DslError
from .global_operators import GlobalNode
from .graph import Graph
from .groups import Group, Plan, Regions
from .lowered import Launch, Lowered, Options
from .lowering import MOST_ROWS, LowerNode, named_launches
from .operators import Image, Node
from .partitioning import isp_node, isp_rows_node, isp_warp_node
from .reduction_lowering import global_launch
from .sizes import ceil_div
from .tiling.hybrid import HybridKernel
from .tiling.kernel import GroupKernel
from .tiling.lanes import LanesKernel

__all__ = ["group_launch", "lower_plan"]

#: By kind of regions: makes the kernel of a node.
_PARTITIONED: dict[Regions, LowerNode] = {"isp": isp_node, "isp_warp": isp_warp_node, "isp_rows": isp_rows_node}


def _grid_of(group: Group) -> tuple[int, int]:
    """The blocks of a group. Raises `DslError` if they are too many."""
    first, tile, count = group.stored[0], group.tile, group.team.count
    grid = ceil_div(first.width, tile[0] * count[0]), ceil_div(first.height, tile[1] * count[1])
    if grid[1] > MOST_ROWS:
        rows = f"{first.name} needs {int(grid[1])} rows of tiles"
        raise DslError(f"{rows}, and a grid has at most {MOST_ROWS}: choose a higher tile", first.place)
    return grid


def group_launch(group: Group, name: str, options: Options) -> Launch:
    """The kernel of a group, called ``name``. Raises `DslError` if there is none."""
    group.check(options)
    if group.regions:
        return _PARTITIONED[group.regions](group.nodes[0], name, replace(options, block=group.block))
    maker = {"hybrid": HybridKernel, "lanes": LanesKernel}.get(group.kind, GroupKernel)(group, options)
    kernel, arguments = maker.made(name)
    notes = (f"group: {group}",)
    tiled = frozenset(maker.tiles)
    return Launch(kernel, _grid_of(group), group.block, arguments, group.nodes, notes, tiled, group.pixels)


def lower_plan(plan: Plan, options: Options, lowering: str) -> Lowered:
    """One launch for each group of a plan. Raises `DslError` if the plan is not legal."""
    plan.check(options)

    def made(group: Group, name: str) -> Launch:
        (first, *_) = group.nodes
        return (
            global_launch(first, name, lowering, options)
            if isinstance(first, GlobalNode)
            else group_launch(group, name, options)
        )

    makers: list[tuple[str, Callable[[str], Launch]]] = [(_word(group), partial(made, group)) for group in plan.groups]
    again: Callable[[Graph], Lowered] = lambda other: lower_plan(plan.on(other), options, lowering)  # noqa: E731
    return Lowered(plan.graph, lowering, options, named_launches(makers), again)


def _word(group: Group) -> str:
    """The first part of the name of a group's kernel."""
    last: Image[Any] = group.nodes[-1]
    assert isinstance(last, Node)
    return last.operator.name if len(group.nodes) == 1 else f"{last.operator.name}_group"
