"""Flow graphs, call graphs and launch graphs as networkx graphs, and as text for other programs.

Requires: verified kernels. networkx is imported when a graph is made.
Guarantees: the same input gives the same graph and text. Every attribute is a string, a number or a truth value, which
all formats can hold.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..analysis.manager import Facts
    from ..dsl.host_cfg import EffectsOf
    from ..dsl.host_program import HostProgram
    from ..ptx import Instr, Kernel, Module

__all__ = ["FORMATS", "call_graph", "flow_graph", "graph_text", "launch_graph"]

FORMATS = ("dot", "graphml", "json")

#: The node of a call graph that stands for functions that the module does not name.
_UNKNOWN_CALLEE = "(unknown)"

#: Gives file, line and column of an instruction in the source; line 0 if it has none.
_PlaceOf = Callable[["Instr"], tuple[str, int, int]]


def flow_graph(facts: Facts, place: _PlaceOf | None = None) -> Any:
    """The control-flow graph of a kernel as a `networkx.DiGraph`, with facts about its blocks.

    A node is ``kernel:block``. Its attributes: ``kernel``, ``block`` (number), ``label``, ``text`` (the instructions),
    ``instructions`` (how many), ``first_line`` and ``last_line`` (0 if ``place`` gives none), ``reachable``,
    ``loop_depth``, ``weight``, ``immediate_dominator`` (a node, or empty), ``divergent_branch`` and ``in_cdrnd``. Of an
    edge: ``kind`` (``fall-through`` or ``branch``), ``back`` (it leads to a dominator) and ``divergent``.
    """
    graph = _directed_graph()
    name, cfg, dominance = facts.kernel.name, facts.cfg, facts.dominance
    for block, code in enumerate(cfg.blocks):
        instrs = [instr for instr in code.instrs if not instr.is_directive]
        lines = [line for instr in instrs for line in ((place(instr)[1],) if place is not None else ()) if line]
        parent = dominance.idom[block]
        graph.add_node(
            f"{name}:{block}",
            kernel=name,
            block=block,
            label=code.label.text if code.label is not None else "",
            text="\n".join(instr.text for instr in instrs),
            instructions=len(instrs),
            first_line=min(lines, default=0),
            last_line=max(lines, default=0),
            reachable=cfg.reachable[block],
            loop_depth=facts.loops.depth[block],
            weight=float(facts.block_weight(block)),
            immediate_dominator=f"{name}:{parent}" if parent >= 0 else "",
            divergent_branch=facts.divergence.is_divergent(block),
            in_cdrnd=facts.divergence.cdrnd[block],
        )
    for block, code in enumerate(cfg.blocks):
        last = code.terminator
        may_fall = last is None or last.guard is not None
        for successor in cfg.succ[block]:
            graph.add_edge(
                f"{name}:{block}",
                f"{name}:{successor}",
                kind="fall-through" if may_fall and successor == block + 1 else "branch",
                back=cfg.reachable[block] and dominance.dominates(successor, block),
                divergent=facts.divergence.is_divergent(block),
            )
    return graph


def call_graph(module: Module, only: Iterable[str] | None = None) -> Any:
    """The call graph of a module as a `networkx.DiGraph`; with ``only``, the part that these functions reach.

    A node is the name of an entry or function. Its attributes: ``kind`` (``entry``, ``function``, or ``external`` for a
    function without a body), ``instructions``, and ``recursive`` (it may call itself, perhaps through others). Of an
    edge: ``calls`` (the number of call instructions) and ``indirect`` (all of them go through a register). A call
    through a register leads to the functions of its ``.calltargets``, otherwise to the node ``(unknown)``.
    """
    from ..ptx.ir import Kernel

    networkx: Any = importlib.import_module("networkx")
    graph = _directed_graph()
    for item in module.items:
        if isinstance(item, Kernel) and (not item.is_declaration or item.name not in graph):
            kind = "entry" if item.is_entry else "external" if item.is_declaration else "function"
            graph.add_node(item.name, kind=kind, instructions=sum(1 for _ in item.instructions()), recursive=False)
    for kernel in module.kernels:
        for callee, is_indirect in _callees(kernel):
            if callee not in graph:
                graph.add_node(callee, kind="external", instructions=0, recursive=False)
            found = graph.get_edge_data(kernel.name, callee, {"calls": 0, "indirect": True})
            is_indirect = is_indirect and found["indirect"]
            graph.add_edge(kernel.name, callee, calls=found["calls"] + 1, indirect=is_indirect)
    for component in networkx.strongly_connected_components(graph):
        for name in component:
            graph.nodes[name]["recursive"] = len(component) > 1 or graph.has_edge(name, name)
    if only is None:
        return graph
    kept = set(only)
    return graph.subgraph(kept.union(*(networkx.descendants(graph, name) for name in kept)))


def launch_graph(program: HostProgram, effects: EffectsOf) -> Any:
    """The graph of a host program as a `networkx.DiGraph`: launches, copies, branches and other statements.

    A node is ``n0``, ``n1``, … in the order of the program text. Its attributes: ``kind`` (the class of the statement,
    such as ``Launch``), ``text``, ``line`` (0 if unknown), ``reads`` and ``writes`` (device buffers, separated by
    commas); of launches also ``kernel``, ``grid`` and ``block``. Of an edge: ``kind`` (``next``, ``true``, ``false``).
    """
    from ..dsl.host_nodes import Launch

    graph = _directed_graph()
    cfg = program.cfg(effects)
    names = {node: f"n{number}" for number, node in enumerate(cfg.nodes)}
    for node, name in names.items():
        access = cfg.access(node)
        graph.add_node(
            name,
            kind=type(node).__name__,
            text=str(node),
            line=node.place.line if node.place is not None else 0,
            reads=", ".join(sorted(access.reads)),
            writes=", ".join(sorted(access.writes)),
        )
        if isinstance(node, Launch):
            graph.nodes[name].update(kernel=node.kernel.name, grid=node.grid.text, block=node.block.text)
    for edge in cfg.edges:
        graph.add_edge(names[edge.source], names[edge.target], kind=edge.kind)
    return graph


def graph_text(graphs: Iterable[Any], form: str) -> str:
    """All of ``graphs``, whose nodes differ, as one text of a format of `FORMATS`.

    ``dot`` is for Graphviz. ``json`` is the node-link format, which `networkx.node_link_graph` reads.
    """
    networkx: Any = importlib.import_module("networkx")
    graph = networkx.compose_all([_directed_graph(), *graphs])
    if form == "json":
        return json.dumps(networkx.node_link_data(graph, edges="edges"), indent=1) + "\n"
    if form == "graphml":
        return "\n".join(networkx.generate_graphml(graph)) + "\n"
    return _dot(graph)


def _directed_graph() -> Any:
    networkx: Any = importlib.import_module("networkx")
    return networkx.DiGraph()


def _callees(kernel: Kernel) -> Iterable[tuple[str, bool]]:
    """The name of the function that each call leads to, and whether the call goes through a register."""
    from ..ptx.instructions import Directive
    from ..ptx.operands import Label, Sym

    targets: dict[str, list[str]] = {}
    for instr in (instr for block in kernel.blocks for instr in block.instrs):
        if isinstance(instr, Directive) and instr.kind == "calltargets" and instr.label is not None:
            targets[instr.label.text] = [name.strip() for name in instr.payload.partition(" ")[2].split(",")]
    for instr in kernel.instructions():
        if not instr.form.is_call:
            continue
        callee, *rest = instr.operands[1:]
        if isinstance(callee, Sym):
            yield callee.name, False
            continue
        table = rest[-1].text if rest and isinstance(rest[-1], Label) else ""
        for name in targets.get(table, [_UNKNOWN_CALLEE]):
            yield name, True


#: How an edge is drawn, by the value of its ``kind`` or of an attribute that is true.
_EDGE_STYLES = {
    "fall-through": "style=dashed",
    "divergent": "color=red",
    "indirect": "style=dotted",
    "back": "penwidth=2",
}


def _dot(graph: Any) -> str:
    lines = ["digraph {", '  node [shape=box, fontname="monospace", fontsize=9];']
    for name, attributes in graph.nodes(data=True):
        lines.append(f"  {_quoted(name)} [label={_quoted(_label(name, attributes), is_label=True)}];")
    for source, target, attributes in graph.edges(data=True):
        styles = [_EDGE_STYLES[key] for key, value in attributes.items() if value is True and key in _EDGE_STYLES]
        kind = attributes.get("kind", "")
        if kind in _EDGE_STYLES:
            styles.append(_EDGE_STYLES[kind])
        elif kind in ("true", "false"):
            styles.append(f'label="{kind}"')
        if attributes.get("calls", 1) > 1:
            styles.append(f'label="{attributes["calls"]}"')
        shown = f" [{', '.join(styles)}]" if styles else ""
        lines.append(f"  {_quoted(source)} -> {_quoted(target)}{shown};")
    return "\n".join([*lines, "}", ""])


def _label(name: str, attributes: dict[str, Any]) -> str:
    """The text in the box of a node."""
    if "block" in attributes and "weight" in attributes:
        label = attributes["label"]
        return "\n".join([f"{name}{f'  {label}' if label else ''}", attributes["text"], ""])
    if "text" in attributes:
        return attributes["text"]
    return f"{name}\n{attributes['kind']}, {attributes['instructions']} instructions"


def _quoted(text: str, *, is_label: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped.replace(chr(10), chr(92) + ("l" if is_label else "n"))}"'
