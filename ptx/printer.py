"""The printer: from a `Module` to PTX text.

Guarantees: the text depends on the IR only, not on the source text. Parsing it gives the same module.
"""

from __future__ import annotations

from .instructions import Loc
from .ir import Kernel, Module, Param, RawDirective

__all__ = ["print_kernel", "print_module"]


def print_module(module: Module) -> str:
    """The module as PTX text, with a newline at the end."""
    lines: list[str] = []
    if module.version:
        lines.append(f".version {module.version}")
    if module.target:
        lines.append(f".target {module.target}")
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    lines.append("")
    for item in module.items:
        if isinstance(item, Kernel):
            lines.append(print_kernel(item))
        elif isinstance(item, RawDirective):
            lines.append(item.text)
        else:
            lines.append(item.text)
    lines.append("")
    return "\n".join(lines)


def print_kernel(kernel: Kernel) -> str:
    """An entry, function or declaration as PTX text, without a newline at its end."""
    head = _header(kernel)
    if kernel.is_declaration:
        return f"{head};"
    lines = [head, "{"]
    lines += [f"\t{declaration.text}" for declaration in kernel.declarations if _is_needed(declaration)]
    _body(kernel, lines)
    lines.append("}")
    return "\n".join(lines)


def _is_needed(declaration: object) -> bool:
    return getattr(declaration, "count", None) != 0


def _body(kernel: Kernel, lines: list[str]) -> None:
    loc: Loc | None = None
    printed: set[Loc] = set()
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
            form = instr.form
            if instr.is_directive or form.is_call:
                add(f"\t{instr.text}")
                continue
            operands = ", ".join([operand.text for operand in instr.operands])
            text = f"{form.text} {operands}" if operands else form.text
            add(f"\t{text};" if instr.guard is None else f"\t{instr.guard.text} {text};")


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
