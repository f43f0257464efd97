"""Random host programs: graph and syntax tree give the same results, and a node that is inserted on an edge runs each
time that the edge is taken.

The walker below interprets only the graph; `Loaded` interprets the tree. The printed text is parsed again.
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import host, i32, program_from_text
from ptxmotion.dsl.host_cfg import HostCfg
from ptxmotion.dsl.host_nodes import Assign, Branch, Expression, LoopInit, LoopNext, Node
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.dsl.run import Loaded

PROGRAMS = 60
NAMESPACE: dict[str, Any] = {"host": host, "i32": i32}


class Nowhere:
    """A machine for programs that launch and allocate nothing."""

    def synchronize(self) -> None:
        pass


class Writer:
    """Writes a random program over the variables a, b, c and the host array ``out``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.loops = 0

    def text(self) -> str:
        head = ["def p(out: host[i32], n: i32) -> None:", "    a = n", "    b = 1", "    c = 2", "    e = 0"]
        body = self.block(1, 0, in_loop=False)
        tail = ["    out[0] = a", "    out[1] = b", "    out[2] = c"]
        return "\n".join([*head, *body, *tail]) + "\n"

    def block(self, depth: int, level: int, *, in_loop: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement(depth, level, in_loop)
        return lines

    def statement(self, depth: int, level: int, in_loop: bool) -> list[str]:
        indent = "    " * depth
        form = self.rng.randrange(10 if level < 3 else 4)
        if form < 3:
            target, one, two = (self.rng.choice("abc") for _ in range(3))
            return [f"{indent}{target} = ({one} * 3 + {two} + {self.rng.randrange(5)}) % 17"]
        if form == 3:
            word = self.rng.choice(["break", "continue", "return"] if in_loop else ["return", "pass"])
            return [f"{indent}if {self.test()}:", f"{indent}    {word}"]
        inner = self.block(depth + 1, level + 1, in_loop=in_loop)
        if form < 7:
            lines = [f"{indent}if {self.test()}:", *inner]
            if form == 5:
                lines += [f"{indent}else:", *self.block(depth + 1, level + 1, in_loop=in_loop)]
            if form == 6:
                lines += [f"{indent}elif {self.test()}:", *self.block(depth + 1, level + 1, in_loop=in_loop)]
            return lines
        self.loops += 1
        counter = f"i{self.loops}"
        inner = self.block(depth + 1, level + 1, in_loop=True)
        if form == 9:
            lines = [
                f"{indent}for {counter} in range({self.rng.randrange(2)}, a % 5, {self.rng.randint(1, 2)}):",
                *inner,
            ]
        else:
            lines = [f"{indent}{counter} = 0", f"{indent}while {counter} < 4 and {self.test()}:"]
            lines += [f"{indent}    {counter} += 1", *inner]
        if self.rng.random() < 0.3:
            lines += [f"{indent}else:", *self.block(depth + 1, level + 1, in_loop=in_loop)]
        return lines

    def test(self) -> str:
        return f"{self.rng.choice('abc')} % {self.rng.randint(2, 3)} == {self.rng.randrange(2)}"


def walked(graph: HostCfg, out: Any, n: int) -> Counter[int]:
    """Run a program by its graph. The result is how often each edge was taken, by its number."""
    passed: Counter[int] = Counter()
    numbers = {id(edge): at for at, edge in enumerate(graph.edges)}
    variables: dict[str, Any] = {"out": out, "n": n}
    ranges: dict[str, Any] = {}
    node: Node = graph.entry
    while node is not graph.exit:
        edges = graph.succs(node)
        taken = edges[0]
        match node:
            case Assign():
                exec(str(node), {}, variables)
            case Branch():
                kind = "true" if eval(node.test.text, {}, variables) else "false"
                taken = next(edge for edge in edges if edge.kind == kind)
            case LoopInit():
                ranges[node.target] = iter(eval(f"range({node.start}, {node.stop}, {node.step})", {}, variables))
            case LoopNext():
                value = next(ranges[node.target], None)
                taken = next(edge for edge in edges if edge.kind == ("false" if value is None else "true"))
                if value is not None:
                    variables[node.target] = value
            case _:
                assert node is graph.entry
        passed[numbers[id(taken)]] += 1
        assert passed.total() < 10**6
        node = taken.target
    return passed


def run(program: HostProgram, n: int) -> list[int]:
    loaded = Loaded(program, Nowhere(), lambda kernel: kernel.ptx())  # pyright: ignore[reportArgumentType]
    return loaded.run({"out": np.full(4, -1, np.int32), "n": n})["out"].tolist()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_graph_tree_and_text_agree(seed: int) -> None:
    rng = random.Random(seed)
    made = program_from_text(Writer(rng).text(), NAMESPACE)
    graph = made.cfg()
    again = program_from_text(made.to_python(), NAMESPACE)
    assert [(str(e.source), e.kind, str(e.target)) for e in again.cfg().edges] == [
        (str(e.source), e.kind, str(e.target)) for e in graph.edges
    ]
    given = [0, 3, 8]
    passages: list[Counter[int]] = []
    results: list[list[int]] = []
    for n in given:
        out = np.full(4, -1, np.int32)
        passages.append(walked(graph, out, n))
        results.append(run(made, n))
        assert out.tolist() == results[-1] == run(again, n)
    chosen = [at for at, edge in enumerate(graph.edges) if not isinstance(edge.source, LoopInit)]
    for at in rng.sample(chosen, min(6, len(chosen))):
        check_insertion(made, at, given, passages, results)


def check_insertion(
    made: HostProgram, at: int, given: list[int], passages: list[Counter[int]], results: list[list[int]]
) -> None:
    """Insert a node that counts in ``out[3]`` how often edge ``at`` is taken, and compare."""
    changed, _ = made.clone()
    edge = changed.cfg().edges[at]
    node = Assign((Expression("out[3]"),), (Expression("out[3] + 1"),))
    changed.insert_on_edge(edge, [node])
    assert [e.target for e in changed.cfg().succs(node)] == [edge.target]
    assert [(e.source, e.kind) for e in changed.cfg().preds(node)] == [(edge.source, edge.kind)]
    printed = program_from_text(changed.to_python(), NAMESPACE)
    for n, passed, result in zip(given, passages, results, strict=True):
        wanted = [*result[:3], passed[at] - 1]
        assert run(changed, n) == wanted
        assert run(printed, n) == wanted
