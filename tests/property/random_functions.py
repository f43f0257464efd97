"""Random device functions with register parameters and register results, and a kernel that calls them.

Each function has one to four results, including predicates and vector registers. It assigns them on some paths only,
before, in and after loops, under guards, and reads them as operands. It returns at several places, under guards, or at
the end of its text. Functions call functions that precede them. There are no memory accesses as in `random_programs`.

Guarantees, for every seed: the kernel ends; every register is written before it is read, on every path; a thread stores
only to its own words.

>>> random_functions(1, 30) == random_functions(1, 30)
True
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from random_comparisons import respelled
from random_writer import Writer

if TYPE_CHECKING:
    import numpy as np

__all__ = ["RandomFunctions", "random_functions"]

_CLASSES = ("b32", "b32", "b32", "b64", "f32", "pred")
_THREADS = 32
_WORDS = 32  #: The largest number of words that a thread stores.
_DEEPEST = 3


@dataclass(frozen=True)
class RandomFunctions:
    """A module and how to launch its kernel ``fuzz``, whose parameters are the pointers ``in`` and ``out``."""

    ptx: str

    def make_inputs(self, seed: int) -> list[np.ndarray]:
        """The arguments: words to read, and words to write."""
        import numpy as np

        rng = np.random.default_rng(seed)
        words = rng.integers(0, 1 << 32, 4 * _THREADS, dtype=np.uint32)
        words[rng.random(words.size) < 0.5] &= 0xFF
        return [words, np.zeros(_WORDS * _THREADS, np.uint32)]


@dataclass(frozen=True)
class _Signature:
    name: str
    results: tuple[str, ...]  #: the class of each result, with the prefix ``.v2`` for a vector
    params: tuple[str, ...]


def random_functions(seed: int, size: int, *, has_vectors: bool = True) -> RandomFunctions:
    """The module of ``seed``, with about ``size`` statements in each function; ``has_vectors``: vector registers."""
    rng = random.Random(f"functions:{seed}:{size}")
    known: list[_Signature] = []
    texts: list[str] = []
    for number in range(rng.randint(1, 3)):
        # If a function has several results, ptxas does not use its ABI, which does not allow predicates.
        results = tuple(_drawn_class(rng, has_vectors) for _ in range(rng.randint(1 if number else 2, 4)))
        params = tuple(_drawn_class(rng, has_vectors) for _ in range(rng.randint(1, 3)))
        signature = _Signature(f"f{number}", results, params)
        body = _Body(rng, tuple(known), has_vectors=has_vectors)
        texts.append(body.function(signature, size))
        known.append(signature)
    texts.append(_Body(rng, tuple(known), has_vectors=has_vectors).kernel())
    text = "\n".join([".version 8.8\n.target sm_90\n.address_size 64\n", *texts])
    return RandomFunctions(respelled(text, rng))


def _drawn_class(rng: random.Random, has_vectors: bool) -> str:
    return "v2.b32" if has_vectors and rng.random() < 0.2 else rng.choice(_CLASSES)


def _declared(kind: str, name: str) -> str:
    return f".reg .{kind.replace('.', ' .')} {name}"


class _Body(Writer):
    """The code of one function."""

    def __init__(self, rng: random.Random, callees: tuple[_Signature, ...], *, has_vectors: bool) -> None:
        super().__init__(rng, _THREADS)
        self.callees = callees
        self.has_vectors = has_vectors
        #: Vector registers whose two elements are written on every path to here.
        self.vectors: list[str] = []
        self.vector_count = 0
        self.is_function = True

    def function(self, signature: _Signature, size: int) -> str:
        rng = self.rng
        results = [f"o{number}" for number in range(len(signature.results))]
        params = [f"x{number}" for number in range(len(signature.params))]
        for kind, name in zip(signature.params, params, strict=True):
            self.know(kind, name, is_assignable=rng.random() < 0.5)
        self.seeds("7")
        for kind, name in zip(signature.results, results, strict=True):
            self.assign(kind, name)
            self.know(kind, name, is_assignable=True)
        self.statements(size, 0)
        # A result may also be the last computed value.
        for kind, name in zip(signature.results, results, strict=True):
            if rng.random() < 0.4:
                self.assign(kind, name)
        if rng.random() < 0.7:
            self.emit(rng.choice(["ret", "ret", "ret.uni"]))
        returned = ", ".join(map(_declared, signature.results, results))
        taken = ", ".join(map(_declared, signature.params, params))
        return f".func ({returned}) {signature.name}({taken})\n{self.braced()}"

    def kernel(self) -> str:
        self.is_function = False
        pointers = [self.address("b64", f"ld.param.u64 {{}}, [{name}]") for name in ("in", "out")]
        source, target = [self.address("b64", f"cvta.to.global.u64 {{}}, {each}") for each in pointers]
        tid = self.define("b32", "mov.u32 {}, %tid.x", is_fixed=True)
        address = self.address("b64", f"mad.wide.u32 {{}}, {tid}, 16, {source}")
        into = self.address("b64", f"mad.wide.u32 {{}}, {tid}, {4 * _WORDS}, {target}")
        for offset in range(0, 16, 4):
            self.define("b32", f"ld.global.b32 {{}}, [{address}+{offset}]")
        self.seeds(tid)
        # Only these, since addresses differ between runs.
        self.known.values["b64"] = [each for each in self.known.values["b64"] if each not in (address, into)]
        offset = 0
        for callee in self.callees:
            for _ in range(2):
                for kind, value in self.call(callee):
                    offset = self.store(into, offset, kind, value)
        self.emit("ret")
        return f".visible .entry fuzz(.param .u64 in, .param .u64 out)\n{self.braced()}"

    def braced(self) -> str:
        declared = self.declarations()
        if self.vector_count:
            declared.append(f"\t.reg .v2 .b32 %v<{self.vector_count}>;")
        return "\n".join(["{", *declared, *self.lines, "}\n"])

    # --- values --------------------------------------------------------------------------------------------------

    def seeds(self, word: str) -> None:
        """Write at least one register of each class."""
        self.define("b16", f"cvt.u16.u32 {{}}, {word}")
        self.define("b32", f"mov.b32 {{}}, {word}")
        self.define("b64", f"cvt.u64.u32 {{}}, {self.value('b32')}")
        self.define("f32", f"cvt.rn.f32.u32 {{}}, {self.value('b32')}")
        self.define("f64", f"cvt.rn.f64.u32 {{}}, {self.value('b32')}")
        self.define("pred", f"setp.lt.u32 {{}}, {self.value('b32')}, 100")
        if self.has_vectors:
            self.vectors.append(self.new_vector())

    def know(self, kind: str, name: str, *, is_assignable: bool) -> None:
        if kind == "v2.b32":
            self.vectors.append(name)
            return
        self.known.values[kind].append(name)
        if is_assignable:
            self.known.assignable[kind].append(name)

    def new_vector(self) -> str:
        name = f"%v{self.vector_count}"
        self.vector_count += 1
        self.assign("v2.b32", name)
        return name

    def assign(self, kind: str, name: str) -> None:
        """Write all of a register."""
        if kind != "v2.b32":
            self.emit(f"mov.{kind} {name}, {self.value(kind)}")
        elif self.vectors and self.rng.random() < 0.4:
            self.emit(f"mov.v2.b32 {name}, {self.rng.choice(self.vectors)}")
        elif self.rng.random() < 0.4:
            self.emit(f"mov.v2.b32 {name}, {{{self.value('b32')}, {self.value('b32')}}}")
        else:
            for element in self.rng.sample("xy", 2):
                self.emit(f"mov.b32 {name}.{element}, {self.value('b32')}")

    # --- statements ----------------------------------------------------------------------------------------------

    def statements(self, budget: int, depth: int) -> None:
        rng = self.rng
        while budget > 0:
            choice = rng.random()
            part = rng.randrange(1, max(2, budget // 2 + 1))
            if choice < 0.12 and budget > 3 and depth < _DEEPEST:
                self.write_branch(partial(self.inside, part, depth + 1), self.leave)
                budget -= part
            elif choice < 0.2 and budget > 3 and depth < _DEEPEST:
                self.write_loop(partial(self.inside, part, depth + 1), may_skip=True)
                budget -= part
            elif choice < 0.26:
                self.emit(f"@{self.predicate()} ret")
            elif choice < 0.36 and self.has_vectors:
                self.vector()
            elif choice < 0.42 and self.callees:
                self.call(rng.choice(self.callees))
            else:
                self.compute()
            budget -= 1

    def leave(self, join: str) -> str:
        return self.rng.choice([f"bra {join}", f"bra.uni {join}", "ret"])

    def inside(self, budget: int, depth: int) -> None:
        vectors = list(self.vectors)
        with self.scope():
            self.statements(budget, depth)
        self.vectors = vectors

    def vector(self) -> None:
        """Write a vector register or one of its elements, or read an element."""
        rng = self.rng
        known = rng.choice(self.vectors)
        element = f"{known}.{rng.choice('xy')}"
        choice = rng.random()
        if choice < 0.15:
            self.vectors.append(self.new_vector())
        elif choice < 0.3:
            self.assign("v2.b32", known)
        elif choice < 0.55:
            guard = f"@{self.predicate()} " if rng.random() < 0.3 else ""
            self.emit(f"{guard}add.u32 {element}, {rng.choice([element, self.value('b32')])}, {self.value('b32')}")
        elif choice < 0.65:
            # One element is written by a list in braces, or both by one value of twice the width.
            into = rng.choice([f"{{{element}, _}}", f"{{_, {element}}}", known])
            self.emit(f"mov.b64 {into}, {self.value('b64')}")
        elif choice < 0.75:
            self.define("b64", f"mov.b64 {{}}, {rng.choice([known, f'{{{{{element}, {known}.y}}}}'])}")
        else:
            # Twice, so that there are equal expressions.
            for _ in range(rng.randint(1, 2)):
                self.define("b32", f"{rng.choice(['mul.lo.u32', 'add.u32'])} {{}}, {element}, {known}.x")

    def call(self, callee: _Signature) -> list[tuple[str, str]]:
        """Call a function. The result is class and name of each of its results."""
        rng = self.rng
        arguments = [rng.choice(self.vectors) if kind == "v2.b32" else self.value(kind) for kind in callee.params]
        results: list[tuple[str, str]] = []
        for kind in callee.results:
            if kind == "v2.b32":
                name = f"%v{self.vector_count}"
                self.vector_count += 1
            else:
                # Sometimes a register that has a value; each register once.
                found = [each for each in self.known.assignable[kind] if (kind, each) not in results]
                name = rng.choice(found) if found and rng.random() < 0.4 else self.fresh(kind)
            results.append((kind, name))
        listed = ", ".join(name for _, name in results)
        self.emit(f"call ({listed}), {callee.name}, ({', '.join(arguments)})")
        for kind, name in results:
            if kind == "v2.b32" or name not in self.known.values[kind]:
                self.know(kind, name, is_assignable=True)
        return results

    def store(self, address: str, offset: int, kind: str, value: str) -> int:
        """Store a value after the stored ones, if there is space. The result is the next offset."""
        width = 4 if kind in ("b32", "f32", "pred") else 8
        offset += -offset % width
        if offset + width > 4 * _WORDS:
            return offset
        if kind == "pred":
            value, kind = self.define("b32", f"selp.b32 {{}}, 1, 0, {value}"), "b32"
        self.emit(f"st.global.{kind} [{address}+{offset}], {value}")
        return offset + width
