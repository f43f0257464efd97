"""Whether memory references may access a common byte, and whether an instruction may change what a load reads.

Computes, for references as (state space, symbolic base, byte offset, bytes, objects):

- *spaces*: references in different state spaces are disjoint. A generic address may be in any of them, unless the
  objects that it may point into are known;
- *offsets*: with equal bases, or bases whose difference is a constant modulo a power of two, the offsets decide;
- *objects*: different declared variables are disjoint (`points_to.py` computes what an address points into). The
  buffer of a parameter is in global memory and may be a ``.global`` variable of the module;
- the *promise*: with ``restrict``, the buffers of different pointer parameters are disjoint.

The default, `CONSERVATIVE`, promises nothing. A caller that promises more has to check it when the kernel is launched.

A base is a class of `Values`: the name of a number. In a loop the number may differ in each iteration. So
`Memory.may_alias` holds for one thread and one evaluation of the names: for two accesses without a definition of a part
of the bases between them. `Memory.may_ever_alias` holds at any time and for all threads.

Addresses are compared modulo 2^32, because the sum of base and offset may wrap around: at 2^32 in shared, local,
constant and parameter space, or with a register of 32 bits.
Reference: PTX ISA 9.0, §5.1 and §8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...ptx import Effect, Instr, Kernel, Param, Sym, Variable
from ...ptx.operations import PLAIN_ACCESSES
from ..effects import is_constant_read, is_plain_store, memory_space
from ..values import affine
from ..values.value_numbering import Values
from .points_to import Object, Objects, Pointees, is_pointer_parameter
from .touched_memory import ANY, Buffers, TouchedObjects, accesses, buffers_of, is_with_outside, synchronization

if TYPE_CHECKING:
    from ..manager import Facts
    from .assumptions import Assumptions, Limit

__all__ = [
    "CONSERVATIVE",
    "Memory",
    "Promise",
    "Reference",
    "is_inside_object",
    "is_mutable_read",
    "reference_of",
]

#: Spaces that a generic address can reach.
_ALL = frozenset(["global", "shared", "local", "const", "param"])
_ADDRESSES = 1 << 32


@dataclass(frozen=True)
class Promise:
    """What the user promises about pointer parameters: no other parameter points into the buffer of a covered one.

    ``pairs`` promises less: (kernel, parameter, other parameter), names in alphabetical order, means that the buffers
    of these two parameters are disjoint. ``aligned``: (kernel, parameter, power of two) means that the value of this
    parameter is a multiple of the number. ``inside``: the launch compares the addresses of loads that are executed
    speculatively with the buffers that they lie in; what has to be compared is recorded there. ``limits``: parameters
    that have the largest index of a buffer as their value.

    >>> promise = Promise.parse("restrict:scale.out,add,sum.in+out")
    >>> promise.covers("add", "anything"), promise.covers("scale", "in"), promise.covers("sum", "in")
    (True, False, False)
    >>> promise.are_disjoint("sum", "out", "in"), promise.are_disjoint("sum", "out", "other")
    (True, False)
    """

    everything: bool = False
    kernels: frozenset[str] = frozenset()
    parameters: frozenset[tuple[str, str]] = frozenset()
    pairs: frozenset[tuple[str, str, str]] = frozenset()
    aligned: frozenset[tuple[str, str, int]] = frozenset()
    inside: Assumptions | None = field(default=None, compare=False)
    limits: tuple[Limit, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Promise:
        """The promise of a text: ``conservative``, ``restrict``, or ``restrict:`` with KERNEL, KERNEL.PARAM or
        KERNEL.PARAM+PARAM separated by commas. `ValueError` for anything else."""
        level, colon, rest = text.partition(":")
        if level == "conservative" and not colon:
            return CONSERVATIVE
        if level != "restrict" or (colon and not all(part.strip(".") for part in rest.split(","))):
            raise ValueError(f"'{text}' is neither conservative nor restrict nor restrict:KERNEL[.PARAM[+PARAM]],…")
        if not colon:
            return cls(everything=True)
        kernels: set[str] = set()
        parameters: set[tuple[str, str]] = set()
        pairs: set[tuple[str, str, str]] = set()
        for part in rest.split(","):
            kernel, dot, param = part.strip().partition(".")
            param, plus, other = param.partition("+")
            if (dot and not param) or (plus and not other):
                raise ValueError(f"'{part}' names no parameter")
            if plus:
                pairs.add((kernel, min(param, other), max(param, other)))
            elif dot:
                parameters.add((kernel, param))
            else:
                kernels.add(kernel)
        return cls(kernels=frozenset(kernels), parameters=frozenset(parameters), pairs=frozenset(pairs))

    @property
    def text(self) -> str:
        """The promise as `parse` reads it: what it says about buffers. `aligned` and `inside` have no text."""
        if self.everything:
            return "restrict"
        names = sorted(self.kernels) + sorted(f"{kernel}.{param}" for kernel, param in self.parameters)
        names += sorted(f"{kernel}.{param}+{other}" for kernel, param, other in self.pairs)
        return f"restrict:{','.join(names)}" if names else "conservative"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is promised."""
        stated = (self.everything, self.kernels, self.parameters, self.pairs, self.aligned, self.limits)
        return not any(stated) and self.inside is None

    def covers(self, kernel: str, param: str) -> bool:
        """Whether the buffer of ``param`` is promised to overlap no other parameter's buffer."""
        return self.everything or kernel in self.kernels or (kernel, param) in self.parameters

    def alignment(self, kernel: str, param: str) -> int:
        """A number that divides the value of ``param``."""
        return max((each for name, other, each in self.aligned if (name, other) == (kernel, param)), default=1)

    def names(self, kernel: str, param: str) -> bool:
        """Whether something is promised of the buffer of ``param``."""
        return self.covers(kernel, param) or any(
            each == kernel and param in (one, two) for each, one, two in self.pairs
        )

    def are_disjoint(self, kernel: str, param: str, other: str) -> bool:
        """Whether the buffers of two different parameters are promised to be disjoint."""
        if self.covers(kernel, param) or self.covers(kernel, other):
            return True
        return bool(self.pairs) and (kernel, min(param, other), max(param, other)) in self.pairs


CONSERVATIVE = Promise()


@dataclass(frozen=True)
class RecordingPromise(Promise):
    """A promise that records in ``asked`` what was asked about it: (kernel, parameter, other parameter), names in
    alphabetical order. Code that was transformed without a question is the same under each other promise of this kind.

    ``assumes`` gives, for the facts of a kernel, alignments that could be promised in addition (`Promise.aligned`).
    ``merges`` has, by the name of a kernel, those that its loads need in order to become more vector loads than without
    them. It is empty if there would be no more.
    """

    asked: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], compare=False)
    assumes: Callable[[Facts], frozenset[tuple[str, str, int]]] | None = field(default=None, compare=False)
    merges: dict[str, frozenset[tuple[str, str, int]]] = field(
        default_factory=dict[str, frozenset[tuple[str, str, int]]], compare=False
    )

    def are_disjoint(self, kernel: str, param: str, other: str) -> bool:
        self.asked.add((kernel, min(param, other), max(param, other)))
        return super().are_disjoint(kernel, param, other)


class Reference(NamedTuple):
    """``bytes`` bytes at ``base + offset`` in state space ``space``; ``base`` is a class of `Values`. ``symbol`` is the
    declared object if the address is the object plus a constant and the bytes lie inside it. ``objects`` are the
    objects that the address may point into; ``None`` if that is unknown."""

    space: str
    base: int
    offset: int
    bytes: int
    symbol: object | None = None
    objects: Objects = None


def reference_of(instr: Instr, values: Values, objects: Objects = None) -> Reference | None:
    """The memory that a ``ld`` or ``st`` accesses; ``None`` if it is not one simple address."""
    address = instr.address
    scalar = instr.form.type
    if address is None or address.rest or scalar is None:
        return None
    base, offset = values.address(instr, address)
    size = scalar.bytes * instr.form.lanes
    symbol = address.base.declaration if isinstance(address.base, Sym) else None
    if not (isinstance(symbol, Variable | Param) and _is_inside(symbol, offset, size)):
        symbol = None
    return Reference(memory_space(instr), base, offset, size, symbol, objects)


def is_inside_object(instr: Instr) -> bool:
    """Whether a ``ld`` or ``st`` names a variable or parameter and is aligned and inside it, so that it cannot
    fault."""
    address, scalar = instr.address, instr.form.type
    if address is None or address.rest or scalar is None or not isinstance(address.base, Sym) or address.base.offset:
        return False
    declaration = address.base.declaration
    if not isinstance(declaration, Variable | Param):
        return False
    size = scalar.bytes * instr.form.lanes
    start = declaration.align or declaration.type.bytes * declaration.lanes
    is_aligned = size > 0 and address.offset % size == 0 and start % size == 0
    return is_aligned and _is_inside(declaration, address.offset, size)


def _is_inside(declaration: Variable | Param, offset: int, size: int) -> bool:
    """Whether the bytes lie in the object. No for ``extern`` arrays without a size, because they may share a start."""
    return 0 <= offset and offset + size <= (declaration.bytes or 0)


def is_mutable_read(instr: Instr) -> bool:
    """Whether the load reads memory that may be written while the kernel runs."""
    return instr.form.effects & Effect.READ != 0 and not is_constant_read(instr)


class Memory:
    """The memory references of one kernel. Get it from `Facts.memory`."""

    def __init__(
        self, kernel: Kernel, code: list[list[Instr]], values: Values, pointees: Pointees, promise: Promise
    ) -> None:
        """``code`` holds the instructions of each reachable block. In other blocks no value is known."""
        self.kernel = kernel
        self._code = code
        self.values = values
        self.pointees = pointees
        self.promise = promise
        # Memoized results: by instruction `reference` and `accesses`; by (space, objects, other space, other objects)
        # `are_disjoint`; by pair of bases `_base_distance`; by (space, objects) `is_never_written`.
        self._references: dict[Instr, Reference | None] = {}
        self._accesses: dict[Instr, tuple[TouchedObjects, ...]] = {}
        self._disjoint: dict[tuple[str, Objects, str, Objects], bool] = {}
        self._bases: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._writes: list[tuple[str, Objects]] | None = None
        self._buffers: Buffers | None = None
        self._outside: list[Instr] | None = None
        self._unwritten: dict[tuple[str, Objects], bool] = {}

    @classmethod
    def of(cls, facts: Facts) -> Memory:
        """The memory references of the kernel of ``facts``."""
        values = facts.values
        bits = (facts.module.address_size if facts.module is not None else None) or 64
        cfg = facts.cfg
        pointees = Pointees(facts.kernel, cfg, values.ssa, values.late, bits)
        code = [cfg.blocks[block].instrs for block in cfg.rpo]
        return cls(facts.kernel, code, values, pointees, facts.promise)

    # --- what is touched -------------------------------------------------------------------------------------------

    def reference(self, instr: Instr) -> Reference | None:
        """The memory that a ``ld``, ``st``, ``atom`` or ``red`` accesses; ``None`` if it is not one simple address."""
        if instr in self._references:
            return self._references[instr]
        reference = None
        if instr.form.effects & (Effect.READ | Effect.WRITE) and instr.form.operation in PLAIN_ACCESSES:
            try:
                reference = reference_of(instr, self.values, self.objects(instr))
            except KeyError:
                reference = None  # the block is unreachable
        self._references[instr] = reference
        return reference

    def objects(self, instr: Instr) -> Objects:
        """The objects that the address of ``instr`` may point into; ``None`` if that is unknown. A parameter means
        itself for ``ld.param``, and the buffer that it points to otherwise."""
        address = instr.address
        if address is None or address.rest:
            return None
        return self.pointees.of_address(instr, address, memory_space(instr))

    def accesses(self, instr: Instr) -> tuple[TouchedObjects, ...]:
        """All memory that ``instr`` may access, now or later."""
        memory = self._accesses.get(instr)
        if memory is None:
            memory = self._accesses[instr] = accesses(instr, self.pointees.of_address)
        return memory

    @property
    def buffers(self) -> Buffers:
        """The buffers that the kernel may read and write, by the names of its parameters."""
        if self._buffers is None:
            self._buffers = buffers_of(access for instr in self._instructions() for access in self.accesses(instr))
        return self._buffers

    def _instructions(self) -> Iterator[Instr]:
        for instrs in self._code:
            yield from instrs

    # --- pairs -----------------------------------------------------------------------------------------------------

    def may_alias(self, a: Reference, b: Reference) -> bool:
        """Whether the references may share a byte, in one thread and one evaluation of their bases."""
        if self.are_disjoint(a.space, a.objects, b.space, b.objects):
            return False
        distance = self.distance(a, b)
        if distance is None:
            return True
        start, modulus = distance
        return start < b.bytes or modulus - start < a.bytes

    def must_alias(self, a: Reference, b: Reference) -> bool:
        """Whether the references are to exactly the same bytes, in one thread and one evaluation of their bases."""
        same_place = a.base == b.base and a.offset == b.offset and a.bytes == b.bytes
        return same_place and _are_comparable(a.space, b.space)

    def may_ever_alias(self, a: Reference, b: Reference) -> bool:
        """Whether the references may share a byte at any two times, in any threads of a block; for global memory, of
        the grid."""
        return not self.are_disjoint(a.space, a.objects, b.space, b.objects)

    def are_disjoint(self, space: str, objects: Objects, other_space: str, other: Objects) -> bool:
        """Whether ``objects`` in ``space`` and ``other`` in ``other_space`` have no common byte, for all addresses."""
        key = (space, objects, other_space, other)
        are_disjoint = self._disjoint.get(key)
        if are_disjoint is None:
            are_disjoint = self._disjoint[key] = self._test_disjoint(space, objects, other_space, other)
        return are_disjoint

    def _test_disjoint(self, space: str, objects: Objects, other_space: str, other: Objects) -> bool:
        here, there = _regions(space, objects), _regions(other_space, other)
        if here.isdisjoint(there) and "any" not in (space, other_space):
            return True
        if objects is None or other is None:
            return False
        return not any(self._may_share(one, two) for one in objects for two in other)

    def _may_share(self, one: Object, two: Object) -> bool:
        """Whether two objects, or the buffers that two parameters point to, may have a common byte."""
        if one is two:
            return True
        if isinstance(one, Param) and isinstance(two, Param):
            return not self._is_promised(one, two)
        if isinstance(one, Variable) and isinstance(two, Variable):
            # All arrays without a size start at the start of the dynamic shared memory.
            return one.space == two.space and one.bytes is None and two.bytes is None
        variable = one if isinstance(one, Variable) else two
        return isinstance(variable, Variable) and variable.space in ("global", "const")

    def _is_promised(self, param: Param, other: Param) -> bool:
        """Whether the promise says that the buffers of pointer parameters ``param`` and ``other`` are disjoint. A
        structure of pointers is no pointer parameter, because the launch could not check what it points to."""
        bits = self.pointees.address_bits
        if not (is_pointer_parameter(param, bits) and is_pointer_parameter(other, bits)):
            return False
        return self.promise.are_disjoint(self.kernel.name, param.name, other.name)

    def distance(self, a: Reference, b: Reference) -> tuple[int, int] | None:
        """(d, m): the address of ``a`` is the address of ``b`` plus d bytes, modulo m; ``None`` if that is unknown.

        For references with the same bases and spaces, m is the same, and d minus (offset of ``a`` - offset of ``b``) is
        the same modulo m.
        """
        if not _are_comparable(a.space, b.space):
            return None
        if a.base == b.base:
            return (a.offset - b.offset) % _ADDRESSES, _ADDRESSES
        between = self._base_distance(a.base, b.base)
        if between is None:
            return None
        start, modulus = between
        return (start + a.offset - b.offset) % modulus, modulus

    def _base_distance(self, one: int, two: int) -> tuple[int, int] | None:
        """(d, m): base ``one`` is base ``two`` plus d, modulo m > 1; ``None`` if there is no such m."""
        key = (one, two)
        if key in self._bases:
            return self._bases[key]
        distance = None
        for width in (64, 32):
            left, right = self.values.affine_of(one, width), self.values.affine_of(two, width)
            if left.single_atom == one and right.single_atom == two:
                continue  # neither has a form of this width
            difference = affine.add(left, right, -1)
            if difference is not None:
                factor = min([_ADDRESSES, *(coefficient & -coefficient for _, coefficient in difference.terms)])
                if factor > 1:
                    distance = (difference.constant % factor, factor)
                    break
        self._bases[key] = distance
        return distance

    # --- what changes ----------------------------------------------------------------------------------------------

    def is_unwritten(self, instr: Instr) -> bool:
        """Whether nobody writes the bytes of the load while the kernel runs: no thread of this kernel writes them, and
        the kernel cannot wait for another grid or the host (`outside`)."""
        form = instr.form
        if not form.effects & Effect.READ or form.effects & (Effect.ORDERED | Effect.WRITE) or form.is_opaque:
            return False
        if is_constant_read(instr):
            return True
        accesses = self.accesses(instr)
        return (
            len(accesses) == 1
            and accesses[0].space != ANY
            and self.is_never_written(accesses[0].space, accesses[0].objects)
        )

    def is_never_written(self, space: str, objects: Objects) -> bool:
        """Whether nobody may write any of ``objects`` in ``space`` while the kernel runs."""
        key = (space, objects)
        is_unwritten = self._unwritten.get(key)
        if is_unwritten is None:
            # The caller of a function may write all memory that other threads can access.
            is_own = self.kernel.is_entry or _regions(space, objects) <= {"local", "const", "param"}
            is_unwritten = is_own and all(self.are_disjoint(*key, *written) for written in self._all_writes())
            if is_unwritten and "global" in _regions(space, objects):
                is_unwritten = self.outside is None
            self._unwritten[key] = is_unwritten
        return is_unwritten

    def _all_writes(self) -> list[tuple[str, Objects]]:
        if self._writes is None:
            writes: dict[tuple[str, Objects], None] = {}
            for instr in self._instructions():
                if instr.form.effects & Effect.WRITE:
                    writes.update(
                        dict.fromkeys((each.space, each.objects) for each in self.accesses(instr) if each.writes)
                    )
            self._writes = list(writes)
        return self._writes

    @property
    def outside(self) -> Instr | None:
        """An instruction that may wait for another grid or the host, if there is one. Memory that this kernel does not
        write may change at such an instruction, and at barriers after it."""
        if self._outside is None:
            instrs = (each for each in self._instructions() if not each.is_directive)
            self._outside = [each for each in instrs if is_with_outside(each.form)][:1]
        return self._outside[0] if self._outside else None

    def kills(self, instr: Instr, load: Instr | Reference) -> str:
        """The id of the reason why ``instr`` may change the value that ``load`` reads, in this thread or in another
        one. ``""`` if it cannot change it. Assumes that no part of the load's address is defined between the two
        instructions."""
        if instr.is_directive:
            return ""
        effects = instr.form.effects
        reference = load if isinstance(load, Reference) else self.reference(load)
        if isinstance(load, Instr):
            if load.form.effects & (Effect.ORDERED | Effect.WRITE) or load.form.is_opaque:
                return "ordered"
            is_constant, is_unwritten = is_constant_read(load), self.is_unwritten(load)
        else:
            is_constant = load.space in _CONSTANT and not _is_of_call(load)
            is_unwritten = self.is_never_written(load.space, load.objects)
        if not effects & _CHANGES:
            return ""
        if is_constant:
            # Read-only memory is read-only after the wait for the previous grid.
            is_late = effects & Effect.GRID and not (reference and reference.space in _CONSTANT)
            return "grid-dependency" if is_late else ""
        if is_unwritten:
            return ""
        why = synchronization(instr.form)
        if why in ("opaque", "call"):
            return why
        if why and not (reference is not None and self.is_private(reference)):
            return why
        if reference is None:
            return "store" if effects & Effect.WRITE else ""
        return "store" if self._may_write(instr, reference) else ""

    def is_private(self, reference: Reference) -> bool:
        """Whether no other thread can access the bytes: they are in local memory."""
        return _regions(reference.space, reference.objects) <= {"local"}

    def _may_write(self, instr: Instr, reference: Reference) -> bool:
        if is_plain_store(instr) or instr.form.operation in PLAIN_ACCESSES:
            written = self.reference(instr)
            if written is not None:
                return self.may_alias(written, reference)
        return any(
            not self.are_disjoint(each.space, each.objects, reference.space, reference.objects)
            for each in self.accesses(instr)
            if each.writes
        )


_CONSTANT = ("const", "param")
_CHANGES = Effect.WRITE | Effect.BARRIER | Effect.ORDERED | Effect.ASYNC


def _regions(space: str, objects: Objects) -> frozenset[str]:
    """The state spaces in which the memory may lie."""
    if space not in ("generic", ANY):
        return frozenset([space])
    if objects is None or space == ANY:
        return _ALL
    return frozenset(["global" if isinstance(each, Param) else each.space for each in objects])


def _are_comparable(left: str, right: str) -> bool:
    """Whether equal numbers are equal addresses: in one space, and for global and generic addresses."""
    return left == right or {left, right} == {"global", "generic"}


def _is_of_call(reference: Reference) -> bool:
    """Whether the reference may be to a ``.param`` variable of a call sequence."""
    objects = reference.objects
    return reference.space == "param" and (objects is None or any(isinstance(each, Variable) for each in objects))
