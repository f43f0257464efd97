"""The lowerings by their names. A lowering is a function from a graph and options to launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...spelling import did_you_mean
from ..errors import DslError
from .fusion.planning import fused, fused_horizontally
from .graph import Graph
from .lowered import Lowered, Options
from .lowering import naive
from .partition_model import isp_model
from .partitioning import isp, isp_rows, isp_warp
from .schedule.auto import auto

__all__ = ["LOWERINGS", "lower"]

Lowering: TypeAlias = "Callable[[Graph, Options], Lowered]"

#: By name: the lowering.
LOWERINGS: dict[str, Lowering] = {
    "naive": naive,
    "isp": isp,
    "isp_warp": isp_warp,
    "isp_rows": isp_rows,
    "isp+m": isp_model,
    "fused": fused,
    "fused+h": fused_horizontally,
    "auto": auto,
}


def lower(graph: Graph, lowering: str = "naive", options: Options | None = None) -> Lowered:
    """The graph as launches. Raises `DslError` for an unknown lowering, and for what a lowering refuses."""
    chosen = LOWERINGS.get(lowering)
    if chosen is None:
        hint = did_you_mean(str(lowering), LOWERINGS)
        raise DslError(f"there is no lowering {lowering!r}{hint}; there are {', '.join(LOWERINGS)}")
    return chosen(graph, options or Options())
