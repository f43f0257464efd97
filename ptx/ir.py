"""The intermediate representation: Module, Kernel, Block. `instructions.py` has the instructions.

It represents PTX directly: no SSA form, guarded instructions, blocks in the order of the text. Parts that no pass
changes print as in the source, except for blanks and comments. Analyses store nothing in these objects. They keep their
results in caches whose keys are identities and versions.

Guarantees: each method of `Kernel` that changes instructions increments ``version``; one that changes blocks or edges
increments ``cfg_version``, too. So a cached fact of an older version is not found any more.

Nested scopes ``{ … }`` are `Directive`s among the instructions until `scopes.flatten_scopes` removes them. Transforms
run on flattened kernels only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from .decoding import form_of
from .errors import SourceText
from .instructions import Guard, Instr
from .operands import Label, Operand, Reg
from .types import TYPES, ScalarType

__all__ = ["Block", "Declaration", "Kernel", "Module", "Param", "RawDirective", "RegisterDeclaration", "Variable"]


class Block:
    """A basic block: control enters only at its start and leaves only at its end. ``label`` may be ``None``."""

    __slots__ = ("instrs", "label")

    def __init__(self, label: Label | None = None, instrs: list[Instr] | None = None) -> None:
        self.label = label
        self.instrs: list[Instr] = instrs if instrs is not None else []

    @property
    def terminator(self) -> Instr | None:
        """The instruction that ends the block, or ``None`` if control falls through."""
        for instr in reversed(self.instrs):
            if instr.is_directive:
                continue
            return instr if instr.is_terminator else None
        return None

    @property
    def falls_through(self) -> bool:
        """Whether control may continue with the next block in the text. After the last block, that is a return."""
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
    #: (name, count) of the further registers of the same line.
    group: list[tuple[str, int | None]] = field(default_factory=list["tuple[str, int | None]"])
    registers: tuple[Reg, ...] = ()  #: all registers of ``name<count>``, by number, if the parser created them at once

    @property
    def text(self) -> str:
        """The directive as PTX."""
        vector = f".v{self.lanes} " if self.lanes > 1 else ""
        names = ", ".join(
            name if count is None else f"{name}<{count}>" for name, count in ((self.name, self.count), *self.group)
        )
        return f".reg {vector}.{self.type.name} {names};"


@dataclass(eq=False, slots=True)
class Param:
    """A parameter of an entry or function. ``dims`` is empty for a scalar. ``attributes`` is the text between the type
    and the name, such as ``.ptr .global .align 16``."""

    name: str
    space: str
    type: ScalarType
    align: int | None = None
    dims: tuple[int | None, ...] = ()
    attributes: str = ""
    lanes: int = 1
    type_align: int | None = None
    #: Whether the code of the function takes its address. Then it is in local memory, and may be written (PTX ISA,
    #: §5.1.6).
    is_address_taken: bool = False

    @property
    def bytes(self) -> int:
        """The size in bytes; 0 for an array without a size."""
        size = self.type.bytes * self.lanes
        for dim in self.dims:
            size *= dim or 0
        return size

    @property
    def text(self) -> str:
        """The declaration as PTX, without a comma."""
        align = f" .align {self.align}" if self.align is not None else ""
        vector = f" .v{self.lanes}" if self.lanes > 1 else ""
        attributes = f" {self.attributes}" if self.attributes else ""
        dims = "".join(f"[{dim if dim is not None else ''}]" for dim in self.dims)
        name = f" {self.name}" if self.name else ""
        return f".{self.space}{align}{vector} .{self.type.name}{attributes}{name}{dims}"


@dataclass(eq=False, slots=True)
class Variable:
    """A declared object in a state space. ``initializer`` is the text after the ``=``."""

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
    count: int | None = None  #: the number of objects in a range ``name<count>``
    bank: str = ""

    @property
    def bytes(self) -> int | None:
        """The size in bytes, or ``None`` for an ``extern`` array without a size."""
        size = self.type.bytes * self.lanes
        for dim in self.dims:
            if dim is None:
                return None
            size *= dim
        return size

    @property
    def text(self) -> str:
        """The declaration as PTX."""
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
    """A directive of the module that is kept as text: ``.file``, ``.section``, ``.alias``, ``.pragma``."""

    text: str
    pos: int = -1


@dataclass(eq=False)
class Kernel:
    """An ``.entry`` or a ``.func``. If ``is_declaration`` is true, it has no body."""

    name: str
    is_entry: bool
    linkage: str = ""
    results: list[Param] | None = None  #: the results of a ``.func``
    params: list[Param] | None = None
    directives: list[str] = field(default_factory=list[str])  #: ``.maxntid 256, 1, 1`` and the like, in order
    attributes: str = ""
    declarations: list[RegisterDeclaration | Variable] = field(default_factory=list["RegisterDeclaration | Variable"])
    blocks: list[Block] = field(default_factory=list[Block])
    is_declaration: bool = False
    has_scopes: bool = False
    pos: int = -1
    #: If a pass has split the kernel: the code from this label on is for the few blocks of threads that the code before
    #: it does not serve. The first block of the kernel ends with the branch to it.
    rare: Label | None = None
    version: int = 0
    cfg_version: int = 0
    names: set[str] = field(default_factory=set[str])  #: every name that the body uses
    #: The registers, labels and variables that nested scopes declare.
    scoped_names: list[Reg | Label | Variable] = field(default_factory=list["Reg | Label | Variable"])
    #: _fresh[hint]: the next number that `new_label` tries.
    _fresh: dict[str, int] = field(default_factory=dict[str, int])
    #: _new_registers[prefix]: the range from which `new_reg` takes registers.
    _new_registers: dict[str, RegisterDeclaration] = field(default_factory=dict[str, "RegisterDeclaration"])

    # --- reading -------------------------------------------------------------------------------------------------

    def instructions(self) -> Iterator[Instr]:
        """Every instruction in the order of the text, without directives."""
        for block in self.blocks:
            for instr in block.instrs:
                if not instr.is_directive:
                    yield instr

    @property
    def variables(self) -> list[Variable]:
        """The variables that the body declares."""
        return [item for item in self.declarations if isinstance(item, Variable)]

    def directive(self, name: str) -> str | None:
        """The operands of the performance directive ``name``, such as ``maxntid``, or ``None``."""
        for text in self.directives:
            head, _, rest = text.partition(" ")
            if head == "." + name:
                return rest
        return None

    def directive_numbers(self, name: str) -> tuple[int, ...]:
        """The operands of a performance directive with numbers; empty without the directive. The parser makes all
        numbers decimal.

        >>> Kernel("k", True, directives=[".maxntid 32, 4"]).directive_numbers("maxntid")
        (32, 4)
        """
        return tuple(int(part) for part in (self.directive(name) or "").replace(",", " ").split())

    # --- changing ------------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Report that instructions have changed. Facts of the current version are not found any more."""
        self.version += 1

    def cfg_changed(self) -> None:
        """Report that blocks or edges have changed."""
        self.version += 1
        self.cfg_version += 1

    def new_reg(self, type: ScalarType | str, hint: str = "%m") -> Reg:
        """A new register of ``type``, with a name that is not in use: ``hint``, the type and a number."""
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

    def drop_unused_new_registers(self) -> None:
        """Remove the declarations that `new_reg` made and whose registers no instruction has any more."""
        if not self._new_registers:
            return
        instrs = [instr for block in self.blocks for instr in block.instrs]
        used = {reg.name for instr in instrs for reg in (*instr.defs(), *instr.uses())}
        prefixes = {name.rstrip("0123456789") for name in used}
        unused = {key: each for key, each in self._new_registers.items() if each.name not in prefixes}
        for key, declaration in unused.items():
            del self._new_registers[key]
            self.declarations = [each for each in self.declarations if each is not declaration]

    def new_label(self, hint: str) -> Label:
        """A new label with a name that is not in use and starts with ``hint``."""
        number = self._fresh.get(hint, 0)
        while f"{hint}{number}" in self.names:
            number += 1
        self._fresh[hint] = number + 1
        name = f"{hint}{number}"
        self.names.add(name)
        return Label(name)

    def clone(self) -> Kernel:
        """A copy that can be changed without changing this kernel. Operands, labels and lines are shared."""
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

    def is_still(self, original: Kernel) -> bool:
        """Whether nothing has changed since this kernel was made as a `clone` of ``original``: no instruction, and no
        register or label that is declared. ``original`` must not have changed either."""
        registers = {prefix: each.count for prefix, each in self._new_registers.items()}
        return (
            (self.version, self.cfg_version) == (original.version, original.cfg_version)
            and len(self.declarations) == len(original.declarations)
            and registers == {prefix: each.count for prefix, each in original._new_registers.items()}
            and self._fresh == original._fresh
            and len(self.names) == len(original.names)
        )

    def restore(self, original: Kernel) -> None:
        """Undo all changes since ``original`` was made as a `clone` of this kernel. ``original`` must not be changed
        before, and not be used any more."""
        version, cfg_version = self.version, self.cfg_version
        vars(self).update(vars(original))
        self.version, self.cfg_version = version, cfg_version
        self.cfg_changed()

    def set_instrs(self, block: Block, instrs: list[Instr]) -> None:
        """Replace the instructions of ``block``. The edges must not change."""
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
    """A PTX file. ``items`` are in the order of the text."""

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
        """The entries that have a body."""
        return [kernel for kernel in self.kernels if kernel.is_entry]

    @property
    def variables(self) -> list[Variable]:
        """The variables of the module, in the order of the text."""
        return [item for item in self.items if isinstance(item, Variable)]

    def kernel(self, name: str) -> Kernel:
        """The entry or function called ``name``; ``KeyError`` if there is none."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(name)

    def put(self, kernel: Kernel) -> None:
        """Replace the kernel that has a body and the name of ``kernel``."""
        for position, item in enumerate(self.items):
            if isinstance(item, Kernel) and item.name == kernel.name and not item.is_declaration:
                self.items[position] = kernel

    @property
    def arch(self) -> str:
        """The first word of ``.target``, such as ``sm_90a``; empty if the module has no target."""
        return self.target.partition(",")[0].strip()

    @property
    def files(self) -> dict[int, str]:
        """The names of files by the numbers that ``.file`` directives give them."""
        names: dict[int, str] = {}
        for item in self.items:
            if isinstance(item, RawDirective) and item.text.startswith(".file"):
                number, *rest = item.text[5:].split(maxsplit=1)
                names[int(number)] = rest[0].split('"')[1] if rest and '"' in rest[0] else "".join(rest)
        return names
