"""What the parser accepts, and what it refuses and where. These tests need no ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest
from growth import assert_near_linear, best_seconds
from ptxmotion.ptx import (
    Directive,
    Element,
    Instr,
    Kernel,
    Pair,
    PtxError,
    RawDirective,
    Reg,
    Sink,
    Special,
    Sym,
    Variable,
    load,
    parse,
    print_module,
)

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODY = ".reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>;\n"


def kernel_of(body: str, head: str = HEAD) -> Kernel:
    module = parse(f"{head}.entry k(.param .u64 a)\n{{\n{BODY}{body}\n}}\n")
    text = print_module(module)
    assert print_module(parse(text)) == text
    return module.kernel("k")


def first(body: str) -> Instr:
    return next(kernel_of(body).instructions())


def refusal(text: str) -> PtxError:
    with pytest.raises(PtxError) as caught:
        parse(text, "bad.ptx")
    return caught.value


def place(error: PtxError) -> tuple[int, int]:
    return error.source.line_column(error.pos)


# Modules: optional and missing parts


def test_a_module_may_lack_its_target_and_its_address_size() -> None:
    module = parse(".version 1.4\n.entry k { .reg .u32 a; mov.u32 a, 1; exit; }")
    assert (module.target, module.address_size, module.arch) == ("", None, "")
    assert module.kernel("k").params is None
    assert parse(HEAD.replace("64", "32")).address_size == 32
    assert parse(".version 8.0\n.target sm_80, debug\n.address_size 64\n").target == "sm_80, debug"


def test_comments_vanish_and_strings_do_not() -> None:
    text = HEAD + '.pragma "a // b /* c";\n/* a\n { " } */ .global .u32 x; // .global .u32 y;\n'
    module = parse(text)
    assert [variable.name for variable in module.variables] == ["x"]
    assert isinstance(module.items[0], RawDirective)
    assert module.items[0].text == '.pragma "a // b /* c";'


def test_line_ends_of_windows_and_a_byte_order_mark_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "crlf.ptx"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + ".entry k() { ret; }\n").replace("\n", "\r\n").encode())
    assert load(str(path)).kernel("k").is_entry


def test_a_forward_declaration_and_its_definition_are_one_name() -> None:
    module = parse(HEAD + ".func f(.param .b32 a);\n.func f(.param .b32 a) { ret; }\n.entry k() { ret; }\n")
    assert [kernel.is_declaration for kernel in module.items if isinstance(kernel, Kernel)] == [True, False, False]
    assert [kernel.name for kernel in module.entries] == ["k"]


@pytest.mark.parametrize("item", [".local .b32 x;", ".shared .b32 x;", ".extern .global .b32 x;", '.file 1 "x"'])
def test_a_forward_declaration_needs_no_semicolon(item: str) -> None:
    module = parse(f"{HEAD}.func () f (.param .u32 $a)\n{item}\n.entry k() {{ ret; }}\n")
    assert len(module.items) == 3


def test_sections_files_and_dwarf_lines_are_kept() -> None:
    section = '.file 1 "a b.cu"\n.section .debug_str\n{\n.b8 1,2\nL:\n.b64 .debug_abbrev+4\n}\n'
    module = parse(HEAD + section + "@@DWARF .byte 1\n")
    assert module.files == {1: "a b.cu"}
    assert [item.text for item in module.items if isinstance(item, RawDirective)][1:] == [
        ".section .debug_str\n{\n.b8 1,2\nL:\n.b64 .debug_abbrev+4\n}",
        "@@DWARF .byte 1",
    ]


def test_linkage_attributes_and_initialisers_of_variables() -> None:
    text = (
        ".visible .const .align 8 .v2 .f32 w[2] = {{0f3F800000, 0}, {1.0, 2}};\n"
        ".global .attribute(.managed) .u64 p = generic(w)+8;\n"
        ".extern .shared .align 16 .b8 s[];\n"
        ".weak .global .b8 m[4] = {0xff(w), 0xff00(w), 0, 0};"
    )
    module = parse(HEAD + text)
    assert [variable.text for variable in module.variables] == text.split("\n")
    assert [variable.bytes for variable in module.variables] == [16, 8, None, 4]


def test_parameters_keep_what_they_say_of_a_pointer() -> None:
    text = ".entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[24], .param .u32 c[])"
    kernel = parse(f"{HEAD}{text}\n.maxntid 256, 1, 1\n.noreturn\n{{ ret; }}").kernel("k")
    assert kernel.params is not None
    assert [param.text for param in kernel.params] == [
        ".param .u64 .ptr .global .align 16 a",
        ".param .align 8 .b8 b[24]",
        ".param .u32 c[]",
    ]
    assert [param.bytes for param in kernel.params] == [8, 24, 0]
    assert kernel.directive("maxntid") == "256, 1, 1"
    assert kernel.directive("reqntid") is None


# Statements


def test_blocks_begin_at_labels_and_end_at_branches() -> None:
    kernel = kernel_of("mov.b32 %r1, 1; A: B: @%p1 bra A; C: bra.uni D; D: ret; E: exit; trap;")
    shape = [
        (block.label.name if block.label else "", [i.form.op.base for i in block.instrs]) for block in kernel.blocks
    ]
    assert shape == [
        ("", ["mov"]),
        ("A", []),
        ("B", ["bra"]),
        ("C", ["bra"]),
        ("D", ["ret"]),
        ("E", ["exit"]),
        ("", ["trap"]),
    ]


def test_a_label_may_stand_directly_before_the_brace() -> None:
    kernel = kernel_of("bra END; END:")
    assert kernel.blocks[-1].label is not None and kernel.blocks[-1].label.name == "END"
    assert kernel.blocks[-1].instrs == []


def test_no_blank_is_needed_where_the_text_is_clear() -> None:
    kernel = kernel_of("@!%p1 ld.global.v2.u32{%r1,%r2},[%rd1];add.s32 %r1,%r2,-1;ret;")
    assert [instr.text for instr in kernel.instructions()] == [
        "@!%p1 ld.global.v2.u32 {%r1, %r2}, [%rd1];",
        "add.s32 %r1, %r2, -1;",
        "ret;",
    ]


def test_branch_tables_may_span_lines_and_stand_before_or_behind_the_branch() -> None:
    kernel = kernel_of(
        "t: .branchtargets\n A,\n B, A;\n brx.idx %r1, t; A: ret; B: brx.idx.uni %r2, u; u: .branchtargets A;"
    )
    tables = [i for block in kernel.blocks for i in block.instrs if isinstance(i, Directive)]
    assert [[target.name for target in table.targets] for table in tables] == [["A", "B", "A"], ["A"]]
    labels = {block.label.name: block.label for block in kernel.blocks if block.label is not None}
    assert tables[0].targets[1] is labels["B"]


def test_scopes_resolve_names_from_the_inside() -> None:
    kernel = kernel_of("{ .reg .b64 %r1; mov.b64 %r1, 1; { mov.b64 %r1, 2; } } mov.b32 %r1, 3;")
    regs = [instr.defs()[0] for instr in kernel.instructions()]
    assert [reg.type.name for reg in regs] == ["b64", "b64", "b32"]
    assert regs[0] is regs[1]
    assert kernel.has_scopes


def test_a_declaration_in_the_middle_of_a_scope_hides_from_there_on() -> None:
    kernel = kernel_of("{ mov.b32 %r1, 1; .reg .b64 %r1; mov.b64 %r1, 1; @%p1 mov.b64 %r1, 2; }")
    assert [instr.defs()[0].type.name for instr in kernel.instructions()] == ["b32", "b64", "b64"]


def test_pragmas_stay_where_they_stand() -> None:
    kernel = kernel_of('.pragma "used_bytes_mask 0xf";\nld.global.v2.b64 {%rd1, %rd2}, [%rd3];')
    assert [instr.text for instr in kernel.blocks[0].instrs] == [
        '.pragma "used_bytes_mask 0xf";',
        "ld.global.v2.b64 {%rd1, %rd2}, [%rd3];",
    ]


@pytest.mark.parametrize(
    "call",
    [
        "call (r), f, (p);",
        "call.uni\n(r),\nf,\n(\np\n)\n;",
        "@%p1 call.uni (r), %rd1, (p), proto;",
        "call g;",
        "call g, ();",
        "call.uni %rd1, proto2;",
    ],
)
def test_calls_in_all_their_shapes(call: str) -> None:
    functions = ".func (.param .b32 r) f(.param .b32 p) { ret; }\n.func g() { ret; }\n"
    prototypes = "proto: .callprototype (.param .b32 _) _ (.param .b32 _) ;\nproto2: .callprototype _ () .noreturn;\n"
    kernel = kernel_of(f"{{ .param .b32 r; .param .b32 p; {prototypes} {call} }}", HEAD + functions)
    instr = next(kernel.instructions())
    # The list of arguments may be missing or empty.
    assert "".join(instr.text.split()).replace(",()", "") == "".join(call.split()).replace(",()", "")
    assert len(instr.operands) in (3, 4)


# Operands


def test_offsets_may_be_negative_spaced_and_of_any_base() -> None:
    for text, offset in (("%rd1+-4", -4), ("%rd1-4", -4), (" %rd1 + 0x10 ", 16), ("%rd1+4+4", 8), ("%rd1", 0)):
        address = first(f"ld.global.u32 %r1, [{text}];").address
        assert address is not None and address.offset == offset
    assert first("ld.global.u32 %r1, [%rd1-4];").text == "ld.global.u32 %r1, [%rd1+-4];"


def test_kinds_of_operands() -> None:
    pair = first("shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;").operands[0]
    assert isinstance(pair, Pair) and pair.text == "%r1|%p1"
    assert isinstance(first("atom.global.add.u32 _, [%rd1], 1;").operands[0], Sink)
    assert isinstance(first("mov.u32 %r1, %tid.x;").operands[1], Special)
    symbol = first("ld.param.u64 %rd1, [a+0];").address
    assert symbol is not None and isinstance(symbol.base, Sym)
    element = first(".reg .v4 .b32 v; mov.b32 v.x, 1;").operands[0]
    assert isinstance(element, Element)


def test_names_without_percent_sign_ranges_and_names_that_end_in_digits() -> None:
    kernel = kernel_of(".reg .b32 t<4>, $x, __$1, %r1x<2>; mov.b32 t3, $x; mov.b32 __$1, %r1x1;")
    assert [reg.name for instr in kernel.instructions() for reg in (*instr.defs(), *instr.uses())] == [
        "t3",
        "$x",
        "__$1",
        "%r1x1",
    ]


def test_equal_text_in_one_scope_is_one_operand() -> None:
    one, two = kernel_of("ld.global.u32 %r1, [%rd1+4]; ld.global.u32 %r2, [%rd1+4];").instructions()
    assert one.operands[1] is two.operands[1]


def test_a_range_is_not_made_before_it_is_used() -> None:
    text = f"{HEAD}.entry k() {{ .reg .b32 %x<2000000000>; mov.b32 %x7, %x1999999999; ret; }}"
    assert best_seconds(lambda: text, parse, runs=3) < 1
    kernel = parse(text).kernel("k")
    assert next(kernel.instructions()).uses()[0].name == "%x1999999999"


# Errors and their places


@pytest.mark.parametrize(
    ("body", "message", "column"),
    [
        ("mov.b32 %r1, %r9;", "register '%r9' is not declared", 14),
        ("mov.b32 %r1, nowhere;", "name 'nowhere' is not declared", 14),
        ("mov.b32 %r1, 12x;", "malformed literal '12x'", 14),
        ("mov.b32 %r1,, 1;", "operand is missing", 9),
        ("mov.b32 %r1, {;", "malformed operands", 9),
        ("@%r1 mov.b32 %r1, 1;", "'%r1' is not a predicate but a .b32", 2),
        ("bra NOWHERE;", "label 'NOWHERE' is not defined", 1),
        ("A: ret; A: ret;", "label 'A' is defined twice", 9),
        (".reg .b32 %r3;", "register '%r3' is declared twice", 11),
        (".reg .b32 x, x;", "register 'x' is declared twice", 6),
        (".reg .b32 %r<5>;", "registers '%r<…>' are declared twice", 11),
        (".reg .b33 x;", "'.b33' is no register type", 6),
        ("mov.b32 %r1, 1", "expected ';' after the instruction", 15),
        ("mov.b32 %r1, 1\nmov.b32 %r1, 2;", "expected ';' after the instruction", 15),
        ("call f, (%r1;", "'(' is not closed in a call", 10),
        ("= 3;", "expected a statement, found '='", 1),
    ],
)
def test_bad_statements_are_refused_at_their_place(body: str, message: str, column: int) -> None:
    error = refusal(f"{HEAD}.func f() {{ ret; }}\n.entry k(.param .u64 a)\n{{\n{BODY}{body}\n}}\n")
    assert message in error.message
    assert place(error) == (8, column)
    assert str(error).startswith(f"bad.ptx:8:{column}: error: ")
    assert str(error).splitlines()[2] == " " * (column + 1) + "^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + ".entry k() { ret;", "is not closed"),
        (HEAD + "/* never closed", "comment is not closed"),
        (HEAD + '.pragma "never closed;', "string is not closed"),
        (HEAD + "}", "expected a module directive, found '}'"),
        (HEAD + ".global x;", "the declaration has no type"),
        (HEAD + ".global .u32 x; .global .u32 x;", "'x' is declared twice"),
        (HEAD + ".entry k() { ret; } .entry k() { ret; }", "'k' is defined twice"),
        (HEAD + ".entry k(.param .u32 a, .param .u32 a) { ret; }", "parameter 'a' is declared twice"),
        (HEAD + ".reg .b32 x;", "a register cannot be declared outside of a function"),
        (".version nine\n", "expected a version such as 9.0"),
        (HEAD + "\0", "NUL character"),
        (HEAD + ".global .u32 x[2] = {1, 2", "is not closed"),
    ],
)
def test_bad_modules_are_refused(text: str, message: str) -> None:
    error = refusal(text)
    assert message in error.message


# Time and memory


def long_kernel(count: int) -> str:
    lines = (f"add.s32 %r{number}, %r{number - 1}, {number};" for number in range(1, count))
    return f"{HEAD}.entry k()\n{{\n.reg .b32 %r<{count}>;\n" + "\n".join(lines) + "\nret;\n}\n"


@pytest.mark.slow
def test_time_is_linear_in_the_number_of_instructions() -> None:
    assert_near_linear(long_kernel, lambda text: print_module(parse(text)), 20_000)


def test_what_is_declared_is_found_by_type() -> None:
    kernel = kernel_of(".shared .align 4 .b8 s[16], u[4]; .local .b32 l; mov.u32 %r1, s; mov.u32 %r2, u;")
    assert [variable.name for variable in kernel.variables] == ["s", "u", "l"]
    symbols = [instr.operands[1] for instr in kernel.instructions()]
    assert all(isinstance(symbol, Sym) and isinstance(symbol.declaration, Variable) for symbol in symbols)
    assert all(isinstance(instr.operands[0], Reg) for instr in kernel.instructions())


def test_marks_of_lines_are_passed_over_and_places_stay() -> None:
    text = f'# 1 "kernel.cu"\n{HEAD}.entry k() {{ .reg .b32 r;\n#line 3 "kernel.cu"\nadd.s32 r, r, 1; ret; }}\n'
    module = parse(text)
    assert [instr.text for instr in module.kernel("k").instructions()] == ["add.s32 r, r, 1;", "ret;"]
    with pytest.raises(PtxError, match="7:23: error: unexpected character '#'"):
        parse(text.replace("ret;", "ret; #line 5"))
    with pytest.raises(PtxError):
        parse(text.replace("#line 3", "#define X"))


def test_a_constant_bank_is_kept() -> None:
    module = parse(".version 1.4\n.target sm_10\n.extern .const[2] .align 4 .b8 table[];\n.entry k() { exit; }\n")
    assert "const[2]" in print_module(module)
    assert print_module(parse(print_module(module))) == print_module(module)


def test_an_unknown_directive_of_a_body_is_kept_and_fenced() -> None:
    module = parse(f"{HEAD}.entry k() {{ .reg .b32 r; .frobnicate r, 3; .frobnicate; add.s32 r, r, 1; ret; }}\n")
    first, second, *_ = module.kernel("k").instructions()
    assert first.form.is_opaque and first.text == ".frobnicate r, 3;"
    assert [reg.name for reg in first.uses()] == ["r"]
    assert second.text == ".frobnicate;"
    assert print_module(parse(print_module(module))) == print_module(module)


def test_limits_are_numbers_however_they_are_written() -> None:
    kernel = parse(f"{HEAD}.entry k() .maxntid 0x20, 010 .minnctapersm 2U {{ ret; }}\n").kernel("k")
    assert kernel.directives == [".maxntid 32, 8", ".minnctapersm 2"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("1 7", (1, 7, 0)),
        ("1 7 3", (1, 7, 3)),
        ("1 7, function_name F, inlined_at 1 4 9", (1, 7, 0)),
        ("1 7 is_stmt 1", (1, 7, 0)),
        ("2 7 3 prologue_end", (2, 7, 3)),
    ],
)
def test_a_location_may_have_no_column(text: str, place: tuple[int, int, int]) -> None:
    module = parse(f"{HEAD}.entry k() {{ .loc 1 4 9\n.loc {text}\nret; }}\n")
    (instr,) = module.kernel("k").instructions()
    assert instr.loc is not None
    assert instr.loc.file_line_column == place
