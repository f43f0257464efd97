"""The decoding of mnemonics by the opcode table.

Guarantees: `decode` never fails. A mnemonic that no row fits becomes an opaque form. That has every effect, so nothing
moves across it.
Requires: `ops.py`, `notation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from .notation import Effect, Form, Op, decode_with
from .operands import SINK, Mem, Operand, Vec
from .operations import Operation
from .ops import ROWS

__all__ = ["decode", "form_of", "may_skip_elements", "opaque_form"]

_OPAQUE = Op("opaque{.*} ...", effects=Effect.ALL, divergence="source", cost=20)


def _rows_by_base() -> dict[str, list[Op]]:
    rows: dict[str, list[Op]] = {}
    for row in ROWS:
        rows.setdefault(row.base, []).append(row)
    return rows


_BY_BASE = _rows_by_base()
_FORMS: dict[tuple[str, int], Form] = {}


def decode(mnemonic: str, arity: int = -1) -> Form:
    """The form of ``mnemonic`` with ``arity`` operands; -1 if their number is not known. Some rows differ only in it.

    Never fails: the form is opaque if no row fits.

    >>> decode("mul.wide.s32").op.name, decode("ld.global.nc.v4.f32").lanes, decode("zap.u32").is_opaque
    ('mul.wide', 4, True)
    """
    key = (mnemonic, arity)
    form = _FORMS.get(key)
    if form is None:
        form = _FORMS[key] = _decode(mnemonic, arity)
    return form


def _decode(mnemonic: str, arity: int) -> Form:
    base, *words = mnemonic.split(".")
    first: Form | None = None
    for row in _BY_BASE.get(base, ()):
        form = decode_with(row, mnemonic, words)
        if form is not None:
            if arity < 0 or _takes(row, arity):
                return form
            first = first or form
    if first is not None:
        return first
    return opaque_form(mnemonic)


@cache
def opaque_form(mnemonic: str) -> Form:
    """An opaque form of ``mnemonic``, even if a row fits: for instructions with operands that are not understood."""
    words = frozenset(mnemonic.split(".")[1:])
    return Form(mnemonic, _OPAQUE, {}, words, None, Effect.ALL, 0, is_opaque=True, inout=True)


def form_of(mnemonic: str, operands: Sequence[Operand]) -> Form:
    """The form of ``mnemonic`` with these operands.

    Unlike `decode`, this looks at the operands. Some opcodes have rows with and without a result; a row whose result
    would be an address does not fit. A store that skips elements of its vector is opaque, because it does not write a
    contiguous range of bytes.

    >>> from ptxmotion.ptx import Imm
    >>> form_of("mbarrier.arrive.b64", [Mem(Imm(0)), Imm(1)]).dst_count
    0
    """
    form = decode(mnemonic, len(operands))
    if may_skip_elements(form) and any(isinstance(part, Vec) and SINK in part.elements for part in operands):
        return opaque_form(mnemonic)
    if not _has_address_as_result(form, operands):
        return form
    base, *words = mnemonic.split(".")
    for row in _BY_BASE.get(base, ()):
        other = decode_with(row, mnemonic, words)
        if other is not None and _takes(row, len(operands)) and not _has_address_as_result(other, operands):
            return other
    return form if not form.op.wildcard else opaque_form(mnemonic)


def may_skip_elements(form: Form) -> bool:
    """Whether the form is a store of 256 bits. It does not write the bytes of an element that is a sink ``_``.

    >>> may_skip_elements(decode("st.global.v8.f32")), may_skip_elements(decode("st.global.v4.f32"))
    (True, False)
    """
    return form.operation is Operation.STORE and form.type is not None and form.lanes * form.type.bits == 256


def _has_address_as_result(form: Form, operands: Sequence[Operand]) -> bool:
    return any(isinstance(operand, Mem) for operand in operands[: form.dst_count])


def _takes(row: Op, arity: int) -> bool:
    least = sum(not spec.optional for spec in row.operands)
    return least <= arity and (row.variadic or arity <= len(row.operands))
