"""The control-flow graphs of a module as Graphviz text, and the module as JSON.

Requires: verified kernels. Guarantees: the same module gives the same text.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..analysis.graph.cfg import Cfg, build_cfg
from ..ptx import Kernel, Module

__all__ = ["cfg_dot", "module_json"]


def cfg_dot(module: Module, only: re.Pattern[str] | None = None) -> str:
    """One `digraph` with a cluster for each kernel whose name matches: a node for each block with its instructions.

    A fall-through edge is dashed.
    """
    lines = ["digraph ptx {", '  node [shape=box, fontname="monospace", fontsize=9];']
    for number, kernel in enumerate(_selected(module, only)):
        lines += _cluster(kernel, number)
    return "\n".join([*lines, "}", ""])


def _cluster(kernel: Kernel, number: int) -> list[str]:
    cfg = build_cfg(kernel)
    lines = [f"  subgraph cluster_{number} {{", f"    label={_quoted(kernel.name)};"]
    for index, block in enumerate(cfg.blocks):
        text = "\\l".join(_escaped(line) for line in [f"{_name(cfg, index)}:", *(i.text for i in block.instrs)])
        lines.append(f'    n{number}_{index} [label="{text}\\l"];')
    for index in range(len(cfg)):
        for successor in cfg.succ[index]:
            style = " [style=dashed]" if _falls_through(cfg, index, successor) else ""
            lines.append(f"    n{number}_{index} -> n{number}_{successor}{style};")
    return [*lines, "  }"]


def _falls_through(cfg: Cfg, block: int, successor: int) -> bool:
    if successor != block + 1:
        return False
    terminator = cfg.blocks[block].terminator
    return terminator is None or terminator.guard is not None


def module_json(module: Module, only: re.Pattern[str] | None = None) -> str:
    """The kernels with their blocks, edges and instructions as JSON. An edge is the number of its target block."""
    document = {
        "schema_version": 1,
        "file": module.source.name,
        "version": module.version,
        "target": module.target,
        "address_size": module.address_size,
        "kernels": [_kernel(kernel) for kernel in _selected(module, only)],
    }
    return json.dumps(document, indent=1) + "\n"


def _kernel(kernel: Kernel) -> dict[str, Any]:
    cfg = build_cfg(kernel)
    blocks = [
        {
            "label": block.label.text if block.label is not None else None,
            "successors": cfg.succ[index],
            "reachable": cfg.reachable[index],
            "instructions": [instr.text for instr in block.instrs],
        }
        for index, block in enumerate(cfg.blocks)
    ]
    return {
        "name": kernel.name,
        "is_entry": kernel.is_entry,
        "parameters": [param.text for param in kernel.params or ()],
        "directives": kernel.directives,
        "declarations": [declaration.text for declaration in kernel.declarations],
        "blocks": blocks,
    }


def _selected(module: Module, only: re.Pattern[str] | None) -> list[Kernel]:
    return [kernel for kernel in module.kernels if only is None or only.search(kernel.name)]


def _name(cfg: Cfg, block: int) -> str:
    label = cfg.blocks[block].label
    return label.text if label is not None else f"block {block}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'
