"""Random pairs of kernels with dependences within a thread, a block or the grid, and the true relation of each pair.

The true relation comes from the emulator's access trace: which threads of the two launches access the same bytes, one
of them with a write. A pair shares buffers ``a``, ``b`` and ``c``. Kernels take the pointers, and ``n`` and ``m`` by
value. All addresses are inside the buffers: an index is taken modulo the buffers' size unless its form keeps it
inside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from ptxmotion.emulator import Emulator
from ptxmotion.emulator.launch import LaunchResult
from ptxmotion.emulator.memory import MemoryObject
from ptxmotion.emulator.options import Options
from ptxmotion.ptx import Module, parse
from ptxmotion.transforms.kernel_fusion.launch_site import Argument, Buffer, Extents, LaunchSite, Scalar
from random_comparisons import respelled

__all__ = ["BUFFERS", "Device", "Half", "Pair", "make_pair", "race_kinds", "truth"]

BUFFERS = ("a", "b", "c")
#: Words per buffer.
WORDS = 1024

_HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"

#: Index forms: PTX that computes an index in %i from registers %gx (global index), %tx, %bx, %ty, %by, %n, %m, %k.
FORMS: dict[str, str] = {
    "global": "mov.u32 %i, %gx;",
    "global + 1": "add.s32 %i, %gx, 1;",
    "twice": "shl.b32 %i, %gx, 1;",
    "twice + 1": "mad.lo.s32 %i, %gx, 2, 1;",
    "reversed": "sub.s32 %i, %n, %gx; add.s32 %i, %i, 255;",
    "reversed in block": "sub.s32 %i, %wx, %tx; add.s32 %i, %i, -1; mad.lo.s32 %i, %bx, %wx, %i;",
    "next in block": "add.s32 %i, %tx, 1; rem.u32 %i, %i, %wx; mad.lo.s32 %i, %bx, %wx, %i;",
    "thread": "mov.u32 %i, %tx;",
    "block": "mov.u32 %i, %bx;",
    "constant": "mov.u32 %i, 5;",
    "half": "shr.u32 %i, %gx, 1;",
    "masked": "and.b32 %i, %gx, 15;",
    "far": "add.s32 %i, %gx, 512;",
    "far n": "add.s32 %i, %gx, %n;",
    "rows": "mad.lo.s32 %i, %by, %hy, %ty; mad.lo.s32 %i, %i, %n, %gx;",
    "columns": "mad.lo.s32 %i, %by, %hy, %ty; mad.lo.s32 %i, %gx, 32, %i;",
    "row of k": "mad.lo.s32 %i, %gx, 4, %k;",
    "column of k": "mad.lo.s32 %i, %k, %n, %gx;",
    "strided k": "mad.lo.s32 %i, %k, %s, %gx;",
    "wrapped": "mad.lo.s32 %i, %gx, 1073741825, 3;",
    "scaled by m": "mul.lo.s32 %i, %gx, %m;",
    "next block": "add.s32 %i, %bx, 1; mad.lo.s32 %i, %i, %wx, %tx;",
    "indirect": "and.b32 %i, %gx, 255; mul.wide.u32 %rd1, %i, 4; add.s64 %rd1, %pc, %rd1; ld.global.u32 %i, [%rd1];",
}
_WITH_K = ("row of k", "column of k", "strided k")


@dataclass
class Half:
    """One kernel of a pair and its launch."""

    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    n: int
    m: int
    names: tuple[str, str, str]  #: the buffers that are passed as first, second and third pointer
    module: Module = field(init=False)

    def __post_init__(self) -> None:
        self.module = parse(self.ptx)

    @property
    def has_barriers(self) -> bool:
        return "bar.sync" in self.ptx or "barrier" in self.ptx

    def site(self) -> LaunchSite:
        """The launch with numbers for its extents and arguments."""
        kernel = self.module.entries[0]
        values: list[Argument] = [*map(Buffer, self.names), Scalar(self.n), Scalar(self.m)]
        names = [param.name for param in kernel.params or ()]
        return LaunchSite(kernel, self.module, self.grid, self.block, 0, dict(zip(names, values, strict=True)))

    def symbolic_site(self, number: int, same_grid: bool) -> tuple[LaunchSite, dict[str, int]]:
        """The launch with host variables instead of numbers, and their values."""
        plain = self.site()
        tag = "" if same_grid else str(number)
        values = {f"g{tag}{axis}": extent for axis, extent in zip("xyz", self.grid, strict=True)}
        values |= {f"b{axis}": extent for axis, extent in zip("xyz", self.block, strict=True)}
        arguments = dict(plain.arguments)
        for name, value in (("n", self.n), ("m", self.m)):
            param = next(each for each in arguments if each.endswith(f"_{name}"))
            arguments[param] = Scalar(f"{name}{number}" if name == "m" else name)
            values[f"{name}{number}" if name == "m" else name] = value
        x, y, z = (name if values[name] != 1 else 1 for name in (f"g{tag}x", f"g{tag}y", f"g{tag}z"))
        u, v, w = (name if values[name] != 1 else 1 for name in ("bx", "by", "bz"))
        return LaunchSite(plain.kernel, plain.module, (x, y, z), (u, v, w), 0, arguments), values


@dataclass
class Pair:
    first: Half
    second: Half


def make_pair(seed: int) -> Pair:
    """The pair of a seed."""
    rng = random.Random(seed)
    block = rng.choice([(8, 1, 1), (16, 1, 1), (32, 1, 1), (48, 1, 1), (4, 4, 1), (8, 2, 1)])
    grid = rng.choice([(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (2, 2, 1)])
    n, m = rng.choice([16, 32, 33, 64, 100]), rng.choice([0, 1, 2, 3])
    other_grid = rng.choice([(1, 1, 1), (3, 1, 1), (2, 2, 1)]) if rng.random() < 0.15 else grid
    favoured = rng.sample(list(FORMS), 3) if rng.random() < 0.6 else ["global"]
    halves: list[Half] = []
    is_plain = rng.random() < 0.3
    if is_plain:
        grid, block = (grid[0], 1, 1), rng.choice([(16, 1, 1), (32, 1, 1), (48, 1, 1)])
        other_grid = grid
    passed = tuple(rng.sample(BUFFERS, 3))
    for number, extent in enumerate((grid, other_grid)):
        names = passed if is_plain else tuple(rng.sample(BUFFERS, 3))
        kernel = _Kernel(rng, f"k{number}", ["global"] if is_plain else favoured)
        text = kernel.plain(number == 0) if is_plain else kernel.text()
        halves.append(Half(text, extent, block, n, m if rng.random() < 0.9 else 1, (names[0], names[1], names[2])))
    return Pair(*halves)


class _Kernel:
    def __init__(self, rng: random.Random, name: str, favoured: list[str]) -> None:
        self.rng = rng
        self.name = name
        self.favoured = favoured
        self.lines: list[str] = []
        self.labels = 0
        self.stores = 0
        self.has_shared = False
        #: A pointer that only loads with `.nc` use; empty for none.
        self.read_only = rng.choice(["%pa", "%pb", "", "", ""])

    def plain(self, is_producer: bool) -> str:
        """A kernel that stores what the next kernel loads: one element for each thread, in one or two buffers."""
        self.prologue()
        self.read_only = ""
        condition = self.rng.choice(
            ["setp.ge.s32 %p0, %gx, %n;", "setp.ge.s32 %p0, %gx, %n;", "setp.ge.u32 %p0, %gx, 20;"]
        )
        if self.rng.random() < 0.7:
            self.lines += [condition, self.rng.choice(["@%p0 bra $END;", "@%p0 exit;"])]
        stored = ["%pa", "%pb"] if is_producer else [self.rng.choice(["%pa", "%pb"])]
        for pointer in ["%pa", "%pb"] if not is_producer else []:
            if self.rng.random() < 0.7:
                self.access("ld.global.u32" if pointer in stored else "ld.global.nc.u32", pointer)
        for pointer in stored:
            self.access("st.global.u32", pointer)
        return self.assembled()

    def access(self, what: str, pointer: str) -> None:
        where = self.address(pointer, self.rng.choice(["global", "global", "global", "reversed in block"]))
        if what.startswith("ld"):
            self.lines += [f"{what} %v1, {where};", "mad.lo.s32 %v0, %v0, 3, %v1;"]
        else:
            self.stores += 1
            self.lines += [f"mov.u32 %w{self.stores}, %v0;", f"{what} {where}, %w{self.stores};"]

    def text(self) -> str:
        self.prologue()
        early = self.rng.random()
        if early < 0.4:
            self.lines += ["setp.ge.s32 %p0, %gx, %n;", self.rng.choice(["@%p0 bra $END;", "@%p0 ret;"])]
        for _ in range(self.rng.randint(1, 3)):
            self.rng.choice([self.step, self.step, self.step, self.guarded, self.loop])()
        if early >= 0.4 and self.rng.random() < 0.3:
            self.shared()
            self.step()
        return self.assembled()

    def assembled(self) -> str:
        """The kernel around the lines."""
        params = ", ".join(
            [*(f".param .u64 {self.name}_p{i}" for i in range(3)), *(f".param .u32 {self.name}_{x}" for x in "nm")]
        )
        shared = "\t.shared .align 4 .b8 stage[256];\n" if self.has_shared else ""
        body = "\n\t".join(self.lines)
        text = (
            f"{_HEAD}.visible .entry {self.name}({params})\n{{\n\t.reg .pred %p<8>;\n\t.reg .b32 %r<4>;\n"
            "\t.reg .b32 %i, %gx, %tx, %bx, %ty, %by, %wx, %hy, %n, %m, %k, %s, %v0, %v1, %w<9>;\n"
            f"\t.reg .b64 %rd<8>, %pa, %pb, %pc;\n{shared}\t{body}\n$END:\n\tret;\n}}\n"
        )
        return respelled(text, self.rng)

    def prologue(self) -> None:
        for register, special in (("tx", "tid.x"), ("bx", "ctaid.x"), ("ty", "tid.y"), ("by", "ctaid.y")):
            self.lines.append(f"mov.u32 %{register}, %{special};")
        self.lines += ["mov.u32 %wx, %ntid.x;", "mov.u32 %hy, %ntid.y;", "mov.u32 %k, 0;"]
        self.lines += ["mov.u32 %s, %nctaid.x;", "mul.lo.s32 %s, %s, %wx;"]
        self.lines.append("mad.lo.s32 %gx, %bx, %wx, %tx;")
        for index, register in enumerate(("pa", "pb", "pc")):
            self.lines.append(f"ld.param.u64 %{register}, [{self.name}_p{index}];")
            if self.rng.random() < 0.7:
                self.lines.append(f"cvta.to.global.u64 %{register}, %{register};")
        self.lines += [f"ld.param.u32 %n, [{self.name}_n];", f"ld.param.u32 %m, [{self.name}_m];"]
        self.lines.append("add.s32 %v0, %gx, 7;")

    def address(self, pointer: str, form: str) -> str:
        """Computes the address of an element, inside the buffer, in %rd0."""
        self.lines.append(FORMS[form])
        is_inside = form in ("global", "global + 1", "thread", "block", "constant", "half", "masked", "next in block")
        if not is_inside and form not in ("row of k", "reversed in block", "next block", "twice", "twice + 1", "far"):
            self.lines.append(f"and.b32 %i, %i, {WORDS - 1};" if form != "far n" else "")
        wide = self.rng.choice(["s32", "u32"])
        if self.rng.random() < 0.5:
            self.lines.append(f"mad.wide.{wide} %rd0, %i, 4, {pointer};")
        else:
            self.lines += [f"mul.wide.{wide} %rd1, %i, 4;", f"add.s64 %rd0, {pointer}, %rd1;"]
        return "[%rd0+4]" if self.rng.random() < 0.15 else "[%rd0]"

    def form(self, *, with_k: bool = False) -> str:
        if with_k and self.rng.random() < 0.7:
            return self.rng.choice(_WITH_K)
        known = self.favoured if self.rng.random() < (0.75 if len(self.favoured) > 1 else 0.95) else list(FORMS)
        return self.rng.choice([form for form in known if form not in _WITH_K] or ["global"])

    def step(self, *, with_k: bool = False) -> None:
        pointer = self.rng.choice(["%pa", "%pb"])
        what = self.rng.random()
        guard = ""
        if self.rng.random() < 0.15:
            self.lines.append(self.rng.choice(["setp.lt.s32 %p1, %gx, %n;", "setp.eq.s32 %p1, %tx, 0;"]))
            guard = "@%p1 "
        where = self.address(pointer, self.form(with_k=with_k))
        if what < 0.45 or pointer == self.read_only:
            kind = "ld.global.nc.u32" if pointer == self.read_only else "ld.global.u32"
            self.lines += ["mov.u32 %v1, 0;", f"{guard}{kind} %v1, {where};", "mad.lo.s32 %v0, %v0, 3, %v1;"]
        elif what < 0.93:
            self.stores += 1
            self.lines += [f"mov.u32 %w{self.stores}, %v0;", f"{guard}st.global.u32 {where}, %w{self.stores};"]
        else:
            self.lines.append(f"{guard}red.global.add.u32 {where}, %v0;")

    def guarded(self) -> None:
        self.labels += 1
        label = f"$L{self.labels}"
        self.lines.append(
            self.rng.choice(
                [
                    "setp.ge.s32 %p2, %gx, %n;",
                    "setp.ne.s32 %p2, %tx, 0;",
                    "setp.ge.u32 %p2, %gx, 20;",
                    "setp.ne.s32 %p2, %bx, 0;",
                    "setp.ne.s32 %p2, %gx, 3;",
                ]
            )
        )
        self.lines.append(f"@%p2 bra {label};")
        self.step()
        self.lines.append(f"{label}:")

    def loop(self) -> None:
        self.labels += 1
        label = f"$L{self.labels}"
        self.lines += ["mov.u32 %k, 0;", f"{label}:"]
        self.step(with_k=True)
        turns = self.rng.choice([2, 3, 4])
        self.lines += ["add.s32 %k, %k, 1;", f"setp.{self.rng.choice(['lt', 'ne'])}.s32 %p3, %k, {turns};"]
        self.lines += [f"@%p3 bra {label};", "mov.u32 %k, 0;"]

    def shared(self) -> None:
        """The value of the thread's neighbour in the block, through shared memory."""
        self.has_shared = True
        self.lines += ["mov.u32 %r0, stage;", "mad.lo.s32 %r1, %ty, %wx, %tx;", "shl.b32 %r2, %r1, 2;"]
        self.lines += ["add.s32 %r2, %r0, %r2;", "st.shared.u32 [%r2], %v0;", "bar.sync 0;", "xor.b32 %r1, %r1, 1;"]
        self.lines += ["shl.b32 %r1, %r1, 2;", "add.s32 %r1, %r0, %r1;", "ld.shared.u32 %v0, [%r1];", "bar.sync 0;"]


class Device:
    """Buffers that several launches use."""

    def __init__(self, seed: int, words: int = WORDS) -> None:
        self.emulator = Emulator(budget=400_000)
        rng = np.random.default_rng(seed)
        self.buffers: dict[str, MemoryObject] = {}
        for name in BUFFERS:
            found = self.emulator.space().allocate(name, "global", 4 * (4 * words))
            found.fill_from(rng.integers(0, words // 2, 4 * words, dtype=np.uint32).view(np.uint8))
            found.written = None
            self.buffers[name] = found

    def launch(self, site: LaunchSite, *, schedule: str = "order", seed: int = 0, trace: bool = False) -> LaunchResult:
        """Run a launch whose extents and arguments are numbers."""
        loaded = self.emulator.load(site.module)
        values = [self._bytes(site.arguments[p.name], p.bytes) for p in site.kernel.params or ()]
        return loaded.launch_bytes(
            loaded.entry(site.kernel.name),
            _numbers(site.grid),
            _numbers(site.block),
            values,
            int(site.shared),
            Options(checks=True, counts=False, trace=trace, fine=schedule == "random"),
            schedule=schedule,
            seed=seed,
            keep_going=True,
        )

    def _bytes(self, argument: Argument, size: int) -> bytes:
        if isinstance(argument, Buffer):
            return (self.buffers[argument.name].base + int(argument.offset)).to_bytes(size, "little")
        assert isinstance(argument.value, int)
        return (argument.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def contents(self) -> dict[str, npt.NDArray[Any]]:
        return {name: found.bytes.copy() for name, found in self.buffers.items()}


def _numbers(extents: Extents) -> tuple[int, int, int]:
    x, y, z = (int(each) for each in extents)
    return x, y, z


def truth(first: LaunchResult, second: LaunchResult, pair: Pair) -> str:
    """The worst relation between threads of the two launches that access the same bytes, one of them with a write. Two
    ``red.add`` need no order."""
    worst = "never"
    one, other = (
        _by_word(result, half) for result, half in zip((first, second), (pair.first, pair.second), strict=True)
    )
    for address in one.keys() & other.keys():
        for block, thread, what in one[address]:
            for its_block, its_thread, its in other[address]:
                if "write" not in (what, its) and (what == its or "read" not in (what, its)):
                    continue
                if block != its_block:
                    return "any"
                if thread != its_thread:
                    worst = "block"
                elif worst == "never":
                    worst = "thread"
    return worst


def race_kinds(result: LaunchResult, half: Half) -> set[str]:
    """The kinds of pairs of accesses that race in a launch: ``write write``, ``read write`` and ``atomic``.

    Nothing orders two threads of the kernels but barriers. In a kernel with barriers, only threads of different blocks
    are compared.
    """
    kinds: set[str] = set()
    for accesses in _by_word(result, half).values():
        threads: dict[str, set[object]] = {}
        for block, thread, what in accesses:
            threads.setdefault(what, set()).add(block if half.has_barriers else (block, thread))
        if len(threads.get("write", ())) > 1:
            kinds.add("write write")
        weak = {what: found for what, found in threads.items() if what != "red"}
        for name, found in (("read write", weak), ("atomic", threads)):
            if len(found) > 1 and len(set[object]().union(*found.values())) > 1:
                kinds.add(name)
    return kinds


def _by_word(result: LaunchResult, half: Half) -> dict[int, set[tuple[tuple[int, int, int], int, str]]]:
    assert result.trace is not None
    found: dict[int, set[tuple[tuple[int, int, int], int, str]]] = {}
    width, height, _ = half.grid
    lines = half.ptx.splitlines()
    for row in result.trace.accesses:
        if int(row["space"]) != 0:
            continue
        block = int(row["block"])
        at = (block % width, block // width % height, block // (width * height))
        what = (
            "red"
            if " red." in " " + lines[int(row["instruction"]) - 1].strip()
            else "write"
            if row["write"]
            else "read"
        )
        for byte in range(int(row["bytes"])):
            found.setdefault(int(row["address"]) + byte, set()).add((at, int(row["thread"]), what))
    return found
