"""The estimate of register pressure, compared with values counted by hand."""

from ptxmotion.analysis.graph.cfg import build_cfg
from ptxmotion.analysis.values.liveness import Liveness
from ptxmotion.analysis.values.pressure import Pressure, Units, units
from ptxmotion.ptx import TYPES, Reg, parse

HEAD = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n.reg .pred %p<4>;\n"
    ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
)


def pressure(body: str) -> Pressure:
    return Pressure(Liveness(build_cfg(parse(HEAD + body + "\n}\n").kernels[0])))


def test_the_sizes_of_registers() -> None:
    sizes = {name: units(Reg("%x", TYPES[name])) for name in ("b16", "b32", "f64", "b128", "pred")}
    assert [size.words for size in sizes.values()] == [1, 1, 2, 4, 0]
    assert sizes["pred"].predicates == 1
    assert units(Reg("%v", TYPES["f32"], 4)).words == 4


def test_two_sums_that_meet() -> None:
    found = pressure(
        "ld.param.u32 %r1, [n];\nld.param.u32 %r2, [n];\nadd.u32 %r3, %r1, %r2;\nadd.u64 %rd1, %rd2, 1;\nret;"
    )
    # %r1 and %r2 are live above the sum, %rd2 is live in the whole block
    assert found.of_block(0) == Units(4, 0)


def test_a_result_that_nobody_reads_takes_a_register() -> None:
    assert pressure(
        "ld.param.u32 %r1, [n];\nmov.u64 %rd1, 0;\nst.global.u32 [%rd1], %r1;\nmov.u64 %rd3, 1;\nret;"
    ).maximum == Units(3, 0)


def test_guards_count_as_predicates_and_keep_the_old_value() -> None:
    found = pressure("setp.eq.u32 %p1, %r1, 0;\n@%p1 mov.u32 %r2, 1;\nst.global.u32 [%rd1], %r2;\nret;")
    assert found.maximum == Units(4, 1)


def test_blocks_differ_and_unreachable_ones_are_empty() -> None:
    found = pressure(
        "mov.u64 %rd1, 0;\nmov.u64 %rd2, 0;\nadd.u64 %rd3, %rd1, %rd2;\nbra L;\nadd.u32 %r1, %r2, 1;\nL:\nret;"
    )
    assert [found.of_block(block) for block in range(3)] == [Units(4, 0), Units(0, 0), Units(0, 0)]
