"""Which loads cannot fault at a program point at which the program does not execute them.

Computes, for a load and the end of a block, one of

- *proven*, because the address is aligned and lies in a declared object of known size for all values of its indices: at
  a constant offset, or at an offset that the known bits of its indices bound;
- *proven*, because the same bytes, or bytes on both sides of them at the same base, are dereferenced on every path to
  the point or on every finite path onward (`dereferences.py`). The memory at one base is one object without holes;
- *proven*, because the launch compares the buffer with the load, if the caller has promised that (`Promise.inside`):
  with the bytes that all threads may read there, which are known if the address is affine; or the buffer consists of
  whole elements, and another byte of the same element is dereferenced on every path, as above;
- *guarded*, because that holds on every path onward from one target of the branch there: the load may be issued above
  the branch under its predicate;
- *refused*, with a reason.

Requires: the operands of the load are available at the end of the block; value numbers, SSA view.
Guarantees: a *proven* load faults there only if the program faults as well. A misaligned address is a fault. Refuses:
textures, volatile, atomic and matrix loads, parameters of call sequences, addresses that are no simple reference.
Reference: LLVM's ``isSafeToSpeculativelyExecute`` and dereferenceability.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...ptx import TYPES, Block, Guard, Instr, Label, Param, Reg, Special, Sym, Variable
from ...ptx.operations import LOADS, Operation
from ..divergence.sources import Sources
from ..divergence.varying_bits import Bits
from ..divergence.varying_values import ValueBits
from ..effects import is_call_parameter, may_move
from ..fact_marks import for_any_promise
from ..values.affine import Affine
from ..values.value_numbering import Values
from .alias import Reference
from .dereferences import Dereferences

if TYPE_CHECKING:
    from ..manager import Facts
    from .compared_loads import ComparedLoads

__all__ = ["Bounds", "Speculation", "may_speculate", "speculate_reference", "speculation_places"]

#: Reasons of `may_move` that do not matter here: a copy of the load has neither a guard nor several results.
_BESIDE = frozenset(["", "guarded", "several-results"])
#: Bytes at one base that are further apart than this may belong to different objects.
_WIDEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Speculation:
    """Whether a load may be executed where the program would not execute it.

    ``kind`` is ``proven`` (it cannot fault there), ``guarded`` (it cannot fault where ``guard`` holds) or ``refused``,
    with the id of the reason (`effects.REASONS`).
    """

    kind: str
    reason: str = ""
    guard: Guard | None = None

    def __bool__(self) -> bool:
        return self.kind != "refused"


PROVEN = Speculation("proven")
_U32 = TYPES["u32"]


def may_speculate(facts: Facts, load: Instr, block: Block) -> Speculation:
    """Whether ``load`` may be executed at the end of ``block``, before its branch, even where the program would not
    execute it. Its operands must be available there. Says nothing about the value that it reads: see `Memory.kills`."""
    reference = _reference(facts, load)
    return reference if isinstance(reference, Speculation) else speculate_reference(facts, reference, block)


def _reference(facts: Facts, load: Instr) -> Reference | Speculation:
    """The reference of a load that may be speculated; else the refusal."""
    reason = may_move(load).reason
    if reason not in _BESIDE or load.form.operation not in LOADS:
        return Speculation("refused", reason if reason not in _BESIDE else "not-a-load")
    if is_call_parameter(load):
        return Speculation("refused", "call-parameter")
    return facts.memory.reference(load) or Speculation("refused", "not-a-load")


def speculation_places(facts: Facts, load: Instr, blocks: Iterable[int]) -> set[int]:
    """Those of ``blocks``, by number, at whose ends `may_speculate` answers *proven*.

    Faster than one query per block: most loads are proven at no block or at all blocks, and blocks with the same
    dereferences share one test.
    """
    reference = _reference(facts, load)
    if isinstance(reference, Speculation):
        return set()
    if facts.get(Bounds).is_inside_object(reference):
        return set(blocks)
    dereferences = facts.get(Dereferences)
    relevant = dereferences.at_base(reference.space, reference.base)
    reachable, at_end = facts.cfg.reachable, dereferences.at_end
    places: set[int] = set()
    if facts.promise.inside is not None:
        compared = _compared(facts)
        places = {
            block
            for block in blocks
            if reachable[block] and compared.is_safe(reference, block, dereferences.members(at_end[block] & relevant))
        }
    # A superset of sites proves at least as much.
    if not relevant or _refusal(reference, dereferences.members(relevant)):
        return places
    #: By set of sites: whether they prove the reference.
    proves: dict[int, bool] = {0: False, relevant: True}
    for block in blocks:
        sites = at_end[block] & relevant
        is_proven = proves.get(sites)
        if is_proven is None:
            is_proven = proves[sites] = not _refusal(reference, dereferences.members(sites))
        if is_proven and reachable[block]:
            places.add(block)
    return places


def speculate_reference(facts: Facts, reference: Reference, block: Block) -> Speculation:
    """`may_speculate` for any weak load of the bytes of ``reference``. A value of the class of its base must be
    available at the end of ``block``. The class counts: the register that an instruction reads may hold another value
    there."""
    if facts.get(Bounds).is_inside_object(reference):
        return PROVEN
    number = facts.cfg.index[block]
    if not facts.cfg.reachable[number]:
        return Speculation("refused", "may-fault")
    dereferences = facts.get(Dereferences)
    sites = list(dereferences.known_at_end(number, reference.space, reference.base))
    reason = _refusal(reference, sites)
    if not reason or (facts.promise.inside is not None and _compared(facts).is_safe(reference, number, sites)):
        return PROVEN
    guard = _guard(facts, dereferences, reference, block)
    return Speculation("guarded", guard=guard) if guard is not None else Speculation("refused", reason)


def _compared(facts: Facts) -> ComparedLoads:
    from .compared_loads import ComparedLoads  # loads the package of contracts, which is not needed otherwise

    return facts.get(ComparedLoads)


def _refusal(reference: Reference, sites: Iterable[Reference]) -> str:
    """The reason why the dereferenced ``sites``, all at the base of ``reference``, do not prove it; else ``""``."""
    low = high = None
    is_aligned = False
    for site in sites:
        if abs(site.offset - reference.offset) >= _WIDEST:
            continue
        low = site.offset if low is None else min(low, site.offset)
        high = site.offset + site.bytes if high is None else max(high, site.offset + site.bytes)
        # An access is aligned to its size. So a multiple of the size at a multiple of the size away is aligned, too.
        is_aligned |= site.bytes % reference.bytes == 0 and (reference.offset - site.offset) % reference.bytes == 0
    if low is None or high is None or reference.offset < low or reference.offset + reference.bytes > high:
        return "may-fault"
    return "" if is_aligned else "misaligned"


def _guard(facts: Facts, dereferences: Dereferences, reference: Reference, block: Block) -> Guard | None:
    """The predicate under which the branch at the end of ``block`` goes to a successor at which the load is safe."""
    branch = block.terminator
    if (
        branch is None
        or branch.form.operation is not Operation.BRANCH
        or branch.guard is None
        or not isinstance(branch.guard.reg, Reg)
    ):
        return None
    number = facts.cfg.index[block]
    label = branch.operands[0]
    target = next((other for other in facts.cfg.succ[number] if _is_labelled(facts, other, label)), None)
    if target is None or len(facts.cfg.succ[number]) != 2:
        return None
    for successor in facts.cfg.succ[number]:
        if not _refusal(reference, dereferences.known_at_start(successor, reference.space, reference.base)):
            is_taken = successor == target
            return Guard(branch.guard.reg, negated=branch.guard.negated == is_taken)
    return None


def _is_labelled(facts: Facts, block: int, label: object) -> bool:
    return isinstance(label, Label) and facts.cfg.blocks[block].label is label


@for_any_promise
class Bounds:
    """The ranges of offsets in declared objects, from the known bits of the values that the offsets are made of."""

    def __init__(self, facts: Facts) -> None:
        self.values: Values = facts.values
        sources = Sources(facts.kernel, facts.shape, are_lanes_together=False)
        self._bits = ValueBits(self.values.ssa, sources)
        self._sources = sources
        self._value_of: dict[int, int] | None = None

    def is_inside_object(self, reference: Reference) -> bool:
        """Whether the bytes are aligned and lie in one declared object of known size in every execution."""
        objects = reference.objects
        if objects is None or len(objects) != 1:
            return False
        (target,) = objects
        if isinstance(target, Param) != (reference.space == "param") or target.space not in _space_words(reference):
            return False
        size = target.bytes
        if not size or (isinstance(target, Variable) and target.count is not None):
            return False
        span = self.offsets(reference, target)
        if span is None:
            return False
        low, high, step = span
        start = target.align or target.type.bytes * target.lanes
        return (
            low >= 0 and high + reference.bytes <= size and step % reference.bytes == 0 and start % reference.bytes == 0
        )

    def offsets(self, reference: Reference, found: Variable | Param) -> tuple[int, int, int] | None:
        """(lowest, highest, divisor) of the offset in bytes from the start of ``found``; ``None`` if it is
        unbounded."""
        symbol = self.values.of_symbol(Sym(found.name, found))
        if reference.base == symbol:
            return reference.offset, reference.offset, abs(reference.offset) or reference.bytes
        for width in (64, 32):
            form = self.values.affine_of(reference.base, width)
            if form.single_atom is None:
                return self._span(form, reference, symbol)
        return None

    def _span(self, form: Affine, reference: Reference, symbol: int) -> tuple[int, int, int] | None:
        width = form.width
        low = high = reference.offset
        step = abs(reference.offset)
        has_symbol = False
        for number, coefficient in form.terms:
            if number == symbol and coefficient == 1:
                has_symbol = True
                continue
            if coefficient >> (width - 1):
                coefficient -= 1 << width
            least, most, divisor = self._range(number, width)
            products = (coefficient * least, coefficient * most)
            low, high = low + min(products), high + max(products)
            step = _gcd(step, coefficient * divisor)
        return (low, high, step or reference.bytes) if has_symbol else None

    def divisor(self, number: int, width: int) -> int:
        """The largest known power of two that divides every value of a class, as a number of ``width`` bits."""
        divisor = self._range(number, width)[2]
        return divisor & -divisor

    def _range(self, number: int, width: int) -> tuple[int, int, int]:
        """(least, greatest, divisor) of the values of a class as unsigned numbers of ``width`` bits, or as numbers that
        are congruent to them."""
        key = self.values.key_of(number)
        if key[0] == "extend":
            kind, bits, _, inner = cast("tuple[str, int, int, int]", key[1:])
            least, most, divisor = self._range(inner, bits)
            if kind == "s" and most >> (bits - 1):
                half = 1 << (bits - 1)
                return -half, half - 1, divisor
            if kind != "s" and least < 0:
                return 0, (1 << bits) - 1, divisor  # a negative number of ``bits`` bits is positive once zero-extended
            return least, most, divisor
        bits = self._known_bits(number, key)
        mask = (1 << width) - 1
        open_bits = ~bits.zero & mask
        return bits.one & mask, open_bits, open_bits & -open_bits if open_bits else 1 << width

    def _known_bits(self, number: int, key: tuple[object, ...]) -> Bits:
        if key[0] == "special":
            bits = self._sources.special(Special(str(key[1]), _U32))
            return Bits(0, bits.zero, bits.one)
        if self._value_of is None:
            self._value_of = {}
            for value, each in enumerate(self.values.number):
                self._value_of.setdefault(each, value)
        value = self._value_of.get(number)
        return self._bits.known(value) if value is not None else Bits(0)


def _space_words(reference: Reference) -> tuple[str, ...]:
    """The state spaces of objects whose start address, in a register, is an address in the space of the reference."""
    return ("global",) if reference.space in ("global", "generic") else (reference.space,)


def _gcd(left: int, right: int) -> int:
    left, right = abs(left), abs(right)
    while right:
        left, right = right, left % right
    return left
