"""Random integer expressions of the coordinates of a thread, with checks of every kind and random control flow.

`random_stencils` writes the forms of border handling that compilers write. Here, any value is an operand of any check:
comparisons with each relation, signed and unsigned, of 32 and 64 bits, with and without a second predicate; minimum,
maximum, magnitude, quotient, remainder, tests of signs; words that wrap around, saturate, are extended, narrowed and
masked. Checks decide selections, guarded instructions, branches, loops, barriers that all threads of a block reach, and
the early end of threads. Most constants are small and most parameters are near the size of the grid, so that blocks in
the middle of the grid often have an outcome in common.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["BorderChecks", "random_border_checks"]

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
#: Parameters of which only long sums are made.
MANY = 60
PARAMS = ", ".join(
    [
        *(".param .u64 out", ".param .u32 w", ".param .u32 h", ".param .u32 s", ".param .u64 big"),
        *(f".param .u32 m{number}" for number in range(MANY)),
    ]
)
_RELATIONS = {"s": ("lt", "le", "gt", "ge", "eq", "ne"), "u": ("lo", "ls", "hi", "hs", "lt", "le", "gt", "ge", "ne")}


@dataclass
class BorderChecks:
    """A kernel ``k(out, w, h, s, big, m0, …)`` and a launch of it."""

    ptx: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    words: tuple[int, int, int]
    big: int

    def arguments(self, seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        threads = int(np.prod(self.grid) * np.prod(self.block))
        out = rng.integers(0, 1 << 32, 4 * threads, dtype=np.uint32)
        words = [np.uint32(each & 0xFFFF_FFFF) for each in self.words]
        many = [np.uint32(number % 2) for number in range(MANY)]
        return [out, *words, np.uint64(self.big & (2**64 - 1)), *many]


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.count = 0
        #: The values that may be read here, by kind: ``r`` (32 bits), ``d`` (64 bits), ``p`` (predicates).
        self.known: dict[str, list[str]] = {"r": [], "d": [], "p": []}
        self.declared: dict[str, list[str]] = {"r": [], "d": [], "p": []}

    def fresh(self, kind: str) -> str:
        self.count += 1
        name = f"%{kind}{self.count}"
        self.declared[kind].append(name)
        return name

    def label(self) -> str:
        self.count += 1
        return f"L{self.count}"

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def made(self, kind: str, text: str) -> str:
        """Emit an instruction with ``{}`` for its new result, which may be read from here on."""
        name = self.fresh(kind)
        self.emit(text.format(name))
        self.known[kind].append(name)
        return name

    # --- operands --------------------------------------------------------------------------------------------------

    def value(self, kind: str) -> str:
        """One of the values, mostly of the last ones."""
        values = self.known[kind]
        return self.rng.choice(values[-6:] if self.rng.random() < 0.6 else values)

    def operand(self, kind: str) -> str:
        if self.rng.random() < 0.6:
            return self.value(kind)
        if self.rng.random() < 0.9:
            return str(self.rng.choice([0, 0, 1, 1, 2, 3, -1, -2, 7, 16, 40]))
        return str(self.rng.choice([2**31 - 1, -(2**31), 0xFFFFFFFF, 0xFFFFFFF0, 2**31, 100]))

    def number(self, kind: str) -> str:
        """A new value of 32 or 64 bits."""
        rng, bits = self.rng, 32 if kind == "r" else 64
        a, b = self.value(kind), self.operand(kind)
        sign = rng.choice("ssu")
        texts = [
            *(f"add.s{bits} {{}}, {a}, {b};", f"sub.s{bits} {{}}, {a}, {b};", f"sub.s{bits} {{}}, {b}, {a};") * 4,
            *(f"min.{sign}{bits} {{}}, {a}, {b};", f"max.{sign}{bits} {{}}, {a}, {b};") * 4,
            f"mul.lo.s{bits} {{}}, {a}, {rng.choice([2, 3, -1, a, b])};",
            f"shl.b{bits} {{}}, {a}, {rng.choice([1, 2, 30, 33])};",
            f"shr.{sign}{bits} {{}}, {a}, {rng.choice([1, 31, 63, bits - 1, bits - 1])};",
            f"or.b{bits} {{}}, {a}, {b};",
            f"or.b{bits} {{}}, {a}, {self.value(kind)};",
            f"and.b{bits} {{}}, {a}, {rng.choice([1, 7, -8, 255])};",
            f"xor.b{bits} {{}}, {a}, {self.value(kind)};",
            f"abs.s{bits} {{}}, {a};",
            f"neg.s{bits} {{}}, {a};",
            f"not.b{bits} {{}}, {a};",
        ]
        if self.known["p"]:
            texts += [f"selp.b{bits} {{}}, {a}, {b}, {self.value('p')};"] * 3
        text = rng.choice(texts)
        if rng.random() < 0.12:
            return self._divided(kind, bits, sign)
        if rng.random() < 0.15:
            return self._other_width(kind)
        if rng.random() < 0.04 and kind == "r":
            return rng.choice([self._joined, self._long_sum])()
        if rng.random() < 0.05 and kind == "r":
            return self.made("r", f"add.sat.s32 {{}}, {a}, {b};")
        if rng.random() < 0.08:
            shifted = self.made(kind, f"shr.s{bits} {{}}, {a}, {bits - 1};")
            return self.made(kind, f"xor.b{bits} {{}}, " + rng.choice([f"{a}, {shifted};", f"{shifted}, {a};"]))
        return self.made(kind, text)

    def _divided(self, kind: str, bits: int, sign: str) -> str:
        """A quotient or remainder whose divisor is not 0 and not -1."""
        divisor = self.rng.choice(["%w", "%h", "%s"]) if kind == "r" else "%big"
        positive = self.made(kind, f"max.u{bits} {{}}, {divisor}, 1;")
        if sign == "s":
            positive = self.made(kind, f"max.s{bits} {{}}, {positive}, 1;")
        left = self.value(kind)
        if self.rng.random() < 0.5:
            left = self.made(kind, f"add.s{bits} {{}}, {left}, {self.rng.choice([divisor, positive])};")
        return self.made(kind, f"{self.rng.choice(['rem', 'rem', 'div'])}.{sign}{bits} {{}}, {left}, {positive};")

    def _joined(self) -> str:
        """The result of a long chain that reads each of its values several times."""
        rng, operation = self.rng, self.rng.choice(["or.b32", "or.b32", "min.s32", "max.s32"])
        last = [self.value("r"), self.value("r")]
        for _ in range(rng.choice([2, 4, 30])):
            last = [last[1], self.made("r", f"{operation} {{}}, {rng.choice(last)}, {last[1]};")]
        return last[1]

    def _long_sum(self) -> str:
        """A coordinate less many parameters."""
        value = self.value("r")
        first = self.rng.randrange(MANY // 2)
        for number in range(first, first + MANY // 2):
            param = self.fresh("r")
            self.emit(f"ld.param.u32 {param}, [m{number}];")
            result = self.fresh("r")
            self.emit(f"sub.s32 {result}, {value}, {param};")
            value = result
        self.known["r"].append(value)
        return value

    def _other_width(self, kind: str) -> str:
        if kind == "r":
            return self.made("r", f"cvt.u32.u64 {{}}, {self.value('d')};")
        sign = self.rng.choice("su")
        if self.rng.random() < 0.3:
            return self.made("d", f"mul.wide.{sign}32 {{}}, {self.value('r')}, {self.operand('r')};")
        return self.made("d", f"cvt.{sign}64.{sign}32 {{}}, {self.value('r')};")

    def check(self) -> str:
        """A new predicate."""
        rng = self.rng
        if len(self.known["p"]) > 1 and rng.random() < 0.2:
            a, b = self.value("p"), self.value("p")
            texts = [f"{each}.pred {{}}, {a}, {b};" for each in ("and", "and", "or", "or", "xor")]
            return self.made("p", rng.choice([*texts, f"not.pred {{}}, {a};", f"mov.pred {{}}, {a};"]))
        kind = rng.choice("rrrd")
        bits, sign = (32 if kind == "r" else 64), rng.choice("ssu")
        left, right = self.value(kind), self.operand(kind)
        if rng.random() < 0.25:
            left, right = right if right.startswith("%") else self.value(kind), left
        relation = rng.choice(_RELATIONS[sign])
        text = f"{left}, {right}"
        if self.known["p"] and rng.random() < 0.35:
            how, negated = rng.choice(["and", "or", "xor"]), rng.choice(["", "!"])
            relation, text = f"{relation}.{how}", f"{text}, {negated}{self.value('p')}"
        if rng.random() < 0.15:
            other = self.fresh("p")
            name = self.fresh("p")
            self.emit(f"setp.{relation}.{sign}{bits} {name}|{other}, {text};")
            self.known["p"] += [name, other]
            return rng.choice([name, other])
        return self.made("p", f"setp.{relation}.{sign}{bits} {{}}, {text};")

    # --- statements ------------------------------------------------------------------------------------------------

    def statements(self, number: int, depth: int, *, may_end: bool) -> None:
        for _ in range(number):
            self.statement(depth, may_end=may_end)

    def statement(self, depth: int, *, may_end: bool) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.45:
            self.number(rng.choice("rrrd"))
        elif what < 0.60:
            self.check()
        elif what < 0.70:
            self.emit(f"mad.lo.s32 %sum, %sum, 31, {self.value('r')};")
            if rng.random() < 0.3:  # not guarded: the emulator counts a store whose guard is false
                self.emit(f"st.global.u32 [%out+4], {self.value('r')};")
        elif what < 0.76 and self.known["p"]:
            guard = f"@{rng.choice(['', '!'])}{self.value('p')} "
            target = rng.choice(["%v", "%sum", "%v"])
            self.emit(guard + rng.choice([f"add.s32 {target}, %v, 1;", f"mov.u32 {target}, {self.operand('r')};"]))
        elif what < 0.80 and may_end:
            self.emit(f"@{rng.choice(['', '!'])}{self.check()} {rng.choice(['ret', 'exit', 'bra DONE'])};")
        elif depth and what < 0.92:
            self._branch(depth - 1, may_end=may_end)
        elif depth:
            self._loop(depth - 1, may_end=may_end)

    def _inside(self, number: int, depth: int, *, may_end: bool) -> None:
        """Statements whose values cannot be read after them."""
        before = {kind: len(values) for kind, values in self.known.items()}
        self.statements(number, depth, may_end=may_end)
        for kind, length in before.items():
            del self.known[kind][length:]

    def _branch(self, depth: int, *, may_end: bool) -> None:
        """An ``if`` with or without an ``else``, or a diamond that ends in a choice of values."""
        rng, test = self.rng, self.check()
        other, end = self.label(), self.label()
        result = self.fresh("r")
        self.emit(f"@{rng.choice(['', '!'])}{test} bra {other};")
        self._inside(rng.randint(0, 3), depth, may_end=may_end)
        self.emit(f"mov.u32 {result}, {self.operand('r')};")
        self.emit(f"bra.uni {end};" if rng.random() < 0.5 else f"bra {end};")
        self.emit(f"{other}:")
        self._inside(rng.randint(0, 2), depth, may_end=may_end)
        self.emit(f"mov.u32 {result}, {self.operand('r')};")
        self.emit(f"{end}:")
        self.known["r"].append(result)

    def _loop(self, depth: int, *, may_end: bool) -> None:
        """A loop of at most 9 iterations, which is tested at its start or its end, over a counter or over a value."""
        rng = self.rng
        value, count = self.fresh("r"), self.fresh("r")
        start, end = self.label(), self.label()
        self.emit(f"mov.u32 {value}, {self.operand('r')};")
        self.emit(f"mov.u32 {count}, {rng.choice(['0', '0', '-1', '1'])};")
        self.known["r"] += [value, count]
        self.emit(f"{start}:")
        at_top = rng.random() < 0.5
        limit = rng.choice(["%s", "%s", "2", "3", "%w", self.operand("r")])
        if at_top:
            self.emit(f"@{rng.choice(['', '!'])}{self.check()} bra {end};")
        self._inside(rng.randint(1, 3), depth, may_end=may_end)
        step = rng.choice(["1", "1", "%w", "%h", "-1"])
        self.emit(f"{rng.choice(['add', 'add', 'sub'])}.s32 {value}, {value}, {step};")
        self.emit(f"add.s32 {count}, {count}, 1;")
        few, more = self.fresh("p"), self.fresh("p")
        which = rng.choice([count, count, value])
        relation = rng.choice(["lt", "le", "ne", "gt"])
        if rng.random() < 0.3:
            self.emit(f"setp.{rng.choice(['lt', 'le', 'ne'])}.s32 {more}, {count}, {rng.choice([1, 2, 3])};")
            self.emit(f"setp.gt.s32 {few}, {count}, 9;")
            self.emit(f"@{few} bra {end};")
        else:
            self.emit(f"setp.lt.s32 {few}, {count}, 9;")
            self.emit(f"setp.{relation}.and.{rng.choice('su')}32 {more}, {which}, {limit}, {few};")
        self.emit(f"@{more} bra {start};")
        self.emit(f"{end}:")


def _kernel(rng: random.Random) -> str:
    w = _Writer(rng)
    for name in ("w", "h", "s"):
        w.emit(f"ld.param.u32 %{name}, [{name}];")
    w.emit("ld.param.u64 %big, [big];")
    w.emit("ld.param.u64 %out, [out];")
    number = "0"
    for axis in "zyx":
        block, threads = (w.made("r", f"mov.u32 {{}}, %{kind}.{axis};") for kind in ("ctaid", "ntid"))
        thread, blocks = (w.made("r", f"mov.u32 {{}}, %{kind}.{axis};") for kind in ("tid", "nctaid"))
        own = w.made("r", f"mad.lo.s32 {{}}, {block}, {threads}, {thread};")
        whole = w.made("r", f"mul.lo.s32 {{}}, {blocks}, {threads};")
        number = w.made("r", f"mad.lo.s32 {{}}, {number}, {whole}, {own};")
        w.known["r"] = [each for each in w.known["r"] if rng.random() < 0.2 or each == own] + [own]
    wide = w.made("d", f"mul.wide.u32 {{}}, {number}, 16;")
    w.emit(f"add.s64 %out, %out, {wide};")
    w.known["d"] = ["%big"]
    w.known["r"] += rng.sample(["%w", "%h", "%s"], 2)
    w.made("d", f"cvt.s64.s32 {{}}, {w.known['r'][-3]};")
    w.emit("mov.u32 %sum, 1;")
    w.emit("mov.u32 %v, 0;")
    has_barrier = rng.random() < 0.3
    w.statements(rng.randint(4, 14), 2, may_end=not has_barrier)
    if has_barrier:
        w.emit("bar.sync 0;")
        w.emit("atom.global.add.u32 %v, [%out+8], %sum;")
        w.statements(rng.randint(2, 8), 1, may_end=True)
    for value in w.known["r"]:
        w.emit(f"mad.lo.s32 %sum, %sum, 31, {value};")
    for value in w.known["p"]:
        w.emit(f"@{value} add.s32 %sum, %sum, {rng.randint(1, 99)};")
    w.emit("xor.b32 %sum, %sum, %v;")
    w.emit("st.global.u32 [%out], %sum;")
    w.emit("DONE: ret;")
    registers = "".join(
        f"\t.reg .{kind} {', '.join(names)};\n"
        for kind, names in (
            ("b32", [*w.declared["r"], "%w", "%h", "%s", "%sum", "%v"]),
            ("b64", [*w.declared["d"], "%big", "%out"]),
            ("pred", w.declared["p"]),
        )
        if names
    )
    body = "\n".join(f"\t{line}" for line in w.lines)
    return f"{HEAD}.visible .entry k({PARAMS})\n{{\n{registers}{body}\n}}\n"


def random_border_checks(seed: int) -> BorderChecks:
    """The kernel and launch of ``seed``."""
    rng = random.Random(f"border checks:{seed}")
    ptx = _kernel(rng)
    grid = (rng.choice([3, 4, 5]), rng.choice([1, 3, 4]), rng.choice([1, 1, 3]))
    block = (rng.choice([4, 8, 32]), rng.choice([1, 2, 4]), rng.choice([1, 1, 2]))
    sizes = [grid[axis] * block[axis] - rng.choice([0, 0, 1, 3]) for axis in (0, 1)]
    odd = [0, 1, 2, 5, -4, 2**31 - 1, -(2**31), -1, sizes[0] + 2**31]
    words = [size if rng.random() < 0.8 else rng.choice(odd) for size in sizes]
    words.append(rng.choice([0, 1, 1, 2, 2, 3, 5, -1]))
    extremes = [0, 17, 2**32 - 1, 2**40, 2**40 + 1, -(2**40), 2**63 - 1, 2**63, 2**64 - 1]
    big = sizes[0] if rng.random() < 0.7 else rng.choice(extremes)
    return BorderChecks(ptx, grid, block, (words[0], words[1], words[2]), big)
