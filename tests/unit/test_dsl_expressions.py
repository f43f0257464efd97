"""Random expressions: the generated C++ has the declared type and the same value as the Python expression."""

import ast
import ctypes
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from ptxmotion.dsl.errors import FunctionSource
from ptxmotion.dsl.functions import signature_of
from ptxmotion.dsl.scope import Scope
from ptxmotion.dsl.statements import translate
from ptxmotion.dsl.types import SCALARS, Scalar
from ptxmotion.dsl.unit import Unit

SEEDS = 300
NAMES = {name: scalar for name, scalar in SCALARS.items() if name != "f16"}
VALUES = {
    "i8": -3,
    "i16": 300,
    "i32": -70000,
    "i64": 1 << 40,
    "u8": 200,
    "u16": 60000,
    "u32": 4000000000,
    "u64": (1 << 63) + 5,
    "f32": 1.5,
    "f64": -2.25,
    "bool": 1,
}

#: The operators in C, for the reference, which has parentheses around every operation.
SPELLED: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "/", ast.Mod: "%", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "&&", ast.Or: "||", ast.Not: "!", ast.USub: "-",
    ast.Invert: "~",
}  # fmt: skip


def expression(rng: random.Random, depth: int, kind: str) -> str:
    """A random expression: ``i`` an integer, ``f`` a float, ``b`` a condition."""
    if depth == 0:
        if kind == "i":
            return rng.choice([*[n for n, s in NAMES.items() if s.is_integer], "3", "0x1F", "2147483648", "-7"])
        return rng.choice(["f32", "f64"]) if kind == "f" else rng.choice(["bool", "i8", "u64"])

    def part(of: str) -> str:
        return expression(rng, depth - 1 if rng.random() < 0.8 else 0, of)

    if kind == "b":
        form = rng.randrange(4)
        if form == 0:
            of = rng.choice("if")
            return f"({part(of)} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {part(of)})"
        if form == 1:
            return f"({part('b')} {rng.choice(['and', 'or'])} {part('b')})"
        return f"(not {part('b')})" if form == 2 else f"({part('i')} != {part('f')})"
    if kind == "f":
        form = rng.randrange(4)
        if form < 2:
            return f"({part('f')} {rng.choice(['+', '-', '*', '/'])} {part(rng.choice('fi'))})"
        return f"(-{part('f')})" if form == 2 else f"({part('f')} if {part('b')} else {part('f')})"
    form = rng.randrange(6)
    if form < 2:
        return f"({part('i')} {rng.choice(['+', '-', '*', '&', '|', '^'])} {part('i')})"
    if form == 2:
        return f"({part('i')} {rng.choice(['<<', '>>'])} ({part('i')} & 7))"
    if form == 3:
        return f"({part('i')} {rng.choice(['//', '%'])} ({part('i')} | 1))"
    return f"({rng.choice('-~')}{part('i')})" if form == 4 else f"({part('i')} if {part('b')} else {part('i')})"


def parenthesized(node: ast.expr) -> str:
    """The tree in C, every node in parentheses."""
    match node:
        case ast.BinOp():
            return f"({parenthesized(node.left)} {SPELLED[type(node.op)]} {parenthesized(node.right)})"
        case ast.BoolOp():
            symbol = SPELLED[type(node.op)]
            return "(" + f" {symbol} ".join(f"bool({parenthesized(value)})" for value in node.values) + ")"
        case ast.Compare():
            return f"({parenthesized(node.left)} {SPELLED[type(node.ops[0])]} {parenthesized(node.comparators[0])})"
        case ast.IfExp():
            return f"({parenthesized(node.test)} ? {parenthesized(node.body)} : {parenthesized(node.orelse)})"
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=2147483648)):
            return "(-2147483647 - 1)"  # written like this, since 2147483648 alone would not be an i32
        case ast.UnaryOp():
            return f"({SPELLED[type(node.op)]} {parenthesized(node.operand)})"
        case ast.Constant():
            # A decimal above 32 bits is `long` on the host, but `long long` in the types of CUDA.
            return f"{node.value}LL" if isinstance(node.value, int) and node.value >= 1 << 31 else str(node.value)
        case ast.Name():
            return f"v_{node.id}"
        case _:
            raise AssertionError(ast.dump(node))


def translated(text: str) -> tuple[str, Scalar]:
    """The C++ of the DSL for an expression with the variables ``v_…``, and its type."""
    params = ", ".join(f"v_{name}: {name}" for name in NAMES)
    renamed = ast.parse(text, mode="eval")
    for node in ast.walk(renamed):
        if isinstance(node, ast.Name):
            node.id = f"v_{node.id}"
    lines = (f"def f({params}) -> None:", f"    value = {ast.unparse(renamed)}")
    tree = ast.parse("\n".join(lines)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    source = FunctionSource("random", 1, lines, 0, tree)
    scope, unit = Scope(translated, NAMES), Unit(translate)
    signature = signature_of(source, scope, "f")
    declared = translate(source, scope, unit, signature, "void f")[1].text.strip()
    type_text, _, value = declared.partition(" value = ")
    found = next(scalar for scalar in NAMES.values() if scalar.cuda == type_text)
    return value.removesuffix(";"), found


@pytest.mark.slow
def test_types_and_values_agree_with_python(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    rng = random.Random(20)
    lines = ["#include <type_traits>", "#include <cstring>"]
    lines += [f"volatile {s.cuda} g_{name} = ({s.cuda}){VALUES[name]}{suffix(s)};" for name, s in NAMES.items()]
    lines += ['extern "C" int check(int at) {', *(f"{s.cuda} v_{name} = g_{name};" for name, s in NAMES.items())]
    lines.append("switch (at) {")
    texts: list[str] = []
    while len(texts) < SEEDS:
        text = expression(rng, 4, rng.choice("iifb"))
        value, type = translated(text)
        want = parenthesized(ast.parse(text, mode="eval").body)
        lines.append(f"case {len(texts)}: {{ auto got = {value}; auto want = {want};")
        lines.append(f'static_assert(std::is_same<decltype(got), {type.cuda}>::value, "");')
        lines.append('static_assert(std::is_same<decltype(got), decltype(want)>::value, "");')
        lines.append("return !std::memcmp(&got, &want, sizeof got); }")
        texts.append(text)
    lines += ["}", "return -1;", "}"]
    source, library = tmp_path / "all.cpp", tmp_path / "all.so"
    source.write_text("\n".join(lines))
    command = [compiler, "-w", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-O0", "-o", library, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    check = ctypes.CDLL(str(library)).check
    assert [texts[at] for at in range(SEEDS) if check(at) != 1] == []
    assert len(set(texts)) > SEEDS * 0.9


def suffix(scalar: Scalar) -> str:
    return {"u64": "ULL", "i64": "LL"}.get(scalar.name, "")
