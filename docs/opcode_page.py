"""Writes docs/opcodes.md from the opcode table: ``python docs/opcode_page.py``. A test keeps the page current."""

from __future__ import annotations

from pathlib import Path

from ptxmotion.ptx import ROWS, Effect, Op

PAGE = Path(__file__).with_name("opcodes.md")

_HEAD = """# Opcodes

Every row of the opcode table (`ptx/ops.py`), in the order in which rows are tried. `python docs/opcode_page.py`
makes this page.
The notation is that of `ptx/notation.py`. *Effects* are what keeps an instruction from being moved or removed; a row
without one computes a value from its operands and nothing else. *Emulated* names the function that the emulator
runs, `—` where it refuses the opcode; an asterisk marks rows for which the manual gives an error bound instead of a
value. *Cost* is the weight that code motion gives it.

| row | effects | divergence | emulated | cost |
| --- | --- | --- | --- | --- |
"""

_NAMES = {
    value: name.lower().replace("_", " ")
    for name, value in vars(Effect).items()
    if isinstance(value, int) and value.bit_count() == 1
}


def _effects(effects: int) -> str:
    return ", ".join(name for bit, name in sorted(_NAMES.items()) if effects & bit)


def _row(op: Op) -> str:
    pattern = op.pattern.replace("|", "\\|")
    types = f" ({op.types})" if op.types else ""
    emulated = f"`{op.semantics}`{'*' if op.approximate else ''}" if op.semantics else "—"
    return f"| `{pattern}`{types} | {_effects(op.effects)} | {op.divergence} | {emulated} | {op.cost} |"


def page() -> str:
    """The page as Markdown."""
    return _HEAD + "\n".join(_row(op) for op in ROWS) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
