"""Random kernels with many pointers: into buffers of parameters, which may be equal, and into variables of every state
space. Pointers are generic or not, selected, joined at φs, and advanced in loops. Offsets may wrap around. There are
guards, and tests that keep loads in bounds.

A kernel is a function of its seed and size. Guarantees: it ends, and no access is out of bounds or misaligned. Threads
race and read memory that was never written, because these tests are about addresses, not about values.

>>> pointer_kernel(1, 20).ptx == pointer_kernel(1, 20).ptx
True
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from random_comparisons import respelled

__all__ = ["PointerProgram", "pointer_kernel"]

#: Bytes of every object. An index is masked to 16 words in the middle half, and offsets are at most 64 bytes.
OBJECT = 256
PARAMS = ("p0", "p1", "p2")
_HEAD = f"""\
.version 8.8
.target sm_90
.address_size 64
.global .align 16 .b8 table[{OBJECT}];
.global .align 16 .b8 other[{OBJECT}];
.const .align 16 .b8 coef[{OBJECT}];
.visible .entry soup(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 m, .param .u32 n)
{{
	.reg .pred %p<100>;
	.reg .b32 %r<2000>;
	.reg .b64 %rd<2000>;
	.shared .align 16 .b8 sa[{OBJECT}];
	.shared .align 16 .b8 sb[{OBJECT}];
	.local .align 16 .b8 depot[{OBJECT}];
"""
#: Objects and their spaces.
_OBJECTS = {"table": "global", "other": "global", "coef": "const", "sa": "shared", "sb": "shared", "depot": "local"}


@dataclass(frozen=True)
class PointerProgram:
    """A kernel, and how to launch it: buffers of `OBJECT` bytes for ``p0 p1 p2``, then ``m`` and ``n``."""

    ptx: str
    kernel: str = "soup"
    grid: tuple[int, int, int] = (2, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    shared: int = 0

    def make_inputs(self, seed: int) -> list[np.ndarray | np.generic]:
        """The arguments. Equal array objects stand for one buffer."""
        rng = np.random.default_rng(seed)
        pool = [rng.integers(0, 1 << 32, OBJECT // 4, dtype=np.uint32) for _ in range(3)]
        shared = rng.random() < 0.5
        buffers = [pool[rng.integers(0, 3)] if shared else pool[number] for number in range(3)]
        return [*buffers, np.uint64(4 * rng.integers(0, 8)), np.uint32(rng.integers(0, 40))]


@dataclass
class _Pointer:
    """A register with an address in an object, at least ``slack`` bytes from both of its ends."""

    reg: str
    space: str  #: the state space of the address
    slack: int
    is_read_only: bool = False


@dataclass
class _Soup:
    rng: random.Random
    lines: list[str] = field(default_factory=list[str])
    pointers: list[_Pointer] = field(default_factory=list[_Pointer])
    values: list[str] = field(default_factory=list[str])
    predicates: list[str] = field(default_factory=list[str])
    count: int = 0

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def new(self, kind: str) -> str:
        self.count += 1
        return f"%{kind}{self.count}"

    def define(self, kind: str, text: str) -> str:
        reg = self.new(kind)
        self.emit(text.format(reg))
        return reg

    # --- pointers --------------------------------------------------------------------------------------------------

    def prologue(self) -> None:
        self.tid = self.define("r", "mov.u32 {}, %tid.x")
        self.n = self.define("r", "ld.param.u32 {}, [n]")
        self.m = self.define("rd", "ld.param.u64 {}, [m]")
        self.values = [self.tid, self.n]
        for bound in (4, 17, 30):
            self.predicates.append(self.define("p", f"setp.lt.u32 {{}}, {self.tid}, {bound}"))
        self.predicates.append(self.define("p", f"setp.lt.u32 {{}}, {self.tid}, {self.n}"))
        for _ in range(4):
            self.fresh_pointer()

    def fresh_pointer(self) -> None:
        """A pointer to the middle of an object, computed in one of the ways that compilers use."""
        rng = self.rng
        if rng.random() < 0.55:
            generic = self.define("rd", f"ld.param.u64 {{}}, [{rng.choice(PARAMS)}]")
            is_global = rng.random() < 0.7
            base = self.define("rd", f"cvta.to.global.u64 {{}}, {generic}") if is_global else generic
            space, read_only, is_wide = "global" if is_global else "", False, True
        else:
            name, space = rng.choice(list(_OBJECTS.items()))
            read_only = space == "const"
            is_wide = space in ("global", "const") or rng.random() < 0.5
            kind, width = ("rd", 64) if is_wide else ("r", 32)
            base = self.define(kind, f"mov.u{width} {{}}, {name}")
            if is_wide and rng.random() < 0.4:
                base = self.define("rd", f"cvta.{space}.u64 {{}}, {base}")
                if rng.random() < 0.3:
                    base = self.define("rd", f"cvta.to.{space}.u64 {{}}, {base}")
                else:
                    space = ""
        middle = self.moved(base, is_wide, OBJECT // 2 - 32)
        self.pointers.append(self.indexed(_Pointer(middle, space, OBJECT // 2 - 32, read_only), is_wide))

    def moved(self, base: str, is_wide: bool, offset: int) -> str:
        """``base + offset``. The sum may wrap around at the end of the address space."""
        rng = self.rng
        kind, width = ("rd", 64) if is_wide else ("r", 32)
        way = rng.random()
        if way < 0.2:
            far = rng.choice([1 << (width - 1), (1 << 31) - 4, 1 << 31, (1 << width) - 256])
            part = self.define(kind, f"add.s{width} {{}}, {base}, {(offset + far) % (1 << width):#x}")
            return self.define(kind, f"sub.s{width} {{}}, {part}, {far % (1 << width):#x}")
        if way < 0.4 and is_wide:  # computed from the difference of two other pointers
            step = self.define(kind, f"add.s64 {{}}, {self.m}, {offset}")
            away = self.define(kind, f"sub.s64 {{}}, {step}, {self.m}")
            return self.define(kind, f"add.s64 {{}}, {away}, {base}")
        return self.define(kind, f"add.s{width} {{}}, {base}, {offset}")

    def index(self) -> str:
        """A register with an index below 16."""
        return self.define("r", f"and.b32 {{}}, {self.rng.choice(self.values)}, {self.rng.choice([15, 7, 8, 3])}")

    def indexed(self, pointer: _Pointer, is_wide: bool) -> _Pointer:
        """The pointer plus up to 15 words. Its ``slack`` is 64 bytes less."""
        rng = self.rng
        if rng.random() < 0.3 or pointer.slack < 80:
            return pointer
        index = self.index()
        if not is_wide:
            reg = self.define("r", f"mad.lo.s32 {{}}, {index}, 4, {pointer.reg}")
        elif rng.random() < 0.5:
            reg = self.define("rd", f"mad.wide.u32 {{}}, {index}, 4, {pointer.reg}")
        else:
            far = self.define("rd", f"mul.wide.s32 {{}}, {index}, 4")
            reg = self.define("rd", f"add.s64 {{}}, {pointer.reg}, {far}")
        return _Pointer(reg, pointer.space, pointer.slack - 64, pointer.is_read_only)

    def derived_pointer(self) -> None:
        """A pointer computed from others: moved by a constant, an index or the parameter, selected, or set under a
        guard."""
        rng = self.rng
        old = rng.choice(self.pointers)
        is_wide = old.reg.startswith("%rd")
        way = rng.random()
        if way < 0.25 and old.slack >= 32:
            reg = self.moved(old.reg, is_wide, rng.choice([4, 8, 12, 16, -4, -8, -16]))
            self.pointers.append(_Pointer(reg, old.space, old.slack - 16, old.is_read_only))
        elif way < 0.4:
            self.pointers.append(self.indexed(old, is_wide))
        elif way < 0.5 and is_wide and old.slack >= 48:
            reg = self.define("rd", f"add.s64 {{}}, {old.reg}, {self.m}")
            self.pointers.append(_Pointer(reg, old.space, old.slack - 32, old.is_read_only))
        else:
            fitting = [p for p in self.pointers if p.space == old.space and p.reg.startswith("%rd") == is_wide]
            two = rng.choice(fitting)
            kind, width = ("rd", 64) if is_wide else ("r", 32)
            predicate = rng.choice(self.predicates)
            if rng.random() < 0.6:
                reg = self.define(kind, f"selp.b{width} {{}}, {old.reg}, {two.reg}, {predicate}")
            else:
                reg = self.define(kind, f"mov.u{width} {{}}, {old.reg}")
                self.emit(f"@{predicate} mov.u{width} {reg}, {two.reg}")
            slack = min(old.slack, two.slack)
            self.pointers.append(_Pointer(reg, old.space, slack, old.is_read_only or two.is_read_only))

    # --- accesses --------------------------------------------------------------------------------------------------

    def access(self, guard: str = "") -> None:
        rng = self.rng
        pointer = rng.choice(self.pointers[-6:] if rng.random() < 0.7 else self.pointers)
        space = f".{pointer.space}" if pointer.space else ""
        offset = rng.choice([0, 0, 4, 8, -4, 12])
        width, kind = rng.choice([(4, "u32"), (4, "u32"), (1, "u8"), (2, "u16")])
        if abs(offset) + 8 > pointer.slack:
            offset = 0
        address = f"[{pointer.reg}{f'+{offset}' if offset else ''}]"
        guard = guard or (f"@{rng.choice(self.predicates)} " if rng.random() < 0.15 else "")
        value = rng.choice(self.values)
        choice = rng.random()
        if choice < 0.6 or pointer.is_read_only or pointer.space == "const":
            how = "volatile" if rng.random() < 0.05 and pointer.space in ("", "global", "shared") else ""
            reg = self.new("r")
            self.emit(f"{guard}ld{'.' + how if how else ''}{space}.{kind} {reg}, {address}")
            if not guard:
                self.values.append(reg)
        elif choice < 0.9 or width != 4 or pointer.space == "local":
            self.emit(f"{guard}st{space}.{kind} {address}, {value}")
        elif pointer.space:
            self.emit(f"{guard}red{space}.add.u32 {address}, {value}")
        else:
            self.emit(f"{guard}atom.add.u32 {self.new('r')}, {address}, {value}")

    def neighbours(self) -> None:
        """Loads of adjacent words in any order, from an aligned address, with other accesses between them."""
        rng = self.rng
        if rng.random() < 0.6:
            generic = self.define("rd", f"ld.param.u64 {{}}, [{rng.choice(PARAMS)}]")
            base, space = self.define("rd", f"cvta.to.global.u64 {{}}, {generic}"), "global"
        else:
            name, space = rng.choice([each for each in _OBJECTS.items() if each[1] != "const"])
            base = self.define("rd", f"mov.u64 {{}}, {name}")
        if rng.random() < 0.5:
            index = self.define("r", f"and.b32 {{}}, {rng.choice(self.values)}, 7")
            base = self.define("rd", f"mad.wide.u32 {{}}, {index}, {rng.choice([16, 8, 16])}, {base}")
        start = rng.choice([0, 16, 64, 8, 4])
        offsets = [start + 4 * number for number in range(rng.choice([2, 4, 4, 5]))]
        rng.shuffle(offsets)
        for offset in offsets:
            reg = self.define("r", f"ld.{space}.u32 {{}}, [{base}+{offset}]")
            self.values.append(reg)
            if rng.random() < 0.2:
                self.access()
            elif rng.random() < 0.1:
                self.emit(f"st.{space}.u32 [{base}+{rng.choice(offsets)}], {rng.choice(self.values)}")

    def overwrites(self) -> None:
        """Several stores to overlapping bytes at one pointer, perhaps with a load between them."""
        rng = self.rng
        able = [each for each in self.pointers if not each.is_read_only and each.space != "const" and each.slack >= 16]
        if not able:
            return
        pointer = rng.choice(able)
        space = f".{pointer.space}" if pointer.space else ""
        for _ in range(rng.choice([2, 3, 4])):
            kind, offset = rng.choice([("u32", 0), ("u32", 0), ("u32", 4), ("u16", 2), ("u8", 1), ("u8", 4)])
            guard = f"@{rng.choice(self.predicates)} " if rng.random() < 0.15 else ""
            self.emit(f"{guard}st{space}.{kind} [{pointer.reg}+{offset}], {rng.choice(self.values)}")
            if rng.random() < 0.15:
                self.access()
            elif rng.random() < 0.1:
                self.emit(rng.choice(["membar.gl", "fence.acq_rel.cta"]))

    def checked(self) -> None:
        """A load with a large offset, after a test that it is in bounds."""
        rng = self.rng
        generic = self.define("rd", f"ld.param.u64 {{}}, [{rng.choice(PARAMS)}]")
        base = self.define("rd", f"cvta.to.global.u64 {{}}, {generic}")
        index = rng.choice(self.values)
        address = self.define("rd", f"mad.wide.u32 {{}}, {index}, 4, {base}")
        inside = self.define("p", f"setp.lt.u32 {{}}, {index}, {OBJECT // 4 - 1}")
        if rng.random() < 0.3:
            self.emit(f"@{inside} ld.global.u32 {self.new('r')}, [{address}]")
            return
        skip = self.label()
        self.emit(f"@!{inside} bra {skip}")
        self.block(2, 1)
        self.emit(f"ld.global.u32 {self.new('r')}, [{address}]")
        if rng.random() < 0.4:
            self.emit(f"st.global.u32 [{address}+4], {index}")
        self.place(skip)

    # --- control ---------------------------------------------------------------------------------------------------

    def label(self) -> str:
        self.count += 1
        return f"L{self.count}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def block(self, budget: int, depth: int = 0) -> None:
        """Statements. Pointers and values from a nested block are not used after it."""
        kept = (len(self.pointers), len(self.values))
        while budget > 0:
            choice = self.rng.random()
            budget -= 1
            if choice < 0.12:
                self.fresh_pointer()
            elif choice < 0.32:
                self.derived_pointer()
            elif choice < 0.66:
                self.access()
            elif choice < 0.7:
                self.neighbours()
                budget -= 2
            elif choice < 0.74:
                self.overwrites()
                budget -= 1
            elif choice < 0.8:
                self.checked()
            elif depth < 2 and choice < 0.85:
                self.walk()
                budget -= 2
            elif depth < 3 and choice < 0.92:
                self.fork(depth)
                budget -= 3
            elif depth < 2:
                self.loop(depth)
                budget -= 4
            if depth == 0 and self.rng.random() < 0.03:
                self.emit("bar.sync 0")
        if depth:
            del self.pointers[kept[0] :], self.values[kept[1] :]

    def fork(self, depth: int) -> None:
        rng = self.rng
        predicate = rng.choice(self.predicates)
        other, join = self.label(), self.label()
        chosen = rng.choice(self.pointers) if rng.random() < 0.5 else None
        joined = self.copied(chosen)
        self.emit(f"@{predicate} bra {other}")
        self.block(2, depth + 1)
        self.emit(f"bra.uni {join}")
        self.place(other)
        if joined is not None:
            fitting = [p for p in self.pointers if p.space == joined.space and p.reg[:3] == joined.reg[:3]]
            fitting = [p for p in fitting if p.reg.startswith("%rd") == joined.reg.startswith("%rd")]
            two = rng.choice([*fitting, joined])
            self.emit(f"mov.u{64 if joined.reg.startswith('%rd') else 32} {joined.reg}, {two.reg}")
            joined.slack = min(joined.slack, two.slack)
            joined.is_read_only |= two.is_read_only
        self.block(2, depth + 1)
        self.place(join)
        if joined is not None:
            self.pointers.append(joined)

    def copied(self, pointer: _Pointer | None) -> _Pointer | None:
        """Another register with the same address."""
        if pointer is None:
            return None
        is_wide = pointer.reg.startswith("%rd")
        reg = self.define("rd" if is_wide else "r", f"mov.u{64 if is_wide else 32} {{}}, {pointer.reg}")
        return _Pointer(reg, pointer.space, pointer.slack, pointer.is_read_only)

    def walk(self) -> None:
        """A loop that reads an object at an index in each iteration, if the index is in bounds."""
        rng = self.rng
        generic = self.define("rd", f"ld.param.u64 {{}}, [{rng.choice(PARAMS)}]")
        base = self.define("rd", f"cvta.to.global.u64 {{}}, {generic}")
        counter = self.define("r", f"mov.u32 {{}}, {rng.choice([0, 2])}")
        head, skip = self.label(), self.label()
        self.place(head)
        index, scale, limit = counter, 64, OBJECT // 64
        if rng.random() < 0.5:
            seen = self.define("rd", f"mad.wide.u32 {{}}, {counter}, 4, {base}")
            loaded = self.define("r", f"ld.global.u32 {{}}, [{seen}]")
            index = self.define("r", f"and.b32 {{}}, {loaded}, 127")
            scale, limit = 4, OBJECT // 4
        address = self.define("rd", f"mad.wide.u32 {{}}, {index}, {scale}, {base}")
        inside = self.define("p", f"setp.lt.u32 {{}}, {index}, {limit}")
        self.emit(f"@!{inside} bra {skip}")
        self.emit(f"ld.global.u32 {self.new('r')}, [{address}]")
        self.place(skip)
        self.emit(f"add.s32 {counter}, {counter}, 1")
        again = self.define("p", f"setp.lt.u32 {{}}, {counter}, {rng.choice([1, 4, 7])}")
        self.emit(f"@{again} bra {head}")

    def loop(self, depth: int) -> None:
        """A loop with a few iterations. A pointer is advanced in each."""
        rng = self.rng
        turns = rng.choice([1, 2, 3])
        able = [pointer for pointer in self.pointers if pointer.slack >= 16 * turns + 16]
        stepping = self.copied(rng.choice(able)) if able and rng.random() < 0.8 else None
        counter = self.define("r", "mov.u32 {}, 0")
        head, end = self.label(), self.label()
        step = rng.choice([4, 8, 16, -4, -16])
        if rng.random() < 0.4:
            self.emit(f"@{rng.choice(self.predicates)} bra {end}")
        self.place(head)
        if stepping is not None:
            stepping.slack -= 16 * turns
            self.pointers.append(stepping)
        known = list(self.predicates)
        if rng.random() < 0.5:
            comparison = rng.choice(["eq", "ne", "lt", "ge"])
            self.predicates.append(self.define("p", f"setp.{comparison}.u32 {{}}, {counter}, {rng.randrange(turns)}"))
        self.block(2, depth + 1)
        if stepping is not None:
            self.access()
            width = 64 if stepping.reg.startswith("%rd") else 32
            self.emit(f"add.s{width} {stepping.reg}, {stepping.reg}, {step}")
            if rng.random() < 0.4:
                self.access()
        self.predicates = known
        self.emit(f"add.s32 {counter}, {counter}, 1")
        again = self.define("p", f"setp.lt.u32 {{}}, {counter}, {turns}")
        self.emit(f"@{again} bra {head}")
        self.place(end)
        if stepping is not None:
            self.pointers.remove(stepping)


def pointer_kernel(seed: int, size: int) -> PointerProgram:
    """The kernel of ``seed``, with about ``size`` statements."""
    soup = _Soup(random.Random(f"pointers:{seed}:{size}"))
    soup.prologue()
    soup.block(size)
    soup.emit("ret")
    head = _HEAD.replace("%p<100>", f"%p<{soup.count + 1}>").replace("<2000>", f"<{soup.count + 1}>")
    return PointerProgram(respelled(head + "\n".join(soup.lines) + "\n}\n", soup.rng))
