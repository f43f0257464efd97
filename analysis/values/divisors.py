"""The number of lowest bits of a value that are 0 in every execution.

Computes: for each SSA value of an integer register, a greatest fixpoint: every value is 0 at first, and each step takes
away the bits that a definition may set, by the rules of `divergence.varying_bits`. So the counter of a loop that begins
at 0 and grows by 4 is a multiple of 4. The promise of the user adds what parameters are multiples of
(`Promise.aligned`).

Requires: the SSA view, the promise. Guarantees: in every execution for which the promise is true, the value is a
multiple of `of`, as an unsigned number of the width of its register.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ...ptx import Instr, Param, Reg, Sym
from ...ptx.operations import ADDRESS_CONVERSIONS, Operation
from ..divergence.sources import Sources
from ..divergence.varying_bits import Bits
from ..divergence.varying_values import ValueBits
from ..effects import is_call_parameter

if TYPE_CHECKING:
    from ..manager import Facts
    from ..memory.alias import Promise

__all__ = ["Divisors", "parameter_of"]


#: The largest power of two that an affine value can be found to be a multiple of.
_MOST = 1 << 32


def parameter_of(instr: Instr) -> Param | None:
    """The parameter of the kernel of which this instruction loads all bytes into its only result."""
    if instr.form.operation is not Operation.LOAD or instr.form.space != "param" or instr.guard is not None:
        return None
    address, scalar = instr.address, instr.form.type
    if address is None or scalar is None or address.offset or len(instr.defs()) != 1 or is_call_parameter(instr):
        return None
    base = address.base
    param = base.declaration if isinstance(base, Sym) and not base.offset else None
    is_whole = isinstance(param, Param) and param.bytes == scalar.bytes and scalar.kind in "usb"
    return param if is_whole and isinstance(param, Param) else None


class Divisors(ValueBits):
    """The zero bits of the values of one kernel. A value is solved when it is asked for, with those from which it is
    computed. ``_zeros`` has, by SSA value, the number of its lowest bits that are 0."""

    def __init__(self, facts: Facts, promise: Promise) -> None:
        super().__init__(facts.values.ssa, Sources(facts.kernel, facts.shape, are_lanes_together=False))
        self._facts = facts
        self._promise = promise
        self._numbers = facts.values.number
        self._zeros = dict.fromkeys(self.ssa.undefined, 0)
        #: By value number: a value of it.
        self._value_of: dict[int, int] = {}
        for value, number in enumerate(self._numbers):
            self._value_of.setdefault(number, value)

    def of(self, number: int) -> int:
        """A power of two that divides every value of a class: at least 1."""
        key = self._facts.values.key_of(number)
        if key[0] == "extend" and isinstance(key[-1], int):
            return self.of(key[-1])  # an extension keeps the lowest bits
        value = self._value_of.get(number)
        if value is None and key[0] == "affine":
            _, _, constant, terms = cast("tuple[str, int, int, tuple[tuple[int, int], ...]]", key)
            divisor = math.gcd(_MOST, constant, *(factor * self.of(atom) for atom, factor in terms))
            return divisor & -divisor
        if value is None:
            return 1
        if value not in self._zeros:
            self._solve(value)
        return 1 << self._zeros[value]

    def known(self, value: int, depth: int = 0) -> Bits:
        """The bits that are known in the present state of the solution."""
        return Bits(0, (1 << self._zeros[value]) - 1)

    def _solve(self, start: int) -> None:
        """Find the zero bits of a value and of all from which it is computed: the greatest solution."""
        readers: dict[int, list[int]] = {start: []}
        found = [start]
        for value in found:
            for source in self._sources_of(value):
                if source not in self._zeros:
                    if source not in readers:
                        readers[source] = []
                        found.append(source)
                    readers[source].append(value)
        registers = self.ssa.reg
        for value in found:
            self._zeros[value] = registers[value].type.bits * registers[value].lanes
        work, waiting = found, set(found)  # the last one is one of those that are computed first
        while work:
            value = work.pop()
            waiting.discard(value)
            zeros = self._zeros[value]
            if zeros and (fewer := self._transfer(value)) < zeros:
                self._zeros[value] = fewer
                work += {*readers[value]} - waiting
                waiting.update(readers[value])

    def _sources_of(self, value: int) -> Iterable[int]:
        """The values that a value is computed from."""
        instr = self.ssa.instr[value]
        if instr is None:
            return [argument for _, argument in self.ssa.phi_args.get(value, ())]
        return [self.ssa.read(instr, reg) for reg in instr.uses()]

    def _transfer(self, value: int) -> int:
        """The number of zero bits of a value by its definition."""
        instr = self.ssa.instr[value]
        if instr is None:
            return min((self._zeros[argument] for _, argument in self.ssa.phi_args.get(value, ())), default=0)
        if value in self.ssa.old or self.ssa.reg[value].lanes != 1 or len(instr.defs()) != 1:
            return 0
        if instr.form.operation in ADDRESS_CONVERSIONS:
            source = instr.operands[1]
            return self._zeros[self.ssa.read(instr, source)] if isinstance(source, Reg) else 0
        param = parameter_of(instr)
        if param is not None:
            return _lowest_zeros(self._promise.alignment(self._facts.kernel.name, param.name))
        bits = self.precise(instr, None, 1)
        return 0 if bits is None else min(_lowest_zeros(~bits.zero & self.mask(value)), self._zeros[value])


def _lowest_zeros(number: int) -> int:
    """The number of lowest bits of a number that are 0; 64 for 0."""
    return (number & -number).bit_length() - 1 if number else 64
