"""Which objects an address may point into.

Computes: for each SSA value the declared variables (``.shared``, ``.local``, ``.global``, ``.const``, ``alloca``) and
pointer parameters from which it is derived, over copies, sums, selections, conversions of address, φs.

An address that is derived from an object stays in it: arithmetic on the address of one object is not a way to reach
another one. That holds of every program compiled from a language with objects; a program that walks from one variable
into its neighbour is outside of it, and the emulator reports that as an access out of bounds. Two pointer *parameters*
are two names here, not two pieces of memory: what they point to may be the same, and may be a module's variable.

What is no address is an integer, and adding integers to an address changes no object. An integer is what has been
multiplied, shifted, divided, widened from 32 bits or masked to a few bits, a constant, a special register; what was
loaded from memory may be any address there is, as long as none of this has happened to it. An integer that is *used* as
an address may be any address as well: so a value keeps the mark of one through selections and φs, and loses it only by
being added to what is certainly none. A 64-bit parameter that is added to a pointer may be either, so both are named,
unless ``.ptr`` says of the kernel's parameters which ones are pointers.

Only what addresses are made of is looked at, and the rest as soon as something else is asked about.

Requires: SSA view. Guarantees: every object that the address may point into is named, or ``None`` (unknown) is the
answer. Unknown are: what is loaded, results of calls and atomics, parameters of functions, addresses in another block's
shared memory (``mapa``), addresses of parameters, registers never written, constants.
Reference: C17 §6.5.6 and LLVM's rules of pointer aliasing ("based on"); PTX ISA 9.0, §5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ...ptx import Effect, Element, Form, Imm, Instr, Kernel, Mem, Operand, Param, Reg, Special, Sym, Variable
from ...ptx.operands import Not, Pair, Vec
from ...ptx.operations import Pointers
from ...ptx.types import TYPES, is_integer_literal, literal_value
from ..effects import is_call_parameter
from ..graph.cfg import Cfg
from ..values.ssa import Ssa

__all__ = ["Object", "Objects", "Pointees", "is_pointer_parameter"]

Object = Param | Variable
Objects = frozenset[Object] | None

_NONE: frozenset[Object] = frozenset()
#: Stands for what an integer points into that is taken for an address.
_ANYTHING = Variable("what an integer points into", "none", TYPES["b8"])
_INTEGER_VALUE: frozenset[Object] = frozenset([_ANYTHING])
#: Stands for what the constant 0 points to. Nobody reads there, but a value that may be 0 may be an integer in a sum.
_NOTHING = Variable("nothing", "none", TYPES["b8"])
_NULL_VALUE: frozenset[Object] = frozenset([_NOTHING])
_MARKS = _INTEGER_VALUE | _NULL_VALUE

_TOUCHES = Effect.READ | Effect.WRITE
#: The constant that points nowhere.
_NULL = frozenset(["0", "0x0", "0U", "0x0U"])
#: A mask of fewer bits than this leaves no address.
_SMALL_MASK = 1 << 16


def is_pointer_parameter(param: Param, address_bits: int) -> bool:
    """Whether the parameter can be a pointer as it stands: one integer as wide as an address."""
    return not param.dims and param.lanes == 1 and param.type.bits == address_bits and not param.type.is_float


class Pointees:
    """What the values of one kernel may point into. ``address_bits`` is the module's size of an address."""

    def __init__(self, kernel: Kernel, cfg: Cfg, ssa: Ssa, late: frozenset[Reg], address_bits: int) -> None:
        self.kernel = kernel
        self.ssa = ssa
        self.address_bits = address_bits
        self._late = late
        self._params = frozenset(kernel.params or ()) if kernel.is_entry else frozenset[Param]()
        self._is_marked = any(".ptr" in param.attributes.split() for param in self._params)
        self._cfg = cfg
        self._version = kernel.version
        #: By SSA value whether `_of` tells of it; it does of those that addresses are made of.
        self._is_solved = self._make_addresses()
        #: By SSA value; ``None`` is any object.
        self._of: list[Objects] = [_NONE] * len(ssa.instr)
        #: Those in a state space among objects and marks.
        self._named: dict[tuple[frozenset[Object], str], Objects] = {}
        #: What each ``alloca`` makes, as an object of no known size.
        self._stack: dict[Instr, Variable] = {}
        self._solve()

    # --- questions -------------------------------------------------------------------------------------------------

    def of_address(self, instr: Instr, mem: Mem, space: str = "generic") -> Objects:
        """What an address of ``instr``, used in state space ``space``, points into; ``None`` if that is unknown."""
        base = mem.base
        if isinstance(base, Sym):
            declaration = base.declaration
            return frozenset([declaration]) if isinstance(declaration, Param | Variable) else None
        if not isinstance(base, Reg):
            return None
        try:
            value = self.ssa.read(instr, base)
        except KeyError:
            return None  # in a block that nothing reaches, no value is known
        if not (self._is_solved[value] or self._solve_all()):
            return None
        found = self._of[value]
        # A constant or an integer is no address that anybody knows.
        if not found or _ANYTHING in found:
            return None
        key = (found, space)
        if key not in self._named:
            self._named[key] = _fitting(found, space)
        return self._named[key]

    # --- solution --------------------------------------------------------------------------------------------------

    def _make_addresses(self) -> bytearray:
        """For each value whether an address register of the kernel holds it, or what it holds is computed from it."""
        ssa = self.ssa
        definition_of, single, old = ssa.instr, ssa.single, ssa.old
        touching = [
            instr
            for block in self._cfg.rpo
            for instr in self._cfg.blocks[block].instrs
            if instr.form.effects & _TOUCHES  # of others it is not asked what they point to
        ]
        work = [
            ssa.read(instr, operand.base)
            for instr in touching
            for operand in instr.operands
            if type(operand) is Mem and type(operand.base) is Reg
        ]
        found = bytearray(len(definition_of))
        while work:
            value = work.pop()
            if found[value]:
                continue
            found[value] = 1
            instr = definition_of[value]
            if instr is None:
                work += [argument for _, argument in ssa.phi_args.get(value, ())]
                continue
            if value in old:
                work.append(old[value])
            if _kind(instr.form) not in _LEAVES:
                for reg in instr.uses():
                    if reg.type.kind != "p":
                        read = single[reg] if reg in single else ssa.read(instr, reg)
                        if not found[read]:
                            work.append(read)
        return found

    def _solve_all(self) -> bool:
        """Find out about all values, since one is asked about of which no address is made; whether that can be
        done: the values are those of the code as it was at first."""
        if self.kernel.version != self._version:
            return False
        self._is_solved = bytearray(b"\1" * len(self._of))
        self._of = [_NONE] * len(self._of)
        self._solve()
        return True

    def _solve(self) -> None:
        """Find out about the values that are to be solved. Nothing else flows into these: what is left out makes no
        difference to them, not even to the order in which they are looked at, on which marks depend."""
        ssa, of, cfg, is_solved = self.ssa, self._of, self._cfg, self._is_solved
        for value in ssa.undefined:
            of[value] = None  # never written: nothing is known of it
        single, old = ssa.single, ssa.old
        definitions = {instr for instr, is_asked in zip(ssa.instr, is_solved, strict=True) if is_asked}
        again: list[tuple[Instr | None, int]] = []
        for block in cfg.rpo:
            for phi in ssa.phis[block]:
                if is_solved[phi]:
                    found = of[phi] = self._evaluate(None, phi)
                    if found is not None:  # what is unknown already will not change
                        again.append((None, phi))
            for instr in [each for each in cfg.blocks[block].instrs if each in definitions]:
                for reg in instr.defs():
                    value = single[reg] if reg in single else ssa.defined(instr, reg)
                    if is_solved[value]:
                        found = self._evaluate(instr, value) if value in old else self._definition(instr)
                        of[value] = found
                        if found is not None and (found or self._may_grow(instr)):
                            again.append((instr, value))
        self._settle(again)

    def _settle(self, again: list[tuple[Instr | None, int]]) -> None:
        """Go round over ``again`` until nothing changes, past what reads nothing that has changed since."""
        of = self._of
        # All that a definition reads was found before it; only what comes to a φ over a back edge was not.
        is_due = bytearray(instr is None for instr, _ in again)
        readers: dict[int, list[int]] | None = None
        place = is_due.find(1)
        while place >= 0:
            is_due[place] = 0
            instr, value = again[place]
            known = of[value]
            if known is not None:
                found = _union(self._evaluate(instr, value), known)  # a mark once made stays, so this ends
                if found != known:
                    of[value] = found
                    if readers is None:
                        readers = self._readers(again)
                    for reader in readers.get(value, ()):
                        is_due[reader] = 1
            place = is_due.find(1, place + 1)
            if place < 0:
                place = is_due.find(1)

    def _readers(self, definitions: list[tuple[Instr | None, int]]) -> dict[int, list[int]]:
        """By value, the places of the definitions that read it."""
        ssa = self.ssa
        readers: dict[int, list[int]] = {}
        for place, (instr, value) in enumerate(definitions):
            if instr is None:
                reads = [argument for _, argument in ssa.phi_args.get(value, ())]
            else:
                reads = [ssa.read(instr, reg) for reg in instr.uses()]
                if value in ssa.old:
                    reads.append(ssa.old[value])
            for read in reads:
                readers.setdefault(read, []).append(place)
        return readers

    def _may_grow(self, instr: Instr) -> bool:
        return any(isinstance(operand, Reg | Vec | Pair) for operand in instr.srcs)

    def _evaluate(self, instr: Instr | None, value: int) -> Objects:
        of = self._of
        if instr is None:
            found = _NONE
            for _, argument in self.ssa.phi_args.get(value, ()):
                other = of[argument]
                if other is None:
                    return None
                if other is not found and not other <= found:
                    found = found | other
            return found
        found = self._definition(instr)
        old = self.ssa.old.get(value)
        if old is None or found is None:
            return found
        kept = of[old]
        return None if kept is None else found | kept

    def _definition(self, instr: Instr) -> Objects:
        kind = _kind(instr.form)
        if self._late and kind not in _INTEGER_KINDS and not self._late.isdisjoint(instr.defs()):
            return None
        return self.RULES[kind](self, instr)

    def _no_address(self, instr: Instr) -> Objects:
        return _INTEGER_VALUE

    def _made_of_all(self, instr: Instr) -> Objects:
        return self._integer(instr, instr.srcs)

    def _unknown(self, instr: Instr) -> Objects:
        return None

    def _alloca(self, instr: Instr) -> Objects:
        found = self._stack.get(instr)
        if found is None:
            found = self._stack[instr] = Variable(f"alloca at {instr.pos}", "local", TYPES["b8"], dims=(None,))
        return frozenset([found])

    def _of_another_lane(self, instr: Instr) -> Objects:
        """The value of another one has the same name."""
        return self._of_operand(instr, instr.srcs[0])

    def _widened(self, instr: Instr) -> Objects:
        found = self._of_operand(instr, instr.operands[1])
        return found if found and not found & _MARKS else _INTEGER_VALUE

    def _multiplied_and_added(self, instr: Instr) -> Objects:
        return self._sum(self._integer(instr, instr.operands[1:3]), self._of_operand(instr, instr.operands[3]))

    def _added(self, instr: Instr) -> Objects:
        sources = instr.srcs
        if len(sources) != 2:
            return self._copied(instr)
        return self._sum(self._of_operand(instr, sources[0]), self._of_operand(instr, sources[1]))

    def _masked(self, instr: Instr) -> Objects:
        sources = instr.srcs
        if any(_is_small(operand) for operand in sources):
            return _INTEGER_VALUE
        if len(sources) != 2:
            return self._copied(instr)
        left, right = (self._of_operand(instr, operand) for operand in sources)
        found = self._sum(left, right, may_narrow=False)
        # With a mask that is not known, the address may be gone.
        is_known = any(isinstance(operand, Imm) for operand in sources)
        return found if is_known else _union(found, _INTEGER_VALUE)

    def _united(self, instr: Instr) -> Objects:
        sources = instr.srcs
        if len(sources) != 2:
            return self._copied(instr)
        left, right = (self._of_operand(instr, operand) for operand in sources)
        return self._sum(left, right, may_narrow=False)

    def _subtracted(self, instr: Instr) -> Objects:
        sources = instr.srcs
        if len(sources) != 2:
            return self._copied(instr)
        left, right = (self._of_operand(instr, operand) for operand in sources)
        found = self._sum(left, right, may_narrow=False)
        may_be_integer = self._may_be(left) or not self._are_integers(right)
        return _union(found, _INTEGER_VALUE) if may_be_integer else found

    def _copied(self, instr: Instr) -> Objects:
        """What one of the operands points into."""
        found = _NONE
        for operand in instr.srcs:
            other = self._of_operand(instr, operand)
            if other is None:
                return None
            if other:
                found = found | other if found else other
        return found

    def _sum(self, left: Objects, right: Objects, *, may_narrow: bool = True) -> Objects:
        """What a sum points into: it is an integer if both sides may be one."""
        if left is None or right is None:
            return None
        if left is right is _INTEGER_VALUE:
            return left  # nearly all
        if may_narrow and self._is_marked:
            for pointer, integer in ((left, right), (right, left)):
                if self._are_pointers(pointer) and self._are_integers(integer):
                    return pointer
        both = left | right
        return both if self._may_be(left) and self._may_be(right) else both - _INTEGER_VALUE

    def _may_be(self, found: Objects) -> bool:
        """Whether a value may be an integer other than 0."""
        return found is None or _ANYTHING in found or found <= _MARKS

    def _are_pointers(self, found: frozenset[Object]) -> bool:
        """Whether a value is certainly an address, of a variable or a parameter that is marked as a pointer."""
        return bool(found) and all(
            each not in _MARKS and (isinstance(each, Variable) or ".ptr" in each.attributes.split()) for each in found
        )

    def _are_integers(self, found: Objects) -> bool:
        """Whether a value is certainly none: in a kernel that marks its pointers, what is not marked is an integer."""
        if found is None:
            return False
        return found <= _MARKS or (
            self._is_marked
            and all(
                each in _MARKS or (isinstance(each, Param) and ".ptr" not in each.attributes.split()) for each in found
            )
        )

    def _integer(self, instr: Instr, operands: tuple[Operand, ...]) -> frozenset[Object]:
        """An integer that is made of all operands, with what they point into; it has nothing of what is unknown."""
        found = _INTEGER_VALUE
        for operand in operands:
            other = self._of_operand(instr, operand)
            if other and other is not _INTEGER_VALUE:
                found = found | other
        return found

    def _of_operand(self, instr: Instr, operand: Operand) -> Objects:
        if type(operand) is Reg:
            if operand.lanes != 1:
                return None  # a vector register as a whole: its elements put together
            return self._of[self.ssa.read(instr, operand)] if operand.type.kind != "p" else _NONE
        if isinstance(operand, Imm):
            return _NULL_VALUE if operand.text in _NULL else _INTEGER_VALUE
        if isinstance(operand, Special):
            return _INTEGER_VALUE
        if isinstance(operand, Sym):
            declaration = operand.declaration
            return frozenset([declaration]) if isinstance(declaration, Variable) else None
        if isinstance(operand, Not):
            return _NONE
        if isinstance(operand, Element):
            return self._of[self.ssa.read(instr, operand.reg)]
        return None  # halves put together may be an address that neither of them is

    def _loaded(self, instr: Instr) -> Objects:
        """What a load gives: the buffer of a pointer parameter, an integer where it is too narrow, or any address."""
        form = instr.form
        scalar = form.type
        if scalar is not None and scalar.bits < 32:
            return _INTEGER_VALUE
        address = instr.address
        if form.space != "param" or address is None or not isinstance(address.base, Sym) or is_call_parameter(instr):
            return None
        param = address.base.declaration
        if not isinstance(param, Param) or param not in self._params:
            return None
        if scalar is None or scalar.bits < self.address_bits:
            return _INTEGER_VALUE
        return frozenset([param])

    #: For each rule, the method that computes what the result of an instruction points into.
    RULES: ClassVar[dict[Pointers, Callable[[Pointees, Instr], Objects]]] = {
        Pointers.NOTHING: _no_address,
        Pointers.NUMBER: _made_of_all,
        Pointers.UNKNOWN: _unknown,
        Pointers.LOADED: _loaded,
        Pointers.ALLOCATED: _alloca,
        Pointers.OTHER_LANE: _of_another_lane,
        Pointers.CONVERSION: _widened,
        Pointers.PRODUCT_SUM: _multiplied_and_added,
        Pointers.MASK: _masked,
        Pointers.UNION: _united,
        Pointers.DIFFERENCE: _subtracted,
        Pointers.SUM: _added,
        Pointers.ANY_SOURCE: _copied,
    }


def _fitting(found: frozenset[Object], space: str) -> Objects:
    """The objects among ``found`` that are in ``space``; ``None`` if there are none."""
    return frozenset([each for each in found if each not in _MARKS and space in ("generic", _space_of(each))]) or None


def _union(left: Objects, right: Objects) -> Objects:
    return None if left is None or right is None else left | right


def _is_small(operand: Operand) -> bool:
    if not isinstance(operand, Imm) or not is_integer_literal(operand.text):
        return False
    return 0 <= int(literal_value(operand.text)) < _SMALL_MASK


def _space_of(found: Object) -> str:
    """The state space of what a register points into."""
    return "global" if isinstance(found, Param) else found.space


#: Rules whose results are numbers, even in registers that change later.
_INTEGER_KINDS = frozenset([Pointers.NOTHING, Pointers.NUMBER])
#: Rules whose results do not depend on what the operands point into.
_LEAVES = frozenset([Pointers.NOTHING, Pointers.UNKNOWN, Pointers.LOADED, Pointers.ALLOCATED])
_KINDS: dict[Form, Pointers] = {}


def _kind(form: Form) -> Pointers:
    kind = _KINDS.get(form)
    if kind is None:
        kind = _KINDS[form] = _kind_of(form)
    return kind


def _kind_of(form: Form) -> Pointers:
    """The rule of the form: that of its row, except where its modifiers or types decide."""
    if form.is_opaque or form.effects & Effect.ORDERED:
        return Pointers.UNKNOWN
    kind = form.op.pointers
    return _conversion(form) if kind is Pointers.CONVERSION else kind


def _conversion(form: Form) -> Pointers:
    source, target = form.scalar("atype"), form.scalar("dtype")
    if source is None or source.is_float or (form.type is not None and form.type.is_float):
        return Pointers.NUMBER
    is_widening = target is not None and source.bits <= 32 < target.bits
    return Pointers.CONVERSION if is_widening else Pointers.ANY_SOURCE
