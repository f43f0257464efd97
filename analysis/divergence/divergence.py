"""Divergence: which values and branches may differ between the lanes of a warp.

Computes: for each value of the SSA view the bits that may differ between lanes that execute the same dynamic instance
of its definition together; from that, for each branch, whether a warp may diverge at it. There are three causes:

- *data*: thread and lane numbers, clocks, atomics, calls, shuffles, loads at a divergent address or from local or
  generic space, parameters of functions, registers that are never written, unknown opcodes; and all values that are
  computed from such values, bit by bit (`varying_bits`);
- *sync*: a φ at a block where lanes meet that took different paths after a divergent branch (`reconvergence`).
  A guarded or partial definition is a φ of the old and the new value, selected by the guard;
- *temporal*: a value that changes in a loop with a divergent exit and is used after that loop.

The granularity is the warp. Uniform are kernel parameters, block and grid coordinates and sizes, ``%warpid`` and
similar registers; the thread index is uniform as far as the block shape shows. ``.reqntid`` fixes the shape.
``.maxntid`` only bounds the number of threads: a kernel with at most 256 threads may be launched as 16 × 16.

Assumed: lanes that execute an instance of a block together stay together in it. So a weak load of global or shared
memory at a uniform address gives all lanes one value (no write happens between the reads of the lanes), and so does
``activemask``. With ``are_lanes_together=False`` that is not assumed: such a load is uniform only if no instruction of
the kernel may write the memory. Volatile, relaxed and acquiring loads are always divergent. A ``.uni`` branch does not
diverge, because its behaviour is undefined if it would.

Requires: the SSA view, loops, dominators and control dependence of one version of a kernel.
Guarantees: sound under the assumption above; near-linear; the same explanation each time.
Reference: Fukuhara's thesis, §4.1; Coutinho, Sampaio, Pereira, Meira, PACT 2011; Rosemann, Moll, Hack, POPL 2021.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...ptx import Effect, Instr, Kernel, Reg, Special, registers
from ...ptx.operations import Operation
from ..effects import is_constant_read, is_may_definition
from ..graph.cfg import Cfg
from ..graph.control_dependence import ControlDependence
from ..graph.loops import Loops
from ..values.ssa import Ssa
from .branch_slice import BranchSlice, values_of
from .reconvergence import Reconvergence
from .sources import Sources, block_shape, lane_selectors, specials_in
from .varying_values import ValueBits

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["Divergence", "Step"]

_ARITHMETIC = frozenset(
    [
        Operation.SUM,
        Operation.DIFFERENCE,
        Operation.NEGATION,
        Operation.PRODUCT,
        Operation.PRODUCT_SUM,
        Operation.WIDE_PRODUCT,
        Operation.WIDE_PRODUCT_SUM,
    ]
)

#: After this number of steps, a value whose varying bits grow around a loop is assumed to vary in all bits.
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an explanation: a text, and the instruction that it describes, if there is one."""

    text: str
    instr: Instr | None = None


class _Cause(NamedTuple):
    """Why a value varies: ``text`` for a source, or the ``value`` that it depends on. ``node`` is the reading node."""

    node: int
    text: str = ""
    value: int = -1
    loop: int = -1  #: the loop that lanes leave with ``value`` in different iterations
    join: int = -1  #: the block at which lanes meet


class Divergence:
    """The divergence of one kernel. Blocks and loops are numbers of the `Cfg` and of `Loops`.

    ``shape`` is the block shape (x, y, z) of the launch, if it is known. With ``branches_only``, values on which no
    branch depends are not analyzed, and only queries about branches are allowed.
    """

    def __init__(
        self,
        kernel: Kernel,
        cfg: Cfg,
        loops: Loops,
        dependence: ControlDependence,
        ssa: Ssa,
        *,
        shape: tuple[int, int, int] | None = None,
        are_lanes_together: bool = True,
        branches_only: bool = False,
    ) -> None:
        self._branches_only = branches_only
        self.kernel = kernel
        self.cfg = cfg
        self.loops = loops
        self.dependence = dependence
        self.ssa = ssa
        self.shape = block_shape(kernel) or shape
        self._sources = Sources(kernel, self.shape, are_lanes_together=are_lanes_together)
        self._reconvergence = Reconvergence(cfg, loops)
        self._solve()

    @classmethod
    def of(cls, facts: Facts, *, branches_only: bool = False) -> Divergence:
        """The divergence of the kernel of ``facts``, for the block shape of ``facts``."""
        return cls(
            facts.kernel,
            facts.cfg,
            facts.loops,
            facts.control_dependence,
            facts.ssa,
            shape=facts.shape,
            branches_only=branches_only,
        )

    # --- questions -----------------------------------------------------------------------------------------------

    def is_divergent(self, block: int) -> bool:
        """Whether only some of the lanes that reach the branch at the end of ``block`` together may take it.

        True even for a branch to the next block, at which no lanes diverge.
        """
        return block in self._branch_cause

    @cached_property
    def divergent_branches(self) -> list[int]:
        """The blocks that end in a divergent branch, ascending."""
        return sorted(self._branch_cause)

    @cached_property
    def cdrnd(self) -> list[bool]:
        """By block: whether it lies in the control dependence region of non-divergence."""
        return self.dependence.cdrnd(self.divergent_branches)

    def has_divergent_exit(self, loop: int) -> bool:
        """Whether lanes may leave the loop in different iterations."""
        return loop in self._reconvergence.loop_cause

    def varying_read(self, instr: Instr, reg: Reg) -> int:
        """The bits of ``reg``, as ``instr`` reads it, that may differ between lanes; 0 if it is uniform."""
        return self._seen(self.ssa.read(instr, reg), self._block_of(instr))

    def varying_result(self, instr: Instr, reg: Reg) -> int:
        """The bits of ``reg``, as ``instr`` writes it, that may differ between the lanes that execute it together."""
        return self.varying[self.ssa.defined(instr, reg)]

    def is_address_divergent(self, instr: Instr) -> bool:
        """Whether the lanes may access different addresses."""
        address = instr.address
        return address is not None and any(self.varying_read(instr, reg) for reg in registers(address))

    def _block_of(self, instr: Instr) -> int:
        return self._block[self._node_of[instr]]

    # --- explanations --------------------------------------------------------------------------------------------

    def why(self, block: int) -> list[Step]:
        """Why the branch at the end of ``block`` diverges: steps from the branch to a source, or to where lanes
        meet."""
        steps = [Step("branch diverges", self.cfg.blocks[block].terminator)]
        return steps + self._chain(self._branch_cause[block])

    def explain(self, block: int) -> str:
        """`why` in one line: ``branch diverges: %p3 ← %r7 ← %tid.x``."""
        first, *rest = [step.text for step in self.why(block)]
        return f"{first}: {' ← '.join(rest)}"

    def _chain(self, cause: _Cause | None) -> list[Step]:
        steps: list[Step] = []
        visited: set[int] = set()
        while cause is not None:
            instr = self._instr[cause.node] if cause.node >= 0 else None
            if cause.join >= 0:
                branch = self._reconvergence.join_cause[cause.join]
                where = f"lanes that diverge at {self._branch_text(branch)} meet at {self._block_text(cause.join)}"
                steps.append(Step(where, self.cfg.blocks[branch].terminator))
                return steps
            if cause.value < 0 or cause.value in visited:
                return [*steps, Step(cause.text, instr)] if cause.text else steps
            if instr is not None and instr.form.effects & Effect.READ:
                steps.append(Step(f"{instr.form.text} at a divergent address", instr))
            if cause.loop >= 0:
                branch = self._reconvergence.loop_cause[cause.loop]
                reg = self.ssa.reg[cause.value]
                header = self._block_text(self.loops.loops[cause.loop].header)
                text = f"{reg.text} leaves the loop at {header} in different iterations, by {self._branch_text(branch)}"
                return [*steps, Step(text, self.cfg.blocks[branch].terminator)]
            visited.add(cause.value)
            definition = self.ssa.instr[cause.value]
            cause, value = self._why.get(cause.value), cause.value
            if definition is not None:  # a φ or an undefined value has no instruction
                steps.append(Step(self.ssa.reg[value].text, definition))
        return steps

    def _block_text(self, block: int) -> str:
        label = self.cfg.blocks[block].label
        return label.text if label is not None else f"block {block}"

    def _branch_text(self, block: int) -> str:
        terminator = self.cfg.blocks[block].terminator
        return f"'{terminator.text}'" if terminator is not None else f"block {block}"

    # --- the graph of values -------------------------------------------------------------------------------------

    def _solve(self) -> None:
        ssa = self.ssa
        count = len(ssa.instr)
        self.varying: list[int] = [0] * count  #: for each SSA value, the bits that may vary
        self._why: dict[int, _Cause] = {}
        self._branch_cause: dict[int, _Cause] = {}
        self._steps: dict[int, int] = {}
        self._bits = ValueBits(ssa, self._sources)
        # Nodes are φs and instructions. A node's reads are values, in the order of `Instr.uses`.
        self._instr: list[Instr | None] = []
        self._block: list[int] = []
        self._reads: list[list[int]] = []
        self._writes: list[list[int]] = []
        self._node_of: dict[Instr, int] = {}
        self._users: dict[int, list[int]] = {}
        self._phi_nodes: dict[int, list[int]] = {}
        self._changes_in: list[int] = [-1] * count  #: the innermost loop in which a value changes
        self._carry_from: dict[int, int] = {}
        self._carry_to: dict[int, list[int]] = {}
        self._carry_varies: set[int] = set()
        self._known_joins: set[int] = set()  #: blocks that are divergent joins, and whose φs know it
        part = BranchSlice(ssa, self.cfg) if self._branches_only else None
        self._build(part)
        is_all = part is None or part.is_for_branches
        self._matters = bytearray(b"\1" * len(self._instr)) if is_all else self._what_branches_read()
        self._queue: deque[int] = deque()
        self._queued = bytearray(len(self._instr))
        self._done = 0
        for value in ssa.undefined:
            self.varying[value] = self._bits.mask(value)
            self._why[value] = _Cause(-1, f"{ssa.reg[value].text}, which nothing has written")
        for instr in self.cfg.unmodelled:
            if instr in self._node_of:
                self._diverge(self._block_of(instr), _Cause(-1, "an unknown opcode that may branch"))
        for node in range(len(self._instr)):
            self._done = node + 1
            self._visit(node)
        self._drain()
        while self._test_joins():
            pass

    def _build(self, part: BranchSlice | None) -> None:
        """Make the nodes; if ``part`` is given, only those in it."""
        ssa, cfg = self.ssa, self.cfg
        for number in cfg.rpo:
            for phi in ssa.phis[number]:
                if part is not None and phi not in part.joined:
                    continue
                self._phi_nodes.setdefault(number, []).append(len(self._instr))
                self._add(None, number, [value for _, value in ssa.phi_args.get(phi, ())], [phi])
                self._changes_in[phi] = self.loops.loop_of[number]
            carry = -1
            for instr in cfg.blocks[number].instrs:
                if instr.is_directive or (part is not None and instr not in part.values):
                    continue
                node = len(self._instr)
                self._node_of[instr] = node
                effects = instr.form.effects
                if effects & (Effect.CARRY_IN | Effect.CARRY_OUT) and not instr.form.is_opaque:
                    if effects & Effect.CARRY_IN and carry >= 0:
                        self._carry_from[node] = carry
                        self._carry_to.setdefault(carry, []).append(node)
                    if effects & Effect.CARRY_OUT:
                        # A guarded one does not change the flag of the other lanes.
                        carry = node if instr.guard is None else -1
                reads, writes = part.values[instr] if part is not None else values_of(ssa, instr)
                self._add(instr, number, reads, writes)
                if writes:
                    changes = self._changes(instr, number, reads)
                    for value in writes:
                        self._changes_in[value] = changes

    @cached_property
    def _leaving(self) -> dict[int, list[int]]:
        """By loop: the nodes outside that read a value which changes in it."""
        leaving: dict[int, list[int]] = {}
        loops, changes_in = self.loops.loops, self._changes_in
        for node, reads in enumerate(self._reads):
            block = self._block[node]
            for value in reads:
                index = changes_in[value]
                if index >= 0 and block not in loops[index]:
                    leaving.setdefault(index, []).append(node)
        return leaving

    def _what_branches_read(self) -> bytearray:
        """By node: whether a branch depends on its result."""
        writer = {value: node for node, values in enumerate(self._writes) for value in values}
        matters = bytearray(len(self._instr))
        work = [n for n, instr in enumerate(self._instr) if instr is not None and instr.form.is_terminator]
        while work:
            node = work.pop()
            if matters[node]:
                continue
            matters[node] = 1
            work += [writer[value] for value in self._reads[node] if value in writer]
            if node in self._carry_from:
                work.append(self._carry_from[node])
        return matters

    def _add(self, instr: Instr | None, block: int, reads: list[int], writes: list[int]) -> None:
        node = len(self._instr)
        self._instr.append(instr)
        self._block.append(block)
        self._reads.append(reads)
        self._writes.append(writes)
        users = self._users
        for value in reads:
            if value in users:
                users[value].append(node)
            else:
                users[value] = [node]

    def _changes(self, instr: Instr, block: int, reads: list[int]) -> int:
        """The innermost loop around ``block`` in which the results may change from iteration to iteration, or -1."""
        innermost = self.loops.loop_of[block]
        if innermost < 0:
            return -1
        effects = instr.form.effects
        if effects & ~(Effect.READ | Effect.TRAP) or (effects & Effect.READ and not is_constant_read(instr)):
            return innermost
        if any(specials_in(instr)):
            return innermost  # a clock changes; code motion hoists reads of other special registers anyway
        deepest = -1
        loops = self.loops.loops
        for value in reads:
            index = self._changes_in[value]
            while index >= 0 and block not in loops[index]:
                index = loops[index].parent
            if index >= 0 and (deepest < 0 or loops[index].depth > loops[deepest].depth):
                deepest = index
        return deepest

    # --- propagation ---------------------------------------------------------------------------------------------

    def _seen(self, value: int, block: int) -> int:
        """The varying bits of ``value`` where ``block`` reads it."""
        if self._left_loop(value, block) >= 0:
            bits = self._bits.known(value)
            return self._bits.mask(value) & ~(bits.zero | bits.one)
        return self.varying[value]

    def _left_loop(self, value: int, block: int) -> int:
        """A loop with a divergent exit in which the value changes and which does not contain the reading block; or
        -1."""
        index = self._changes_in[value]
        if index < 0:
            return -1
        loops, left = self.loops.loops, self._reconvergence.loop_cause
        while index >= 0 and block not in loops[index]:
            if index in left:
                return index
            index = loops[index].parent
        return -1

    def _first_varying(self, node: int, reads: list[int]) -> _Cause | None:
        """The first varying read as a cause; ``None`` if all reads are uniform."""
        block, varying, changes_in = self._block[node], self.varying, self._changes_in
        for value in reads:
            if varying[value]:
                return _Cause(node, value=value)
            if changes_in[value] >= 0:
                loop = self._left_loop(value, block)
                if loop >= 0 and self._seen(value, block):
                    return _Cause(node, value=value, loop=loop)
        return None

    def _visit(self, node: int) -> None:
        if not self._matters[node]:
            return
        instr = self._instr[node]
        if instr is None:
            self._visit_phi(node)
            return
        if self._writes[node]:
            self._visit_definition(node, instr)
        elif instr.form.effects & Effect.CARRY_OUT and not instr.form.is_opaque:
            self._note_carry(node, self._first_varying(node, self._reads[node]))
        if instr.form.is_terminator:
            block = self._block[node]
            if block not in self._branch_cause and "uni" not in instr.form.flags:
                cause = self._first_varying(node, self._reads[node])
                if cause is not None:
                    self._diverge(block, cause)

    def _visit_phi(self, node: int) -> None:
        (phi,) = self._writes[node]
        reads, block = self._reads[node], self._block[node]
        if self._is_divergent_join(block) and self._has_a_choice(phi, block):
            known_bits = self._bits.known(phi)
            self._raise(phi, self._bits.mask(phi) & ~(known_bits.zero | known_bits.one), _Cause(node, join=block))
            return
        bits = 0
        for value in reads:
            bits |= self._seen(value, block)
        if bits & ~self.varying[phi]:
            self._raise(phi, bits, self._first_varying(node, reads))

    def _is_divergent_join(self, block: int) -> bool:
        """Whether lanes may reach ``block`` together over different edges. The first time, queue all of its φs: one of
        them may be visited for another reason than this join, and the others have to know."""
        if not self._reconvergence.is_divergent_join(block):
            return False
        if block not in self._known_joins:
            self._known_joins.add(block)
            for node in self._phi_nodes.get(block, ()):
                self._push(node)
        return True

    def _has_a_choice(self, phi: int, block: int) -> bool:
        """Whether different edges have different values. At a loop header, an edge into the loop and a back edge do not
        count as alternatives."""
        index = self.loops.loop_of[block]
        loop = self.loops.loops[index] if index >= 0 else None
        if loop is None or loop.header != block or index in self._reconvergence.tangled:
            return len({value for _, value in self.ssa.phi_args[phi]}) > 1
        arguments = {(before in loop, value) for before, value in self.ssa.phi_args[phi]}
        return len(arguments) > len({is_back for is_back, _ in arguments})

    def _visit_definition(self, node: int, instr: Instr) -> None:
        cause = self._cause_of(node, instr)
        if instr.form.effects & (Effect.CARRY_IN | Effect.CARRY_OUT) and not instr.form.is_opaque:
            cause = cause or self._carry_cause(node, instr)
            self._note_carry(node, cause)
        if cause is None:
            return
        # All bits of a source vary, except of a special register.
        is_source = cause.text and not any(type(operand) is Special for operand in instr.operands)
        precise = None
        if not (is_source or self._is_lost(instr, cause) or is_may_definition(instr)):
            block = self._block[node]
            varying = {value: self._seen(value, block) for value in self._reads[node]}
            precise = self._bits.precise(instr, varying)
        for value in self._writes[node]:
            bits = self._bits.mask(value) if precise is None else precise.varying & self._bits.mask(value)
            if bits & ~self.varying[value]:
                self._raise(value, bits, cause)

    def _is_lost(self, instr: Instr, cause: _Cause) -> bool:
        """Whether a sum or product varies in all bits because an operand does."""
        value = cause.value
        return value >= 0 and instr.form.operation in _ARITHMETIC and self.varying[value] == self._bits.mask(value)

    def _cause_of(self, node: int, instr: Instr) -> _Cause | None:
        source = self._sources.of(instr)
        if source:
            return _Cause(node, source)
        reads = self._reads[node]
        if instr.form.effects & Effect.READ and not is_constant_read(instr) and self._is_tangled(self._block[node]):
            return _Cause(node, "a load where lanes may be in different iterations of an irreducible loop")
        cause = self._first_varying(node, reads)
        if cause is None:
            return None
        selectors = lane_selectors(instr)
        if selectors is not None:
            chosen = [self.ssa.read(instr, reg) for operand in selectors for reg in registers(operand)]
            if instr.guard is not None and isinstance(instr.guard.reg, Reg):
                chosen.append(self.ssa.read(instr, instr.guard.reg))
            chosen += [self.ssa.old[value] for value in self._writes[node] if value in self.ssa.old]
            return self._first_varying(node, chosen)
        return cause

    def _is_tangled(self, block: int) -> bool:
        tangled = self._reconvergence.tangled
        index = self.loops.loop_of[block] if tangled else -1
        while index >= 0:
            if index in tangled:
                return True
            index = self.loops.loops[index].parent
        return False

    # --- the carry flag ------------------------------------------------------------------------------------------

    def _carry_cause(self, node: int, instr: Instr) -> _Cause | None:
        if not instr.form.effects & Effect.CARRY_IN:
            return None
        producer = self._carry_from.get(node)
        if producer is None:
            return _Cause(node, "a carry from elsewhere")
        return _Cause(node, "a divergent carry") if producer in self._carry_varies else None

    def _note_carry(self, node: int, cause: _Cause | None) -> None:
        if cause is not None and node not in self._carry_varies:
            self._carry_varies.add(node)
            for consumer in self._carry_to.get(node, ()):
                self._push(consumer)

    # --- propagation of changes ----------------------------------------------------------------------------------

    def _raise(self, value: int, bits: int, cause: _Cause | None) -> None:
        """Add varying bits to ``value``, and queue its readers."""
        old = self.varying[value]
        new = old | bits
        if new == old:
            return
        if not old and cause is not None:
            self._why[value] = cause
        steps = self._steps.get(value, 0) + 1
        self._steps[value] = steps
        self.varying[value] = new if steps < _MOST_STEPS else self._bits.mask(value)
        for node in self._users.get(value, ()):
            self._push(node)

    def _push(self, node: int) -> None:
        if node < self._done and not self._queued[node]:
            self._queued[node] = 1
            self._queue.append(node)

    def _diverge(self, block: int, cause: _Cause) -> None:
        if block in self._branch_cause:
            return
        self._branch_cause[block] = cause
        self._queue_after_exits(self._reconvergence.diverge(block))

    def _queue_after_exits(self, indices: list[int]) -> None:
        """Queue the nodes that depend on loops with newly divergent exits, and on newly tangled loops."""
        for index in indices:
            for inner in self._with_inner(index):
                for node in self._leaving.get(inner, ()):
                    self._push(node)
            if index in self._reconvergence.tangled:
                for number in self.loops.loops[index].blocks:
                    for node in self._nodes_of_block(number):
                        self._push(node)

    def _nodes_of_block(self, block: int) -> Iterator[int]:
        yield from self._phi_nodes.get(block, ())
        for instr in self.cfg.blocks[block].instrs:
            if instr in self._node_of:
                yield self._node_of[instr]

    def _drain(self) -> None:
        while self._queue:
            node = self._queue.popleft()
            self._queued[node] = 0
            self._visit(node)

    def _test_joins(self) -> bool:
        """Test the joins again for newly divergent branches; in order, so that one round is enough for a chain."""
        is_changed = False
        for block in self._joins_to_test:
            index = self.loops.loop_of[block]
            if index >= 0 and self.loops.loops[index].is_irreducible and self.loops.loops[index].header == block:
                tangled = self._reconvergence.test_entries(index)
                is_changed = is_changed or bool(tangled)
                self._queue_after_exits(tangled)
            if block not in self._known_joins and self._is_divergent_join(block):
                is_changed = True
            self._drain()
        return is_changed

    @cached_property
    def _joins_to_test(self) -> list[int]:
        """Blocks with φs and headers of irreducible loops, in reverse postorder."""
        headers = {loop.header for loop in self.loops.loops if loop.is_irreducible}
        return [block for block in self.cfg.rpo if block in self._phi_nodes or block in headers]

    @cached_property
    def _inner_loops(self) -> dict[int, list[int]]:
        inner: dict[int, list[int]] = {}
        for loop in self.loops.loops:
            inner.setdefault(loop.parent, []).append(loop.index)
        return inner

    def _with_inner(self, index: int) -> Iterator[int]:
        work = [index]
        while work:
            index = work.pop()
            yield index
            work.extend(self._inner_loops.get(index, ()))
