"""Varying bits compared with lanes: random values that agree with the known bits, for each operation."""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st
from ptxmotion.analysis.divergence.varying_bits import OPERATIONS, Bits, constant, special_registers
from ptxmotion.ptx import ROWS, Operation, decode


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def shift(value: int, count: int, width: int) -> int:
    return value >> min(count, width)


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


class Operands(NamedTuple):
    """The operands of one lane."""

    a: int
    b: int = 0
    c: int = 0


def unsigned_case(compare: Callable[[int, int], bool]) -> Callable[[Operands], int]:
    return lambda v: int(compare(v.a, v.b))


def signed_case(compare: Callable[[int, int], bool]) -> Callable[[Operands], int]:
    return lambda v: int(compare(signed(v.a, 16), signed(v.b, 16)))


#: mnemonic: widths of the operands, width of the result, function that computes it
CASES: dict[str, tuple[tuple[int, ...], int, Callable[[Operands], int]]] = {
    "add.u16": ((16, 16), 16, lambda v: v.a + v.b),
    "sub.u16": ((16, 16), 16, lambda v: v.a - v.b),
    "neg.s16": ((16,), 16, lambda v: -v.a),
    "mul.lo.u16": ((16, 16), 16, lambda v: v.a * v.b),
    "mad.lo.u16": ((16, 16, 16), 16, lambda v: v.a * v.b + v.c),
    "mul.wide.u16": ((16, 16), 32, lambda v: v.a * v.b),
    "mul.wide.s16": ((16, 16), 32, lambda v: signed(v.a, 16) * signed(v.b, 16)),
    "mad.wide.u16": ((16, 16, 32), 32, lambda v: v.a * v.b + v.c),
    "mad.wide.s16": ((16, 16, 32), 32, lambda v: signed(v.a, 16) * signed(v.b, 16) + v.c),
    "div.u16": ((16, 16), 16, lambda v: v.a // v.b if v.b else 0xFFFF),
    "rem.u16": ((16, 16), 16, lambda v: v.a % v.b if v.b else v.a),
    "and.b16": ((16, 16), 16, lambda v: v.a & v.b),
    "or.b16": ((16, 16), 16, lambda v: v.a | v.b),
    "xor.b16": ((16, 16), 16, lambda v: v.a ^ v.b),
    "not.b16": ((16,), 16, lambda v: ~v.a),
    "and.pred": ((1, 1), 1, lambda v: v.a & v.b),
    "shl.b16": ((16, 32), 16, lambda v: v.a << min(v.b, 16)),
    "shr.u16": ((16, 32), 16, lambda v: shift(v.a, v.b, 16)),
    "shr.b16": ((16, 32), 16, lambda v: shift(v.a, v.b, 16)),
    "shr.s16": ((16, 32), 16, lambda v: shift(signed(v.a, 16), v.b, 16)),
    "bfe.u32": ((32, 32, 32), 32, lambda v: (v.a >> (v.b & 255)) & ((1 << min(v.c & 255, 32)) - 1)),
    "cvt.u32.u16": ((16,), 32, lambda v: v.a),
    "cvt.u16.u32": ((32,), 16, lambda v: v.a),
    "cvt.s32.s16": ((16,), 32, lambda v: signed(v.a, 16)),
    "cvt.u32.s8": ((16,), 32, lambda v: signed(v.a & 255, 8)),
    "mov.b16": ((16,), 16, lambda v: v.a),
    "selp.b16": ((16, 16, 1), 16, lambda v: v.a if v.c else v.b),
    **{f"setp.{name}.u16": ((16, 16), 1, unsigned_case(compare)) for name, compare in COMPARISONS.items()},
    **{f"setp.{name}.s16": ((16, 16), 1, signed_case(compare)) for name, compare in COMPARISONS.items()},
    "setp.lo.u16": ((16, 16), 1, lambda v: int(v.a < v.b)),
    "setp.hs.u16": ((16, 16), 1, lambda v: int(v.a >= v.b)),
    "setp.lt.and.u16": ((16, 16, 1), 1, lambda v: int(v.a < v.b) & v.c),
    "setp.gt.or.s16": ((16, 16, 1), 1, lambda v: int(signed(v.a, 16) > signed(v.b, 16)) | v.c),
}


@st.composite
def operand_lanes(draw: st.DrawFn, width: int) -> tuple[Bits, list[int]]:
    """The known bits of an operand, and its value in each of some lanes."""
    mask = (1 << width) - 1
    word = st.one_of(
        st.integers(0, mask),
        st.integers(0, width).map(lambda n: mask >> n),
        st.integers(0, width).map(lambda n: mask << n & mask),
        st.just(0),
    )
    varying = draw(st.one_of(st.just(0), word))
    base = draw(st.one_of(word, st.integers(0, min(mask, 40)), st.integers(0, width - 1).map(lambda n: 1 << n)))
    known = draw(st.one_of(st.just(mask), word)) & ~varying
    lanes = [base & ~varying | draw(st.integers(0, mask)) & varying for _ in range(6)]
    return Bits(varying, known & ~base, known & base), lanes


@given(st.sampled_from(sorted(CASES)), st.data())
def test_what_does_not_vary_is_equal_in_all_lanes(mnemonic: str, data: st.DataObject) -> None:
    widths, width, compute = CASES[mnemonic]
    form = decode(mnemonic)
    drawn = [data.draw(operand_lanes(each)) for each in widths]
    found = OPERATIONS[form.operation](form, [bits for bits, _ in drawn])
    assume(found is not None)
    assert found is not None
    mask = (1 << width) - 1
    results = [compute(Operands(*lane)) & mask for lane in zip(*[lanes for _, lanes in drawn], strict=True)]
    for result in results:
        assert (result ^ results[0]) & ~found.varying == 0, (drawn, found, results)
        assert result & found.zero == 0 and ~result & found.one == 0, (drawn, found, results)
    assert found.varying & (found.zero | found.one) == 0 and found.varying | mask == mask


@given(st.sampled_from(sorted(CASES)), st.data())
def test_uniform_operands_make_uniform_results(mnemonic: str, data: st.DataObject) -> None:
    form = decode(mnemonic)
    operands = [data.draw(operand_lanes(width))[0]._replace(varying=0) for width in CASES[mnemonic][0]]
    found = OPERATIONS[form.operation](form, operands)
    assert found is None or found.varying == 0


def test_every_operation_is_in_the_table_and_in_the_cases() -> None:
    assert set(OPERATIONS) <= {row.operation for row in ROWS}
    assert set(OPERATIONS) == {decode(mnemonic).operation for mnemonic in CASES}


def apply(mnemonic: str, *operands: Bits) -> int:
    form = decode(mnemonic)
    found = OPERATIONS[form.operation](form, list(operands))
    return found.varying if found is not None else -1


def test_the_warp_number_does_not_vary() -> None:
    tid = special_registers((256, 1, 1))["%tid.x"]
    five, all_lanes = constant(5, 32), constant(31, 32)
    assert tid.varying == 31
    assert apply("shr.u32", tid, five) == 0
    assert apply("div.u32", tid, constant(32, 32)) == apply("div.u32", tid, constant(96, 32)) == 0
    assert apply("and.b32", tid, all_lanes) == 31
    assert apply("and.b32", tid, constant(~31, 32)) == 0
    assert apply("rem.u32", tid, constant(64, 32)) == 31
    assert apply("setp.lt.u32", tid, constant(32, 32)) == apply("setp.gt.u32", tid, all_lanes) == 0
    assert apply("setp.lt.s32", tid, constant(64, 32)) == apply("setp.ge.s32", tid, constant(64, 32)) == 0
    assert apply("setp.lt.u32", tid, constant(16, 32)) == 1
    base = Bits(0, 0xFF)  # a multiple of 256
    index = OPERATIONS[Operation.SUM](decode("add.s32"), [base, tid])
    assert index is not None and index.varying == 31
    assert apply("add.s32", Bits(0), tid) == 0xFFFFFFFF  # for an unknown base, since a carry may change all higher bits


def lanes_of(shape: tuple[int, int, int]) -> list[list[tuple[int, int, int]]]:
    x, y, z = shape
    threads = [(n % x, n // x % y, n // (x * y)) for n in range(x * y * z)]
    return [threads[n : n + 32] for n in range(0, len(threads), 32)]


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 3, 6, 12, 20, 48, 96]), st.integers(1, 40), st.integers(1, 9))
def test_thread_indices_vary_as_the_block_shape_says(x: int, y: int, z: int) -> None:
    assume(x * y * z <= 1024)
    known = special_registers((x, y, z))
    for warp in lanes_of((x, y, z)):
        for axis in range(3):
            bits = known[f"%tid.{'xyz'[axis]}"]
            for thread in warp:
                assert (thread[axis] ^ warp[0][axis]) & ~bits.varying == 0, (axis, bits, warp)
                assert thread[axis] & bits.zero == 0


def test_varying_bits_of_thread_indices_for_exact_blocks() -> None:
    def varying(*shape: int) -> list[int]:
        known = special_registers((shape[0], shape[1], shape[2]))
        return [known[f"%tid.{axis}"].varying for axis in "xyz"]

    assert varying(32, 8, 2) == varying(64, 4, 1) == varying(1024, 1, 1) == [31, 0, 0]
    assert varying(100, 1, 1) == [31, 0, 0]
    assert varying(16, 16, 1) == varying(16, 4, 3) == [15, 1, 0]
    assert varying(8, 2, 8) == [7, 1, 1]
    assert varying(48, 2, 3) == [63, 1, 0]
    unknown = special_registers(None)
    assert [unknown[f"%tid.{axis}"].varying for axis in "xyz"] == [1023, 1023, 63]
    assert special_registers(None, 128)["%tid.x"].varying == 127
