"""The tests in front of the copies of a kernel: is this block in the interior, or at one edge of it?

Computes: instructions that evaluate the conditions of an `Interior` in signed arithmetic of 64 bits, and a predicate
that is true if all of them hold. The instructions read only ``%ctaid``, ``%ntid``, ``%nctaid`` and parameters, so the
predicate is the same for all threads of a block.

Requires: conditions whose terms `BlockBounds` has limited, so that no sum overflows. A wide parameter is compared with
its limits before anything else could use it; where it is beyond them, other comparisons may overflow, but the predicate
is false.
"""

from __future__ import annotations

from ...analysis.interior.block_bounds import WIDE, BlockBounds, Needs
from ...analysis.values.polynomial import Atom, Monomial, Poly
from ...ptx import Block, Kernel, Operand, Reg, Sym
from ...ptx.builder import Builder, address

__all__ = ["InteriorTest"]


class InteriorTest:
    """Emits the tests of one kernel. A test uses the values of those before it, so its block must be behind theirs."""

    def __init__(self, kernel: Kernel, bounds: BlockBounds) -> None:
        self.b = Builder(kernel, Block(), hint="%isp")
        self.kernel = kernel
        self.bounds = bounds
        #: By product of atoms: its value in 64 bits.
        self.products: dict[Monomial, Reg] = {}
        #: By atom: its value in 32 bits.
        self.words: dict[Atom, Reg] = {}
        #: By sum without constant: its value.
        self.sums: dict[Poly, Reg] = {}

    def emit(self, block: Block, needs: Needs) -> Reg:
        """Append a test to ``block``; the register of its predicate. The sign of the ``or`` of all conditions is that
        of a negative one, if there is any."""
        b = self.b = Builder(self.kernel, block, hint="%isp")
        are_small: Reg | None = None
        for atom in sorted(needs.wide):
            value = self._product((atom,))
            for relation, limit in (("ge", -WIDE), ("le", WIDE)):
                holds = b.new_reg("pred")
                if are_small is None:
                    b.emit(f"setp.{relation}.s64", holds, value, limit)
                else:
                    b.emit(f"setp.{relation}.and.s64", holds, value, limit, are_small)
                are_small = holds
        values = [self._sum(condition) for condition in needs.conditions]
        total = values[0]
        for value in values[1:]:
            total = _made(b.or_("b64", total, value))
        holds = b.new_reg("pred")
        if are_small is None:
            b.emit("setp.ge.s64", holds, total, 0)
        else:
            b.emit("setp.ge.and.s64", holds, total, 0, are_small)
        return holds

    def _sum(self, form: Poly) -> Reg:
        """The value of a condition. Sums without its constant are shared with other conditions."""
        rest = form - form.value
        total = self.sums.get(rest)
        if total is None:
            total = self.sums[rest] = self._terms(rest)
        return _made(self.b.add("s64", total, form.value)) if form.value else total

    def _terms(self, form: Poly) -> Reg:
        total: Reg | None = None
        # Positive terms first, so that the others can be subtracted.
        for monomial, factor in sorted(form, key=lambda term: term[1] < 0):
            value = self._product(monomial)
            if abs(factor) != 1:
                value = _made(self.b.mul("lo.s64", value, abs(factor)))
            if total is None:
                total = value if factor > 0 else _made(self.b.neg("s64", value))
            else:
                total = _made(self.b.add("s64", total, value) if factor > 0 else self.b.sub("s64", total, value))
        assert total is not None, "a condition without atoms"
        return total

    def _product(self, monomial: Monomial) -> Reg:
        found = self.products.get(monomial)
        if found is None:
            found = self.products[monomial] = self._make_product(monomial)
        return found

    def _make_product(self, monomial: Monomial) -> Reg:
        if len(monomial) == 1:
            atom = monomial[0]
            if self.bounds.is_wide(atom):
                return self._param(atom, 64)
            word = self._word(atom)
            return _made(self.b.cvt("s64.s32" if atom.kind == "param" else "u64.u32", word))
        if len(monomial) == 2 and all(atom.kind != "param" for atom in monomial):
            return _made(self.b.mul("wide.u32", self._word(monomial[0]), self._word(monomial[1])))
        return _made(self.b.mul("lo.s64", self._product(monomial[:-1]), self._product(monomial[-1:])))

    def _word(self, atom: Atom) -> Reg:
        found = self.words.get(atom)
        if found is None:
            if atom.kind == "param":
                found = self._param(atom, 32)
            else:
                found = _made(self.b.mov("u32", self.b.special(f"%{atom.name}")))
            self.words[atom] = found
        return found

    def _param(self, atom: Atom, bits: int) -> Reg:
        name, _, offset = atom.name.partition("+")
        param = next(each for each in self.kernel.params or () if each.name == name)
        return _made(self.b.ld(f"param.u{bits}", address(Sym(name, param), int(offset or 0))))


def _made(result: Operand | None) -> Reg:
    assert isinstance(result, Reg)
    return result
