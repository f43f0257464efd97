"""Random kernels that load ``a[b[i]]``, and random launches of them.

Threads of which ``f[i]`` is set load from elements whose indices are in memory. The index is changed by arithmetic of
32 bits, extended as a signed or as an unsigned number, or has 64 bits; elements have 4 to 24 bytes, and the loads are
at offsets inside and outside of an element, from the pointer or from the pointer plus a multiple of a scalar. The
register of a pointer may be overwritten between an address and its load. There may be a comparison of the index with 0,
several loads with one index, a chain ``a[a[b[i]]]``, and a loop that follows a list.

Where ``f[i]`` is set, most indices are those of elements, also of the first and of the last one. Elsewhere they have
any value: negative, large, or equal to a small number only modulo 2^32. Buffers end exactly behind the last element, or
some bytes later; a pointer may point to the start of its buffer, to a later element, or between two elements.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["DATA", "Gather", "GatherLaunch", "gather_launch", "random_gather"]

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
#: The pointers to data.
DATA = ("p", "q")
PARAMS = ".param .u64 f, .param .u64 b, .param .u64 p, .param .u64 q, .param .u64 y, .param .u32 n, .param .s32 s"
THREADS = 32
BORDERS = [0, 1, -1, 2, 7, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 30, -(1 << 30), 3 << 30]


@dataclass
class Gather:
    """A kernel ``k``. ``wide``: whether ``b`` has indices of 64 bits. ``stride``: the usual size of an element."""

    ptx: str
    wide: bool
    stride: int


@dataclass
class GatherLaunch:
    """The content of the buffers, by name of the pointer, and where each pointer points in its buffer, in bytes."""

    buffers: dict[str, npt.NDArray[np.uint8]]
    offsets: dict[str, int]
    n: int
    s: int


@dataclass
class _Writer:
    rng: random.Random
    wide: bool
    stride: int
    lines: list[str] = field(default_factory=list[str])
    count: int = 0

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def made(self, kind: str, text: str) -> str:
        self.count += 1
        register = f"%{kind}{self.count}"
        self.emit(text.format(register))
        return register

    def label(self) -> str:
        self.count += 1
        return f"L{self.count}"

    def index(self, number: str) -> str:
        """An index of 32 bits from a number in memory."""
        way = self.rng.randrange(16)
        if way == 0:
            return self.made("r", f"add.s32 {{}}, {number}, {self.rng.choice([1, -1, 3])}")
        if way == 1:
            return self.made("r", f"mad.lo.s32 {{}}, {number}, {self.rng.choice([2, -1, 3])}, %s")
        if way == 2:
            return self.made("r", f"and.b32 {{}}, {number}, {self.rng.choice([7, -2])}")
        return number

    def address(self, pointer: str, index: str) -> str:
        rng = self.rng
        stride = self.stride if rng.random() < 0.93 else rng.choice([4, 8, 16])
        start = f"%{pointer}"
        if rng.random() < 0.15:
            distance = self.made("w", "mul.wide.s32 {}, %s, 4")
            start = self.made("w", f"add.s64 {{}}, {start}, {distance}")
        if index.startswith("%w"):
            return self.made("w", f"mad.lo.s64 {{}}, {index}, {stride}, {start}")
        kind = rng.choice("ssu")
        if rng.random() < 0.5:
            return self.made("w", f"mad.wide.{kind}32 {{}}, {index}, {stride}, {start}")
        extended = self.made("w", f"cvt.{kind}64.{kind}32 {{}}, {index}")
        return self.made("w", f"mad.lo.s64 {{}}, {extended}, {stride}, {start}")

    def loads(self, index: str) -> str:
        """One to three loads with an index; a register with the sum."""
        rng = self.rng
        total = ""
        for _ in range(rng.choice([1, 1, 2, 3])):
            pointer = rng.choice(DATA)
            address = self.address(pointer, index)
            if rng.random() < 0.15:
                # The register of the pointer has another value when the load is executed.
                self.emit(f"mov.b64 %{pointer}, %{DATA[pointer == DATA[0]]}")
            inside = [0, 0, 0, min(4, self.stride - 4), self.stride - 4]
            offset = rng.choice(inside if rng.random() < 0.9 else [self.stride, -4])
            # Sometimes a load of 8 bytes, if the elements of the buffer have a multiple of 8 bytes.
            wide = self.stride % 8 == 0 and rng.random() < 0.3
            if wide:
                value = self.made("w", f"ld.global.u64 {{}}, [{address}+{offset // 8 * 8}]")
                value = self.made("r", f"cvt.u32.u64 {{}}, {value}")
            else:
                value = self.made("r", f"ld.global{rng.choice(['', '.nc'])}.u32 {{}}, [{address}+{offset}]")
            total = self.made("r", f"add.s32 {{}}, {total}, {value}") if total else value
            if rng.random() < 0.08:
                self.emit("bar.warp.sync -1")
        return total

    def guarded(self, number: str) -> None:
        """Loads in an arm of a branch that the flag decides."""
        rng = self.rng
        behind = self.label()
        test = self.made("t", f"setp.{rng.choice(['eq', 'eq', 'gt'])}.s32 {{}}, %flag, 0")
        self.emit(f"@{test} bra {behind}")
        index = self.index(number) if not number.startswith("%w") else number
        if number == "%wide_number" and rng.random() < 0.6:
            index = self.extended(behind)
        elif rng.random() < 0.2 and not number.startswith("%w"):
            below = self.made("t", f"setp.lt.s32 {{}}, {number}, {rng.choice([0, 0, 1, -1])}")
            self.emit(f"@{below} bra {behind}")
            index = self.made("r", f"mad.lo.s32 {{}}, %s, {rng.choice([1, 2, 1 << 30])}, {number}")
        if rng.random() < 0.3 and not index.startswith("%w"):
            low = rng.choice([("lt", 0), ("le", -1), ("lt", 1), ("gt", 9)])
            below = self.made("t", f"setp.{low[0]}.s32 {{}}, {index}, {low[1]}")
            self.emit(f"@{below} bra {behind}")
        total = self.loads(index)
        if rng.random() < 0.3:
            more = self.label()
            deeper = self.made("t", f"setp.gt.s32 {{}}, {total}, 100")
            self.emit(f"@{deeper} bra {more}")
            again = self.loads(self.index(total))
            self.emit(f"add.s32 %sum, %sum, {again}")
            self.lines.append(f"{more}:")
        self.emit(f"add.s32 %sum, %sum, {total}")
        self.lines.append(f"{behind}:")

    def extended(self, behind: str) -> str:
        """The index that a load has extended to 64 bits, or its sum with a number. A comparison with 0 may precede."""
        rng = self.rng
        if rng.random() < 0.7:
            below = self.made("t", f"setp.le.s64 {{}}, %wide_number, {rng.choice([-1, -1, 0, -2])}")
            self.emit(f"@{below} bra {behind}")
        if rng.random() < 0.4:
            return "%wide_number"
        low = self.made("r", "cvt.u32.u64 {}, %wide_number")
        return self.made("r", f"mad.lo.s32 {{}}, %s, {rng.choice([1, 2, -1, 1 << 30])}, {low}")

    def chased(self, number: str) -> None:
        """A loop that follows a list of elements."""
        again, behind, skip = self.label(), self.label(), self.label()
        node = self.made("r", f"mov.u32 {{}}, {number}")
        steps = self.made("r", "mov.u32 {}, 0")
        self.lines.append(f"{again}:")
        end = self.made("t", f"setp.gt.u32 {{}}, {steps}, 2")
        self.emit(f"@{end} bra {behind}")
        test = self.made("t", "setp.eq.s32 {}, %flag, 0")
        self.emit(f"@{test} bra {skip}")
        place = self.made("w", f"mad.wide.s32 {{}}, {node}, {self.stride}, %p")
        value = self.made("r", f"ld.global.u32 {{}}, [{place}]")
        other = self.made("w", f"mad.wide.s32 {{}}, {node}, {self.stride}, %q")
        more = self.made("r", f"ld.global.u32 {{}}, [{other}+{self.rng.choice([0, self.stride - 4])}]")
        self.emit(f"add.s32 %sum, %sum, {more}")
        self.emit(f"mov.u32 {node}, {value}")
        self.lines.append(f"{skip}:")
        self.emit(f"add.s32 {steps}, {steps}, 1")
        self.emit(f"bra {again}")
        self.lines.append(f"{behind}:")


def random_gather(seed: int) -> Gather:
    """A kernel."""
    rng = random.Random(seed)
    writer = _Writer(rng, rng.random() < 0.15, rng.choice([4, 4, 8, 12, 16, 24]))
    size = 8 if writer.wide else 4
    writer.emit("mov.u32 %tid_, %tid.x")
    writer.emit("mov.u32 %cta, %ctaid.x")
    writer.emit("mov.u32 %ntid_, %ntid.x")
    writer.emit("mad.lo.s32 %i, %cta, %ntid_, %tid_")
    writer.emit("setp.ge.u32 %end, %i, %n")
    writer.emit("@%end bra END")
    for pointer, width in (("f", 4), ("y", 4), ("b", size)):
        writer.emit(f"mad.wide.u32 %at_{pointer}, %i, {width}, %{pointer}")
    number = "%number"
    writer.emit("ld.global.u32 %flag, [%at_f]")
    if writer.wide and rng.random() < 0.5:
        number = writer.made("w", "ld.global.u64 {}, [%at_b]")
    elif writer.wide:
        long = writer.made("w", "ld.global.u64 {}, [%at_b]")
        writer.emit(f"cvt.u32.u64 %number, {long}")
    elif rng.random() < 0.35:
        writer.emit(f"ld.global.{rng.choice('ssu')}32 %wide_number, [%at_b]")
        writer.emit("cvt.u32.u64 %number, %wide_number")
        number = "%wide_number"
    else:
        writer.emit("ld.global.u32 %number, [%at_b]")
    writer.emit("mov.u32 %sum, 5")
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.2 and not number.startswith("%w"):
            writer.chased(number)
        else:
            writer.guarded(number)
        if rng.random() < 0.2:
            writer.emit("st.global.u32 [%at_y], %sum")
    writer.emit("st.global.u32 [%at_y], %sum")
    body = "\n".join(writer.lines)
    names = ("f", "b", "p", "q", "y")
    loads = "\n".join(f"\tld.param.u64 %{name}, [{name}];" for name in names)
    declared = "\n".join(
        [
            f"\t.reg .pred %t<{writer.count + 1}>, %end;",
            f"\t.reg .b32 %r<{writer.count + 1}>, %tid_, %cta, %ntid_, %i, %n, %s, %flag, %number, %sum;",
            f"\t.reg .b64 %w<{writer.count + 1}>, %f, %b, %p, %q, %y, %at_f, %at_y, %at_b, %wide_number;",
        ]
    )
    scalars = "\tld.param.u32 %n, [n];\n\tld.param.s32 %s, [s];"
    ptx = f"{HEAD}.visible .entry k({PARAMS})\n{{\n{declared}\n{loads}\n{scalars}\n{body}\nEND:\n\tret;\n}}\n"
    return Gather(ptx, writer.wide, writer.stride)


def gather_launch(kernel: Gather, seed: int) -> GatherLaunch:
    """A launch of a kernel."""
    rng = random.Random(seed)
    n = rng.choice([1, 5, THREADS, THREADS + 7])
    s = rng.choice([0, 0, 0, 1, -1])
    elements = rng.choice([0, 1, 2, 8, 20])
    #: Bytes of each buffer in front of the first element, and behind the last one.
    before = rng.choice([0] * 8 + [kernel.stride] * 3 + [4, 2])
    behind = rng.choice([0] * 6 + [4, kernel.stride - 4, 3])
    usual = [0, elements - 1, elements - 2, 1, *(rng.randrange(elements) for _ in range(3) if elements)]
    usual += [-1] * (before == kernel.stride) + [elements] * (behind >= 4)
    flags = np.array([rng.choice([0, 1, 1, -1]) if elements else 0 for _ in range(n)], np.int32)
    kept = rng.random() < 0.9
    numbers: list[int] = []
    for flag in flags:
        if flag and (kept or rng.random() < 0.9):
            numbers.append(rng.choice(usual))
        else:
            numbers.append(rng.choice([*BORDERS, elements, rng.randrange(-40, 40), rng.getrandbits(40)]))
    mask = (1 << 64) - 1 if kernel.wide else (1 << 32) - 1
    indices = np.array([number & mask for number in numbers], np.uint64 if kernel.wide else np.uint32)
    buffers = {
        "f": flags.view(np.uint8),
        "b": indices.view(np.uint8),
        "y": np.zeros(4 * n, np.uint8),
    }
    offsets = dict.fromkeys("fby", 0)
    for name in DATA:
        own = before if rng.random() < 0.8 else 0
        size = max(own + elements * kernel.stride + behind, 1)
        words = np.array([rng.randrange(max(elements, 1)) for _ in range(size // 4 + 1)], np.uint32)
        buffers[name] = words.view(np.uint8)[:size].copy()
        offsets[name] = min(own, size)
    return GatherLaunch(buffers, offsets, n, s)
