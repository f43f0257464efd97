"""Writes docs/opcodes.md from the opcode table: ``python docs/opcode_page.py``. A test keeps the page current."""

from __future__ import annotations

from pathlib import Path

from ptxmotion.ptx import ROWS, Effect, Op

PAGE = Path(__file__).with_name("opcodes.md")

_HEAD = """# Opcodes

Every row of the opcode table (`ptx/ops.py`), in the order in which rows are tried. `python docs/opcode_page.py`
writes this page.

| column | meaning |
| --- | --- |
| row | the mnemonic and its operands, in the notation of `ptx/notation.py` |
| operation | the class of the operation (`ptx/operations.py`), by which analyses decide; empty: the worst is expected |
| result points into | what the result points into if operands are pointers; empty: unknown |
| effects | what prevents moving or removing the instruction; without effects, it only computes a value |
| divergence | how the result differs between lanes |
| emulated | the function of the emulator; `—`: refused; `*`: the manual gives an error bound, no value |
| cost | the weight in code motion |

An instruction that no row fits is *opaque*: it is kept, it has every effect, nothing moves across it, and one remark
names it. So are 256-bit stores that skip elements of their vector (`_`), addresses with `.unified`, negated operands of
`vmad`, and unknown directives of a body. A register plus a constant outside of brackets (`%r1+4`, `%laneid+1`) becomes
an addition in front of the instruction. Where there is no such addition, as for a special register that is an operand
of a floating-point instruction, the instruction is opaque.

`tests/property/test_table_against_ptxas.py` generates instructions of every family of PTX ISA 9.0
(`--fuzz-n=300`: some 40,000 for sm_90a, 100a, 103a and 120a). Each instruction that ptxas 13.0 accepts is parsed,
verified, printed unchanged, and known.

`ptxmotion verify --round-trip FOLDER` parses and prints every PTX file below a folder; ptxas assembles both. Of 1,528
public files (26 suites and producers: nvcc for sm_75 to sm_120a, with `-lineinfo` and `-G`, NVRTC, clang, LLVM, Triton,
Numba, PTX 1.0 to 9.4; not part of this repository) 1,504 parse; ptxas also refuses the other 24, which are other
languages or use undeclared names. ptxas accepts 1,380 files as they are, 25 of these for linking, and **all 1,380 as
printed, with the same bytes of code, constants and data**.

| row | operation | result points into | effects | divergence | emulated | cost |
| --- | --- | --- | --- | --- | --- | --- |
"""

_NAMES = {
    value: name.lower().replace("_", " ")
    for name, value in vars(Effect).items()
    if isinstance(value, int) and value.bit_count() == 1
}


def _effects(effects: int) -> str:
    return ", ".join(name for bit, name in sorted(_NAMES.items()) if effects & bit)


def _known(value: str) -> str:
    return "" if value == "unknown" else value


def _row(op: Op) -> str:
    pattern = op.pattern.replace("|", "\\|")
    types = f" ({op.types})" if op.types else ""
    emulated = f"`{op.semantics}`{'*' if op.approximate else ''}" if op.semantics else "—"
    cells = (
        f"`{pattern}`{types}",
        _known(op.operation),
        _known(op.pointers),
        _effects(op.effects),
        op.divergence,
        emulated,
        str(op.cost),
    )
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page as Markdown."""
    return _HEAD + "\n".join(_row(op) for op in ROWS) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
