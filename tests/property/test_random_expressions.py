"""Constant expressions in random programs, random expressions compared with ptxas, and expressions with a missing
token.
"""

import random
import re
from io import BytesIO

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from mutate import change_token
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import PtxError, parse, print_module
from ptxmotion.ptx.constants import ConstantError, constant_literal
from ptxmotion.ptx.types import TYPES, literal_bits
from ptxmotion.ptx.verify import problems
from ptxmotion.toolchain.tools import assemble
from ptxmotion.transforms.pipeline import run_passes
from random_expressions import drawn, of_value, with_expressions, with_offsets
from random_programs import RandomProgram, random_kernel
from test_table_against_ptxas import has_ptxas

needs_ptxas = pytest.mark.skipif(not has_ptxas(), reason="ptxas is not on this machine")

#: Without --fuzz-n: programs, expressions in one module for ptxas, expressions that lose a token.
FIXED, SHARE = 20, 10
EXPRESSIONS = 400
MUTANTS = 2000

_TOKEN = re.compile(r"\s*(\(\s*\.[su]64\s*\)|<<|>>|<=|>=|==|!=|&&|\|\||[\w.$]+|.)")
#: A literal in a printed instruction.
_PRINTED = re.compile(r"(?<![\w%$.])-?\d\w*")
_BODY = ".reg .u32 %r<9>; .reg .u64 %rd<9>; .reg .pred %p<3>; .shared .align 4 .u32 tab[16];"
_HEAD = f".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {{ {_BODY}\n"
#: The places of an expression that loses a token; ``{}`` is the expression.
_PLACES = (
    "mov.u32 %r1, {};|add.u32 %r1, %r2, {};|ld.global.u32 %r1, [%rd1+{}];|mov.u32 %r1, tab[{}];|mov.u32 %r1, tab+{};"
    "|st.shared.v2.u32 [tab+{}], {{{}, {}}};|mov.u32 %r1, %laneid+{};|mov.u32 %r1, %r2+{};|setp.eq.u32 %p1, {}, %r1;"
).split("|")


def number_of(config: pytest.Config, fixed: int) -> tuple[random.Random, int]:
    count = int(config.getoption("--fuzz-n") or 0)
    return (random.Random(), max(count, fixed)) if count else (random.Random(2), fixed)


@pytest.mark.fuzz
def test_programs_with_expressions_are_the_programs_without(seeds: list[int]) -> None:
    replaced = 0
    for seed in seeds:
        plain = random_kernel(seed, 60).ptx
        text = with_expressions(plain, random.Random(seed))
        replaced += text != plain
        module = parse(text)
        assert problems(module) == [], seed
        assert canonical(print_module(module)) == canonical(print_module(parse(plain))), seed
    assert replaced > len(seeds) // 2


def canonical(text: str) -> str:
    """``text`` with numbers of 2^63 and more replaced by the negative numbers with the same bits."""
    return re.sub(r"\b\d{19,20}\b", lambda number: str((int(number[0]) + (1 << 63)) % (1 << 64) - (1 << 63)), text)


@pytest.mark.fuzz
def test_programs_with_offsets_equal_those_without(seeds: list[int]) -> None:
    """Sources ``%r1`` are written as ``%t+c``, where ``%t`` is ``%r1 - c``. Compared before and after the passes."""
    replaced = 0
    for seed in seeds:
        drawn = random_kernel(seed, 60)
        text = with_offsets(drawn.ptx, random.Random(seed))
        replaced += text.count("%less")
        module = parse(text)
        assert problems(module) == [], seed
        assert not any(instr.form.is_opaque for kernel in module.kernels for instr in kernel.instructions())
        run_passes(module, "O3")
        results = [outputs(drawn, each, seed) for each in (drawn.ptx, text, print_module(module))]
        for other in results[1:]:
            for one, two in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(one, two, err_msg=f"seed {seed}")
    assert replaced > 10 * len(seeds)


def outputs(drawn: RandomProgram, text: str, seed: int) -> list[np.ndarray]:
    args = drawn.make_inputs(seed)
    Emulator().load(text).launch(drawn.kernel, drawn.grid, drawn.block, args, drawn.shared)
    return [np.asarray(args[index]) for index in drawn.outputs]


@needs_ptxas
@pytest.mark.fuzz
def test_values_are_those_of_ptxas(pytestconfig: pytest.Config) -> None:
    rng, count = number_of(pytestconfig, EXPRESSIONS)
    bits: dict[str, int] = {}
    while len(bits) < min(count, 20_000):
        text = drawn(rng, rng.choice([1, 2, 3, 4]))
        try:
            bits[text] = literal_bits(constant_literal(text), TYPES["u64"])
        except ConstantError as error:
            assert "division by zero" in str(error), text
    values = ", ".join(bits)
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    source = f"{head}.visible .global .align 8 .u64 a[{len(bits)}] = {{{values}}};\n"
    elf = ELFFile(BytesIO(assemble(source, "sm_90").cubin))
    section = elf.get_section_by_name(".nv.global.init")
    assert section is not None
    data = section.data()
    found = [int.from_bytes(data[8 * n : 8 * n + 8], "little") for n in range(len(bits))]
    wrong = {text: hex(value) for (text, ours), value in zip(bits.items(), found, strict=True) if ours != value}
    assert wrong == {}


@pytest.mark.fuzz
def test_an_expression_of_a_value_has_it(pytestconfig: pytest.Config) -> None:
    rng, count = number_of(pytestconfig, MUTANTS)
    for _ in range(count):
        value = rng.choice([0, 1, -1, 7, 1 << 40, rng.randrange(-(1 << 62), 1 << 62)])
        text = of_value(value, rng, 3)
        assert literal_bits(constant_literal(text), TYPES["u64"]) == value % (1 << 64), text


@pytest.mark.fuzz
def test_no_token_is_lost(pytestconfig: pytest.Config) -> None:
    """If tokens are removed, repeated or swapped, the instruction is refused or printed with the value of its new
    text."""
    rng, count = number_of(pytestconfig, MUTANTS)
    taken = 0
    for _ in range(count):
        place = rng.choice(_PLACES)
        tokens = _TOKEN.findall(drawn(rng, 2))
        change_token(tokens, rng)
        text = " ".join(tokens)
        try:
            module = parse(f"{_HEAD}{place.replace('{}', text).replace('{{', '{').replace('}}', '}')}\n}}\n")
        except PtxError:
            continue
        instrs = list(module.kernel("k").instructions())
        shown = " ".join(instr.text for instr in instrs)
        if any(instr.form.is_opaque for instr in instrs):
            assert text in shown
            continue
        value = literal_bits(constant_literal(text), TYPES["u64"]) * (4 if "tab[" in place else 1) % (1 << 64)
        left = {literal_bits(number, TYPES["u64"]) for number in _PRINTED.findall(shown)}
        is_plain = text.strip("() ") == "WARP_SZ" or (value == 0 and "tab[" in place)
        assert value in left or is_plain, (place, text, shown)
        taken += 1
    assert taken > count // 20
