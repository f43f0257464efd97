"""The verifier: its errors, the inputs that it accepts, and the invariants of the IR that a pass could break."""

import pytest
from ptxmotion.ptx import TYPES, Block, Instr, Label, Module, PtxError, Reg, decode, parse
from ptxmotion.ptx.ir import RegisterDeclaration
from ptxmotion.ptx.operands import Imm
from ptxmotion.ptx.verify import falls_off_end, problems, verify, verify_kernel

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
DECLARATIONS = """
.global .align 16 .b8 g[64];
.const .align 16 .b8 c[64];
.func (.param .b32 r) f(.param .b32 a, .param .b64 b) { ret; }
.visible .entry k(.param .u64 p, .param .u32 q) {
.shared .align 16 .b8 s[64];
.local .align 16 .b8 l[64];
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .u32 %u<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
.reg .f64 %fd<4>; .reg .b128 %q<2>; .reg .v4 .f32 %v;
"""


def check(body: str) -> list[str]:
    return [error.message for error in problems(parse(f"{HEAD}{DECLARATIONS}{body}\nret;\n}}\n"))]


ACCEPTED = """
add.s32 %r0, %u1, -1;
mov.b32 %f0, 0f3F800000; mov.b32 %r0, 0f3F800000; mov.b64 %rd0, 1.0; mov.f32 %f0, 1.5; mov.f32 %f0, 0d3FF0000000000000;
mov.u32 %r0, %tid.x; mov.u16 %h0, %tid.x; cvt.u64.u32 %rd0, %laneid; mov.u32 %r0, WARP_SZ; add.s32 %r0, %r0, WARP_SZ;
mov.u64 %rd0, g; mov.u32 %r0, s; mov.u64 %rd0, g+4; mov.u64 %rd0, p; cvta.global.u64 %rd0, g; mov.u64 %rd0, f;
mov.b64 %rd0, {%r0, %r1}; mov.b64 {%r0, _}, %rd0; mov.b32 %r0, {%h0, %h1}; mov.b128 %q0, {%rd0, %rd1};
mov.b64 %fd0, {%f0, %f1}; mov.b64 %rd0, {%r0, %tid.x}; mov.b64 %rd0, {%laneid, 7}; mov.b32 %r0, {%h0, -1};
mov.b128 %q0, {%clock64, %rd0}; mov.v2.u32 {%r0, %r1}, {%tid.x, %r2}; mov.v4.b32 {%r0, %r1, %r2, _}, %tid;
mov.v2.f32 {%f0, _}, {0f3F800000, %f1}; mov.b64 %rd0, {0f3F800000, %f0}; mov.b128 %q0, {%r0, 7, %laneid, %r1};
ld.global.u8 %r0, [g+3]; ld.global.u8 %rd0, [%rd1+-1]; ld.shared.f32 %r0, [s]; ld.u32 %r0, [l]; ld.param.u64 %rd0, [p];
ld.global.v4.f32 {%f0, %f1, _, %f3}, [g]; ld.global.v4.f32 %v, [%rd0]; mov.f32 %f0, %v.x; ld.global.u32 {%r0}, [g];
ld.global.L2::cache_hint.u32 %r0, [g], %rd0; ld.local.u32 %r0, [0];
st.shared.v2.u32 [%r0], {%r1, 7}; st.global.u8 [%rd0], %r1; st.global.b32 [%rd0], 0f3F800000;
setp.lt.s32 %p0|%p1, %r0, 3; setp.lt.and.f32 _|%p0, %f0, 0f00000000, !%p1; selp.f32 %f0, %f1, 0f00000000, %p0;
@!%p0 add.s32 %r0, %r0, 1; and.pred %p0, %p1, !%p2; mov.pred %p0, 1;
cvt.u16.u32 %r0, %r1; cvt.rn.f16.f32 %h0, %f0; cvt.rn.f16x2.f32 %r0, %f0, %f1;
mul.wide.u32 %rd0, %r0, 8; mad.wide.s32 %rd0, %r0, 4, %rd1; shl.b64 %rd0, %rd1, %r0;
shfl.sync.idx.b32 %r0|%p0, %r1, 0, 31, -1; atom.global.add.u32 _, [g], 1; bar.red.popc.u32 %r0, 0, %p0;
bar.red.popc.u32 %r0, 0, 64, !%p0; bar.sync 0; bar.sync 0, 64; lop3.or.b32 %r0|%p0, %r0, %r1, %r2, 3, %p1;
zap.u32 anything, [goes], {here};
mapa.u64 %rd0, s, %r1; mapa.shared::cluster.u32 %r0, s+4, 1; getctarank.shared::cluster.u32 %r0, s;
st.global.v8.b32 [%rd0], {%r0, _, %r1, %r2, _, %r3, 1, 2}; st.global.v4.b64 [%rd0], {%rd1, _, %rd2, %rd3};
ld.global.b32 %r0, [%rd0+4].unified;
tex.grad.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}|%p0, [%rd0, %rd1, {%f0, %f1}], {%f0, %f1}, {%f2, %f3}, {%r0, %r1}, %f0;
""".strip().splitlines()


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepts_what_ptxas_accepts(line: str) -> None:
    assert check(line) == []


REFUSED = [
    ("add.s32 %r0, %r1;", "'add.s32' takes 3 operands, not 2"),
    ("mapa.u64 %rd0, g, %r1;", "'g' is in state space .global, not .shared"),
    ("st.global.v4.b32 [%rd0], {%r0, _, %r1, %r2};", "the sink '_' in '{%r0, _, %r1, %r2}' cannot be read"),
    ("add.s32 %r0, %r1, 1, 2;", "'add.s32' takes 3 operands, not 4"),
    ("ld.global.u32 %r0, [g], %rd0;", "'ld.global.u32' takes 2 operands, not 3"),
    ("bar.sync 0, 32, 32;", "'bar.sync' takes 1 or 2 operands, not 3"),
    ("exit %r0;", "'exit' takes no operands, not 1"),
    ("add.s32 %r0, %f1, 1;", "'%f1' is a .f32 register, 'add.s32' takes .s32 here"),
    ("add.f32 %f0, %r1, %u0;", "'%u0' is a .u32 register, 'add.f32' takes .f32 here"),
    ("add.f32 %f0, %f0, 1;", "the literal '1' is no .f32"),
    ("add.s32 %r0, %r0, 1.5;", "the literal '1.5' is no .s32"),
    ("add.s32 %r0, %r0, 0x1FFFFFFFFFFFFFFFF;", "'0x1FFFFFFFFFFFFFFFF' is no literal of 64 bits or less"),
    ("mov.f32 %f0, 0f3F8;", "'0f3F8' is no literal of 64 bits or less"),
    ("add.s32 4, %r0, 1;", "'4' cannot be written"),
    ("mov.u32 %tid.x, 1;", "'%tid.x' cannot be written"),
    ("add.s32 _, %r0, 1;", "the result of 'add.s32' cannot be thrown away"),
    ("add.s32 %r0, _, 1;", "the sink '_' cannot be read"),
    ("mov.u64 %rd0, %tid.x;", "special register '%tid.x' is 32 bits wide, 'mov.u64' takes .u64 here"),
    ("add.s32 %r0, %tid.x, 1;", "special register '%tid.x' can only be read by 'mov' and 'cvt', not by 'add.s32'"),
    ("add.s64 %rd0, %rd0, g;", "'g' is the name of a variable; 'mov' puts its address into a register"),
    ("add.s32 %r0|%r1, %r0, 1;", "'add.s32' has only one result, not '%r0|%r1'"),
    ("add.s32 %r0, [g], 1;", "'[g]' is an address, 'add.s32' takes .s32 here"),
    ("add.s32 %r0, {%r0, %r1}, 1;", "'add.s32' takes no vector here"),
    ("add.s32 %r0, %r1, !%p0;", "'!%p0' is a predicate, 'add.s32' takes .s32 here"),
    ("mul.wide.u32 %r0, %r1, %r2;", "'%r0' is a .b32 register, 'mul.wide.u32' takes .u64 here"),
    ("selp.b32 %r0, %r1, %r2, %r3;", "'%r3' is a .b32 register, 'selp.b32' takes .pred here"),
    ("setp.eq.s32 %r0, %r1, %r2;", "'%r0' is a .b32 register, 'setp.eq.s32' takes .pred here"),
    ("ld.global.u32 %r0, %rd0;", "'ld.global.u32' takes an address in brackets here, not '%rd0'"),
    ("ld.global.u32 %h0, [g];", "'%h0' is a .b16 register, 'ld.global.u32' takes .u32 here"),
    ("ld.shared.u32 %r0, [g];", "'ld.shared.u32' accesses state space .shared, but '[g]' is in state space .global"),
    ("ld.u32 %r0, [c];", "'ld.u32' accesses generic addresses, but '[c]' is in state space .const"),
    ("st.global.u32 [p], %r0;", "'st.global.u32' accesses state space .global, but '[p]' is in state space .param"),
    ("ld.global.u32 %r0, [%f0];", "the address '[%f0]' is of type .f32"),
    ("ld.global.u32 %r0, [f];", "'[f]' is a function's address, not one of data"),
    ("ld.global.u32 %r0, [16];", "the address '[16]' is a literal, which only state space .local allows"),
    (
        "ld.global.v2.u32 {%r0, %r1, %r2}, [g];",
        "'ld.global.v2.u32' takes a vector of 2 elements here, '{%r0, %r1, %r2}' has 3",
    ),
    ("ld.global.v2.u32 %r0, [g];", "'ld.global.v2.u32' takes a vector of 2 elements here, not '%r0'"),
    ("ld.global.u32 {%r0, %r1}, [g];", "'ld.global.u32' takes one element here, '{%r0, %r1}' has 2"),
    ("ld.global.v2.b32 {%r0, %rd0}, [g];", "the elements of '{%r0, %rd0}' are not of the same width"),
    ("st.global.v2.b32 [g], {%u0, %f0};", "'{%u0, %f0}' mixes integers and floating-point values"),
    ("mov.b64 %rd0, {%h0, %h1};", "the elements of '{%h0, %h1}' are 16 bits wide, which does not make .b64"),
    ("mov.b64 %rd0, {7, %tid.x};", "'{7, %tid.x}' has an integer literal and a component of a special register"),
    ("mov.b64 %rd0, {%tid.x, 7};", "'{%tid.x, 7}' has a component of a special register and an integer literal"),
    ("mov.b64 %rd0, {%u0, 1.5};", "'{%u0, 1.5}' has an integer and a floating-point literal"),
    ("mov.b64 %rd0, {%f0, 7};", "'{%f0, 7}' has a floating-point value and an integer literal"),
    ("mov.b64 %rd0, {7, 1.5};", "'{7, 1.5}' has an integer literal and a floating-point literal"),
    ("mov.b64 %rd0, {1.5, 1.5};", "a literal in '{1.5, 1.5}' is not 32 bits wide"),
    ("mov.b64 %rd0, {%r0, %clock64};", "a special register in '{%r0, %clock64}' is not 32 bits wide"),
    ("mov.b64 %rd0, {%r0, g};", "an element of '{%r0, g}' is no register, literal, or special register"),
    ("mov.b64 %rd0, {%r0, !%p0};", "an element of '{%r0, !%p0}' is no register, literal, or special register"),
    ("mov.b64 {%r0, %laneid}, %rd0;", "an element of '{%r0, %laneid}' cannot be written"),
    ("mov.b64 {_, _}, %rd0;", "'{_, _}' has no register to write"),
    ("mov.b128 %q0, {7, 7, 7};", "'mov.b128' packs or unpacks 2 or 4 elements, '{7, 7, 7}' has 3"),
    (
        "mov.v2.b32 {%r0, %rd1}, {%r0, %r1};",
        "an element of '{%r0, %rd1}' is a .b64 register, 'mov.v2.b32' takes .b32 here",
    ),
    ("mov.v4.b64 {%rd0, %rd1, %rd2, %rd3}, {%rd0, %rd1, %rd2, %rd3};", "'mov.v4.b64' copies more than 128 bits"),
    ("mov.v4.b32 {%r0, %r1}, %tid;", "'mov.v4.b32' takes a vector of 4 elements here, '{%r0, %r1}' has 2"),
    ("mov.u64 %rd0, {%r0, %r1};", "'mov.u64' cannot pack or unpack '{%r0, %r1}': only types .b16 to .b128 can"),
    ("call (%r0), f, (%r1);", "'f' takes 2 arguments, not 1"),
    ("call f, (%r1, %rd0);", "'f' returns 1 result, not 0"),
    ("call k, (%rd1, %r1);", "'k' is an entry, which cannot be called"),
    ("call (%r0), %rd0, (%r1);", "the call through register '%rd0' has no prototype"),
    ("call (%r0), f, (%rd1, %rd0);", "'%rd1' has 8 bytes, where 4 are wanted, and is passed to 'f'"),
    ("call (%r0), f, (g, %rd0);", "'g' is in state space .global, not .param: it cannot be passed to 'f'"),
    ("P: .callprototype _ (.param .b32 _); call %rd0, (%r0, %r1), P;", "'%rd0' takes 1 argument, not 2"),
    ("T: .branchtargets A; brx.idx %f0, T; A:", "'%f0' is a .f32 register, 'brx.idx' takes .u32 here"),
    ("brx.idx %r0, A; A:", "'A' is not the label of a '.branchtargets'"),
    ("T: .branchtargets A; A: bra T;", "label 'T' is not the start of a block of 'k'"),
    (".reg .bf16 %b;", "a register cannot have type .bf16"),
    (".reg .b32 %z<99999999999>;", "a range of 99999999999 registers cannot be declared"),
    (".shared .align 3 .b8 odd[4];", "'odd': the alignment 3 is no power of two"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=[line for line, _ in REFUSED])
def test_refuses_with_this_message(line: str, message: str) -> None:
    assert check(line) == [message]


def test_message_has_place_line_and_caret() -> None:
    text = f"{HEAD}.visible .entry k() {{\n.reg .b32 %r<3>;\n    @!p1 mov.u32 %r1, 2;\n}}\n".replace("@!p1 ", "")
    text = text.replace("mov.u32 %r1, 2", "add.s32 %r1, %r2")
    with pytest.raises(PtxError) as caught:
        verify(parse(text, "a.ptx"))
    assert str(caught.value).splitlines() == [
        "a.ptx:6:5: error: 'add.s32' takes 3 operands, not 2",
        "      add.s32 %r1, %r2;",
        "      ^",
    ]


def test_caret_points_at_the_operand() -> None:
    module = parse(
        f"{HEAD}.visible .entry k() {{\n.reg .b32 %r<3>; .reg .f32 %f<3>;\nadd.s32 %r1, %r2, %f1;\n}}\n", "a"
    )
    assert str(problems(module)[0]).splitlines()[0].startswith("a:6:19: error: '%f1'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the module has no '.version'; is this PTX?"),
        ("// nothing\n", "the module has no '.version'; is this PTX?"),
        (".version 9.0\n", "the module has no '.target'"),
        (".version 99.0\n.target sm_90\n", "unknown version 99.0"),
        (".version 3.9\n.target sm_20\n", "unknown version 3.9"),
        (".version 9.0\n.target sm_999\n", "unknown target 'sm_999'"),
        (".version 9.0\n.target sm_90, fast\n", "unknown target 'fast'"),
        (".version 9.0\n.target sm_90\n.address_size 16\n", "the address size is 32 or 64, not 16"),
        (HEAD + ".global .u32 a[];", "'a' has no size and is not '.extern'"),
        (HEAD + ".global .pred a;", "'a' is a predicate, which only a register can be"),
        (HEAD + ".visible .entry k(.reg .u32 a) { ret; }", "parameter 'a' of an entry must be in state space .param"),
        (
            HEAD + ".func f(.param .u32 a); .func f() { ret; }",
            "'f' has 0 parameters here and 1 where it was declared first",
        ),
    ],
)
def test_problems_of_a_module(text: str, message: str) -> None:
    assert message in [error.message for error in problems(parse(text))]


@pytest.mark.parametrize("version", ["1.4", "3.2", "6.5", "7.8", "8.8", "9.0", "9.5"])
@pytest.mark.parametrize("target", ["sm_20", "sm_75", "sm_90a", "sm_100f, debug", "sm_121a", "compute_80"])
def test_known_versions_and_targets(version: str, target: str) -> None:
    assert problems(parse(f".version {version}\n.target {target}\n")) == []


def test_problems_finds_all() -> None:
    assert len(check("add.s32 %r0, %r1;\nmov.u32 %r0, %rd1;\nexit 1;")) == 3


# --- what a pass could break ---------------------------------------------------------------------------------------


def loop() -> Module:
    return parse(
        f"{HEAD}.visible .entry k() {{ .reg .b32 %r<3>; .reg .pred %p<2>;\n"
        "mov.u32 %r1, 0;\nL: add.s32 %r1, %r1, 1;\nsetp.lt.s32 %p1, %r1, 9;\n@%p1 bra L;\nret;\n}\n"
    )


def message_of(module: Module) -> str:
    with pytest.raises(PtxError) as caught:
        verify_kernel(module.kernels[0], module.source)
    return caught.value.message


def block_with(module: Module, base: str) -> Block:
    return next(b for b in module.kernels[0].blocks if any(i.form.op.base == base for i in b.instrs))


def test_sound_ir_passes_again_and_again() -> None:
    module = loop()
    verify(module)
    kernel = module.kernels[0]
    reg = kernel.new_reg("b32")
    block = block_with(module, "setp")
    kernel.set_instrs(block, [Instr(decode("mov.u32", 2), (reg, Imm(3))), *block.instrs])
    verify(module)


def test_finds_a_wrong_instruction_made_later() -> None:
    module = loop()
    verify(module)
    kernel = module.kernels[0]
    reg = kernel.new_reg("f32")
    block = block_with(module, "setp")
    kernel.set_instrs(block, [Instr(decode("mov.u32", 2), (reg, Imm(3))), *block.instrs])
    assert message_of(module) == (
        "'k': '%m_f32_0' is a .f32 register, 'mov.u32' takes .u32 here in 'mov.u32 %m_f32_0, 3;'"
    )


def test_finds_an_undeclared_register() -> None:
    module = loop()
    block = block_with(module, "setp")
    block.instrs.insert(0, Instr(decode("mov.u32", 2), (Reg("%r7", TYPES["b32"]), Imm(3))))
    assert "register '%r7' is not declared" in message_of(module)


def test_finds_a_register_of_another_type() -> None:
    module = loop()
    block = block_with(module, "setp")
    block.instrs.insert(0, Instr(decode("mov.f32", 2), (Reg("%r0", TYPES["f32"]), Imm("0f00000000"))))
    assert "register '%r0' is declared as .b32, not .f32" in message_of(module)


def test_finds_two_objects_for_one_register() -> None:
    module = loop()
    block = block_with(module, "setp")
    block.instrs.insert(0, Instr(decode("mov.u32", 2), (Reg("%r1", TYPES["b32"]), Imm(3))))
    assert "two registers have the name '%r1'" in message_of(module)


def made_at_once() -> tuple[Module, RegisterDeclaration]:
    """A kernel with a range of registers, which the parser makes before it reads the body, and their declaration."""
    module = parse(f"{HEAD}.entry k() {{\n.reg .b32 %r<3>;\nmov.b32 %r1, %r2;\nmov.b32 %r0, %r1;\nret;\n}}\n")
    (declaration,) = module.kernels[0].declarations
    assert isinstance(declaration, RegisterDeclaration)
    assert [reg.text for reg in declaration.registers] == ["%r0", "%r1", "%r2"]
    return module, declaration


def test_finds_registers_that_their_range_no_longer_reaches() -> None:
    module, declaration = made_at_once()
    declaration.count = 2
    assert "register '%r2' is not declared" in message_of(module)


def test_finds_registers_that_their_range_has_another_type_than() -> None:
    module, declaration = made_at_once()
    declaration.type = TYPES["f32"]
    assert "register '%r1' is declared as .f32, not .b32" in message_of(module)


def test_finds_a_second_object_for_a_register_that_was_made_with_its_range() -> None:
    module, _ = made_at_once()
    verify(module)
    (block,) = module.kernels[0].blocks
    block.instrs.insert(0, Instr(decode("mov.b32"), (Reg("%r1", TYPES["b32"]), Imm(1))))
    assert "two registers have the name '%r1'" in message_of(module)


def test_finds_a_branch_inside_of_a_block() -> None:
    module = loop()
    block = block_with(module, "setp")
    block.instrs.reverse()
    assert message_of(module) == "'bra' does not end its block"


def test_finds_a_branch_to_a_lost_block() -> None:
    module = loop()
    kernel = module.kernels[0]
    kernel.blocks = [block for block in kernel.blocks if block.label is None]
    kernel.blocks[-1].instrs.insert(0, Instr(decode("bra", 1), (Label("L"),)))
    kernel.blocks[-1].instrs.pop()
    assert "label 'L' is not the start of a block" in message_of(module)


def test_finds_a_label_twice() -> None:
    module = loop()
    kernel = module.kernels[0]
    kernel.blocks.append(Block(Label("L"), [Instr(decode("ret", 0), ())]))
    assert "label 'L' is defined twice" in message_of(module)


def test_finds_a_guard_that_is_no_predicate() -> None:
    module = loop()
    block = block_with(module, "setp")
    branch = block.instrs[-1]
    assert branch.guard is not None
    register = module.kernels[0].blocks[0].instrs[0].defs()[0]
    branch.guard = type(branch.guard)(register, negated=False)
    assert message_of(module) == "guard '%r1' is not a predicate but a .b32"


def test_falls_off_end() -> None:
    kernel = loop().kernels[0]
    assert not falls_off_end(kernel)
    kernel.blocks[-1].instrs.pop()
    assert falls_off_end(kernel)
    guarded = parse(f"{HEAD}.visible .entry k() {{ .reg .pred %p; @%p exit; }}").kernels[0]
    assert falls_off_end(guarded)
