"""Every opcode of the table with every semantics modifier: what no pass may take across it.

The instruction is made from the row alone, so that a row that is added is held to the same rules. It stands between
two loads of one place and two stores to one place, as in `test_adversarial_synchronization`.
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
#: Their operands are labels or functions, and they take no such modifier.
_TRANSFERS = frozenset(["bra", "brx", "call", "ret", "exit", "trap"])
_REGISTERS = {"p": "%p9", 16: "%h1", 32: "%r30", 64: "%rd30", 128: "%q1"}


def rows() -> list[Op]:
    """The rows that have such a modifier: by a slot, or among words that are not modelled."""
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
        words = ["relaxed", *words]  # as the manual has it
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
    """An instruction of this row, or nothing where the row does not take the word or another row comes first."""
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
    """Rows and their instructions with ``word``, as far as the verifier takes them."""
    found = [(row, text) for row in rows() if (text := instruction(row, word, scope))]
    return tuple((row, text) for row, text in found if not problems(parse(kernel(text))))


def test_the_table_is_walked() -> None:
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
def test_nothing_crosses(word: str) -> None:
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
        # A barrier of a cluster orders nothing with other grids, whatever word stands behind.
        if "cluster" not in row.name and (word in SYNCHRONIZING or is_only_read(form)):
            # Somebody outside may have written what no thread of this kernel writes.
            assert is_with_outside(form), text
            for passes in ("readonly", "vectormerge:aligned=16", "ssrqp_s"):
                left = around(ptx, passes, RESTRICT)[1]
                assert sum(line.startswith("ld.global") for line in left) == 1, (text, passes)
                assert not any(".nc" in line for line in left), (text, passes)


@pytest.mark.parametrize("word", ["weak", ""])
def test_the_plain_access_orders_nothing(word: str) -> None:
    """The same kernels without such a modifier, so that the test above is known to see something."""
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
