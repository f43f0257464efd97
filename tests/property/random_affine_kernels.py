"""Random kernels with affine addresses, and random launches of them that fit an allocation or do not.

The kernels have pointer parameters, 32-bit and 64-bit scalars, a structure, guards, loops in the shapes that compilers
make (tested at the top or the bottom, ``!=``, counting down, unrolled by four with a remainder, pointers that move),
indices of several terms, and a sum in memory that every iteration loads and stores. Arithmetic of 32 bits may wrap
around, strides may be negative, and a pointer may come from a structure or from memory.

A launch has one or two allocations. The pointers point to different ones, to parts of one, to the same bytes, or to the
last elements. Scalars are small, 0, 1, negative, or at the borders of their types.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from random_comparisons import respelled

__all__ = ["POINTERS", "RandomContract", "RandomLaunch", "fitted", "random_contract", "random_launch"]

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
POINTERS = ("a", "b", "c")
SCALARS = ("n", "m", "s")


@dataclass
class RandomContract:
    """A kernel ``k``. ``sizes`` maps each pointer parameter to the width of its elements. Scalars of a tame kernel are
    small, and its indices are extended as signed numbers, so that most launches stay near their pointers."""

    ptx: str
    sizes: dict[str, int]
    is_tame: bool


@dataclass
class RandomLaunch:
    """``places`` maps a pointer to (number of its allocation, offset); ``allocations`` are sizes in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    allocations: list[int]
    places: dict[str, tuple[int, int]]
    scalars: dict[str, int]


@dataclass
class _Writer:
    rng: random.Random
    sizes: dict[str, int]
    is_tame: bool
    #: How often `adjacent` is chosen.
    adjacents: int = 3
    lines: list[str] = field(default_factory=list[str])
    counts: dict[str, int] = field(default_factory=lambda: {"r": 0, "rd": 0, "p": 0, "f": 0, "L": 0})
    #: Registers of 32 bits that may be part of an index.
    indices: list[str] = field(default_factory=list[str])
    depth: int = 0

    def fresh(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"%{kind}{self.counts[kind]}" if kind != "L" else f"L{self.counts[kind]}"

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def word(self, text: str) -> str:
        reg = self.fresh("r")
        self.emit(text.format(reg))
        return reg

    def wide(self, text: str) -> str:
        reg = self.fresh("rd")
        self.emit(text.format(reg))
        return reg

    # --- statements ------------------------------------------------------------------------------------------------

    def statements(self, count: int) -> None:
        for _ in range(count):
            kind = self.rng.choices(
                [
                    self.load_store,
                    self.accumulate,
                    self.guarded,
                    self.tested,
                    self.node,
                    self.loop,
                    self.predicated,
                    self.derived,
                    self.adjacent,
                ],
                [5, 3, 3, 3, 2, 3 if self.depth < 3 else 0, 1, 2, self.adjacents],
            )[0]
            kind()

    def load_store(self) -> None:
        one, two = self.rng.choice(POINTERS), self.rng.choice(POINTERS)
        value = self.load(one, self.address(one, self.index()))
        if self.rng.random() < 0.5:
            other = self.load(two, self.address(two, self.index()))
            value = self.word(f"add.s32 {{}}, {value}, {other}")
        if self.rng.random() < 0.8:
            self.store(two, self.address(two, self.index()), value)

    def accumulate(self) -> None:
        """``y[i] += a[j]``, with the same address for the load and the store."""
        into, of = self.rng.sample(POINTERS, 2)
        place = self.address(into, self.index())
        old = self.load(into, place)
        value = self.load(of, self.address(of, self.index()))
        total = self.word(f"add.s32 {{}}, {old}, {value}")
        self.store(into, place, total)
        if self.rng.random() < 0.3:
            offset = self.rng.choice([4, 8, -4]) if self.sizes[of] == 4 else 1
            more = self.load(of, self.address(of, self.index()), offset)
            again = self.word(f"xor.b32 {{}}, {total}, {more}")
            self.store(into, place, again)

    def adjacent(self) -> None:
        """Loads of two to four elements that follow each other, in any order, maybe with stores between them. The index
        of the first one is often a multiple of a power of two, or of a scalar."""
        rng, of = self.rng, self.rng.choice(POINTERS)
        into = rng.choice(POINTERS)
        index = self.index()
        way = rng.randrange(5)
        if way == 0:
            index = self.word(f"shl.b32 {{}}, {index}, {rng.choice([1, 2, 2])}")
        elif way == 1:
            index = self.word(f"mul.lo.s32 {{}}, {index}, {rng.choice(['%n', '%m', '4'])}")
        elif way == 2:
            index = self.word(f"and.b32 {{}}, {index}, {rng.choice([-4, -2, 12])}")
        place, size = self.address(of, index), self.sizes[of]
        first = rng.choice([0, 0, 0, 0, 4, -1]) * size
        numbers = list(range(rng.choice([2, 4, 4, 3])))
        rng.shuffle(numbers)
        total = self.word("mov.u32 {}, 7")
        where = self.address(into, self.index())
        for number in numbers:
            value = self.load(of, place, first + number * size)
            total = self.word(f"mad.lo.s32 {{}}, {total}, {number + 2}, {value}")
            if rng.random() < 0.1:
                self.store(into, where, total)
        if rng.random() < 0.4:
            total = self.beside(of, place, first + (rng.choice([-1, *numbers, len(numbers)])) * size, total)
        self.store(into, where, total)

    def beside(self, of: str, place: str, offset: int, value: str) -> str:
        """A load of a word beside words that are loaded already. It is executed only if ``value`` is odd."""
        predicate, behind, result = self.fresh("p"), self.fresh("L"), self.fresh("r")
        self.emit(f"mov.u32 {result}, {value}")
        self.emit(f"and.b32 {value}, {value}, 1")
        self.emit(f"setp.eq.s32 {predicate}, {value}, 0")
        self.emit(f"@{predicate} bra {behind}")
        more = self.load(of, place, offset)
        self.emit(f"add.s32 {result}, {result}, {more}")
        self.place(behind)
        return result

    def predicated(self) -> None:
        pointer = self.rng.choice(POINTERS)
        predicate = self.comparison()
        place = self.address(pointer, self.index())
        value = self.word("mov.u32 {}, 5")
        width = "u32" if self.sizes[pointer] == 4 else "u8"
        self.emit(f"@{self.rng.choice(['', '!'])}{predicate} ld.global.{width} {value}, [{place}]")
        self.store(pointer, self.address(pointer, self.index()), value)

    def derived(self) -> None:
        x = self.index()
        text = self.rng.choice(
            [
                f"and.b32 {{}}, {x}, 7", f"and.b32 {{}}, {x}, -4", f"shr.u32 {{}}, {x}, 2", f"shr.s32 {{}}, {x}, 1",
                f"rem.u32 {{}}, {x}, 5", f"div.u32 {{}}, {x}, 3", f"shl.b32 {{}}, {x}, 1", f"neg.s32 {{}}, {x}",
            ]
        )  # fmt: skip
        self.indices.append(self.word(text))
        if self.rng.random() < 0.2:
            pointer = self.rng.choice(POINTERS)
            self.indices.append(self.load(pointer, self.address(pointer, x)))
        if self.rng.random() < 0.3:
            predicate, y = self.comparison(), self.index()
            y = self.rng.choice([x, y, y, y])
            self.indices.append(self.word(f"selp.b32 {{}}, {x}, {y}, {predicate}"))
            if self.rng.random() < 0.4:  # another choice between the same values
                self.indices.append(self.word(f"selp.b32 {{}}, {x}, {y}, {self.comparison()}"))

    def comparison(self) -> str:
        kind = self.rng.choice(["s32", "s32", "u32"])
        relation = self.rng.choice(["lt", "lt", "le", "gt", "ge", "eq", "ne"])
        left = self.rng.choice(self.indices)
        right = self.rng.choice(["%n", "%m", "%n", "%m", self.rng.choice(self.indices), str(self.rng.randint(-2, 9))])
        if self.rng.random() < 0.3:
            left, right = (right, left) if right.startswith("%") else (left, right)
        predicate = self.fresh("p")
        self.emit(f"setp.{relation}.{kind} {predicate}, {left}, {right}")
        way = self.rng.random()
        if way < 0.2:
            first, second, predicate = predicate, self.bounded(), self.fresh("p")
            self.emit(f"{self.rng.choice(['and', 'or', 'xor'])}.pred {predicate}, {first}, {second}")
        elif way < 0.35:
            predicate = self.combined(relation, kind, left, right, predicate)
        elif way < 0.45:  # written on some paths only
            guard = self.bounded()
            self.emit(f"@{self.rng.choice(['', '!'])}{guard} setp.{relation}.{kind} {predicate}, {right}, {left}")
        return predicate

    def bounded(self) -> str:
        """A predicate from one comparison with a scalar."""
        predicate = self.fresh("p")
        self.emit(f"setp.lt.s32 {predicate}, {self.rng.choice(self.indices)}, {self.rng.choice(['%n', '%m'])}")
        return predicate

    def combined(self, relation: str, kind: str, left: str, right: str, third: str) -> str:
        """One of the two results of a comparison that is combined with the predicate ``third``."""
        first, second = self.fresh("p"), self.fresh("p")
        operation, negation = self.rng.choice(["and", "or", "xor"]), self.rng.choice(["", "", "!"])
        results = self.rng.choice([first, f"{first}|{second}", f"{first}|{second}"])
        self.emit(f"setp.{relation}.{operation}.{kind} {results}, {left}, {right}, {negation}{third}")
        return self.rng.choice([first, second]) if "|" in results else first

    def bound_test(self, relation: str, kind: str, left: str, right: str, predicate: str) -> None:
        """Compare in ``predicate``. One test in eight also depends on another comparison."""
        if self.rng.random() < 0.12:
            other = self.combined(relation, kind, left, right, self.bounded())
            self.emit(f"mov.pred {predicate}, {other}")
        else:
            self.emit(f"setp.{relation}.{kind} {predicate}, {left}, {right}")

    def guarded(self) -> None:
        predicate, behind = self.comparison(), self.fresh("L")
        self.emit(f"@{self.rng.choice(['', '!'])}{predicate} bra {behind}")
        known = list(self.indices)
        self.depth += 1
        self.statements(self.rng.randint(1, 2))
        self.depth -= 1
        self.indices = known
        self.place(behind)

    def tested(self) -> None:
        """Loads behind a branch that memory decides about, such as ``if (f[i] > 1) y[i] = a[i + 1]``."""
        flags, of, into = self.rng.choice(POINTERS), self.rng.choice(POINTERS), self.rng.choice(POINTERS)
        i, behind = self.index(), self.fresh("L")
        flag = self.load(flags, self.address(flags, i))
        predicate, value = self.fresh("p"), self.word("mov.u32 {}, 0")
        if self.sizes[flags] == 4:
            flag = self.word(f"and.b32 {{}}, {flag}, 255")
        self.emit(f"setp.{self.rng.choice(['gt', 'eq', 'ne'])}.s32 {predicate}, {flag}, {self.rng.randint(0, 3)}")
        self.emit(f"@{predicate} bra {behind}")
        known = list(self.indices)
        loaded = self.load(of, self.address(of, self.rng.choice([i, self.index()])))
        if self.rng.random() < 0.4:
            more = self.load(of, self.address(of, self.index()))
            loaded = self.word(f"sub.s32 {{}}, {loaded}, {more}")
        self.emit(f"mov.u32 {value}, {loaded}")
        if self.depth < 2 and self.rng.random() < 0.3:
            self.depth += 1
            self.statements(1)
            self.depth -= 1
        self.indices = known
        self.place(behind)
        self.store(into, self.address(into, self.index()), value)

    def node(self) -> None:
        """A field of an element is read behind a test of another field; the index comes from memory."""
        of, into = self.rng.sample(POINTERS, 2)
        size = self.sizes[of]
        stride = size * self.rng.choice([2, 3, 4])
        index = self.load(into, self.address(into, self.index()))
        if self.sizes[into] == 4 or self.rng.random() < 0.3:
            index = self.word(f"and.b32 {{}}, {index}, 3")
        node = self.wide(f"mad.wide.{self.rng.choice(['s32', 'u32'])} {{}}, {index}, {stride}, %{of}")
        fields = [number * size for number in range(stride // size)]
        flag = self.load(of, node, self.rng.choice(fields))
        predicate, value, behind = self.fresh("p"), self.word("mov.u32 {}, 0"), self.fresh("L")
        self.emit(f"setp.{self.rng.choice(['eq', 'ne'])}.s32 {predicate}, {flag}, {self.rng.randint(0, 3)}")
        self.emit(f"@{predicate} bra {behind}")
        offset = self.rng.choice([*fields, *fields, stride, -size])
        self.emit(f"mov.u32 {value}, {self.load(of, node, offset)}")
        self.place(behind)
        self.store(into, self.address(into, self.index()), value)

    # --- loops -----------------------------------------------------------------------------------------------------

    def loop(self) -> None:
        known = list(self.indices)
        self.depth += 1
        shapes = [self.bottom_tested, self.top_tested, self.until_equal, self.unrolled, self.moving_pointer, self.odd]
        self.rng.choice(shapes)()
        self.depth -= 1
        self.indices = known

    def bound(self) -> str:
        return self.rng.choice(["%n", "%m", "%m", str(self.rng.randint(0, 6))])

    def bottom_tested(self) -> None:
        i, bound, behind, head = self.fresh("r"), self.bound(), self.fresh("L"), self.fresh("L")
        start = self.rng.choice(["0", "0", "1", self.rng.choice(self.indices), "%tx"])
        step = self.rng.choice(["1", "1", "2", "3", "%nx"])
        self.emit(f"mov.u32 {i}, {start}")
        predicate = self.fresh("p")
        kind = self.rng.choice(["s32", "s32", "u32"])
        if self.rng.random() < 0.8:
            self.bound_test("ge", kind, i, bound, predicate)
            self.emit(f"@{predicate} bra {behind}")
        self.place(head)
        self.indices.append(i)
        self.statements(1)
        self.emit(f"add.s32 {i}, {i}, {step}")
        self.bound_test(self.rng.choice(["lt", "lt", "le"]), kind, i, bound, predicate)
        self.emit(f"@{predicate} bra {head}")
        self.place(behind)

    def top_tested(self) -> None:
        i, bound, behind, head = self.fresh("r"), self.bound(), self.fresh("L"), self.fresh("L")
        down = self.rng.random() < 0.4
        predicate = self.fresh("p")
        self.emit(f"mov.u32 {i}, {bound if down else self.rng.choice(['0', '2', '%tx'])}")
        self.place(head)
        if down:
            self.bound_test("le", "s32", i, str(self.rng.randint(-1, 2)), predicate)
        else:
            self.bound_test("ge", self.rng.choice(["s32", "u32"]), i, bound, predicate)
        self.emit(f"@{predicate} bra {behind}")
        self.indices.append(i)
        self.statements(1)
        self.emit(f"add.s32 {i}, {i}, {-self.rng.randint(1, 2) if down else self.rng.randint(1, 2)}")
        self.emit(f"bra {head}")
        self.place(behind)

    def until_equal(self) -> None:
        i, bound, behind, head = self.fresh("r"), self.bound(), self.fresh("L"), self.fresh("L")
        predicate = self.fresh("p")
        step = self.rng.choice([1, 1, 2, -1])
        self.emit(f"mov.u32 {i}, {bound if step < 0 else 0}")
        if self.rng.random() < 0.8:
            self.emit(f"setp.lt.s32 {predicate}, {bound}, 1")
            self.emit(f"@{predicate} bra {behind}")
        self.place(head)
        self.indices.append(i)
        self.statements(1)
        self.emit(f"add.s32 {i}, {i}, {step}")
        self.bound_test("ne", "s32", i, "0" if step < 0 else bound, predicate)
        self.emit(f"@{predicate} bra {head}")
        self.place(behind)

    def odd(self) -> None:
        """A loop that continues on any comparison of its counter with a constant near it, at most three times."""
        rng = self.rng
        i, turns, behind, head = self.fresh("r"), self.fresh("r"), self.fresh("L"), self.fresh("L")
        start, step = rng.randint(0, 4), rng.choice([1, 1, 2, 3, -1])
        moved, ends, predicate = (self.fresh(kind) for kind in ("r", "p", "p"))
        self.emit(f"mov.u32 {i}, {start}")
        self.emit(f"mov.u32 {turns}, 0")
        self.place(head)
        self.indices.append(i)
        self.statements(1)
        self.emit(f"add.s32 {moved}, {i}, {step}")
        self.emit(f"add.s32 {turns}, {turns}, 1")
        if rng.random() < 0.7:
            self.emit(f"setp.gt.s32 {ends}, {turns}, 3")
            self.emit(f"@{ends} bra {behind}")
        relation, kind = rng.choice(["eq", "ne", "lt", "le", "gt", "ge"]), rng.choice(["s32", "u32"])
        self.bound_test(relation, kind, rng.choice([i, moved]), str(start + rng.choice([0, 0, step, 2, 5])), predicate)
        self.emit(f"mov.u32 {i}, {moved}")
        self.emit(f"@{rng.choice(['', '', '!'])}{predicate} bra {head}")
        self.place(behind)

    def unrolled(self) -> None:
        """Four accesses in an iteration, with ``n & 3`` iterations of a second loop behind."""
        n = self.rng.choice(["%n", "%m"])
        into, of = self.rng.sample(POINTERS, 2)
        rest = self.word(f"and.b32 {{}}, {n}, 3")
        less, j, left = self.word(f"add.s32 {{}}, {n}, -1"), self.fresh("r"), self.fresh("r")
        predicate, head, middle, tail, behind = (self.fresh(kind) for kind in ("p", "L", "L", "L", "L"))
        self.emit(f"setp.lt.s32 {predicate}, {n}, 1")
        self.emit(f"@{predicate} bra {behind}")
        self.emit(f"mov.u32 {j}, 0")
        self.emit(f"setp.lt.u32 {predicate}, {less}, 3")
        self.emit(f"@{predicate} bra {middle}")
        self.emit(f"sub.s32 {left}, {n}, {rest}")
        place, moving = self.address(into, self.index()), self.fresh("rd")
        self.emit(f"mov.u64 {moving}, {self.address(of, self.index())}")
        self.place(head)
        for number in range(4):
            old, more = self.load(into, place), self.load(of, moving, number * self.sizes[of])
            self.store(into, place, self.word(f"add.s32 {{}}, {old}, {more}"))
        self.emit(f"add.s64 {moving}, {moving}, {4 * self.sizes[of]}")
        self.emit(f"add.s32 {j}, {j}, 4")
        self.emit(f"add.s32 {left}, {left}, -4")
        self.emit(f"setp.ne.s32 {predicate}, {left}, 0")
        self.emit(f"@{predicate} bra {head}")
        self.place(middle)
        self.emit(f"setp.eq.s32 {predicate}, {rest}, 0")
        self.emit(f"@{predicate} bra {behind}")
        last = self.fresh("rd")
        self.emit(f"mov.u64 {last}, {self.address(of, j)}")
        place = self.address(into, self.index())
        self.place(tail)
        old, more = self.load(into, place), self.load(of, last)
        self.store(into, place, self.word(f"add.s32 {{}}, {old}, {more}"))
        self.emit(f"add.s64 {last}, {last}, {self.sizes[of]}")
        self.emit(f"add.s32 {rest}, {rest}, -1")
        self.emit(f"setp.ne.s32 {predicate}, {rest}, 0")
        self.emit(f"@{predicate} bra {tail}")
        self.place(behind)

    def moving_pointer(self) -> None:
        """A pointer that each iteration moves by a stride, which may be negative; the counter is another register."""
        i, bound, behind, head = self.fresh("r"), self.bound(), self.fresh("L"), self.fresh("L")
        into, of = self.rng.sample(POINTERS, 2)
        predicate, moving = self.fresh("p"), self.fresh("rd")
        self.emit(f"setp.lt.s32 {predicate}, {bound}, 1")
        self.emit(f"@{predicate} bra {behind}")
        self.emit(f"mov.u64 {moving}, {self.address(of, self.index())}")
        stride = self.wide(f"mul.wide.s32 {{}}, {self.rng.choice(['%s', '%n', '1', '-1'])}, {self.sizes[of]}")
        self.emit(f"mov.u32 {i}, 0")
        place = self.address(into, self.index())
        self.place(head)
        old, more = self.load(into, place), self.load(of, moving)
        self.store(into, place, self.word(f"add.s32 {{}}, {old}, {more}"))
        self.emit(f"add.s64 {moving}, {moving}, {stride}")
        self.emit(f"add.s32 {i}, {i}, 1")
        self.emit(f"setp.lt.s32 {predicate}, {i}, {bound}")
        self.emit(f"@{predicate} bra {head}")
        self.place(behind)

    # --- addresses -------------------------------------------------------------------------------------------------

    def index(self) -> str:
        rng, one, two = self.rng, self.rng.choice(self.indices), self.rng.choice(self.indices)
        scalar = rng.choice(["%n", "%m", "%s", str(rng.randint(-3, 9))])
        text = rng.choice(
            [
                None, None, None, f"add.s32 {{}}, {one}, {rng.randint(-2, 5)}",
                f"mad.lo.s32 {{}}, {one}, {scalar}, {two}",
                f"sub.s32 {{}}, {scalar if scalar[0] == '%' else '%n'}, {one}", f"add.s32 {{}}, {one}, {two}",
                f"mul.lo.s32 {{}}, {one}, {scalar}",
                f"shl.b32 {{}}, {one}, {1 if self.is_tame else rng.choice([1, 2, 30])}",
            ]
        )  # fmt: skip
        return one if text is None else self.word(text)

    def address(self, pointer: str, index: str) -> str:
        rng, size = self.rng, self.sizes[pointer]
        base = f"%{pointer}"
        if rng.random() < 0.1:
            base = self.wide(f"add.s64 {{}}, {base}, {rng.randint(-2, 6) * size}")
        kind = "s32" if self.is_tame else rng.choice(["s32", "s32", "u32"])
        way = rng.randrange(5)
        if way == 0:
            return self.wide(f"mad.wide.{kind} {{}}, {index}, {size}, {base}")
        if way == 1:
            wide = self.wide(f"cvt.{kind[0]}64.{kind} {{}}, {index}")
            offset = self.wide(f"shl.b64 {{}}, {wide}, {size.bit_length() - 1}")
        elif way == 2:
            wide = self.wide(f"cvt.{kind[0]}64.{kind} {{}}, {index}")
            offset = self.wide(f"mad.lo.s64 {{}}, {wide}, %w, 0")
            offset = self.wide(f"mul.lo.s64 {{}}, {offset}, {size}")
        else:
            offset = self.wide(f"mul.wide.{kind} {{}}, {index}, {size}")
        return self.wide(f"add.s64 {{}}, {base}, {offset}")

    def load(self, pointer: str, address: str, offset: int = 0) -> str:
        width = "u32" if self.sizes[pointer] == 4 else "u8"
        return self.word(f"ld.global.{width} {{}}, [{address}{f'+{offset}' if offset else ''}]")

    def store(self, pointer: str, address: str, value: str) -> None:
        width = "u32" if self.sizes[pointer] == 4 else "u8"
        self.emit(f"st.global.{width} [{address}], {value}")


def random_contract(seed: int, adjacents: int = 3) -> RandomContract:
    """The kernel of a seed. ``adjacents``: how often it has loads that follow each other."""
    rng = random.Random(seed)
    is_tame = rng.random() < 0.6
    writer = _Writer(rng, {name: rng.choice([4, 4, 4, 1]) for name in POINTERS}, is_tame, adjacents)
    for name in ("a", "b"):
        writer.emit(f"ld.param.u64 %{name}, [p_{name}]")
    origin = rng.choice(["parameter"] * 6 + ["structure", "memory"])
    source = {"parameter": "[p_c]", "structure": "[p_t+8]", "memory": "[%t]"}[origin]
    if origin == "memory":
        writer.emit("ld.param.u64 %t, [p_c]")
    writer.emit(f"ld.{'global' if origin == 'memory' else 'param'}.u64 %c, {source}")
    if rng.random() < 0.3:
        writer.emit("cvta.to.global.u64 %a, %a")
    for name in SCALARS:
        writer.emit(f"ld.param.u32 %{name}, [{'p_t' if name == 's' else f'p_{name}'}]")
    writer.emit("ld.param.u64 %w, [p_w]")
    writer.emit("mov.u32 %tx, %tid.x")
    writer.emit("mov.u32 %nx, %ntid.x")
    writer.emit("mov.u32 %cx, %ctaid.x")
    writer.emit("mad.lo.s32 %i, %cx, %nx, %tx")
    writer.emit("mov.u32 %ty, %tid.y")
    writer.indices = ["%i", "%i", "%i", "%tx", "%ty"]
    if rng.random() < 0.6:
        predicate = writer.fresh("p")
        writer.emit(f"setp.ge.{rng.choice(['s32', 's32', 'u32'])} {predicate}, %i, {rng.choice(['%n', '%m'])}")
        writer.emit(f"@{predicate} bra END")
    writer.statements(rng.randint(2, 4))
    counts = writer.counts
    types = [(name, rng.choice(["u32", "u32", "s32"])) for name in ("n", "m")]
    params = [
        "\t.param .u64 p_a",
        "\t.param .u64 p_b",
        "\t.param .u64 p_c",
        *(f"\t.param .{t} p_{n}" for n, t in types),
    ]
    params += ["\t.param .u64 p_w", "\t.param .align 8 .b8 p_t[16]"]
    registers = [
        f".reg .pred %p<{counts['p'] + 1}>;",
        f".reg .b32 %r<{counts['r'] + 1}>, %n, %m, %s, %i, %tx, %ty, %nx, %cx;",
    ]
    registers += [f".reg .b64 %rd<{counts['rd'] + 1}>, %a, %b, %c, %w, %t;"]
    body = "\n".join(["\t" + each for each in registers] + writer.lines)
    text = f"{HEAD}.visible .entry k(\n" + ",\n".join(params) + "\n)\n{\n" + body + "\nEND:\n\tret;\n}\n"
    return RandomContract(respelled(text, rng), writer.sizes, is_tame)


_BORDERS = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x40000000, 0x20000001, 0x10000)


def random_launch(kernel: RandomContract, seed: int) -> RandomLaunch:
    """The launch of a seed."""
    rng, sizes = random.Random(seed), kernel.sizes

    def scalar() -> int:
        small = [rng.randint(1, 16 if kernel.is_tame else 24) for _ in range(12)]
        return rng.choice([0, 1, 2, *small, 3 if kernel.is_tame else rng.choice(_BORDERS)])

    grid = (rng.choice([1, 1, 2, 3]), 1, 1)
    block = (rng.choice([1, 3, 8, 17, 32]), rng.choice([1, 1, 1, 2]), 1)
    scalars = {"n": scalar(), "m": scalar(), "s": rng.choice([1, 1, 2, 4, 0xFFFFFFFF, scalar()])}
    scalars["w"] = rng.choice([1, 1, 1, 2] if kernel.is_tame else [1, 2, 0, (1 << 64) - 1, 1 << 62, rng.randint(1, 5)])
    way = rng.choice(["apart", "apart", "parts", "parts", "overlapping", "same", "last"])
    room = rng.choice([0, 1, 16, 64, 400, 1600])
    if way == "apart":
        allocations = [rng.choice([room, 4, 256, 2048]) for _ in POINTERS]
        places = {
            name: (number, _offset(rng, allocations[number], sizes[name])) for number, name in enumerate(POINTERS)
        }
    elif way == "parts":
        part = rng.choice([16, 64, 100, 256, 800, 1600])
        order = rng.sample(POINTERS, 3)
        allocations = [3 * part + rng.choice([0, 1, 64])]
        places = {name: (0, number * part // sizes[name] * sizes[name]) for number, name in enumerate(order)}
    else:
        allocations = [rng.choice([64, 256, 1024, 2048]), room]
        same = rng.randrange(0, allocations[0] + 1, 4)
        places = {}
        for name in POINTERS:
            offset = same if way == "same" else _offset(rng, allocations[0], sizes[name])
            if way == "last":
                offset = allocations[0] - rng.choice([0, 4, 8, 32])
            places[name] = (0, offset)
    return RandomLaunch(grid, block, allocations, places, scalars)


def fitted(launch: RandomLaunch, windows: dict[str, tuple[int, int]], seed: int) -> RandomLaunch:
    """The launch with allocations that end where the accesses end.

    ``windows``: by pointer the range of the bytes that are accessed, relative to the pointer. The windows are in
    allocations of their own, or one behind the other in one allocation, touching or overlapping by some bytes. In half
    of the launches all pointers are multiples of 16.
    """
    rng = random.Random(seed)
    way = rng.choice(["apart", "touching", "touching", "overlapping"])
    are_aligned = rng.random() < 0.5
    allocations: list[int] = []
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name in rng.sample(POINTERS, len(POINTERS)):
        first, last = min(windows[name][0], 0), max(windows[name][1], 0)
        start = -first % 4 if way == "apart" else end + -(end - first) % 4
        if are_aligned:  # the pointers are multiples of 16
            begin = 0 if way == "apart" else end
            start = begin + (first - begin) % 16
        if way == "overlapping":
            start = max(start - rng.choice([0, 4, 8, 64]), -first % 4)
        places[name] = (len(allocations) if way == "apart" else 0, start - first)
        end = max(end, start + last - first)
        if way == "apart":
            allocations.append(start + last - first)
    return replace(launch, allocations=allocations if way == "apart" else [end], places=places)


def _offset(rng: random.Random, size: int, width: int) -> int:
    offset = rng.choice([0, 0, 0, size, max(size - width, 0), rng.randint(0, size)])
    return offset if rng.random() < 0.02 else offset // width * width
