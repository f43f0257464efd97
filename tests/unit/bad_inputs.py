"""Inputs that are not valid PTX, each with the expected position and a part of the expected message.

The tests of the parser, of the verifier and of the command line use them.
"""

from typing import NamedTuple


class BadInput(NamedTuple):
    name: str
    data: bytes
    place: str  #: ``line:column``
    message: str  #: occurs in the first line of the error


HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def kernel(body: str) -> str:
    """A module with one entry; the body starts in line 5."""
    return f"{HEAD}.visible .entry k(.param .u64 p) {{\n{body}\n}}\n"


_TEXTS: list[tuple[str, str, str, str]] = [
    # --- no PTX at all
    ("empty", "", "1:1", "the module has no '.version'"),
    ("blank", "\n\n  \n", "1:1", "the module has no '.version'"),
    ("only comments", "// nothing\n/* here */\n", "1:1", "the module has no '.version'"),
    ("prose", "Dear ptxas,\nplease assemble this.\n", "1:1", "expected a module directive, found 'Dear'"),
    ("nul", HEAD + "\0", "4:1", "NUL character; is this a binary file?"),
    ("form feed only", "\f", "1:1", "the module has no '.version'"),
    ("one line without end", HEAD + "x" * 1_000_000, "4:1", "expected a module directive"),
    ("letters outside of ASCII", kernel("mov.é r, 1;"), "5:5", "unexpected character 'é'"),
    ("digits of another script", kernel(".reg .b32 %r<\N{ARABIC-INDIC DIGIT THREE}>;"), "5:14", "unexpected character"),
    # --- header
    ("unknown version", ".version 99.0\n.target sm_90\n", "1:1", "unknown version 99.0"),
    ("version of a thousand digits", f".version {'9' * 5000}.0\n.target sm_90\n", "1:1", "unknown version"),
    ("version without minor", ".version 9\n.target sm_90\n", "1:10", "expected a version such as 9.0"),
    ("no version", ".target sm_90\n", "1:1", "the module has no '.version'"),
    ("no target", ".version 9.0\n", "1:1", "the module has no '.target'"),
    ("unknown target", ".version 9.0\n.target sm_999\n", "2:1", "unknown target 'sm_999'"),
    ("unknown target option", ".version 9.0\n.target sm_90, fast\n", "2:1", "unknown target 'fast'"),
    ("address size", ".version 9.0\n.target sm_90\n.address_size 48\n", "3:1", "the address size is 32 or 64, not 48"),
    ("version twice", HEAD + ".entry k() { ret; }\n.version 9.0\n", "5:1", "'.version' stands only at the start"),
    ("target twice", HEAD + ".target sm_80\n", "4:1", "'.target' stands only behind '.version'"),
    ("address size late", HEAD + ".global .u32 g;\n.address_size 64\n", "5:1", "'.address_size' stands only behind"),
    ("version in a body", kernel(".version 9.0\nret;"), "5:1", "'.version' cannot stand in the body of a function"),
    ("entry in a body", kernel("ret;\n.entry j() { ret; }"), "6:1", "'.entry' cannot stand in the body of a function"),
    ("limit in a body", kernel(".maxntid 32\nret;"), "5:1", "'.maxntid' cannot stand in the body of a function"),
    ("register of a module", HEAD + ".reg .b32 r;", "4:1", "a register cannot be declared outside of a function"),
    ("parameter of a module", HEAD + ".param .b32 p;", "4:1", "'p' is in state space .param"),
    ("initialised shared memory", HEAD + ".shared .u32 s = 5;", "4:1", "'s' cannot be initialised"),
    # --- truncated
    ("cut in a directive", ".version", "1:9", "expected a version"),
    ("cut in a header", HEAD + ".visible .entry k(.param .u64 p", "4:32", "expected ','"),
    ("cut in a parameter", HEAD + ".visible .entry k(.param", "4:25", "the parameter has no type"),
    ("cut before a name", HEAD + ".func", "4:6", "expected a function's name, found the end of the file"),
    ("cut in a body", kernel("ret;")[:-2], "4:34", "'{' of 'k' is not closed"),
    ("cut in an instruction", kernel(".reg .b32 r;\nadd.s32 r, r")[:-2], "6:13", "expected ';'"),
    ("cut in a declaration", HEAD + ".global .align 4", "4:17", "the declaration has no type"),
    ("cut in an initializer", HEAD + ".global .b8 a[2] = {1,", "4:20", "'{' is not closed in an initializer"),
    ("cut in an attribute", HEAD + ".global .attribute(.managed", "4:19", "'(' is not closed in an attribute"),
    ("cut in a section", HEAD + ".section .debug_info { .b8 1", "4:1", "'.section' is not closed"),
    ("cut in a pragma", kernel(".pragma"), "5:8", "expected ';' after .pragma"),
    ("cut in a prototype", kernel("P: .callprototype"), "5:18", "expected ';' after .callprototype"),
    # --- brackets, strings, comments
    ("open brace", kernel("{ ret;"), "4:34", "'{' of 'k' is not closed"),
    ("brace too many", kernel("ret; }"), "6:1", "expected a module directive, found '}'"),
    ("only a brace", "}", "1:1", "expected a module directive, found '}'"),
    ("open bracket", kernel(".reg .b32 r; ld.global.u32 r, [r;"), "5:31", "malformed address"),
    ("call of nothing", kernel("call;"), "5:5", "expected a function, found ';'"),
    ("call of a brace", kernel("call{f};"), "5:5", "expected a function, found '{'"),
    ("call under two negations", kernel(".reg .pred q; @!!q call f;"), "5:15", "expected a statement, found '@'"),
    ("open parenthesis", kernel("call (;"), "5:7", "'(' is not closed in a call"),
    ("open comment", HEAD + "/* here", "4:1", "comment is not closed"),
    ("open string", kernel('.pragma "nounroll;'), "5:9", "string is not closed"),
    ("open bank", HEAD + ".const[2 .b8 c[4];", "4:7", "'[' is not closed in a constant bank"),
    ("bank is no number", HEAD + ".global[.u32 counter;", "4:8", "'[' is not closed in a constant bank"),
    ("deepest scopes", kernel("{" * 200_001 + "}" * 200_001 + "ret;"), "5:200001", "nested more than 200000 deep"),
    ("deep scopes", kernel("{" * 100_000), "4:34", "'{' of 'k' is not closed"),
    ("deep parentheses", HEAD + ".global .u64 a = " + "(" * 100_000, "4:18", "expected ';' after an initializer"),
    ("deep vector", kernel(f".reg .b32 r; mov.b32 r, {'{' * 50_000}r{'}' * 50_000};"), "5:22", "malformed operands"),
    ("deep address", kernel(f".reg .b64 r; ld.u64 r, {'[' * 50_000}r{']' * 50_000};"), "5:24", "malformed address"),
    ("deep negation", kernel(f".reg .pred p1; mov.pred p1, {'!' * 50_000}p1;"), "5:29", "negated only once"),
    ("deep pair", kernel(f".reg .pred p1; setp.eq.u32 {'|'.join(['p1'] * 50_000)}, 1, 2;"), "5:28", "too many parts"),
    # --- names
    ("undeclared register", kernel("add.s32 %r1, %r2, 3;"), "5:9", "register '%r1' is not declared"),
    ("undeclared name", kernel(".reg .u64 r; mov.u64 r, table;"), "5:25", "name 'table' is not declared"),
    ("undeclared guard", kernel("@%p1 ret;"), "5:", "'%p1' is not declared"),
    ("undeclared function", kernel("call f, (1);"), "5:6", "name 'f' is not declared"),
    ("register declared twice", kernel(".reg .b32 a; .reg .f32 a;"), "5:24", "register 'a' is declared twice"),
    ("range declared twice", kernel(".reg .b32 a<5>; .reg .f32 a<3>;"), "5:27", "declared twice"),
    ("parameter declared twice", HEAD + ".entry k(.param .u32 a, .param .u32 a) { ret; }", "4:8", "declared twice"),
    ("variable declared twice", HEAD + ".global .u32 a;\n.global .u32 a;", "5:1", "'a' is declared twice"),
    ("kernel defined twice", HEAD + ".entry k() { ret; }\n.entry k() { ret; }", "5:8", "'k' is defined twice"),
    ("missing label", kernel("bra L;"), "5:1", "label 'L' is not defined"),
    ("label twice", kernel("L: ret;\nL: ret;"), "6:1", "label 'L' is defined twice"),
    ("label of another function", HEAD + ".func f() { L: ret; }\n.entry k() { bra L; }", "5:14", "label 'L' is not"),
    ("register number outside of the range", kernel(".reg .b32 %r<5>; mov.u32 %r5, 1;"), "5:26", "not declared"),
    # --- numbers
    ("range too large", kernel(".reg .b32 %r<999999999999>;"), "5:11", "999999999999 registers cannot be declared"),
    ("range of a thousand digits", kernel(f".reg .b32 %r<{'9' * 6000}>;"), "5:14", "expected a count"),
    ("negative range", kernel(".reg .b32 %r<-5>;"), "5:14", "expected a count, found '-5'"),
    ("variables too many", kernel(".shared .u32 a<999999999999>;"), "5:1", "too large a range"),
    ("integer of 65 bits", kernel(".reg .b64 r; mov.u64 r, 0x10000000000000000;"), "5:25", "no literal of 64 bits"),
    ("integer of 6000 digits", kernel(f".reg .b32 r; mov.u32 r, {'9' * 6000};"), "5:25", "no literal of 64 bits"),
    ("offset of a thousand digits", kernel(f".reg .b64 r; ld.u64 r, [r+{'9' * 6000}];"), "5:", "malformed offset"),
    ("register of a thousand digits", kernel(f".reg .b32 %r<5>; mov.u32 %r{'9' * 6000}, 1;"), "5:26", "not declared"),
    ("array of 10**40", HEAD + f".shared .b8 s[1{'0' * 40}];", "4:1", "'s' has more than 9223372036854775807 elements"),
    ("literal of a megabyte", kernel(f".reg .b32 r; mov.b32 r, {'1+' * 500_000}1;"), "5:25", "expression is too long"),
    ("no octal", kernel(".reg .b32 r; mov.u32 r, 0899;"), "5:25", "'0899' is no literal"),
    ("no hexadecimal", kernel(".reg .f32 r; mov.f32 r, 0fXYZ;"), "5:25", "malformed literal '0fXYZ'"),
    ("odd alignment", HEAD + ".global .align 3 .b8 a[4];", "4:1", "the alignment 3 is no power of two"),
    # --- instructions
    ("too few operands", kernel(".reg .b32 r; add.s32 r, r;"), "5:14", "'add.s32' takes 3 operands, not 2"),
    ("too many operands", kernel(".reg .b32 r; add.s32 r, r, r, r;"), "5:14", "'add.s32' takes 3 operands, not 4"),
    ("operand missing", kernel(".reg .b32 r; add.s32 r, , r;"), "5:", "operand"),
    ("commas", kernel("add.s32 " + "," * 100_000 + ";"), "5:", "operand"),
    ("wrong type", kernel(".reg .b32 r; .reg .f32 f; add.s32 r, r, f;"), "5:41", "'f' is a .f32 register"),
    ("wrong width", kernel(".reg .b32 r; .reg .b64 s; add.s32 r, r, s;"), "5:41", "'s' is a .b64 register"),
    ("wrong state space", kernel(".reg .u64 r; ld.global.u64 r, [p];"), "5:31", "'[p]' is in state space .param"),
    ("result is a literal", kernel("mov.u32 1, 2;"), "5:9", "'1' cannot be written"),
    ("guard is no predicate", kernel(".reg .b32 r; @r ret;"), "5:", "not a predicate"),
    ("branch to a register", kernel(".reg .b32 r; bra r;"), "5:14", "label 'r' is not defined"),
    ("missing semicolon", kernel("ret"), "5:4", "expected ';'"),
    ("register type", kernel(".reg .b33 x;"), "5:6", "'.b33' is no register type"),
    ("register without type", kernel(".reg x;"), "5:", "the register declaration has no type"),
    ("limit that is no number", HEAD + ".entry k() .reqntid 1.5 { ret; }", "4:12", "'.reqntid' takes up to 3 numbers"),
    ("limit of nothing", HEAD + ".entry k() .reqntid 32, 0 { ret; }", "4:12", "'.reqntid' takes numbers from 1 on"),
    ("limit without number", HEAD + ".entry k() .maxnreg { ret; }", "4:12", "'.maxnreg' takes a number"),
    ("limit of four numbers", HEAD + ".entry k() .maxntid 1, 2, 3, 4 { ret; }", "4:12", "takes up to 3 numbers"),
    ("file without number", HEAD + '.file 0f "a.cu"\n', "4:1", "malformed '.file'"),
    ("file without name", kernel(".file 1\nret;"), "5:1", "malformed '.file'"),
    ("malformed line position", kernel(".loc x y z"), "5:1", "malformed '.loc'"),
]

BAD_INPUTS: list[BadInput] = [
    *(BadInput(name, text.encode(), place, message) for name, text, place, message in _TEXTS),
    BadInput("binary", b"\x7fELF\x02\x01\x01" + bytes(range(1, 256)) * 4, "2:", "unexpected character"),
    BadInput("binary with NUL", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 4, "1:8", "NUL"),
    BadInput("invalid UTF-8", HEAD.encode() + b"\xff\xfe\n", "4:1", "unexpected character"),
    BadInput("UTF-16", HEAD.encode("utf-16"), "1:", ""),
]
