"""The largest power of two that certainly divides an address.

Computes: for a reference, from the affine form of its base: the alignment of the variable or pointer parameter in it,
and the factors and known low bits of its indices. The alignment of a parameter comes from the PTX: ``.ptr .align 16``,
or 4 for ``.ptr`` without ``.align``. PTX does not state that memory from ``cudaMalloc`` is aligned to 256 bytes; a
caller may assume that with ``assumed``. It applies only to a pointer: a parameter with factor 1 that is the only one in
the address. A parameter with another factor, one of two parameters, or one without ``.ptr`` beside others with ``.ptr``
may be an integer. `Promise.aligned` promises what single parameters are multiples of, also integers.

Requires: value numbers, SSA view. Guarantees: in every execution the address is a multiple of the result, if the
``.ptr`` attributes and the promise are true.
Reference: PTX ISA 9.0, §11.2 (kernel parameter attributes).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ...ptx import Instr, Param, Reg, Sym, Variable
from ...ptx.operations import ADDRESS_CONVERSIONS, Operation
from ..effects import is_call_parameter
from ..memory.alias import Promise, Reference
from ..memory.points_to import is_pointer_parameter
from ..memory.speculation import Bounds
from .divisors import Divisors

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["Alignments"]

#: A page in bytes: more than any access needs.
_MOST = 1 << 12
#: The opcodes that give the address of a parameter's buffer.
_SOURCES = ADDRESS_CONVERSIONS | {Operation.LOAD}
_ALIGN = re.compile(r"\.align\s+(\d+)")


class Alignments:
    """The alignment of references of one kernel, under ``promise`` instead of that of the facts if it is given."""

    def __init__(self, facts: Facts, promise: Promise | None = None) -> None:
        self.facts = facts
        self._promise = facts.promise if promise is None else promise
        self._divisors: Divisors | None = None
        self.values = facts.values
        self._bounds = facts.get(Bounds)
        #: By the value number of a pointer parameter: its alignment in bytes.
        self._of_param: dict[int, int] = {}
        #: The value numbers that are certainly pointers.
        self._is_pointer: set[int] = set()
        self._find_parameters()

    def of(self, reference: Reference, assumed: int = 1) -> int:
        """The largest power of two, up to a page, that is known to divide the address. ``assumed``: an alignment in
        bytes that is assumed for pointer parameters."""
        terms, width = ((reference.base, 1),), 64
        for bits in (64, 32):
            form = self.values.affine_of(reference.base, bits)
            if form.single_atom is None:
                terms, width = form.terms, bits
                break
        symbols = {
            self.values.of_symbol(Sym(each.name, each)): each.align or each.type.bytes * each.lanes
            for each in reference.objects or ()
            if isinstance(each, Variable)
        }
        divisor_of_address = math.gcd(_MOST, reference.offset)
        starts = [number for number, factor in terms if factor == 1 and (number in symbols or number in self._of_param)]
        for number, coefficient in terms:
            divisor = symbols.get(number) or self._of_param.get(number)
            if divisor is None:
                divisor = max(self._bounds.divisor(number, width), self._divisor(number))
            elif number in self._is_pointer and starts == [number]:
                divisor = max(divisor, assumed)
            divisor_of_address = math.gcd(divisor_of_address, coefficient * divisor)
        return divisor_of_address & -divisor_of_address

    def _divisor(self, number: int) -> int:
        """A number that divides each value of a class, found from their definitions. This takes time, so without a
        promise of alignment the result is 1."""
        if not self._promise.aligned:
            return 1
        if self._divisors is None:
            self._divisors = Divisors(self.facts, self._promise)
        return self._divisors.of(number)

    def _find_parameters(self) -> None:
        """Find the classes of pointer parameters, both loaded and after ``cvta``."""
        facts, ssa = self.facts, self.facts.ssa
        if not facts.kernel.is_entry:
            return
        bits = facts.memory.pointees.address_bits
        is_marked = any(".ptr" in param.attributes.split() for param in facts.kernel.params or ())
        for block in facts.cfg.rpo:
            for instr in facts.cfg.blocks[block].instrs:
                operation = instr.form.operation
                if operation not in _SOURCES or instr.guard is not None:
                    continue
                defs = instr.defs()
                if len(defs) != 1:
                    continue
                number = self.values.number[ssa.defined(instr, defs[0])]
                if operation is Operation.LOAD and instr.form.space == "param" and not is_call_parameter(instr):
                    address = instr.address
                    param = address.base.declaration if address is not None and isinstance(address.base, Sym) else None
                    is_whole = instr.form.type is not None and instr.form.type.bits == bits
                    if isinstance(param, Param) and is_whole and _is_start(instr) and is_pointer_parameter(param, bits):
                        promised = self._promise.alignment(facts.kernel.name, param.name)
                        self._of_param[number] = max(_stated(param), promised)
                        if not is_marked or ".ptr" in param.attributes.split():
                            self._is_pointer.add(number)
                elif operation in ADDRESS_CONVERSIONS and isinstance(instr.operands[1], Reg):
                    source = self.values.of_register(instr, instr.operands[1])
                    if source in self._of_param:
                        self._of_param[number] = self._of_param[source]
                        self._is_pointer.add(number)  # a converted address is a pointer


def _is_start(load: Instr) -> bool:
    """Whether a load begins where its parameter begins. What follows a parameter is another one."""
    address = load.address
    return address is not None and isinstance(address.base, Sym) and not address.offset + address.base.offset


def _stated(param: Param) -> int:
    """The alignment in bytes that the PTX states for the memory to which a parameter points."""
    words = param.attributes.split()
    if ".ptr" not in words:
        return 1
    match = _ALIGN.search(param.attributes)
    return int(match[1]) if match else 4
