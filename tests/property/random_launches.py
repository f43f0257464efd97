"""Random host programs with small kernels whose threads depend on one thread, one block or the whole grid of another
kernel.

A kernel is PTX. Each thread computes an element of ``y`` from ``x``: by its own index, by an index of its block, or by
an index of another block. There are early exits, shared memory and barriers, votes and other instructions that wait for
lanes, loads through ``.nc``, and atomics. No kernel races by itself if ``x`` and ``y`` are different buffers, which the
host program ensures.

Host variables, including parameters, are assigned constants and each other before, between and after the launches that
use them: in branches and loops, by tuple assignments, augmented assignments, ``for`` and ``read``. So a name that one
assignment in the text sets to a constant often has another value at a launch. Programs return early, their loops have
``else``, and handles get new memory, also for a while, with the old memory under another name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from ptxmotion import dsl
from ptxmotion.dsl import program_from_text, ptx_source
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.dsl.kernel import Kernel
from random_comparisons import respelled

__all__ = ["RandomLaunches", "random_launches"]

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
BUFFERS = "abcd"

#: The index of the element that is read, computed from %i; %t is scratch, %s is the size of the block.
READS = {
    "same": "mov.u32 %j, %i;",
    "pair": "xor.b32 %j, %i, 1;",
    "back": "sub.u32 %t, %s, %th; sub.u32 %t, %t, 1; mad.lo.u32 %j, %b, %s, %t;",
    "turn": "add.u32 %t, %th, 5; rem.u32 %t, %t, %s; mad.lo.u32 %j, %b, %s, %t;",
    "next": "add.u32 %j, %i, 1;",
    "far": "add.u32 %j, %i, 40; rem.u32 %j, %j, %n;",
    "mirror": "sub.u32 %j, %n, %i; sub.u32 %j, %j, 1;",
    "blocks": "mov.u32 %t, %nctaid.x; add.u32 %j, %i, %t; rem.u32 %j, %j, %n;",
    "extents": "mov.v4.u32 {%t, %j, %w, %z}, %nctaid; add.u32 %j, %i, %t; rem.u32 %j, %j, %n;",
    "short": "mov.u16 %h, %nctaid.x; cvt.u32.u16 %t, %h; add.u32 %j, %i, %t; rem.u32 %j, %j, %n;",
}
#: Where the result is stored. All but the last are permutations of the indices below n.
WRITES = ("same", "same", "same", "mirror", "atomic", "shared", "dynamic", "early")
OPERATIONS = ("add.u32", "xor.b32", "mul.lo.u32", "max.u32", "sub.u32")


#: The block's number in grids with one axis, and in all grids.
FLAT = "mov.u32 %b, %ctaid.x;"
WIDE = (
    "mov.u32 %b, %ctaid.z; mov.u32 %t, %nctaid.y; mov.u32 %j, %ctaid.y; mad.lo.u32 %b, %b, %t, %j;"
    "mov.u32 %t, %nctaid.x; mov.u32 %j, %ctaid.x; mad.lo.u32 %b, %b, %t, %j;"
)

#: Instructions that add the start of the row of blocks to the index %i; %k is the length of a row.
ROWS = "mov.u32 %t, %ctaid.y; mad.lo.u32 %i, %t, %k, %i;"

#: Optional parts of a kernel: text for its module, for its declarations, and after its operation. Functions and tables
#: of different kernels have the same names; {0} is a number.
EXTRAS = {
    "": ("", "", ""),
    "function": (
        ".func (.param .b32 r) f(.param .b32 v)\n{{ .reg .u32 %v; ld.param.u32 %v, [v]; xor.b32 %v, %v, {0}; "
        "st.param.b32 [r], %v; ret; }}\n",
        "",
        "{{ .param .b32 v; .param .b32 r; st.param.b32 [v], %v; call.uni (r), f, (v); ld.param.b32 %v, [r]; }}",
    ),
    "table": (
        ".const .align 4 .u32 table[4] = {{1, {0}, 3, 4}};\n",
        "",
        "and.b32 %t, %i, 3; mul.wide.u32 %o, %t, 4; mov.u64 %d, table; add.u64 %d, %d, %o; ld.const.u32 %t, [%d]; "
        "add.u32 %v, %v, %t;",
    ),
    "local": (
        "",
        "  .local .align 4 .b8 depot[16];\n",
        "mov.u64 %d, depot; st.local.u32 [%d+4], %v; and.b32 %t, %v, 1; mul.wide.u32 %o, %t, 4; add.u64 %d, %d, %o; "
        "st.local.u32 [%d], {0}; mov.u64 %d, depot; ld.local.u32 %t, [%d+4]; add.u32 %v, %v, %t;",
    ),
}
#: Instructions that wait for the lanes of a warp that have not returned, and whose results do not depend on others.
WARPS = (
    "vote.sync.ballot.b32 %t, %p, -1; not.b32 %t, %t; add.u32 %v, %v, %t;",
    "redux.sync.add.u32 %t, %v, -1; add.u32 %v, %v, %t;",
    "bar.warp.sync -1;",
)
HEADS = (HEAD, HEAD, HEAD.replace("8.0", "7.8").replace("sm_90", "sm_80"))


def kernel_text(
    name: str,
    read: str,
    write: str,
    operation: str,
    keeps: bool,
    load: str,
    index: str,
    extra: tuple[str, int],
    head: str,
    warp: str = "",
) -> str:
    """``y[w(i)] = operation(x[r(i)], k)``. ``keeps`` adds the old value of ``y``. ``index`` is ``flat``, ``wide`` for
    grids of several axes, or ``rows`` of ``k`` elements in grids of two axes. ``warp``: one of `WARPS`, or nothing."""
    outside, inside, code = (text.format(extra[1]) for text in EXTRAS[extra[0]])
    lines = [
        "ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.u32 %n, [n]; ld.param.u32 %k, [k];",
        "cvta.to.global.u64 %x, %x; cvta.to.global.u64 %y, %y;",
        "mov.u32 %th, %tid.x; mov.u32 %s, %ntid.x;",
        WIDE if index == "wide" else FLAT,
        "mad.lo.u32 %i, %b, %s, %th;",
        ROWS if index == "rows" else "",
        "setp.ge.u32 %p, %i, %n;",
    ]
    if write not in ("shared", "dynamic"):
        lines.append("@%p bra DONE;")
    else:
        lines += ["selp.u32 %i, 0, %i, %p;"]
    lines += [READS[read], "mul.wide.u32 %o, %j, 4; add.u64 %o, %x, %o;"]
    if read == "same":
        lines.append(f"{load} %v, [%o];")
    else:
        lines.append(f"mov.u32 %v, 3; setp.lt.u32 %q, %j, %n; @%q {load} %v, [%o];")
    lines += [f"{operation} %v, %v, %k;", code, warp]
    if write == "early":  # threads with an index of n or more have returned
        lines.append("bar.sync 0;")
    if write in ("shared", "dynamic"):
        lines += [
            "mov.u64 %o, tile; mul.wide.u32 %d, %th, 4; add.u64 %d, %o, %d; st.shared.u32 [%d], %v; bar.sync 0;",
            "sub.u32 %t, %s, %th; sub.u32 %t, %t, 1; mul.wide.u32 %d, %t, 4; add.u64 %d, %o, %d;",
            "ld.shared.u32 %v, [%d]; @%p bra DONE;",
        ]
    lines.append("mov.u32 %j, %i;" if write != "mirror" else READS["mirror"])
    lines.append("mul.wide.u32 %o, %j, 4; add.u64 %o, %y, %o;")
    if write == "atomic":
        lines.append("red.global.add.u32 [%o], %v;")
    else:
        lines += ["ld.global.u32 %w, [%o]; add.u32 %v, %v, %w;"] if keeps else []
        # A register that is written once, so that a later load may be replaced by it.
        lines.append("mov.u32 %z, %v; st.global.u32 [%o], %z;")
    body = "\n".join(f"  {line}" for line in lines)
    tile = "  .shared .align 4 .b8 tile[256];\n" if write == "shared" else ""
    pool = ".extern .shared .align 4 .b8 tile[];\n" if write == "dynamic" else ""
    return (
        f"{head}// {read} {write} {extra[0]}\n{pool}{outside}"
        f".visible .entry {name}(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 k)\n"
        f"{'.maxntid 64, 1, 1' if extra[1] % 2 else ''}\n{{\n{tile}{inside}"
        "  .reg .u32 %n, %k, %th, %s, %b, %i, %j, %t, %v, %w, %z;\n  .reg .u64 %x, %y, %o, %d;\n"
        "  .reg .u16 %h;\n  .reg .pred %p, %q;\n"
        f"{body}\nDONE:\n  ret;\n}}\n"
    )


@dataclass(frozen=True)
class RandomLaunches:
    """A program, its text, and the arguments of a run. All data is 32-bit integers."""

    host: HostProgram
    text: str
    kernels: dict[str, str]

    def ptx(self, kernel: Kernel[Any]) -> str:
        """The module of a kernel of the program."""
        return self.kernels[kernel.name]

    def arguments(self, seed: int) -> dict[str, Any]:
        import numpy as np

        random_numbers = np.random.default_rng(seed)
        data = random_numbers.integers(0, 1 << 30, 4 * SIZE, np.int64).astype(np.int32)
        sizes = {"n": SIZE - seed % 3, "k": 1 + seed % 5, "g": 1 + seed % 4, "h": (96, 40, 64)[seed % 3]}
        return {"data": data, **sizes}


SIZE = 128


class _Writer:
    def __init__(self, rng: random.Random, rare: random.Random, warps: random.Random) -> None:
        """``rare`` decides about rare statements, so that programs without them do not depend on it. ``warps`` decides
        about instructions that wait for lanes."""
        self.rng = rng
        self.other = rare
        self.warps = warps
        self.kernels: dict[str, str] = {}
        self.wide: set[str] = set()
        self.rows: set[str] = set()
        #: Grid, block and ``n`` of the last launch of a flat kernel, and the buffer that it wrote.
        self.last: tuple[str, str, str, str] | None = None
        self.loops = 0
        self.launches = 0
        #: Parameters that have no assignment yet. While there are any, only these are assigned, so that each has one
        #: assignment in the text.
        self.unassigned = {"n", "k", "g", "h"} if rng.random() < 0.7 else set[str]()

    def text(self) -> str:
        lines = ["def p(data: host[i32], n: i32, k: i32, g: i32, h: i32) -> None:"]
        lines += [f"    {name} = allocate(i32, {SIZE})" for name in BUFFERS]
        lines += [f"    copy({name}, data[{SIZE * at}:{SIZE * at + SIZE}])" for at, name in enumerate(BUFFERS)]
        first = self.rng.choice(["m = n // 2", "m = h", "m = g * 32"])
        lines += ["    blocks = (n + 31) // 32", "    v = k", f"    {first}", "    e = g"]
        lines += [*self.definition(1), *self.block(1, 0, in_loop=False)]
        while self.launches < 3:
            lines += self.statement(1, 2, False)
        # A store to a buffer that is not copied back may be removed.
        kept = self.rng.sample(range(len(BUFFERS)), self.rng.choice([4, 3, 2]))
        lines += [f"    copy(data[{SIZE * at}:{SIZE * at + SIZE}], {BUFFERS[at]})" for at in kept]
        return "\n".join(lines) + "\n"

    def block(self, depth: int, level: int, *, in_loop: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 4)):
            lines += self.statement(depth, level, in_loop)
        return lines

    def statement(self, depth: int, level: int, in_loop: bool) -> list[str]:
        indent = "    " * depth
        if self.other.random() < 0.04:
            return self.rare(depth)
        form = self.rng.random()
        if form < 0.55 and self.launches < 8:
            return [indent + self.launch()]
        if form < 0.66 or level > 2:
            return [indent + self.simple()]
        if form < 0.75:
            return self.definition(depth)
        if form < 0.8 and in_loop:
            return [
                f"{indent}if v % 3 == {self.rng.randrange(3)}:",
                f"{indent}    {self.rng.choice(['break', 'continue'])}",
            ]
        inner = self.block(depth + 1, level + 1, in_loop=in_loop)
        if form < 0.92:
            lines = [f"{indent}if {self.rng.choice(['k', 'v'])} % {self.rng.randint(2, 3)} == 0:", *inner]
            if self.rng.random() < 0.5:
                lines += [f"{indent}else:", *self.block(depth + 1, level + 1, in_loop=in_loop)]
            return lines
        self.loops += 1
        number = self.loops  # a nested loop has another counter
        inner = self.block(depth + 1, level + 1, in_loop=True)
        if self.rng.random() < 0.6:
            return [f"{indent}for i{number} in range({self.rng.choice(['2', 'k % 3', 'v % 3'])}):", *inner]
        counter = f"w{number}"
        if self.rng.random() < 0.5:  # the loop runs at least once, so that launches may be hoisted out of it
            end = [f"{indent}    {counter} += 1", f"{indent}    if {counter} > k % 3:", f"{indent}        break"]
            inner = [line.replace("continue", "pass") for line in inner]
            return [f"{indent}{counter} = 0", f"{indent}while True:", *inner, *end]
        return [f"{indent}{counter} = 0", f"{indent}while {counter} < 2:", f"{indent}    {counter} += 1", *inner]

    def simple(self) -> str:
        one, two = self.rng.sample(BUFFERS, 2)
        return self.rng.choice(
            [
                f"v = (v * 3 + {self.rng.randrange(4)}) % 7",
                f"fill({one}, {self.rng.randrange(3)})",
                f"copy({one}, {two})",
                f"v = read({one}, {self.rng.randrange(SIZE // 2)})",
                f"write({one}, {self.rng.randrange(SIZE // 2)}, k)",
                f"{one}, {two} = {two}, {one}",
                "k = k + 1",
                "m = m",
            ]
        )

    def rare(self, depth: int) -> list[str]:
        """An early return, a loop with ``else``, or another place in memory for a handle: for the rest of the program,
        or for a while."""
        indent, rng = "    " * depth, self.other
        one, two = rng.sample(BUFFERS, 2)
        form = rng.random()
        if form < 0.25:
            test = rng.choice(["v % 5 == 3", "k > 6", "g == 4", "n > 126"])
            return [f"{indent}if {test}:", f"{indent}    copy(data[0:{SIZE}], {one})", f"{indent}    return"]
        if form < 0.4:
            return [f"{indent}{one} = allocate(i32, {SIZE})", f"{indent}copy({one}, {two})"]
        if form < 0.55:
            return [f"{indent}u = {one} if {rng.choice(['v % 2 == 0', 'k > 2'])} else {two}", f"{indent}fill(u, 2)"]
        if form < 0.75:
            lines = [f"{indent}for e{depth} in range({rng.choice(['0', '2', 'k % 3'])}):"]
            lines += [f"{indent}    {self.launch()}", f"{indent}    if v % 3 == 1:", f"{indent}        break"]
            return [*lines, f"{indent}else:", f"{indent}    {self.launch()}"]
        inner = [indent + self.launch() for _ in range(rng.randint(1, 3))]
        lines = [f"{indent}t = {one}", f"{indent}{one} = allocate(i32, {SIZE})", f"{indent}copy({one}, t)", *inner]
        return [*lines, f"{indent}copy(t, {one})", f"{indent}free({one})", f"{indent}{one} = t"]

    def definition(self, depth: int) -> list[str]:
        """Assignments to variables that launches use, in a branch or a loop or in neither."""
        indent = "    " * depth
        name = self.rng.choice(sorted(self.unassigned) or ["n", "k", "g", "h"])
        self.unassigned.discard(name)
        values = {"n": ["64", "h", "SIZE - 3", "min(n, 50)"], "h": ["64", "n", "33"], "k": ["2", "7", "v"]}
        value = self.rng.choice(values.get(name, ["2", "blocks", "4", "BLOCKS"]))
        other = self.rng.choice(["m", "e", "v"])
        test = self.rng.choice(["k > 2", f"{name} > 2", "v % 2 == 0", "g == 1", "n > 126"])
        made = self.rng.choice(
            [
                [f"{name} = {value}"],
                [f"{name} = {value}"],
                [f"{other} = {name}", f"{name} = {value}"],
                [f"{name}, {other} = {value}, {name}"],
                [f"{name} += 1"] if name in "kg" else [f"{name} -= 1"],
                [f"for {name} in range(1, 3):", "    v = v + 1"],
                [f"while {name} > 40:", f"    {name} = 40"],
                [f"write(a, 0, {value})", f"{name} = read(a, 0)"],
            ]
        )
        if self.rng.random() < 0.6:
            made = [f"if {test}:", *("    " + line for line in made)]
            if self.rng.random() < 0.3:
                made += ["else:", f"    v = {name}"]
        return [indent + line for line in made]

    def launch(self) -> str:
        self.launches += 1
        if len(self.kernels) < 6 or self.rng.random() < 0.5:
            name = f"k{len(self.kernels)}"
            reads = ["same"] * 5 + ["back"] * 3 + list(READS)
            text = kernel_text(
                name,
                self.rng.choice(reads),
                self.rng.choice(WRITES),
                self.rng.choice(OPERATIONS),
                self.rng.random() < 0.4,
                self.rng.choice(["ld.global.nc.u32", "ld.volatile.global.u32", *["ld.global.u32"] * 4]),
                self.rng.choice(["flat", "flat", "flat", "flat", "wide", "wide", "rows"]),
                (
                    # It is unknown whether a kernel that calls a function accesses only its buffers, so its launch is
                    # not moved.
                    self.rng.choice([*EXTRAS, "", "", "", "", "", "table", "table", "local", "local"]),
                    self.rng.randrange(5),
                ),
                self.rng.choice(HEADS),
                self.warps.choice(WARPS) if self.warps.random() < 0.15 else "",
            )
            self.kernels[name] = respelled(text, self.rng)
            if WIDE in self.kernels[name]:
                self.wide.add(name)
            if ROWS in self.kernels[name]:
                self.rows.add(name)
        name = self.rng.choice(list(self.kernels))
        x, y = self.rng.sample(BUFFERS, 2)
        usual = [("blocks", "32", "n")] * 5 + [("blocks", "32", "m"), ("2", "64", "n")]
        assigned = [("g", "32", "n"), ("e", "32", "n"), ("blocks", "32", "h"), ("(h + 31) // 32", "32", "h")]
        grid, block, n = self.rng.choice(usual + assigned)
        if self.rng.random() < 0.2:
            grid = "(n + 31) // 32" if block == "32" else grid
        elif self.rng.random() < 0.3 and block == "32":
            grid = self.rng.choice(["2", "5", "(m + 31) // 32", "v % 4 + 1", "(blocks, 1)"])
            if name in self.wide:
                grid = self.rng.choice(["(2, 2)", "(3, 1, 2)", "(1, v % 4 + 1)", "(1, blocks)"])
        is_flat = name not in self.wide | self.rows
        # fusion may forward the value that the last kernel stored
        if is_flat and self.last is not None and self.rng.random() < 0.5:
            grid, block, n, x = self.last
            y = self.rng.choice([buffer for buffer in BUFFERS if buffer != x])
        if is_flat:
            self.last = grid, block, n, y
        value = self.rng.choice(["k", "v", "7", "g"])
        if name in self.rows:  # rows must be disjoint
            grid, block, value = "(max(h // 32, 1), 2)", "32", self.rng.choice(["max(h, 32)", "max(h, 32)", "96"])
        dynamic = ", 256" if ".extern" in self.kernels[name] else self.rng.choice(["", "", "", ", 64", ", 4 * (v % 5)"])
        dynamic += ', "cooperative"' if self.rng.random() < 0.1 else ""
        return f"{name}[{grid}, {block}{dynamic}]({x}, {y}, {n}, {value})"


def random_launches(seed: int) -> RandomLaunches:
    """The program of a seed."""
    writer = _Writer(random.Random(seed), random.Random(f"rare:{seed}"), random.Random(f"warps:{seed}"))
    text = writer.text()
    constants = {"SIZE": SIZE, "BLOCKS": 3}
    kernels = {name: ptx_source(ptx, name) for name, ptx in writer.kernels.items()}
    namespace: dict[str, Any] = {**vars(dsl), **constants, **kernels}
    return RandomLaunches(program_from_text(text, namespace, f"random {seed}"), text, writer.kernels)
