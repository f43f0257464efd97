"""A digest of the code of a kernel. A profile is matched with its kernel by this digest.

Computes: SHA-256 over the instructions in the order of the text: opcodes with modifiers, guards, literals, offsets of
symbols, and which operands and branch targets are equal. It does not depend on the names of the kernel, of registers,
labels and variables, on comments, `.loc` and declarations. So the digest stays the same when scopes are flattened, and
when the kernel is compiled with line numbers. Any change of an instruction, or of their order, changes the digest.
"""

from __future__ import annotations

from .instructions import Directive
from .ir import Kernel
from .operands import Args, Element, Label, Mem, Not, Operand, Pair, Raw, Reg, Sym, Vec

__all__ = ["code_digest"]


def code_digest(kernel: Kernel) -> str:
    """The digest of the code of ``kernel``, 64 hexadecimal digits.

    >>> from . import parse
    >>> text = ".version 9.0\\n.target sm_90\\n.entry k() {{ .reg .b32 {0}; mov.b32 {0}, {1}; ret; }}"
    >>> a, b, c = (code_digest(parse(text.format(*p)).kernels[0]) for p in [("%a", 1), ("%b", 1), ("%a", 2)])
    >>> a == b, a == c
    (True, False)
    """
    import hashlib  # slow to load, and few callers need a digest

    spell = _Speller()
    lines: list[str] = []
    for block in kernel.blocks:
        if block.label is not None:
            lines.append(f"{spell.number(block.label)}:")
        for instr in block.instrs:
            if isinstance(instr, Directive):
                if instr.targets:
                    lines.append(
                        " ".join(map(spell.operand, (*(() if instr.label is None else (instr.label,)), *instr.targets)))
                    )
                continue
            guard = ""
            if instr.guard is not None:
                guard = f"@{'!' if instr.guard.negated else ''}{spell.operand(instr.guard.reg)} "
            lines.append(f"{guard}{instr.form.text} {' '.join([spell.operand(each) for each in instr.operands])}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", errors="surrogateescape")).hexdigest()


class _Speller:
    """The text of operands. Names are replaced by numbers, in the order of their first uses."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, named: object) -> str:
        return f"#{self._numbers.setdefault(named, len(self._numbers))}"

    def operand(self, operand: Operand) -> str:
        if isinstance(operand, Reg | Label):
            return self.number(operand)
        if isinstance(operand, Element):
            return f"{self.number(operand.reg)}.{operand.component}"
        if isinstance(operand, Sym):
            return f"{self.number(operand.declaration or operand.name)}+{operand.offset}"
        if isinstance(operand, Mem):
            return f"[{' '.join(map(self.operand, (operand.base, *operand.rest)))}+{operand.offset}]"
        if isinstance(operand, Vec | Args):
            return f"{{{' '.join(map(self.operand, operand.elements))}}}"
        if isinstance(operand, Pair):
            return f"{self.operand(operand.first)}|{self.operand(operand.second)}"
        if isinstance(operand, Not):
            return f"!{self.operand(operand.operand)}"
        if isinstance(operand, Raw):
            return f"{len(operand.registers)} {' '.join(map(self.number, operand.registers))}"
        return operand.text
