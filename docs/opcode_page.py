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

What no row fits stays as it is: it is opaque, has every effect, nothing moves across it, and one remark names it. So do
a 256-bit store that skips elements of its vector (`_`), addresses with `.unified`, negated operands of `vmad`, and
unknown directives of a body. A register plus a constant outside of brackets (`%r1+4`, `%laneid+1`) becomes an addition
in front of the instruction; where there is none, as for a special register as an operand of a floating-point
instruction, the instruction stays opaque.

`tests/property/test_table_against_ptxas.py` draws instructions of every family of PTX ISA 9.0 (`--fuzz-n=300`: some
40,000 for sm_90a, 100a, 103a and 120a), lets ptxas 13.0 judge them, and finds that what ptxas takes is read,
verified, printed as it was, and known.

`ptxmotion verify --round-trip FOLDER` parses and prints every PTX file below a folder; ptxas assembles both. Of 1,528
public files (26 suites and producers: nvcc for sm_75 to sm_120a, with `-lineinfo` and `-G`, NVRTC, clang, LLVM, Triton,
Numba, PTX 1.0 to 9.4; not part of this repository) 1,504 parse; ptxas refuses the other 24 as well, which are other
languages or name what they do not declare. ptxas accepts 1,380 of them as they are, 25 of these to be linked, and **all
1,380 as printed, with the same bytes of code, constants and data**.

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
