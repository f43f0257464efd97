"""The figures of kernels, where those of a split kernel are the figures of the blocks of threads that are usual.

A pass may split a kernel into code for most blocks of threads and code for a few (`Kernel.rare`). All instructions
together would count both. So the judge also gets each split kernel without its rare code, as another entry. Registers
and warps are those of the whole kernel, which is what is launched; instructions and all cycles are those of the
usual code. It keeps the test at its start: in place of the branch to the rare code, the thread ends. Accesses to local
memory are those of the usual code or of the rest, whichever are more: a thread executes one of them.

Requires: a judge, a module. Guarantees: the figures of a kernel that is not split are those of the judge.
Assumes: that most blocks of threads run the usual code. For a small grid this is false.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...ptx import Instr, Kernel, Label, Module
from ...ptx.decoding import decode
from .judge import JudgesTogether

if TYPE_CHECKING:
    from ...cost import Figures
    from .judge import Judge

__all__ = ["find_rare_code", "prepare", "usual_figures", "usual_part", "usual_parts"]


def usual_figures(judge: Judge, module: Module) -> dict[str, Figures]:
    """The figures of each entry by name. Raises `Refused`."""
    parts = usual_parts(module)
    figures = judge.figures(_with_parts(module, parts))
    for name, part in parts.items():
        figures[name] = _of_usual_code(figures[name], figures.pop(part.name))
    return figures


def prepare(judge: Judge, *modules: Module) -> None:
    """`usual_figures` will be called for each of the modules."""
    if isinstance(judge, JudgesTogether):
        judge.prepare(*(_with_parts(module, usual_parts(module)) for module in modules))


def _with_parts(module: Module, parts: dict[str, Kernel]) -> Module:
    return replace(module, items=[*module.items, *parts.values()]) if parts else module


def _of_usual_code(whole: Figures, usual: Figures) -> Figures:
    """The figures of a split kernel. Its usual code is what is executed; the whole kernel is what is launched."""
    spills = max(usual.spills, whole.spills - usual.spills)
    launched = {"code": whole.code, "registers": whole.registers, "warps": whole.warps, "threads": whole.threads}
    return replace(usual, **launched, resident=whole.resident, spills=spills)


def usual_parts(module: Module) -> dict[str, Kernel]:
    """By split entry of ``module``: its `usual_part`."""
    parts = {kernel.name: usual_part(kernel, module) for kernel in module.entries}
    return {name: part for name, part in parts.items() if part is not None}


def find_rare_code(module: Module) -> None:
    """Set `Kernel.rare` of the entries of a parsed module that an earlier run has split. The label shows it."""
    from ..partition.interior_copy import BORDER  # slow to import, and most runs split no kernel

    for kernel in module.entries:
        test = kernel.blocks[0].terminator if kernel.blocks else None
        target = test.operands[-1] if test is not None and test.guard is not None and test.operands else None
        if isinstance(target, Label) and target.text.startswith(BORDER):
            kernel.rare = target


def usual_part(kernel: Kernel, module: Module) -> Kernel | None:
    """A split kernel of ``module`` without its rare code, under another name. `None` where it is not split, or where
    its first block does not end with the branch to the rare code any more."""
    test = kernel.blocks[0].terminator if kernel.rare is not None and kernel.blocks else None
    if test is None or test.guard is None or test.operands[-1] is not kernel.rare:
        return None
    part = kernel.clone()
    taken = {each.name for each in module.kernels}
    part.name = next(name for number in range(len(taken) + 1) if (name := f"{kernel.name}_usual{number}") not in taken)
    start = next(number for number, block in enumerate(part.blocks) if block.label is kernel.rare)
    part.set_instrs(part.blocks[0], [*part.blocks[0].instrs[:-1], Instr(decode("ret"), (), test.guard)])
    part.blocks = part.blocks[:start]
    part.rare = None
    part.cfg_changed()
    return part
