"""Forward queries: is a load evaluated on every path onward, and is its address dereferenced on every path onward.

Computes, for an address given in terms of the values at an edge of the graph, whether every path from the edge reads it
before its bytes may change (``value``), or reads or writes it (``address``). In the second case a read at the edge
cannot fault, even if the bytes change later. A state is a block, the values of its φs in terms of the values at the
edge, and the leaves that were defined again since the edge. Addresses of the code are translated into these terms
before they are compared, so that the query is about one address, in whatever registers later iterations compute it. If
the condition of a branch is a comparison of constants in these terms, only the taken successor is followed.

Rules (thesis §4.3.2): false where the thread may end, and after an instruction that may not return (1); true for a
state that was visited before (2); false at an instruction that may change the operands or the bytes (3); true at the
load (4); otherwise true if it is true for all successors (5).

Guarantees: a block is visited at most `VISITS` times with different values of its φs, then once more without their
values; at most ``budget`` states are visited; if there is no answer then, it is *no*. Like lazy code motion, *value*
assumes that loops with an exit end. *address* does not assume it, and its paths end at barriers, because another thread
may never arrive there: the answer is false if a thread may run forever without accessing the address. Refuses: parts
of the graph without an exit.
Reference: thesis §4.3.2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from ...analysis.effects import is_plain_store
from ...analysis.graph.finite_loops import FiniteLoops
from ...analysis.manager import Facts
from ...analysis.memory.alias import Reference
from ...analysis.values.symbolic_values import SymbolicValues
from ...graphs import strongly_connected_components
from ...ptx import Effect, Instr, Label, Reg, ScalarType
from ...ptx.operations import Operation
from .access_index import Accesses
from .questions import Question

__all__ = ["Anticipation", "VISITS"]

VISITS = 4

#: A base that is the number of no expression.
_UNKNOWN = -2


class _State:
    """A state of a walk. There is one object for each combination of block, ``known`` and ``changed``, so that states
    are compared by identity. A state does not depend on the query, so the results stored in it hold for all queries."""

    __slots__ = ("addresses", "block", "changed", "known", "ways")

    def __init__(self, block: int, known: dict[int, int], changed: int) -> None:
        self.block = block
        #: By number of a φ: the number of its value in terms of the values at the edge.
        self.known = known
        #: The leaves that were defined again since the edge, as bits of `Anticipation._bit_of`.
        self.changed = changed
        #: The successors that control may take from here; ``None``: not computed yet.
        self.ways: list[int] | None = None
        #: By (base, width, position) of an address the same address as (base, offset) in terms of the edge; ``None`` if
        #: there is none.
        self.addresses: dict[tuple[int, int, int], tuple[int, int] | None] = {}


@dataclass(eq=False, slots=True)
class _Event:
    """An instruction that matters for queries: ``kind`` is ``load``, ``kill`` (stores included), ``pinch`` or ``wait``
    (`Accesses.waits`)."""

    position: int
    kind: str
    instr: Instr
    question: Question | None = None


#: The comparison that decides a branch, the numbers of its left and right operand, their type, and the target block.
_Condition: TypeAlias = tuple[Instr, int, int, ScalarType, int]


class Anticipation:
    """Answers queries about all paths from an edge. Answers are memoized, so an object is valid for one version of the
    kernel."""

    def __init__(self, facts: Facts, symbols: SymbolicValues, accesses: Accesses, *, budget: int = 64) -> None:
        self.facts = facts
        self.cfg = facts.cfg
        self.symbols = symbols
        self.accesses = accesses
        self.budget = budget
        self.endless = facts.cfg.never_leaving
        self._exits = frozenset(self.cfg.exits)
        self._loops = facts.loops
        #: By block: its events.
        self._events: dict[int, list[_Event]] = {}
        #: The answers by (block, successor, question, is_value).
        self._answers: dict[tuple[int, int, Question, bool], bool] = {}
        #: By leaf of interest (`_leaves_of_interest`) its bit; ``None``: not computed yet.
        self._bit_of: dict[int, int] | None = None
        #: By block: the leaves of interest that it defines, as bits.
        self._defined_in: dict[int, int] = {}
        #: By block: the leaves of interest whose definitions dominate it, as bits.
        self._dominating: dict[int, int] = {}
        #: By block: the leaves of interest whose place is in it, as bits.
        self._placed: dict[int, int] = {}
        #: By block: its φs of interest.
        self._phis_of: dict[int, frozenset[int]] = {}
        #: By edge (block, successor): by φ the number of its argument.
        self._arguments: dict[tuple[int, int], Mapping[int, int]] = {}
        #: By block: the condition of its branch (`_condition`).
        self._conditions: dict[int, _Condition | None] = {}
        #: By (block, successor, space, base, width) of a walk that did not meet the address: the byte ranges
        #: (start, end) of the accesses with this base that it passed.
        self._passed: dict[tuple[int, int, str, int, int], set[tuple[int, int]]] = {}
        #: For the current walk: the byte ranges that it passed, and whether it met the address.
        self._ranges: set[tuple[int, int]] = set()
        self._is_met = False
        #: By (base, other base): the result of `can_become`.
        self._becomes: dict[tuple[int, int], bool] = {}
        #: By block: the result of `_may_be_decided`.
        self._decided: dict[int, bool] = {}
        #: By (start block, space, base, width): the result of `_certainly_fails`.
        self._failures: dict[tuple[int, str, int, int], bool] = {}
        #: By (state, successor, is_lost) the next state (`_enter`). Stored here because references between states would
        #: be cyclic.
        self._following: dict[tuple[_State, int, bool], _State] = {}
        #: By (block, items of `known`, `changed`): the state.
        self._states: dict[tuple[int, frozenset[tuple[int, int]], int], _State] = {}
        self._blocks = {block.label: number for number, block in enumerate(self.cfg.blocks) if block.label is not None}

    def is_evaluated(self, block: int, successor: int, question: Question) -> bool:
        """Whether every path from the edge loads the bytes before they may change. ``question`` is in terms of the
        values at the end of ``block``."""
        return self._ask(block, successor, question, is_value=True)

    def is_dereferenced(self, block: int, successor: int, question: Question) -> bool:
        """Whether every path from the edge reads or writes the address."""
        return self._ask(block, successor, question, is_value=False)

    def _ask(self, block: int, successor: int, question: Question, *, is_value: bool) -> bool:
        key = (block, successor, question, is_value)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._walk(block, successor, question, is_value=is_value)
        return answer

    def _can_become(self, base: int, other: int) -> bool:
        answer = self._becomes.get((base, other))
        if answer is None:
            answer = self._becomes[base, other] = self.accesses.inputs.can_become(base, other)
        return answer

    def _certainly_fails(self, start: int, question: Question) -> bool:
        """Whether the walk from the start of a block certainly ends with *no*: some path leaves the kernel or exceeds
        the budget without a possible access to these bytes and without a branch that may be decided. This test uses
        blocks, not states, and visits no more than the walk would. It considers only the base of the address, so that
        its result is memoized for all offsets."""
        key = (start, question.space, question.base, question.width)
        answer = self._failures.get(key)
        if answer is None:
            answer = self._failures[key] = self._test_failure(start, question)
        return answer

    def _test_failure(self, start: int, question: Question) -> bool:
        number = self.cfg.rpo_number
        seen = {start}
        work = [start]
        while work:
            block = work.pop()
            if self._may_answer(block, question):
                continue
            following = self.cfg.succ[block]
            if block in self.endless or block in self._exits or not following:
                return True
            if len(following) == 2 and self._may_be_decided(block):
                continue
            for after in sorted(following, key=number.__getitem__) if len(following) > 1 else following:
                if after not in seen:
                    seen.add(after)
                    work.append(after)
            if len(seen) > self.budget:
                return True
        return False

    def _may_answer(self, block: int, question: Question) -> bool:
        """Whether an access in the block may be to the bytes."""
        for event in self._events_of(block):
            own = event.question
            if own is None or own.space != question.space or own.width != question.width:
                continue
            if own.base == question.base or self._can_become(own.base, question.base):
                return True
        return False

    def _may_be_decided(self, block: int) -> bool:
        """Whether `_ways` may find that only one successor is taken: both operands of the condition may be
        constants."""
        may_be = self._decided.get(block)
        if may_be is None:
            condition = self._condition(block)
            may_be = condition is not None and all(self._may_be_constant(each) for each in condition[1:3])
            self._decided[block] = may_be
        return may_be

    def _may_be_constant(self, number: int) -> bool:
        """Whether the number may be a constant in terms of an edge."""
        symbols, seen, work = self.symbols, set[int](), [number]
        while work:
            number = work.pop()
            place = symbols.places.get(number)
            if place is not None:
                if place.position < 0 and number not in seen:
                    seen.add(number)
                    phi = symbols.phis.get(place.block, {}).get(number)
                    arguments = symbols.ssa.phi_args.get(phi, ()) if phi is not None else ()
                    work += [symbols.values.number[value] for _, value in arguments]
                continue
            leaves, key = symbols.leaves(number), symbols.key(number)
            if leaves is None:
                continue
            if not leaves:
                if key[0] == "affine" and not key[3]:
                    return True
            elif key[0] == "affine" and len(cast("tuple[object, ...]", key[3])) == 1:
                ((atom, _),) = cast("tuple[tuple[int, int], ...]", key[3])
                work.append(atom)
            # Several values may cancel out.
            elif any(symbols.places[leaf].position < 0 for leaf in leaves):
                return True
        return False

    def _walk(self, block: int, successor: int, question: Question, *, is_value: bool) -> bool:
        if self._certainly_fails(successor, question):
            return False
        if is_value:
            return self._walk_on(block, successor, question, is_value=True)
        # A walk that ends without meeting the address does so for other offsets, too, unless an access with this base
        # on the way covers them.
        place = (block, successor, question.space, question.base, question.width)
        passed = self._passed.get(place)
        start = question.offset
        if passed is not None and not any(low <= start and start + question.bytes <= high for low, high in passed):
            return False
        self._ranges = set()
        self._is_met = False
        answer = self._walk_on(block, successor, question, is_value=False)
        if not answer and not self._is_met:
            self._passed[place] = self._ranges
        return answer

    def _walk_on(self, block: int, successor: int, question: Question, *, is_value: bool) -> bool:
        phis = self._phis(successor)
        known = {phi: value for phi, value in self._arguments_of(block, successor).items() if phi in phis}
        return self._follow([self._state(successor, known, self._bits(phis))], question, is_value=is_value)

    def _state(self, block: int, known: dict[int, int], changed: int) -> _State:
        key = (block, frozenset(known.items()), changed)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(block, known, changed)
        return state

    def is_dereferenced_behind(self, block: int, question: Question) -> bool:
        """Whether every path from the end of ``block`` reads or writes the address."""
        if block in self._exits or not self.cfg.succ[block]:
            return False
        return all(self.is_dereferenced(block, successor, question) for successor in self.cfg.succ[block])

    def _follow(self, work: list[_State], question: Question, *, is_value: bool) -> bool:
        seen = set(work)
        visits: dict[int, int] = {}
        is_met = False
        ways: dict[_State, list[_State]] = {}
        for state in work:
            if state.block in self.endless or len(work) > self.budget:
                return False
            found = self._within(state, question, is_value=is_value)
            if found is False:
                return False
            if found:
                is_met = self._is_met = True
                continue
            if state.block in self._exits:
                return False
            following = self._ways(state)
            if not following:
                return False
            behind = ways[state] = []
            for block in following:
                visits[block] = count = visits.get(block, 0) + 1
                step = (state, block, count > VISITS)
                after = self._following.get(step)
                if after is None:
                    after = self._following[step] = self._enter(state, block, is_lost=count > VISITS)
                behind.append(after)
                if after not in seen:
                    seen.add(after)
                    work.append(after)
        return is_met and (is_value or not self._goes_round(ways))

    def _goes_round(self, ways: Mapping[_State, list[_State]]) -> bool:
        """Whether a thread may run forever without reaching the address.

        An infinite path stays in some loop and passes its header again and again. If that loop is proved to end, the
        path cannot pass the header any more.
        """
        states = list(ways)
        number = {state: at for at, state in enumerate(states)}
        succ = [[number[after] for after in ways[state] if after in number] for state in states]
        loops, finite = self._loops, self.facts.get(FiniteLoops)
        work = [list(range(len(states)))]
        while work:
            for part in strongly_connected_components(succ, work.pop()):
                if len(part) == 1 and part[0] not in succ[part[0]]:
                    continue
                blocks = {states[at].block for at in part}
                common = [each for each in loops.around(next(iter(blocks))) if all(block in each for block in blocks)]
                if not common or common[-1].header not in blocks or not finite.is_finite(common[-1]):
                    return True
                work.append([at for at in part if states[at].block != common[-1].header])
        return False

    def _enter(self, state: _State, successor: int, *, is_lost: bool) -> _State:
        """The state at the start of ``successor`` after the block of ``state``. ``is_lost``: without values of φs."""
        block = state.block
        changed = state.changed | self._defined(block)
        known = {} if is_lost else dict(state.known)
        phis = self._phis(successor)
        if phis:
            changed |= self._bits(phis)
            if not is_lost:
                end = len(self.cfg.blocks[block].instrs)
                arguments = self._arguments_of(block, successor)
                for phi in phis:
                    value = self._as_of_edge(arguments[phi], state, end) if phi in arguments else None
                    if value is not None:
                        known[phi] = value
                    else:
                        known.pop(phi, None)
        # A leaf that does not dominate the block is defined again before the block reads it. After a loop, the values
        # of its φs would multiply the number of states.
        if known and self._loops.loop_of[block] != self._loops.loop_of[successor]:
            places = self.symbols.places
            known = {phi: value for phi, value in known.items() if self._is_around(places[phi].block, successor)}
        return self._state(successor, known, changed & self._dominating_leaves(successor))

    def _arguments_of(self, block: int, successor: int) -> Mapping[int, int]:
        """By φ of ``successor`` the number of its argument on the edge from ``block``."""
        arguments = self._arguments.get((block, successor))
        if arguments is None:
            arguments = self._arguments[block, successor] = self.symbols.arguments(block, successor)
        return arguments

    def _is_around(self, header: int, block: int) -> bool:
        """Whether ``block`` is still in the innermost loop around ``header``, if there is one."""
        loop = self._loops.loop_of[header]
        return loop < 0 or block in self._loops.loops[loop]

    def _bits(self, leaves: Iterable[int]) -> int:
        """Those of the leaves that are of interest, as bits."""
        bit_of = self._leaves_of_interest()
        bits = 0
        for leaf in leaves:
            bits |= bit_of.get(leaf, 0)
        return bits

    def _defined(self, block: int) -> int:
        """The leaves of interest that the instructions of ``block`` define, as bits."""
        defined = self._defined_in.get(block)
        if defined is None:
            defined = self._defined_in[block] = self._bits(self.symbols.defined_in.get(block, ()))
        return defined

    def _dominating_leaves(self, block: int) -> int:
        """The leaves of interest whose places dominate ``block``, as bits."""
        idom, chain = self.symbols.dominance.idom, [block]
        while chain[-1] not in self._dominating and idom[chain[-1]] != chain[-1] and idom[chain[-1]] >= 0:
            chain.append(idom[chain[-1]])
        if not self._placed:
            for leaf, bit in self._leaves_of_interest().items():
                at = self.symbols.places[leaf].block
                self._placed[at] = self._placed.get(at, 0) | bit
        dominating = self._dominating.get(chain[-1], 0)
        for each in reversed(chain):
            dominating = self._dominating[each] = dominating | self._placed.get(each, 0)
        return dominating

    def _phis(self, block: int) -> frozenset[int]:
        """The φs of interest of ``block``."""
        phis = self._phis_of.get(block)
        if phis is None:
            bit_of = self._leaves_of_interest()
            phis = self._phis_of[block] = frozenset([phi for phi in self.symbols.phis.get(block, ()) if phi in bit_of])
        return phis

    def _leaves_of_interest(self) -> dict[int, int]:
        """By leaf its bit: the leaves of addresses and of conditions, and of the arguments of φs among them."""
        if self._bit_of is not None:
            return self._bit_of
        symbols = self.symbols
        found: set[int] = set()
        work: list[int] = []
        for block, accesses in self.accesses.blocks.items():
            for _, instr in accesses.loads:
                question = self.accesses.question(instr)
                if question is not None:
                    work.append(question.base)
            for _, instr in accesses.kills:
                question = self.accesses.question(instr) if is_plain_store(instr) else None
                if question is not None:
                    work.append(question.base)
            condition = self._condition(block)
            if condition is not None:
                work.extend(condition[1:3])
        seen = set(work)
        while work:
            for leaf in symbols.leaves(work.pop()) or ():
                if leaf in found:
                    continue
                found.add(leaf)
                place = symbols.places.get(leaf)
                phi = symbols.phis.get(place.block, {}).get(leaf) if place is not None else None
                for _, value in symbols.ssa.phi_args.get(phi, ()) if phi is not None else ():
                    number = symbols.values.number[value]
                    if number not in seen:
                        seen.add(number)
                        work.append(number)
        self._bit_of = {leaf: 1 << number for number, leaf in enumerate(sorted(found))}
        return self._bit_of

    # --- within a block --------------------------------------------------------------------------------------------

    def _within(self, state: _State, question: Question, *, is_value: bool) -> bool | None:
        """True at the load; False at an instruction that ends the path; None if the block contains neither."""
        for event in self._events_of(state.block):
            if event.kind == "pinch" or (event.kind == "wait" and not is_value):
                return False
            if event.kind == "wait":
                continue
            if event.kind == "load":
                if event.question is not None and self._is_read(event, state, question, is_value=is_value):
                    return True
            elif is_value:
                if self._kills(event, state, question):
                    return False
            elif event.instr.form.effects & Effect.BARRIER:
                return False  # another thread may never arrive
            elif event.question is not None and self._is_read(event, state, question, is_value=False):
                return True
        return None

    def _events_of(self, block: int) -> list[_Event]:
        events = self._events.get(block)
        if events is None:
            accesses = self.accesses.blocks[block]
            events = [
                _Event(position, "load", instr, self.accesses.question(instr) if instr.guard is None else None)
                for position, instr in accesses.loads
            ]
            for position, instr in accesses.kills:
                is_store = is_plain_store(instr) and instr.guard is None
                events.append(_Event(position, "kill", instr, self.accesses.question(instr) if is_store else None))
            instrs = self.cfg.blocks[block].instrs
            events += [_Event(position, "pinch", instrs[position]) for position in self.accesses.pinches.get(block, ())]
            events += [_Event(position, "wait", instrs[position]) for position in self.accesses.waits.get(block, ())]
            events.sort(key=lambda event: event.position)
            self._events[block] = events
        return events

    def _is_read(self, event: _Event, state: _State, question: Question, *, is_value: bool) -> bool:
        own = event.question
        assert own is not None
        if own.space != question.space or own.width != question.width:
            return False
        if own.base != question.base and not self._can_become(own.base, question.base):
            return False
        named = self._address(own, state, event.position)
        if named is None or named[0] != question.base:
            return False
        if is_value and own.bytes != question.bytes:
            return False
        size = own.bytes * event.instr.form.lanes
        if not is_value:
            self._ranges.add((named[1], named[1] + size))
        inside = named[1] <= question.offset and question.offset + question.bytes <= named[1] + size
        return inside and (not is_value or (question.offset - named[1]) % own.bytes == 0)

    def _kills(self, event: _Event, state: _State, question: Question) -> bool:
        reference: Reference | None = None
        instr = event.instr
        if is_plain_store(instr):
            own = self.accesses.question(instr)
            if own is not None:
                named = self._address(own, state, event.position)
                base, offset = named if named is not None else (_UNKNOWN, 0)
                size = own.bytes * instr.form.lanes
                reference = Reference(own.space, base, offset, size, own.symbol, own.objects)
        return bool(self.accesses.kills.reason_elsewhere(instr, reference, question))

    def _address(self, own: Question, state: _State, position: int) -> tuple[int, int] | None:
        """The address of an access as (base, offset) in terms of the values at the edge."""
        key = (own.base, own.width, position)
        if key in state.addresses:
            named = state.addresses[key]
        else:
            number = self._as_of_edge(own.base, state, position)
            named = state.addresses[key] = None if number is None else self.symbols.split(number, own.width)
        return None if named is None else (named[0], named[1] + own.offset)

    def _as_of_edge(self, number: int, state: _State, position: int) -> int | None:
        """Translate a number of the code at ``position`` in the block of the state to the values at the edge.

        ``None`` if that is not possible.
        """
        leaves = self.symbols.leaves(number)
        if leaves is None:
            return None
        known, changed, bit_of = state.known, state.changed, self._leaves_of_interest()
        replaced: dict[int, int | None] = {}
        for leaf in leaves:
            if leaf in known:
                replaced[leaf] = known[leaf]
            elif changed & bit_of.get(leaf, 0) or self._is_defined_above(leaf, state.block, position):
                return None
        return self.symbols.substitute(number, replaced) if replaced else number

    def _is_defined_above(self, leaf: int, block: int, position: int) -> bool:
        place = self.symbols.places.get(leaf)
        return place is not None and place.block == block and 0 <= place.position < position

    # --- branches ----------------------------------------------------------------------------------------------------

    def _ways(self, state: _State) -> list[int]:
        """The successors of the state's block that control may take."""
        ways = state.ways
        if ways is None:
            ways = state.ways = self._find_ways(state)
        return ways

    def _find_ways(self, state: _State) -> list[int]:
        successors = self.cfg.succ[state.block]
        condition = self._condition(state.block) if len(successors) == 2 else None
        if condition is None:
            return successors
        instr, left, right, scalar, target = condition
        values: list[int] = []
        end = len(self.cfg.blocks[state.block].instrs)
        for number in (left, right):
            named = self._as_of_edge(number, state, end)
            constant = self.symbols.constant_of(named, scalar.bits) if named is not None else None
            if constant is None:
                return successors
            is_negative = scalar.kind == "s" and constant >> scalar.bits - 1
            values.append(constant - (1 << scalar.bits) if is_negative else constant)
        terminator = self.cfg.blocks[state.block].terminator
        assert terminator is not None and terminator.guard is not None
        is_taken = _COMPARISONS[instr.form.mods["cmp"]](*values) != terminator.guard.negated
        return [block for block in successors if (block == target) == is_taken]

    def _condition(self, block: int) -> _Condition | None:
        """The comparison that decides the branch at the end of ``block``, if it is simple enough."""
        if block not in self._conditions:
            self._conditions[block] = self._find_condition(block)
        return self._conditions[block]

    def _find_condition(self, block: int) -> _Condition | None:
        terminator = self.cfg.blocks[block].terminator
        if terminator is None or terminator.form.operation is not Operation.BRANCH or terminator.guard is None:
            return None
        guard = terminator.guard.reg
        target = terminator.operands[0]
        if not isinstance(guard, Reg) or not isinstance(target, Label):
            return None
        ssa, values = self.symbols.ssa, self.symbols.values
        instr = ssa.instr[ssa.read(terminator, guard)]
        if (
            instr is None
            or instr.guard is not None
            or instr.form.operation is not Operation.COMPARISON
            or len(instr.operands) != 3
            or not isinstance(instr.operands[0], Reg)  # the guard may be the second result, which is the opposite
        ):
            return None
        scalar = instr.form.type
        if scalar is None or not scalar.is_integer or instr.form.mods.get("cmp") not in _COMPARISONS:
            return None
        left, right = (values.of_operand(instr, operand, scalar) for operand in instr.operands[1:])
        return instr, left, right, scalar, self._blocks.get(target, -1)


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
