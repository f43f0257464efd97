"""The intermediate representation: Module, Kernel, Block, Instr.

PTX as it is: not SSA, guarded instructions, blocks in the order of the text. What is not changed prints as it was read,
apart from blanks and comments. Analyses hang no state on these objects; they key it by identity and version.

Guarantees: a change made through a `Kernel` method bumps ``version`` (instructions) or ``cfg_version`` as well (blocks
and edges), so that a cached fact of an older version cannot be reached.

Nested scopes ``{ … }`` stay in the instruction stream as `Directive`s until `scopes.flatten_scopes` removes them;
transforms run on flattened kernels only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .decoding import decode, form_of
from .errors import SourceText
from .notation import Form
from .operands import Args, Element, Imm, Label, Mem, Operand, Reg, Sym, registers, walk
from .types import TYPES, ScalarType

__all__ = [
    "Block",
    "Declaration",
    "Directive",
    "Guard",
    "Instr",
    "Kernel",
    "Loc",
    "Module",
    "Param",
    "RawDirective",
    "RegisterDeclaration",
    "Return",
    "Variable",
]


class Loc:
    """A ``.loc`` directive; ``text`` is its operands. It holds for the instructions that point to it.

    ``caller`` is the ``.loc`` that an ``inlined_at`` refers to: ptxas wants to have seen it before, so the printer puts
    it there even when no instruction points to it any more.
    """

    __slots__ = ("caller", "text")

    def __init__(self, text: str, caller: Loc | None = None) -> None:
        self.text = text
        self.caller = caller

    @property
    def file_line_column(self) -> tuple[int, int, int]:
        """File number (see ``Module.files``), line and column, which is 0 where none is given."""
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
    """One instruction. Compares by identity. Change it through its kernel.

    ``operands`` stand in the order of the text; the first ``form.dst_count`` of them are results. A ``call`` always
    has (results, target, arguments) and perhaps a prototype. ``pos`` is the offset in the source text, or -1.
    """

    __slots__ = ("_defs", "_uses", "form", "guard", "loc", "operands", "pos")

    #: What `defs` and `uses` have answered; `None` until they are asked.
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
    #: Registers that are read though they do not stand in the text: see `Return`.
    implicit: tuple[Reg, ...] = ()

    @property
    def dsts(self) -> tuple[Operand, ...]:
        """The results, as operands (a `Pair` counts once)."""
        return self.operands[: self.form.dst_count]

    @property
    def srcs(self) -> tuple[Operand, ...]:
        """All operands but the results; addresses that are written are among them."""
        return self.operands[self.form.dst_count :]

    def defs(self) -> tuple[Reg, ...]:
        """Registers written. With a guard, or for a component of a vector register, the old value may survive."""
        found = self._defs
        if found is None:
            found = self._defs = _registers_written(self)
        return found

    def partial_defs(self) -> tuple[Reg, ...]:
        """The vector registers of which only elements are written: the others keep their values."""
        results = self.operands[:1] if self.form.is_call else self.operands[: self.form.dst_count]
        if len(results) == 1 and type(results[0]) is Reg:  # nearly all instructions
            return ()
        return tuple([part.reg for result in results for part in walk(result) if isinstance(part, Element)])

    def uses(self) -> tuple[Reg, ...]:
        """Registers read: sources, addresses, the guard, results of read-modify-write forms, what a `Return` gives."""
        found = self._uses
        if found is None:
            found = self._uses = _registers_read(self)
        return found

    def fixed_uses(self) -> tuple[Reg, ...]:
        """Those of `uses` that are not to be exchanged for another register with the same value: all registers of a
        call and of a read-modify-write form, and what a `Return` gives to its caller."""
        return self.uses() if self.form.inout or self.form.is_call else self.implicit

    def symbols(self) -> Iterator[Sym]:
        """Every symbol in the operands, those in addresses and lists included, in the order written."""
        return (part for operand in self.operands for part in walk(operand) if isinstance(part, Sym))

    def clone(self) -> Instr:
        """An instruction of its own with the same parts."""
        return Instr(self.form, self.operands, self.guard, self.loc, self.pos)

    def forget(self) -> None:
        """Forget what `defs` and `uses` have answered; `Kernel` calls it when it changes the instruction."""
        self._defs = None
        self._uses = None

    @property
    def address(self) -> Mem | None:
        """The first bracketed operand."""
        for operand in self.operands:
            if type(operand) is Mem:
                return operand
        return None

    @property
    def is_terminator(self) -> bool:
        """Whether a block ends with it; false of an opaque one, of which nobody knows."""
        return self.form.is_terminator

    @property
    def text(self) -> str:
        """The instruction as PTX, without its line's indentation."""
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
    found: list[Reg] = []
    for operand in instr.operands[form.first_read :]:
        kind = type(operand)
        if kind is Reg:
            found.append(operand)  # pyright: ignore[reportArgumentType]
        elif kind is not Imm:
            found += registers(operand)
    guard = instr.guard
    if guard is not None and type(guard.reg) is Reg:
        found.append(guard.reg)
    found += instr.partial_defs()
    found += instr.implicit
    return tuple(found)


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
    """The ``ret`` of a function that returns registers. It reads them: they are its ``implicit`` operands.

    The parser makes every ``ret`` of such a function one, and puts one where control runs off the end. So whoever asks
    `uses` knows that the results are live there (PTX ISA 9.0, §7.1: ``.reg`` variables in a function's return list).
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
    """Something in a body that is no instruction and keeps its place: a scope's brace, a ``.pragma``, a declaration
    inside a scope, a labelled ``.branchtargets``.

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


class Block:
    """A basic block: control enters at its start only and leaves at its end only. ``label`` may be missing."""

    __slots__ = ("instrs", "label")

    def __init__(self, label: Label | None = None, instrs: list[Instr] | None = None) -> None:
        self.label = label
        self.instrs: list[Instr] = instrs if instrs is not None else []

    @property
    def terminator(self) -> Instr | None:
        """The instruction that ends the block, or ``None`` where control falls through."""
        for instr in reversed(self.instrs):
            if instr.is_directive:
                continue
            return instr if instr.is_terminator else None
        return None

    @property
    def falls_through(self) -> bool:
        """Whether control may go on behind the block in the text; behind the last one, that is a return."""
        terminator = self.terminator
        return terminator is None or terminator.guard is not None

    def __repr__(self) -> str:
        return f"<block {self.label.text if self.label else '(no label)'}: {len(self.instrs)}>"


@dataclass(eq=False, slots=True)
class RegisterDeclaration:
    """``.reg .type name`` or, with ``count``, the range ``name0 … name(count-1)`` written ``name<count>``."""

    type: ScalarType
    name: str
    count: int | None = None
    lanes: int = 1
    #: Further (name, count) of the same line.
    group: list[tuple[str, int | None]] = field(default_factory=list["tuple[str, int | None]"])
    registers: tuple[Reg, ...] = ()  #: all of ``name<count>`` by number, where the parser made them at once

    @property
    def text(self) -> str:
        vector = f".v{self.lanes} " if self.lanes > 1 else ""
        names = ", ".join(
            name if count is None else f"{name}<{count}>" for name, count in ((self.name, self.count), *self.group)
        )
        return f".reg {vector}.{self.type.name} {names};"


@dataclass(eq=False, slots=True)
class Param:
    """A parameter of an entry or function. ``dims`` is empty for a scalar; ``attributes`` is the text between the
    type and the name, such as ``.ptr .global .align 16``."""

    name: str
    space: str
    type: ScalarType
    align: int | None = None
    dims: tuple[int | None, ...] = ()
    attributes: str = ""
    lanes: int = 1
    type_align: int | None = None
    #: Of a function whose code takes the address: it is in local memory then, and may be written (PTX ISA, §5.1.6).
    is_address_taken: bool = False

    @property
    def bytes(self) -> int:
        """Size in bytes; 0 for an unsized array."""
        size = self.type.bytes * self.lanes
        for dim in self.dims:
            size *= dim or 0
        return size

    @property
    def text(self) -> str:
        align = f" .align {self.align}" if self.align is not None else ""
        vector = f" .v{self.lanes}" if self.lanes > 1 else ""
        attributes = f" {self.attributes}" if self.attributes else ""
        dims = "".join(f"[{dim if dim is not None else ''}]" for dim in self.dims)
        name = f" {self.name}" if self.name else ""
        return f".{self.space}{align}{vector} .{self.type.name}{attributes}{name}{dims}"


@dataclass(eq=False, slots=True)
class Variable:
    """A declared object in a state space. ``initializer`` is its text after the ``=``."""

    name: str
    space: str
    type: ScalarType
    linkage: str = ""  #: such as ``.visible`` or ``.extern``
    align: int | None = None
    lanes: int = 1
    dims: tuple[int | None, ...] = ()
    attributes: str = ""
    initializer: str | None = None
    pos: int = -1
    count: int | None = None  #: of a range ``name<count>``
    bank: str = ""

    @property
    def bytes(self) -> int | None:
        """Size in bytes, or ``None`` for an ``extern`` array without size."""
        size = self.type.bytes * self.lanes
        for dim in self.dims:
            if dim is None:
                return None
            size *= dim
        return size

    @property
    def text(self) -> str:
        parts = [self.linkage] if self.linkage else []
        parts.append(f".{self.space}{self.bank}")
        if self.attributes:
            parts.append(self.attributes)
        if self.align is not None:
            parts.append(f".align {self.align}")
        if self.lanes > 1:
            parts.append(f".v{self.lanes}")
        parts.append(f".{self.type.name}")
        dims = "".join(f"[{dim if dim is not None else ''}]" for dim in self.dims)
        parts.append(self.name + (f"<{self.count}>" if self.count is not None else "") + dims)
        if self.initializer is not None:
            parts.append("= " + self.initializer)
        return " ".join(parts) + ";"


@dataclass(eq=False, slots=True)
class RawDirective:
    """A module-level directive that is kept as text: ``.file``, ``.section``, ``.alias``, ``.pragma``."""

    text: str
    pos: int = -1


@dataclass(eq=False)
class Kernel:
    """An ``.entry`` or a ``.func``; only a declaration when ``blocks`` is ``None``-like, see ``is_declaration``."""

    name: str
    is_entry: bool
    linkage: str = ""
    results: list[Param] | None = None  #: parameters that a ``.func`` returns
    params: list[Param] | None = None
    directives: list[str] = field(default_factory=list[str])  #: ``.maxntid 256, 1, 1`` and the like, in order
    attributes: str = ""
    declarations: list[RegisterDeclaration | Variable] = field(default_factory=list["RegisterDeclaration | Variable"])
    blocks: list[Block] = field(default_factory=list[Block])
    is_declaration: bool = False
    has_scopes: bool = False
    pos: int = -1
    version: int = 0
    cfg_version: int = 0
    names: set[str] = field(default_factory=set[str])  #: every name that is taken in the body
    scoped_names: list[Reg | Label | Variable] = field(default_factory=list["Reg | Label | Variable"])
    _fresh: dict[str, int] = field(default_factory=dict[str, int])
    _new_registers: dict[str, RegisterDeclaration] = field(default_factory=dict[str, "RegisterDeclaration"])

    # --- reading -------------------------------------------------------------------------------------------------

    def instructions(self) -> Iterator[Instr]:
        """Every instruction in text order, directives left out."""
        for block in self.blocks:
            for instr in block.instrs:
                if not instr.is_directive:
                    yield instr

    @property
    def variables(self) -> list[Variable]:
        """The objects declared in the body."""
        return [item for item in self.declarations if isinstance(item, Variable)]

    def directive(self, name: str) -> str | None:
        """The operands of performance directive ``.name`` (``maxntid``), or ``None``."""
        for text in self.directives:
            head, _, rest = text.partition(" ")
            if head == "." + name:
                return rest
        return None

    # --- changing ------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Say that instructions have changed: facts of the current version are no longer reachable."""
        self.version += 1

    def cfg_changed(self) -> None:
        """Say that blocks or edges have changed."""
        self.version += 1
        self.cfg_version += 1

    def new_reg(self, type: ScalarType | str, hint: str = "%m") -> Reg:
        """A new register of ``type``; its name is ``hint``, the type and a number, and not taken."""
        scalar = TYPES[type] if isinstance(type, str) else type
        prefix = f"{hint}_{scalar.name}_"
        declaration = self._new_registers.get(prefix)
        if declaration is None:
            while any(name.startswith(prefix) for name in self.names):
                prefix = prefix + "_"
            declaration = RegisterDeclaration(scalar, prefix, 0)
            self._new_registers[f"{hint}_{scalar.name}_"] = declaration
            self.declarations.append(declaration)
        number = declaration.count or 0
        declaration.count = number + 1
        return Reg(f"{declaration.name}{number}", scalar)

    def new_label(self, hint: str) -> Label:
        """A new label whose name starts with ``hint`` and is not taken."""
        number = self._fresh.get(hint, 0)
        while f"{hint}{number}" in self.names:
            number += 1
        self._fresh[hint] = number + 1
        name = f"{hint}{number}"
        self.names.add(name)
        return Label(name)

    def clone(self) -> Kernel:
        """A kernel that can be changed without changing this one; operands, labels and places are shared."""
        same = dataclasses.replace(
            self,
            declarations=[dataclasses.replace(declaration) for declaration in self.declarations],
            blocks=[Block(block.label, [instr.clone() for instr in block.instrs]) for block in self.blocks],
            names=set(self.names),
            scoped_names=list(self.scoped_names),
            _fresh=dict(self._fresh),
            _new_registers={},
        )
        copies = dict(zip(map(id, self.declarations), same.declarations, strict=True))
        for key, declaration in self._new_registers.items():
            copied = copies[id(declaration)]
            assert isinstance(copied, RegisterDeclaration)
            same._new_registers[key] = copied
        return same

    def restore(self, original: Kernel) -> None:
        """Become what ``original``, an unchanged `clone` of this kernel, is. That one must not be used any more."""
        version, cfg_version = self.version, self.cfg_version
        vars(self).update(vars(original))
        self.version, self.cfg_version = version, cfg_version
        self.cfg_changed()

    def set_instrs(self, block: Block, instrs: list[Instr]) -> None:
        """Replace the instructions of ``block``; edges must stay as they are."""
        block.instrs = instrs
        self.version += 1

    def insert_block(self, index: int, block: Block) -> None:
        """Put ``block`` before the block at ``index`` in text order."""
        self.blocks.insert(index, block)
        self.cfg_changed()

    def replace_operands(self, instr: Instr, operands: tuple[Operand, ...]) -> None:
        """Give ``instr`` other operands."""
        instr.operands = operands
        instr.forget()
        self.version += 1

    def replace_guard(self, instr: Instr, guard: Guard | None) -> None:
        """Give ``instr`` another guard, or none."""
        instr.guard = guard
        instr.forget()
        self.version += 1

    def replace_form(self, instr: Instr, mnemonic: str) -> None:
        """Give ``instr`` another opcode or other modifiers."""
        instr.form = form_of(mnemonic, instr.operands)
        instr.forget()
        self.version += 1


Declaration: TypeAlias = Param | Variable | Kernel


@dataclass(eq=False)
class Module:
    """A PTX file. ``items`` stand in the order of the text."""

    source: SourceText
    version: str = ""
    target: str = ""
    address_size: int | None = None
    items: list[Kernel | Variable | RawDirective] = field(default_factory=list["Kernel | Variable | RawDirective"])

    @property
    def kernels(self) -> list[Kernel]:
        """Entries and functions that have a body."""
        return [item for item in self.items if isinstance(item, Kernel) and not item.is_declaration]

    @property
    def entries(self) -> list[Kernel]:
        """The kernels proper."""
        return [kernel for kernel in self.kernels if kernel.is_entry]

    @property
    def variables(self) -> list[Variable]:
        return [item for item in self.items if isinstance(item, Variable)]

    def kernel(self, name: str) -> Kernel:
        """The entry or function called ``name``; ``KeyError`` if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)

    def put(self, kernel: Kernel) -> None:
        """Put ``kernel`` in the place of the one of its name that has a body."""
        for position, item in enumerate(self.items):
            if isinstance(item, Kernel) and item.name == kernel.name and not item.is_declaration:
                self.items[position] = kernel

    def unknown_opcodes(self) -> dict[str, Instr]:
        """Each opcode that is kept as opaque, as it is spelled, and the first instruction that has it."""
        found: dict[str, Instr] = {}
        for kernel in self.kernels:
            for instr in kernel.instructions():
                if instr.form.is_opaque:
                    found.setdefault(instr.form.text, instr)
        return found

    @property
    def arch(self) -> str:
        """The first word of ``.target``, such as ``sm_90a``; empty where the module has no target."""
        return self.target.partition(",")[0].strip()

    @property
    def files(self) -> dict[int, str]:
        """The names that ``.file`` directives give to file numbers."""
        names: dict[int, str] = {}
        for item in self.items:
            if isinstance(item, RawDirective) and item.text.startswith(".file"):
                number, *rest = item.text[5:].split(maxsplit=1)
                names[int(number)] = rest[0].split('"')[1] if rest and '"' in rest[0] else "".join(rest)
        return names
