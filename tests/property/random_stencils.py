"""Random stencils with every form of border handling, and launches of them.

A kernel has one to three axes. Each has a border mode (`MODES`) and a size that is a parameter or a constant. Most
indices have 32 bits, some 64, which are compared with the size or with a parameter of 64 bits.
The window is a list of random offsets, or a loop over a range whose length is a constant or a parameter. The coordinate
may have a stride and a start that lets 32-bit words wrap around. Each address is masked at the end, so any size is
allowed: 0, negative ones, and the largest word.

Sizes fit the grid in most launches, and half of the stencils are *tame*: their grids have enough blocks, and their
windows are so small, that some blocks are in the interior. Grids may overhang the domain.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["MODES", "RandomStencil", "random_stencil"]

WORDS = 1024
MODES = (
    *("clamp", "clamp_selp", "clamp_branch", "constant", "guarded", "sign", "mirror", "flip", "reflect", "repeat"),
    *("repeat_rotated", "remainder", "unsigned", "none", "clamp_wide", "wide"),
)
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


@dataclass
class RandomStencil:
    """A kernel ``k(in, out, w, h, d, r, big)`` and a launch of it."""

    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sizes: tuple[int, int, int]
    radius: int
    big: int

    def arguments(self, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        threads = int(np.prod(self.grid) * np.prod(self.block))
        words = rng.integers(0, 1 << 32, WORDS, dtype=np.uint32)
        out = np.zeros(threads, np.uint32)
        return [
            words,
            out,
            *(np.uint32(each & 0xFFFF_FFFF) for each in (*self.sizes, self.radius)),
            np.uint64(self.big),
        ]


@dataclass
class _Writer:
    rng: random.Random
    axes: int
    lines: list[str] = field(default_factory=list[str])
    counts: dict[str, int] = field(default_factory=lambda: {"r": 0, "rd": 0, "p": 0, "L": 0})

    def fresh(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"%{kind}{self.counts[kind]}" if kind != "L" else f"L{self.counts[kind]}"

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def made(self, text: str, kind: str = "r") -> str:
        """Emit an instruction with ``{}`` for its new result."""
        result = self.fresh(kind)
        self.emit(text.format(result))
        return result

    # --- one axis --------------------------------------------------------------------------------------------------

    def index(self, mode: str, x: str, size: str) -> tuple[str, str]:
        """The index of ``x`` on an axis, and a predicate that says that it is outside, or nothing."""
        return getattr(self, f"_{mode}")(x, size)

    def _none(self, x: str, size: str) -> tuple[str, str]:
        return x, ""

    def _clamp(self, x: str, size: str) -> tuple[str, str]:
        last = self.made(f"sub.s32 {{}}, {size}, 1;")
        first, second = self.rng.choice([(("max", "0"), ("min", last)), (("min", last), ("max", "0"))])
        low = self.made(f"{first[0]}.s32 {{}}, {x}, {first[1]};")
        operands = [low, second[1]]
        self.rng.shuffle(operands)
        return self.made(f"{second[0]}.s32 {{}}, {operands[0]}, {operands[1]};"), ""

    def _clamp_selp(self, x: str, size: str) -> tuple[str, str]:
        low = self.made(f"setp.lt.s32 {{}}, {x}, 0;", "p")
        x = self.made(f"selp.b32 {{}}, 0, {x}, {low};")
        last = self.made(f"add.s32 {{}}, {size}, -1;")
        high = self.made(f"setp.le.s32 {{}}, {x}, {last};", "p")
        return self.made(f"selp.b32 {{}}, {x}, {last}, {high};"), ""

    def _clamp_branch(self, x: str, size: str) -> tuple[str, str]:
        result, test, label = self.made(f"mov.u32 {{}}, {x};"), self.fresh("p"), self.fresh("L")
        self.emit(f"setp.gt.s32 {test}, {result}, -1;")
        self.emit(f"@{test} bra {label};")
        self.emit(f"mov.u32 {result}, 0;")
        self.emit(f"{label}:")
        test = self.made(f"setp.ge.s32 {{}}, {result}, {size};", "p")
        self.emit(f"@{test} sub.s32 {result}, {size}, 1;")
        return result, ""

    def _constant(self, x: str, size: str) -> tuple[str, str]:
        low = self.made(f"setp.lt.s32 {{}}, {x}, 0;", "p")
        if self.rng.random() < 0.5:
            return x, self.made(f"setp.ge.or.s32 {{}}, {x}, {size}, {low};", "p")
        high = self.made(f"setp.gt.s32 {{}}, {size}, {x};", "p")
        high = self.made(f"not.pred {{}}, {high};", "p")
        return x, self.made(f"or.pred {{}}, {low}, {high};", "p")

    _guarded = _constant

    def _unsigned(self, x: str, size: str) -> tuple[str, str]:
        return x, self.made(f"setp.ge.u32 {{}}, {x}, {size};", "p")

    def _clamp_wide(self, x: str, size: str) -> tuple[str, str]:
        kind = self.rng.choice(["s32", "s32", "u32"])
        wide = self.made(f"cvt.{kind[0]}64.{kind} {{}}, {x};", "rd")
        end = self.made(f"add.s32 {{}}, {size}, 0;")
        end = self.made(f"cvt.s64.s32 {{}}, {end};", "rd") if self.rng.random() < 0.7 else "%big"
        last = self.made(f"add.s64 {{}}, {end}, -1;", "rd")
        low = self.made(f"max.s64 {{}}, {wide}, 0;", "rd")
        high = self.made(f"min.s64 {{}}, {low}, {last};", "rd")
        return self.made(f"cvt.u32.u64 {{}}, {high};"), ""

    def _wide(self, x: str, size: str) -> tuple[str, str]:
        kind = self.rng.choice(["s32", "u32"])
        wide = self.made(f"cvt.{kind[0]}64.{kind} {{}}, {x};", "rd")
        return x, self.made(f"setp.ge.{self.rng.choice('us')}64 {{}}, {wide}, %big;", "p")

    def _sign(self, x: str, size: str) -> tuple[str, str]:
        """Both tests as one, of the sign of ``x | (size - 1 - x)``."""
        rest = self.made(f"sub.s32 {{}}, {size}, {x};")
        rest = self.made(f"add.s32 {{}}, {rest}, -1;")
        both = self.made(f"or.b32 {{}}, {x}, {rest};")
        return x, self.made(f"setp.lt.s32 {{}}, {both}, 0;", "p")

    def _mirror(self, x: str, size: str) -> tuple[str, str]:
        below = self.made(f"sub.s32 {{}}, -1, {x};")
        low = self.made(f"setp.lt.s32 {{}}, {x}, 0;", "p")
        x = self.made(f"selp.b32 {{}}, {below}, {x}, {low};")
        return self._upper_mirror(x, size, 1)

    def _upper_mirror(self, x: str, size: str, less: int) -> tuple[str, str]:
        double = self.made(f"shl.b32 {{}}, {size}, 1;")
        above = self.made(f"sub.s32 {{}}, {double}, {x};")
        above = self.made(f"sub.s32 {{}}, {above}, {less};")
        if self.rng.random() < 0.3:
            return self.made(f"min.s32 {{}}, {x}, {above};"), ""
        high = self.made(f"setp.lt.s32 {{}}, {x}, {size};", "p")
        return self.made(f"selp.b32 {{}}, {x}, {above}, {high};"), ""

    def _flip(self, x: str, size: str) -> tuple[str, str]:
        sign = self.made(f"shr.s32 {{}}, {x}, 31;")
        return self._upper_mirror(self.made(f"xor.b32 {{}}, {sign}, {x};"), size, 1)

    def _reflect(self, x: str, size: str) -> tuple[str, str]:
        return self._upper_mirror(self.made(f"abs.s32 {{}}, {x};"), size, 2)

    def _repeat(self, x: str, size: str) -> tuple[str, str]:
        """Loops that are tested at their start. A count ends them where the size is not positive."""
        result, count = self.made(f"mov.u32 {{}}, {x};"), self.made("mov.u32 {}, 0;")
        for test, step in (("ge", "add"), ("lt", "sub")):
            start, end, leaves = self.fresh("L"), self.fresh("L"), self.fresh("p")
            self.emit(f"{start}:")
            self.emit(f"setp.{test}.s32 {leaves}, {result}, {'0' if step == 'add' else size};")
            self.emit(f"@{leaves} bra {end};")
            self.emit(f"{step}.s32 {result}, {result}, {size};")
            self.emit(f"add.s32 {count}, {count}, 1;")
            more = self.made(f"setp.lt.s32 {{}}, {count}, 9;", "p")
            self.emit(f"@{more} bra {start};")
            self.emit(f"{end}:")
        return result, ""

    def _repeat_rotated(self, x: str, size: str) -> tuple[str, str]:
        """Loops that are tested at their end, with a test around them."""
        result, count = self.made(f"mov.u32 {{}}, {x};"), self.made("mov.u32 {}, 0;")
        for test, step in (("lt", "add"), ("ge", "sub")):
            start, end, outside = self.fresh("L"), self.fresh("L"), self.fresh("p")
            limit = "0" if step == "add" else size
            self.emit(f"setp.{test}.s32 {outside}, {result}, {limit};")
            self.emit(f"@!{outside} bra {end};")
            self.emit(f"{start}:")
            self.emit(f"{step}.s32 {result}, {result}, {size};")
            self.emit(f"add.s32 {count}, {count}, 1;")
            few = self.made(f"setp.lt.s32 {{}}, {count}, 9;", "p")
            self.emit(f"setp.{test}.and.s32 {outside}, {result}, {limit}, {few};")
            self.emit(f"@{outside} bra {start};")
            self.emit(f"{end}:")
        return result, ""

    def _remainder(self, x: str, size: str) -> tuple[str, str]:
        """``(x + size) % size``; a size of 0 is replaced by 1."""
        size = self.made(f"max.s32 {{}}, {size}, 1;") if self.rng.random() < 0.2 else size
        kind = self.rng.choice(["s32", "s32", "u32"])
        zero = self.made(f"setp.eq.s32 {{}}, {size}, 0;", "p")
        total = self.made(f"add.s32 {{}}, {x}, {size};") if self.rng.random() < 0.8 else x
        result, label = self.made("mov.u32 {}, 0;"), self.fresh("L")
        self.emit(f"@{zero} bra {label};")
        self.emit(f"rem.{kind} {result}, {total}, {size};")
        self.emit(f"{label}:")
        return result, ""


@dataclass
class _Axis:
    mode: str
    x: str
    size: str


class _Kernel:
    def __init__(self, rng: random.Random, *, is_tame: bool) -> None:
        self.rng = rng
        self.is_tame = is_tame
        self.axes = rng.choice([1, 2, 2, 3])
        self.w = _Writer(rng, self.axes)
        #: By axis: by how much the coordinate is larger than that of a usual kernel.
        starts, strides = ([0], [1]) if is_tame else ([0, 0, 5, -3, 2**31 - 6, -(2**31)], [1, 1, 2, -1])
        self.starts = [rng.choice(starts) for _ in range(3)]
        self.strides = [rng.choice(strides) for _ in range(3)]
        #: Whether threads outside of the domain end early.
        self.has_domain = rng.random() < 0.6
        #: By axis: its size as a constant, if it is one.
        self.fixed: dict[int, int] = {}

    def text(self) -> str:
        w, rng = self.w, self.rng
        for line in (
            "ld.param.u64 %in, [in];",
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %radius, [r];",
            "ld.param.u64 %big, [big];",
        ):
            w.emit(line)
        sizes = [w.made(f"ld.param.u32 {{}}, [{name}];") for name in "whd"]
        for axis in range(self.axes):
            if not self.is_tame and rng.random() < 0.3:
                self.fixed[axis] = rng.choice([1, 7, 33, 40])
                sizes[axis] = str(self.fixed[axis])
        coordinates = [self._coordinate(axis) for axis in range(3)]
        self._place(coordinates)
        axes = [_Axis(rng.choice(MODES), coordinates[axis], sizes[axis]) for axis in range(self.axes)]
        w.emit("mov.u32 %sum, 1;")
        if self.has_domain:
            self._domain(axes)
        shape = rng.choice(["unrolled", "unrolled", "loop", "radius"])
        if shape == "unrolled":
            for _ in range(rng.randint(1, 6)):
                self._tap(axes, [w.made(f"add.s32 {{}}, {each.x}, {self._offset()};") for each in axes])
        else:
            self._loop(axes, has_radius=shape == "radius")
        if rng.random() < 0.5 and not self.has_domain:
            w.emit("bar.sync 0;")
        w.emit("st.global.u32 [%out], %sum;")
        w.emit("DONE: ret;")
        counts = w.counts
        registers = (
            f".reg .b32 %r<{counts['r'] + 1}>; .reg .b64 %rd<{counts['rd'] + 1}>; .reg .pred %p<{counts['p'] + 1}>;"
        )
        params = ".param .u64 in, .param .u64 out, .param .u32 w, .param .u32 h, .param .u32 d, .param .u32 r"
        params += ", .param .u64 big"
        body = "\n".join(f"\t{line}" for line in w.lines)
        own = ".reg .b64 %in, %out, %big; .reg .b32 %sum, %radius, %turn;"
        return f"{HEAD}.visible .entry k({params})\n{{\n\t{registers}\n\t{own}\n{body}\n}}\n"

    def _coordinate(self, axis: int) -> str:
        w, name = self.w, "xyz"[axis]
        block, threads = w.made(f"mov.u32 {{}}, %ctaid.{name};"), w.made(f"mov.u32 {{}}, %ntid.{name};")
        thread = w.made(f"mov.u32 {{}}, %tid.{name};")
        x = w.made(f"mad.lo.s32 {{}}, {block}, {threads}, {thread};")
        if self.strides[axis] != 1:
            x = w.made(f"mul.lo.s32 {{}}, {x}, {self.strides[axis]};")
        return w.made(f"add.s32 {{}}, {x}, {self.starts[axis]};") if self.starts[axis] else x

    def _place(self, coordinates: list[str]) -> None:
        """Let ``%out`` point to the word of the thread."""
        w = self.w
        number = "0"
        for axis in reversed(range(3)):
            name = "xyz"[axis]
            block, threads = w.made(f"mov.u32 {{}}, %ctaid.{name};"), w.made(f"mov.u32 {{}}, %ntid.{name};")
            thread = w.made(f"mov.u32 {{}}, %tid.{name};")
            own = w.made(f"mad.lo.s32 {{}}, {block}, {threads}, {thread};")
            blocks = w.made(f"mov.u32 {{}}, %nctaid.{name};")
            whole = w.made(f"mul.lo.s32 {{}}, {blocks}, {threads};")
            number = w.made(f"mad.lo.s32 {{}}, {number}, {whole}, {own};")
        wide = w.made(f"mul.wide.u32 {{}}, {number}, 4;", "rd")
        w.emit(f"add.s64 %out, %out, {wide};")

    def _domain(self, axes: list[_Axis]) -> None:
        tests = [self.w.made(f"setp.ge.s32 {{}}, {each.x}, {each.size};", "p") for each in axes]
        while len(tests) > 1:
            tests.append(self.w.made(f"or.pred {{}}, {tests.pop()}, {tests.pop()};", "p"))
        self.w.emit(f"@{tests[0]} bra DONE;" if self.rng.random() < 0.7 else f"@{tests[0]} ret;")

    def _offset(self) -> int:
        return self.rng.choice([-2, -1, 0, 1, 3] if self.is_tame else [-6, -2, -1, 0, 1, 2, 6, 20])

    def _loop(self, axes: list[_Axis], *, has_radius: bool) -> None:
        w, rng = self.w, self.rng
        first, last = rng.choice([-3, -1, 0]), rng.choice([0, 1, 4])
        if has_radius:
            w.emit("neg.s32 %turn, %radius;" if rng.random() < 0.7 else f"mov.u32 %turn, {first};")
        else:
            w.emit(f"mov.u32 %turn, {first};")
        start, end = w.fresh("L"), w.fresh("L")
        limit = "%radius" if has_radius else str(last)
        at_top = rng.random() < 0.4
        w.emit(f"{start}:")
        if at_top:
            test = w.made(f"setp.gt.s32 {{}}, %turn, {limit};", "p")
            w.emit(f"@{test} bra {end};")
        along = rng.randrange(len(axes))
        places = [
            w.made(f"add.s32 {{}}, {each.x}, {'%turn' if number == along else self._offset()};")
            for number, each in enumerate(axes)
        ]
        self._tap(axes, places)
        w.emit("add.s32 %turn, %turn, 1;")
        if at_top:
            w.emit(f"bra.uni {start};")
        else:
            relation = rng.choice(["le", "ne"]) if not has_radius else "le"
            bound = limit if relation == "le" else str(last + 1)
            test = w.made(f"setp.{relation}.s32 {{}}, %turn, {bound};", "p")
            w.emit(f"@{test} bra {start};")
        w.emit(f"{end}:")

    def _tap(self, axes: list[_Axis], places: list[str]) -> None:
        """Add the word of a neighbour to the sum, or a constant where it is outside."""
        w, rng = self.w, self.rng
        indices: list[str] = []
        outside: list[str] = []
        for each, place in zip(axes, places, strict=True):
            index, test = w.index(each.mode, place, each.size)
            indices.append(index)
            outside += [test] if test else []
        number = indices[-1]
        for index in reversed(indices[:-1]):
            number = w.made(f"mad.lo.s32 {{}}, {number}, 37, {index};")
        value, label = w.made("mov.u32 {}, 77;"), ""
        while len(outside) > 1:
            outside.append(w.made(f"or.pred {{}}, {outside.pop()}, {outside.pop()};", "p"))
        guard = ""
        if outside:
            if rng.random() < 0.5:
                label = w.fresh("L")
                w.emit(f"@{outside[0]} bra {label};")
            else:
                guard = f"@!{outside[0]} "
        number = w.made(f"and.b32 {{}}, {number}, {WORDS - 1};")
        wide = w.made(f"mul.wide.u32 {{}}, {number}, 4;", "rd")
        address = w.made(f"add.s64 {{}}, %in, {wide};", "rd")
        w.emit(f"{guard}ld.global.u32 {value}, [{address}];")
        if label:
            w.emit(f"{label}:")
        w.emit(f"mad.lo.u32 %sum, %sum, 31, {value};")


def random_stencil(seed: int) -> RandomStencil:
    """The stencil of ``seed``."""
    rng = random.Random(f"stencil:{seed}")
    is_tame = rng.random() < 0.5
    grid, block = _shape(rng, is_tame=is_tame)
    kernel = _Kernel(rng, is_tame=is_tame)
    ptx = kernel.text()
    sizes: list[int] = []
    for axis in range(3):
        usual = grid[axis] * block[axis] * abs(kernel.strides[axis]) + kernel.starts[axis] - rng.choice([0, 0, 1, 3])
        odd = [0, 1, 2, 5, -4, 2**31 - 1, -(2**31), usual + 2**31]
        sizes.append(usual if is_tame or rng.random() < 0.6 else rng.choice(odd))
    radius = rng.choice([0, 1, 1, 2] if is_tame else [0, 1, 2, 3, 5, -1])
    extremes = [0, 17, 2**32 - 1, 2**40 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    big = sizes[0] & 0xFFFF_FFFF if is_tame and rng.random() < 0.6 else rng.choice(extremes)
    return RandomStencil(ptx, grid, block, (sizes[0], sizes[1], sizes[2]), radius, big)


def _shape(rng: random.Random, *, is_tame: bool) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The grid and the block."""
    if is_tame:
        return (rng.choice([3, 4]), rng.choice([3, 4]), 3), (rng.choice([4, 8]), rng.choice([3, 4]), rng.choice([1, 3]))
    grid = (rng.choice([1, 2, 4, 5]), rng.choice([1, 2, 4]), rng.choice([1, 1, 3]))
    return grid, (rng.choice([1, 4, 8, 32]), rng.choice([1, 2, 4]), rng.choice([1, 1, 2]))
