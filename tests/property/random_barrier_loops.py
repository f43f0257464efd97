"""Random kernels with barriers in loops: loads in front of them, behind them, in arms of branches, over the back edge.

A block of threads runs a loop of ``n`` iterations. Its statements load from `x`, whose last element is the last one
that any of the loads reads; exchange values through shared memory; store to `w` and load from it; increment counters
and pointers in the middle of the body; continue, leave the loop or end the kernel under conditions that are the same
for all threads; and run inner loops. What a thread has computed is stored to `y`.

With ``is_wild``, indices also decrease from iteration to iteration, and wrap around in 32 bits. `wild_launch` draws
launches in which the buffers may overlap or be parts of one allocation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BarrierLoop", "WildLaunch", "barrier_loop", "wild_launch"]

THREADS = 8
_HEAD = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 px, .param .u64 pw, .param .u64 pj, .param .u64 py, .param .u32 pn, .param .u32 pm)
{{
  .reg .b64 %a<40>, %x, %w, %j, %y, %own, %shared, %next, %run;
  .reg .b32 %r<90>, %t, %n, %m, %i, %k, %q, %acc, %v, %u;
  .reg .pred %p<60>, %known, %again, %more;
  .shared .align 4 .b8 tile[{4 * THREADS}];
  ld.param.u64 %x, [px];
  ld.param.u64 %w, [pw];
  ld.param.u64 %j, [pj];
  ld.param.u64 %y, [py];
  ld.param.u32 %n, [pn];
  ld.param.u32 %m, [pm];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %own, %t, 4;
  add.s64 %y, %y, %own;
  add.s64 %w, %w, %own;
  add.s64 %run, %x, %own;
  mov.u64 %shared, tile;
  add.s64 %shared, %shared, %own;
  xor.b32 %u, %t, 1;
  mul.wide.u32 %next, %u, 4;
  mov.u64 %a39, tile;
  add.s64 %next, %next, %a39;
  setp.lt.u32 %known, %t, 5;
  mov.u32 %i, 0;
  mov.u32 %k, 0;
  mov.u32 %acc, 1;
  mov.u32 %v, 2;
"""


@dataclass
class BarrierLoop:
    """A kernel, and how it is launched. ``reach``: the largest indices that the first thread reads without a test, as
    (factor of n, constant)."""

    ptx: str
    reach: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def arguments(self, seed: int) -> list[Any]:
        """New arguments: the buffers end at the last element that is read."""
        rng = random.Random(f"inputs:{seed}:{len(self.ptx)}")
        n = rng.choice((1, 1, 2, 3, 5))
        size = max([THREADS, *(factor * n + constant + THREADS for factor, constant in self.reach)])
        numbers = np.random.default_rng(seed)
        x = numbers.integers(0, 1 << 32, size, dtype=np.uint32)
        j = numbers.integers(0, size, size, dtype=np.uint32)
        w = numbers.integers(0, 1 << 32, (n + 1) * THREADS, dtype=np.uint32)
        return [x, w, j, np.zeros(THREADS, np.uint32), np.uint32(n), np.uint32(size)]


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"barrier loop:{seed}")
        self.lines: list[str] = []
        self.reach: list[tuple[int, int]] = [(1, 0)]
        self.labels = self.regs = self.addresses = self.predicates = 0
        self.step = self.rng.choice((1, 2))
        self.is_stepped = False
        self.can_leave = self.rng.random() < 0.3

    def emit(self, *lines: str) -> None:
        self.lines += [f"  {line}" for line in lines]

    def reg(self) -> str:
        self.regs += 1
        return f"%r{self.regs % 90}"

    def address(self) -> str:
        self.addresses += 1
        return f"%a{self.addresses % 38}"

    def predicate(self) -> str:
        self.predicates += 1
        return f"%p{self.predicates % (60 if self.rng.random() < 0.8 else 3)}"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def index(self, *, is_tested: bool) -> str:
        """A register with an index; if it is not tested, it is remembered how large it becomes."""
        rng, result = self.rng, self.reg()
        factor, constant = rng.choice((1, 1, 2, 3)), rng.randrange(3)
        counter = rng.choice(("%i", "%i", "%k"))
        self.emit(f"mad.lo.u32 {result}, {counter}, {factor}, %t;")
        if constant or rng.random() < 0.3:
            self.emit(f"add.u32 {result}, {result}, {constant};")
        if not is_tested:
            if counter == "%i":
                self.reach.append((factor, constant - factor))
            else:
                steps = factor * self.step
                self.reach.append((steps, constant - (0 if self.is_stepped else steps)))
        return result

    def pointer(self, index: str, base: str = "%x") -> str:
        result = self.address()
        self.emit(f"mul.wide.u32 {result}, {index}, 4;", f"add.s64 {result}, {base}, {result};")
        return result

    def use(self, value: str) -> None:
        if self.rng.random() < 0.5:
            self.emit(f"mov.u32 %v, {value};")
        else:
            self.emit(f"mad.lo.u32 %acc, %acc, 5, {value};")

    # --- statements --------------------------------------------------------------------------------------------------

    def load(self) -> None:
        if self.rng.random() < 0.2:
            place = f"[%run+{4 * self.rng.randrange(2)}]"
            self.reach.append((self.step, 1))
        else:
            place = f"[{self.pointer(self.index(is_tested=False))}]"
        value = self.rng.choice((self.reg(), "%v"))
        self.emit(f"ld.global{self.rng.choice(('', '.nc'))}.u32 {value}, {place};")
        self.use(value)

    def tested(self) -> None:
        skip, predicate = self.label(), self.predicate()
        if self.rng.random() < 0.4:
            index = self.index(is_tested=False)
            self.emit(f"@{self.rng.choice(('', '!'))}%known bra {skip};")
        else:
            index = self.index(is_tested=True)
            if self.rng.random() < 0.5:
                self.emit(f"setp.ge.u32 {predicate}, {index}, %m;", f"@{predicate} bra {skip};")
            else:
                self.emit(f"setp.lt.u32 {predicate}, {index}, %m;", f"@!{predicate} bra {skip};")
        value = self.rng.choice((self.reg(), "%v"))
        self.emit(f"ld.global.u32 {value}, [{self.pointer(index)}];")
        self.use(value)
        if self.rng.random() < 0.3:
            self.emit("add.u32 %acc, %acc, %i;")
        self.lines.append(f"{skip}:")

    def gather(self) -> None:
        index, value = self.reg(), self.reg()
        self.emit(f"ld.global.u32 {index}, [{self.pointer(self.index(is_tested=False), '%j')}];")
        self.emit(f"ld.global.u32 {value}, [{self.pointer(index)}];")
        self.use(value)

    def exchange(self) -> None:
        value = self.reg()
        self.emit("st.shared.u32 [%shared], %v;", "bar.sync 0;", f"ld.shared.u32 {value}, [%next];")
        self.use(value)
        self.emit("bar.sync 0;")

    def barrier(self) -> None:
        self.emit("bar.sync 0;")

    def compute(self) -> None:
        for _ in range(self.rng.choice((1, 4, 30))):
            self.emit(f"mad.lo.u32 %acc, %acc, {self.rng.randrange(3, 99, 2)}, %v;")

    def written(self) -> None:
        """Load an element of this iteration, and store to it or to that of the next iteration."""
        value, places = self.reg(), [self.address(), self.address()]
        for place, shift in zip(places, (0, self.rng.randrange(2)), strict=True):
            index = self.reg()
            self.emit(f"add.u32 {index}, %i, {shift};")
            self.emit(f"mad.wide.u32 {place}, {index}, {4 * THREADS}, %w;")
        self.emit(f"ld.global.u32 {value}, [{places[0]}];")
        self.use(value)
        self.emit(f"st.global.u32 [{places[1]}], %acc;")

    def count(self) -> None:
        if not self.is_stepped:
            self.is_stepped = True
            self.emit(f"add.u32 %k, %k, {self.step};", f"add.s64 %run, %run, {4 * self.step};")

    def leave(self) -> None:
        if not self.can_leave:
            return
        predicate = self.predicate()
        self.emit(f"setp.eq.u32 {predicate}, %i, {self.rng.randrange(4)};")
        self.emit(f"@{predicate} {self.rng.choice(('bra LATCH', 'bra LATCH', 'bra DONE', 'ret'))};")

    def inner(self) -> None:
        head = self.label()
        self.emit("mov.u32 %q, 0;")
        self.lines.append(f"{head}:")
        self.rng.choice((self.load, self.compute, self.exchange))()
        self.emit("add.u32 %q, %q, 1;", "setp.lt.u32 %again, %q, 2;", f"@%again bra {head};")

    def write(self) -> BarrierLoop:
        rng = self.rng
        if rng.random() < 0.4:
            self.emit("setp.eq.u32 %more, %n, 0;", "@%more bra DONE;")
        self.lines.append("LOOP:")
        if rng.random() < 0.3:
            self.load()
        kinds = [self.load, self.tested, self.gather, self.exchange, self.barrier, self.compute, self.written]
        kinds += [self.count, self.leave, self.load, self.tested, self.tested, self.exchange]
        if rng.random() < 0.2:
            kinds.append(self.inner)
        for _ in range(rng.randrange(3, 11)):
            rng.choice(kinds)()
        if not self.is_stepped:
            self.count()
        self.lines.append("LATCH:")
        self.emit("add.u32 %i, %i, 1;")
        if rng.random() < 0.5:
            self.emit("setp.lt.u32 %more, %i, %n;", "@%more bra LOOP;")
        else:
            self.emit("setp.ge.u32 %more, %i, %n;", "@!%more bra LOOP;")
        self.lines.append("DONE:")
        self.emit("mad.lo.u32 %acc, %acc, 7, %v;", "st.global.u32 [%y], %acc;", "ret;")
        return BarrierLoop(_HEAD + "\n".join(self.lines) + "\n}\n", self.reach)


class _WildWriter(_Writer):
    """Also writes indices that decrease, and indices that wrap around."""

    def index(self, *, is_tested: bool) -> str:
        kind = self.rng.random()
        if kind < 0.6:
            return super().index(is_tested=is_tested)
        result, down = self.reg(), self.reg()
        factor = self.rng.choice((1, 2, 8))
        self.emit(f"sub.u32 {down}, %n, %i;")
        if kind < 0.8:  # from n * factor down to factor
            self.emit(f"mad.lo.u32 {result}, {down}, {factor}, %t;")
            if not is_tested:
                self.reach.append((factor, 0))
        else:  # the sum is below 2^32 only after it has wrapped around; the first iterations of a tested load do not
            above = self.rng.choice((0, 1, 2)) if is_tested else 0
            self.emit(f"add.u32 {result}, %i, {(1 << 32) - above};" if above else f"mov.u32 {result}, %i;")
            self.emit(f"mad.lo.u32 {result}, {result}, {factor}, %t;")
            if not is_tested:
                self.reach.append((factor, -factor))
        return result


def barrier_loop(seed: int, *, is_wild: bool = False) -> BarrierLoop:
    """The kernel of a seed."""
    if not is_wild:
        return _Writer(seed).write()
    loop = _WildWriter(seed).write()
    # With ``.nc``, the kernel itself would promise that nobody writes there.
    return BarrierLoop(loop.ptx.replace("ld.global.nc.", "ld.global."), loop.reach)


@dataclass
class WildLaunch:
    """The bytes of the allocations, and for each pointer in the order of the parameters its allocation and where it
    points in it."""

    allocations: list[npt.NDArray[np.uint8]]
    places: list[tuple[int, int]]
    n: int
    m: int


def wild_launch(kernel: BarrierLoop, seed: int) -> WildLaunch:
    """A launch of a kernel. Half of the launches have four allocations that end at the last element that is read; the
    others have pointers into one allocation, side by side, overlapping, or equal."""
    rng = random.Random(f"wild:{seed}")
    arguments = kernel.arguments(seed)
    n = rng.choice((0, 1, 2, 3, 5))
    size = max([THREADS, *(factor * n + constant + THREADS for factor, constant in kernel.reach)])
    numbers = np.random.default_rng(seed)
    contents = [
        numbers.integers(0, 1 << 32, size, dtype=np.uint32),
        numbers.integers(0, 1 << 32, (n + 2) * THREADS, dtype=np.uint32),
        numbers.integers(0, size, size, dtype=np.uint32),
        np.zeros(THREADS, arguments[3].dtype),
    ]
    parts = [each.view(np.uint8) for each in contents]
    if rng.random() < 0.5:
        return WildLaunch([each.copy() for each in parts], [(number, 0) for number in range(4)], n, size)
    order, places, end = rng.sample(range(4), 4), [(0, 0)] * 4, 0
    for number in order:
        shift = rng.choice((0, 0, 0, -4, -4 * THREADS, 4, -len(parts[number])))
        start = max(end + shift, 0)
        places[number] = (0, start)
        end = max(end, start + len(parts[number]))
    pool = np.zeros(end, np.uint8)
    for number in order:
        start = places[number][1]
        pool[start : start + len(parts[number])] = parts[number]
    return WildLaunch([pool], places, n, size)
