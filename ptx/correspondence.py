"""Kernels that are equal except for names, and the mapping from the parts of one to the parts of the other.

Compares headers, declarations, instructions with operands and guards, directives, and lines in the source. The names of
the kernels, of their parameters and labels, and of the objects that they declare may differ. Registers must have the
same names. Refuses: functions with results, directives with labels, and operands that are not understood.

Guarantees: if two kernels correspond, `Correspondence.carried` turns one into the other. If a pass that does not depend
on names has changed one of them, it turns the result into the result of the pass on the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from .instructions import Directive, Guard, Instr, Loc
from .ir import Block, Declaration, Kernel, Param, RegisterDeclaration, Variable
from .operands import Element, Imm, Label, Mem, Operand, Raw, Reg, Sym, substitute, walk

__all__ = ["Correspondence"]

_WORD = re.compile(r"[A-Za-z_$%][\w$]*")
_Declared: TypeAlias = Param | Variable | RegisterDeclaration
_Leaf: TypeAlias = Reg | Sym | Label


class Correspondence:
    """The mapping from a kernel to an equal one. ``places[old offset]`` is the offset of an instruction in the
    source."""

    def __init__(self, old: Kernel, new: Kernel) -> None:
        self.places: dict[int, int] = {}
        #: Old name to new name: of the kernel, its parameters, labels, and objects.
        self._names: dict[str, str] = {old.name: new.name}
        self._declarations: dict[Declaration | None, Declaration | None] = {}
        #: Old names that symbols may have and that may differ from the new ones.
        self._objects: set[str] = {old.name}
        self._variables: dict[str, Variable] = {}
        self._variables_of_scopes: dict[Variable, Variable] = {}
        self._labels: dict[str, Label] = {}
        #: id(old operand) to the new operand with which it was found equal. Instructions share operands.
        self._alike: dict[int, Operand] = {}
        #: Old operand to new operand. A register is mapped when the kernels are compared, another operand when it is
        #: carried over.
        self._carried: dict[Operand, Operand] = {}

    @classmethod
    def of(cls, old: Kernel, new: Kernel) -> Correspondence | None:
        """The mapping, or ``None`` if the kernels are not equal. Neither may have nested scopes, except those of calls.

        >>> from .parser import parse
        >>> text = ".version 9.0\\n.target sm_90\\n"
        >>> for name in ("k", "l"):
        ...     text += f".entry {name}(.param .b32 {name}_param_0) {{ $L_{name}: bra $L_{name}; }}\\n"
        >>> found = Correspondence.of(*parse(text).kernels)
        >>> found.renamed("k_param_0 $L_k")
        'l_param_0 $L_l'
        """
        found = cls(old, new)
        return found if found._kernels_do(old, new) else None

    def renamed(self, text: str) -> str:
        """``text`` with each name of the old kernel replaced by that of the new one."""
        names = self._names
        return _WORD.sub(lambda word: names.get(word[0], word[0]), text)

    def carried(self, old: Kernel, new: Kernel) -> Kernel:
        """A copy of ``old``, which may have changed since the comparison, with the names and objects of ``new``."""
        carried = old.clone()
        carried.name, carried.params, carried.pos = new.name, new.params, new.pos
        carried.names = new.names | old.names.difference(self._names)
        carried.scoped_names = list(new.scoped_names)
        for number, declaration in enumerate(old.declarations):
            if isinstance(declaration, Variable):
                carried.declarations[number] = self._variables[declaration.name]
        for block in carried.blocks:
            block.label = self._label(block.label) if block.label is not None else None
            for instr in block.instrs:
                self._carry_over(instr)
        return carried

    # --- comparison ----------------------------------------------------------------------------------------------

    def _kernels_do(self, old: Kernel, new: Kernel) -> bool:
        return (
            _header(old) == _header(new)
            and not (old.results or new.results)
            and self._all_declared_do(old.params or (), new.params or ())
            and self._all_declared_do(old.declarations, new.declarations)
            and len(old.blocks) == len(new.blocks)
            and all(map(self._labels_do, old.blocks, new.blocks))
            and all(map(self._blocks_do, old.blocks, new.blocks))
            and len(set(self._names.values())) == len(self._names)
        )

    def _all_declared_do(self, old: Sequence[_Declared], new: Sequence[_Declared]) -> bool:
        return len(old) == len(new) and all(map(self._declared_do, old, new))

    def _declared_do(self, old: _Declared, new: _Declared) -> bool:
        if type(old) is not type(new):
            return False
        if isinstance(old, RegisterDeclaration) or isinstance(new, RegisterDeclaration):
            return old.text == new.text
        self._objects.add(old.name)
        if isinstance(new, Variable):
            self._variables[old.name] = new
        return replace(old, name="").text == replace(new, name="").text and self._name(old.name, new.name)

    def _name(self, old: str, new: str) -> bool:
        """Map the name ``old`` to ``new``; ``False`` if that is not possible."""
        # `renamed` replaces words of a text. A name without these characters might be another word of it.
        if old != new and not ("_" in old or "$" in old):
            return False
        return self._names.setdefault(old, new) == new

    def _labels_do(self, old: Block, new: Block) -> bool:
        if old.label is None or new.label is None:
            return old.label is new.label
        self._labels[old.label.text] = new.label
        return self._name(old.label.text, new.label.text)

    def _blocks_do(self, old: Block, new: Block) -> bool:
        return len(old.instrs) == len(new.instrs) and all(map(self._instrs_do, old.instrs, new.instrs))

    def _instrs_do(self, old: Instr, new: Instr) -> bool:
        if isinstance(old, Directive) or isinstance(new, Directive):
            same = isinstance(old, Directive) and isinstance(new, Directive) and self._directives_do(old, new)
        else:
            same = old.form is new.form and self._all_do(old.operands, new.operands) and self._guards_do(old, new)
        self.places[old.pos] = new.pos
        return same and (old.pos < 0) == (new.pos < 0) and _lines(old.loc) == _lines(new.loc)

    def _directives_do(self, old: Directive, new: Directive) -> bool:
        if any(each.label is not None or each.targets for each in (old, new)):
            return False
        if old.declaration is not None and new.declaration is not None:
            if isinstance(old.declaration, Variable) and isinstance(new.declaration, Variable):
                self._variables_of_scopes[old.declaration] = new.declaration
            return self._declared_do(old.declaration, new.declaration)
        return old.text == new.text

    def _guards_do(self, old: Instr, new: Instr) -> bool:
        if old.guard is None or new.guard is None:
            return old.guard is new.guard
        return old.guard.negated == new.guard.negated and self._operands_do(old.guard.reg, new.guard.reg)

    def _all_do(self, old: Sequence[Operand], new: Sequence[Operand]) -> bool:
        return len(old) == len(new) and all(map(self._operands_do, old, new))

    def _operands_do(self, old: Operand, new: Operand) -> bool:
        counterpart = self._alike.get(id(old))
        if counterpart is not None:
            return counterpart is new or self._are_alike(old, new)
        if not self._are_alike(old, new):
            return False
        self._alike[id(old)] = new
        return True

    def _are_alike(self, old: Operand, new: Operand) -> bool:
        if type(old) is not type(new) or isinstance(old, Raw):
            return False
        if isinstance(old, Reg) and isinstance(new, Reg):
            counterpart = self._carried.setdefault(old, new)
            return counterpart is new and (old.text, old.type, old.lanes) == (new.text, new.type, new.lanes)
        if isinstance(old, Sym) and isinstance(new, Sym):
            return self._symbols_do(old, new)
        if isinstance(old, Label) and isinstance(new, Label):
            return self._names.get(old.text) == new.text
        if not old.parts:
            return old.text == new.text
        return _detail(old) == _detail(new) and self._all_do(old.parts, new.parts)

    def _symbols_do(self, old: Sym, new: Sym) -> bool:
        if old.name not in self._objects:  # a label may have the name of something else in the module
            return (old.name, old.declaration, old.offset) == (new.name, new.declaration, new.offset)
        declaration = self._declarations.setdefault(old.declaration, new.declaration)
        return (self._names[old.name], declaration, old.offset) == (new.name, new.declaration, new.offset)

    # --- mapping -------------------------------------------------------------------------------------------------

    def _carry_over(self, instr: Instr) -> None:
        """Turn an instruction of the old kernel into one of the new kernel."""
        if instr.pos >= 0:
            instr.pos = self.places[instr.pos]
        if isinstance(instr, Directive):
            if isinstance(instr.declaration, Variable):
                instr.declaration = self._variables_of_scopes[instr.declaration]
            return
        instr.operands = tuple(map(self._carried_operand, instr.operands))
        if instr.guard is not None:
            reg = self._carried_operand(instr.guard.reg)
            assert isinstance(reg, Reg | Imm)
            instr.guard = Guard(reg, negated=instr.guard.negated)

    def _carried_operand(self, operand: Operand) -> Operand:
        carried = self._carried.get(operand)
        if carried is None:
            for leaf in walk(operand):
                if isinstance(leaf, Reg | Sym | Label) and leaf not in self._carried:
                    self._carried[leaf] = self._counterpart(leaf)
            carried = self._carried[operand] = substitute(operand, self._carried)
        return carried

    def _counterpart(self, leaf: _Leaf) -> _Leaf:
        if isinstance(leaf, Reg):
            return Reg(leaf.text, leaf.type, leaf.lanes)
        if isinstance(leaf, Label):
            return self._label(leaf)
        declaration = self._declarations.get(leaf.declaration, leaf.declaration)
        return Sym(self._names.get(leaf.name, leaf.name), declaration, leaf.offset, has_zero=leaf.has_zero)

    def _label(self, label: Label) -> Label:
        return self._labels.setdefault(label.text, Label(label.text))


def _header(kernel: Kernel) -> object:
    return kernel.is_entry, kernel.linkage, kernel.directives, kernel.attributes, kernel.has_scopes


def _lines(loc: Loc | None) -> list[str]:
    """The line in the source, and the lines at which it is inlined."""
    lines: list[str] = []
    while loc is not None:
        lines.append(loc.text)
        loc = loc.caller
    return lines


def _detail(operand: Operand) -> object:
    """The fields of an operand that are not parts."""
    if isinstance(operand, Mem):
        return operand.offset, operand.has_zero
    return operand.component if isinstance(operand, Element) else None
