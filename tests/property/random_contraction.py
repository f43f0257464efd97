"""Random kernels of products, sums, stores and loads, and the opcodes that ptxas uses for each sum.

Each sum adds its own constant, so that it can be found in the machine code: as ``FADD`` with the constant if the
other operand is rounded, as ``FFMA`` if ptxas contracts it. Some products have their own constant factor and are
added in pairs: one is ``FMUL`` with its factor, the other one ``FFMA``. A pass must not change this, even if both
have the same constant and their other factors are two loads of one address. Some kernels compute one product several
times in nested loops and do little else. In some kernels most instructions and branches depend on one predicate:
guards, the branches around them, and ``selp``. In some kernels, instructions that ptxas may fold or remove read
products: equal operands, neutral constants, constant predicates, branches around nothing. Some kernels have shuffles,
votes and barriers between the others.
"""

from __future__ import annotations

import random
import re
import struct
from collections import defaultdict

from ptxmotion.ptx import Instr
from random_comparisons import respelled

__all__ = ["constant_of", "contraction_kernel", "sums_in"]

#: Offsets in bytes of the buffer that kernels store to and load from. Results of sums are stored after them.
_SLOTS = (0, 4, 8, 12)
_RESULTS = 64
#: Those with ``.rn`` are what the passes make of products and sums that must not be contracted.
_PRODUCTS = ("mul.f32",) * 5 + ("mul.rn.f32",)
_SUMS = ("add.f32", "sub.f32") * 4 + ("add.rn.f32",)
#: By kind: what ptxas may fold, of the value V to the result R. K is a constant, W the value V or a copy, S a slot.
_FOLDED = {
    "float": (
        "mul.f32 R, V, K;",
        "mul.f32 R, K, V;",
        "mul.rn.f32 R, V, K;",
        "div.approx.f32 R, V, K;",
        "add.f32 R, V, K;",
        "sub.f32 R, V, K;",
        "add.rn.f32 R, V, K;",
        "max.f32 R, V, K;",
        "min.f32 R, K, V;",
        "fma.rn.f32 R, V, K, %c;",
        "fma.rn.f32 R, %a, K, V;",
    ),
    "equal": (
        "max.f32 R, V, W;",
        "min.f32 R, V, W;",
        "selp.f32 R, V, W, %p1;",
        "setp.equ.f32 %q, V, W; selp.f32 R, V, %a, %q;",
        "setp.gt.f32 %q, V, %c; selp.f32 R, %b, %b, %q;",
    ),
    "integer": (
        "add.s32 %j, %j, 0;",
        "and.b32 %j, %j, -1;",
        "and.b32 %j, %j, 0;",
        "mul.lo.s32 %j, %j, 1;",
        "neg.s32 %j, %j; neg.s32 %j, %j;",
        "xor.b32 %j, %j, %j;",
        "max.s32 %j, %j, %j;",
        "add.s32 %j, %j, 5; sub.s32 %j, %j, 5;",
        "xor.b32 %j, %j, 0x80000000;",
        "cvt.u64.u32 %l, %j; cvt.u32.u64 %j, %l;",
        "prmt.b32 %j, %j, 0, 0x3210;",
        "abs.s32 %j, %j;",
    ),
    "predicate": (
        "selp.f32 R, V, %c, %q;",
        "selp.f32 R, %c, V, %q;",
        "mov.f32 R, %c; @%q st.global.f32 [%o+S], V;",
        "mov.f32 R, %b; @%q mov.f32 R, V;",
    ),
    "comparison": (
        "selp.f32 R, %b, %c, %q;",
        "mov.f32 R, %c; @%q st.global.f32 [%o+S], %c;",
        "mov.f32 R, %b; @%q mov.f32 R, %c;",
        "mov.f32 R, %c; @%q mov.f32 R, %c;",
    ),
    "branch": ("", "mov.f32 R, %c;", "add.f32 %other, V, %c;", "st.global.f32 [%o+S], %c;", "add.rn.f32 R, V, %c;"),
    "nothing": (
        "shfl.sync.idx.b32 %other, V, 0, 31, -1; mov.f32 R, %c;",
        "setp.gt.f32 %q, V, %c; vote.sync.any.pred %q, %q, -1; mov.f32 R, %c;",
        "mov.b32 %j, V; add.cc.u32 %j, %j, 7; mov.f32 R, %c;",
        "cvt.rzi.u32.f32 %j, V; mul.wide.u32 %l, %j, 4; add.u64 %l, %l, %x; ld.global.f32 %other, [%l]; mov.f32 R, V;",
        "setp.gt.f32 %q, V, %c; @%q mov.f32 %other, %c; mov.f32 R, V;",
    ),
    "turns": ("mov.f32 R, %c;", "mov.f32 R, V;"),
    "later": ("max.f32 R, V, %c;", "mul.rn.f32 R, V, %c;", "ex2.approx.f32 R, V;", "cvt.rni.f32.f32 R, V;"),
}
#: What lanes do together, with results in %other and %j. On some architectures it parts the sums of a product.
_TOGETHER = (
    "shfl.sync.idx.b32 %other, %a, 0, 31, -1;",
    "shfl.sync.bfly.b32 %other, %c, 1, 31, %n;",
    "vote.sync.any.pred %q, %p1, -1;",
    "vote.sync.ballot.b32 %j, %p2, -1;",
    "match.any.sync.b32 %j, %t, -1;",
    "redux.sync.add.u32 %j, %t, -1;",
    "bar.warp.sync -1;",
    "barrier.sync 0;",
    "bar.sync 0;",
    "activemask.b32 %j;",
)
#: 1, -1, 0, -0, the infinities and a NaN: neutral to some operations.
_NEUTRAL = ("0f3F800000", "0fBF800000", "0f00000000", "0f80000000", "0f7F800000", "0fFF800000", "0f7FFFFFFF")


def _literal(number: int) -> str:
    return f"0f{struct.unpack('<I', struct.pack('<f', 1 + number / 1024))[0]:08X}"


class _Writer:
    def __init__(self, rng: random.Random, first: int) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.constant = first
        self.registers = 0
        self.labels = 0
        self.inputs = ["%a", "%b", "%c"]
        self.values = list(self.inputs)
        #: How often an instruction has a guard, by kind, and the predicates of guards, branches and selections.
        self.guarded: dict[str, float] = {"store": 0.1}
        self.predicates = ["%p1", "%p2"]
        #: How often a reader that is no sum follows a product, so that the product is rounded.
        self.rounded = 0.0
        self.weights: dict[str, float] = {"mul": 6, "add": 7, "store": 4, "load": 5, "move": 1, "pair": 1, "long": 0.3}

    def compute_one_product_again(self) -> None:
        """From now on, all products without a constant factor are equal. Most of them are stored, in loops."""
        self.inputs = ["%a"]
        self.weights = {"mul": 4, "add": 3, "store": 5}
        self.values = ["%a"]

    def depend_on_one_predicate(self) -> None:
        """From now on, guards, branches and selections use one predicate or its negation, and most are guarded."""
        often = self.rng.choice([0.2, 0.5])
        self.guarded = {"store": 0.5, "add": often, "mul": often, "load": often, "move": often}
        self.predicates = ["%p1", "!%p1", "%p1"]
        self.rounded = self.rng.choice([0, 0.3, 0.7, 1])
        self.weights |= {"move": 4, "store": 5, "select": 3}

    def fold(self) -> None:
        """From now on, many values are read by instructions that ptxas may fold or remove."""
        self.weights["fold"] = self.rng.choice([4, 10])

    def guard(self, kind: str) -> str:
        return f"@{self.predicate()} " if self.rng.random() < self.guarded.get(kind, 0) else ""

    def predicate(self) -> str:
        return self.rng.choice(self.predicates)

    def new(self) -> str:
        self.registers += 1
        return f"%f{self.registers}"

    def statement(self, depth: int) -> None:
        weights = {
            **self.weights,
            "if": 3 * depth if "select" in self.weights else depth,
            "loop": depth if "load" in self.weights else 2 * depth,
        }
        kind = self.rng.choices(tuple(weights), tuple(weights.values()))[0]
        getattr(self, "_" + kind)(depth)

    def _mul(self, depth: int) -> None:
        left, right = self.rng.choice(self.inputs), self.rng.choice(self.inputs)
        self._define(f"{self.rng.choice(_PRODUCTS)} {{}}, {left}, {right};", self.guard("mul"))
        if self.rng.random() < self.rounded:
            self._read_otherwise(self.values[-1])

    def _read_otherwise(self, value: str) -> None:
        """Read ``value`` in its block, without a guard, by something else than a sum."""
        result = self.rng.choice(
            (
                f"mov.f32 %other, {value};",
                f"max.f32 %other, {value}, %c;",
                f"setp.gt.f32 %q, {value}, %b; selp.f32 %other, %a, %b, %q;",
            )
        )
        self.lines.append(f"{result} st.global.f32 [%o+{self.rng.choice(_SLOTS)}], %other;")

    def _define(self, text: str, guard: str = "") -> None:
        result = self.new()
        if guard:
            self.lines.append(f"mov.f32 {result}, {self.rng.choice(self.values)};")
        self.lines.append(guard + text.format(result))
        self.values.append(result)

    def _add(self, depth: int) -> None:
        self.constant += 1
        result, value = self.new(), self.rng.choice(self.values[-5:])
        operation, guard = self.rng.choice(_SUMS), self.guard("add")
        if guard:
            self.lines.append(f"mov.f32 {result}, {self.rng.choice(self.inputs)};")
        self.lines.append(f"{guard}{operation} {result}, {value}, {_literal(self.constant)};")
        self.lines.append(f"{self.guard('add')}st.global.f32 [%o+{_RESULTS + 4 * self.constant}], {result};")

    def _store(self, depth: int) -> None:
        value = self.rng.choice(self.values[-4:])
        self.lines.append(f"{self.guard('store')}st.global.f32 [%o+{self.rng.choice(_SLOTS)}], {value};")

    def _long(self, depth: int) -> None:
        """An instruction that ptxas may compile to a call or to a separate block. Some are dead."""
        self._define(self.rng.choice(("div.rn.f32 {}, %a, %b;", "sqrt.rn.f32 {}, %b;", "sqrt.approx.f32 {}, %c;")))

    def _load(self, depth: int) -> None:
        self._define(f"ld.global.f32 {{}}, [%o+{self.rng.choice(_SLOTS)}];", self.guard("load"))

    def _move(self, depth: int) -> None:
        value = self.rng.choice(self.values)
        way = self.rng.random()
        if way < 0.15:
            self._define(f"selp.f32 {{}}, {value}, {value}, %p1;")
        elif way < 0.3:
            self._define(f"selp.f32 {{}}, {value}, {self.rng.choice(self.values)}, %p2;")
        else:
            self._define(f"{self.rng.choice(('mov', 'neg'))}.f32 {{}}, {value};", self.guard("move"))

    def _select(self, depth: int) -> None:
        """A selection by the predicate of guards and branches, of values of which one may be a product."""
        one, other = self.rng.choice(self.values[-4:]), self.rng.choice([*self.inputs, *self.values[-4:]])
        self._define(f"selp.f32 {{}}, {one}, {other}, {self.rng.choice(['%p1', '%p1', '%p2'])};")

    def _fold(self, depth: int) -> None:
        kind, value, copy, result = self.rng.choice(tuple(_FOLDED)), self.rng.choice(self.values[-4:]), "", self.new()
        constant, text = self.rng.choice(_NEUTRAL), self.rng.choice(_FOLDED[kind])
        if self.rng.random() < 0.3:  # the constant in a register, some times as the result of a sum
            self.lines.append(f"mov.f32 %other, {constant};")
            if self.rng.random() < 0.5:
                self.lines.append("sub.f32 %other, %other, 0f40000000; add.f32 %other, %other, 0f40000000;")
            constant = "%other"
        if kind == "equal" and self.rng.random() < 0.5:
            copy = self.new()
            self.lines.append(f"mov.f32 {copy}, {value};")
        comparison, other = self.rng.choice(["gt", "equ", "ltu"]), self.rng.choice(["V", "K", "%c"])
        before = {
            "integer": "mov.b32 %j, V;",
            "predicate": f"setp.eq.u32 %q, {self.rng.choice([1, 2])}, 1;",
            "comparison": f"setp.{comparison}.f32 %q, V, {other};",
            "branch": f"mov.f32 R, %c; setp.gt.f32 %q, V, %c; @%q bra $I{self.labels + 1};",
            "turns": f"max.f32 %other, V, %c; $I{self.labels + 1}: add.rn.f32 %other, %other, %b; "
            f"setp.lt.f32 %q, %other, %c; @%q bra $I{self.labels + 1};",
        }
        after = {"integer": "mov.b32 R, %j;", "branch": f"$I{self.labels + 1}:"}
        self.labels += kind in ("branch", "turns")
        words = {"V": value, "W": copy or value, "R": result, "K": constant, "S": str(self.rng.choice(_SLOTS))}
        for line in (before.get(kind, ""), text, after.get(kind, "")):
            self.lines.append(re.sub(r"(?<![%$\w])[VWRKS](?!\w)", lambda found: words[found.group()], line))
        self.values.append(result)
        if self.rng.random() < 0.3:
            self.lines.append(f"st.global.f32 [%o+{self.rng.choice(_SLOTS)}], {result};")

    def _together(self, depth: int) -> None:
        self.lines += ["mov.u32 %j, 0;", "mov.f32 %other, %b;", self.rng.choice(_TOGETHER)]
        if self.rng.random() < 0.5:
            self.lines.append(f"st.global.u32 [%o+{self.rng.choice(_SLOTS)}], %j;")
            self.lines.append(f"st.global.f32 [%o+{self.rng.choice(_SLOTS)}], %other;")

    def _pair(self, depth: int) -> None:
        if self.rng.random() < 0.3:
            # Two loads of one address. If a pass merges them, the products are equal, and ptxas computes one.
            slot = self.rng.choice(_SLOTS)
            products = [self._product(f"[%x+{slot}]", number) for number in range(2)]
        else:
            products = [self._product() for _ in range(2)]
        self.rng.shuffle(products)
        result = self.new()
        self.lines.append(f"{self.rng.choice(('add', 'sub'))}.f32 {result}, {products[0]}, {products[1]};")
        self.lines.append(f"st.global.f32 [%o+{_RESULTS + 4 * self.constant}], {result};")
        if self.rng.random() < 0.3:  # one of the products is rounded
            self.lines.append(f"st.global.f32 [%o+{self.rng.choice(_SLOTS)}], {self.rng.choice(products)};")

    def _product(self, address: str = "", number: int = 0) -> str:
        """A product of an input, or of a value that is loaded from ``address``, and of a constant: a new one if
        ``number`` is 0."""
        self.constant += number == 0
        factor = self.rng.choice(self.inputs)
        if address:
            factor = self.new()
            self.lines.append(f"ld.global.f32 {factor}, {address};")
        result, constant = self.new(), _literal(self.constant)
        if self.rng.random() < 0.3:  # the constant in another spelling, or in a register
            constant = constant.lower()
            if self.rng.random() < 0.5:
                self.lines.append(f"mov.{self.rng.choice(['f32', 'b32'])} %other, {constant};")
                constant = "%other"
        self.lines.append(f"mul.f32 {result}, {factor}, {constant};")
        self.values.append(result)
        return result

    def _scope(self, depth: int) -> None:
        known = list(self.values)
        for _ in range(self.rng.randrange(2, 6)):
            self.statement(depth - 1)
        self.values = known

    def _if(self, depth: int) -> None:
        self.labels += 1
        label = f"$I{self.labels}"
        self.lines.append(f"@{self.predicate()} bra {label};")
        self._scope(depth)
        self.lines.append(f"{label}:")

    def _loop(self, depth: int) -> None:
        self.labels += 1
        number = self.labels
        self.lines += [f"mov.u32 %i{number}, 0;", f'$L{number}: .pragma "nounroll";']
        self._scope(depth)
        counter = f"%i{number}"
        self.lines += [f"add.u32 {counter}, {counter}, 1;", f"setp.lt.u32 %q, {counter}, %n;", f"@%q bra $L{number};"]


def contraction_kernel(seed: int, name: str, first: int) -> str:
    """An entry in which each sum has a different constant, from number ``first`` on (fewer than 100)."""
    rng = random.Random(f"contraction:{seed}")
    writer = _Writer(rng, first)
    if rng.random() < 0.3:
        writer.compute_one_product_again()
    elif rng.random() < 0.5:
        writer.depend_on_one_predicate()
    if rng.random() < 0.3:
        writer.fold()
    if rng.random() < 0.3:
        writer.weights["together"] = 3
    for _ in range(rng.randrange(6, 30)):
        writer.statement(2)
    body = "\n\t".join(writer.lines)
    text = f""".visible .entry {name}(.param .u64 A, .param .u64 O, .param .u32 N)
{{
	.reg .f32 %a, %b, %c, %other, %f<{writer.registers + 1}>;
	.reg .u64 %x, %o, %l;
	.reg .u32 %n, %t, %j, %i<{writer.labels + 1}>;
	.reg .pred %q, %p<3>;
	ld.param.u64 %x, [A];
	ld.param.u64 %o, [O];
	ld.param.u32 %n, [N];
	mov.u32 %t, %tid.x;
	setp.gt.u32 %p1, %t, %n;
	setp.gt.u32 %p2, %n, 7;
	ld.volatile.global.f32 %a, [%x];
	ld.volatile.global.f32 %b, [%x+4];
	ld.volatile.global.f32 %c, [%x+8];
	{body}
	ret;
}}
"""
    return respelled(text, rng)


_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_SUM = re.compile(r"\b(FADD|FMUL|FFMA)\S*\s[^;]*?(\d+\.\d+)\b")


def constant_of(instr: Instr) -> str | None:
    """The constant of a sum in the form of `sums_in`; `None` if the sum has none."""
    for operand in instr.operands[1:]:
        if operand.text.startswith("0f3F8"):
            return repr(struct.unpack("<f", int(operand.text[2:], 16).to_bytes(4, "little"))[0])
    return None


def sums_in(listing: str) -> dict[tuple[str, str], set[str]]:
    """By kernel and constant: the opcodes in the machine code of the sum or product with this constant."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    kernel = ""
    for line in listing.splitlines():
        section = _SECTION.match(line)
        if section is not None:
            kernel = section.group(1)
            continue
        match = _SUM.search(line)
        if match is not None:
            found[kernel, match.group(2)].add(match.group(1))
    return dict(found)
