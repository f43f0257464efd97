"""Random kernels whose flow graph is arbitrary and whose registers are few: each is written in many blocks.

`random_programs` writes structured code with many registers, and addresses that are written once. Here a block may
branch to any block, conditionally, by ``brx.idx``, or by falling through; and all registers are variables of the whole
kernel, so that predicates, words, halves, pointers and indices are merged at every join. Instructions that were written
once are repeated in other blocks. Accesses of all widths overlap in part, also through generic addresses and in called
functions.

Guarantees, for every seed: the kernel ends, as each block counts down; every register is written before it is read; an
access is aligned and in the thread's own slots, or reads the input or a table; there are no races and no exchanges
between threads.

>>> random_graph(1, 6) == random_graph(1, 6)
True
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from random_instructions import Template, class_of, literal, templates
from random_programs import RandomProgram
from random_writer import GUARDS_LOST

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RandomGraph", "random_graph"]

_THREADS = 32
#: Numbers of 32-bit words: of the input, and of each thread's part of the outputs and of the results.
_INPUT, _SLOT, _RESULT = 256, 288, 64
#: Where the sliding pointers and indices of a thread begin in its part, in bytes. They take at most `_MOST_BLOCKS`
#: times `_MOST_STATEMENTS` steps of 4 bytes.
_MIDDLE = 608
_MOST_BLOCKS, _MOST_STATEMENTS = 14, 9
#: Registers that are not drawn as operands of arithmetic, and their types.
_NAMED = dict.fromkeys(["%turns", "%i0", "%i1", "%s0", "%s1", "%u0", "%j0", "%j1"], "b32") | dict.fromkeys(
    ["%a0", "%a1", "%a2", "%w0", "%w1", "%in", "%out", "%other", "%res", "%u1", "%u2"], "b64"
)
#: Types of accesses, with the class of the register and the number of bytes.
_ACCESSES = (
    *(("u8", "b32", 1), ("s8", "b32", 1), ("u8", "b16", 1), ("s8", "b64", 1), ("u16", "b16", 2), ("s16", "b32", 2)),
    *(("u32", "b32", 4), ("b32", "b32", 4), ("u32", "b32", 4), ("s32", "b64", 4), ("u32", "b64", 4)),
    *(("f32", "f32", 4), ("b32", "f32", 4), ("b64", "b64", 8), ("f64", "f64", 8), ("u64", "b64", 8)),
)


_PARAMETERS = ".param .u64 in, .param .u64 out, .param .u64 other, .param .u64 res, .param .u32 k"

_HEAD = """\
.version 8.8
.target sm_90
.address_size 64

.const .align 16 .u32 fixed[8] = {{{words}}};
.global .align 16 .u32 table[8] = {{{words}}};

.func (.reg .b32 %back) mix(.reg .b32 %one, .reg .b32 %two)
{{
	.reg .pred %q;
	setp.lt.u32 %q, %one, %two;
	@%q add.u32 %back, %one, 3;
	@!%q xor.b32 %back, %one, %two;
	ret;
}}

.func store(.param .u64 place, .param .u32 value)
{{
	.reg .b64 %where;
	.reg .b32 %what;
	ld.param.u64 %where, [place];
	ld.param.u32 %what, [value];
	st.u32 [%where], %what;
	ret;
}}

"""

#: The kernel where the graph is that of a function.
_CALLER = f"""\
.visible .entry fuzz({_PARAMETERS})
.maxntid {_THREADS}, 1, 1
{{
	.reg .b64 %pointer<4>;
	.reg .b32 %number;
	ld.param.u64 %pointer0, [in];
	ld.param.u64 %pointer1, [out];
	ld.param.u64 %pointer2, [other];
	ld.param.u64 %pointer3, [res];
	ld.param.u32 %number, [k];
	{{
	.param .b64 first;
	.param .b64 second;
	.param .b64 third;
	.param .b64 fourth;
	.param .b32 fifth;
	st.param.b64 [first], %pointer0;
	st.param.b64 [second], %pointer1;
	st.param.b64 [third], %pointer2;
	st.param.b64 [fourth], %pointer3;
	st.param.b32 [fifth], %number;
	call.uni work, (first, second, third, fourth, fifth);
	}}
	ret;
}}
"""


class RandomGraph(RandomProgram):
    """Its parameters are ``in, out, other, res`` (pointers) and ``k`` (``u32``)."""

    def make_inputs(self, seed: int) -> list[np.ndarray | np.generic]:
        """The arguments. ``out`` and ``other`` may be one buffer."""
        import numpy as np

        rng = np.random.default_rng(seed)
        words = rng.integers(0, 1 << 32, _INPUT, dtype=np.uint32)
        words[rng.random(_INPUT) < 0.6] &= 0xFF
        outputs = [rng.integers(0, 1 << 16, _THREADS * _SLOT, dtype=np.uint32) for _ in range(2)]
        if rng.random() < 0.5:
            outputs[1] = outputs[0]
        return [words, *outputs, np.zeros(_THREADS * _RESULT, np.uint32), np.uint32(rng.integers(0, 1 << 32))]


def random_graph(seed: int, blocks: int, *, for_gpu: bool = False) -> RandomGraph:
    """The kernel of ``seed`` with this number of blocks. ``for_gpu``: its results are the same on every machine, as in
    `random_programs`."""
    ptx = _Graph(random.Random(f"graph:{seed}:{blocks}"), blocks, for_gpu=for_gpu).text()
    return RandomGraph(ptx, "fuzz", (1, 1, 1), (_THREADS, 1, 1), 0, (1, 2, 3))


class _Graph:
    """Writes the blocks of one kernel."""

    def __init__(self, rng: random.Random, blocks: int, *, for_gpu: bool) -> None:
        self.rng = rng
        self.blocks = blocks
        self.for_gpu = for_gpu
        #: Registers by class. Each is initialised, and any instruction may write it.
        self.pools = {
            "pred": [f"%p{i}" for i in range(rng.randint(2, 5))],
            "b16": [f"%rs{i}" for i in range(rng.randint(2, 4))],
            "b32": [f"%r{i}" for i in range(rng.randint(3, 8))],
            "b64": [f"%rd{i}" for i in range(rng.randint(2, 5))],
            "f32": [f"%f{i}" for i in range(rng.randint(2, 4))],
            "f64": [f"%fd{i}" for i in range(rng.randint(2, 3))],
        }
        self.lines: list[str] = []
        self.is_sliding = rng.random() < 0.4
        #: Instructions that may be repeated.
        self.written: list[str] = []
        self.templates = [each for each in templates() if not each.is_video or (not for_gpu and rng.random() < 0.02)]
        self.weights = [each.weight for each in self.templates]

    def text(self) -> str:
        self.prologue()
        for number in range(self.blocks):
            self.block(number)
        self.epilogue()
        rng = self.rng
        words = ", ".join(str(rng.getrandbits(32)) for _ in range(8))
        head = _HEAD.format(words=words)
        if rng.random() < 0.25:
            return head + f".func work({_PARAMETERS})\n{self.body()}\n" + _CALLER
        return head + f".visible .entry fuzz({_PARAMETERS})\n.maxntid {_THREADS}, 1, 1\n{self.body()}\n"

    def body(self) -> str:
        """The declarations and instructions, in braces."""
        lines = [f"\t.reg .{name} {', '.join(pool)};" for name, pool in self.pools.items()]
        lines += [f"\t.reg .{kind} {name};" for name, kind in _NAMED.items()]
        lines += ["\t.reg .pred %stop;", f"\t.shared .align 16 .b8 own[{64 * _THREADS}];"]
        return "\n".join(["{", *lines, "\t.local .align 16 .b8 depot[64];", *self.lines, "}"])

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def prologue(self) -> None:
        rng, emit = self.rng, self.emit
        for name in ("in", "out", "other", "res"):
            emit(f"ld.param.u64 %{name}, [{name}]")
            emit(f"cvta.to.global.u64 %{name}, %{name}")
        emit("mov.u32 %u0, %tid.x")
        for name, width in (("out", 4 * _SLOT), ("other", 4 * _SLOT), ("res", 4 * _RESULT)):
            emit(f"mad.wide.u32 %{name}, %u0, {width}, %{name}")
        emit("mov.u32 %s0, own")
        emit("mad.lo.u32 %s0, %u0, 64, %s0")
        emit("mov.u32 %s1, %s0")
        emit(f"mov.u32 %turns, {rng.randint(2, _MOST_BLOCKS)}")
        emit("and.b32 %i0, %u0, 7")
        emit("mov.u32 %i1, 0")
        emit(f"mov.u64 %a0, {rng.choice(['%out', '%other'])}")
        for number in range(2):
            emit(f"mov.u32 %j{number}, 0")
            emit(f"add.s64 %w{number}, {rng.choice(['%out', '%other'])}, {_MIDDLE}")
        emit("mov.u64 %a1, %other")
        emit("mov.u64 %a2, %out")
        emit("ld.param.u32 %r0, [k]")
        emit("mad.lo.u32 %r1, %u0, 77, %r0")
        for number, reg in enumerate(self.pools["b32"][2:]):
            emit(f"ld.global.u32 {reg}, [%in+{16 * number}]")
        for number, reg in enumerate(self.pools["b64"]):
            emit(f"cvt.{rng.choice('us')}64.{rng.choice('us')}32 {reg}, %r{number % 3}")
        for number, reg in enumerate(self.pools["b16"]):
            emit(f"cvt.u16.u32 {reg}, %r{number % 3}")
        for number, reg in enumerate(self.pools["f32"]):
            emit(f"cvt.rn.f32.s32 {reg}, %r{number % 3}")
        for number, reg in enumerate(self.pools["f64"]):
            emit(f"cvt.rn.f64.u32 {reg}, %r{number % 3}")
        for reg in self.pools["pred"]:
            emit(f"setp.{rng.choice(['lt', 'ge', 'eq', 'ne'])}.u32 {reg}, %u0, {rng.choice([0, 1, 5, 16])}")
        for number in range(0, 64, 4):
            emit(f"st.local.u32 [depot+{number}], %r{number % 3}")
            emit(f"st.shared.u32 [%s0+{number}], %r{(number // 4) % 3}")

    def epilogue(self) -> None:
        self.lines.append("$end:")
        offset = 0
        for name in ("b32", "b64", "f32", "f64", "b16"):
            width = 8 if "64" in name else 4
            for reg in self.pools[name]:
                offset += -offset % width
                self.emit(f"st.global.{name} [%res+{offset}], {reg}")
                offset += width
        for reg in self.pools["pred"]:
            self.emit(f"selp.u32 %u0, 1, 2, {reg}")
            self.emit(f"st.global.u32 [%res+{offset}], %u0")
            offset += 4
        for number in range(0, 64, 16):
            self.emit(f"ld.shared.u32 %u0, [%s0+{number}]")
            self.emit(f"st.global.u32 [%res+{offset}], %u0")
            self.emit(f"ld.local.u32 %u0, [depot+{number + 4}]")
            self.emit(f"st.global.u32 [%res+{offset + 4}], %u0")
            offset += 8
        assert offset <= 4 * _RESULT
        self.emit("ret")

    # --- blocks

    def block(self, number: int) -> None:
        rng = self.rng
        self.lines.append(f"$b{number}:")
        self.emit("sub.u32 %turns, %turns, 1")
        self.emit("setp.eq.u32 %stop, %turns, 0")
        self.emit("@%stop bra $end")
        for _ in range(rng.randint(1, _MOST_STATEMENTS)):
            self.statement()
        choice = rng.random()
        label = f"$b{rng.randrange(self.blocks)}"
        if choice < 0.45:
            self.emit(f"@{self.predicate()} bra {label}")
        elif choice < 0.55:
            self.emit(f"@{self.predicate()} bra {label}")
            self.emit(f"bra $b{rng.randrange(self.blocks)}")
        elif choice < 0.7:
            self.emit(f"bra {label}")
        elif choice < 0.78:
            targets = [f"$b{rng.randrange(self.blocks)}" for _ in range(4)]
            self.lines.append(f"$t{number}: .branchtargets {', '.join(targets)};")
            self.emit(f"and.b32 %u0, {rng.choice(self.pools['b32'])}, 3")
            guard = f"@{self.predicate()} " if rng.random() < 0.3 else ""
            self.emit(f"{guard}brx.idx %u0, $t{number}")
        elif choice < 0.82:
            self.emit(f"@{self.predicate()} {rng.choice(['ret', 'exit', 'bra $end'])}")

    def reg(self, name: str) -> str:
        return self.rng.choice(self.pools[name])

    def predicate(self) -> str:
        return self.rng.choice(["", "!"]) + self.reg("pred")

    def guard(self) -> str:
        return f"@{self.predicate()} " if self.rng.random() < 0.25 else ""

    def statement(self) -> None:
        rng = self.rng
        if self.written and rng.random() < 0.3:
            self.lines.append(rng.choice(self.written))
            return
        before = len(self.lines)
        slides = 4 if self.is_sliding else 0.5
        actions = [
            *((8, self.compute), (2, self.logic), (3, self.load), (3, self.store), (2, self.pointer), (1, self.index)),
            *((1, self.parts), (0.5, self.carry), (1, self.table), (0.5, self.call), (0.5, self.space)),
            *((0.5, self.atomic), (slides, self.slide), (slides, self.slide_by_index)),
        ]
        rng.choices([each for _, each in actions], [weight for weight, _ in actions])[0]()
        if len(self.lines) == before + 1:
            self.written.append(self.lines[-1])

    def compute(self) -> None:
        rng = self.rng
        template = rng.choices(self.templates, self.weights)[0]
        sources = self.sources(template)
        guard = "" if self.for_gpu and template.mnemonic.startswith(GUARDS_LOST) else self.guard()
        self.emit(f"{guard}{template.mnemonic} {', '.join([self.reg(template.result), *sources])}")

    def sources(self, template: Template) -> list[str]:
        rng = self.rng
        base = template.mnemonic.partition(".")[0]
        last = len(template.sources) - 1
        found: list[str] = []
        for number, scalar in enumerate(template.sources):
            text = ""
            if number == last and rng.random() < 0.4 and base != "testp" and not template.is_video:
                text = literal(scalar, rng, is_count=base in ("shl", "shr", "shf"))
            if scalar.kind == "p" and base not in ("mov", "not") and rng.random() < 0.3:
                text = "!" + self.reg("pred")
            found.append(text or self.reg(class_of(scalar)))
        if base in ("div", "rem") and template.sources[0].is_integer:
            found[1] = str(rng.choice([1, 2, 3, 7, 10, 16, 100]))
        elif base == "lop3":
            found[-1] = str(rng.randrange(256))
        elif base in ("bfe", "bfi"):
            found[-2:] = [str(rng.randrange(32)), str(rng.randrange(32 if self.for_gpu else 33))]
        elif base == "mov" and template.result == "pred":
            found = [self.reg("pred")]
        return found

    def logic(self) -> None:
        rng = self.rng
        choice = rng.randrange(5)
        one, two = rng.sample(self.pools["pred"], 2)
        kind, compared = rng.choice([("s32", "b32"), ("u32", "b32"), ("u64", "b64"), ("s16", "b16"), ("f32", "f32")])
        relation = rng.choice(["lt", "ge", "eq", "ne", "gt"])
        pair = f"{self.reg(compared)}, {self.reg(compared)}"
        boolean = rng.choice(["and", "or", "xor"])
        if choice == 0:
            self.emit(f"{self.guard()}setp.{relation}.{boolean}.{kind} {one}|{two}, {pair}, {self.predicate()}")
        elif choice == 1:
            self.emit(f"{self.guard()}setp.{relation}.{kind} {one}|{two}, {pair}")
        elif choice == 2:
            self.emit(f"{self.guard()}{boolean}.pred {self.reg('pred')}, {self.reg('pred')}, {self.reg('pred')}")
        elif choice == 3:
            self.emit(f"{self.guard()}not.pred {one}, {two}")
        else:
            # ptxas 13.0 crashes if this one has a guard.
            self.emit(f"setp.{relation}.{boolean}.{kind} _|{two}, {pair}, {self.predicate()}")

    # --- memory

    def place(self) -> tuple[str, str]:
        """A state space with its modifier, and a register or variable that is aligned to 16 and has 48 bytes."""
        rng = self.rng
        space = rng.choice(["global"] * 5 + ["", "shared", "local"])
        if space == "shared":
            return ".shared", rng.choice(["%s0", "%s1"])
        if space == "local":
            return ".local", "depot"
        return ("." + space if space else ""), rng.choice(["%a0", "%a1", "%a2", "%out", "%other"])

    def load(self) -> None:
        rng = self.rng
        space, base = self.place()
        how = rng.choice(["", "", "", "", "", ".volatile"]) if space != ".local" else ""
        if rng.random() < 0.2:
            name = rng.choice(["b32", "f32"])
            lanes = 4 if len(self.pools[name]) > 3 and rng.random() < 0.5 else 2
            results = ", ".join(rng.sample(self.pools[name], lanes))
            self.emit(f"{self.guard()}ld{how}{space}.v{lanes}.{name} {{{results}}}, [{base}+{rng.choice([0, 16])}]")
            return
        kind, name, width = rng.choice(_ACCESSES)
        if base[0] == "%" and space == ".global" and rng.random() < 0.2:
            self.emit("mul.wide.u32 %u1, %i0, 4")
            self.emit(f"add.s64 %u2, {base}, %u1")
            self.emit(f"{self.guard()}ld{how}{space}.u32 {self.reg('b32')}, [%u2]")
            return
        self.emit(f"{self.guard()}ld{how}{space}.{kind} {self.reg(name)}, [{base}+{rng.randrange(0, 32, width)}]")

    def store(self) -> None:
        rng = self.rng
        space, base = self.place()
        how = rng.choice(["", "", "", "", "", ".volatile"]) if space != ".local" else ""
        if rng.random() < 0.2:
            lanes, name = rng.choice([2, 4]), rng.choice(["b32", "f32"])
            stored = ", ".join(self.reg(name) for _ in range(lanes))
            self.emit(f"{self.guard()}st{how}{space}.v{lanes}.{name} [{base}+{rng.choice([0, 16])}], {{{stored}}}")
            return
        kind, name, width = rng.choice(_ACCESSES)
        if base[0] == "%" and space == ".global" and rng.random() < 0.2:
            self.emit(f"mad.wide.u32 %u2, {rng.choice(['%i0', '%i1'])}, 4, {base}")
            self.emit(f"{self.guard()}st{how}{space}.u32 [%u2], {self.reg('b32')}")
            return
        kind = kind.replace("s", "u")
        self.emit(f"{self.guard()}st{how}{space}.{kind} [{base}+{rng.randrange(0, 32, width)}], {self.reg(name)}")

    def pointer(self) -> None:
        rng = self.rng
        result = rng.choice(["%a0", "%a1", "%a2"])
        choice = rng.randrange(6)
        if choice == 0:
            self.emit(f"{self.guard()}mov.u64 {result}, {rng.choice(['%a0', '%a1', '%a2', '%out', '%other'])}")
        elif choice == 1:
            sources = ", ".join(rng.choice(["%a0", "%a1", "%a2", "%out", "%other"]) for _ in range(2))
            self.emit(f"{self.guard()}selp.b64 {result}, {sources}, {self.reg('pred')}")
        elif choice == 2:
            self.emit(f"and.b32 %u0, {self.reg('b32')}, 1")
            self.emit(f"mad.wide.u32 {result}, %u0, 16, {rng.choice(['%out', '%other'])}")
        elif choice == 3:
            self.emit(f"{self.guard()}add.s64 {result}, {rng.choice(['%out', '%other'])}, 16")
        elif choice == 4:
            self.emit(f"and.b32 %u0, {self.reg('b32')}, 16")
            self.emit("add.u32 %u0, %u0, %s0")
            self.emit("mov.u32 %s1, %u0")
        else:
            self.emit(f"{self.guard()}sub.s64 {result}, {rng.choice(['%out', '%other'])}, -16")

    def index(self) -> None:
        rng = self.rng
        result, other = rng.choice(["%i0", "%i1"]), rng.choice(["%i0", "%i1"])
        choice = rng.randrange(4)
        if choice == 0:
            self.emit(f"{self.guard()}and.b32 {result}, {self.reg('b32')}, 7")
        elif choice == 1:
            self.emit(f"add.u32 %u0, {other}, {rng.choice([1, 2, -1])}")
            self.emit(f"{self.guard()}and.b32 {result}, %u0, 7")
        elif choice == 2:
            self.emit(f"{self.guard()}min.u32 {result}, {other}, {rng.randrange(8)}")
        else:
            self.emit(f"{self.guard()}selp.u32 {result}, {other}, {rng.randrange(8)}, {self.reg('pred')}")

    def slide(self) -> None:
        """Advance a pointer by a word, or access its neighbours. Offsets are no multiples of 8."""
        rng = self.rng
        pointer = rng.choice(["%w0", "%w1"])
        choice = rng.random()
        if choice < 0.35:
            self.emit(f"{self.guard()}add.s64 {pointer}, {pointer}, {rng.choice([4, 4, -4])}")
        else:
            self.access_word(f"[{pointer}+{rng.choice([-12, -4, 4, 12, 20])}]")

    def slide_by_index(self) -> None:
        """The same with an index."""
        rng = self.rng
        index = rng.choice(["%j0", "%j1"])
        choice = rng.random()
        if choice < 0.35:
            self.emit(f"{self.guard()}add.s32 {index}, {index}, {rng.choice([1, 1, -1])}")
            return
        base = rng.choice(["%out", "%other"])
        if rng.random() < 0.5:
            self.emit(f"mad.wide.s32 %u1, {index}, 4, {base}")
        else:
            self.emit(f"mul.wide.s32 %u1, {index}, 4")
            self.emit(f"add.s64 %u1, {base}, %u1")
        self.access_word(f"[%u1+{_MIDDLE + rng.choice([-12, -4, 4, 12])}]")

    def access_word(self, place: str) -> None:
        rng = self.rng
        name = rng.choice(["b32", "b32", "f32"])
        if rng.random() < 0.6:
            self.emit(f"{self.guard()}ld.global.{name} {self.reg(name)}, {place}")
        else:
            self.emit(f"{self.guard()}st.global.{name} {place}, {self.reg(name)}")

    def table(self) -> None:
        rng = self.rng
        choice = rng.randrange(4)
        if choice == 0:
            name = rng.choice(["fixed", "table"])
            space = "const" if name == "fixed" else "global"
            self.emit(f"mov.u64 %u1, {name}")
            self.emit(f"mad.wide.u32 %u2, {rng.choice(['%i0', '%i1'])}, 4, %u1")
            self.emit(f"{self.guard()}ld.{space}.u32 {self.reg('b32')}, [%u2]")
        elif choice == 1:
            self.emit(f"{self.guard()}ld.const.u32 {self.reg('b32')}, [fixed+{4 * rng.randrange(8)}]")
        elif choice == 2:
            self.emit(f"and.b32 %u0, {self.reg('b32')}, {rng.choice([255, 15])}")
            self.emit("mul.wide.u32 %u1, %u0, 4")
            self.emit("add.s64 %u1, %in, %u1")
            self.emit(f"{self.guard()}ld.global{rng.choice(['', '.nc'])}.u32 {self.reg('b32')}, [%u1]")
        else:
            self.emit(f"ld.param.{rng.choice(['u32', 's32', 'u16', 'u8'])} {self.reg('b32')}, [k]")

    def parts(self) -> None:
        rng = self.rng
        choice = rng.randrange(6)
        if choice == 0:
            self.emit(f"{self.guard()}mov.b64 {self.reg('b64')}, {{{self.reg('b32')}, {self.reg('b32')}}}")
        elif choice == 1:
            one, two = rng.sample(self.pools["b32"], 2)
            self.emit(f"{self.guard()}mov.b64 {{{one}, {two}}}, {self.reg('b64')}")
        elif choice == 2:
            self.emit(f"{self.guard()}mov.b32 {self.reg('b32')}, {{{self.reg('b16')}, {self.reg('b16')}}}")
        elif choice == 3:
            one, two = rng.sample(self.pools["b16"], 2)
            self.emit(f"{self.guard()}mov.b32 {{{one}, {two}}}, {self.reg('b32')}")
        elif choice == 4:
            pair = [self.reg("b32"), "_"]
            rng.shuffle(pair)
            self.emit(f"mov.b64 {{{', '.join(pair)}}}, {self.reg(rng.choice(['b64', 'f64']))}")
        else:
            self.emit(f"{self.guard()}mov.b32 {self.reg('f32')}, {self.reg('b32')}")

    def carry(self) -> None:
        rng = self.rng
        kind, name = rng.choice([("u32", "b32"), ("s32", "b32"), ("u64", "b64")])
        operation = rng.choice(["add", "sub"])

        def operands(count: int) -> str:
            last = rng.choice([self.reg(name), self.reg(name), "-1", "0"])
            return ", ".join([*(self.reg(name) for _ in range(count)), last])

        if rng.random() < 0.3:
            self.emit(f"mad.lo.cc.{kind} {operands(3)}")
            self.emit(f"madc.hi.{kind} {operands(3)}")
            return
        self.emit(f"{operation}.cc.{kind} {operands(2)}")
        for _ in range(rng.randrange(3)):
            if rng.random() < 0.5:
                rng.choice([self.parts, self.load])()
            self.emit(f"{operation}c.cc.{kind} {operands(2)}")
        self.emit(f"{operation}c.{kind} {operands(2)}")

    def call(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.emit(f"call (%u0), mix, ({self.reg('b32')}, {self.reg('b32')})")
            self.emit(f"mov.u32 {self.reg('b32')}, %u0")
            return
        base = rng.choice(["%a0", "%a1", "%a2", "%out", "%other"])
        self.lines += [
            "\t{", "\t.param .b64 first;", "\t.param .b32 second;", f"\tst.param.b64 [first+0], {base};",
            f"\tst.param.b32 [second+0], {self.reg('b32')};", "\tcall.uni store, (first, second);", "\t}",
        ]  # fmt: skip

    def space(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.emit("mov.u64 %u1, depot")
            self.emit("cvta.local.u64 %u1, %u1")
        else:
            self.emit("cvt.u64.u32 %u1, %s1")
            self.emit("cvta.shared.u64 %u1, %u1")
        if rng.random() < 0.5:
            self.emit(f"{self.guard()}ld.u32 {self.reg('b32')}, [%u1+{4 * rng.randrange(8)}]")
        else:
            self.emit(f"{self.guard()}st.u32 [%u1+{4 * rng.randrange(8)}], {self.reg('b32')}")

    def atomic(self) -> None:
        rng, word = self.rng, self.reg("b32")
        place = f"[{rng.choice(['%a0', '%a1', '%a2'])}+{4 * rng.randrange(8)}]"
        choice = rng.randrange(4)
        if choice == 0:
            self.emit(f"{self.guard()}red.global.add.u32 {place}, {word}")
        elif choice == 1:
            self.emit(f"{self.guard()}atom.global.add.u32 {self.reg('b32')}, {place}, {word}")
        elif choice == 2:
            place = f"[%s1+{4 * rng.randrange(8)}]"
            self.emit(f"{self.guard()}atom.shared.exch.b32 {self.reg('b32')}, {place}, {word}")
        else:
            self.emit(f"{self.guard()}atom.global.cas.b32 {self.reg('b32')}, {place}, {self.reg('b32')}, {word}")
