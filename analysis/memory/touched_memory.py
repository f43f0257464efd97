"""Which memory an instruction may access, and by which instructions threads synchronize.

Computes: the accesses of an instruction, each a state space and the objects that its address may point into; the
buffers that a kernel may read and write, by the names of its parameters; the reason why an instruction may change the
values that other loads read.

Requires: `points_to.Pointees`. Guarantees: the accesses of an instruction cover every byte that it may access, now or
later, by itself or by a function that it calls. Instructions that are not modelled in detail (calls, unknown opcodes,
bulk copies, textures) may access all memory, in space ``any``.
Reference: PTX ISA 9.0, §8 (memory consistency model) and §9.7.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...ptx import Effect, Form, Instr, Mem, Param
from ...ptx.notation import STRONG, SYNCHRONIZING
from ...ptx.operations import Operation, Touches
from ..effects import memory_space
from .points_to import Object, Objects

__all__ = ["ANY", "TouchedObjects", "Buffers", "accesses", "buffers_of", "is_with_outside", "synchronization"]

#: The space of an access that may be in any state space.
ANY = "any"

_SPACES = ("global", "shared", "local", "const", "param")
_TOUCHES = Effect.READ | Effect.WRITE
_NARROW = frozenset(["cta", "cluster"])
_WIDE = frozenset(["gl", "gpu", "sys"])


@dataclass(frozen=True, slots=True)
class TouchedObjects:
    """Memory that an instruction may read or write: a state space, and objects in it (``None``: any)."""

    space: str
    objects: Objects
    reads: bool
    writes: bool


def accesses(instr: Instr, objects_of: Callable[[Instr, Mem, str], Objects]) -> tuple[TouchedObjects, ...]:
    """The accesses of ``instr``. ``objects_of``: what an address of an instruction in a state space may point into."""
    form = instr.form
    effects = form.effects
    if not effects & _TOUCHES or instr.is_directive:
        return ()
    touches = form.op.touches
    reads, writes = effects & Effect.READ != 0, effects & Effect.WRITE != 0
    if touches is Touches.NOTHING:
        return ()
    if touches is Touches.UNKNOWN:
        return (TouchedObjects(ANY, None, reads, writes),)
    addresses = [operand for operand in instr.operands if isinstance(operand, Mem)]
    if touches is Touches.SHARED_COPY and len(addresses) == 2:
        to, source = addresses
        return (
            TouchedObjects("shared", objects_of(instr, to, "shared"), reads=False, writes=True),
            TouchedObjects("global", objects_of(instr, source, "global"), reads=True, writes=False),
        )
    if touches is Touches.BARRIER_OBJECT and addresses:
        return (TouchedObjects("shared", objects_of(instr, addresses[0], "shared"), reads=True, writes=True),)
    if touches not in (Touches.ADDRESS, Touches.SHARED) or len(addresses) != 1 or addresses[0].rest:
        return (TouchedObjects(ANY, None, reads, writes),)
    space = "shared" if touches is Touches.SHARED else _space(instr)
    return (TouchedObjects(space, objects_of(instr, addresses[0], space), reads, writes),)


def _space(instr: Instr) -> str:
    """The state space of the only address. For opcodes whose table row has a wildcard, the flags contain its name."""
    space = memory_space(instr)
    if space != "generic" or not instr.form.op.wildcard:
        return space
    for flag in instr.form.flags:
        word = flag.partition("::")[0]
        if word in _SPACES:
            return word
    return "generic"


# --- synchronization -------------------------------------------------------------------------------------------------


def synchronization(form: Form) -> str:
    """Why an instruction of this form may change what a weak load reads from memory that other threads may write; an
    empty string if it changes only what its own accesses write."""
    effects = form.effects
    if form.is_opaque:
        return "opaque"
    if form.is_call:
        return "call"
    if effects & Effect.BARRIER:
        return "barrier"
    if effects & Effect.ORDERED:
        return "ordered"
    return "async" if effects & Effect.ASYNC else ""


def is_with_outside(form: Form) -> bool:
    """Whether the instruction may order accesses of this grid after accesses of another grid or of the host. After it,
    and after barriers that follow it, memory may hold values that this kernel has not written.

    Such an instruction is an acquiring operation or a fence with a scope wider than a cluster, or a wait for another
    grid. A volatile or relaxed load from global memory counts as well, because a thread may wait for its value. A
    relaxed atomic does not count. The effects of the table row and the modifiers decide, so that new opcodes are
    covered.
    """
    effects = form.effects
    if effects & Effect.GRID:
        return True
    words = frozenset(form.text.split("."))
    if words & _NARROW or not effects & (Effect.BARRIER | Effect.ORDERED):
        return False
    if form.operation is Operation.FENCE:
        return "proxy" not in words or bool(words & _WIDE)
    if words & SYNCHRONIZING:
        return True
    is_only_read = effects & Effect.READ != 0 and not effects & Effect.WRITE
    return is_only_read and bool(words & STRONG) and form.space in ("global", "generic")


# --- buffers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Buffers:
    """The memory that outlives the kernel and that the kernel may access, by the names of its parameters.

    ``unknown_reads`` and ``unknown_writes``: the kernel may also access memory to which no parameter points directly:
    through a pointer from memory, in a function that it calls, through a texture, or in a variable of the module.
    ``variables_read`` and ``variables_written`` are the names of these variables.
    """

    reads: frozenset[str]
    writes: frozenset[str]
    unknown_reads: bool
    unknown_writes: bool
    variables_read: frozenset[str] = frozenset()
    variables_written: frozenset[str] = frozenset()


def buffers_of(touched: Iterable[TouchedObjects]) -> Buffers:
    """The buffers of a kernel with these accesses."""
    read: set[Object | None] = set()
    written: set[Object | None] = set()
    for access in touched:
        if access.space not in ("global", "generic", ANY):
            continue
        objects: Iterable[Object | None] = access.objects if access.objects is not None else (None,)
        if access.reads:
            read.update(objects)
        if access.writes:
            written.update(objects)
    sides = [
        (
            frozenset(each.name for each in side if isinstance(each, Param)),
            frozenset(each.name for each in side if each is not None and _is_of_module(each)),
            None in side,
        )
        for side in (read, written)
    ]
    (reads, variables_read, is_unknown_read), (writes, variables_written, is_unknown_write) = sides
    return Buffers(
        reads,
        writes,
        is_unknown_read or bool(variables_read),
        is_unknown_write or bool(variables_written),
        variables_read,
        variables_written,
    )


def _is_of_module(found: Object) -> bool:
    return not isinstance(found, Param) and found.space == "global"
