"""How often a host program launches: the formulas of examples, and the counts of random programs that run."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import host, i32, program_from_text, ptx_source
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.dsl.run import Loaded
from ptxmotion.programs.launch_counts import count_launches
from ptxmotion.transforms.kernel_fusion.loop_inversion import inverted, invertible
from test_dsl_host_random import Writer

EMPTY = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
NAMESPACE: dict[str, Any] = {"host": host, "i32": i32, "k": ptx_source(EMPTY, "k"), "TWO": 2}


def program(body: str) -> HostProgram:
    lines = [f"    {line}" for line in body.splitlines()]
    return program_from_text("\n".join(["def p(out: host[i32], n: i32) -> None:", *lines, ""]), NAMESPACE)


class LaunchesOnly:
    """A machine that counts launches and does nothing else."""

    name = "counter"

    def __init__(self) -> None:
        self.launches = 0

    def load(self, ptx: str) -> "LaunchesOnly":
        return self

    def kernel(self, name: str) -> str:
        return name

    def launch(self, *launch: object) -> None:
        self.launches += 1

    def synchronize(self) -> None:
        pass


def launches(made: HostProgram, n: int) -> int:
    machine = LaunchesOnly()
    loaded = Loaded(made, machine, lambda kernel: kernel.ptx())  # pyright: ignore[reportArgumentType]
    loaded.run({"out": np.zeros(4, np.int32), "n": n})
    return machine.launches


L = "k[1, 1]()"


@pytest.mark.parametrize(
    ("body", "formula"),
    [
        ("m = n", "0"),
        (f"{L}\n{L}", "2"),
        (f"for i in range(100):\n    {L}\n    {L}", "200"),
        (f"for i in range(n):\n    {L}\n    {L}\n{L}", "2·n + 1"),
        (f"for i in range(n - 1):\n    {L}", "(n - 1)"),
        (f"for i in range(1, n):\n    {L}", "len(range(1, n))"),
        (f"for i in range(n):\n    for j in range(TWO):\n        {L}", "2·n"),
        (f"for i in range(n):\n    for j in range(n):\n        {L}", "n·n"),
        (f"for i in range(n):\n    for j in range(i):\n        {L}", "n3"),
        (f"m = n\nwhile m > 0:\n    {L}\n    m = m // 2", "n3"),
        (f"m = 8\nwhile m > 0:\n    {L}\n    m = m // 2", "4"),
        (f"for i in range(10):\n    if i % 3 == 0:\n        {L}", "4"),
        (f"for i in range(10):\n    if i == 4:\n        break\n    {L}\nelse:\n    {L}", "4"),
        (f"for i in range(10):\n    if i == n:\n        break\n    {L}", "0 to 10"),
        (f"if n > 3:\n    {L}\n{L}", "1 to 2"),
        (f"if n > 3:\n    return\n{L}", "0 to 1"),
        (f"m = 1\nfor i in range(n):\n    m = m + 1\nif m == 1:\n    {L}", "0 to 1"),
        (f"for i in range(n):\n    if i > 2:\n        return\n    {L}\n{L}", "0 to n + 1"),
        (f"m = 2\nwhile n > 0:\n    if n > 3:\n        break\nelse:\n    m = 3\nif m == 3:\n    {L}", "0 to 1"),
    ],
)
def test_numbers_of_launches_are_formulas(body: str, formula: str) -> None:
    found = count_launches(program(body))
    assert str(found) == formula
    assert found.number == (int(formula) if formula.isdigit() else None)
    assert ("n3" in formula) == ("iterations of the loop at line 3 in one call" in found.explained)


def test_an_inverted_loop_has_the_formula_of_the_loop() -> None:
    made = program(f"{L}\nfor i in range(n):\n    {L}\n    {L}\nm = n\nwhile m > 0:\n    m = m - 1\n    {L}")
    other = inverted(made, frozenset(invertible(made)))
    assert "while True" in other.to_python()
    assert str(count_launches(other, made)) == str(count_launches(made)) == "2·n + n7 + 1"


def test_arguments_make_the_count_a_number() -> None:
    made = program(f"for i in range(n):\n    {L}\nif n > 4:\n    {L}")
    assert str(count_launches(made)) == "n to n + 1"
    assert [count_launches(made, arguments={"n": n}).number for n in (0, 4, 5)] == [0, 4, 6]


def with_launches(rng: random.Random) -> HostProgram:
    """A random program in which some assignments are launches."""
    lines = Writer(rng).text().splitlines()
    for at, line in enumerate(lines):
        if " * 3 + " in line and rng.random() < 0.5:
            lines[at] = line[: len(line) - len(line.lstrip())] + L
    return program_from_text("\n".join(lines) + "\n", NAMESPACE)


def value(formula: Mapping[tuple[Any, ...], int], n: int) -> int:
    total = 0
    for product, factor in formula.items():
        for symbol in product:
            assert symbol.text == "n"
            factor *= n
        total += factor
    return total


def test_random_programs_launch_as_often_as_counted() -> None:
    exact = bounded = 0
    for seed in range(300):
        made = with_launches(random.Random(seed))
        inside_out = inverted(made, frozenset(invertible(made)))
        for n in (0, 3, 8):
            wanted = launches(made, n)
            for each in (made, inside_out):
                known = count_launches(each, made, {"n": n})
                if known.number is not None:
                    exact += 1
                    assert known.number == wanted, each.to_python()
            found = count_launches(made)
            symbols = [each.text for formula in (found.least, found.most) for product in formula for each in product]
            if all(text == "n" for text in symbols):
                bounded += 1
                assert value(found.least, n) <= wanted <= value(found.most, n), (n, str(found), made.to_python())
    assert exact > 1600 and bounded > 400
