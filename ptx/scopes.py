"""Flattening: the declarations of nested scopes ``{ … }`` move to the top of their kernel.

Computes: a kernel in which every register, variable and label is declared once for the whole body. A name is changed
only if it is not free at the top: ``p`` becomes ``p_0``, ``%r3`` becomes ``%r_0``.
Requires: a parsed kernel. ``Kernel.scoped_names`` has the declarations of its nested scopes.
Guarantees: no name changes its meaning, also no name of the module. The time is linear in the size of the kernel.
Keeps: the braces and declarations of a scope that declares ``.param`` variables. The stores, the call and the loads of
a call sequence must stay together. Reference: PTX ISA 9.0, §5.4 and §7.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .instructions import Directive, Guard, Instr
from .ir import Block, Kernel, RegisterDeclaration, Variable
from .operands import Label, Operand, Raw, Reg, Sym, substitute, walk

__all__ = ["flatten_scopes"]

_WORD = re.compile(r"[A-Za-z_$%][\w$]*")
_DIGITS = re.compile(r"\d*$")


def flatten_scopes(kernel: Kernel) -> None:
    """Remove the nested scopes of ``kernel``, in place, except those of calls (see the header of this module)."""
    if not kernel.has_scopes:
        return
    operands = _distinct_operands(kernel)
    nested = [item for item in kernel.scoped_names if not _stays(item)]
    names = _TakenNames(kernel, nested, operands)
    replaced: dict[Operand, Operand] = {}
    renamed: dict[Variable, str] = {}
    for item in nested:
        if isinstance(item, Reg):
            replaced[item] = names.declare_register(item)
        elif isinstance(item, Label):
            replaced[item] = Label(names.take(item.text))
        else:
            renamed[item] = names.take(item.name)
            kernel.declarations.append(item)
    replaced = {old: new for old, new in replaced.items() if old.text != new.text}
    _rename_variables(kernel, renamed, operands, replaced)
    kernel.declarations.extend(names.declarations)
    if replaced:
        _replace(kernel, replaced)
    _drop_braces(kernel)
    kernel.scoped_names = []
    kernel.has_scopes = False
    kernel.changed()


def _stays(item: Reg | Label | Variable) -> bool:
    return isinstance(item, Variable) and item.space == "param"


def _distinct_operands(kernel: Kernel) -> list[Operand]:
    """Every operand of the kernel once. Equal text in one scope is one object."""
    return list({id(operand): operand for instr in kernel.instructions() for operand in instr.operands}.values())


def _symbols(operands: Iterable[Operand]) -> Iterator[Sym]:
    return (part for operand in operands for part in walk(operand) if isinstance(part, Sym))


class _TakenNames:
    """The names that are not free at the top of the kernel, and the declarations that move there."""

    def __init__(self, kernel: Kernel, nested: list[Reg | Label | Variable], operands: list[Operand]) -> None:
        self.kernel = kernel
        self.names: set[str] = set()
        self.ranges: dict[str, int] = {}
        self.declarations: list[RegisterDeclaration] = []
        #: _kept[type, lanes] declares registers that keep their names. _renamed[stem, type, lanes] declares a range for
        #: those that do not.
        self._kept: dict[tuple[str, int], RegisterDeclaration] = {}
        self._renamed: dict[tuple[str, str, int], RegisterDeclaration] = {}
        self._suffixes: dict[str, int] = {}
        moved: set[object] = set(nested)
        self.names.update(param.name for param in (*(kernel.results or ()), *(kernel.params or ())))
        for declaration in kernel.declarations:
            self._reserve(declaration)
        for block in kernel.blocks:
            if block.label is not None and block.label not in moved:
                self.names.add(block.label.text)
            for instr in block.instrs:
                if isinstance(instr, Directive):
                    self._reserve_directive(instr, moved)
        self.names.update(item.name for item in kernel.scoped_names if _stays(item))
        self.names.update(symbol.name for symbol in _symbols(operands) if symbol.declaration not in moved)
        for item in kernel.scoped_names:
            if isinstance(item, Variable):
                self._reserve_initializer(item)
        for operand in operands:
            if isinstance(operand, Raw):
                self.names.update(set(_WORD.findall(operand.text)) - {reg.text for reg in operand.registers})
        #: All names of the kernel without the digits at their ends. The prefix of a new range must not be among them.
        self.stems = {_stem(name) for name in (*kernel.names, *self.names)}

    def _reserve(self, declaration: RegisterDeclaration | Variable) -> None:
        if isinstance(declaration, Variable):
            self._reserve_initializer(declaration)
            if declaration.count is None:
                self.names.add(declaration.name)
            else:
                self.ranges[declaration.name] = declaration.count
            return
        for name, count in ((declaration.name, declaration.count), *declaration.group):
            if count is None:
                self.names.add(name)
            else:
                self.ranges[name] = max(count, self.ranges.get(name, 0))

    def _reserve_initializer(self, variable: Variable) -> None:
        if variable.initializer is not None:
            self.names.update(_WORD.findall(variable.initializer))

    def _reserve_directive(self, directive: Directive, moved: set[object]) -> None:
        if directive.label is not None and directive.label not in moved:
            self.names.add(directive.label.text)
        if directive.kind in ("calltargets", "callprototype", "other"):
            self.names.update(_WORD.findall(directive.payload))

    def is_taken(self, name: str) -> bool:
        if name in self.names:
            return True
        start = len(_stem(name))
        return any(
            name[:split] in self.ranges and int(name[split:]) < self.ranges[name[:split]]
            for split in range(start, len(name))
        )

    def take(self, name: str) -> str:
        """Reserve ``name`` if it is free, else ``name_0`` or the next free one, and return it."""
        fresh = name
        while self.is_taken(fresh):
            number = self._suffixes.get(name, 0)
            self._suffixes[name] = number + 1
            fresh = f"{name}_{number}"
        self.names.add(fresh)
        self.kernel.names.add(fresh)
        return fresh

    def declare_register(self, reg: Reg) -> Reg:
        """Declare ``reg`` if its name is free, else a register of a new range, and return the declared one."""
        if not self.is_taken(reg.text):
            self.names.add(reg.text)
            self._declare_kept(reg)
            return reg
        stem = _stem(reg.text)
        key = (stem, reg.type.name, reg.lanes)
        declaration = self._renamed.get(key)
        if declaration is None:
            prefix = stem + "_"
            while prefix in self.stems:
                prefix += "_"
            self.stems.add(prefix)
            self.kernel.names.add(prefix)
            declaration = self._renamed[key] = RegisterDeclaration(reg.type, prefix, 0, reg.lanes)
            self.declarations.append(declaration)
        number = declaration.count or 0
        declaration.count = number + 1
        return Reg(f"{declaration.name}{number}", reg.type, reg.lanes)

    def _declare_kept(self, reg: Reg) -> None:
        key = (reg.type.name, reg.lanes)
        declaration = self._kept.get(key)
        if declaration is None:
            declaration = self._kept[key] = RegisterDeclaration(reg.type, reg.text, None, reg.lanes)
            self.declarations.append(declaration)
        else:
            declaration.group.append((reg.text, None))


def _stem(name: str) -> str:
    """``name`` without the digits at its end."""
    match = _DIGITS.search(name)
    assert match is not None
    return name[: match.start()]


def _rename_variables(
    kernel: Kernel, renamed: dict[Variable, str], operands: list[Operand], replaced: dict[Operand, Operand]
) -> None:
    """Give each variable its new name, and add the changed symbols to ``replaced``."""
    changed = {variable: name for variable, name in renamed.items() if variable.name != name}
    if not changed:
        return
    for symbol in _symbols(operands):
        declaration = symbol.declaration
        if isinstance(declaration, Variable) and declaration in changed:
            replaced[symbol] = Sym(changed[declaration], declaration, symbol.offset, has_zero=symbol.has_zero)
    if any(variable.initializer is not None for variable in renamed):
        _rename_in_initializers(kernel, changed)
    for variable, name in changed.items():
        variable.name = name


def _rename_in_initializers(kernel: Kernel, changed: dict[Variable, str]) -> None:
    """Change the names in initializers of nested variables, such as ``.global .u64 p = generic(buffer);``."""
    scopes: list[dict[str, Variable]] = []

    def renamed(word: re.Match[str]) -> str:
        variable = next((scope[word[0]] for scope in reversed(scopes) if word[0] in scope), None)
        return changed.get(variable, word[0]) if variable is not None else word[0]

    for block in kernel.blocks:
        for instr in block.instrs:
            if not isinstance(instr, Directive):
                continue
            if instr.kind == "{":
                scopes.append({})
            elif instr.kind == "}":
                scopes.pop()
            elif isinstance(instr.declaration, Variable) and scopes:
                variable = instr.declaration
                scopes[-1][variable.name] = variable
                if variable.initializer is not None:
                    variable.initializer = _WORD.sub(renamed, variable.initializer)


def _replace(kernel: Kernel, replaced: dict[Operand, Operand]) -> None:
    """Replace operands in all instructions, guards, labels and directives."""
    done: dict[int, Operand] = {}
    guards: dict[int, Guard] = {}

    def follow(operand: Operand) -> Operand:
        found = done.get(id(operand))
        if found is None:
            found = done[id(operand)] = substitute(operand, replaced)
        return found

    for block in kernel.blocks:
        if block.label is not None:
            block.label = _label(block.label, replaced)
        for instr in block.instrs:
            if isinstance(instr, Directive):
                instr.targets = tuple([_label(target, replaced) for target in instr.targets])
                instr.label = _label(instr.label, replaced) if instr.label is not None else None
                continue
            instr.forget()
            instr.operands = tuple([follow(operand) for operand in instr.operands])
            guard = instr.guard
            if guard is not None and guard.reg in replaced:
                if id(guard) not in guards:
                    reg = replaced[guard.reg]
                    assert isinstance(reg, Reg)
                    guards[id(guard)] = Guard(reg, negated=guard.negated)
                instr.guard = guards[id(guard)]


def _label(label: Label, replaced: dict[Operand, Operand]) -> Label:
    replacement = replaced.get(label, label)
    assert isinstance(replacement, Label)
    return replacement


def _drop_braces(kernel: Kernel) -> None:
    """Remove the braces, the declarations that have moved, and the blocks that become empty. The first block stays even
    if it is empty: the second one may be the target of a branch, and no branch may lead to the entry block."""
    vanishing = _vanishing(kernel)
    blocks: list[Block] = []
    for block in kernel.blocks:
        block.instrs = [instr for instr in block.instrs if id(instr) not in vanishing]
        if block.instrs or block.label is not None or not blocks:
            blocks.append(block)
    kernel.blocks = blocks


def _vanishing(kernel: Kernel) -> set[int]:
    """The identities of the directives to remove."""
    identities: set[int] = set()
    #: The open scopes: the directive of the opening brace, and the ``.param`` variables of the scope.
    scopes: list[tuple[Instr, list[Variable]]] = []
    for block in kernel.blocks:
        for instr in block.instrs:
            if not isinstance(instr, Directive):
                continue
            if instr.kind == "{":
                scopes.append((instr, []))
            elif instr.kind == "}":
                opening, params = scopes.pop()
                if not params:
                    identities.update((id(opening), id(instr)))
            elif instr.kind == "declaration":
                declaration = instr.declaration
                if isinstance(declaration, Variable) and declaration.space == "param":
                    scopes[-1][1].append(declaration)
                else:
                    identities.add(id(instr))
    return identities
