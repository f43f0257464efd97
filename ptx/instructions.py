"""Instructions: `Instr`, its guard and its place in a source file; and the directives that stand among them.

Instructions are compared by identity. `Kernel` has the methods that change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .decoding import decode
from .notation import Form
from .operands import Args, Element, Imm, Label, Mem, Operand, Reg, Sym, registers, walk

if TYPE_CHECKING:
    from .ir import RegisterDeclaration, Variable

__all__ = ["Directive", "Guard", "Instr", "Loc", "Return"]


class Loc:
    """A ``.loc`` directive. ``text`` has its operands. It applies to the instructions whose ``loc`` it is.

    ``caller`` is the ``.loc`` to which its ``inlined_at`` refers. ptxas requires that one earlier in the text, so the
    printer prints it even if no instruction has it any more.
    """

    __slots__ = ("caller", "text")

    def __init__(self, text: str, caller: Loc | None = None) -> None:
        self.text = text
        self.caller = caller

    @property
    def file_line_column(self) -> tuple[int, int, int]:
        """The number of the file (see ``Module.files``), the line, and the column, or 0 if there is no column."""
        words = self.text.partition(",")[0].split()
        column = int(words[2]) if len(words) > 2 and words[2].isdigit() else 0
        return int(words[0]), int(words[1]), column


class Guard:
    """The predicate of ``@%p`` or ``@!%p``."""

    __slots__ = ("negated", "reg", "text")

    def __init__(self, reg: Reg | Imm, *, negated: bool) -> None:
        self.reg = reg
        self.negated = negated
        self.text = f"@!{reg.text}" if negated else f"@{reg.text}"


class Instr:
    """One instruction. Instructions compare by identity. Use the methods of `Kernel` to change one.

    ``operands`` are in the order of the text; the first ``form.dst_count`` of them are results. A ``call`` always has
    (results, target, arguments), and it may have a prototype. ``pos`` is the offset in the source text, or -1.
    """

    __slots__ = ("_defs", "_uses", "form", "guard", "loc", "operands", "pos")

    #: The results of `defs` and `uses`, computed at the first call; `None` before.
    _defs: tuple[Reg, ...] | None
    _uses: tuple[Reg, ...] | None

    def __init__(
        self,
        form: Form,
        operands: tuple[Operand, ...],
        guard: Guard | None = None,
        loc: Loc | None = None,
        pos: int = -1,
    ) -> None:
        self.form = form
        self.operands = operands
        self.guard = guard
        self.loc = loc
        self.pos = pos
        self._defs = None
        self._uses = None

    is_directive = False
    #: Registers that are read but are not in the text: see `Return`.
    implicit: tuple[Reg, ...] = ()

    @property
    def dsts(self) -> tuple[Operand, ...]:
        """The results, as operands (a `Pair` counts once)."""
        return self.operands[: self.form.dst_count]

    @property
    def srcs(self) -> tuple[Operand, ...]:
        """All operands except the results. The address of a store is one of them."""
        return self.operands[self.form.dst_count :]

    def defs(self) -> tuple[Reg, ...]:
        """The registers written. With a guard, or if only a component of a vector register is written, the old value
        may stay."""
        written = self._defs
        if written is None:
            written = self._defs = _registers_written(self)
        return written

    def partial_defs(self) -> tuple[Reg, ...]:
        """The vector registers of which only some components are written. The others keep their values."""
        results = self.operands[:1] if self.form.is_call else self.operands[: self.form.dst_count]
        if len(results) == 1 and type(results[0]) is Reg:  # the common case
            return ()
        return tuple([part.reg for result in results for part in walk(result) if isinstance(part, Element)])

    def uses(self) -> tuple[Reg, ...]:
        """The registers read: those of sources, addresses and the guard, results of forms that also read them, and the
        results of the function that a `Return` reads."""
        read = self._uses
        if read is None:
            read = self._uses = _registers_read(self)
        return read

    def fixed_uses(self) -> tuple[Reg, ...]:
        """The registers of `uses` that must not be replaced by another register with the same value: all registers of a
        call and of a form that also reads its results, and those that a `Return` reads."""
        return self.uses() if self.form.inout or self.form.is_call else self.implicit

    def symbols(self) -> Iterator[Sym]:
        """All symbols in the operands, also those in addresses and lists, in the order of the text."""
        return (part for operand in self.operands for part in walk(operand) if isinstance(part, Sym))

    def clone(self) -> Instr:
        """A new instruction with the same form, operands, guard, line and position."""
        return Instr(self.form, self.operands, self.guard, self.loc, self.pos)

    def forget(self) -> None:
        """Clear the cached results of `defs` and `uses`. `Kernel` calls it when it changes the instruction."""
        self._defs = None
        self._uses = None

    @property
    def address(self) -> Mem | None:
        """The first operand in brackets, or ``None``."""
        for operand in self.operands:
            if type(operand) is Mem:
                return operand
        return None

    @property
    def is_terminator(self) -> bool:
        """Whether a block ends with it; false if it is opaque, since that is not known."""
        return self.form.is_terminator

    @property
    def text(self) -> str:
        """The instruction as PTX, without indentation."""
        guard = self.guard.text + " " if self.guard is not None else ""
        if self.form.is_call:
            return f"{guard}{_call_text(self)};"
        operands = ", ".join([operand.text for operand in self.operands])
        return f"{guard}{self.form.text} {operands};" if operands else f"{guard}{self.form.text};"

    def __repr__(self) -> str:
        return f"<{self.text}>"


def _registers_written(instr: Instr) -> tuple[Reg, ...]:
    operands = instr.operands
    form = instr.form
    count = form.dst_count
    if count:
        if count == 1 and operands and type(operands[0]) is Reg:
            return (operands[0],)
        return tuple([reg for operand in operands[:count] for reg in registers(operand)])
    if form.is_opaque:
        return tuple([reg for operand in operands for reg in registers(operand)])
    if form.is_call and operands:
        return registers(operands[0])
    return ()


def _registers_read(instr: Instr) -> tuple[Reg, ...]:
    form = instr.form
    read: list[Reg] = []
    for operand in instr.operands[form.first_read :]:
        kind = type(operand)
        if kind is Reg:
            read.append(operand)  # pyright: ignore[reportArgumentType]
        elif kind is not Imm:
            read += registers(operand)
    guard = instr.guard
    if guard is not None and type(guard.reg) is Reg:
        read.append(guard.reg)
    read += instr.partial_defs()
    read += instr.implicit
    return tuple(read)


def _call_text(instr: Instr) -> str:
    results, target, *rest = instr.operands
    parts = [target.text]
    if isinstance(results, Args) and results.elements:
        parts.insert(0, results.text)
    for operand in rest:
        if not isinstance(operand, Args) or operand.elements or len(rest) > 1:
            parts.append(operand.text)
    return f"{instr.form.text} " + ", ".join(parts)


class Return(Instr):
    """The ``ret`` of a function that returns registers. It reads these registers; they are its ``implicit`` operands.

    The parser makes a `Return` of every ``ret`` in such a function, and appends one where control may reach the end. So
    liveness sees that the results are read there (PTX ISA 9.0, §7.1: ``.reg`` variables as results of a function).
    """

    __slots__ = ("implicit",)

    def __init__(
        self, form: Form, results: tuple[Reg, ...], guard: Guard | None = None, loc: Loc | None = None, pos: int = -1
    ) -> None:
        super().__init__(form, (), guard, loc, pos)
        self.implicit = results

    def clone(self) -> Return:
        return Return(self.form, self.implicit, self.guard, self.loc, self.pos)


_DIRECTIVE_FORM = decode(".directive")


class Directive(Instr):
    """A part of a body that is not an instruction and keeps its place: a brace of a scope, a ``.pragma``, a declaration
    in a scope, a ``.branchtargets`` with its label.

    ``kind`` is ``{``, ``}``, ``pragma``, ``declaration``, ``branchtargets``, ``calltargets``, ``callprototype`` or
    ``other``. A directive has no effects and no registers.
    """

    __slots__ = ("declaration", "kind", "label", "payload", "targets")

    def __init__(
        self,
        kind: str,
        payload: str,
        pos: int = -1,
        *,
        label: Label | None = None,
        targets: tuple[Label, ...] = (),
        declaration: RegisterDeclaration | Variable | None = None,
    ) -> None:
        super().__init__(_DIRECTIVE_FORM, (), None, None, pos)
        self.kind = kind
        self.payload = payload
        self.label = label
        self.targets = targets
        self.declaration = declaration

    is_directive = True

    def clone(self) -> Directive:
        return Directive(
            self.kind, self.payload, self.pos, label=self.label, targets=self.targets, declaration=self.declaration
        )

    def defs(self) -> tuple[Reg, ...]:
        return ()

    def uses(self) -> tuple[Reg, ...]:
        return ()

    @property
    def text(self) -> str:
        if self.kind in "{}":
            return self.kind
        if self.kind == "branchtargets":
            body = ".branchtargets " + ", ".join(target.text for target in self.targets) + ";"
        elif self.declaration is not None:
            body = self.declaration.text
        else:
            body = self.payload + ";"
        return f"{self.label.text}: {body}" if self.label is not None else body
