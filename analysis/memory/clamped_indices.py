"""Loads whose index is clamped to the extent of their buffer.

A version of a kernel may have a *limit*: a parameter of 32 bits whose value the launch computes from the extent of a
buffer (`Limit`). The address ``pointer + stride · extended(min.u32(index, limit))`` plus a constant inside the element
lies in the buffer for any index. So the load cannot fault, wherever it is executed.

Computes: the limit of a reference. It is recognized by value numbers, so also where a pass has computed the address
again at another place.

Requires: each limit is a parameter of the kernel of type ``.u32`` that is not written. Guarantees: if the launch gives
each limit its value, all bytes of a reference that has a limit lie in the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...ptx import Param, Reg, Sym
from ..values.polynomial import constant
from .access_ranges import AccessRanges
from .assumptions import Limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..manager import Facts
    from .alias import Reference

__all__ = ["CLAMP", "ClampedIndices", "Indexed", "index_of"]

#: The opcode that clamps an index.
CLAMP = "min.u32"

#: An address as (class of the pointer, class of the index of 32 bits, stride, ``s`` or ``u``): the pointer plus the
#: stride times the index, which is extended as a signed or as an unsigned number.
Indexed = tuple[int, int, int, str]


def index_of(facts: Facts, reference: Reference) -> Indexed | None:
    """The base of a reference, if it is the sum of a pointer and of one index of 32 bits times a constant."""
    form = facts.values.affine_of(reference.base, 64)
    if form.constant or len(form.terms) != 2:
        return None
    for (pointer, one), (extended, stride) in (form.terms, form.terms[::-1]):
        key = facts.values.key_of(extended)
        if one != 1 or not 0 < stride < 1 << 31 or key[0] != "extend" or key[2:4] != (32, 64) or key[1] not in ("s", "u"):
            continue
        return pointer, cast("int", key[4]), stride, cast("str", key[1])
    return None


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
        indexed = index_of(self._facts, reference)
        limit = self._limit_of.get(indexed[1]) if indexed is not None else None
        if indexed is None or limit is None or (limit.stride, limit.kind) != indexed[2:]:
            return None
        if reference.objects != frozenset[Param]([self._params[limit.pointer]]) or not limit.contains(reference):
            return None
        return limit if self._is_pointer(indexed[0], limit.pointer) else None

    def _is_pointer(self, number: int, pointer: int) -> bool:
        """Whether a class of values is that of a pointer parameter."""
        ranges = self._facts.get(AccessRanges)
        address = ranges.address(number)
        return address is not None and ranges.pointer_in(address) == (pointer, constant(0))

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
