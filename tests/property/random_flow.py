"""Random flow graphs with few variables: any block branches to any block, and every join merges all variables.

The branches of `random_programs` are structured, and its loops have counters of their own. Here blocks fall through,
branch, branch to two labels, use tables, or return, under predicates and words that are the same in all lanes, differ
between lanes, or become different when paths meet. A kernel may run forever.

>>> random_flow(1) == random_flow(1)
True
"""

from __future__ import annotations

import random

__all__ = ["random_flow"]

_WORDS, _PREDICATES = 4, 3


def random_flow(seed: int) -> str:
    """A kernel ``flow`` with a parameter ``k``, for blocks of up to 32 threads."""
    rng = random.Random(f"flow:{seed}")
    blocks = rng.randint(3, 9)
    lines = ["mov.u32 %t, %tid.x;", "ld.param.u32 %k, [k];"]
    lines += [f"mov.u32 %r{number}, {rng.choice(['0', '7', '%k'])};" for number in range(_WORDS)]
    lines += [f"setp.lt.u32 %p{number}, {rng.choice(['%t', '%k', '%k'])}, 3;" for number in range(_PREDICATES)]
    for number in range(blocks):
        lines.append(f"B{number}:")
        lines += [_statement(rng) for _ in range(rng.randint(1, 3))]
        lines += _end(rng, number, blocks)
    body = "\n".join([*lines, "ret;"])
    return f"""\
.version 8.8
.target sm_90
.address_size 64
.visible .entry flow(.param .u32 k)
{{
.reg .pred %p<{_PREDICATES}>;
.reg .b32 %r<{_WORDS}>, %t, %k;
{body}
}}
"""


def _statement(rng: random.Random) -> str:
    word, other = f"%r{rng.randrange(_WORDS)}", f"%r{rng.randrange(_WORDS)}"
    predicate, test = f"%p{rng.randrange(_PREDICATES)}", f"%p{rng.randrange(_PREDICATES)}"
    guard = f"@{rng.choice(['', '!'])}{test} " if rng.random() < 0.2 else ""
    relation, number = rng.choice(["eq", "ne", "lt", "ge"]), rng.randrange(6)
    return guard + rng.choice(
        [
            f"mov.u32 {word}, {number};",
            f"add.u32 {word}, {word}, 1;",
            f"add.u32 {word}, {word}, 1;",
            f"and.b32 {word}, {other}, 3;",
            f"setp.{relation}.u32 {predicate}, {word}, {number};",
            f"setp.{relation}.u32 {predicate}, {word}, {other};",
            f"setp.{relation}.u32 {predicate}, {word}, %k;",
            f"setp.{relation}.u32 {predicate}, %t, {number};",
            f"xor.pred {predicate}, {predicate}, {test};",
            f"selp.u32 {word}, {other}, {number}, {test};",
        ]
    )


def _end(rng: random.Random, number: int, blocks: int) -> list[str]:
    """The last instructions of a block."""
    one, two, three = (f"B{rng.randrange(blocks)}" for _ in range(3))
    guard = f"@{rng.choice(['', '!'])}%p{rng.randrange(_PREDICATES)}"
    choice = rng.random()
    if choice < 0.5:
        return [f"{guard} bra {one};"]
    if choice < 0.65:
        return [f"{guard} bra {one};", f"bra {two};"]
    if choice < 0.75:
        return [f"bra {one};"]
    if choice < 0.83:
        word = f"%r{rng.randrange(_WORDS)}"
        table = f"T{number}: .branchtargets {one}, {two}, {three}, {one};"
        return [table, f"and.b32 {word}, {word}, 3;", f"brx.idx {word}, T{number};"]
    return [f"{guard} ret;"] if choice < 0.93 else []
