"""Kernels of any size, of the shapes that nvcc's PTX has, for measuring how time grows.

    python bench/generated.py [--level O2 --level O3] [--instructions 6000 25000 100000]

Guarantees: the same arguments give the same text; the text is valid PTX that ptxas assembles; a tenth of the
instructions are loads and stores, a third of the regions are loops, a third branch, and each region has redundancy that
can be found only by value. Products are rounded (``.rn``): without that, the passes leave a kernel alone whose products
ptxas may contract.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

__all__ = ["kernel", "module"]

_HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


def module(kernels: int, instructions: int, seed: int = 0) -> str:
    """A module of ``kernels`` kernels with about ``instructions`` instructions each."""
    return _HEADER + "".join(kernel(f"k{number}", instructions, seed + number) for number in range(kernels))


def kernel(name: str, instructions: int, seed: int = 0) -> str:
    """One entry with ``instructions`` instructions, up to one region of about 20 more."""
    writer = _Writer(random.Random(seed))
    while writer.count < instructions:
        writer.region()
    return writer.text(name)


class _Writer:
    """Writes regions one after the other. Values live on from one region to the next through a few registers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.used = {"r": 8, "rd": 4, "f": 8, "p": 1}
        self.labels = 0
        self.count = 0
        for line in ("ld.param.u64 %rd1, [in];", "ld.param.u64 %rd2, [out];", "ld.param.u32 %r1, [n];"):
            self.add(line)
        self.add("cvta.to.global.u64 %rd3, %rd1;")
        for number in range(2, 8):
            self.add(
                f"mov.u32 %r{number}, %tid.x;" if number == 2 else f"add.s32 %r{number}, %r{number - 1}, {number};"
            )
        for number in range(1, 8):
            self.add(f"cvt.rn.f32.s32 %f{number}, %r{number};")

    def add(self, line: str) -> None:
        self.lines.append(f"\t{line}\n")
        self.count += 1

    def new(self, bank: str) -> str:
        self.used[bank] += 1
        return f"%{bank}{self.used[bank] - 1}"

    def label(self) -> str:
        self.labels += 1
        return f"$L__BB0_{self.labels}"

    def region(self) -> None:
        """A loop, a branch with two arms, or straight code."""
        self.rng.choice((self.loop, self.branch, self.straight))()

    def address(self, index: str) -> str:
        """in + 4 * index, under new names each time, as nvcc writes it."""
        offset, address = self.new("rd"), self.new("rd")
        self.add(f"mul.wide.s32 {offset}, {index}, 4;")
        self.add(f"add.s64 {address}, %rd3, {offset};")
        return address

    def load(self, index: str) -> str:
        value = self.new("f")
        self.add(f"ld.global.f32 {value}, [{self.address(index)}+{4 * self.rng.randrange(8)}];")
        return value

    def index(self) -> str:
        return f"%r{self.rng.randrange(2, 8)}"

    def accumulator(self) -> str:
        return f"%f{self.rng.randrange(1, 8)}"

    def straight(self) -> None:
        index = self.index()
        one, two = self.load(index), self.load(index)
        for _ in range(4):
            value = self.new("f")
            self.add(f"fma.rn.f32 {value}, {one}, {two}, {self.accumulator()};")
            one = value
        total = self.accumulator()
        self.add(f"add.f32 {total}, {total}, {one};")

    def branch(self) -> None:
        index, condition, other, join = self.index(), self.new("p"), self.label(), self.label()
        limit = self.new("r")
        self.add(f"div.s32 {limit}, %r1, {self.rng.randrange(3, 99)};")
        self.add(f"setp.lt.s32 {condition}, {index}, {limit};")
        self.add(f"@{condition} bra {other};")
        total = self.accumulator()
        self.add(f"add.f32 {total}, {total}, {self.load(index)};")
        self.add(f"st.global.f32 [{self.address(index)}], {total};")
        self.add(f"bra.uni {join};")
        self.lines.append(f"{other}:\n")
        self.add(f"mul.rn.f32 {total}, {total}, {self.load(index)};")
        self.lines.append(f"{join}:\n")
        quotient = self.new("r")
        self.add(f"div.s32 {quotient}, %r1, {self.rng.randrange(3, 99)};")
        self.add(f"xor.b32 {index}, {index}, {quotient};")

    def loop(self) -> None:
        counter, condition, top, index = self.new("r"), self.new("p"), self.label(), self.index()
        self.add(f"mov.u32 {counter}, 0;")
        self.lines.append(f"{top}:\n")
        scaled = self.new("r")
        self.add(f"mul.lo.s32 {scaled}, {index}, {self.rng.randrange(3, 99)};")
        total = self.accumulator()
        self.add(f"add.f32 {total}, {total}, {self.load(scaled)};")
        self.add(f"add.f32 {total}, {total}, {self.load(counter)};")
        self.add(f"st.global.f32 [{self.address(counter)}+64], {total};")
        self.add(f"add.s32 {counter}, {counter}, 1;")
        self.add(f"setp.lt.s32 {condition}, {counter}, %r1;")
        self.add(f"@{condition} bra {top};")

    def text(self, name: str) -> str:
        parameters = "\t.param .u64 in,\n\t.param .u64 out,\n\t.param .u32 n\n"
        types = (("pred", "p"), ("b32", "r"), ("f32", "f"), ("b64", "rd"))
        declared = "".join(f"\t.reg .{type} %{bank}<{self.used[bank] + 1}>;\n" for type, bank in types)
        end = "".join(f"\tst.global.f32 [%rd2+{4 * i}], %f{i};\n" for i in range(1, 8)) + "\tret;\n"
        return f".visible .entry {name}(\n{parameters})\n{{\n{declared}{''.join(self.lines)}{end}}}\n"


def main() -> int:
    """Print how the time of a level or of a list of passes grows with the kernel. Parsing and printing do not count."""
    from ptxmotion.ptx import parse
    from ptxmotion.transforms.passes import passes_of
    from ptxmotion.transforms.pipeline import run_passes

    parser = argparse.ArgumentParser(description="Print how the CPU seconds of levels grow with the kernel's size.")
    parser.add_argument("--level", action="append", metavar="LEVEL", help="a level or list of passes; O2 by default")
    parser.add_argument("--instructions", type=int, nargs="+", default=[6_000, 12_000, 25_000, 50_000, 100_000])
    arguments = parser.parse_args()
    for level in arguments.level or ["O2"]:
        for instructions in arguments.instructions:
            parsed = parse(module(1, instructions))
            passes = passes_of(level)
            started = time.process_time()
            run_passes(parsed, passes)
            seconds = time.process_time() - started
            print(
                f"{level:20} {instructions:8} {seconds:8.2f} s  {1e6 * seconds / instructions:6.0f} us each", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
