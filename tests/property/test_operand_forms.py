"""Every form of an operand in every position: if ptxas accepts it, the round trip gives the same machine code.

Instructions of every family (`spellings.txt`) get each operand form in the position of each source. ptxas decides which
of them are valid. Valid ones must be read, verified and printed, and the printed module must give the same code.
`REFUSED` names the forms that ptxas accepts and we refuse.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence

import pytest
from ptxmotion.ptx import Mem, Reg, parse, print_module
from ptxmotion.toolchain.round_trip import sections
from ptxmotion.toolchain.tools import PtxasError, ToolTimeout, assemble
from test_table_against_ptxas import HEAD, SPELLINGS, draw, has_ptxas, module_of, not_read, refused

#: Candidates without --fuzz-n, and candidates in one test case.
FIXED = SHARE = 400
#: What is added to the seed of a share.
SEED = 16
ARCH = "sm_90a"

INTEGERS = (
    "7|-1|0x10|16U|1+2|(3)|~7|!0|- -3|+(4)|-(3)|1<<4|1|(5>3)?7:9|5>3?7:9|(.s64)3|(.u64)-3|7 % 4|3^5&6|WARP_SZ|WARP_SZ+1"
    "|WARP_SZ*2-1|-WARP_SZ|(WARP_SZ)|~WARP_SZ"
).split("|")
FLOATS = (
    "1.5|-1.5|(1.5)|1.0+2.0|-(0.5)|0f3F800000|(0f3F800000)|0d3FF0000000000000|(0d3FF0000000000000)|1.0>0.5"
).split("|")
SPECIALS = "%laneid|%laneid+1|%laneid+(3-5)|%clock64+1|%tid.x|%lanemask_lt+0".split("|")
SYMBOLS = "G|G+8|G+2*4|G+(4)|G+0|G[2]|G[0]|G[WARP_SZ/4]|S+4|S[1]|S+-4|L+4|F".split("|")
OFFSETS = "4|-4|4*2|(4)|~3|8-4|WARP_SZ|(5>3?8:4)|5>3?8:4|0*1|1<<4|4+4|(.u64)-4".split("|")

#: Forms that ptxas accepts and we refuse: `brx.idx %r1+4, table`, and the bits of a float as an integer of `fns`.
REFUSED = re.compile(r"^brx\.idx .*\+|^fns\.b32 .*0[fd]")
#: Texture references cannot be compiled for this target. Lines that use them are read but not compiled.
_REFERENCES = ".global .texref T; .global .surfref U; .global .samplerref M;"
_NAMES_REFERENCE = re.compile(r"\b[TUM]\b")
_LINES = 60
#: The names of the registers that the parser makes for sums such as `%r1+4`.
_SUM = "%sum0"
#: Opcodes of MOV, UMOV, NOP, R2UR and S2UR: moves between registers, and padding.
_COPIES = frozenset([0x002, 0x082, 0x118, 0x0CA, 0x1C2, 0x1C3])
_LOP3 = 0x012


def candidates(rng: random.Random, count: int) -> list[str]:
    """Lines with one source replaced."""
    lines = list(dict.fromkeys(draw(pattern, rng) for pattern in SPELLINGS for _ in range(2)))
    no = refused(lines, ARCH)
    bases = [line for number, line in enumerate(lines) if number not in no]
    assert len(bases) > len(lines) / 20
    found: list[str] = []
    while len(found) < count:
        line = replaced(rng.choice(bases), rng)
        if line:
            found.append(line)
    return list(dict.fromkeys(found))


def replaced(line: str, rng: random.Random) -> str:
    """``line`` with another form of one of its sources; empty if it has no source."""
    instr = next(parse(module_of(line)).kernel("k").instructions())
    sources = list(range(instr.form.dst_count, len(instr.operands)))
    if instr.form.is_opaque or instr.form.op.base == "call" or not sources:
        return ""
    place = rng.choice(sources)
    texts = [operand.text for operand in instr.operands]
    old = instr.operands[place]
    if isinstance(old, Mem):
        texts[place] = texts[place].replace("]", f"+{rng.choice(OFFSETS)}]") if "," not in old.text else old.text
    else:
        forms = [rng.choice(INTEGERS), rng.choice(FLOATS), rng.choice(SPECIALS), rng.choice(SYMBOLS)]
        if isinstance(old, Reg) and old.type.kind in "bus" and old.type.bits <= 64:
            forms.append(f"{old.text}+{rng.choice(OFFSETS)}")
        texts[place] = rng.choice([forms[0], *forms])
    guard = f"{instr.guard.text} " if instr.guard is not None else ""
    return f"{guard}{instr.form.text} {', '.join(texts)};"


def module_text(lines: Sequence[str]) -> str:
    head = HEAD.replace("sm_100a", ARCH).replace(_REFERENCES, "")
    return head + "\n".join(lines) + "\nret;\n}\n"


def code_of(text: str) -> dict[str, bytes] | str:
    """The sections of the cubin, or the error message of ptxas."""
    try:
        return sections(assemble(text, ARCH, opt_level=0, timeout=20).cubin)
    except (PtxasError, ToolTimeout) as error:
        return str(error)


def opcodes(code: dict[str, bytes]) -> Counter[int]:
    """How often each machine opcode occurs, without copies. The opcode is the low nine bits of an instruction of 16
    bytes. Three LOP3 with the table of XOR, one after the other, exchange two registers, which are copies, too."""
    body = code[".text.k"]
    instrs = [body[at : at + 16] for at in range(0, len(body), 16)]
    numbers = [int.from_bytes(instr[:2], "little") & 0x1FF for instr in instrs]
    is_xor = [number == _LOP3 and instr[9] == 0x3C for number, instr in zip(numbers, instrs, strict=True)]
    found: Counter[int] = Counter()
    at = 0
    while at < len(numbers):
        is_exchange = len(is_xor[at : at + 3]) == 3 and all(is_xor[at : at + 3])
        if not is_exchange and numbers[at] not in _COPIES:
            found[numbers[at]] += 1
        at += 3 if is_exchange else 1
    return found


def compared(lines: Sequence[str]) -> tuple[int, list[str]]:
    """How many of ``lines`` ptxas compiles, and the lines whose machine code the round trip changes."""
    text = module_text(lines)
    before = code_of(text)
    if not isinstance(before, str):
        after = code_of(print_module(parse(text)))
        if before == after:
            return len(lines), []
        if len(lines) == 1 and not isinstance(after, str) and _SUM in print_module(parse(text)):
            # `%r1+4` is a separate addition after the round trip. ptxas may use another register for its result.
            return 1, [] if opcodes(before) == opcodes(after) else [f"{lines[0]}: other instructions"]
        if len(lines) == 1:
            return 1, [f"{lines[0]}: {after if isinstance(after, str) else 'other code'}"]
    elif len(lines) == 1:
        return 0, []
    half = len(lines) // 2
    first, second = compared(lines[:half]), compared(lines[half:])
    return first[0] + second[0], first[1] + second[1]


@pytest.mark.skipif(not has_ptxas(), reason="ptxas is not on this machine")
@pytest.mark.fuzz
def test_every_form_comes_back_as_the_same_machine_code(seeds: list[int]) -> None:
    lines = candidates(random.Random(seeds[0] + SEED), len(seeds))
    no = refused(lines, ARCH)
    accepted = [line for number, line in enumerate(lines) if number not in no]
    assert len(accepted) > len(lines) / 5
    faults = {line: not_read(line) for line in accepted}
    assert {line: why for line, why in faults.items() if why and not REFUSED.match(line)} == {}
    sound = [line for line, why in faults.items() if not why and not _NAMES_REFERENCE.search(line)]
    results = [compared(sound[start : start + _LINES]) for start in range(0, len(sound), _LINES)]
    assert [line for _, changed in results for line in changed] == []
    assert sum(compiled for compiled, _ in results) > len(sound) / 2
