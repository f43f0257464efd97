"""Every opcode of the table with every modifier of memory order: no pass moves an access across it.

The instruction is made from its row only, so new rows are tested, too. It is between two loads from one address and two
stores to one address, as in `test_adversarial_synchronization`.
"""

from __future__ import annotations

from functools import cache

import pytest
from ladder import transformed
from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.analysis.memory.touched_memory import is_with_outside, synchronization
from ptxmotion.ptx import ROWS, Effect, Form, Op, decode, parse, print_module
from ptxmotion.ptx.notation import OperandSpec
from ptxmotion.ptx.verify import problems
from test_adversarial_synchronization import KERNEL, accesses

SYNCHRONIZING = ("acquire", "release", "acq_rel", "sc")
STRONG = ("volatile", "relaxed", "mmio", *SYNCHRONIZING)
RESTRICT = Promise.parse("restrict")
_TOUCHES = Effect.READ | Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC
#: Opcodes whose operands are labels or functions. They have no such modifier.
_TRANSFERS = frozenset(["bra", "brx", "call", "ret", "exit", "trap"])
_REGISTERS = {"p": "%p9", 16: "%h1", 32: "%r30", 64: "%rd30", 128: "%q1"}


def rows() -> list[Op]:
    """The rows that have such a modifier: in a slot, or among modifiers that are not modelled."""
    return [
        row
        for row in ROWS
        if row.base not in _TRANSFERS
        and (any(piece.name in ("sem", "mmio") for piece in row.pieces) or (row.wildcard and row.effects & _TOUCHES))
    ]


def mnemonic(row: Op, word: str, scope: str) -> str:
    """The shortest spelling of the row with ``word`` and, where there may be one, the scope; empty if it takes no such
    word."""
    taken = {piece.name: piece for piece in row.pieces}
    slot = "mmio" if word == "mmio" else "sem"
    if word and not row.wildcard and (slot not in taken or word not in taken[slot].words):
        return ""
    words = [sorted(piece.words)[0] for piece in row.pieces if not piece.optional and piece.name != "type"]
    if scope and (row.wildcard or "scope" in taken):
        words = [*words, scope]
    if word == "mmio" and "sem" in taken:
        words = ["relaxed", *words]  # as the manual requires
    if word:
        words = [word, *words]
    if "type" in taken and not taken["type"].optional:
        words.append("b32" if "b32" in taken["type"].words else sorted(taken["type"].words)[0])
    return ".".join([row.base, *words])


def operand(form: Form, spec: OperandSpec) -> str:
    if spec.role == "addr":
        return "[%rd2+512]"
    if spec.type == "vec":
        return "{%r29, %r30}"
    scalar = form.operand_type(spec)
    if scalar is None:
        return "%r30"
    return _REGISTERS["p" if scalar.kind == "p" else max(scalar.bits, 16)]


def instruction(row: Op, word: str, scope: str = "sys") -> str:
    """An instruction of this row; nothing if it does not accept the modifier, or if an earlier row matches."""
    text = mnemonic(row, word, scope)
    if not text:
        return ""
    form = decode(text, sum(not spec.optional for spec in row.operands))
    if form.op is not row:
        return ""
    listed = ", ".join(operand(form, spec) for spec in row.operands if not spec.optional)
    return f"{text} {listed};".replace(" ;", ";")


def kernel(between: str) -> str:
    extra = "\t.reg .b16 %h<2>;\n\t.reg .b128 %q<2>;\n\tld.param.u64 %rd1"
    ptx = KERNEL.format(between=between).replace("\tld.param.u64 %rd1", extra, 1)
    return ptx.replace("// here", '.pragma "here";').replace("// there", '.pragma "there";')


def around(ptx: str, passes: str, promise: Promise) -> tuple[list[str], list[str]]:
    text = print_module(transformed(ptx, passes, promise)) if passes else print_module(parse(ptx))
    before, _, rest = text.partition('.pragma "here";')
    return accesses(before), accesses(rest.partition('.pragma "there";')[2])


@cache
def candidates(word: str, scope: str = "sys") -> tuple[tuple[Op, str], ...]:
    """Rows and their instructions with ``word`` that the verifier accepts."""
    found = [(row, text) for row in rows() if (text := instruction(row, word, scope))]
    return tuple((row, text) for row, text in found if not problems(parse(kernel(text))))


def test_the_expected_families_are_tested() -> None:
    """The families that have such modifiers in PTX ISA 9.0 are among the instructions."""
    walked = {row.name for word in STRONG for row, _ in candidates(word)}
    assert walked >= {
        *("ld", "st", "atom.cas", "atom.exch", "atom", "red", "fence", "barrier.cluster"),
        *("multimem.ld_reduce", "multimem.st", "multimem.red", "mbarrier.arrive", "mbarrier.test_wait"),
        *("mbarrier.try_wait", "mbarrier.expect_tx"),
    }


def is_only_read(form: Form) -> bool:
    return form.effects & Effect.READ != 0 and not form.effects & Effect.WRITE


@pytest.mark.parametrize("word", STRONG)
def test_no_load_crosses_a_synchronizing_instruction(word: str) -> None:
    for row, text in candidates(word):
        form = decode(text.partition(" ")[0], sum(not spec.optional for spec in row.operands))
        assert form.effects & Effect.ORDERED, text
        assert synchronization(form), text
        assert word not in SYNCHRONIZING or form.effects & Effect.BARRIER, text
        ptx = kernel(text)
        before, behind = around(ptx, "", CONSERVATIVE)
        for passes in ("lcm:min_cost=0", "srqp"):
            found, left = around(ptx, passes, CONSERVATIVE)
            assert [line for line in left if line.startswith("ld.")] == behind[:3], (text, passes)
            assert [line for line in found if line.startswith("st.")] == before[:2], (text, passes)
        for promise in (CONSERVATIVE, RESTRICT):
            assert around(ptx, "deadstores", promise) == (before, behind), text
        # A barrier of a cluster orders nothing with other grids, whatever its modifier is.
        if "cluster" not in row.name and (word in SYNCHRONIZING or is_only_read(form)):
            # Another grid or the host may have written memory that no thread of this kernel writes.
            assert is_with_outside(form), text
            for passes in ("readonly", "vectormerge:aligned=16", "ssrqp_s"):
                left = around(ptx, passes, RESTRICT)[1]
                assert sum(line.startswith("ld.global") for line in left) == 1, (text, passes)
                assert not any(".nc" in line for line in left), (text, passes)


@pytest.mark.parametrize("word", ["weak", ""])
def test_the_plain_access_orders_nothing(word: str) -> None:
    """The same kernels without such a modifier: the passes do change them, so the test above can fail."""
    merged = 0
    for row, text in candidates(word, ""):
        if row.name not in ("ld", "st"):
            continue
        ptx = kernel(text.replace("%rd2+512", "s+128"))
        left = around(ptx, "srqp", RESTRICT)[1]
        merged += sum(line.startswith("ld.") for line in left) < 3
    assert merged == 2


@pytest.mark.parametrize("word", STRONG)
def test_within_a_block_memory_that_nobody_writes_stays_the_same(word: str) -> None:
    for row, text in candidates(word, "cta"):
        form = decode(text.partition(" ")[0], sum(not spec.optional for spec in row.operands))
        if "cta" in form.text.split(".") and not form.effects & Effect.GRID:
            assert not is_with_outside(form), text
