"""The table accepts what ptxas accepts: random instructions of every family are given to ptxas and to our reader.

`spellings.txt` describes the families of PTX ISA 9.0 with operands of every kind; many combinations are illegal. An
instruction that ptxas accepts must be read, verified and printed unchanged, and its opcode must be known, except for
the few forms in `KEPT`. Instructions that ptxas refuses are not tested, because its rules are stricter than ours on
purpose.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.ptx.verify import problems
from ptxmotion.toolchain.tools import PtxasError, ToolMissing, assemble, find_tool

SPELLINGS = [
    line for line in (Path(__file__).parent / "spellings.txt").read_text().splitlines() if line and line[0] != "#"
]

#: Without --fuzz-n: the number of draws of each line, which ptxas judges for each of these architectures.
FIXED = 12
ARCHITECTURES = ("sm_100a", "sm_90a", "sm_120a", "sm_103a")

#: Spellings that ptxas accepts, but that are not in the manual. They are opaque: a repeated modifier, a carry of 16
#: bits, and forms that the IR does not have.
KEPT = re.compile(r"\.relu\S*\.relu|^(?:addc|subc)\.u16|^vmad\S* .*[ ,]-%|\]\.unified|^st\S* .*\b_|^st\S* .*[{ ]_")

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.global .align 16 .b8 G[1024]; .const .align 16 .b8 C[1024]; .shared .align 1024 .b8 S[1024];
.global .texref T; .global .surfref U; .global .samplerref M;
.func F(.param .b32 a) { ret; }
.visible .entry k(.param .u64 P, .param .align 64 .b8 TM[128]) {
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %d<9>; .reg .b128 %q<9>; .reg .f32 %f<99>;
.reg .f64 %g<9>; .reg .b8 %c<9>; .local .align 16 .b8 L[64];
"""
#: A function with an error, which ptxas reports after reading all lines. So ptxas never begins to compile.
STOP = ".func stop() { .reg .f32 a; add.s32 a, a, a; }\n"
_LINE = re.compile(r"line (\d+); (?:error|fatal)")


def has_ptxas() -> bool:
    try:
        find_tool("ptxas")
    except ToolMissing:
        return False
    return True


def draw(pattern: str, rng: random.Random) -> str:
    """One of the texts that ``pattern`` describes. The innermost alternatives are chosen first."""
    while "<" in pattern:
        pattern = re.sub(r"<([^<>]*)>", lambda choice: rng.choice(choice[1].split("|")), pattern)
    return pattern.replace("\\", "|")


def refused(lines: Sequence[str], arch: str) -> set[int]:
    """The numbers of the ``lines`` that ptxas does not accept as instructions of one kernel."""
    alive: list[int] = list(range(len(lines)))
    found: set[int] = set()
    while alive:
        body = "\n".join(lines[number] for number in alive)
        text = f"{HEAD.replace('sm_100a', arch)}{body}\nret;\n}}\n{STOP}"
        with pytest.raises(PtxasError) as caught:
            assemble(text, arch, opt_level=0)
        places = {int(place) - HEAD.count("\n") - 1 for place in _LINE.findall(caught.value.log)}
        hit = {alive[place] for place in places if 0 <= place < len(alive)}
        if not hit:
            break
        found |= hit
        alive = [number for number in alive if number not in hit]
    return found


def module_of(line: str) -> str:
    """The text of a module whose kernel has the instruction ``line``."""
    return f"{HEAD}{line}\nret;\n}}\n"


def not_read(line: str) -> str:
    """Why the reader or the verifier refuses ``line``, or an empty string."""
    try:
        module = parse(module_of(line))
    except PtxError as error:
        return error.message
    found = problems(module)
    if found:
        return found[0].message
    printed = print_module(module)
    return "" if print_module(parse(printed)) == printed else "prints differently the second time"


def fault(line: str) -> str:
    """What is wrong with our reading of ``line``, or an empty string."""
    if message := not_read(line):
        return message
    instr = next(parse(module_of(line)).kernel("k").instructions())
    if instr.text.split() != line.split():
        return f"printed as {instr.text}"
    return "unknown to the table" if instr.form.is_opaque and not KEPT.search(line) else ""


@pytest.mark.skipif(not has_ptxas(), reason="ptxas is not on this machine")
def test_what_ptxas_takes_the_table_takes(pytestconfig: pytest.Config) -> None:
    count = int(pytestconfig.getoption("--fuzz-n") or 0)
    rng = random.Random() if count else random.Random(9)
    lines = list(dict.fromkeys(draw(pattern, rng) for pattern in SPELLINGS for _ in range(min(count, 300) or FIXED)))
    accepted: list[str] = []
    rest = lines
    for arch in ARCHITECTURES:
        no = refused(rest, arch)
        accepted += [line for number, line in enumerate(rest) if number not in no]
        rest = [line for number, line in enumerate(rest) if number in no]
    assert len(accepted) > len(lines) / 10
    wrong = {line: fault(line) for line in accepted}
    assert {line: message for line, message in wrong.items() if message} == {}


def test_a_line_that_describes_many_is_drawn_whole() -> None:
    rng = random.Random(1)
    drawn = {draw("a<.b|.c<1|2>><|!> x\\y", rng) for _ in range(100)}
    assert drawn == {f"a{word}{mark} x|y" for word in (".b", ".c1", ".c2") for mark in ("", "!")}
