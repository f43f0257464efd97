"""The accesses of each thread of a kernel to global memory: address, width, and conditions.

Computes: for each access to global or generic memory its address as a polynomial (`thread_affine`), its width, its
effect, and the comparisons that hold whenever it is executed: from the branches that dominate it and from its own
predicate. Excluded are accesses to shared, local and parameter memory, which are private to a block or thread, and
loads from ``.const``, which no kernel writes.

Requires: facts of a kernel without nested scopes. Guarantees: every instruction that may read or write global memory is
in ``accesses``, or in ``unknown`` if it is not modelled (calls, textures, asynchronous copies).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ptx import Effect, Imm, Instr, Not, Operand, Reg
from ...ptx.notation import Form
from ...ptx.operations import ATOMICS, PLAIN_ACCESSES, Operation, Touches
from ...ptx.types import is_integer_literal
from ..effects import is_may_definition, memory_space
from ..manager import Facts
from ..values.polynomial import Poly, TooManyTerms
from ..values.thread_affine import ThreadForms

__all__ = ["Access", "AccessSet", "Comparison", "Guards", "access_set", "access_set_with"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left relation right`` for words of ``bits`` bits, read as ``kind`` (``s``, ``u`` or ``b``). ``relation`` is
    ``lt``, ``le``, ``eq`` or ``ne``."""

    relation: str
    kind: str
    bits: int
    left: Poly
    right: Poly


@dataclass(frozen=True, slots=True)
class Access:
    """``bytes`` bytes at ``address``, modulo 2^64. ``effect`` is ``read``, ``write`` or ``atomic``. ``operation`` is
    the operation of an atomic, such as ``add.u32``, if nothing reads the old value and the order does not matter; else
    empty."""

    instr: Instr
    effect: str
    bytes: int
    address: Poly
    guards: tuple[Comparison, ...]
    operation: str = ""

    @property
    def writes(self) -> bool:
        """Whether it writes memory; an atomic reads and writes."""
        return self.effect != "read"


@dataclass(frozen=True, slots=True)
class AccessSet:
    """All accesses of a kernel to global memory, and the instructions with unknown accesses."""

    accesses: tuple[Access, ...]
    unknown: tuple[Instr, ...]
    forms: ThreadForms
    guards: Guards


#: Spaces that are private to a block or a thread, or that nobody writes.
_PRIVATE = frozenset(["shared", "local", "param", "const"])


def access_set(facts: Facts) -> AccessSet:
    """The accesses of the kernel of ``facts`` in reverse postorder of the blocks."""
    return facts.get(_access_set)


def _access_set(facts: Facts) -> AccessSet:
    forms = ThreadForms(facts)
    return access_set_with(facts, forms, Guards(facts, forms))


def access_set_with(facts: Facts, forms: ThreadForms, guards: Guards) -> AccessSet:
    """The accesses, with addresses by ``forms`` and comparisons by ``guards`` over the same forms."""
    read = {reg for instr in facts.kernel.instructions() for reg in instr.uses()}
    accesses: list[Access] = []
    unknown: list[Instr] = []
    cfg = facts.cfg
    for number in cfg.rpo:
        for instr in cfg.blocks[number].instrs:
            effects = instr.form.effects
            if instr.is_directive or not effects & (Effect.READ | Effect.WRITE):
                continue
            if _is_private(instr):
                continue
            access = _access(instr, forms, guards, number, read)
            if access is None:
                unknown.append(instr)
            elif not _is_to_private_object(access):
                accesses.append(access)
    return AccessSet(tuple(accesses), tuple(unknown), forms, guards)


def _is_private(instr: Instr) -> bool:
    if instr.form.op.touches is Touches.SHARED:
        return True
    return (
        instr.form.operation in PLAIN_ACCESSES and memory_space(instr) in _PRIVATE and not _has_several_addresses(instr)
    )


def _has_several_addresses(instr: Instr) -> bool:
    address = instr.address
    return address is None or bool(address.rest)


def _is_to_private_object(access: Access) -> bool:
    """Whether a generic address points into a shared, local or constant variable or into a parameter."""
    symbols = [atom.name for atom in access.address.atoms if atom.kind == "symbol"]
    return len(symbols) == 1 and symbols[0].partition(":")[0] in _PRIVATE and not _has_pointer(access.address)


def _has_pointer(address: Poly) -> bool:
    return any(len(m) == 1 and m[0].kind == "param" and c == 1 for m, c in address.terms)


def _access(instr: Instr, forms: ThreadForms, guards: Guards, block: int, read: set[Reg]) -> Access | None:
    form, address = instr.form, instr.address
    if form.operation not in PLAIN_ACCESSES or form.effects & Effect.ASYNC or form.type is None:
        return None
    if address is None or address.rest:
        return None
    try:
        where = forms.address(instr, address, 64)
    except TooManyTerms:
        return None
    if form.operation in ATOMICS:
        effect = "atomic"
    else:
        effect = "write" if form.effects & Effect.WRITE else "read"
    comparisons = guards.at(block) + guards.of_predicate(instr)
    return Access(instr, effect, form.type.bytes * form.lanes, where, comparisons, _commuting(instr, form, read))


_COMMUTING = frozenset(["add", "min", "max", "and", "or", "xor"])


def _commuting(instr: Instr, form: Form, read: set[Reg]) -> str:
    """The operation of an integer atomic that commutes with equal operations because nothing reads the old value."""
    operation = form.mods.get("atomop", "")
    if form.operation not in ATOMICS or operation not in _COMMUTING or form.type is None or form.lanes != 1:
        return ""
    if not read.isdisjoint(instr.defs()):
        return ""
    if not {"cta", "cluster"}.isdisjoint(form.text.split(".")):
        return ""  # not atomic for other blocks
    return f"{operation}.{form.type.name}" if form.type.kind in "usb" and form.type.lanes == 1 else ""


_INVERSE = {"lt": ("le", True), "le": ("lt", True), "eq": ("ne", False), "ne": ("eq", False)}
#: By comparison of PTX: the relation of `Comparison`, and whether the operands are swapped.
_RELATIONS = {
    "lt": ("lt", False),
    "le": ("le", False),
    "gt": ("lt", True),
    "ge": ("le", True),
    "lo": ("lt", False),
    "ls": ("le", False),
    "hi": ("lt", True),
    "hs": ("le", True),
    "eq": ("eq", False),
    "ne": ("ne", False),
}


class Guards:
    """The comparisons that hold in each block."""

    def __init__(self, facts: Facts, forms: ThreadForms) -> None:
        self.facts = facts
        self.forms = forms
        self._known: dict[int, tuple[Comparison, ...]] = {}
        cfg, idom = facts.cfg, facts.dominance.idom
        for block in cfg.rpo:
            parent = idom[block]
            if block == cfg.rpo[0] or parent < 0:
                self._known[block] = ()
                continue
            comparisons = self._known[parent]
            if cfg.pred[block] == [parent]:
                comparisons += self._edge(parent, block)
            self._known[block] = comparisons

    def is_complete(self, block: int) -> bool:
        """Whether a thread that ends has executed ``block`` exactly if the comparisons of the block hold: they come
        from all branches that decide whether the block is executed, and from nothing else."""
        cfg, facts = self.facts.cfg, self.facts
        while block != cfg.rpo[0]:
            parent = facts.dominance.idom[block]
            if cfg.pred[block] == [parent] and (len(cfg.succ[parent]) == 2 or parent in cfg.exits):
                if not self._is_exact(parent, block):
                    return False
            elif not facts.post_dominance.dominates(block, parent):
                return False
            block = parent
        return True

    def _is_exact(self, source: int, target: int) -> bool:
        """Whether the edge is taken exactly if its comparisons hold."""
        branch = self.facts.cfg.blocks[source].terminator
        if branch is None or branch.guard is None or not isinstance(branch.guard.reg, Reg):
            return False
        falls = target == source + 1
        return self._decides(branch, branch.guard.reg, branch.guard.negated == falls)

    def _decides(self, user: Instr, reg: Reg, truth: bool) -> bool:
        ssa = self.facts.ssa
        definition = ssa.instr[ssa.read(user, reg)]
        if definition is None or is_may_definition(definition):
            return False
        operation = definition.form.operation
        if operation in (Operation.AND, Operation.OR):
            return truth == (operation is Operation.AND) and all(
                isinstance(each, Reg) and self._decides(definition, each, truth) for each in definition.operands[1:]
            )
        return (
            operation is Operation.COMPARISON
            and len(self._holds(user, reg, truth, 1)) == 1
            and ("bool" not in definition.form.mods)
        )

    def on_edge(self, source: int, target: int) -> tuple[Comparison, ...]:
        """The comparisons that hold when the branch at the end of ``source`` goes to ``target``."""
        return self._edge(source, target)

    def at(self, block: int) -> tuple[Comparison, ...]:
        """The comparisons that hold in each thread that executes ``block``."""
        return self._known[block]

    def of_predicate(self, instr: Instr) -> tuple[Comparison, ...]:
        """The comparisons that the guard of ``instr`` states for the threads that execute it."""
        guard = instr.guard
        if guard is None or not isinstance(guard.reg, Reg):
            return ()
        return tuple(self._holds(instr, guard.reg, not guard.negated, 6))

    def _edge(self, source: int, target: int) -> tuple[Comparison, ...]:
        """The comparisons that hold when the branch at the end of ``source`` goes to ``target``."""
        cfg = self.facts.cfg
        branch = cfg.blocks[source].terminator
        if branch is None or branch.guard is None or not isinstance(branch.guard.reg, Reg):
            return ()
        if branch.form.operation is Operation.INDEXED_BRANCH:
            return ()
        falls = target == source + 1
        if branch.form.operation is Operation.BRANCH and len(cfg.succ[source]) != 2:
            return ()
        return tuple(self._holds(branch, branch.guard.reg, branch.guard.negated == falls, 6))

    def _holds(self, user: Instr, reg: Reg, truth: bool, depth: int) -> list[Comparison]:
        """The comparisons that hold if the predicate that ``user`` reads from ``reg`` is ``truth``."""
        ssa = self.facts.ssa
        definition = ssa.instr[ssa.read(user, reg)]
        if definition is None or is_may_definition(definition) or not depth:
            return []
        form = definition.form
        operation = form.operation
        is_not = operation is Operation.NOT
        if is_not or (operation is Operation.COPY and isinstance(definition.operands[1], Reg)):
            return self._operand(definition, definition.operands[1], truth ^ is_not, depth - 1)
        if operation in (Operation.AND, Operation.OR):
            if truth != (operation is Operation.AND):
                return []
            return [
                comparison
                for each in definition.operands[1:]
                for comparison in self._operand(definition, each, truth, depth - 1)
            ]
        if operation is Operation.COMPARISON and isinstance(definition.operands[0], Reg):
            return self._compare(definition, truth, depth)
        return []

    def _operand(self, user: Instr, operand: Operand, truth: bool, depth: int) -> list[Comparison]:
        if isinstance(operand, Not):
            return self._operand(user, operand.operand, not truth, depth)
        return self._holds(user, operand, truth, depth) if isinstance(operand, Reg) else []

    def _compare(self, instr: Instr, truth: bool, depth: int) -> list[Comparison]:
        form = instr.form
        comparisons: list[Comparison] = []
        joined = form.mods.get("bool")
        if joined is not None:
            if truth != (joined == "and") or joined == "xor":
                return []
            comparisons += self._operand(instr, instr.operands[3], truth, depth - 1)
        scalar = form.type
        relation = _RELATIONS.get(form.mods.get("cmp", ""))
        if relation is None or scalar is None or scalar.bits not in (32, 64) or scalar.kind not in "usb":
            return comparisons
        left, right = instr.operands[1], instr.operands[2]
        if not (_is_plain(left) and _is_plain(right)):
            return comparisons
        name, swapped = relation
        a, b = self.forms.word(instr, left, scalar.bits), self.forms.word(instr, right, scalar.bits)
        kind = "u" if form.mods["cmp"] in ("lo", "ls", "hi", "hs") else scalar.kind
        if swapped:
            a, b = b, a
        if not truth:
            name, turned = _INVERSE[name]
            if turned:
                a, b = b, a
        comparisons.append(Comparison(name, kind, scalar.bits, a, b))
        return comparisons


def _is_plain(operand: Operand) -> bool:
    return not isinstance(operand, Imm) or is_integer_literal(operand.text)
