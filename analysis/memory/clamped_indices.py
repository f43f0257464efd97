"""Loads whose index is clamped to the extents of their buffers.

A version of a kernel may have a *limit*: a parameter of 32 bits whose value the launch computes from the extents of
buffers (`Limit`). The address ``start + stride · extended(min.u32(index, limit))`` plus a constant inside the element
lies in the buffer for any index, where ``start`` is a pointer parameter plus a number that the launch knows. So the
load cannot fault, wherever it is executed.

Computes: the limit of a reference. It is recognized by value numbers, so also where a pass has computed the address
again at another place.

Requires: each limit is a parameter of the kernel of type ``.u32``. Guarantees: if the launch gives each limit its
value, and `versions.clamped.limit_conditions` hold, all bytes of a reference that has a limit lie in the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...ptx import Param, Reg, Sym
from ..values.affine import Affine
from .access_ranges import AccessRanges
from .wide_loads import wide_loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..manager import Facts
    from .alias import Reference
    from .assumptions import Limit

__all__ = ["CLAMP", "ClampedIndices", "Indexed", "indices_of"]

#: The opcode that clamps an index.
CLAMP = "min.u32"


@dataclass(frozen=True, slots=True)
class Indexed:
    """The base of an address as ``start + stride · extended(index)``. ``start`` and ``index`` are classes of values;
    the index has 32 bits and is extended as a signed (``s``) or as an unsigned number (``u``). ``bits``: 64 if the
    class is that of the extended index, because a load has extended it."""

    start: int
    index: int
    stride: int
    kind: str
    bits: int = 32


def indices_of(facts: Facts, reference: Reference) -> Iterator[Indexed]:
    """All ways to write the base of a reference as such a sum."""
    values, loads = facts.values, facts.get(wide_loads)
    form = values.affine_of(reference.base, 64)
    for number, (extended, stride) in enumerate(form.terms):
        key = values.key_of(extended)
        is_extended = key[0] == "extend" and key[2:4] == (32, 64) and key[1] in ("s", "u")
        if len(form.terms) < 2 or not 0 < stride < 1 << 31 or not (is_extended or extended in loads):
            continue
        rest = values.of_affine(Affine(64, form.constant, form.terms[:number] + form.terms[number + 1 :]))
        if is_extended:
            yield Indexed(rest, cast("int", key[4]), stride, cast("str", key[1]))
        else:
            yield Indexed(rest, extended, stride, loads[extended], 64)


class ClampedIndices:
    """The references of one kernel that have a limit. ``limits``: those of the kernel."""

    def __init__(self, facts: Facts, limits: Iterable[Limit]) -> None:
        self._facts = facts
        self._by_name = {limit.name: limit for limit in limits}
        self._params = list(facts.kernel.params or ())
        #: By class of an index that is clamped: its limit.
        self._limit_of: dict[int, Limit] = {}
        if self._by_name:
            self._find()

    def limit_of(self, reference: Reference) -> Limit | None:
        """The limit that keeps ``reference`` in its buffer; ``None`` if there is none."""
        if not self._limit_of or reference.space not in ("global", "generic"):
            return None
        for indexed in indices_of(self._facts, reference):
            limit = self._limit_of.get(indexed.index)
            start = self._facts.get(AccessRanges).shifted_pointer(indexed.start) if limit is not None else None
            if limit is None or start is None or reference.objects != frozenset[Param]([self._params[start[0]]]):
                continue
            for each in limit.buffers:
                place = (each.pointer, each.shift, each.stride, each.kind)
                if place == (*start, indexed.stride, indexed.kind) and each.contains(reference):
                    return limit
        return None

    def _find(self) -> None:
        values = self._facts.values
        loaded: dict[int, Limit] = {}
        for instr in self._facts.kernel.instructions():
            address = instr.address
            if instr.form.space == "param" and address is not None and isinstance(address.base, Sym):
                limit = self._by_name.get(address.base.name)
                if limit is not None and not address.offset and not address.base.offset and instr in values.result:
                    loaded[values.result[instr]] = limit
        for instr in self._facts.kernel.instructions():
            if instr.form.text != CLAMP or instr not in values.result:
                continue
            for operand in instr.operands[1:]:
                number = values.of_operand(instr, operand, instr.form.type) if isinstance(operand, Reg) else -1
                if number in loaded:
                    self._limit_of[values.result[instr]] = loaded[number]
