"""The instructions of a partitioned kernel by region, beside those of the naive one: table I of the paper.

A column has the instructions that a warp executes on average, by the first word of the instruction. ``kernel`` is the
operator without any check and without regions. What a region executes more are its checks and the switch between
regions; in the body it is the switch alone.

Reference: Qiao, Teich, Hannig: An Efficient Approach for Image Border Handling on GPUs via Iteration Space
Partitioning, table I.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lowered import Options
from .operators import Node
from .partition_model import KernelFigures, estimate, unchecked

__all__ = ["instruction_table"]


def instruction_table(node: Node[Any], lowering: str, options: Options) -> list[str]:
    """The table of a node for ``isp``, ``isp_warp`` or ``isp_rows``, as lines of text. Raises what compiling and
    emulating raise."""
    found = estimate(node, options)
    made = {each.lowering: each for each in found.kernels} if found is not None else {}
    chosen = made.get(lowering)
    if found is None or chosen is None:
        if lowering == "isp_rows":
            return [f"{node.name}: no block of isp_rows is inside of the image"]
        if "isp" not in made:
            return [f"{node.name}: no index is checked"]
        return [f"{node.name}: {lowering} is isp for blocks of {options.block[0]} threads along x"]
    columns: dict[str, Mapping[str, float]] = {}
    if (kernel := unchecked(node, options)) is not None:
        columns["kernel"] = _times(kernel.opcodes, chosen.rows)
    columns |= {region.name: region.opcodes for region in chosen.regions}
    columns["naive"] = _times(_average(found.kernels[0]), chosen.rows)
    title = f"{node.name}: instructions of a warp of {lowering} by region, and of naive"
    if chosen.rows > 1:
        title += f"; a thread of {lowering} computes {chosen.rows} pixels, and kernel and naive are for as many"
    return [title, *_lines(columns)]


def _times(opcodes: Mapping[str, float], factor: int) -> dict[str, float]:
    return {name: factor * count for name, count in opcodes.items()}


def _average(kernel: KernelFigures) -> dict[str, float]:
    """The instructions of a warp on average over all blocks."""
    blocks = sum(region.blocks for region in kernel.regions)
    names = {name for region in kernel.regions for name in region.opcodes}
    return {
        name: sum(region.blocks * region.opcodes.get(name, 0.0) for region in kernel.regions) / blocks for name in names
    }


def _lines(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    totals = {name: sum(opcodes.values()) for name, opcodes in columns.items()}
    rows = {
        opcode: [opcodes.get(opcode, 0.0) for opcodes in columns.values()]
        for opcode in sorted({opcode for opcodes in columns.values() for opcode in opcodes})
    }
    rows["total"] = list(totals.values())
    if "kernel" in totals:
        rows["checks, switch"] = [total - totals["kernel"] for total in totals.values()]
    first = max(len(name) for name in rows)
    cells = {name: [f"{value:.0f}" for value in values] for name, values in rows.items()}
    widths = [max(len(name), *(len(each[at]) for each in cells.values())) for at, name in enumerate(columns)]
    head = [" " * first, *(name.rjust(width) for name, width in zip(columns, widths, strict=True))]
    body = [
        [name.ljust(first), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))]
        for name, row in cells.items()
    ]
    return ["  ".join(["", *row]) for row in (head, *body)]
