"""Runs ptxas and reports its errors at the lines of its input."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .files import refuse_source
from .outcome import BAD_INPUT, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..toolchain.cubin import KernelCode
    from ..toolchain.machine_diff import MachineFigures
    from ..toolchain.tools import PtxasError

__all__ = ["assembled", "assembled_figures"]


def assembled(text: str, name: str, arch: str | None, *, sass: bool, options: Sequence[str] = ()) -> str | bytes:
    """The cubin of a module called ``name``, or its machine code as text; ``options`` are for ptxas. Raises
    `CommandError` for errors of ptxas."""
    from ..toolchain.tools import PtxasError, assemble, disassemble

    try:
        cubin = assemble(text, arch, flags=options).cubin
    except PtxasError as error:
        raise CommandError(BAD_INPUT, _ptxas_errors(text, name, error)) from error
    return disassemble(cubin) if sass else cubin


def assembled_figures(text: str, name: str, arch: str | None, options: Sequence[str] = ()) -> dict[str, MachineFigures]:
    """The figures of each kernel of a module called ``name``; ``options`` are for ptxas. Raises `CommandError` for
    errors of ptxas."""
    from ..toolchain.machine_diff import figures
    from ..toolchain.tools import PtxasError

    try:
        found = figures(text, arch, options)
    except PtxasError as error:
        refuse_source(name)
        raise CommandError(BAD_INPUT, _ptxas_errors(text, name, error)) from error
    for kernel, usual in _usual_code(text, arch, options).items():
        found[kernel] = replace(found[kernel], usual=usual)
    return found


def _usual_code(text: str, arch: str | None, options: Sequence[str]) -> dict[str, KernelCode]:
    """By kernel that the pass `isp` has split: the machine code without that for blocks at the border, as the gate of
    `opt` sees it. Empty for a module that the parser refuses."""
    from ..ptx import PtxError, parse, print_module
    from ..toolchain.machine_diff import figures
    from ..transforms.gate.usual_figures import find_rare_code, usual_parts

    try:
        module = parse(text)
    except PtxError:
        return {}
    find_rare_code(module)
    parts = usual_parts(module)
    if not parts:
        return {}
    code = figures(print_module(replace(module, items=[*module.items, *parts.values()])), arch, options)
    return {name: code[part.name].code for name, part in parts.items()}


def _ptxas_errors(text: str, name: str, error: PtxasError) -> str:
    """The errors of ptxas, each with its line."""
    lines = text.splitlines()
    messages: list[str] = []
    for diagnostic in error.diagnostics:
        if diagnostic.severity == "fatal" and messages:  # the summary after the errors
            continue
        line = diagnostic.line
        if line is not None and 0 < line <= len(lines):
            shown = lines[line - 1].expandtabs(4)
            column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
            caret = " " * (len(shown) - len(shown.lstrip())) + "^"
            messages.append(f"{name}:{line}:{column}: error: ptxas: {diagnostic.message}\n  {shown}\n  {caret}")
        else:
            messages.append(f"{name}: error: ptxas: {diagnostic.message}")
    return "\n".join(messages) or f"{name}: error: {error}"
