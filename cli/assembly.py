"""Ask ptxas, and tell its refusals as errors at lines of the text that it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .outcome import BAD_INPUT, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..toolchain.machine_diff import MachineFigures
    from ..toolchain.tools import PtxasError

__all__ = ["assembled", "assembled_figures"]


def assembled(text: str, name: str, arch: str | None, *, sass: bool, options: Sequence[str] = ()) -> str | bytes:
    """The cubin of a module called ``name``, or its machine code as text; ``options`` are for ptxas. Raises
    `CommandError` where ptxas refuses."""
    from ..toolchain.tools import PtxasError, assemble, disassemble

    try:
        cubin = assemble(text, arch, flags=options).cubin
    except PtxasError as error:
        raise CommandError(BAD_INPUT, _refusal(text, name, error)) from error
    return disassemble(cubin) if sass else cubin


def assembled_figures(text: str, name: str, arch: str | None) -> dict[str, MachineFigures]:
    """The figures of each kernel of a module called ``name``. Raises `CommandError` where ptxas refuses it."""
    from ..toolchain.machine_diff import figures
    from ..toolchain.tools import PtxasError

    try:
        return figures(text, arch)
    except PtxasError as error:
        raise CommandError(BAD_INPUT, _refusal(text, name, error)) from error


def _refusal(text: str, name: str, error: PtxasError) -> str:
    """ptxas's errors with the lines that they speak of."""
    lines = text.splitlines()
    found: list[str] = []
    for diagnostic in error.diagnostics:
        if diagnostic.severity == "fatal" and found:  # that it gives up, after it has said why
            continue
        line = diagnostic.line
        if line is not None and 0 < line <= len(lines):
            shown = lines[line - 1].expandtabs(4)
            column = len(lines[line - 1]) - len(lines[line - 1].lstrip()) + 1
            caret = " " * (len(shown) - len(shown.lstrip())) + "^"
            found.append(f"{name}:{line}:{column}: error: ptxas: {diagnostic.message}\n  {shown}\n  {caret}")
        else:
            found.append(f"{name}: error: ptxas: {diagnostic.message}")
    return "\n".join(found) or f"{name}: error: {error}"
