"""The control flow graph: every way in which a block ends."""

from ptxmotion.analysis.graph.cfg import BrokenBranch, Cfg, build_cfg
from ptxmotion.graphs import strongly_connected_components
from ptxmotion.ptx import Block, Instr, Label, decode, parse
from pytest import raises

HEAD = (
    ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u32 n)\n{\n"
    ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n"
)


def graph(body: str) -> Cfg:
    return build_cfg(parse(HEAD + body + "\n}\n").kernels[0])


def named(cfg: Cfg) -> dict[str, list[str]]:
    """The successors of each block. A block has the name of its label, or its number if it has none."""
    names = [block.label.text if block.label else str(number) for number, block in enumerate(cfg.blocks)]
    return {names[number]: [names[to] for to in after] for number, after in enumerate(cfg.succ)}


def test_guarded_branch_falls_through_first() -> None:
    cfg = graph("@%p1 bra L2;\nmov.u32 %r1, 1;\nL2:\nret;")
    assert cfg.succ == [[1, 2], [2], []]
    assert cfg.pred == [[], [0], [1, 0]]
    assert cfg.exits == [2]
    assert cfg.rpo == [0, 1, 2]


def test_branch_to_the_next_block_is_one_edge() -> None:
    assert graph("@%p1 bra L1;\nL1:\nret;").succ == [[1], []]


def test_unguarded_branch_and_unreachable_block() -> None:
    cfg = graph("bra L2;\nmov.u32 %r1, 1;\nL2:\nret;")
    assert cfg.succ == [[2], [2], []]
    assert cfg.reachable == [True, False, True]
    assert cfg.pred[2] == [1, 0]


def test_constant_guards_select_one_way() -> None:
    assert graph("@1 bra L2;\nmov.u32 %r1, 1;\nL2:\nret;").succ[0] == [2]
    assert graph("@!1 bra L2;\nmov.u32 %r1, 1;\nL2:\nret;").succ[0] == [1]
    assert graph("@0 ret;\nret;").exits == [1]


def test_guarded_leaving_instructions_also_fall_through() -> None:
    for leave in ("ret", "exit", "trap"):
        cfg = graph(f"@%p1 {leave};\nmov.u32 %r1, 1;\nret;")
        assert cfg.succ == [[1], []], leave
        assert cfg.exits == [0, 1]


def test_falling_off_the_end_is_an_exit() -> None:
    cfg = graph("mov.u32 %r1, 1;")
    assert cfg.succ == [[]]
    assert cfg.exits == [0]


def test_brx_takes_the_targets_of_its_table() -> None:
    cfg = graph("T: .branchtargets A, B,\n A;\nbrx.idx %r1, T;\nA:\nret;\nB:\nbra A;")
    assert named(cfg)["0"] == ["A", "B"]
    cfg = graph("@%p1 brx.idx %r1, T;\nA:\nret;\nB:\nbra A;\nT: .branchtargets B;")
    assert named(cfg)["0"] == ["A", "B"]


def test_equal_names_in_sibling_scopes() -> None:
    cfg = graph(
        "{ T: .branchtargets A, B;\nbrx.idx %r1, T;\nA:\nmov.u32 %r1, 1;\nB:\nmov.u32 %r1, 2;\n}\n"
        "{ T: .branchtargets B, A;\nbrx.idx %r1, T;\nA:\nmov.u32 %r1, 3;\nB:\nmov.u32 %r1, 4;\n}\nret;"
    )
    tables = [number for number, block in enumerate(cfg.blocks) if any(i.form.op.base == "brx" for i in block.instrs)]
    first, second = tables
    assert cfg.succ[first] == [first + 1, first + 2]
    assert cfg.succ[second] == [second + 2, second + 1]


def test_broken_kernels_are_refused() -> None:
    kernel = parse(HEAD + "bra L;\nL:\nret;\n}\n").kernels[0]
    kernel.blocks[1].label = None
    with raises(BrokenBranch, match="label 'L' is not defined: 'bra L;'"):
        build_cfg(kernel)
    kernel = parse(HEAD + "T: .branchtargets A;\nbrx.idx %r1, T;\nA:\nret;\n}\n").kernels[0]
    kernel.blocks[0].instrs = [i for i in kernel.blocks[0].instrs if not i.is_directive]
    with raises(BrokenBranch, match=r"'T' labels no \.branchtargets"):
        build_cfg(kernel)


def test_a_new_label_object_of_the_same_name_is_found() -> None:
    kernel = parse(HEAD + "bra L;\nL:\nret;\n}\n").kernels[0]
    kernel.blocks[0].instrs[-1] = Instr(decode("bra"), (Label("L"),))
    assert build_cfg(kernel).succ == [[1], []]


def test_an_opaque_instruction_that_names_a_label_may_jump_there() -> None:
    cfg = graph("zap.jump L;\nmov.u32 %r1, 1;\nret;\nL:\nret;")
    assert named(cfg)["0"] == ["L"]
    assert [instr.form.text for instr in cfg.unmodelled] == ["zap.jump"]
    assert not graph("zap.u32 %r1, %r2;\nret;").unmodelled


def test_a_call_comes_back() -> None:
    body = "call.uni f, ();\nmov.u32 %r1, 1;\nret;"
    text = HEAD.replace(".visible .entry", ".extern .func f ();\n.visible .entry") + body + "\n}\n"
    cfg = build_cfg(parse(text).kernels[0])
    assert cfg.succ == [[]]


def test_endless_parts_have_one_representative() -> None:
    cfg = graph("@%p1 bra OUT;\nL:\nmov.u32 %r1, 1;\n@%p2 bra L;\nbra L;\nOUT:\nret;")
    latch = cfg.endless
    assert len(latch) == 1 and cfg.blocks[latch[0]].label is None
    assert cfg.leaves == sorted([*latch, len(cfg) - 1])
    assert graph("ret;").endless == []


def test_components_come_before_those_that_reach_them() -> None:
    succ = [[1], [2], [1, 3], [4], [3, 5], []]
    assert strongly_connected_components(succ, range(6)) == [[5], [3, 4], [1, 2], [0]]


def test_reverse_postorder_of_a_long_chain_needs_no_stack() -> None:
    count = 200_000
    cfg = Cfg([Block() for _ in range(count)], [[n + 1] for n in range(count - 1)] + [[]], [count - 1])
    assert cfg.rpo == list(range(count))
