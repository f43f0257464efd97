"""What `Divisors` says about the lowest bits of values holds in every execution.

Behind each definition in a random program, code is inserted that ends the kernel with ``trap`` if a bit that is said to
be 0 is not. Two parameters are promised to be multiples of powers of two, and are. `--fuzz-n=N` uses N new programs.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.analysis.values.divisors import Divisors
from ptxmotion.emulator import Emulator, EmulatorFault
from ptxmotion.ptx import Instr, parse
from ptxmotion.ptx.verify import problems
from random_programs import RandomProgram, random_kernel

FIXED, SHARE = 32, 8
SIZES = (12, 20, 35, 60)
#: What the parameters ``k0`` and ``k1`` are multiples of.
PROMISED = {"k0": 4, "k1": 16}
_DECLARED = ".reg .b16 %low16; .reg .b32 %low32; .reg .b64 %low64; .reg .pred %is_wrong;"


def checked(ptx: str) -> tuple[str, int]:
    """The program with checks, and the number of bits that they check."""
    module = parse(ptx)
    kernel = module.kernel("fuzz")
    promise = Promise(aligned=frozenset(("fuzz", name, divisor) for name, divisor in PROMISED.items()))
    facts = Facts(kernel, module)
    divisors = Divisors(facts, promise)
    inserted: dict[int, list[str]] = defaultdict(list)
    bits = 0
    for instr in kernel.instructions():
        zeros = lowest_zeros(instr, facts, divisors)
        if zeros:
            bits += zeros
            (reg,) = instr.defs()
            width = reg.type.bits
            mask = (1 << zeros) - 1 if zeros < 64 else -1
            inserted[module.source.line_column(instr.pos)[0]] += [
                f"\tand.b{width} %low{width}, {reg.text}, {mask};",
                f"\tsetp.ne.b{width} %is_wrong, %low{width}, 0;",
                "\t@%is_wrong trap;",
            ]
    lines: list[str] = []
    for number, line in enumerate(ptx.split("\n"), 1):
        lines += [line, *inserted.get(number, ())]
    head, entry, body = "\n".join(lines).partition(".visible .entry")
    return head + entry + body.replace("{\n", f"{{\n{_DECLARED}\n", 1), bits


def lowest_zeros(instr: Instr, facts: Facts, divisors: Divisors) -> int:
    """How many of the lowest bits of the only result are said to be 0. A guarded instruction may keep an old value."""
    defs = instr.defs()
    if instr.is_directive or instr.guard is not None or len(defs) != 1:
        return 0
    (reg,) = defs
    if reg.type.kind not in "usb" or reg.type.bits not in (16, 32, 64) or reg.lanes != 1:
        return 0
    number = facts.values.number[facts.ssa.defined(instr, reg)]
    return min(divisors.of(number).bit_length() - 1, reg.type.bits)


def faults(drawn: RandomProgram, text: str, seed: int) -> list[str]:
    """The findings of the program, with parameters that keep the promise."""
    args = drawn.make_inputs(seed)
    for place, divisor in zip((4, 5), PROMISED.values(), strict=True):
        args[place] = np.uint32(int(args[place]) // divisor * divisor)  # type: ignore[call-overload]
    try:
        result = Emulator().load(text).launch(drawn.kernel, drawn.grid, drawn.block, args, drawn.shared)
    except EmulatorFault as fault:
        return [str(fault)]
    return [str(finding) for finding in result.findings if finding.kind == "trap"]


@pytest.mark.fuzz
def test_bits_that_are_said_to_be_zero_are_zero(seeds: list[int]) -> None:
    bits = 0
    for seed in seeds:
        drawn = random_kernel(seed, SIZES[seed % len(SIZES)])
        text, count = checked(drawn.ptx)
        bits += count
        assert problems(parse(text)) == [], seed
        assert faults(drawn, text, seed) == [], seed
    assert bits > 20 * len(seeds)


def test_a_wrong_number_of_bits_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Divisors.of

    def twice(self: Divisors, number: int) -> int:
        return 2 * right(self, number)

    monkeypatch.setattr(Divisors, "of", twice)
    noticed = 0
    for seed in range(8):
        drawn = random_kernel(seed, 20)
        noticed += bool(faults(drawn, checked(drawn.ptx)[0], seed))
    assert noticed >= 6
