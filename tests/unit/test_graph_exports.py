"""The graphs of `analyze --graph`: nodes, edges and facts, in each format."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx
import pytest
from ptxmotion import load, parse
from ptxmotion.analysis.manager import Facts
from ptxmotion.cli import main
from ptxmotion.programs.graph_exports import call_graph, flow_graph
from ptxmotion.ptx import flatten_scopes

ROOT = Path(__file__).resolve().parents[2]
FIGURES = str(ROOT / "tests" / "ptx" / "divergence" / "thesis_figures.ptx")
CALLS = str(ROOT / "tests" / "ptx" / "syntax_calls.ptx")
nx: Any = networkx

TABLE = """
.version 8.0
.target sm_80
.address_size 64
.func three(.param .u32 x);
.func one(.param .u32 x) { ret; }
.func two(.param .u32 x) { .param .u32 y; call one, (y); call three, (y); ret; }
.func three(.param .u32 x) { .param .u32 y; call two, (y); ret; }
.func self(.param .u32 x) { .param .u32 y; call self, (y); ret; }
.visible .entry k(.param .u64 callee)
{
    .reg .u64 %f;
    .param .u32 x;
    ld.param.u64 %f, [callee];
    some: .calltargets one, two;
    call %f, (x), some;
    call one, (x);
    call one, (x);
    ret;
}
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["analyze", *arguments, "--no-config"]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def test_a_flow_graph_agrees_with_the_facts() -> None:
    module = load(FIGURES)
    for kernel in module.kernels:
        flatten_scopes(kernel)
        facts = Facts(kernel, module)
        graph = flow_graph(facts)
        assert len(graph) == len(facts.cfg)
        start = f"{kernel.name}:0"
        dominators = {node: parent for node, parent in nx.immediate_dominators(graph, start).items() if node != start}
        for node, attributes in graph.nodes(data=True):
            assert attributes["immediate_dominator"] == (dominators.get(node) or "")
            assert attributes["reachable"] == (node == start or nx.has_path(graph, start, node))
            assert attributes["in_cdrnd"] == facts.divergence.cdrnd[attributes["block"]]
            ends = facts.divergence.is_divergent(attributes["block"])
            assert attributes["divergent_branch"] == ends
            assert all(edge["divergent"] == ends for edge in graph[node].values())
        backs = [edge for edge in graph.edges if graph.edges[edge]["back"]]
        graph.remove_edges_from(backs)
        assert nx.is_directed_acyclic_graph(graph) or any(loop.is_irreducible for loop in facts.loops.loops)
        assert {f"{kernel.name}:{loop.header}" for loop in facts.loops.loops} >= {target for _, target in backs}


def test_the_call_graph_has_all_functions() -> None:
    graph = call_graph(load(CALLS))
    assert {name: attributes["kind"] for name, attributes in graph.nodes(data=True)} == {
        "vprintf": "external",
        "stop": "function",
        "both": "function",
        "calls": "entry",
        "(unknown)": "external",
    }
    assert graph.edges["calls", "(unknown)"]["indirect"] and not graph.edges["calls", "both"]["indirect"]
    found = call_graph(parse(TABLE))
    edges = {edge: (found.edges[edge]["calls"], found.edges[edge]["indirect"]) for edge in found.edges if "k" in edge}
    assert edges == {("k", "one"): (3, False), ("k", "two"): (1, True)}
    assert {name for name in found if found.nodes[name]["recursive"]} == {"two", "three", "self"}
    assert set(call_graph(parse(TABLE), ["three"])) == {"one", "two", "three"}


def test_one_of_several_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "several.py"
    lines = [f"@program\ndef {name}(n: i32) -> None:\n    {name}_n = n\n" for name in ("one", "two")]
    file.write_text("from ptxmotion.dsl import *\n" + "".join(lines))
    assert main(["analyze", str(file), "--graph=launches", "--no-config"]) == 2
    assert "choose one with --program: one, two" in capsys.readouterr().err
    assert "two_n = n" in printed(capsys, str(file), "--graph=launches", "--program=two")


def test_the_launch_graph_of_a_host_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work.py").write_text(
        "from ptxmotion.dsl import *\n"
        "TEXT = '.version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k(.param .u64 x) {"
        " .reg .u64 %a; ld.param.u64 %a, [x]; st.global.u32 [%a], 1; ret; }'\n"
        "k = ptx_source(TEXT, 'k')\n"
        "@program\n"
        "def work(data: host[i32], n: i32) -> None:\n"
        "    a = allocate(i32, n)\n"
        "    if n > 4:\n"
        "        k[n, (32, 2)](a)\n"
        "    copy(data, a)\n"
    )
    text = printed(capsys, str(tmp_path / "work.py"), "--graph=launches", "--format=json")
    graph = nx.node_link_graph(json.loads(text), edges="edges")
    launches = [attributes for _, attributes in graph.nodes(data=True) if attributes["kind"] == "Launch"]
    assert launches == [
        {
            "kind": "Launch",
            "text": "k[n, (32, 2)](a)",
            "line": 8,
            "reads": "",
            "writes": "a",
            "kernel": "k",
            "grid": "n",
            "block": "(32, 2)",
        }
    ]
    assert sorted(attributes["kind"] for _, _, attributes in graph.edges(data=True)) == ["false", *["next"] * 4, "true"]


@pytest.mark.parametrize("form", ["graphml", "json"])
@pytest.mark.parametrize(("file", "kind"), [(FIGURES, "cfg"), (CALLS, "calls"), (CALLS, "cfg")])
def test_formats_can_be_read_again(file: str, kind: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, file, f"--graph={kind}", f"--format={form}")
    if form == "json":
        again = nx.node_link_graph(json.loads(text), edges="edges")
    else:
        again = nx.read_graphml(io.BytesIO(text.encode()))
    module = load(file)
    if kind == "calls":
        wanted = call_graph(module)
    else:
        for kernel in module.kernels:
            flatten_scopes(kernel)
        graphs = [flow_graph(Facts(kernel, module)) for kernel in module.kernels]
        wanted = nx.compose_all(graphs)
        for node in wanted:
            for name in ("first_line", "last_line"):
                wanted.nodes[node][name] = again.nodes[node][name]
    assert again.nodes(data=True) == wanted.nodes(data=True)
    assert {(a, b): data for a, b, data in again.edges(data=True)} == {
        (a, b): data for a, b, data in wanted.edges(data=True)
    }


def test_graphs_are_printed_for_graphviz(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, FIGURES, "--kernel=4_11", "--graph=cfg")
    assert '  "figure_4_11:5" [label="figure_4_11:5  n4\\l@%p2 bra n6;\\l"];\n' in text
    assert '  "figure_4_11:5" -> "figure_4_11:6" [color=red, style=dashed];\n' in text
    assert '  "figure_4_11:10" -> "figure_4_11:3" [penwidth=2];\n' in text
    text = printed(capsys, CALLS, "--graph=calls", "--kernel=^calls$")
    assert '"calls" -> "(unknown)" [style=dotted];' in text and "vprintf" not in text


def test_the_text_does_not_depend_on_hashes() -> None:
    command = ["analyze", FIGURES, "--no-config", "--graph=cfg"]
    forms = ("graphml", "json", "dot")
    program = f"from ptxmotion.cli import main\nfor form in {forms}: assert main([*{command}, '--format=' + form]) == 0"
    outputs: set[str] = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        child = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(child.stdout)
    assert len(outputs) == 1 and "digraph" in outputs.pop()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graph=cfg", "--memory"], "--graph prints a graph and no report: leave out --memory"),
        (["--graph=cfg", "--json"], "leave out --emit"),
        (["--format=dot"], "--format is an option of --graph"),
        (["--graph=cfg", "--program=x"], "--program is an option of --graph=launches"),
        (["--graph=launches", "--kernel=x"], "--graph=launches shows a host program: leave out --kernel"),
    ],
)
def test_wrong_usage_of_graph_has_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", FIGURES, *arguments, "--no-config"]) == 2
    assert message in capsys.readouterr().err
    assert main(["analyze", FIGURES, "--graph=launches", "--no-config"]) == 3
    assert "a host program is a .py file" in capsys.readouterr().err
