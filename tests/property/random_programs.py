"""Random PTX kernels that are well-defined: for transforms, which must keep every bit, and for the emulator.

A program is a function of its seed and size. It contains many opportunities for code motion: expressions that are
redundant, partially redundant, loop-invariant or redundant only by value; address arithmetic as nvcc emits it, computed
repeatedly; repeated loads with stores in between, through pointers that may be equal; values with long live ranges;
jumps out of nested arms, breaks and continues, crossing forward jumps, loops with two entries; guarded instructions.

Guarantees, for every seed:

- The kernel ends: each loop counts to a bound of at most `_MOST_TURNS`, in a register that nothing else writes.
- It has no race: a thread writes only its own slots of global, shared and local memory, except for integer ``red`` on
  words that nobody reads; slots of other threads are read in shared memory only between barriers.
- Barriers and lane exchanges are only where all threads of the block pass: never in a divergent arm, or after a
  divergent jump or a thread's exit.
- No access is out of bounds: an index is masked, or compared with ``n`` in a branch or guard around the access (so a
  load that is moved above it may fault).
- No register is read before it is written, on any path.

A register that is written in an arm or loop is not used after it. So a join reads only registers that were written
before the fork.

>>> random_kernel(1, 40) == random_kernel(1, 40)
True
"""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from random_accesses import INPUT_WORDS, SLOT_WORDS, SUM_WORDS, Accesses
from random_comparisons import respelled

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RandomProgram", "random_kernel"]

_MOST_TURNS = 5
_DEEPEST = 4


@dataclass(frozen=True)
class RandomProgram:
    """A kernel and how to launch it. Its parameters are ``in, out, other`` (pointers), ``n, k0, k1`` (``u32``) and
    ``x`` (``f32``); ``make_inputs`` gives them in that order."""

    ptx: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int  #: bytes of dynamic shared memory
    outputs: tuple[int, ...] = (1, 2)  #: all parameters that are written

    def make_inputs(self, seed: int) -> list[np.ndarray | np.generic]:
        """The arguments: arrays for pointers, scalars for the rest. If ``out`` and ``other`` are the same array object,
        they stand for one buffer."""
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


def random_kernel(seed: int, size: int, *, for_gpu: bool = False) -> RandomProgram:
    """The kernel of ``seed`` with about ``size`` statements (an access takes several instructions).

    ``for_gpu``: its results are the same on every machine (`Writer`).
    """
    rng = random.Random(f"{seed}:{size}")
    block = rng.choice([32, 64, 128])
    writer = _Structure(rng, block, for_gpu=for_gpu)
    writer.prologue()
    writer.statements(size * 3 // 4, _Level())
    writer.may_exit = True
    writer.statements(size - size * 3 // 4, _Level())
    writer.epilogue()
    shared = 4 * block if writer.is_dynamic else 0
    return RandomProgram(respelled(writer.text(), rng), "fuzz", (rng.choice([1, 2, 3]), 1, 1), (block, 1, 1), shared)


@dataclass
class _Region:
    """A region of code that a jump to ``label``, at its end, may leave.

    ``is_broken``: a divergent jump has left it. ``needs_all``: a barrier may be reached again after ``label``, so no
    thread may skip a part of the region.
    """

    label: str
    needs_all: bool = False
    is_broken: bool = False


@dataclass
class _Level:
    """The place of a statement: nesting depth, number of loops around it, and whether all threads of the block run
    it."""

    depth: int = 0
    loops: int = 0
    is_uniform: bool = True

    def inner(self, *, is_uniform: bool, is_loop: bool = False) -> _Level:
        return _Level(self.depth + 1, self.loops + is_loop, self.is_uniform and is_uniform)


class _Structure(Accesses):
    """Writes branches, loops, jumps and barriers around the other statements."""

    def __init__(self, rng: random.Random, block: int, *, for_gpu: bool = False) -> None:
        super().__init__(rng, block, for_gpu=for_gpu)
        self.regions: list[_Region] = []
        self.may_exit = False
        self.uniform_predicates: list[str] = []
        self.uniform_counts: list[str] = []
        self.final: dict[str, list[str]] = {}
        self.end = self.label()

    # --- start and end -------------------------------------------------------------------------------------------

    def prologue(self) -> None:
        rng = self.rng
        for name in ("in", "out", "other"):
            pointer = self.address("b64", f"ld.param.u64 {{}}, [{name}]")
            self.bases[name] = self.address("b64", f"cvta.to.global.u64 {{}}, {pointer}")
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

    def epilogue(self) -> None:
        """Store every long-lived value. Jumps to the end skip the stores."""
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
        """Whether all threads of the block reach this point each time that one does."""
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
        """A conditional jump out of an enclosing region, or, in the last part, out of the kernel."""
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
        """A branch with one arm or two.

        Code after the join reads only registers that were written before the branch.
        """
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
        """Two forward jumps that cross. No nested ifs have this graph."""
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

    def body(self, budget: int, level: _Level, counter: str) -> None:
        """The body of a loop. A jump to its end is a ``continue``. Its branches may depend on the number of the
        iteration."""
        # In the second iteration, shared memory may contain values of another exchange.
        self.exchanged = False
        with self.region():
            if self.rng.random() < 0.3:
                self.lines.append('\t.pragma "nounroll";')
            if self.rng.random() < 0.5:
                comparison = self.rng.choice(["eq", "ne", "lt", "ge"])
                self.define("pred", f"setp.{comparison}.u32 {{}}, {counter}, {self.rng.randrange(3)}", is_fixed=True)
            self.statements(budget, level)
        self.exchanged = False

    def tested_above(self, budget: int, level: _Level, bound: str) -> None:
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform) as whole:
            self.place(head)
            stop = self.define("pred", f"setp.ge.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{stop} bra {whole.label}")
            self.body(budget, level, counter)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            self.emit(f"bra{self.rng.choice(['', '.uni'])} {head}")

    def tested_below(self, budget: int, level: _Level, bound: str) -> None:
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform):
            self.place(head)
            self.body(budget, level, counter)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    def counted_down(self, budget: int, level: _Level, bound: str) -> None:
        """A loop with a test before it and one at its end, as nvcc compiles ``for``."""
        counter = self.define("b32", f"mov.u32 {{}}, {bound}", is_fixed=True)
        none = self.define("pred", f"setp.eq.s32 {{}}, {counter}, 0", is_fixed=True)
        head = self.label()
        with self.region(needs_all=level.is_uniform) as whole:
            self.emit(f"@{none} bra {whole.label}")
            self.place(head)
            self.body(budget, level, counter)
            self.emit(f"add.s32 {counter}, {counter}, -1")
            again = self.define("pred", f"setp.ne.s32 {{}}, {counter}, 0", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    def two_entries(self, budget: int, level: _Level, bound: str) -> None:
        """A loop with a second entry in its middle: its graph is irreducible."""
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head, middle = self.label(), self.label()
        with self.region():
            self.emit(f"@{self.predicate()} bra {middle}")
            self.place(head)
            self.body(budget // 2, level, counter)
            self.place(middle)
            self.body(budget - budget // 2, level, counter)
            self.emit(f"add.s32 {counter}, {counter}, 1")
            again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    # --- all threads together ------------------------------------------------------------------------------------

    def together(self, level: _Level) -> None:
        """An exchange through shared memory or between lanes, if all threads reach this point; otherwise nothing."""
        if not self.is_joint(level):
            self.compute()
            return
        rng = self.rng
        if rng.random() < 0.5:
            address = self.slot_in("exchange", 4)
            self.emit("bar.sync 0")
            self.emit(f"st.shared.u32 [{address}], {self.value('b32')}")
            self.emit("bar.sync 0")
            self.exchanged = True
            self.shared_of_others()
        else:
            self.between_lanes()

    def between_lanes(self) -> None:
        """An exchange between the lanes of a warp, or between all threads without memory. Some have two results."""
        rng = self.rng
        way, word = rng.randrange(10), self.value("b32")
        if way < 3:
            mode, bound = rng.choice([("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
            self.with_second(f"shfl.sync.{mode}.b32", f"{word}, {rng.randrange(32)}, {bound}, -1")
        elif way == 3:
            self.define("b32", f"vote.sync.ballot.b32 {{}}, {self.predicate()}, -1")
        elif way == 4:
            self.define("pred", f"vote.sync.{rng.choice(['all', 'any', 'uni'])}.pred {{}}, {self.predicate()}, -1")
        elif way == 5:
            kind = rng.choice(["b32", "b64"])
            self.define("b32", f"match.any.sync.{kind} {{}}, {self.value(kind)}, -1")
        elif way == 6:
            kind = rng.choice(["b32", "b64"])
            self.with_second(f"match.all.sync.{kind}", f"{self.value(kind)}, -1")
        elif way == 7:
            operation, kind = rng.choice(
                [("add", "u32"), ("min", "s32"), ("max", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")]
            )
            self.define("b32", f"redux.sync.{operation}.{kind} {{}}, {word}, -1")
        elif way == 8 and not self.for_gpu:  # which lane is elected differs between machines
            self.with_second("elect.sync", "-1")
        else:
            self.emit("bar.warp.sync -1")
            text = rng.choice(["bar.red.popc.u32", "bar.red.and.pred", "bar.red.or.pred", "barrier.red.popc.u32"])
            self.define("pred" if text.endswith("pred") else "b32", f"{text} {{}}, 0, {self.predicate()}")

    def with_second(self, mnemonic: str, sources: str) -> None:
        """An instruction with a word as its result, and sometimes with a predicate as its second result."""
        second = f"|{self.fresh('pred')}" if self.rng.random() < 0.7 or mnemonic == "elect.sync" else ""
        self.define("b32", f"{mnemonic} {{}}{second}, {sources}")
        if second:
            self.known.values["pred"].append(second[1:])
