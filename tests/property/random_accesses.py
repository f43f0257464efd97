"""Memory accesses of a random program: never out of bounds, and without races.

A thread writes only its own slots of the two outputs, of ``own`` in shared memory and of the local array, and its slot
of ``exchange`` between barriers. In addition there are integer ``red`` operations on words that nobody reads.
"""

from __future__ import annotations

import random

from random_writer import Writer

__all__ = ["INPUT_WORDS", "SLOT_WORDS", "SUM_WORDS", "Accesses"]

#: Numbers of 32-bit words: of the input, of each thread's slots in the two outputs, and of the common sums after these.
INPUT_WORDS = 256
SLOT_WORDS = 16
SUM_WORDS = 8


class Accesses(Writer):
    """Loads, stores and atomics. The prologue sets the registers that hold pointers and indices."""

    def __init__(self, rng: random.Random, block: int, *, for_gpu: bool = False) -> None:
        super().__init__(rng, block, for_gpu=for_gpu)
        self.bases: dict[str, str] = {}
        self.n = self.k0 = self.tid = self.thread = ""
        self.exchanged = False  #: whether all threads may read the shared slots
        self.is_mostly_sliding = rng.random() < 0.2  #: whether most accesses are in loops of `sliding`

    # --- memory --------------------------------------------------------------------------------------------------

    def access(self) -> None:
        actions = [
            (6, self.load_input),
            (3, self.load_checked),
            (2, self.load_guarded),
            (2, self.load_vector),
            (6, self.load_own),
            (6, self.store_own),
            (2, self.shared_own),
            (2, self.local_own),
            (2, self.shared_of_others),
            (2, self.atomic),
            (1, self.copied_to_shared),
            (0.5, self.prefetched),
            (24 if self.is_mostly_sliding else 2, self.sliding),
            (8 if self.is_mostly_sliding else 1, self.tested_turns),
            (1, self.partly_read),
        ]
        self.rng.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def base(self, name: str) -> str:
        found = self.bases[name]
        if self.rng.random() < 0.2:
            pointer = self.address("b64", f"ld.param.u64 {{}}, [{name}]")
            return self.address("b64", f"cvta.to.global.u64 {{}}, {pointer}")
        return found

    def element(self, base: str, index: str, scale: int = 4) -> str:
        """The address of element ``index`` (``u32``), in one of the ways in which compilers write it."""
        way = self.rng.randrange(4)
        if way == 0:
            return self.address("b64", f"mad.wide.u32 {{}}, {index}, {scale}, {base}")
        if way == 1:
            wide = self.define("b64", f"cvt.u64.u32 {{}}, {index}", is_fixed=True)
            offset = self.define("b64", f"shl.b64 {{}}, {wide}, {scale.bit_length() - 1}", is_fixed=True)
        else:
            offset = self.define("b64", f"mul.wide.u32 {{}}, {index}, {scale}", is_fixed=True)
        if way == 2:
            return self.address("b64", f"add.s64 {{}}, {offset}, {base}")
        return self.address("b64", f"add.s64 {{}}, {base}, {offset}")

    def input_index(self, mask: int) -> str:
        index = self.rng.choice([self.tid, self.thread, self.value("b32"), self.value("b32")])
        return self.define("b32", f"and.b32 {{}}, {index}, {mask}", is_fixed=True)

    def load_input(self) -> None:
        offset = self.rng.choice([0, 0, 4, 12])
        address = self.element(self.base("in"), self.input_index(INPUT_WORDS - 4))
        how = self.rng.choice(["ld.global.nc", "ld.global", "ld.global", "ld.global.ca"])
        if self.rng.random() < 0.2:
            kind = self.rng.choice(["u8", "s8", "u16", "s16"])
            self.define("b32", f"{how}.{kind} {{}}, [{address}+{offset}]")
        else:
            self.define("b32", f"{how}.u32 {{}}, [{address}+{offset}]")

    def unchecked(self) -> tuple[str, str]:
        """An index that may be out of bounds, and a predicate that is true if it is in bounds."""
        index = self.rng.choice([self.thread, self.value("b32")])
        inside = self.define("pred", f"setp.lt.u32 {{}}, {index}, {self.n}", is_fixed=True)
        return index, inside

    def load_checked(self) -> None:
        """``if (i < n) v = in[i]``: without the branch the load could fault."""
        variable = self.rng.choice(self.known.assignable["b32"])
        index, inside = self.unchecked()
        join = self.label()
        self.emit(f"@!{inside} bra {join}")
        with self.scope():
            address = self.element(self.base("in"), index)
            self.emit(f"ld.global.{self.rng.choice(['u32', 'nc.u32', 'b32'])} {variable}, [{address}]")
            if variable != index and self.rng.random() < 0.5:  # otherwise the index is no longer the compared value
                again = self.element(self.base("in"), index)
                more = self.define("b32", f"ld.global.u32 {{}}, [{again}]")
                self.emit(f"add.s32 {variable}, {variable}, {more}")
        self.place(join)

    def load_guarded(self) -> None:
        variable = self.rng.choice(self.known.assignable["b32"])
        index, inside = self.unchecked()
        address = self.element(self.base("in"), index)
        self.emit(f"@{inside} ld.global.u32 {variable}, [{address}]")

    def load_vector(self) -> None:
        lanes = self.rng.choice([2, 4])
        mask = INPUT_WORDS - lanes
        address = self.element(self.base("in"), self.input_index(mask & ~3))
        results = [self.fresh("b32") for _ in range(lanes)]
        self.emit(f"ld.global.v{lanes}.u32 {{{', '.join(results)}}}, [{address}]")
        self.known.values["b32"] += results
        self.known.assignable["b32"] += results

    def own_address(self, name: str) -> str:
        """The address of this thread's first slot in ``out`` or ``other``, which may be the same buffer."""
        return self.element(self.base(name), self.thread, 4 * SLOT_WORDS)

    def own_place(self) -> tuple[str, int, int]:
        """Address and offset of a slot, and the number of words from it to the last one."""
        name = self.rng.choice(["out", "out", "other"])
        if self.rng.random() < 0.3:
            slot = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, {SLOT_WORDS - 4}", is_fixed=True)
            index = self.define("b32", f"mad.lo.s32 {{}}, {self.thread}, {SLOT_WORDS}, {slot}", is_fixed=True)
            return self.element(self.base(name), index), 0, 4
        word = self.rng.randrange(SLOT_WORDS)
        return self.own_address(name), 4 * word, SLOT_WORDS - word

    def load_own(self) -> None:
        address, offset, _ = self.own_place()
        if self.rng.random() < 0.2:
            self.define("f32", f"ld.global.f32 {{}}, [{address}+{offset}]")
        else:
            how = self.rng.choices(["ld.global.u32", "ld.volatile.global.u32"], [9, 1])[0]
            self.define("b32", f"{how} {{}}, [{address}+{offset}]")

    def store_own(self) -> None:
        address, offset, left = self.own_place()
        guard = f"@{self.predicate()} " if self.rng.random() < 0.2 else ""
        choice = self.rng.random()
        if choice < 0.2 and offset % 8 == 0 and left > 1:
            kind, value = self.rng.choice([("b64", self.value("b64")), ("f64", self.value("f64"))])
            self.emit(f"{guard}st.global.{kind} [{address}+{offset}], {value}")
        elif choice < 0.3 and offset % 16 == 0 and left > 3:
            values = ", ".join(self.value("b32") for _ in range(4))
            self.emit(f"{guard}st.global.v4.b32 [{address}+{offset}], {{{values}}}")
        elif choice < 0.4:
            self.emit(f"{guard}st.global.u8 [{address}+{offset + self.rng.randrange(4)}], {self.value('b32')}")
        elif choice < 0.55:
            self.emit(f"{guard}st.global.f32 [{address}+{offset}], {self.value('f32')}")
        else:
            self.emit(f"{guard}st.global.u32 [{address}+{offset}], {self.value('b32')}")

    def atomic(self) -> None:
        if self.rng.random() < 0.5:
            address, offset, _ = self.own_place()
            operation = self.rng.choice(["add", "max", "exch", "xor", "inc", "cas"])
            kind = {"max": "s32", "add": "u32", "inc": "u32"}.get(operation, "b32")
            values = self.value("b32") + (f", {self.value('b32')}" if operation == "cas" else "")
            self.define("b32", f"atom.global.{operation}.{kind} {{}}, [{address}+{offset}], {values}")
            return
        nctaid = self.define("b32", "mov.u32 {}, %nctaid.x", is_fixed=True)
        threads = self.define("b32", f"mul.lo.s32 {{}}, {nctaid}, {self.block}", is_fixed=True)
        address = self.element(self.base("out"), threads, 4 * SLOT_WORDS)
        word = self.rng.randrange(SUM_WORDS // 2)
        # Each word has one operation: with different operations the result would depend on the order.
        operation = ["add.u32", "max.s32", "min.u32", "xor.b32"][word]
        self.emit(f"red.global.{operation} [{address}+{4 * word}], {self.value('b32')}")

    # --- accesses for scalar replacement ---------------------------------------------------------------------------

    def sliding(self) -> None:
        """A loop that reads neighbours of a moving element, ``A[i]``, ``A[i + 1]``, …, with writes in between, perhaps
        to the same buffer. It runs zero, one, two or more times."""
        rng = self.rng
        most = rng.randint(0, 4)
        reach = rng.randint(1, 3)
        stride = rng.choice([1, 1, 1, 2])
        bound = str(most)
        if rng.random() < 0.5:
            bound = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, {[0, 1, 3, 3, 3][most]}", is_fixed=True)
        first = rng.randrange(SLOT_WORDS - 4 * stride - reach - 1)
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        names = [rng.choice(["out", "other", "other"]) for _ in range(2)]
        starts = [self.own_address(name) for name in names]
        if rng.random() < 0.3:
            starts[1] = starts[0]
        by_index = rng.random() < 0.4
        moving = [self.address("b64", f"add.s64 {{}}, {start}, {4 * first}") for start in starts]
        total = rng.choice(self.known.assignable["b32"])
        predicate = self.predicate()
        head, end = self.label(), self.label()
        if rng.random() < 0.4:  # some threads read before the loop what the loop may read
            self.read_if(predicate, f"[{rng.choice(moving)}+{4 * rng.randrange(reach + 1)}]", total)
        shape = rng.choice(["above", "below", "guarded"])
        if shape == "guarded":
            none = self.define("pred", f"setp.eq.u32 {{}}, {counter}, {bound}", is_fixed=True)
            self.emit(f"@{none} bra {end}")
        with self.scope():
            self.place(head)
            if shape == "above":
                stop = self.define("pred", f"setp.ge.u32 {{}}, {counter}, {bound}", is_fixed=True)
                self.emit(f"@{stop} bra {end}")
            current = moving
            if by_index:
                scaled = self.define("b32", f"mul.lo.s32 {{}}, {counter}, {stride}", is_fixed=True)
                current = [self.element(base, scaled) for base in moving]
            if rng.random() < 0.5:
                comparison = rng.choice(["eq", "ne", "lt", "ge"])
                text = f"setp.{comparison}.u32 {{}}, {counter}, {rng.randrange(3)}"
                predicate = self.define("pred", text, is_fixed=True)
            for _ in range(rng.randint(1, 5)):
                self.slide(rng.choice(current), rng.randrange(reach + 1), total, predicate)
            if not by_index:
                for pointer in moving:
                    self.emit(f"add.s64 {pointer}, {pointer}, {4 * stride}")
            self.emit(f"add.s32 {counter}, {counter}, 1")
            if shape == "above":
                self.emit(f"bra {head}")
            else:
                again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {bound}", is_fixed=True)
                self.emit(f"@{again} bra {head}")
        self.place(end)

    def slide(self, address: str, word: int, total: str, predicate: str) -> None:
        """One access of a sliding loop; loads are added to ``total``. It has type ``b32``, because `random_rewrites`
        relies on offsets of ``u32`` accesses, which these do not follow."""
        rng = self.rng
        place = f"[{address}+{4 * word}]"
        choice = rng.random()
        if choice < 0.55:
            value = self.define("b32", f"ld.global.b32 {{}}, {place}", is_fixed=True)
            self.emit(f"mad.lo.s32 {total}, {total}, 3, {value}")
        elif choice < 0.7:
            self.read_if(predicate, place, total)
        elif choice < 0.85:
            self.emit(f"st.global.b32 {place}, {total}")
        elif choice < 0.92:
            self.emit(f"@{predicate} st.global.b32 {place}, {total}")
        else:
            kind = rng.choice(["u8", "s8", "u16"])
            self.emit(f"st.global.{kind} {place}, {total}")
            value = self.define("b32", f"ld.global.{kind} {{}}, {place}", is_fixed=True)
            self.emit(f"add.s32 {total}, {total}, {value}")

    def tested_turns(self) -> None:
        """A load behind a test of the number of the iteration. Some threads read the same address before the loop."""
        rng = self.rng
        address, offset, _ = self.own_place()
        place, total = f"[{address}+{offset}]", rng.choice(self.known.assignable["b32"])
        if rng.random() < 0.8:
            self.read_if(self.predicate(), place, total)
        turns = str(rng.randint(0, 3))
        if rng.random() < 0.3:
            turns = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, {rng.choice([1, 3])}", is_fixed=True)
        counter = self.define("b32", "mov.u32 {}, 0", is_fixed=True)
        head = self.label()
        with self.scope():
            self.place(head)
            test = f"setp.{rng.choice(['eq', 'ne', 'lt', 'ge'])}.u32 {{}}, {counter}, {rng.randrange(2)}"
            skips = self.define("pred", test, is_fixed=True)
            self.read_if(rng.choice(["", "!"]) + skips, place, total)
            if rng.random() < 0.2:
                self.emit(f"st.global.b32 {place}, {total}")
            self.emit(f"add.s32 {counter}, {counter}, 1")
            again = self.define("pred", f"setp.lt.u32 {{}}, {counter}, {turns}", is_fixed=True)
            self.emit(f"@{again} bra {head}")

    def read_if(self, predicate: str, place: str, total: str) -> None:
        """A load behind a branch. The value is added to ``total``."""
        join = self.label()
        self.emit(f"@{predicate} bra {join}")
        with self.scope():
            value = self.define("b32", f"ld.global.b32 {{}}, {place}", is_fixed=True)
            self.emit(f"xor.b32 {total}, {total}, {value}")
        self.place(join)

    def partly_read(self) -> None:
        """A load after two arms, of which one or both have read or written the same address, or one near it."""
        rng = self.rng
        address, offset, left = self.own_place()
        variable = rng.choice(self.known.assignable["b32"])
        other, join = self.label(), self.label()
        self.emit(f"@{self.predicate()} bra {other}")
        for arm in range(2):
            with self.scope():
                for _ in range(rng.randint(0, 2)):
                    near = offset + 4 * rng.choice([0, 0, 0, min(1, left - 1)])
                    if rng.random() < 0.5:
                        self.emit(f"ld.global.u32 {variable}, [{address}+{near}]")
                    else:
                        self.emit(f"st.global.{rng.choice(['u32', 'b32', 'u16'])} [{address}+{near}], {variable}")
            if not arm:
                self.emit(f"bra {join}")
                self.place(other)
        self.place(join)
        self.define("b32", f"ld.global.{rng.choice(['u32', 'u32', 's32', 'u16'])} {{}}, [{address}+{offset}]")

    # --- shared and local memory -----------------------------------------------------------------------------------

    def slot_in(self, array: str, scale: int, index: str = "") -> str:
        base = self.address("b32", f"mov.u32 {{}}, {array}")
        index = index or self.tid
        if self.rng.random() < 0.5:
            return self.address("b32", f"mad.lo.s32 {{}}, {index}, {scale}, {base}")
        offset = self.define("b32", f"shl.b32 {{}}, {index}, {scale.bit_length() - 1}", is_fixed=True)
        return self.address("b32", f"add.s32 {{}}, {base}, {offset}")

    def shared_own(self) -> None:
        address = self.slot_in("own", 16)
        offset = self.rng.choice([0, 4, 8, 12])
        if self.rng.random() < 0.5:
            self.emit(f"st.shared.u32 [{address}+{offset}], {self.value('b32')}")
        else:
            self.define("b32", f"ld.shared.u32 {{}}, [{address}+{offset}]")

    def copied_to_shared(self) -> None:
        """An asynchronous copy of words of the input into this thread's shared slots. It is complete after the wait."""
        index = self.input_index(INPUT_WORDS - 4)
        address = self.element(self.base("in"), index)
        into = self.slot_in("own", 16)
        size = self.rng.choice([4, 8, 16])
        kind = "cg" if size == 16 and self.rng.random() < 0.5 else "ca"
        self.emit(f"cp.async.{kind}.shared.global [{into}], [{address}], {size}")
        if self.rng.random() < 0.5:
            self.compute()
        self.emit("cp.async.commit_group")
        self.emit(self.rng.choice(["cp.async.wait_group 0", "cp.async.wait_all"]))
        self.define("b32", f"ld.shared.u32 {{}}, [{into}+{self.rng.choice([0, 4, 12])}]")

    def prefetched(self) -> None:
        """An instruction without a result: a prefetch or a pause."""
        if self.rng.random() < 0.3:
            self.emit("nanosleep.u32 20")
            return
        address = self.element(self.base("in"), self.input_index(INPUT_WORDS - 4))
        self.emit(f"prefetch.global.{self.rng.choice(['L1', 'L2'])} [{address}]")

    def local_own(self) -> None:
        index = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, 7", is_fixed=True)
        base = self.address("b64", "mov.u64 {}, depot")
        address = self.element(base, index) if self.rng.random() < 0.6 else base
        if self.rng.random() < 0.5:
            self.emit(f"st.local.u32 [{address}], {self.value('b32')}")
        else:
            self.define("b32", f"ld.local.u32 {{}}, [{address}]")

    def shared_of_others(self) -> None:
        """A value that another thread stored. It is read only after all threads have stored, and before any may store
        again."""
        if not self.exchanged:
            self.compute()
            return
        if self.rng.random() < 0.5:
            other = self.define("b32", f"xor.b32 {{}}, {self.tid}, {self.rng.randrange(self.block)}", is_fixed=True)
        else:
            moved = self.define("b32", f"add.s32 {{}}, {self.tid}, {self.value('b32')}", is_fixed=True)
            other = self.define("b32", f"and.b32 {{}}, {moved}, {self.block - 1}", is_fixed=True)
        address = self.slot_in("exchange", 4, other)
        self.define("b32", f"ld.shared.u32 {{}}, [{address}]")

    def fill_own(self) -> None:
        """Write all of the thread's local array and of its shared slots, so that nothing is read before it is
        written."""
        for offset in range(0, 32, 16):
            self.emit(f"st.local.v4.u32 [depot+{offset}], {{{self.tid}, {self.n}, {offset}, {self.thread}}}")
        address = self.slot_in("own", 16)
        self.emit(f"st.shared.v4.b32 [{address}], {{{self.tid}, {self.n}, 0, {self.k0}}}")
