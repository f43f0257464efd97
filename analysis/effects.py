"""What an instruction may do to the world, and what may therefore be done with it.

The only place that answers `may_remove`, `may_move` and `may_speculate`; each *no* carries the id of its reason, which
remarks and tests use. Everything is derived from the opcode table; what `may_speculate` has to know of addresses stands
in `speculation.py`.

Guarded definitions: with ``@p`` the old value of the result lives on where ``p`` is false, so the definition is a
may-definition. `is_may_definition` says so, once, for every analysis.

Reference: PTX ISA 9.0, §8 (memory consistency), §9.3 (predicated execution).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ptx import Effect, Element, Form, Instr, Kernel, Param, Reg, Special, Sym, Variable
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

#: Reason ids and what a person is told.
REASONS: dict[str, str] = {
    "directive": "is a directive",
    "opaque": "the opcode is unknown, so it is kept where it is",
    "control": "transfers control",
    "convergent": "depends on which lanes execute it together",
    "barrier": "orders memory between threads",
    "ordered": "is a volatile, atomic or otherwise ordered access",
    "writes-memory": "writes memory",
    "call": "calls a function that is not known to be pure",
    "async": "completes later",
    "state": "reads or changes the state of the machine",
    "carry": "uses the hidden carry flag",
    "guarded": "is predicated",
    "no-result": "has no result",
    "several-results": "has several results",
    "volatile-register": "reads a register that changes by itself",
    "call-parameter": "reads a parameter of a call sequence",
    "vector-component": "defines one component of a vector register",
    "vector-register": "defines a vector register",
    "pragma": "a pragma speaks of it",
    "store": "may write the same memory",
    "contraction": "ptxas may contract it to a fused multiply-add, which rounds otherwise elsewhere",
    "grid-dependency": "waits for another grid, which may write the memory",
    "outside": "may wait for another grid or the host, who may write the memory",
    "not-a-load": "is no load from one address",
    "may-fault": "might read where the program would not have read",
    "misaligned": "the address is not known to be aligned",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A yes, or a no with the id of its reason (a key of `REASONS`)."""

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
    """Whether the instruction may vanish when none of its results is used."""
    form = instr.form
    verdict = _FORM_VERDICTS.get(form)
    if verdict is None:
        verdict = _form_verdict(form)
    if verdict.reason:
        return _NO["directive"] if instr.is_directive else verdict
    for operand in instr.operands:
        if type(operand) is Special and is_volatile_register(operand):
            return _NO["volatile-register"]
    if form.effects & Effect.READ and is_call_parameter(instr):
        return _NO["call-parameter"]
    return YES


def may_move(instr: Instr) -> Verdict:
    """Whether the instruction computes a value that another place could compute as well, were its operands, and for
    a load its memory, the same there. Says nothing about faults: see ``may_speculate``."""
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
    """Whether `may_move` answers yes, without a reason where it does not: for those who ask of every instruction."""
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
        if type(operand) is Special and is_volatile_register(operand):
            return False
    return not (form.effects & Effect.READ and is_call_parameter(instr))


def is_volatile_register(operand: Special) -> bool:
    """Whether two reads of the special register may differ within one thread."""
    name = operand.name.partition(".")[0]
    return name in _VOLATILE_REGISTERS or name.startswith("%pm")


def may_not_return(form: Form) -> bool:
    """Whether a thread may stay at the instruction for ever, or end there: at a barrier or an exchange with lanes that
    never come, in a call, in a wait for what is asynchronous, at a trap. A load that may fault does not move up across
    it. Fences and atomics always return."""
    return form.effects & (Effect.CROSS_LANE | Effect.ASYNC | Effect.STATE | Effect.GRID) != 0


def is_may_definition(instr: Instr) -> bool:
    """Whether an old value may survive the instruction's definitions: guarded, or only a component is written."""
    form = instr.form
    if instr.guard is not None or form.is_opaque:
        return True
    return bool(instr.partial_defs())


def late_registers(kernel: Kernel) -> frozenset[Reg]:
    """Registers that an instruction reads or writes *later*, until it is waited for, as ``wgmma.mma_async`` does with
    its accumulators. What reads or writes one of them keeps its place: the value changes without a definition."""
    found = [
        instr for block in kernel.blocks for instr in block.instrs if instr.form.effects & Effect.REGISTERS_LATER
    ]  # directives among them, which have no registers
    return frozenset(reg for instr in found for reg in (*instr.defs(), *instr.uses()))


def memory_space(instr: Instr) -> str:
    """The state space of the access: from the opcode, or from the symbol where the opcode says generic."""
    space = instr.form.space
    if space == "generic":
        address = instr.address
        if address is not None and isinstance(address.base, Sym):
            declaration = address.base.declaration
            if isinstance(declaration, Variable | Param):
                return declaration.space
    return space


def is_call_parameter(instr: Instr) -> bool:
    """Whether a ``ld.param`` reads a ``.param`` variable of a call sequence rather than a parameter of the kernel; or
    one of a function that has taken its address, and may write it."""
    if instr.form.space != "param":
        return False
    address = instr.address
    if address is None or not isinstance(address.base, Sym):
        return False
    found = address.base.declaration
    return isinstance(found, Variable) or (isinstance(found, Param) and found.is_address_taken)


def is_constant_read(instr: Instr) -> bool:
    """Whether the load reads memory that nobody writes while the kernel runs: ``.const``, ``.param``, ``.nc``."""
    form = instr.form
    is_constant = _CONSTANT_FORMS.get(form)
    if is_constant is None:
        is_constant = _CONSTANT_FORMS[form] = is_constant_form(form)
    return is_constant and (_is_always_constant(form) or not is_call_parameter(instr))


_CONSTANT_FORMS: dict[Form, bool] = {}


def is_promised_read(instr: Instr) -> bool:
    """Whether the load promises that nobody writes what it reads, as ``ld.global.nc`` and ``ldu`` do, though somebody
    could. The promise holds from the last wait for another grid on (`Effect.GRID`)."""
    form = instr.form
    return form.effects & Effect.READ != 0 and _is_always_constant(form) and form.space not in ("const", "param")


def is_constant_form(form: Form) -> bool:
    """Whether `is_constant_read` holds of all loads of this form, but for parameters of call sequences."""
    return _is_always_constant(form) or form.space in ("const", "param")


def _is_always_constant(form: Form) -> bool:
    return "nc" in form.flags or form.operation is Operation.UNIFORM_LOAD


def is_plain_store(instr: Instr) -> bool:
    """Whether the instruction is a weak ``st`` whose only effect is to write its address."""
    form = instr.form
    return form.operation is Operation.STORE and not form.effects & (Effect.ORDERED | Effect.BARRIER | Effect.ASYNC)
