"""Random PTX kernels that are well-defined: for transforms, which must keep every bit, and for the emulator.

A program is a function of its seed and size. It is full of what code motion lives on: expressions that are redundant,
partially redundant, loop-invariant or redundant only by value; address arithmetic as nvcc emits it, computed again and
again; loads repeated with stores in between, through pointers that may be equal; values that live long; jumps out of
nested arms, breaks and continues, crossing forward jumps, loops with two entries; guarded instructions.

Guarantees, for every seed:

- it ends: each loop counts to a bound of at most `_MOST_TURNS`, in a register that nothing else writes;
- no race: a thread writes only its own slots of global, shared and local memory, apart from integer ``red`` on words
  that nobody reads; slots of others are read in shared memory only between barriers;
- barriers and lane exchanges stand where all threads of the block pass: never in a divergent arm, behind a divergent
  jump or a thread's exit;
- no access out of bounds: an index is masked, or compared with ``n`` in a branch or guard around the access (so a
  load that is moved above it may fault);
- no register is read before it is written, on any path.

A register that is written in an arm or loop is forgotten at its end; so what a join reads was written before the fork.

>>> random_kernel(1, 40) == random_kernel(1, 40)
True
"""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from random_instructions import CLASSES, Template, class_of, literal, templates

if TYPE_CHECKING:
    import numpy as np
    from ptxmotion.ptx import ScalarType

__all__ = ["RandomProgram", "random_kernel"]

#: 32-bit words: of the input, of each thread's slots in the two outputs, and of the common sums behind these.
INPUT_WORDS = 256
SLOT_WORDS = 16
SUM_WORDS = 8
_MOST_TURNS = 5
_DEEPEST = 4
_PREFIX = {"pred": "%p", "b16": "%rs", "b32": "%r", "b64": "%rd", "f32": "%f", "f64": "%fd"}


@dataclass(frozen=True)
class RandomProgram:
    """A kernel and how to launch it. Its parameters are ``in, out, other`` (pointers), ``n, k0, k1`` (``u32``) and
    ``x`` (``f32``); ``make_inputs`` gives them in that order."""

    ptx: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  #: bytes of dynamic shared memory
    output_index: int = 1
    outputs: tuple[int, ...] = (1, 2)  #: all parameters that are written

    def make_inputs(self, seed: int) -> list[np.ndarray | np.generic]:
        """The arguments: arrays for pointers, scalars for the rest. Where ``out`` and ``other`` are one object, they
        are to be one buffer."""
        import numpy as np

        rng = np.random.default_rng(seed)
        words = rng.integers(0, 1 << 32, INPUT_WORDS, dtype=np.uint32)
        small = rng.random(INPUT_WORDS) < 0.5
        words[small] &= 0xFF
        threads = self.grid[0] * self.block[0]
        outputs = [rng.integers(0, 1 << 16, threads * SLOT_WORDS + SUM_WORDS, dtype=np.uint32) for _ in range(2)]
        if rng.random() < 0.5:
            outputs[1] = outputs[0]
        bound = np.uint32(rng.choice([0, 1, 17, INPUT_WORDS]))
        scalars = [np.uint32(rng.integers(0, limit)) for limit in (4, 1 << 32)]
        return [words, *outputs, bound, *scalars, np.float32(rng.normal())]


def random_kernel(seed: int, size: int) -> RandomProgram:
    """The kernel of ``seed`` with about ``size`` statements (an access takes several instructions)."""
    rng = random.Random(f"{seed}:{size}")
    block = rng.choice([32, 64, 128])
    writer = _Writer(rng, block)
    writer.prologue()
    writer.statements(size * 3 // 4, _Level())
    writer.may_exit = True
    writer.statements(size - size * 3 // 4, _Level())
    writer.epilogue()
    shared = 4 * block if writer.is_dynamic else 0
    return RandomProgram(writer.text(), "fuzz", (rng.choice([1, 2, 3]), 1, 1), (block, 1, 1), shared)


@dataclass
class _Region:
    """A stretch that may be left by a jump to ``label`` behind it. ``is_broken`` once a divergent jump has left it.
    ``needs_all``: a barrier may be reached again after ``label``, so no thread may run ahead."""

    label: str
    needs_all: bool = False
    is_broken: bool = False
    is_used: bool = False


@dataclass
class _Level:
    """Where a statement stands: nesting depth, in how many loops, and whether all threads of the block come here."""

    depth: int = 0
    loops: int = 0
    is_uniform: bool = True

    def inner(self, *, is_uniform: bool, is_loop: bool = False) -> _Level:
        return _Level(self.depth + 1, self.loops + is_loop, self.is_uniform and is_uniform)


@dataclass
class _Known:
    """Registers that are written on every path to here, by class, and expressions that have been computed."""

    values: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CLASSES})
    assignable: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CLASSES})
    expressions: list[tuple[Template, tuple[str, ...]]] = field(default_factory=list)

    def copy(self) -> _Known:
        return _Known(
            {name: list(found) for name, found in self.values.items()},
            {name: list(found) for name, found in self.assignable.items()},
            list(self.expressions),
        )


class _Writer:
    def __init__(self, rng: random.Random, block: int) -> None:
        self.rng = rng
        self.block = block
        self.is_dynamic = rng.random() < 0.3
        self.lines: list[str] = []
        self.counts = dict.fromkeys(CLASSES, 0)
        self.labels = 0
        self.known = _Known()
        self.regions: list[_Region] = []
        self.may_exit = False
        self.exchanged = False  #: the shared slots hold values that all threads may read
        self.uniform_predicates: list[str] = []
        self.uniform_counts: list[str] = []
        self.bases: dict[str, str] = {}
        self.templates = templates()
        self.weights = [template.weight for template in self.templates]

    # --- text ----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        registers = [f"\t.reg .{name} {_PREFIX[name]}<{count}>;" for name, count in self.counts.items() if count]
        size = "" if self.is_dynamic else str(4 * self.block)
        exchange = f".shared .align 16 .b8 exchange[{size}];"
        return "\n".join(
            [
                ".version 8.0\n.target sm_80\n.address_size 64\n",
                f".extern {exchange}" if self.is_dynamic else exchange,
                ".visible .entry fuzz(.param .u64 in, .param .u64 out, .param .u64 other, .param .u32 n,",
                "\t.param .u32 k0, .param .u32 k1, .param .f32 x)",
                f".maxntid {self.block}, 1, 1",
                "{",
                *registers,
                f"\t.shared .align 16 .b8 own[{16 * self.block}];",
                "\t.local .align 16 .b8 depot[32];",
                *self.lines,
                "}\n",
            ]
        )

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def label(self) -> str:
        self.labels += 1
        return f"$L_{self.labels}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    # --- registers -----------------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        number = self.counts[name]
        self.counts[name] = number + 1
        return f"{_PREFIX[name]}{number}"

    def define(self, name: str, text: str, *, is_fixed: bool = False) -> str:
        """Emit ``text`` with its result ``{}`` in a new register; ``is_fixed`` if nothing else may assign it."""
        reg = self.fresh(name)
        self.emit(text.format(reg))
        self.known.values[name].append(reg)
        if not is_fixed:
            self.known.assignable[name].append(reg)
        return reg

    def value(self, name: str) -> str:
        """A register of class ``name``, the recent ones more often."""
        found = self.known.values[name]
        if self.rng.random() < 0.5:
            return found[-1 - min(int(self.rng.expovariate(0.3)), len(found) - 1)]
        return self.rng.choice(found)

    def predicate(self) -> str:
        return ("!" if self.rng.random() < 0.3 else "") + self.value("pred")

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is written inside is forgotten behind it; its expressions may be computed there again."""
        outer = self.known
        inner = self.known = outer.copy()
        yield
        self.known = outer
        visible = {reg for found in outer.values.values() for reg in found}
        for template, sources in inner.expressions[len(outer.expressions) :]:
            if all(source.lstrip("!")[0] != "%" or source.lstrip("!") in visible for source in sources):
                outer.expressions.append((template, sources))

    # --- start and end -------------------------------------------------------------------------------------------

    def prologue(self) -> None:
        rng = self.rng
        for name in ("in", "out", "other"):
            pointer = self.define("b64", f"ld.param.u64 {{}}, [{name}]", is_fixed=True)
            self.bases[name] = self.define("b64", f"cvta.to.global.u64 {{}}, {pointer}", is_fixed=True)
        self.n = self.define("b32", "ld.param.u32 {}, [n]", is_fixed=True)
        self.k0 = self.define("b32", "ld.param.u32 {}, [k0]", is_fixed=True)
        k1 = self.define("b32", "ld.param.u32 {}, [k1]", is_fixed=True)
        x = self.define("f32", "ld.param.f32 {}, [x]", is_fixed=True)
        self.tid = self.define("b32", "mov.u32 {}, %tid.x", is_fixed=True)
        ctaid = self.define("b32", "mov.u32 {}, %ctaid.x", is_fixed=True)
        ntid = self.define("b32", "mov.u32 {}, %ntid.x", is_fixed=True)
        self.thread = self.define("b32", f"mad.lo.s32 {{}}, {ctaid}, {ntid}, {self.tid}", is_fixed=True)
        self.uniform_counts = [self.k0, str(rng.randrange(_MOST_TURNS)), "0", "1", "2"]
        for left, right in ((self.n, "16"), (k1, "0"), (ctaid, "1"), (self.k0, "2")):
            comparison = rng.choice(["lt", "ge", "eq", "ne"])
            predicate = self.define("pred", f"setp.{comparison}.u32 {{}}, {left}, {right}", is_fixed=True)
            self.uniform_predicates.append(predicate)
        for bound in (4, self.block // 2, 1):
            self.define("pred", f"setp.lt.u32 {{}}, {self.tid}, {bound}", is_fixed=True)
        self.define("b16", f"cvt.u16.u32 {{}}, {self.tid}")
        self.define("b64", f"cvt.u64.u32 {{}}, {k1}")
        self.define("f32", f"cvt.rn.f32.s32 {{}}, {self.thread}")
        self.define("f64", f"cvt.f64.f32 {{}}, {x}")
        # Long-lived variables: assigned everywhere, stored at the end.
        for name, source in (("b32", k1), ("b32", self.tid), ("b64", "7"), ("f32", x), ("f64", "0d3FF0000000000000")):
            kind = name.replace("b", "u") if name[0] == "b" else name
            self.define(name, f"mov.{kind} {{}}, {source}")
        self.define("b16", "mov.u16 {}, 3")
        self.define("pred", f"setp.gt.s32 {{}}, {k1}, {self.tid}")
        self.fill_own()
        self.final = {name: list(found) for name, found in self.known.assignable.items()}
        self.end = self.label()

    def fill_own(self) -> None:
        """Write all of the thread's local array and of its shared slots, so that none is read before it is written."""
        for offset in range(0, 32, 16):
            self.emit(f"st.local.v4.u32 [depot+{offset}], {{{self.tid}, {self.n}, {offset}, {self.thread}}}")
        address = self.slot_in("own", 16)
        self.emit(f"st.shared.v4.b32 [{address}], {{{self.tid}, {self.n}, 0, {self.k0}}}")

    def epilogue(self) -> None:
        """Store every long-lived value; jumps to the end leave the stores out."""
        address = self.own_address("out")
        offset = 0
        for name in ("b32", "f32", "b64", "f64", "b16", "pred"):
            for reg in self.final[name][:3]:
                stored = reg
                if name == "pred":
                    stored = self.define("b32", f"selp.u32 {{}}, 1, 0, {reg}")
                kind = {"pred": "b32"}.get(name, name)
                width = 8 if name in ("b64", "f64") else 4
                offset += offset % width
                if offset + width > 4 * SLOT_WORDS:
                    break
                self.emit(f"st.global.{kind} [{address}+{offset}], {stored}")
                offset += width
        self.place(self.end)
        self.emit("ret")

    # --- statements ----------------------------------------------------------------------------------------------

    def statements(self, budget: int, level: _Level) -> None:
        rng = self.rng
        while budget > 0:
            choice = rng.random()
            if choice < 0.12 and budget > 4 and level.depth < _DEEPEST:
                part = rng.randrange(2, max(3, budget // 2 + 1))
                self.branch(part, level)
                budget -= part
            elif choice < 0.19 and budget > 4 and level.depth < _DEEPEST and level.loops < 2:
                part = rng.randrange(2, max(3, budget // 2 + 1))
                self.loop(part, level)
                budget -= part
            elif choice < 0.22 and budget > 4 and level.depth < _DEEPEST:
                part = rng.randrange(2, max(3, budget // 2 + 1))
                self.crossing(part, level)
                budget -= part
            elif choice < 0.25 and (self.regions or self.may_exit):
                self.jump(level)
                budget -= 1
            elif choice < 0.29:
                self.together(level)
                budget -= 1
            elif choice < 0.52:
                self.access()
                budget -= 1
            else:
                self.compute()
                budget -= 1

    def is_joint(self, level: _Level) -> bool:
        """Whether all threads of the block are sure to come here, each time that one does."""
        return level.is_uniform and not self.may_exit and not any(region.is_broken for region in self.regions)

    @contextmanager
    def region(self, *, needs_all: bool = False) -> Generator[_Region]:
        region = _Region(self.label(), needs_all)
        self.regions.append(region)
        with self.scope():
            yield region
        self.regions.pop()
        self.place(region.label)

    def jump(self, level: _Level) -> None:
        """Leave an enclosing region under a predicate; in the last part, perhaps the kernel."""
        rng = self.rng
        if self.may_exit and rng.random() < 0.3:
            self.emit(f"@{self.predicate()} {rng.choice(['exit', 'ret', 'bra ' + self.end])}")
            for region in self.regions:
                region.is_broken = True
            return
        first = next((i for i in range(len(self.regions), 0, -1) if self.regions[i - 1].needs_all), 0)
        if first == len(self.regions):
            return
        target = rng.randrange(first, len(self.regions))
        self.emit(f"@{self.predicate()} bra {self.regions[target].label}")
        for region in self.regions[target:]:
            region.is_broken = True

    def branch(self, budget: int, level: _Level) -> None:
        """An if with one arm or two; what is behind the join reads only what was written before the fork."""
        rng = self.rng
        is_uniform = rng.random() < 0.4
        predicate = rng.choice(self.uniform_predicates) if is_uniform else self.value("pred")
        sign = rng.choice(["", "!"])
        has_else = rng.random() < 0.5
        inner = level.inner(is_uniform=is_uniform)
        other, join = self.label(), self.label()
        self.emit(f"@{sign}{predicate} bra {other if has_else else join}")
        shared = self.exchanged
        with self.region():
            self.statements(budget // 2 if has_else else budget, inner)
        after = self.exchanged
        if has_else:
            self.emit(f"bra.uni {join}" if rng.random() < 0.3 else f"bra {join}")
            self.place(other)
            self.exchanged = shared
            with self.region():
                self.statements(budget - budget // 2, inner)
            shared = self.exchanged
        self.exchanged = after and shared
        self.place(join)

    def crossing(self, budget: int, level: _Level) -> None:
        """Two forward jumps that cross: no nesting of ifs has this graph."""
        inner = level.inner(is_uniform=False)
        exchanged = self.exchanged
        with self.region() as last:
            with self.region() as middle:
                self.statements(budget // 3, inner)
                self.emit(f"@{self.predicate()} bra {middle.label}")
                self.statements(budget // 3, inner)
                self.emit(f"@{self.predicate()} bra {last.label}")
            self.statements(budget // 3, inner)
        self.exchanged = exchanged

    # --- loops ---------------------------------------------------------------------------------------------------

    def loop(self, budget: int, level: _Level) -> None:
        rng = self.rng
        is_uniform = rng.random() < 0.5
        if is_uniform:
            bound = rng.choice(self.uniform_counts)
            if bound == self.k0:
                bound = self.define("b32", f"and.b32 {{}}, {self.k0}, 3", is_fixed=True)
        else:
            source = rng.choice([self.tid, self.thread, self.value("b32")])
            bound = self.define("b32", f"and.b32 {{}}, {source}, 3", is_fixed=True)
        shape = rng.choice([self.tested_above, self.tested_below, self.counted_down])
        if not is_uniform and rng.random() < 0.2:
            shape = self.two_entries
        shape(budget, level.inner(is_uniform=is_uniform, is_loop=True), bound)

    def body(self, budget: int, level: _Level) -> None:
        """A loop's body; jumping to its end is a ``continue``."""
        # In the second turn, what the first one left in shared memory may be of another exchange.
        self.exchanged = False
        with self.region():
            if self.rng.random() < 0.3:
                self.lines.append('\t.pragma "nounroll";')
            self.statements(budget, level)
        self.exchanged = False

    def tested_above(self, budget: int, level: _Level, bound: str) -> None:
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform) as whole:
            self.place(head)
            stop = self.define("pred", f"setp.ge.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{stop} bra {whole.label}")
            self.body(budget, level)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            self.emit(f"bra{self.rng.choice(['', '.uni'])} {head}")

    def tested_below(self, budget: int, level: _Level, bound: str) -> None:
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform):
            self.place(head)
            self.body(budget, level)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    def counted_down(self, budget: int, level: _Level, bound: str) -> None:
        """A loop behind a test, as nvcc turns ``for`` around."""
        counter = self.define("b32", f"mov.u32 {{}}, {bound}", is_fixed=True)
        none = self.define("pred", f"setp.eq.s32 {{}}, {counter}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform) as whole:
            self.emit(f"@{none} bra {whole.label}")
            self.place(head)
            self.body(budget, level)
            self.emit(f"add.s32 {counter}, {counter}, -1")
            again = self.define("pred", f"setp.ne.s32 {{}}, {counter}, 0", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    def two_entries(self, budget: int, level: _Level, bound: str) -> None:
        """A loop that may be entered in its middle: its graph is irreducible."""
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head, middle = self.label(), self.label()
        with self.region():
            self.emit(f"@{self.predicate()} bra {middle}")
            self.place(head)
            self.body(budget // 2, level)
            self.place(middle)
            self.body(budget - budget // 2, level)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """A new expression, one that has been computed already, or a chain of carries."""
        rng = self.rng
        known = self.known.expressions
        if rng.random() < 0.03:
            self.carry_chain()
            return
        if known and rng.random() < 0.35:
            template, sources = known[-1 - min(int(rng.expovariate(0.08)), len(known) - 1)]
        else:
            template = rng.choices(self.templates, self.weights)[0]
            sources = self.sources(template)
            known.append((template, sources))
        guard = ""
        assignable = self.known.assignable[template.result]
        if assignable and rng.random() < 0.35:
            result = rng.choice(assignable)
            if rng.random() < 0.5:
                guard = f"@{self.predicate()} "
            self.emit(f"{guard}{template.mnemonic} {', '.join([result, *sources])}")
            return
        if template.mnemonic.startswith("setp") and rng.random() < 0.15:
            second = self.fresh("pred")
            self.define("pred", f"{template.mnemonic} {{}}|{second}, {', '.join(sources)}")
            self.known.values["pred"].append(second)
            return
        self.define(template.result, f"{template.mnemonic} {{}}, {', '.join(sources)}")

    def sources(self, template: Template) -> tuple[str, ...]:
        base = template.mnemonic.partition(".")[0]
        count = len(template.sources)
        found = [
            self.source(scalar, is_last=number == count - 1, is_count=base in ("shl", "shr", "shf") and number > 0)
            for number, scalar in enumerate(template.sources)
        ]
        if base in ("div", "rem") and template.sources[0].is_integer:
            found[1] = self.divisor(template.sources[1])
        elif base == "lop3":
            found[-1] = str(self.rng.randrange(256))
        elif base in ("bfe", "bfi"):
            found[-2:] = [str(self.rng.randrange(32)), str(self.rng.randrange(33))]
        elif base == "testp" or (base == "mov" and template.result == "pred"):
            found = [self.value(class_of(scalar)) for scalar in template.sources]
        return tuple(found)

    def source(self, scalar: ScalarType, *, is_last: bool, is_count: bool) -> str:
        if is_last and self.rng.random() < (0.6 if is_count else 0.35):
            text = literal(scalar, self.rng, is_count=is_count)
            if text:
                return text
        if scalar.kind == "p" and self.rng.random() < 0.2:
            return "!" + self.value("pred")
        return self.value(class_of(scalar))

    def divisor(self, scalar: ScalarType) -> str:
        """Neither 0 nor -1: PTX leaves these quotients open."""
        if self.rng.random() < 0.6:
            return str(self.rng.choice([1, 2, 3, 7, 10, 16, 100]))
        name = class_of(scalar)
        masked = self.define(name, f"and.{name} {{}}, {self.value(name)}, 255", is_fixed=True)
        return self.define(name, f"or.{name} {{}}, {masked}, 1", is_fixed=True)

    def carry_chain(self) -> None:
        kind = self.rng.choice(["u32", "s32", "u64"])
        name = kind.replace("u", "b").replace("s", "b")
        operation = self.rng.choice(["add", "sub"])
        self.define(name, f"{operation}.cc.{kind} {{}}, {self.value(name)}, {self.value(name)}")
        if self.rng.random() < 0.5:
            self.define(name, f"{operation}c.cc.{kind} {{}}, {self.value(name)}, {self.value(name)}")
        self.define(name, f"{operation}c.{kind} {{}}, {self.value(name)}, {self.value(name)}")

    # --- memory --------------------------------------------------------------------------------------------------

    def access(self) -> None:
        actions = [
            (6, self.load_input),
            (3, self.load_checked),
            (2, self.load_guarded),
            (2, self.load_vector),
            (6, self.load_own),
            (6, self.store_own),
            (2, self.shared_own),
            (2, self.local_own),
            (2, self.shared_of_others),
            (1, self.atomic),
        ]
        self.rng.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def base(self, name: str) -> str:
        found = self.bases[name]
        if self.rng.random() < 0.2:
            pointer = self.define("b64", f"ld.param.u64 {{}}, [{name}]", is_fixed=True)
            return self.define("b64", f"cvta.to.global.u64 {{}}, {pointer}", is_fixed=True)
        return found

    def element(self, base: str, index: str, scale: int = 4) -> str:
        """The address of element ``index`` (``u32``), in one of the ways that compilers write it."""
        way = self.rng.randrange(4)
        if way == 0:
            return self.define("b64", f"mad.wide.u32 {{}}, {index}, {scale}, {base}", is_fixed=True)
        if way == 1:
            wide = self.define("b64", f"cvt.u64.u32 {{}}, {index}", is_fixed=True)
            offset = self.define("b64", f"shl.b64 {{}}, {wide}, {scale.bit_length() - 1}", is_fixed=True)
        else:
            offset = self.define("b64", f"mul.wide.u32 {{}}, {index}, {scale}", is_fixed=True)
        if way == 2:
            return self.define("b64", f"add.s64 {{}}, {offset}, {base}", is_fixed=True)
        return self.define("b64", f"add.s64 {{}}, {base}, {offset}", is_fixed=True)

    def input_index(self, mask: int) -> str:
        index = self.rng.choice([self.tid, self.thread, self.value("b32"), self.value("b32")])
        return self.define("b32", f"and.b32 {{}}, {index}, {mask}", is_fixed=True)

    def load_input(self) -> None:
        offset = self.rng.choice([0, 0, 4, 12])
        address = self.element(self.base("in"), self.input_index(INPUT_WORDS - 4))
        how = self.rng.choice(["ld.global.nc", "ld.global", "ld.global", "ld.global.ca"])
        if self.rng.random() < 0.2:
            kind = self.rng.choice(["u8", "s8", "u16", "s16"])
            self.define("b32", f"{how}.{kind} {{}}, [{address}+{offset}]")
        else:
            self.define("b32", f"{how}.u32 {{}}, [{address}+{offset}]")

    def unchecked(self) -> tuple[str, str]:
        """An index that may be out of bounds, and the predicate that says whether it is not."""
        index = self.rng.choice([self.thread, self.value("b32")])
        inside = self.define("pred", f"setp.lt.u32 {{}}, {index}, {self.n}", is_fixed=True)
        return index, inside

    def load_checked(self) -> None:
        """``if (i < n) v = in[i]``: a load that only the branch keeps from faulting."""
        variable = self.rng.choice(self.known.assignable["b32"])
        index, inside = self.unchecked()
        join = self.label()
        self.emit(f"@!{inside} bra {join}")
        with self.scope():
            address = self.element(self.base("in"), index)
            self.emit(f"ld.global.{self.rng.choice(['u32', 'nc.u32', 'b32'])} {variable}, [{address}]")
            if self.rng.random() < 0.5:
                again = self.element(self.base("in"), index)
                more = self.define("b32", f"ld.global.u32 {{}}, [{again}]")
                self.emit(f"add.s32 {variable}, {variable}, {more}")
        self.place(join)

    def load_guarded(self) -> None:
        variable = self.rng.choice(self.known.assignable["b32"])
        index, inside = self.unchecked()
        address = self.element(self.base("in"), index)
        self.emit(f"@{inside} ld.global.u32 {variable}, [{address}]")

    def load_vector(self) -> None:
        lanes = self.rng.choice([2, 4])
        mask = INPUT_WORDS - lanes
        address = self.element(self.base("in"), self.input_index(mask & ~3))
        results = [self.fresh("b32") for _ in range(lanes)]
        self.emit(f"ld.global.v{lanes}.u32 {{{', '.join(results)}}}, [{address}]")
        self.known.values["b32"] += results
        self.known.assignable["b32"] += results

    def own_address(self, name: str) -> str:
        """The address of this thread's first slot in ``out`` or ``other``, which may be the same buffer."""
        return self.element(self.base(name), self.thread, 4 * SLOT_WORDS)

    def own_place(self) -> tuple[str, int, int]:
        """Address and offset of a slot, and how many words there are from it to the last."""
        name = self.rng.choice(["out", "out", "other"])
        if self.rng.random() < 0.3:
            slot = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, {SLOT_WORDS - 4}", is_fixed=True)
            index = self.define("b32", f"mad.lo.s32 {{}}, {self.thread}, {SLOT_WORDS}, {slot}", is_fixed=True)
            return self.element(self.base(name), index), 0, 4
        word = self.rng.randrange(SLOT_WORDS)
        return self.own_address(name), 4 * word, SLOT_WORDS - word

    def load_own(self) -> None:
        address, offset, _ = self.own_place()
        if self.rng.random() < 0.2:
            self.define("f32", f"ld.global.f32 {{}}, [{address}+{offset}]")
        else:
            how = self.rng.choices(["ld.global.u32", "ld.volatile.global.u32"], [9, 1])[0]
            self.define("b32", f"{how} {{}}, [{address}+{offset}]")

    def store_own(self) -> None:
        address, offset, left = self.own_place()
        guard = f"@{self.predicate()} " if self.rng.random() < 0.2 else ""
        choice = self.rng.random()
        if choice < 0.2 and offset % 8 == 0 and left > 1:
            kind, value = self.rng.choice([("b64", self.value("b64")), ("f64", self.value("f64"))])
            self.emit(f"{guard}st.global.{kind} [{address}+{offset}], {value}")
        elif choice < 0.3 and offset % 16 == 0 and left > 3:
            values = ", ".join(self.value("b32") for _ in range(4))
            self.emit(f"{guard}st.global.v4.b32 [{address}+{offset}], {{{values}}}")
        elif choice < 0.4:
            self.emit(f"{guard}st.global.u8 [{address}+{offset + self.rng.randrange(4)}], {self.value('b32')}")
        elif choice < 0.55:
            self.emit(f"{guard}st.global.f32 [{address}+{offset}], {self.value('f32')}")
        else:
            self.emit(f"{guard}st.global.u32 [{address}+{offset}], {self.value('b32')}")

    def atomic(self) -> None:
        if self.rng.random() < 0.5:
            address, offset, _ = self.own_place()
            operation = self.rng.choice(["add", "max", "exch", "xor"])
            kind = {"max": "s32", "add": "u32"}.get(operation, "b32")
            self.define("b32", f"atom.global.{operation}.{kind} {{}}, [{address}+{offset}], {self.value('b32')}")
            return
        nctaid = self.define("b32", "mov.u32 {}, %nctaid.x", is_fixed=True)
        threads = self.define("b32", f"mul.lo.s32 {{}}, {nctaid}, {self.block}", is_fixed=True)
        address = self.element(self.base("out"), threads, 4 * SLOT_WORDS)
        word = self.rng.randrange(SUM_WORDS // 2)
        # One operation for each word: mixed, the order would show.
        operation = ["add.u32", "max.s32", "min.u32", "xor.b32"][word]
        self.emit(f"red.global.{operation} [{address}+{4 * word}], {self.value('b32')}")

    # --- shared and local memory -----------------------------------------------------------------------------------

    def slot_in(self, array: str, scale: int, index: str = "") -> str:
        base = self.define("b32", f"mov.u32 {{}}, {array}", is_fixed=True)
        index = index or self.tid
        if self.rng.random() < 0.5:
            return self.define("b32", f"mad.lo.s32 {{}}, {index}, {scale}, {base}", is_fixed=True)
        offset = self.define("b32", f"shl.b32 {{}}, {index}, {scale.bit_length() - 1}", is_fixed=True)
        return self.define("b32", f"add.s32 {{}}, {base}, {offset}", is_fixed=True)

    def shared_own(self) -> None:
        address = self.slot_in("own", 16)
        offset = self.rng.choice([0, 4, 8, 12])
        if self.rng.random() < 0.5:
            self.emit(f"st.shared.u32 [{address}+{offset}], {self.value('b32')}")
        else:
            self.define("b32", f"ld.shared.u32 {{}}, [{address}+{offset}]")

    def local_own(self) -> None:
        index = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, 7", is_fixed=True)
        base = self.define("b64", "mov.u64 {}, depot", is_fixed=True)
        address = self.element(base, index) if self.rng.random() < 0.6 else base
        if self.rng.random() < 0.5:
            self.emit(f"st.local.u32 [{address}], {self.value('b32')}")
        else:
            self.define("b32", f"ld.local.u32 {{}}, [{address}]")

    def shared_of_others(self) -> None:
        """A value that another thread has left; only after all have, and before any may write again."""
        if not self.exchanged:
            self.compute()
            return
        if self.rng.random() < 0.5:
            other = self.define("b32", f"xor.b32 {{}}, {self.tid}, {self.rng.randrange(self.block)}", is_fixed=True)
        else:
            moved = self.define("b32", f"add.s32 {{}}, {self.tid}, {self.value('b32')}", is_fixed=True)
            other = self.define("b32", f"and.b32 {{}}, {moved}, {self.block - 1}", is_fixed=True)
        address = self.slot_in("exchange", 4, other)
        self.define("b32", f"ld.shared.u32 {{}}, [{address}]")

    # --- all threads together ------------------------------------------------------------------------------------

    def together(self, level: _Level) -> None:
        """An exchange through shared memory or between lanes, where all threads come; else nothing."""
        if not self.is_joint(level):
            self.compute()
            return
        rng = self.rng
        if rng.random() < 0.6:
            address = self.slot_in("exchange", 4)
            self.emit("bar.sync 0")
            self.emit(f"st.shared.u32 [{address}], {self.value('b32')}")
            self.emit("bar.sync 0")
            self.exchanged = True
            self.shared_of_others()
        elif rng.random() < 0.6:
            mode, bound = rng.choice([("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
            lane = rng.randrange(32)
            self.define("b32", f"shfl.sync.{mode}.b32 {{}}, {self.value('b32')}, {lane}, {bound}, -1")
        else:
            self.define("b32", f"vote.sync.ballot.b32 {{}}, {self.predicate()}, -1")
