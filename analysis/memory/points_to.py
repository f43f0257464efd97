"""Which objects an address may point into.

Computes: for each SSA value the declared variables (``.shared``, ``.local``, ``.global``, ``.const``, ``alloca``) and
pointer parameters from which it is derived, through copies, sums, selections, address conversions and φs.

Assumed: an address that is derived from an object stays inside the object; arithmetic on the address of one object does
not reach another one. That holds for every program compiled from a language with objects. For a program that goes from
one variable to its neighbour it does not hold; the emulator reports that as an access out of bounds. Two pointer
*parameters* are two names, not two pieces of memory: they may point to the same memory, or to a variable of the module.

A value that is not an address is an integer, and adding integers to an address does not change its object. Integers are
the results of multiplications, shifts, divisions, conversions from 32 bits and masks of a few bits, constants, and
special registers. A loaded value may be any address, until such an operation is applied to it. An integer that is
*used* as an address may be any address as well. So a value keeps the mark of an integer through selections and φs, and
loses it only in a sum with a value that is certainly no integer. A 64-bit parameter that is added to a pointer may be
an integer or a pointer, so both objects are named, unless the parameters of the kernel are marked with ``.ptr``.

At first only the values on which addresses depend are solved. The others are solved on the first query for one of them.

Requires: SSA view. Guarantees: every object that the address may point into is named, or the answer is ``None``
(unknown). Unknown are: loaded values, results of calls and atomics, parameters of functions, addresses in the shared
memory of another block (``mapa``), addresses of parameters, registers that are never written, constants.
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

__all__ = ["Object", "Objects", "Pointees", "is_pointer_parameter", "is_within"]

Object = Param | Variable
Objects = frozenset[Object] | None

_NONE: frozenset[Object] = frozenset()
#: A mark: the value may be an integer, which as an address may point to any object.
_ANYTHING = Variable("what an integer points into", "none", TYPES["b8"])
_INTEGER_VALUE: frozenset[Object] = frozenset([_ANYTHING])
#: A mark: the value may be the constant 0. No access reads there, but in a sum the value may be an integer.
_NOTHING = Variable("nothing", "none", TYPES["b8"])
_NULL_VALUE: frozenset[Object] = frozenset([_NOTHING])
_MARKS = _INTEGER_VALUE | _NULL_VALUE

_TOUCHES = Effect.READ | Effect.WRITE
#: The spellings of the null address.
_NULL = frozenset(["0", "0x0", "0U", "0x0U"])
#: A value masked by less than this is an integer.
_SMALL_MASK = 1 << 16


def is_pointer_parameter(param: Param, address_bits: int) -> bool:
    """Whether the parameter may be a pointer: one integer with the width of an address."""
    return not param.dims and param.lanes == 1 and param.type.bits == address_bits and not param.type.is_float


def is_within(param: Param, offset: int, size: int) -> bool:
    """Whether ``size`` bytes at ``offset`` are bytes of the parameter."""
    return 0 <= offset and offset + size <= (param.bytes or 0)


class Pointees:
    """What the values of one kernel may point into. ``address_bits``: the address size of the module."""

    def __init__(self, kernel: Kernel, cfg: Cfg, ssa: Ssa, late: frozenset[Reg], address_bits: int) -> None:
        self.kernel = kernel
        self.ssa = ssa
        self.address_bits = address_bits
        self._late = late
        self._params = frozenset(kernel.params or ()) if kernel.is_entry else frozenset[Param]()
        self._is_marked = any(".ptr" in param.attributes.split() for param in self._params)
        self._cfg = cfg
        self._version = kernel.version
        #: By SSA value: whether `_of` has its objects. At first only for the values on which addresses depend.
        self._is_solved = self._make_addresses()
        #: By SSA value: its objects and marks; ``None``: any object.
        self._of: list[Objects] = [_NONE] * len(ssa.instr)
        #: By (objects and marks, state space): the objects in that space.
        self._named: dict[tuple[frozenset[Object], str], Objects] = {}
        #: By ``alloca``: its memory, as an object of unknown size.
        self._stack: dict[Instr, Variable] = {}
        self._solve()

    # --- questions -------------------------------------------------------------------------------------------------

    def of_address(self, instr: Instr, mem: Mem, space: str = "generic") -> Objects:
        """The objects that an address of ``instr`` in state space ``space`` may point into; ``None`` if unknown."""
        base = mem.base
        if isinstance(base, Sym):
            declaration = base.declaration
            return frozenset([declaration]) if isinstance(declaration, Param | Variable) else None
        if not isinstance(base, Reg):
            return None
        try:
            value = self.ssa.read(instr, base)
        except KeyError:
            return None  # the block is unreachable
        if not (self._is_solved[value] or self._solve_all()):
            return None
        objects = self._of[value]
        # A constant or an integer may be any address.
        if not objects or _ANYTHING in objects:
            return None
        key = (objects, space)
        if key not in self._named:
            self._named[key] = _fitting(objects, space)
        return self._named[key]

    def of_register(self, instr: Instr, reg: Reg) -> Objects:
        """The objects from which what ``instr`` reads from ``reg`` is derived; ``None`` if that is unknown."""
        try:
            value = self.ssa.read(instr, reg)
        except KeyError:
            return None  # the block is unreachable
        if reg.lanes != 1 or not (self._is_solved[value] or self._solve_all()):
            return None
        objects = self._of[value]
        return None if objects is None else objects - _MARKS

    # --- solution --------------------------------------------------------------------------------------------------

    def _make_addresses(self) -> bytearray:
        """By value: whether an address register holds it, or a value that is computed from it."""
        ssa = self.ssa
        definition_of, single, old = ssa.instr, ssa.single, ssa.old
        touching = [
            instr
            for block in self._cfg.rpo
            for instr in self._cfg.blocks[block].instrs
            if instr.form.effects & _TOUCHES  # there are no queries about others
        ]
        work = [
            ssa.read(instr, operand.base)
            for instr in touching
            for operand in instr.operands
            if type(operand) is Mem and type(operand.base) is Reg
        ]
        is_address = bytearray(len(definition_of))
        while work:
            value = work.pop()
            if is_address[value]:
                continue
            is_address[value] = 1
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
                        if not is_address[read]:
                            work.append(read)
        return is_address

    def _solve_all(self) -> bool:
        """Solve all values, for a query about a value on which no address depends. Returns whether that was possible:
        it is not once the kernel has changed, because the SSA view is of the earlier version."""
        if self.kernel.version != self._version:
            return False
        self._is_solved = bytearray(b"\1" * len(self._of))
        self._of = [_NONE] * len(self._of)
        self._solve()
        return True

    def _solve(self) -> None:
        """Compute `_of` for the values in `_is_solved`. They depend on no other value. The other values do not change
        the order in which these are evaluated, on which the marks depend."""
        ssa, of, cfg, is_solved = self.ssa, self._of, self._cfg, self._is_solved
        for value in ssa.undefined:
            of[value] = None  # never written
        single, old = ssa.single, ssa.old
        definitions = {instr for instr, is_asked in zip(ssa.instr, is_solved, strict=True) if is_asked}
        again: list[tuple[Instr | None, int]] = []
        for block in cfg.rpo:
            for phi in ssa.phis[block]:
                if is_solved[phi]:
                    objects = of[phi] = self._evaluate(None, phi)
                    if objects is not None:  # an unknown value stays unknown
                        again.append((None, phi))
            for instr in [each for each in cfg.blocks[block].instrs if each in definitions]:
                for reg in instr.defs():
                    value = single[reg] if reg in single else ssa.defined(instr, reg)
                    if is_solved[value]:
                        objects = self._evaluate(instr, value) if value in old else self._definition(instr)
                        of[value] = objects
                        if objects is not None and (objects or self._may_grow(instr)):
                            again.append((instr, value))
        self._settle(again)

    def _settle(self, again: list[tuple[Instr | None, int]]) -> None:
        """Evaluate ``again`` until nothing changes; a definition only after a value that it reads has changed."""
        of = self._of
        # The values that a definition reads were evaluated before it, except the arguments of a φ from a back edge.
        is_due = bytearray(instr is None for instr, _ in again)
        readers: dict[int, list[int]] | None = None
        place = is_due.find(1)
        while place >= 0:
            is_due[place] = 0
            instr, value = again[place]
            old = of[value]
            if old is not None:
                new = _union(self._evaluate(instr, value), old)  # sets only grow, so this ends
                if new != old:
                    of[value] = new
                    if readers is None:
                        readers = self._readers(again)
                    for reader in readers.get(value, ()):
                        is_due[reader] = 1
            place = is_due.find(1, place + 1)
            if place < 0:
                place = is_due.find(1)

    def _readers(self, definitions: list[tuple[Instr | None, int]]) -> dict[int, list[int]]:
        """By value: the positions in ``definitions`` of those that read it."""
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
            objects = _NONE
            for _, argument in self.ssa.phi_args.get(value, ()):
                other = of[argument]
                if other is None:
                    return None
                if other is not objects and not other <= objects:
                    objects = objects | other
            return objects
        objects = self._definition(instr)
        old = self.ssa.old.get(value)
        if old is None or objects is None:
            return objects
        kept = of[old]
        return None if kept is None else objects | kept

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
        variable = self._stack.get(instr)
        if variable is None:
            variable = self._stack[instr] = Variable(f"alloca at {instr.pos}", "local", TYPES["b8"], dims=(None,))
        return frozenset([variable])

    def _of_another_lane(self, instr: Instr) -> Objects:
        """The value of another lane is derived from the same objects."""
        return self._of_operand(instr, instr.srcs[0])

    def _widened(self, instr: Instr) -> Objects:
        objects = self._of_operand(instr, instr.operands[1])
        return objects if objects and not objects & _MARKS else _INTEGER_VALUE

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
        objects = self._sum(left, right, may_narrow=False)
        # After an unknown mask the result may be an integer.
        is_known = any(isinstance(operand, Imm) for operand in sources)
        return objects if is_known else _union(objects, _INTEGER_VALUE)

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
        objects = self._sum(left, right, may_narrow=False)
        may_be_integer = self._may_be(left) or not self._are_integers(right)
        return _union(objects, _INTEGER_VALUE) if may_be_integer else objects

    def _copied(self, instr: Instr) -> Objects:
        """The union over all operands."""
        objects = _NONE
        for operand in instr.srcs:
            other = self._of_operand(instr, operand)
            if other is None:
                return None
            if other:
                objects = objects | other if objects else other
        return objects

    def _sum(self, left: Objects, right: Objects, *, may_narrow: bool = True) -> Objects:
        """What a sum points into. It may be an integer only if both operands may be one."""
        if left is None or right is None:
            return None
        if left is right is _INTEGER_VALUE:
            return left  # most sums
        if may_narrow and self._is_marked:
            for pointer, integer in ((left, right), (right, left)):
                if self._are_pointers(pointer) and self._are_integers(integer):
                    return pointer
        both = left | right
        return both if self._may_be(left) and self._may_be(right) else both - _INTEGER_VALUE

    def _may_be(self, objects: Objects) -> bool:
        """Whether a value may be an integer other than 0."""
        return objects is None or _ANYTHING in objects or objects <= _MARKS

    def _are_pointers(self, objects: frozenset[Object]) -> bool:
        """Whether a value is certainly an address: of a variable, or of a parameter with ``.ptr``."""
        return bool(objects) and all(
            each not in _MARKS and (isinstance(each, Variable) or ".ptr" in each.attributes.split()) for each in objects
        )

    def _are_integers(self, objects: Objects) -> bool:
        """Whether a value is certainly no address. In a kernel with ``.ptr`` parameters, others are integers."""
        if objects is None:
            return False
        return objects <= _MARKS or (
            self._is_marked
            and all(
                each in _MARKS or (isinstance(each, Param) and ".ptr" not in each.attributes.split())
                for each in objects
            )
        )

    def _integer(self, instr: Instr, operands: tuple[Operand, ...]) -> frozenset[Object]:
        """An integer that is computed from all operands, with the known objects of the operands."""
        objects = _INTEGER_VALUE
        for operand in operands:
            other = self._of_operand(instr, operand)
            if other and other is not _INTEGER_VALUE:
                objects = objects | other
        return objects

    def _of_operand(self, instr: Instr, operand: Operand) -> Objects:
        if type(operand) is Reg:
            if operand.lanes != 1:
                return None  # a whole vector register
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
        return None  # two halves that are no addresses may form one

    def _loaded(self, instr: Instr) -> Objects:
        """The result of a load: the buffer of a pointer parameter, an integer if it is too narrow, or unknown."""
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
        if scalar is None or not is_within(param, address.offset + address.base.offset, scalar.bytes * form.lanes):
            return None  # ptxas accepts it; what is read belongs to another parameter
        if scalar.bits < self.address_bits:
            return _INTEGER_VALUE
        return frozenset([param])

    #: By rule: the method that computes what the result of an instruction points into.
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


def _fitting(objects: frozenset[Object], space: str) -> Objects:
    """The objects among ``objects`` in state space ``space``; ``None`` if there are none."""
    return frozenset([each for each in objects if each not in _MARKS and space in ("generic", _space_of(each))]) or None


def _union(left: Objects, right: Objects) -> Objects:
    return None if left is None or right is None else left | right


def _is_small(operand: Operand) -> bool:
    if not isinstance(operand, Imm) or not is_integer_literal(operand.text):
        return False
    return 0 <= int(literal_value(operand.text)) < _SMALL_MASK


def _space_of(target: Object) -> str:
    """The state space of an object to which a register points."""
    return "global" if isinstance(target, Param) else target.space


#: Rules whose results are integers, even if their registers change later.
_INTEGER_KINDS = frozenset([Pointers.NOTHING, Pointers.NUMBER])
#: Rules whose results do not depend on what their operands point into.
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
