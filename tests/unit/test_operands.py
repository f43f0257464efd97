"""Every class of operands: its parts, and copies of it with other parts."""

from __future__ import annotations

from typing import get_args

import pytest
from ptxmotion.ptx import (
    TYPES,
    Args,
    Element,
    Imm,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    Raw,
    Reg,
    Sink,
    Special,
    Sym,
    Vec,
    map_parts,
    registers,
    substitute,
    walk,
)
from ptxmotion.ptx.operands import SINK

R, S, T = Reg("%r1", TYPES["b32"]), Reg("%r10", TYPES["b32"]), Reg("%t", TYPES["b32"])
V = Reg("%v", TYPES["f32"], 4)
P = Reg("%p", TYPES["pred"])
TABLE = Sym("table", None, 4)

#: An operand of each class, its text, and the text with %r1 replaced by %t.
EXAMPLES: list[tuple[Operand, str, str]] = [
    (R, "%r1", "%t"),
    (Element(V, "x"), "%v.x", "%v.x"),
    (Special("%tid.x", TYPES["u32"]), "%tid.x", "%tid.x"),
    (Imm(-1), "-1", "-1"),
    (TABLE, "table+4", "table+4"),
    (Label("L"), "L", "L"),
    (Mem(R, 8, (S, Vec((R, SINK)))), "[%r1+8, %r10, {%r1, _}]", "[%t+8, %r10, {%t, _}]"),
    (Mem(R, 0, has_zero=True), "[%r1+0]", "[%t+0]"),
    (Mem(TABLE), "[table+4]", "[table+4]"),
    (Vec((R, S)), "{%r1, %r10}", "{%t, %r10}"),
    (Args((R, Imm(2), TABLE)), "(%r1, 2, table+4)", "(%t, 2, table+4)"),
    (Pair(R, Pair(S, P)), "%r1|%r10|%p", "%t|%r10|%p"),
    (Not(R), "!%r1", "!%t"),
    (SINK, "_", "_"),
    (Raw("%r1, %r10, -%r1", (R, S)), "%r1, %r10, -%r1", "%t, %r10, -%t"),
]
each_example = pytest.mark.parametrize(("operand", "text", "changed"), EXAMPLES, ids=lambda value: str(value)[:20])


def test_every_class_has_an_example() -> None:
    assert {type(operand) for operand, _, _ in EXAMPLES} == set(get_args(Operand))


@each_example
def test_an_operand_is_built_again_of_its_parts(operand: Operand, text: str, changed: str) -> None:
    assert operand.text == text
    assert map_parts(operand, lambda part: part) is operand
    if operand.parts:
        again = operand.with_parts(operand.parts)
        assert type(again) is type(operand) and again.text == text and again.parts == operand.parts
    else:
        with pytest.raises(TypeError):
            operand.with_parts(())


@each_example
def test_registers_of_operands_are_substituted(operand: Operand, text: str, changed: str) -> None:
    new = substitute(operand, {R: T})
    assert new.text == changed
    assert (new is operand) == (R not in registers(operand))
    assert substitute(operand, {}) is operand
    assert T in registers(new) or new is operand


@each_example
def test_walk_meets_every_name_of_the_text(operand: Operand, text: str, changed: str) -> None:
    met = list(walk(operand))
    assert met[0] is operand
    assert all(part.text in text for part in met)
    assert tuple(part for part in met if isinstance(part, Reg)) == registers(operand)
    assert ("table" in text) == any(isinstance(part, Sym) for part in met)


@pytest.mark.parametrize(
    ("operand", "replaced", "message"),
    [
        (Element(V, "x"), {V: Imm(1)}, "'1' is no vector register"),
        (Not(P), {P: TABLE}, "'table+4' cannot be a predicate"),
        (Mem(R), {R: SINK}, "'_' cannot be an address"),
    ],
)
def test_a_part_that_cannot_stand_in_its_place(
    operand: Operand, replaced: dict[Operand, Operand], message: str
) -> None:
    with pytest.raises(TypeError, match=message.replace("+", r"\+")):
        substitute(operand, replaced)


def test_sinks_are_one_object() -> None:
    assert isinstance(SINK, Sink) and registers(SINK) == ()
