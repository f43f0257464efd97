"""Brace lists of ``mov``: our verifier refuses what ptxas refuses, and accepts what ptxas accepts.

Every list of two elements, and random lists of four, of all kinds of operands; packed, unpacked and copied. The
exceptions are lists that ptxas accepts although they have no meaning (`has_no_meaning`), and lists whose element is a
parameter or a component of a vector register, for which our rules are weaker.
"""

import random
import re

import pytest
from test_table_against_ptxas import HEAD, has_ptxas, not_read, refused

ARCH = "sm_90a"
LITERALS = "7|WARP_SZ|1.5|0f3F800000|0d3FF0000000000000".split("|")
SPECIALS = "%tid.x|%laneid|%clock64|%gridid".split("|")
REGISTERS = "%h1|%r1|%d1|%q1|%f1|%g1|%c1|%hh1|%u1|%s1".split("|")
OTHERS = "_|%p1|%is_explicit_cluster|G|F".split("|")
#: What cannot be a result: a syntax error, after which ptxas reads no further line.
UNWRITTEN = frozenset([*LITERALS, "G", "F"])
ELEMENTS = LITERALS + SPECIALS + REGISTERS + OTHERS
#: The register of the word that is packed or unpacked, and what its halves and quarters are, by the bits of the word.
WORDS: dict[int, tuple[str, list[str], list[str]]] = {
    16: ("%h5", ["%c2", "7", "1.5"], []),
    32: ("%r5", ["%h2", "7", "1.5"], ["%c2", "7", "1.5"]),
    64: ("%d5", ["%r2", "%f2", "%u2", "%tid.y", "%laneid", "7", "0f3F800000"], ["%h2", "7", "1.5"]),
    128: ("%q5", ["%d2", "%g2", "%clock64", "7", "1.5"], ["%r2", "%f2", "%u2", "%tid.y", "%laneid", "7", "0f3F800000"]),
}
TYPED = ".reg .f16x2 %hh<9>; .reg .u32 %u<9>; .reg .s64 %s<9>; .reg .pred"


def lists(rng: random.Random, halves: list[str], quarters: list[str]) -> list[list[str]]:
    pairs = [[first, second] for first in ELEMENTS for second in ELEMENTS]
    fours = [[rng.choice(quarters) for _ in range(4)] for _ in range(60)] if quarters else []
    for four in fours[::2]:
        four[rng.randrange(4)] = rng.choice(ELEMENTS)
    return rng.sample(pairs, 60) + [[half, element] for half in halves for element in ELEMENTS] + fours


def lines(rng: random.Random) -> list[str]:
    """``mov`` instructions with brace lists."""
    drawn: list[str] = []
    for bits, (word, halves, quarters) in WORDS.items():
        for elements in lists(rng, halves, quarters):
            text = f"{{{', '.join(elements)}}}"
            same = f"{{{', '.join([word] * len(elements))}}}"
            forms = [(f"mov.b{bits}", word), (f"mov.v{len(elements)}.b{bits}", same)][: 1 if bits == 128 else 2]
            drawn += [f"{form} {other}, {text};" for form, other in forms]
            if not any(element in UNWRITTEN for element in elements):
                drawn += [f"{form} {text}, {other};" for form, other in forms]
    return list(dict.fromkeys(drawn))


def parts(line: str) -> tuple[str, str]:
    """The text of the result and that of the source, without ``WARP_SZ``."""
    match = re.fullmatch(r"mov\S* (\{.*?\}|[^,]*), (.*);", line.replace("WARP_SZ", "7"))
    assert match is not None
    return match[1], match[2]


def has_no_meaning(line: str) -> bool:
    """Whether ``line`` is of a class that ptxas may accept and we refuse: the list begins with a literal, has a
    predicate, has a special register that is written, or a sink that is read."""
    result, source = parts(line)
    return (
        source.lstrip("{").split(",")[0] in LITERALS
        or "%p1" in line
        or "%is_explicit_cluster" in line
        or re.search("%tid|%laneid|%clock|%gridid", result) is not None
        or "_" in source.replace("%is_explicit_cluster", "")
    )


def is_weaker(line: str) -> bool:
    """Whether we may accept ``line`` although ptxas refuses it: a sink in a vector that is copied, or several literals
    in a list of four that begins with a float literal."""
    _, source = parts(line)
    literals = [element for element in source.strip("{}").split(", ") if element in LITERALS]
    return (line.startswith("mov.v") and "_" in source) or (len(literals) > 1 and source.startswith(("{0f", "{1.5")))


@pytest.mark.skipif(not has_ptxas(), reason="ptxas is not on this machine")
def test_brace_lists_are_those_of_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_table_against_ptxas.HEAD", HEAD.replace(".reg .pred", TYPED))
    drawn = lines(random.Random(5))
    no = {drawn[at + place] for at in range(0, len(drawn), 800) for place in refused(drawn[at : at + 800], ARCH)}
    assert len(drawn) / 20 < len(drawn) - len(no) < len(drawn) / 2
    ours = {line: not_read(line) for line in drawn}
    assert [line for line in no if not ours[line] and not is_weaker(line)] == []
    assert {line: why for line, why in ours.items() if why and line not in no and not has_no_meaning(line)} == {}
