"""The writer of a random program: its text, registers, which registers have been written, and arithmetic.

Guarantees: a register that is drawn was written on every path to this point. Registers from a scope are not used
after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from random_instructions import CLASSES, Template, approximate_templates, class_of, literal, templates

if TYPE_CHECKING:
    from ptxmotion.ptx import ScalarType

__all__ = ["GUARDS_LOST", "Writer"]

_PREFIX = {"pred": "%p", "b16": "%rs", "b32": "%r", "b64": "%rd", "f32": "%f", "f64": "%fd"}

#: ptxas 13.0 compiles these to several machine instructions, of which the last ones have no guard, also at -O0. If the
#: guard is false, they change the old value. `set` is only here with a result of type f32.
GUARDS_LOST = ("set.", "testp.")


#: What a video instruction on words may write, and what one on halves or bytes may write.
_PLACES = (".b0", ".b1", ".b2", ".b3", ".h0", ".h1")
_MASKS = {"2": (".h0", ".h1", ".h10"), "4": (".b0", ".b1", ".b10", ".b2", ".b31", ".b210", ".b3210")}


def _register_in(source: str) -> str:
    """The register of a source, without a negation and a selector."""
    return source.lstrip("!").partition(".")[0]


@dataclass
class _Known:
    """Registers that are written on every path to here, by class, and expressions that have been computed."""

    values: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CLASSES})
    assignable: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in CLASSES})
    expressions: list[tuple[Template, tuple[str, ...]]] = field(default_factory=list[tuple[Template, tuple[str, ...]]])

    def copy(self) -> _Known:
        return _Known(
            {name: list(found) for name, found in self.values.items()},
            {name: list(found) for name, found in self.assignable.items()},
            list(self.expressions),
        )


class Writer:
    """Lines, and the registers whose values they may read.

    ``for_gpu``: the result is the same on every machine. No value is computed from an address, which differs between
    machines and runs, instructions in `GUARDS_LOST` have no guard, and there are no video instructions, which ptxas
    compiles to code that does not always compute what the manual says.
    """

    def __init__(self, rng: random.Random, block: int, *, for_gpu: bool = False) -> None:
        self.rng = rng
        self.block = block
        self.for_gpu = for_gpu
        self.is_dynamic = rng.random() < 0.3
        self.lines: list[str] = []
        self.counts: dict[str, int] = dict.fromkeys(CLASSES, 0)
        self.labels = 0
        self.known = _Known()
        exact = templates()
        self.templates = (
            tuple(each for each in exact if not each.is_video) if for_gpu else exact + approximate_templates()
        )
        self.weights = [template.weight for template in self.templates]

    # --- text ----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        size = "" if self.is_dynamic else str(4 * self.block)
        exchange = f".shared .align 16 .b8 exchange[{size}];"
        return "\n".join(
            [
                ".version 8.8\n.target sm_90\n.address_size 64\n",
                f".extern {exchange}" if self.is_dynamic else exchange,
                ".visible .entry fuzz(.param .u64 in, .param .u64 out, .param .u64 other, .param .u32 n,",
                "\t.param .u32 k0, .param .u32 k1, .param .f32 x)",
                f".maxntid {self.block}, 1, 1",
                "{",
                *self.declarations(),
                f"\t.shared .align 16 .b8 own[{16 * self.block}];",
                "\t.local .align 16 .b8 depot[32];",
                *self.lines,
                "}\n",
            ]
        )

    def declarations(self) -> list[str]:
        """The lines that declare the registers."""
        return [f"\t.reg .{name} {_PREFIX[name]}<{count}>;" for name, count in self.counts.items() if count]

    def emit(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def label(self) -> str:
        self.labels += 1
        return f"$L_{self.labels}"

    def place(self, label: str) -> None:
        self.lines.append(f"{label}:")

    # --- registers -----------------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        number = self.counts[name]
        self.counts[name] = number + 1
        return f"{_PREFIX[name]}{number}"

    def define(self, name: str, text: str, *, is_fixed: bool = False) -> str:
        """Emit ``text`` with its result ``{}`` in a new register; ``is_fixed`` if nothing else may assign it."""
        reg = self.fresh(name)
        self.emit(text.format(reg))
        self.known.values[name].append(reg)
        if not is_fixed:
            self.known.assignable[name].append(reg)
        return reg

    def address(self, name: str, text: str) -> str:
        """Emit ``text`` with its result ``{}``, an address, in a new register that nothing else may assign."""
        if not self.for_gpu:
            return self.define(name, text, is_fixed=True)
        reg = self.fresh(name)
        self.emit(text.format(reg))
        return reg

    def value(self, name: str) -> str:
        """A register of class ``name``. Recent registers are drawn more often."""
        found = self.known.values[name]
        if self.rng.random() < 0.5:
            return found[-1 - min(int(self.rng.expovariate(0.3)), len(found) - 1)]
        return self.rng.choice(found)

    def predicate(self) -> str:
        return ("!" if self.rng.random() < 0.3 else "") + self.value("pred")

    @contextmanager
    def scope(self) -> Generator[None]:
        """Registers written in the scope are not used after it, so its expressions may be computed there again."""
        outer = self.known
        inner = self.known = outer.copy()
        yield
        self.known = outer
        visible = {reg for found in outer.values.values() for reg in found}
        for template, sources in inner.expressions[len(outer.expressions) :]:
            if all(source.lstrip("!")[0] != "%" or _register_in(source) in visible for source in sources):
                outer.expressions.append((template, sources))

    # --- control flow --------------------------------------------------------------------------------------------

    def write_branch(self, side: Callable[[], None], leave: Callable[[str], str] = "bra {}".format) -> None:
        """A branch with ``side`` on one side, or on both. ``leave`` gives for a label the last instruction of the first
        side, if there are two."""
        other, join = self.label(), self.label()
        has_else = self.rng.random() < 0.5
        self.emit(f"@{self.predicate()} bra {other if has_else else join}")
        side()
        if has_else:
            self.emit(leave(join))
            self.place(other)
            side()
        self.place(join)

    def write_loop(self, body: Callable[[], None], *, may_skip: bool) -> None:
        """A loop with 1 to 3 iterations, or with ``may_skip`` sometimes none."""
        bound = self.define("b32", f"and.b32 {{}}, {self.value('b32')}, 3", is_fixed=True)
        counter, again = self.fresh("b32"), self.fresh("pred")
        head, end = self.label(), self.label()
        self.emit(f"mov.b32 {counter}, 0")
        if may_skip and self.rng.random() < 0.5:
            self.emit(f"setp.eq.u32 {again}, {bound}, 0")
            self.emit(f"@{again} bra {end}")
        self.place(head)
        body()
        self.emit(f"add.u32 {counter}, {counter}, 1")
        self.emit(f"setp.lt.u32 {again}, {counter}, {bound}")
        self.emit(f"@{again} bra {head}")
        if may_skip:
            self.place(end)

    # --- arithmetic ----------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """A new expression, one that was computed before, or a chain of carries."""
        rng = self.rng
        known = self.known.expressions
        if rng.random() < 0.04:
            rng.choice([self.carry_chain, self.carry_chain, self.logic_of_words])()
            return
        if known and rng.random() < 0.35:
            template, sources = known[-1 - min(int(rng.expovariate(0.08)), len(known) - 1)]
        else:
            template = rng.choices(self.templates, self.weights)[0]
            sources = self.sources(template)
            known.append((template, sources))
        guard = ""
        assignable = self.known.assignable[template.result]
        if assignable and rng.random() < 0.35:
            result = rng.choice(assignable)
            if rng.random() < 0.5 and not (self.for_gpu and template.mnemonic.startswith(GUARDS_LOST)):
                guard = f"@{self.predicate()} "
            self.emit(f"{guard}{template.mnemonic} {', '.join([result + self.place_in(template), *sources])}")
            return
        if template.mnemonic.startswith("setp") and rng.random() < 0.15:
            second = self.fresh("pred")
            self.define("pred", f"{template.mnemonic} {{}}|{second}, {', '.join(sources)}")
            self.known.values["pred"].append(second)
            return
        self.define(template.result, f"{template.mnemonic} {{}}{self.place_in(template)}, {', '.join(sources)}")

    def place_in(self, template: Template) -> str:
        """The byte or half of the result that the instruction writes, or the empty string for all of it."""
        if template.merges and self.rng.random() < 0.5:
            return self.rng.choice(_PLACES)
        if template.form.op.semantics == "video_parts" and self.rng.random() < 0.5:
            return self.rng.choice(_MASKS[template.form.op.base[-1]])
        return ""

    def selected(self, template: Template, source: str) -> str:
        """A source of a video instruction, perhaps a byte or half of it, or a choice of those of two sources."""
        if source[0] != "%" or self.rng.random() < 0.5:
            return source
        if template.form.op.semantics != "video_parts":
            return source + self.rng.choice(_PLACES)
        count = int(template.form.op.base[-1])
        digits = "".join(str(self.rng.randrange(2 * count)) for _ in range(count))
        # ptxas reads `.b1024` as a modifier of `tensormap`.
        return source if digits == "1024" else f"{source}.{'h' if count == 2 else 'b'}{digits}"

    def sources(self, template: Template) -> tuple[str, ...]:
        base = template.mnemonic.partition(".")[0]
        count = len(template.sources)
        found = [
            self.source(scalar, is_last=number == count - 1, is_count=base in ("shl", "shr", "shf") and number > 0)
            for number, scalar in enumerate(template.sources)
        ]
        if count > 1 and template.sources[0] is template.sources[1] and self.rng.random() < 0.05:
            found[1] = found[0]
        if base in ("div", "rem") and template.sources[0].is_integer:
            found[1] = self.divisor(template.sources[1])
        elif base == "lop3":
            found[-1] = str(self.rng.randrange(256))
        elif base in ("bfe", "bfi"):
            # If 32 bits are inserted above bit 0, ptxas 13.0 -O3 does not change the word, which is a fault of ptxas.
            found[-2:] = [str(self.rng.randrange(32)), str(self.rng.randrange(32 if self.for_gpu else 33))]
        elif base == "testp" or (base == "mov" and template.result == "pred"):
            found = [self.value(class_of(scalar)) for scalar in template.sources]
        elif template.is_video:
            if template.form.op.semantics == "video_parts":  # it takes no literals
                found = [self.value(class_of(scalar)) for scalar in template.sources]
            found[:2] = [self.selected(template, source) for source in found[:2]]
        return tuple(found)

    def source(self, scalar: ScalarType, *, is_last: bool, is_count: bool) -> str:
        if is_last and self.rng.random() < (0.6 if is_count else 0.35):
            text = literal(scalar, self.rng, is_count=is_count)
            if text:
                return text
        if scalar.kind == "p" and self.rng.random() < 0.2:
            return "!" + self.value("pred")
        return self.value(class_of(scalar))

    def divisor(self, scalar: ScalarType) -> str:
        """A divisor other than 0 and -1, for which PTX does not define the quotient."""
        if self.rng.random() < 0.6:
            return str(self.rng.choice([1, 2, 3, 7, 10, 16, 100]))
        name = class_of(scalar)
        masked = self.define(name, f"and.{name} {{}}, {self.value(name)}, 255", is_fixed=True)
        return self.define(name, f"or.{name} {{}}, {masked}, 1", is_fixed=True)

    def logic_of_words(self) -> None:
        """A logical operation with a second result, which is combined with a predicate."""
        words = ", ".join(self.value("b32") for _ in range(3))
        operation, second = self.rng.choice(["and", "or"]), self.fresh("pred")
        sources = f"{words}, {self.rng.randrange(256)}, {self.predicate()}"
        self.define("b32", f"lop3.{operation}.b32 {{}}|{second}, {sources}")
        self.known.values["pred"].append(second)

    def carry_chain(self) -> None:
        """The words of a long sum, difference or product."""
        if self.rng.random() < 0.3:
            kind = self.rng.choice(["u32", "s32", "u64"])
            name = f"b{kind[1:]}"
            factors = f"{self.value(name)}, {self.value(name)}"
            self.define(name, f"mad.lo.cc.{kind} {{}}, {factors}, {self.value(name)}")
            if self.rng.random() < 0.4:
                self.define(name, f"madc.hi.cc.{kind} {{}}, {factors}, {self.value(name)}")
                factors = f"{self.value(name)}, {self.value(name)}"
            self.define(name, f"madc.{self.rng.choice(['lo', 'hi'])}.{kind} {{}}, {factors}, {self.value(name)}")
            return
        kind = self.rng.choice(["u32", "s32", "u64"])
        name = kind.replace("u", "b").replace("s", "b")
        operation = self.rng.choice(["add", "sub"])
        self.define(name, f"{operation}.cc.{kind} {{}}, {self.value(name)}, {self.value(name)}")
        if self.rng.random() < 0.5:
            self.define(name, f"{operation}c.cc.{kind} {{}}, {self.value(name)}, {self.value(name)}")
        self.define(name, f"{operation}c.{kind} {{}}, {self.value(name)}, {self.value(name)}")
