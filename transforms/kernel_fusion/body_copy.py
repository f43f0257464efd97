"""Copies kernel bodies under names that do not collide: registers, labels, variables, parameters, functions.

Requires: a kernel without nested scopes.
Guarantees: the copy shares no `Reg`, `Label`, `Block` or `Instr` with the original. ``symbols`` maps parameters and
variables of the original to their replacements, each at an offset. Source positions of the form (file, line, column)
are kept, with file numbers of the merged module.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...ptx import (
    Block,
    Directive,
    Guard,
    Instr,
    Kernel,
    Label,
    Module,
    Operand,
    Reg,
    RegisterDeclaration,
    Special,
    Sym,
    Variable,
    substitute,
)
from ...ptx.instructions import Loc
from ...ptx.ir import Declaration
from ...ptx.operands import Mem, walk

__all__ = ["BodyCopy", "Files", "copy_body", "free_tag", "names_of"]

_PLAIN_LOC = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s*")


@dataclass(slots=True)
class Files:
    """The ``.file`` numbers of a merged module: the position of a name in ``names``, plus 1."""

    names: list[str] = field(default_factory=list[str])

    def number(self, name: str) -> int:
        """The number of a source file in the fused module, from 1 on."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name) + 1


def names_of(kernel: Kernel) -> set[str]:
    """Every name that the kernel declares or mentions. A range of registers gives its name without numbers."""
    names = set(kernel.names) | {kernel.name}
    names.update(param.name for param in (*(kernel.params or ()), *(kernel.results or ())))
    for declaration in kernel.declarations:
        names.add(declaration.name)
        if isinstance(declaration, RegisterDeclaration):
            names.update(name for name, _ in declaration.group)
    for block in kernel.blocks:
        if block.label is not None:
            names.add(block.label.text)
        for instr in block.instrs:
            names.update(symbol.name for symbol in instr.symbols())
            if isinstance(instr, Directive):
                names.update(re.findall(r"[\w$%]+", instr.text))
    return names


def free_tag(taken: Iterable[str]) -> str:
    """A suffix that occurs in none of the names ``taken``."""
    everything = "\0".join(taken)
    number = 2
    while f"_f{number}" in everything:
        number += 1
    return f"_f{number}"


class _Names:
    """The new names of a kernel's registers: the original names with a tag."""

    def __init__(self, kernel: Kernel, tag: str) -> None:
        self.tag = tag
        self.singles: set[str] = set()
        self.ranges: dict[str, int] = {}
        for declaration in kernel.declarations:
            if isinstance(declaration, RegisterDeclaration):
                for name, count in ((declaration.name, declaration.count), *declaration.group):
                    if count is None:
                        self.singles.add(name)
                    else:
                        self.ranges[name] = max(count, self.ranges.get(name, 0))

    def register(self, name: str) -> str:
        if name in self.singles or not self.tag:
            return name + self.tag
        for split in range(len(name) - 1, 0, -1):
            number = name[split:]
            if not number.isdigit():
                break
            if name[:split] in self.ranges and str(int(number)) == number and int(number) < self.ranges[name[:split]]:
                return f"{name[:split]}{self.tag}_{number}"
        return name + self.tag

    def declaration(self, declaration: RegisterDeclaration) -> RegisterDeclaration:
        def renamed(name: str, count: int | None) -> str:
            return name if not self.tag else name + self.tag if count is None else f"{name}{self.tag}_"

        return RegisterDeclaration(
            declaration.type,
            renamed(declaration.name, declaration.count),
            declaration.count,
            declaration.lanes,
            [(renamed(name, count), count) for name, count in declaration.group],
        )


@dataclass(slots=True)
class BodyCopy:
    """A copy of a kernel's declarations and blocks. ``instr``, ``variables`` and ``registers`` map originals to
    copies."""

    declarations: list[RegisterDeclaration | Variable]
    blocks: list[Block]
    instr: dict[Instr, Instr]
    variables: dict[Variable, Variable]
    registers: dict[Reg, Reg]


def copy_body(
    kernel: Kernel,
    tag: str,
    symbols: Mapping[Declaration, tuple[Declaration, int]],
    specials: Mapping[str, Operand],
    module: Module,
    files: Files,
) -> BodyCopy:
    """The body of ``kernel`` with ``tag`` appended to its names.

    ``symbols`` maps a declaration to its replacement and an offset in bytes. Variables of the body that are not in it
    are copied. ``specials`` maps names of special registers to their replacements. ``files`` collects the file names of
    the merged module.
    """
    return _Copier(kernel, tag, symbols, specials, module, files).copy()


class _Copier:
    def __init__(
        self,
        kernel: Kernel,
        tag: str,
        symbols: Mapping[Declaration, tuple[Declaration, int]],
        specials: Mapping[str, Operand],
        module: Module,
        files: Files,
    ) -> None:
        self.kernel = kernel
        self.tag = tag
        self.names = _Names(kernel, tag)
        self.symbols = dict(symbols)
        self.specials = specials
        self.module = module
        self.files = files
        self.registers: dict[Reg, Reg] = {}
        self.labels: dict[Label, Label] = {}
        self.locs: dict[Loc, Loc | None] = {}
        self.variables: dict[Variable, Variable] = {}
        #: Parameters of calls, which are declared inside braces. They keep their names.
        self.scoped: dict[Declaration, Variable] = {}

    def copy(self) -> BodyCopy:
        declarations: list[RegisterDeclaration | Variable] = []
        for declaration in self.kernel.declarations:
            if isinstance(declaration, RegisterDeclaration):
                declarations.append(self.names.declaration(declaration))
            elif declaration not in self.symbols:
                copied = dataclasses.replace(declaration, name=declaration.name + self.tag)
                self.symbols[declaration] = (copied, 0)
                self.variables[declaration] = copied
                declarations.append(copied)
        copies: dict[Instr, Instr] = {}
        blocks: list[Block] = []
        for block in self.kernel.blocks:
            instrs: list[Instr] = []
            for instr in block.instrs:
                copies[instr] = self._instr(instr)
                instrs.append(copies[instr])
            blocks.append(Block(self._label(block.label) if block.label is not None else None, instrs))
        return BodyCopy(declarations, blocks, copies, self.variables, self.registers)

    def _label(self, label: Label) -> Label:
        copied = self.labels.get(label)
        if copied is None:
            copied = self.labels[label] = Label(label.text + self.tag)
        return copied

    def _register(self, reg: Reg) -> Reg:
        copied = self.registers.get(reg)
        if copied is None:
            copied = self.registers[reg] = Reg(self.names.register(reg.text), reg.type, reg.lanes)
        return copied

    def _instr(self, instr: Instr) -> Instr:
        if isinstance(instr, Directive):
            return self._directive(instr)
        replaced: dict[Operand, Operand] = {}
        for operand in instr.operands:
            self._collect(operand, replaced)
        guard = instr.guard
        if guard is not None and isinstance(guard.reg, Reg):
            guard = Guard(self._register(guard.reg), negated=guard.negated)
        operands = tuple([_replaced(operand, replaced) for operand in instr.operands])
        return Instr(instr.form, operands, guard, self._loc(instr.loc))

    def _directive(self, instr: Directive) -> Directive:
        declaration = instr.declaration
        if isinstance(declaration, Variable):
            copied = dataclasses.replace(declaration)
            self.scoped[declaration] = copied
            declaration = copied
        return Directive(
            instr.kind,
            instr.payload,
            label=self._label(instr.label) if instr.label is not None else None,
            targets=tuple([self._label(target) for target in instr.targets]),
            declaration=declaration,
        )

    def _collect(self, operand: Operand, replaced: dict[Operand, Operand]) -> None:
        """Add the replacement of each register, label, symbol and special register in the operand to ``replaced``."""
        for part in walk(operand):
            if isinstance(part, Reg):
                replaced[part] = self._register(part)
            elif isinstance(part, Sym):
                new = self._symbol(part)
                if new is not part:
                    replaced[part] = new
            elif isinstance(part, Label):
                replaced[part] = self._label(part)
            elif isinstance(part, Special) and part.name in self.specials:
                replaced[part] = self.specials[part.name]

    def _symbol(self, symbol: Sym) -> Sym:
        declaration = symbol.declaration
        if declaration is None:
            return symbol
        if declaration in self.scoped:
            return Sym(symbol.name, self.scoped[declaration], symbol.offset, has_zero=symbol.has_zero)
        replacement = self.symbols.get(declaration)
        if replacement is None:
            return symbol
        new, offset = replacement
        return Sym(new.name, new, symbol.offset + offset, has_zero=symbol.has_zero)

    def _loc(self, loc: Loc | None) -> Loc | None:
        if loc is None:
            return None
        if loc not in self.locs:
            plain = _PLAIN_LOC.fullmatch(loc.text)
            name = self.module.files.get(int(plain[1])) if plain is not None else None
            self.locs[loc] = (
                Loc(f"{self.files.number(name)} {plain[2]} {plain[3]}")
                if plain is not None and name is not None and loc.caller is None
                else None
            )
        return self.locs[loc]


def _replaced(operand: Operand, replaced: Mapping[Operand, Operand]) -> Operand:
    new = substitute(operand, replaced)
    if isinstance(new, Mem) and isinstance(new.base, Sym) and new.base.offset:
        # An address is printed with one offset, the one of the memory operand.
        base = new.base
        return Mem(Sym(base.name, base.declaration), new.offset + base.offset, new.rest)
    return new
