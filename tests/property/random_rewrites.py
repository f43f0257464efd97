"""Random rewrites of programs: they use features that the generator does not use, and keep the behaviour.

`rewritten(ptx, seed)` takes the text of `random_programs.random_kernel` and applies some of these in random places:

indirect   a conditional branch becomes `brx.idx` over a table of two or three targets
calls      an addition, a load or a store becomes a call of a device function, in its `.param` scope
generic    accesses to global, shared and local memory use generic addresses
ordered    accesses become `.volatile` or `.relaxed`; fences are inserted between others
exits      a guarded `exit`, `ret` or `trap` that no thread takes stands in random places, so that lanes that leave a
           loop in different iterations do not reconverge after it
vectors    accesses of one word become wider or narrower ones, overlapping partially
scopes     a value is computed in a register of an inner scope, with the same name in all of them
coordinates  indices of threads and blocks are read as vectors, and in brace lists
notes      `.loc` lines, and a `used_bytes_mask` before a load
merged     registers that are never live at the same time become one, as in compilers without SSA
typed      registers of type `.b32` become `.u32` or `.s32`, where all their instructions take these, and those of type
           `.f32` become `.b32`, as Triton declares them; the same for other widths

Guarantees: programs remain well-defined in the sense of `random_programs`. Accesses become wider according to the
offsets of `random_accesses`: at `[reg+k]`, four words are in bounds if k is a multiple of 16, two if it is one of 8.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import TYPES, Guard, Instr, Kernel, Operand, Reg, flatten_scopes, parse, print_module
from ptxmotion.ptx.operand_rules import kind_of, problem
from ptxmotion.ptx.operands import substitute

__all__ = ["REWRITES", "merged", "rewritten", "typed"]

_BRANCH = re.compile(r"\t@(!?)(%\w+) bra (\S+);$")
_ADD = re.compile(r"\tadd\.[su]32 (%r\d+), (%r\d+), (%r\d+);$")
_LOAD = re.compile(r"\tld\.global\.(?:ca\.)?u32 (%r\d+), \[(%rd\d+)\+(\d+)\];$")
_STORE = re.compile(r"\tst\.global\.u32 \[(%rd\d+)\+(\d+)\], (%r\d+);$")
_ACCESS = re.compile(r"\t((?:@!?%\w+ )?(?:ld|st|atom|red))(?:\.volatile)?\.(global|shared)(\.[\w.]+ .*)$")
_ADDRESS = re.compile(r"\[(%\w+)(\+\d+)?\]")
_COORDINATE = re.compile(r"\tmov\.u32 (%r\d+), %(n?tid|n?ctaid)\.([xyz]);$")
_STRAIGHT = re.compile(r"\t(?!\.)[a-z]")

_FUNCTIONS = """\
.func (.param .b32 value) plus(.param .b32 left, .param .b32 right)
{
	.reg .b32 %r<3>;
	ld.param.b32 %r0, [left];
	ld.param.b32 %r1, [right];
	add.s32 %r2, %r0, %r1;
	st.param.b32 [value], %r2;
	ret;
}
.func (.param .b32 value) get(.param .b64 from)
{
	.reg .b64 %rd<1>;
	.reg .b32 %r<1>;
	ld.param.b64 %rd0, [from];
	ld.global.b32 %r0, [%rd0];
	st.param.b32 [value], %r0;
	ret;
}
.func put(.param .b64 to, .param .b32 value)
{
	.reg .b64 %rd<1>;
	.reg .b32 %r<2>;
	ld.param.b64 %rd0, [to];
	ld.param.b32 %r0, [value];
	ld.param.b32 %r1, [value];
	st.global.b32 [%rd0], %r1;
	ret;
}
"""


class _Text:
    """The lines of a program, and the declarations that rewrites add at its head."""

    def __init__(self, ptx: str, rng: random.Random, name: str) -> None:
        self.rng = rng
        self.name = name
        self.lines = ptx.splitlines()
        self.words = self.doubles = self.labels = 0

    def word(self) -> str:
        self.words += 1
        return f"%x_{self.name}{self.words - 1}"

    def double(self) -> str:
        self.doubles += 1
        return f"%y_{self.name}{self.doubles - 1}"

    def label(self, kind: str) -> str:
        self.labels += 1
        return f"${kind}_{self.labels}"

    def each(self, chance: float, change: Callable[[str], list[str] | None]) -> None:
        """Replace each line, with this probability, by the result of ``change``."""
        found: list[str] = []
        for line in self.lines:
            new = change(line) if self.rng.random() < chance else None
            found += [line] if new is None else new
        self.lines = found

    def join(self) -> str:
        """The text, with declarations of the registers that were added."""
        head = [f"\t.reg .b32 %x_{self.name}<{self.words}>;"] * bool(self.words)
        head += [f"\t.reg .b64 %y_{self.name}<{self.doubles}>;"] * bool(self.doubles)
        entry = next(i for i, line in enumerate(self.lines) if line.startswith(".visible .entry"))
        start = self.lines.index("{", entry) + 1
        return "\n".join([*self.lines[:start], *head, *self.lines[start:]]) + "\n"


def _indirect(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        match = _BRANCH.match(line)
        if match is None:
            return None
        negated, predicate, target = match.groups()
        index, table, following = text.word(), text.label("T"), text.label("N")
        targets = [following, target, *([target] if text.rng.random() < 0.3 else [])]
        taken, other = str(text.rng.randrange(1, len(targets))), "0"
        first, second = (other, taken) if negated else (taken, other)
        return [
            f"\tselp.u32 {index}, {first}, {second}, {predicate};",
            f"{table}: .branchtargets {', '.join(targets)};",
            f"\tbrx.idx {index}, {table};",
            f"{following}:",
        ]

    text.each(0.3, change)


def _calls(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        if match := _ADD.match(line):
            result, left, right = match.groups()
            body = ["\t.param .b32 p0;", f"\tst.param.b32 [p0], {left};", "\t.param .b32 p1;"]
            body += [f"\tst.param.b32 [p1], {right};", "\t.param .b32 q;", "\tcall (q), plus, (p0, p1);"]
            return ["\t{", *body, f"\tld.param.b32 {result}, [q];", "\t}"]
        if match := _LOAD.match(line):
            result, base, offset = match.groups()
            address = text.double()
            body = [f"\tadd.s64 {address}, {base}, {offset};", "\t.param .b64 p0;", f"\tst.param.b64 [p0], {address};"]
            return ["\t{", *body, "\t.param .b32 q;", "\tcall (q), get, (p0);", f"\tld.param.b32 {result}, [q];", "\t}"]
        if match := _STORE.match(line):
            base, offset, value = match.groups()
            address = text.double()
            body = [f"\tadd.s64 {address}, {base}, {offset};", "\t.param .b64 p0;", f"\tst.param.b64 [p0], {address};"]
            return ["\t{", *body, "\t.param .b32 p1;", f"\tst.param.b32 [p1], {value};", "\tcall put, (p0, p1);", "\t}"]
        return None

    text.each(0.3, change)
    entry = next(i for i, line in enumerate(text.lines) if line.startswith(".visible .entry"))
    text.lines[entry:entry] = _FUNCTIONS.splitlines()


def _generic(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        match = _ACCESS.match(line)
        if match is None or ".nc" in line:
            return None
        head, space, rest = match.groups()
        place = _ADDRESS.search(rest)
        if place is None:
            return None
        if space == "global":
            return [f"\t{head}{rest}"]
        base, added = place[1], []
        if space == "shared":
            wide = text.double()
            added = [f"\tcvt.u64.u32 {wide}, {base};"]
            base = wide
        generic = text.double()
        added.append(f"\tcvta.{space}.u64 {generic}, {base};")
        rest = rest[: place.start()] + f"[{generic}{place[2] or ''}]" + rest[place.end() :]
        return [*added, f"\t{head}{rest}"]

    text.each(text.rng.choice([0.3, 0.8]), change)


def _ordered(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        match = _ACCESS.match(line)
        if match is not None and match[1].endswith(("ld", "st")) and not re.search(r"\.(nc|ca|v\d)\b", line):
            how = text.rng.choice([".volatile", ".relaxed.gpu"])
            return [f"\t{match[1]}{how}.{match[2]}{match[3]}"]
        return None

    text.each(0.15, change)
    fences = ["membar.cta", "membar.gl", "fence.acq_rel.gpu", "fence.sc.cta", "fence.acq_rel.cta"]
    text.each(0.03, lambda line: [line, f"\t{text.rng.choice(fences)};"] if _STRAIGHT.match(line) else None)


def _exits(text: _Text) -> None:
    """The program then has two predicates that are false in every thread, but not known to be."""
    entry = next(i for i, line in enumerate(text.lines) if line.startswith(".visible .entry"))
    start = text.lines.index("{", entry) + 1
    first = next(i for i in range(start, len(text.lines)) if _STRAIGHT.match(text.lines[i]))
    word = text.word()
    leaves = ["exit", "ret", "trap"]

    def change(line: str) -> list[str] | None:
        guard = text.rng.choice(["@%never0", "@!%always0"])
        return [line, f"\t{guard} {text.rng.choice(leaves)};"] if _STRAIGHT.match(line) else None

    known = ["\t.reg .pred %never<1>, %always<1>;", f"\tmov.u32 {word}, %tid.x;"]
    known += [f"\tsetp.gt.u32 %never0, {word}, 5000;", f"\tsetp.le.u32 %always0, {word}, 5000;"]
    text.lines[first:first] = known
    behind = _behind_barriers(text.lines, first + len(known))
    before, text.lines = text.lines[:behind], text.lines[behind:]
    text.each(text.rng.choice([0.02, 0.1, 0.3]), change)
    text.lines = [*before, *text.lines]


def _behind_barriers(lines: list[str], first: int) -> int:
    """The first line from ``first`` after which no barrier of the block is executed. A warp must reconverge before
    it."""
    labels = {line.rstrip(":"): at for at, line in enumerate(lines) if line.endswith(":")}
    behind = max((at + 1 for at, line in enumerate(lines) if re.search(r"\tbar", line)), default=first)
    for at in range(len(lines) - 1, behind, -1):
        target = re.search(r"\bbra(?:\.uni)? (\S+);", lines[at])
        if target is not None and labels.get(target[1], at) < behind:
            return at + 1
    return max(behind, first)


def _vectors(text: _Text) -> None:
    rng = text.rng

    def change(line: str) -> list[str] | None:
        if match := _LOAD.match(line):
            result, base, offset = match[1], match[2], int(match[3])
            if rng.random() < 0.3:
                kind, inner = rng.choice([("u8", rng.randrange(4)), ("s8", rng.randrange(4)), ("s16", 2), ("u16", 0)])
                return [f"\tld.global.{kind} {result}, [{base}+{offset + inner}];"]
            lanes = 4 if offset % 16 == 0 and rng.random() < 0.6 else 2 if offset % 8 == 0 else 1
            if lanes == 1:
                return None
            parts = [text.word() for _ in range(lanes)]
            parts[rng.randrange(lanes)] = result
            return [f"\tld.global.v{lanes}.u32 {{{', '.join(parts)}}}, [{base}+{offset}];"]
        if match := _STORE.match(line):
            base, offset, value = match[1], int(match[2]), match[3]
            if rng.random() < 0.4 or offset % 8:
                kind, inner = rng.choice([("u8", rng.randrange(4)), ("u16", 2), ("b16", 0)])
                if kind != "u8":
                    return [f"\tst.global.{kind} [{base}+{offset + inner}], {value};"]
                return [f"\tst.global.u8 [{base}+{offset + inner}], {value};"]
            return [f"\tst.global.v2.u32 [{base}+{offset}], {{{value}, {rng.choice([value, '7'])}}};"]
        return None

    text.each(0.4, change)


def _scopes(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        match = re.match(r"\t([a-z][\w.]*\.[usb](?:32)) (%r\d+), (.*);$", line)
        if match is None or match[1].startswith(("ld", "st", "atom", "red", "set", "cvt", "bf", "shfl", "vote")):
            return None
        if re.search(r"\.(cc|wide)\b|c\.", match[1]) or "|" in line:
            return None
        inner = [f"\t\t{match[1]} t, {match[3]};", f"\t\tmov.b32 {match[2]}, t;"]
        return ["\t{", "\t\t.reg .b32 t;", *inner, "\t}"]

    text.each(0.2, change)


def _coordinates(text: _Text) -> None:
    def change(line: str) -> list[str] | None:
        match = _COORDINATE.match(line)
        if match is None:
            return None
        result, name, axis = match.groups()
        if text.rng.random() < 0.5:
            parts = [text.word() for _ in range(4)]
            parts["xyz".index(axis)] = result
            return [f"\tmov.v4.u32 {{{', '.join(parts)}}}, %{name};"]
        pair, other = text.double(), text.word()
        # ptxas refuses a list of a special register and a literal.
        sources, results = [f"%{name}.{axis}", text.rng.choice([other, f"%{name}.{axis}"])], [result, other]
        lines = [f"\tmov.u32 {other}, 7;"] if other in sources else []
        if text.rng.random() < 0.5:
            sources, results = sources[::-1], results[::-1]
        lines.append(f"\tmov.b64 {pair}, {{{', '.join(sources)}}};")
        return [*lines, f"\tmov.b64 {{{', '.join(results)}}}, {pair};"]

    text.each(0.7, change)


def _notes(text: _Text) -> None:
    rng = text.rng

    def change(line: str) -> list[str] | None:
        if _LOAD.match(line) and rng.random() < 0.5:
            return ['\t.pragma "used_bytes_mask 0xf";', line]
        return [f"\t.loc 1 {rng.randrange(1, 99)} 1", line] if _STRAIGHT.match(line) else None

    text.each(0.3, change)
    entry = next(i for i, line in enumerate(text.lines) if line.startswith(".visible .entry"))
    text.lines.insert(entry, '.file 1 "fuzz.cu"')


def merged(ptx: str, seed: int, share: float = 1.0) -> str:
    """The program with pairs of registers of one type merged if their live ranges are disjoint. ``share`` is the share
    of such pairs that are tried."""
    rng = random.Random(f"merge:{seed}")
    module = parse(ptx)
    kernel = module.entries[0]
    flatten_scopes(kernel)
    apart = _interference(kernel, Facts(kernel, module))
    root: dict[Reg, Reg] = {}
    found = [reg for reg in apart if reg.lanes == 1]
    for _ in range(int(3 * len(found) * share)):
        left, right = (_root_of(rng.choice(found), root) for _ in range(2))
        if left is right or left.type.name != right.type.name or right in apart[left]:
            continue
        root[right] = left
        apart[left] |= apart[right]
        for other in apart[right]:
            apart[other].discard(right)
            apart[other].add(left)
    exchanged: dict[Operand, Operand] = {reg: _root_of(reg, root) for reg in root}
    for instr in list(kernel.instructions()):
        if instr.is_directive:
            continue
        kernel.replace_operands(instr, tuple(substitute(operand, exchanged) for operand in instr.operands))
        guard = instr.guard
        if guard is not None and isinstance(guard.reg, Reg):
            kernel.replace_guard(instr, Guard(_root_of(guard.reg, root), negated=guard.negated))
    return print_module(module)


_OTHER_TYPES = {
    **{f"b{bits}": (f"u{bits}", f"s{bits}") for bits in (16, 32, 64)},
    **{f"f{bits}": (f"b{bits}",) for bits in (32, 64)},
}


def typed(ptx: str, seed: int) -> str:
    """The program with half of the registers declared with another type, where the verifier allows it: integers as
    signed or unsigned, floats as bits."""
    rng = random.Random(f"types:{seed}")
    module = parse(ptx)
    kernel = module.entries[0]
    flatten_scopes(kernel)
    users: dict[Reg, list[Instr]] = {}
    for instr in kernel.instructions():
        for reg in dict.fromkeys((*instr.defs(), *instr.uses())):
            users.setdefault(reg, []).append(instr)
    renamed: dict[Operand, Operand] = {}
    for reg, instrs in users.items():
        if reg.type.name not in _OTHER_TYPES or reg.lanes > 1 or rng.random() < 0.5:
            continue
        new = Reg(f"%t{len(renamed)}", TYPES[rng.choice(_OTHER_TYPES[reg.type.name])])
        if all(_may_be_typed(instr, {**renamed, reg: new}) for instr in instrs):
            renamed[reg] = new
    for instr in list(kernel.instructions()):
        if not instr.is_directive:
            kernel.replace_operands(instr, tuple(substitute(operand, renamed) for operand in instr.operands))
    declared = "".join(f"\t.reg .{each.type.name} {each.text};\n" for each in renamed.values() if isinstance(each, Reg))
    head, entry, body = print_module(module).partition(".visible .entry")
    return head + entry + body.replace("{\n", "{\n" + declared, 1)


def _may_be_typed(instr: Instr, renamed: dict[Operand, Operand]) -> bool:
    """Whether the instruction takes the new registers. Arguments of calls have fixed types."""
    if instr.form.is_call or instr.form.is_opaque or instr.is_directive:
        return False
    kinds = tuple(kind_of(substitute(operand, renamed)) for operand in instr.operands)
    return problem(instr.form, kinds) is None


def _root_of(reg: Reg, root: dict[Reg, Reg]) -> Reg:
    while reg in root:
        reg = root[reg]
    return reg


def _interference(kernel: Kernel, facts: Facts) -> dict[Reg, set[Reg]]:
    """For each register, the registers that are live when it is written, or are written with it."""
    apart: dict[Reg, set[Reg]] = {}

    def mark(left: Reg, right: Reg) -> None:
        if left is not right:
            apart[left].add(right)
            apart[right].add(left)

    for instr in kernel.instructions():  # in the order of the text, so that a program is a function of its seed
        for reg in (*instr.defs(), *instr.uses()):
            apart.setdefault(reg, set())
    for block in facts.cfg.rpo:
        for _, instr, live in facts.liveness.backwards(block):
            for reg in instr.defs():
                for other in (*live, *instr.defs()):
                    mark(reg, other)
    return apart


REWRITES: dict[str, Callable[[_Text], None]] = {
    "exits": _exits,
    "vectors": _vectors,
    "calls": _calls,
    "generic": _generic,
    "ordered": _ordered,
    "scopes": _scopes,
    "coordinates": _coordinates,
    "notes": _notes,
    "indirect": _indirect,
}


def rewritten(ptx: str, seed: int, names: frozenset[str] | None = None) -> str:
    """``ptx`` after a random choice of rewrites, or after those of ``names``, which may contain ``merged`` and
    ``typed``."""
    rng = random.Random(f"rewrite:{seed}")
    for name, rewrite in REWRITES.items():
        if name in names if names is not None else rng.random() < 0.35:
            text = _Text(ptx, rng, name)
            rewrite(text)
            ptx = text.join()
    if "merged" in names if names is not None else rng.random() < 0.6:
        ptx = merged(ptx, seed, rng.choice([0.2, 1.0, 3.0]))
    if "typed" in names if names is not None else rng.random() < 0.4:
        ptx = typed(ptx, seed)
    return ptx
