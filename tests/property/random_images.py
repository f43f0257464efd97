"""Random kernels that read textures, and read and write surfaces.

Fetches, loads, stores and queries are in branches and loops, with and without guards, and again with the same
coordinates. Both surface parameters may be one surface. Coordinates of textures may be outside of them.

Guarantees, for every seed: the kernel ends; every register is written before it is read, on every path; a thread reads
and writes only its own column of a surface, so threads do not race.

>>> random_images(1, 30) == random_images(1, 30)
True
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from random_writer import Writer

if TYPE_CHECKING:
    from ptxmotion.emulator import Surface

__all__ = ["ROWS", "RandomImages", "random_images"]

THREADS = 32
#: Rows of a surface, and words that a thread stores.
ROWS = WORDS = 4
_DEEPEST = 3
_HEAD = """\
.version 8.8
.target sm_90
.address_size 64

.visible .entry fuzz(.param .u64 words, .param .u64 floats, .param .u64 volume, .param .u64 one, .param .u64 two,
	.param .u64 out)
"""


@dataclass(frozen=True)
class RandomImages:
    """The kernel ``fuzz``: three textures, two surfaces and an array."""

    ptx: str

    def make_inputs(self, seed: int) -> list[Any]:
        """The arguments. For half of the seeds, both surfaces are one."""
        import numpy as np
        from ptxmotion.emulator import Surface, Texture

        rng = np.random.default_rng(seed)
        border = ("clamp", "zero")[seed % 2]
        words = Texture(rng.integers(0, 1 << 16, (5, 6), dtype=np.uint32), border=border)
        floats = Texture(rng.random((4, 7, 2), dtype=np.float32), channels=2, border=border)
        volume = Texture(rng.integers(-99, 99, (3, 2, 5), dtype=np.int16), border=border)
        one, two = (Surface(rng.integers(0, 1 << 16, (ROWS, THREADS), dtype=np.uint32)) for _ in range(2))
        surfaces: list[Surface] = [one, one if rng.random() < 0.5 else two]
        return [words, floats, volume, *surfaces, np.zeros(THREADS * WORDS, np.uint32)]


def random_images(seed: int, size: int) -> RandomImages:
    """The kernel of ``seed`` with about ``size`` statements."""
    return RandomImages(_Images(random.Random(f"images:{seed}:{size}")).kernel(size))


class _Images(Writer):
    """The code of the kernel."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, THREADS)
        #: Operands of fetches and loads that were written on every path to here: their text without the results.
        self.reads: list[tuple[str, str]] = []

    def kernel(self, size: int) -> str:
        names = ("words", "floats", "volume", "one", "two", "out")
        self.handles = {name: self.address("b64", f"ld.param.u64 {{}}, [{name}]") for name in names}
        tid = self.define("b32", "mov.u32 {}, %tid.x", is_fixed=True)
        self.column = self.define("b32", f"shl.b32 {{}}, {tid}, 2", is_fixed=True)
        out = self.address("b64", f"mad.wide.u32 {{}}, {tid}, {4 * WORDS}, {self.handles['out']}")
        # Addresses differ between runs.
        self.known.values["b64"] = []
        self.define("b16", f"cvt.u16.u32 {{}}, {tid}")
        self.define("b32", f"mul.lo.u32 {{}}, {tid}, 7")
        self.define("b64", f"cvt.u64.u32 {{}}, {tid}")
        self.define("f32", f"cvt.rn.f32.u32 {{}}, {tid}")
        self.define("f64", f"cvt.rn.f64.u32 {{}}, {tid}")
        self.define("pred", f"setp.lt.u32 {{}}, {tid}, 20")
        self.statements(size, 0)
        for offset in range(0, 4 * WORDS, 4):
            self.emit(f"st.global.u32 [{out}+{offset}], {self.value('b32')}")
        self.emit("ret")
        return _HEAD + "\n".join(["{", *self.declarations(), *self.lines, "}\n"])

    # --- statements ----------------------------------------------------------------------------------------------

    def statements(self, budget: int, depth: int) -> None:
        rng = self.rng
        while budget > 0:
            choice = rng.random()
            part = rng.randrange(1, max(2, budget // 2 + 1))
            if choice < 0.12 and budget > 3 and depth < _DEEPEST:
                self.write_branch(partial(self.inside, part, depth + 1))
                budget -= part
            elif choice < 0.22 and budget > 3 and depth < _DEEPEST:
                self.write_loop(partial(self.inside, part, depth + 1), may_skip=False)
                budget -= part
            elif choice < 0.6:
                rng.choice([self.fetch, self.fetch, self.load, self.load, self.store, self.query])()
            else:
                self.compute()
            budget -= 1

    def inside(self, budget: int, depth: int) -> None:
        reads = list(self.reads)
        with self.scope():
            self.statements(budget, depth)
        self.reads = reads

    # --- images --------------------------------------------------------------------------------------------------

    def guard(self) -> str:
        return f"@{self.predicate()} " if self.rng.random() < 0.2 else ""

    def results(self, name: str, count: int) -> tuple[str, list[str]]:
        """A guard, and registers for results: new ones, or with the guard ones that have a value."""
        found = self.known.assignable[name]
        if len(found) >= count and self.rng.random() < 0.3:
            return self.guard(), self.rng.sample(found, count)
        return "", [self.fresh(name) for _ in range(count)]

    def read(self, kind: str, opcode: str, place: str, count: int) -> None:
        """A fetch or a load, sometimes with the opcode and the operands of an earlier one."""
        if self.reads and self.rng.random() < 0.4:
            kind, text = self.rng.choice(self.reads)
            opcode, place, number = text.split(" | ")
            count = int(number)
        guard, registers = self.results(kind, count)
        listed = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
        self.emit(f"{guard}{opcode} {listed}, {place}")
        for register in registers:
            if register not in self.known.values[kind]:
                self.known.values[kind].append(register)
                self.known.assignable[kind].append(register)
        self.reads.append((kind, f"{opcode} | {place} | {count}"))

    def coordinate(self) -> str:
        """A number from -1 to 6, in a register that keeps it."""
        low = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, 7", is_fixed=True)
        return self.define("b32", f"sub.s32 {{}}, {low}, 1", is_fixed=True)

    def fetch(self) -> None:
        name = self.rng.choice(["words", "floats", "volume"])
        kind = {"words": "u32", "floats": "f32", "volume": "s32"}[name]
        places = [self.coordinate() for _ in range(3 if name == "volume" else 2)]
        by = self.rng.choice(["s32", "f32"])
        if by == "f32":
            places = [self.define("f32", f"cvt.rn.f32.s32 {{}}, {each}", is_fixed=True) for each in places]
        places += places[2:]
        place = f"[{self.handles[name]}, {{{', '.join(places)}}}]"
        self.read("f32" if kind == "f32" else "b32", f"tex.{2 + (name == 'volume')}d.v4.{kind}.{by}", place, 4)

    def surface_place(self) -> str:
        row = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, {ROWS - 1}", is_fixed=True)
        return f"[{self.handles[self.rng.choice(['one', 'two'])]}, {{{self.column}, {row}}}]"

    def load(self) -> None:
        outside = self.rng.choice(["trap", "clamp", "zero"])
        kind, register = self.rng.choice([("b32", "b32"), ("b32", "b32"), ("b16", "b16"), ("b8", "b16")])
        self.read(register, f"suld.b.2d.{kind}.{outside}", self.surface_place(), 1)

    def store(self) -> None:
        """At a new place, or at one that was read."""
        outside = self.rng.choice(["trap", "clamp", "zero"])
        kind, register = self.rng.choice([("b32", "b32"), ("b32", "b32"), ("b16", "b16"), ("b8", "b16")])
        known = [text.split(" | ")[1] for _, text in self.reads if text.startswith("suld")]
        place = self.rng.choice(known) if known and self.rng.random() < 0.6 else self.surface_place()
        self.emit(f"{self.guard()}sust.b.2d.{kind}.{outside} {place}, {self.value(register)}")

    def query(self) -> None:
        name = self.rng.choice(["words", "floats", "volume", "one", "two"])
        opcode = "suq" if name in ("one", "two") else "txq"
        self.define("b32", f"{opcode}.{self.rng.choice(['width', 'height'])}.b32 {{}}, [{self.handles[name]}]")
