"""The printer: from a `Module` to PTX text.

Guarantees: the text depends on the IR only, not on the source text. Parsing it gives the same module.
"""

from __future__ import annotations

from itertools import accumulate

from .instructions import Loc
from .ir import Kernel, Module, Param

__all__ = ["print_kernel", "print_module", "print_with_lines"]


def print_module(module: Module) -> str:
    """The module as PTX text, with a newline at the end."""
    texts = _head(module)
    texts += [print_kernel(item) if isinstance(item, Kernel) else item.text for item in module.items]
    return "\n".join([*texts, ""])


def print_with_lines(module: Module) -> tuple[str, dict[str, list[int]]]:
    """The text of `print_module`, and by kernel with a body the lines of its instructions in the text, in their order,
    without directives. The first line is 1.

    >>> from ptxmotion.ptx import parse
    >>> print_with_lines(parse(".version 9.0\\n.target sm_90\\n.entry k() { bar.sync 0; ret; }"))[1]
    {'k': [6, 7]}
    """
    texts = _head(module)
    line = 1 + len(texts)
    lines: dict[str, list[int]] = {}
    for item in module.items:
        if isinstance(item, Kernel) and not item.is_declaration:
            own, places = _kernel_texts(item)
            starts = list(accumulate((text.count("\n") + 1 for text in own), initial=line))
            lines[item.name] = [starts[place] for place in places]
            texts.append("\n".join(own))
        else:
            texts.append(print_kernel(item) if isinstance(item, Kernel) else item.text)
        line += texts[-1].count("\n") + 1
    return "\n".join([*texts, ""]), lines


def _head(module: Module) -> list[str]:
    """The lines before the items of a module."""
    lines: list[str] = []
    if module.version:
        lines.append(f".version {module.version}")
    if module.target:
        lines.append(f".target {module.target}")
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    return [*lines, ""]


def print_kernel(kernel: Kernel) -> str:
    """An entry, function or declaration as PTX text, without a newline at its end."""
    return f"{_header(kernel)};" if kernel.is_declaration else "\n".join(_kernel_texts(kernel)[0])


def _kernel_texts(kernel: Kernel) -> tuple[list[str], list[int]]:
    """The texts of the parts of a kernel with a body, and the places of its instructions among them."""
    texts = [_header(kernel), "{"]
    texts += [f"\t{declaration.text}" for declaration in kernel.declarations if _is_needed(declaration)]
    places = _body(kernel, texts)
    texts.append("}")
    return texts, places


def _is_needed(declaration: object) -> bool:
    return getattr(declaration, "count", None) != 0


def _body(kernel: Kernel, lines: list[str]) -> list[int]:
    """Add the blocks of a kernel to ``lines``. Returns the places of the instructions there, without directives."""
    loc: Loc | None = None
    printed: set[Loc] = set()
    places: list[int] = []
    add = lines.append
    for block in kernel.blocks:
        if block.label is not None:
            add(f"{block.label.text}:")
        for instr in block.instrs:
            if instr.loc is not loc and instr.loc is not None:
                loc = instr.loc
                if loc not in printed:
                    _callers(loc, printed, lines)
                add(f"\t.loc {loc.text}")
            if instr.is_directive:
                add(f"\t{instr.text}")
                continue
            places.append(len(lines))
            form = instr.form
            if form.is_call:
                add(f"\t{instr.text}")
                continue
            operands = ", ".join([operand.text for operand in instr.operands])
            text = f"{form.text} {operands}" if operands else form.text
            add(f"\t{text};" if instr.guard is None else f"\t{instr.guard.text} {text};")
    return places


def _callers(loc: Loc, printed: set[Loc], lines: list[str]) -> None:
    """Print the ``.loc`` to which ``inlined_at`` of ``loc`` refers, and those to which that one refers, each only
    once."""
    missing: list[Loc] = []
    caller = loc.caller
    while caller is not None and caller not in printed:
        missing.append(caller)
        caller = caller.caller
    lines += [f"\t.loc {each.text}" for each in reversed(missing)]
    printed.update(missing)
    printed.add(loc)


def _header(kernel: Kernel) -> str:
    parts = [kernel.linkage] if kernel.linkage else []
    parts.append(".entry" if kernel.is_entry else ".func")
    if kernel.attributes:
        parts.append(kernel.attributes)
    if kernel.results is not None:
        parts.append(f"({_params(kernel.results)})")
    head = " ".join([*parts, kernel.name])
    if kernel.params is not None:
        separator = ",\n\t"
        params = separator.join(param.text for param in kernel.params)
        head += f"(\n\t{params}\n)" if kernel.params else "()"
    for directive in kernel.directives:
        head += f"\n{directive}"
    return head


def _params(params: list[Param]) -> str:
    return ", ".join(param.text for param in params)
