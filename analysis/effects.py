"""The effects of an instruction, and which transformations they allow.

Only this module decides `may_remove` and `may_move`. Each *no* carries the id of its reason, which remarks and tests
use. All answers follow from the opcode table. `memory/speculation.py` decides whether a load may be speculated.

Guarded definitions: with ``@p`` the result keeps its old value where ``p`` is false, so the definition is a
may-definition (`is_may_definition`).

Reference: PTX ISA 9.0, §8 (memory consistency), §9.3 (predicated execution).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ptx import Effect, Element, Form, Instr, Kernel, Operand, Param, Reg, Special, Sym, Variable
from ..ptx.operands import Vec, walk
from ..ptx.operations import Operation

__all__ = [
    "REASONS",
    "Verdict",
    "is_constant_form",
    "is_constant_read",
    "is_may_definition",
    "is_movable",
    "is_plain_store",
    "is_promised_read",
    "late_registers",
    "may_move",
    "may_not_return",
    "may_remove",
    "memory_space",
]

#: By reason id: its text in messages.
REASONS: dict[str, str] = {
    "directive": "is a directive",
    "opaque": "the opcode is unknown, so it is kept where it is",
    "control": "transfers control",
    "convergent": "depends on which lanes execute it together",
    "barrier": "orders memory between threads",
    "ordered": "is a volatile, atomic or otherwise ordered access",
    "writes-memory": "writes memory",
    "call": "calls a function that is not known to be pure",
    "async": "completes asynchronously",
    "state": "reads or changes machine state",
    "carry": "uses the hidden carry flag",
    "guarded": "is predicated",
    "no-result": "has no result",
    "several-results": "has several results",
    "volatile-register": "reads a register that changes by itself",
    "call-parameter": "reads a parameter of a call sequence",
    "vector-component": "defines one component of a vector register",
    "vector-register": "defines a vector register",
    "pragma": "is described by a pragma",
    "store": "may write the same memory",
    "contraction": "ptxas may contract it to a fused multiply-add, which rounds otherwise elsewhere",
    "grid-dependency": "waits for another grid, which may write the memory",
    "outside": "may wait for another grid or the host, which may write the memory",
    "not-a-load": "is not a load from one address",
    "may-fault": "may read an address that the program would not read",
    "misaligned": "its address may be misaligned",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes, or no with the id of its reason (a key of `REASONS`)."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


YES = Verdict()
_NO = {reason: Verdict(reason) for reason in REASONS}

#: Special registers whose value may change while a thread runs (PTX ISA §10: %warpid and %smid are volatile).
_VOLATILE_REGISTERS = frozenset(
    "%clock %clock_hi %clock64 %globaltimer %globaltimer_lo %globaltimer_hi %warpid %nwarpid %smid".split()
)


def _form_reason(form: Form) -> str:
    """Why no instruction of this form may move, or an empty string."""
    effects = form.effects
    if form.is_opaque:
        return "opaque"
    if form.is_call:
        return "call"
    for bit, reason in (
        (Effect.CONTROL, "control"),
        (Effect.CROSS_LANE, "convergent"),
        (Effect.BARRIER, "barrier"),
        (Effect.ASYNC, "async"),
        (Effect.ORDERED, "ordered"),
        (Effect.WRITE, "writes-memory"),
        (Effect.STATE, "state"),
        (Effect.CARRY_IN | Effect.CARRY_OUT, "carry"),
    ):
        if effects & bit:
            return reason
    return "" if form.dst_count else "no-result"


_FORM_VERDICTS: dict[Form, Verdict] = {}


def _form_verdict(form: Form) -> Verdict:
    verdict = _FORM_VERDICTS.get(form)
    if verdict is None:
        reason = _form_reason(form)
        verdict = _FORM_VERDICTS[form] = _NO[reason] if reason else YES
    return verdict


def may_remove(instr: Instr) -> Verdict:
    """Whether the instruction may be removed if none of its results is read."""
    form = instr.form
    verdict = _FORM_VERDICTS.get(form)
    if verdict is None:
        verdict = _form_verdict(form)
    if verdict.reason:
        return _NO["directive"] if instr.is_directive else verdict
    for operand in instr.operands:
        if type(operand) in _MAY_CHANGE and _changes_by_itself(operand):
            return _NO["volatile-register"]
    if form.effects & Effect.READ and is_call_parameter(instr):
        return _NO["call-parameter"]
    return YES


def may_move(instr: Instr) -> Verdict:
    """Whether the instruction computes the same value at any place where its operands, and for a load its memory, are
    the same. Says nothing about faults: see `speculation.may_speculate`."""
    verdict = may_remove(instr)
    if verdict.reason:
        return verdict
    if instr.guard is not None:
        return _NO["guarded"]
    if instr.form.dst_count == 1:
        result = instr.operands[0]
        if type(result) is Reg:
            return YES if result.lanes == 1 else _NO["vector-register"]
        return _NO["vector-component" if isinstance(result, Element) else "several-results"]
    return _NO["several-results"]


def is_movable(instr: Instr) -> bool:
    """Whether `may_move` answers yes; faster, because it gives no reason."""
    form = instr.form
    verdict = _FORM_VERDICTS.get(form)
    if verdict is None:
        verdict = _form_verdict(form)
    operands = instr.operands
    if verdict.reason or form.dst_count != 1 or instr.guard is not None:
        return False
    result = operands[0]
    if type(result) is not Reg or result.lanes != 1:
        return False
    for operand in operands:
        if type(operand) in _MAY_CHANGE and _changes_by_itself(operand):
            return False
    return not (form.effects & Effect.READ and is_call_parameter(instr))


#: The classes of operands that may contain a special register, except for those of calls.
_MAY_CHANGE = frozenset([Special, Vec])


def _changes_by_itself(operand: Operand) -> bool:
    """Whether two reads of the operand may differ because of a special register in it."""
    return any(isinstance(part, Special) and is_volatile_register(part) for part in walk(operand))


def is_volatile_register(operand: Special) -> bool:
    """Whether two reads of the special register may differ within one thread."""
    name = operand.name.partition(".")[0]
    return name in _VOLATILE_REGISTERS or name.startswith("%pm")


def may_not_return(form: Form) -> bool:
    """Whether a thread may stay at the instruction forever, or end there: at a barrier or an exchange with lanes that
    never arrive, in a call, in a wait for an asynchronous operation, at a trap. A load that may fault must not move up
    across it. Fences and atomics always return."""
    return form.effects & (Effect.CROSS_LANE | Effect.ASYNC | Effect.STATE | Effect.GRID) != 0


def is_may_definition(instr: Instr) -> bool:
    """Whether the old value of a result may survive: the instruction is guarded, or writes only a component."""
    form = instr.form
    if instr.guard is not None or form.is_opaque:
        return True
    return bool(instr.partial_defs())


def late_registers(kernel: Kernel) -> frozenset[Reg]:
    """Registers that an instruction reads or writes after it was issued, until a wait for it, as ``wgmma.mma_async``
    does with its accumulators. An instruction that reads or writes one of them must not move, because the value changes
    without a definition."""
    late = [instr for block in kernel.blocks for instr in block.instrs if instr.form.effects & Effect.REGISTERS_LATER]
    return frozenset(reg for instr in late for reg in (*instr.defs(), *instr.uses()))


def memory_space(instr: Instr) -> str:
    """The state space of the access: from the opcode, or from the symbol if the opcode is generic."""
    space = instr.form.space
    if space == "generic":
        address = instr.address
        if address is not None and isinstance(address.base, Sym):
            declaration = address.base.declaration
            if isinstance(declaration, Variable | Param):
                return declaration.space
    return space


def is_call_parameter(instr: Instr) -> bool:
    """Whether a ``ld.param`` reads memory that this code may write: a ``.param`` variable of a call sequence, or a
    parameter of a function that takes the address of the parameter."""
    if instr.form.space != "param":
        return False
    address = instr.address
    if address is None or not isinstance(address.base, Sym):
        return False
    declaration = address.base.declaration
    return isinstance(declaration, Variable) or (isinstance(declaration, Param) and declaration.is_address_taken)


def is_constant_read(instr: Instr) -> bool:
    """Whether the load reads memory that nobody writes while the kernel runs: ``.const``, ``.param``, ``.nc``."""
    form = instr.form
    is_constant = _CONSTANT_FORMS.get(form)
    if is_constant is None:
        is_constant = _CONSTANT_FORMS[form] = is_constant_form(form)
    return is_constant and (_is_always_constant(form) or not is_call_parameter(instr))


_CONSTANT_FORMS: dict[Form, bool] = {}


def is_promised_read(instr: Instr) -> bool:
    """Whether the load promises that nobody writes the memory that it reads, as ``ld.global.nc`` and ``ldu`` do. The
    memory itself is writable. The promise holds after the last wait for another grid (`Effect.GRID`)."""
    form = instr.form
    return form.effects & Effect.READ != 0 and _is_always_constant(form) and form.space not in ("const", "param")


def is_constant_form(form: Form) -> bool:
    """Whether `is_constant_read` holds for all loads of this form, except from parameters of call sequences."""
    return _is_always_constant(form) or form.space in ("const", "param")


def _is_always_constant(form: Form) -> bool:
    return "nc" in form.flags or form.operation is Operation.UNIFORM_LOAD


def is_plain_store(instr: Instr) -> bool:
    """Whether the instruction is a weak ``st`` whose only effect is to write its address."""
    form = instr.form
    return form.operation is Operation.STORE and not form.effects & (Effect.ORDERED | Effect.BARRIER | Effect.ASYNC)
