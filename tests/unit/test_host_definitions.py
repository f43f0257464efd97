"""The value of a host variable at a launch. The incoming value of a parameter is a definition, too."""

from __future__ import annotations

from typing import Any

import pytest
from ptxmotion import dsl
from ptxmotion.dsl import program_from_text, ptx_source
from ptxmotion.dsl.host_nodes import Launch
from ptxmotion.transforms.kernel_fusion.host_sites import Refusal, Sites

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n) { .reg .u64 %p; ld.param.u64 %p, [x]; st.global.u32 [%p], 7; ret; }
"""


class Settings:
    count = 4


def shape(n: int) -> tuple[int, int]:
    return n, 2


NAMESPACE: dict[str, Any] = {
    **vars(dsl),
    "k": ptx_source(KERNEL, "k"),
    "FOUR": 4,
    "PAIR": (4, 2),
    "settings": Settings(),
    "numbers": [1, 2, 3],
    "shape": shape,
    "min_of_all": max,
}


def sites(body: str) -> tuple[Sites, Any, Launch]:
    """The sites of a program with ``body``, its graph, and its last launch."""
    lines = ["def p(data: host[i32], n: i32, m: i32) -> None:", "    a = allocate(i32, 64)"]
    lines += ["    " + line for line in body.splitlines()]
    program = program_from_text("\n".join([*lines, "    copy(data, a)"]) + "\n", NAMESPACE)
    cfg = program.cfg()
    return Sites(program), cfg, cfg.launches()[-1]


def value(body: str) -> object:
    """The value that the analysis finds for the second argument of the last launch."""
    found, cfg, launch = sites(body)
    return found.value(launch.args[1], launch, cfg)


@pytest.mark.parametrize(
    "body",
    [
        "if n > 8:\n    n = 8\nk[1, 32](a, n)",
        "k[1, 32](a, n)\nn = 8",
        "for i in range(m):\n    k[1, 32](a, n)\n    n = 8",
        "while m > n:\n    n = 3\nk[1, 32](a, n)",
        "for n in range(2):\n    m = 1\nk[1, 32](a, n)",
        "if m > 1:\n    n = read(a, 0)\nk[1, 32](a, n)",
        "if m > 1:\n    n, m = 4, 5\nk[1, 32](a, n)",
        "if m > 1:\n    n += 4\nk[1, 32](a, n)",
        "if m > 1:\n    n = 1\nelse:\n    n = 2\nk[1, 32](a, n)",
    ],
)
def test_a_parameter_with_a_definition_is_not_that_definition(body: str) -> None:
    assert value(body) == "n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("n = 8\nk[1, 32](a, n)", 8),
        ("n = 8\nk[1, 32](a, n)\nn = 9", 8),
        ("n = 8\nn = 9\nk[1, 32](a, n)", 9),
        ("n, n = 1, 2\nk[1, 32](a, n)", "n"),
        ("n, m = 1, 2\nk[1, 32](a, n + m)", 3),
        ("n, m = m, n\nk[1, 32](a, n)", "n"),
        ("v = n + 1\nk[1, 32](a, v)", "n + 1"),
        ("v = n + 1\nn = 4\nk[1, 32](a, v)", "v"),
        ("v = n + 1\nif m > 1:\n    n = 4\nk[1, 32](a, v)", "v"),
        ("v = n + 1\nfor i in range(m):\n    k[1, 32](a, v)\n    n = 4", "v"),
        ("v = n + 1\nfor i in range(m):\n    k[1, 32](a, v)\n    v = n + 2", "v"),
        ("for i in range(m):\n    v = n + i\n    k[1, 32](a, v)", "n + i"),
        ("v = n\nfor n in range(m):\n    k[1, 32](a, v)", "v"),
        ("v = data[0]\nk[1, 32](a, v)", "data[0]"),
        ("v = data[0]\ndata[0] = 3\nk[1, 32](a, v)", "v"),
        ("v = data[0]\ncopy(data, a[0:data.size])\nk[1, 32](a, v)", "v"),
        ("v = FOUR * 2\nk[1, 32](a, v)", 8),
        # A call of a host function may change the attributes of an object.
        ("v = settings.count\nk[1, 32](a, v)", "v"),
        ("k[1, 32](a, settings.count)", "settings.count"),
        ("k[1, 32](a, numbers[1])", "numbers[1]"),
        ("k[1, 32](a, PAIR[1])", 2),
    ],
)
def test_the_value_is_that_of_the_definition_that_reaches_the_launch(body: str, expected: object) -> None:
    assert value(body) == expected


def test_a_variable_hides_a_captured_constant() -> None:
    found, cfg, launch = sites("k[FOUR, 32](a, n)")
    assert found.extents(launch.grid, launch, cfg) == (4, 1, 1)
    program = program_from_text(
        "def p(data: host[i32], FOUR: i32) -> None:\n    a = allocate(i32, 64)\n    k[FOUR, 32](a, FOUR)\n", NAMESPACE
    )
    program.namespace["FOUR"] = 4
    launch = program.cfg().launches()[0]
    assert Sites(program).extents(launch.grid, launch, program.cfg()) == ("FOUR", 1, 1)


@pytest.mark.parametrize(
    "body",
    [
        "g = shape(n)\nk[g, 32](a, n)",
        "g = shape(n)\nh = g\nk[h, 32](a, n)",
        "g = 4\nif n > 1:\n    g = shape(n)\nk[g, 32](a, n)",
        "g = n\nif n > 1:\n    g = PAIR\nk[g, 32](a, n)",
        "k[divmod(n, 2), 32](a, n)",
        "k[PAIR if n > 3 else 4, 32](a, n)",
        "k[data[0], 32](a, n)",
    ],
)
def test_extents_that_may_be_a_tuple_are_refused(body: str) -> None:
    found, cfg, launch = sites(body)
    with pytest.raises(Refusal, match="may be a tuple"):
        found.extents(launch.grid, launch, cfg)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("k[PAIR, 32](a, n)", (4, 2, 1)),
        ("g = n\nfor i in range(g):\n    g = g + i\n    k[g, 32](a, n)", ("g", 1, 1)),
        ("k[(n + 31) // 32, 32](a, n)", ("(n + 31) // 32", 1, 1)),
        ("k[max(n, 1), 32](a, n)", ("max(n, 1)", 1, 1)),
        ("k[int(data[0]), 32](a, n)", ("int(data[0])", 1, 1)),
        ("k[data.size, 32](a, n)", ("data.size", 1, 1)),
        ("k[data.shape[0], 32](a, n)", ("data.shape[0]", 1, 1)),
        ("k[(n, m), 32](a, n)", ("n", "m", 1)),
    ],
)
def test_extents_that_are_numbers_are_accepted(body: str, expected: object) -> None:
    found, cfg, launch = sites(body)
    assert found.extents(launch.grid, launch, cfg) == expected


def test_redefined_min_and_max_are_not_trusted() -> None:
    program = program_from_text(
        "def p(data: host[i32], n: i32) -> None:\n    a = allocate(i32, 64)\n    k[min(n, 4), 32](a, min(n, 4))\n",
        {**NAMESPACE, "min": max},
    )
    launch = program.cfg().launches()[0]
    found = Sites(program)
    assert found.value(launch.args[1], launch, program.cfg()) is None
    with pytest.raises(Refusal):
        found.extents(launch.grid, launch, program.cfg())
