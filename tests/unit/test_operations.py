"""Every row of the opcode table: its operation, the objects that its result may point into, the memory it accesses."""

from __future__ import annotations

import pytest
from ptxmotion.analysis.divergence.varying_bits import OPERATIONS
from ptxmotion.analysis.memory.points_to import Pointees
from ptxmotion.ptx import ROWS, Effect, Op, Operation, Pointers, Touches, decode
from ptxmotion.ptx.operations import BRANCHES, EXITS, LOADS, PLAIN_ACCESSES
from test_ops import reaching

ACCESS = Effect.READ | Effect.WRITE
CARRY = Effect.CARRY_IN | Effect.CARRY_OUT
every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.pattern.split()[0])


def sources(row: Op) -> int:
    """How many operands every instruction of the row reads."""
    return sum(spec.role in ("use", "inout") and not spec.optional for spec in row.operands)


def addresses(row: Op) -> int:
    return sum(spec.role == "addr" for spec in row.operands)


@every_row
def test_a_row_with_effects_names_its_operation(row: Op) -> None:
    if row.effects & ~CARRY:
        assert row.operation is not Operation.UNKNOWN, "analyses and transforms expect the worst of it"


@every_row
def test_rows_that_end_a_block_are_terminators(row: Op) -> None:
    assert (row.operation in BRANCHES | EXITS) == (row.effects & Effect.CONTROL != 0)
    if row.operation is not Operation.CALL:  # the notation of the row does not describe its operands
        mnemonic = reaching(row)
        assert mnemonic is not None
        assert decode(mnemonic).is_terminator == (row.operation in BRANCHES | EXITS)


@every_row
def test_what_a_row_touches(row: Op) -> None:
    if not row.effects & ACCESS:
        assert row.touches is Touches.UNKNOWN, "it touches nothing, as its effects say"
    if row.touches in (Touches.ADDRESS, Touches.SHARED):
        assert addresses(row) == 1
        assert not row.effects & Effect.CONTROL and row.effects & Effect.FENCED != Effect.FENCED
    if row.touches is Touches.SHARED_COPY:
        assert addresses(row) == 2
    if row.touches is Touches.NOTHING:
        assert addresses(row) == 0


@every_row
def test_plain_accesses_have_one_address_and_a_type(row: Op) -> None:
    if row.operation not in PLAIN_ACCESSES:
        return
    assert row.touches is Touches.ADDRESS and addresses(row) == 1 and not row.wildcard
    assert any(piece.name == "type" and not piece.optional for piece in row.pieces)
    reads, writes = row.effects & Effect.READ != 0, row.effects & Effect.WRITE != 0
    assert (reads, writes) == (
        (True, False) if row.operation in LOADS else (False, True) if row.operation is Operation.STORE else (True, True)
    )
    has_result = row.operands[0].role == "def"
    assert has_result == (row.operation in LOADS or row.operation is Operation.ATOMIC)


@every_row
def test_what_a_result_may_point_into(row: Op) -> None:
    rule = row.pointers
    if rule is Pointers.UNKNOWN:
        return
    assert row.operands and row.operands[0].role == "def", "a row without a result needs no rule"
    assert rule in Pointees.RULES
    effects = row.effects & ~CARRY
    if rule is Pointers.LOADED:
        assert effects & Effect.READ and row.touches is Touches.ADDRESS
    elif rule is Pointers.ALLOCATED:
        assert effects & Effect.STATE
    elif rule in (Pointers.NOTHING, Pointers.OTHER_LANE):
        assert effects & ~Effect.CROSS_LANE == 0
    else:
        assert effects == 0, "the sources alone decide what the result is"
    least = {Pointers.SUM: 2, Pointers.DIFFERENCE: 2, Pointers.MASK: 2, Pointers.UNION: 2, Pointers.PRODUCT_SUM: 3}
    if rule in least:
        assert sources(row) == least[rule]
    if rule in (Pointers.ANY_SOURCE, Pointers.OTHER_LANE, Pointers.CONVERSION):
        assert sources(row) >= 1


#: By operation: how many sources each of its rows has, and modifiers with which the operation would be another one.
ARITHMETIC = {
    Operation.SUM: 2,
    Operation.DIFFERENCE: 2,
    Operation.NEGATION: 1,
    Operation.PRODUCT: 2,
    Operation.WIDE_PRODUCT: 2,
    Operation.PRODUCT_SUM: 3,
    Operation.WIDE_PRODUCT_SUM: 3,
    Operation.QUOTIENT: 2,
    Operation.REMAINDER: 2,
    Operation.AND: 2,
    Operation.OR: 2,
    Operation.XOR: 2,
    Operation.NOT: 1,
    Operation.SHIFT_LEFT: 2,
    Operation.SHIFT_RIGHT: 2,
    Operation.BIT_FIELD: 3,
}


@every_row
def test_arithmetic_is_exactly_the_operation(row: Op) -> None:
    """Only the type may vary. With saturation, carries or rounding it would be another function."""
    if row.operation not in ARITHMETIC:
        return
    assert row.operation in OPERATIONS
    assert sources(row) == ARITHMETIC[row.operation] == len(row.operands) - 1
    assert not row.effects and row.divergence == "propagate"
    assert {piece.name for piece in row.pieces} <= {"type", "lo", "wide"}
    types = {word for piece in row.pieces if piece.name == "type" for word in piece.words}
    assert not any(word.startswith(("f", "bf")) for word in types), "floating-point arithmetic rounds"


@every_row
def test_a_copy_has_all_bits_of_its_source(row: Op) -> None:
    if row.operation in (Operation.COPY, Operation.VECTOR_COPY):
        assert len(row.operands) == 2 and not row.effects
        assert {piece.name for piece in row.pieces} <= {"type", "vec"}


@pytest.mark.parametrize(
    ("operation", "mnemonics"),
    [
        (Operation.SUM, ("add.u32", "add.s64")),
        (Operation.UNKNOWN, ("add.sat.s32", "add.cc.u32", "add.f32", "addc.u32", "zap.u32", "add.nonsense")),
        (Operation.LOAD, ("ld.global.nc.v4.f32", "ld.param.u64")),
        (Operation.UNIFORM_LOAD, ("ldu.global.f32",)),
        (Operation.STORE, ("st.global.f32",)),
        (
            Operation.ASYNC_ACCESS,
            ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "cp.async.wait_all"),
        ),
        (Operation.BARRIER, ("bar.sync", "barrier.sync.aligned", "bar.red.popc.u32", "barrier.cta.sync")),
        (Operation.WARP_BARRIER, ("bar.warp.sync",)),
        (Operation.CLUSTER_BARRIER, ("barrier.cluster.arrive",)),
        (Operation.TO_GENERIC, ("cvta.global.u64", "cvta.u64")),
        (Operation.FROM_GENERIC, ("cvta.to.global.u64",)),
        (Operation.CONVERSION, ("cvt.u64.u32", "cvt.rn.f32.s32")),
        (Operation.PACKED_CONVERSION, ("cvt.pack.sat.u16.s32",)),
        (Operation.VOTE, ("vote.sync.ballot.b32", "match.any.sync.b32", "activemask.b32", "redux.sync.add.u32")),
    ],
)
def test_operations_of_some_mnemonics(operation: Operation, mnemonics: tuple[str, ...]) -> None:
    assert [decode(mnemonic).operation for mnemonic in mnemonics] == [operation] * len(mnemonics)
