"""Which instructions have results that may differ between lanes even if all operands are uniform.

Computes: a text with the reason, or the empty string if a result differs only if an operand does. Also the known bits
of special registers and the widths of operands, for `varying_bits`.

The opcode table has ``source``, ``uniform`` or ``propagate`` for each opcode. For loads and shuffles more is tested
here. Reference: PTX ISA 9.0, §10 (special registers), §9.7.9 (data movement), §9.7.13.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ...arch import MAX_THREADS
from ...ptx import Effect, Form, Imm, Instr, Kernel, Operand, Reg, ScalarType, Special, Variable
from ...ptx.operands import Args, Vec, walk
from ...ptx.operations import LOADS, Operation
from ...ptx.types import literal_value
from ..effects import is_call_parameter, is_constant_read, memory_space
from .varying_bits import Bits, special_registers, unknown

__all__ = ["Sources", "block_shape", "is_broadcast", "lane_selectors", "most_threads", "operand_widths", "specials_in"]

#: Special registers that differ between lanes or between two reads, without the suffix of their component.
_DIVERGENT_SPECIALS = frozenset(
    "%clock %clock_hi %clock64 %globaltimer %globaltimer_lo %globaltimer_hi %smid "
    "%lanemask_eq %lanemask_le %lanemask_lt %lanemask_ge %lanemask_gt".split()
)


def block_shape(kernel: Kernel) -> tuple[int, int, int] | None:
    """The block shape that ``.reqntid`` fixes, or ``None``."""
    stated = kernel.directive_numbers("reqntid")
    if not stated:
        return None
    x, y, z = (*stated, 1, 1)[:3]
    return x, y, z


def most_threads(kernel: Kernel) -> int:
    """The limit of ``.maxntid``. It bounds only the number of threads, not the single dimensions."""
    stated = kernel.directive_numbers("maxntid")
    return min(max(prod(stated), 1), MAX_THREADS) if stated else MAX_THREADS


class Sources:
    """The sources of divergence in one kernel. The block shape is (x, y, z), or ``None`` if it is unknown."""

    def __init__(self, kernel: Kernel, shape: tuple[int, int, int] | None, *, are_lanes_together: bool) -> None:
        self.kernel = kernel
        self.are_lanes_together = are_lanes_together
        self._specials = special_registers(shape, most_threads(kernel))
        self._has_call_parameters = any(
            isinstance(declaration, Variable) and declaration.space == "param" for declaration in _variables(kernel)
        )
        self._written: frozenset[str] | None = None

    def special(self, operand: Special) -> Bits:
        """The bits of a special register; of a vector such as ``%tid``, the bits that vary in any component."""
        bits = self._specials.get(operand.name)
        if bits is not None:
            return bits
        components = [self._specials.get(f"{operand.name}.{axis}", Bits(0)).varying for axis in "xyz"]
        if any(components):
            return Bits(components[0] | components[1] | components[2])
        base = operand.name.partition(".")[0]
        if base in _DIVERGENT_SPECIALS or base.startswith("%pm"):
            return unknown(operand.type.bits)
        return Bits(0)

    def of(self, instr: Instr) -> str:
        """Why the results may differ between lanes even if all registers that are read are uniform; else ``""``."""
        form = instr.form
        if form.is_opaque:
            return f"{form.text}, which is unknown"
        operation = form.operation
        if form.is_call:
            return "the result of a call"
        if operation in LOADS:
            return self._load(instr, form)
        if operation is Operation.VOTE:
            if "sync" not in form.flags:
                return "" if self.are_lanes_together else f"{form.text}, whose lanes may have diverged"
            return form.text if form.op.divergence == "source" else ""
        if form.op.divergence == "source" and not is_broadcast(instr):
            return form.text
        if operation is Operation.TO_GENERIC and form.space == "local":
            return "the address of an object that each thread has"
        for special in specials_in(instr):
            if self.special(special).varying:
                return special.name
        return ""

    def _load(self, instr: Instr, form: Form) -> str:
        space = memory_space(instr)
        if space in ("local", "generic"):
            return f"a load from {space} memory"
        if form.effects & Effect.ORDERED:
            return f"{form.text}, whose memory other threads may write at any time"
        if space == "param":
            if not self.kernel.is_entry:
                return "a parameter of a function"
            address = instr.address
            is_unclear = address is None or isinstance(address.base, Reg)
            if is_call_parameter(instr) or (is_unclear and self._has_call_parameters):
                return "the result of a call"
        if is_constant_read(instr) or self.are_lanes_together:
            return ""
        written = self._written_spaces()
        return f"a load from {space} memory that is written" if space in written or "generic" in written else ""

    def _written_spaces(self) -> frozenset[str]:
        """The state spaces that the kernel may write; ``generic`` stands for any."""
        if self._written is None:
            # The caller of a function may write all memory.
            spaces: set[str] = set() if self.kernel.is_entry else {"generic"}
            for instr in self.kernel.instructions():
                effects = instr.form.effects
                if effects & Effect.ASYNC or (effects & Effect.WRITE and instr.address is None):
                    spaces.add("generic")
                elif effects & Effect.WRITE:
                    spaces.add(memory_space(instr))
            self._written = frozenset(spaces)
        return self._written


def specials_in(instr: Instr) -> Iterable[Special]:
    """The special registers that the instruction reads, also as elements of a brace list."""
    for operand in instr.operands:
        if type(operand) is Special:
            yield operand
        elif type(operand) is Vec or type(operand) is Args:
            yield from (part for part in walk(operand) if isinstance(part, Special))


def _variables(kernel: Kernel) -> Iterable[object]:
    yield from kernel.declarations
    for block in kernel.blocks:
        for instr in block.instrs:
            if instr.is_directive:
                yield getattr(instr, "declaration", None)


def is_broadcast(instr: Instr) -> bool:
    """Whether a shuffle gives all 32 lanes the value of one lane: ``shfl.sync.idx d, a, lane, 31, -1``."""
    form = instr.form
    if (
        form.operation is not Operation.SHUFFLE
        or form.mods.get("mode") != "idx"
        or "sync" not in form.flags
        or len(instr.operands) != 5
    ):
        return False
    bounds, members = instr.operands[3], instr.operands[4]
    if not (isinstance(bounds, Imm) and isinstance(members, Imm)):
        return False
    return literal_value(bounds.text) == 31 and int(literal_value(members.text)) & 0xFFFFFFFF == 0xFFFFFFFF


def lane_selectors(instr: Instr) -> tuple[Operand, ...] | None:
    """Where a result is one for all lanes that take part: the operands that say which lanes do, or which lane gives it.

    ``None`` for all other instructions.
    """
    operation = instr.form.operation
    if operation is Operation.BARRIER and instr.form.dst_count:
        return instr.operands[1:-1]
    if operation is Operation.VOTE and instr.form.op.divergence == "uniform":
        return instr.operands[-1:] if "sync" in instr.form.flags else ()
    if is_broadcast(instr):
        return instr.operands[2:3]
    return None


def operand_widths(form: Form) -> tuple[int, ...]:
    """The width in bits of each operand by the opcode table; 0 if it is unknown."""
    widths = _WIDTHS.get(form)
    if widths is None:
        widths = _WIDTHS[form] = tuple(_width(form.operand_type(spec)) for spec in form.specs)
    return widths


_WIDTHS: dict[Form, tuple[int, ...]] = {}


def _width(scalar: ScalarType | None) -> int:
    return scalar.bits if scalar is not None and scalar.lanes == 1 else 0
