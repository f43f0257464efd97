"""Questions about memory, answered on demand: is it available, is it anticipated, on which edges is it missing.

Computes, for a question about the bytes at a symbolic address (`memory_accesses.Question`):

*Availability* (`Availability`). The question is asked at the start of a block and goes to all predecessors; over an
edge, φs are replaced by their arguments, so that ``A[i]`` becomes ``A[i + 1]`` (rule 6). In a block the answer is

    source    a load or store of exactly these bytes, with nothing behind it that may change them       (rule 5)
    killed    an access that may change them, or the definition of an operand that is no sum, is nearer (rule 4)
    through   neither: the question goes on to the predecessors                                          (rule 7)

and it is *killed* at the entry (rule 1) and when a block is asked more than ``visits`` different questions (rule 2).
The states (block, question) form a graph, on which the answers are the greatest solution of

    avail(s) = ∏ over predecessors p of answer(p)
               or (some p is true and real, and every false p may get an insertion)

where a state is *real* when a source is reached through available states: the least solution, so that nothing is
inserted in front of a loop in which nothing is read (figure 4.10; rule 3 gives the greatest solution in the paper).
Algorithm 1.1 line 6 collects the predecessors that answered *true*; as the prose and line 10 need those that answered
*false*, these are meant here; Algorithm 1.2 lines 17 and 18 stand inside of the loop over a block's instructions and
are taken to come after it.

*Anticipatability* (`Anticipation`). From an edge forward, along every path, carrying what each φ's value is in terms of
the values at that edge: is the load evaluated before something changes its bytes; or, without regard to that, is the
address dereferenced, so that to read it at the edge cannot fault. A branch whose condition is known under these values
is followed one way only: so a loop is known to run twice where its bounds say so.

Requires: `SymbolicValues`, `Accesses`. Guarantees: answers within a block are kept per question; a question visits a
block at most ``visits`` times with different names and at most ``budget`` states in all, so that N questions take
O(N · min(budget, visits · blocks)) steps. A step looks at the accesses of one block; where a load is missing on an edge
it also asks forward, twice at most for each edge, over at most 64 states (`anticipation.py`), each of which looks at a
block, too. So at worst it is N · budget · predecessors · 2 · 64 looks at a block: linear in the loads, and times the
accesses of the largest block, which makes it quadratic in one block of loads and stores that are all apart from each
other. An unanswered question counts as *no*.
Reference: thesis §4.3.1, §4.3.2, §4.5.1; shared notes on code motion, §5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ..analysis.manager import Facts
from ..analysis.symbolic_values import SymbolicValues
from ..ptx import TYPES, Imm, Instr, decode
from .memory_accesses import Accesses, AddressKey, Provider, Question

__all__ = [
    "PLANNED",
    "THROUGH",
    "Answer",
    "Availability",
    "Exploration",
    "MayInsert",
    "Reply",
    "Solution",
    "State",
    "solve",
]


class State(NamedTuple):
    """A question at the start of a block."""

    block: int
    question: Question


class Answer(NamedTuple):
    """What one block says: a ``provider``, or a ``reason`` why not; neither where the question goes through."""

    provider: Provider | None = None
    reason: str = ""


THROUGH = Answer()

#: Nothing is planned.
NOTHING: Mapping[int, Question] = MappingProxyType({})

#: Stands for a load that is to be put at the end of a block.
PLANNED = Provider(-1, Instr(decode("ret", 0), ()), Imm("0"), TYPES["b32"], is_store=False)


class Reply(NamedTuple):
    """What predecessor ``block`` says to the question, which is ``question`` at its end; ``state`` is asked next."""

    block: int
    question: Question | None
    answer: Answer
    state: State | None = None


@dataclass(slots=True)
class Exploration:
    """The states that a question leads to, with the replies of their predecessors."""

    root: State
    replies: dict[State, list[Reply]] = field(default_factory=dict[State, list[Reply]])
    #: Over how many back edges the question has changed its name on the way to each state.
    turns: dict[State, int] = field(default_factory=dict[State, int])
    #: The names that the question had on the way from the root to each state, its own among them.
    names: dict[State, frozenset[Question]] = field(default_factory=dict[State, "frozenset[Question]"])

    @property
    def has_source(self) -> bool:
        return any(reply.answer.provider for replies in self.replies.values() for reply in replies)

    @property
    def reasons(self) -> list[str]:
        """Why paths do not provide the value, each reason once, the nearest first."""
        reasons = dict.fromkeys(reply.answer.reason for found in self.replies.values() for reply in found)
        return [reason for reason in reasons if reason]


@dataclass(slots=True)
class Solution:
    """``support`` are the states in which the value is needed and there, the root first; ``insertions`` the edges
    (predecessor, state) on which a load makes it so. ``refusals`` says why an edge got none."""

    is_available: bool
    support: list[State] = field(default_factory=list[State])
    insertions: list[tuple[Reply, State]] = field(default_factory=list["tuple[Reply, State]"])
    refusals: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Known:
    """The states that an exploration has met, by question and block, and how many they are."""

    states: dict[Question, dict[int, State]]
    count: int


#: Says why a load must not be inserted on the edge from the reply's block to the state's; empty where it may be.
MayInsert = Callable[[Reply, State, "frozenset[Question]"], str]


class Availability:
    """Answers questions about availability.

    ``threshold`` is over how many turns of a loop a value may be carried (1 in the paper); a block is asked one more
    different question than that for each question. ``budget`` bounds the states; ``forwarding`` says whether stores are
    sources.
    """

    def __init__(
        self,
        facts: Facts,
        symbols: SymbolicValues,
        accesses: Accesses,
        *,
        threshold: int = 4,
        budget: int = 200,
        forwarding: bool = True,
    ) -> None:
        self.cfg = facts.cfg
        self.loops = facts.loops
        self.symbols = symbols
        self.accesses = accesses
        self.threshold = threshold
        self.visits = threshold + 1
        self.budget = budget
        self.forwarding = forwarding
        #: What whole blocks say, by question and block.
        self._answers: dict[Question, dict[int, Answer]] = {}
        #: By base, width and edge, what the base is called in front of the edge, and the offset that it has there.
        self._called: dict[tuple[int, int, int, int], tuple[int, int] | None] = {}
        self._is_hopeful: dict[Question, bool] = {}
        #: By base and width, other names of an address, as bases and what its offset grows by.
        self._other_names: dict[tuple[int, int], tuple[list[tuple[int, int]], Iterator[tuple[int, int]]]] = {}
        #: By space and bytes.
        self._askers: dict[tuple[str, int], dict[AddressKey, list[tuple[int, int, Instr]]]] = {}

    def within(self, block: int, question: Question, end: int) -> Answer:
        """What the instructions of ``block`` before position ``end`` say to the question."""
        operand = -1
        leaves = self.symbols.leaves(question.base)
        if leaves is None:
            return Answer(reason="operand")
        for leaf in leaves:
            place = self.symbols.places.get(leaf)
            if place is not None and place.block == block and operand < place.position < end:
                operand = place.position
        provider: Provider | None = None
        for each in reversed(self.accesses.providers(block, question)):
            if each.position < end and not (each.is_store and (question.is_constant or not self.forwarding)):
                if each.position > operand:
                    provider = each
                break
        after = max(operand, provider.position if provider is not None else -1)
        for instr in self.accesses.kills_before(block, end, after):
            reason = self.accesses.kill_of(instr, question)
            if reason:
                return Answer(reason=reason)
        if provider is not None:
            return Answer(provider)
        return Answer(reason="operand") if operand >= 0 else THROUGH

    def at_end(self, block: int, question: Question) -> Answer:
        """What the whole of ``block`` says."""
        answers = self._answers.get(question)
        if answers is None:
            answers = self._answers[question] = {}
        known = answers.get(block)
        if known is None:
            is_quiet = self.accesses.is_quiet(block, question)
            known = THROUGH if is_quiet else self.within(block, question, len(self.cfg.blocks[block].instrs))
            answers[block] = known
        return known

    def before(self, question: Question, block: int, successor: int) -> Question | None:
        """The question at the start of ``successor`` as it is called at the end of ``block``."""
        if not self.symbols.phis.get(successor):
            return question
        called = self._called_before(question.base, question.width, block, successor)
        return None if called is None else question.at(called[0], question.offset + called[1])

    def _called_before(self, base: int, width: int, block: int, successor: int) -> tuple[int, int] | None:
        """What an address of this base is called in front of the edge: another base, and what the offset grows by."""
        key = (base, width, block, successor)
        if key in self._called:
            return self._called[key]
        new = self.symbols.translate(base, block, successor)
        found = None if new is None else (new, 0)
        if new is not None and new != base:
            stripped, offset = self.symbols.split(new, width)
            named, more = self.accesses.normal(stripped, width, block)
            found = (named, offset + more)
        self._called[key] = found
        return found

    def explore(
        self, block: int, question: Question, planned: Mapping[int, Question] = MappingProxyType({})
    ) -> Exploration:
        """Ask all ways to the start of ``block``. At the ends of the blocks in ``planned`` the bytes of the question
        there will be available, from `PLANNED`."""
        root = State(block, question)
        found = Exploration(root)
        visited: dict[int, int] = {block: 1}
        found.names[root] = frozenset([question])
        found.turns[root] = 0
        work = [root]
        known = _Known({question: {block: root}}, 1)
        entry = self.cfg.rpo[0]
        pred, reachable = self.cfg.pred, self.cfg.reachable
        for state in work:
            replies = found.replies[state] = []
            if state.block == entry:
                replies.append(Reply(-1, None, Answer(reason="entry")))
            turns = found.turns[state]
            for before in pred[state.block]:
                if not reachable[before]:
                    continue
                count = known.count
                reply = self._ask(state, before, known, visited, planned, turns)
                replies.append(reply)
                following = reply.state
                if following is not None and known.count > count:
                    is_renamed = following.question is not state.question
                    found.turns[following] = turns + (is_renamed and self._is_back_edge(before, state.block))
                    names = found.names[state]
                    is_new = is_renamed and following.question not in names
                    found.names[following] = names | {following.question} if is_new else names
                    work.append(following)
        return found

    def _is_back_edge(self, block: int, successor: int) -> bool:
        return self.symbols.dominance.dominates(successor, block)

    def _ask(
        self,
        state: State,
        before: int,
        known: _Known,
        visited: dict[int, int],
        planned: Mapping[int, Question],
        turns: int,
    ) -> Reply:
        question = self.before(state.question, before, state.block)
        if question is None:
            return Reply(before, None, Answer(reason="operand"))
        is_renamed = question is not state.question
        if is_renamed and turns >= self.threshold and self._is_back_edge(before, state.block):
            return Reply(before, question, Answer(reason="threshold"))
        if planned and planned.get(before) == question:
            return Reply(before, question, Answer(PLANNED))
        answer = self.at_end(before, question)
        if answer is not THROUGH:
            return Reply(before, question, answer)
        if is_renamed and not planned and not self._may_be_provided(question):
            return Reply(before, question, Answer(reason="no-earlier-access"))
        states = known.states.setdefault(question, {})
        following = states.get(before)
        if following is None:
            if visited.get(before, 0) >= self.visits:
                return Reply(before, question, Answer(reason="threshold"))
            if known.count >= self.budget:
                return Reply(before, question, Answer(reason="budget"))
            following = states[before] = State(before, question)
            known.count += 1
            visited[before] = visited.get(before, 0) + 1
        return Reply(before, question, THROUGH, following)

    def may_be_answered(self, question: Question, block: int) -> bool:
        """Whether anything in the kernel provides the bytes under any name that the question may take: another access,
        or the load of ``block`` itself, which asks, in a loop in which its address stays. Looks at names, not at
        paths."""
        if self.accesses.count.get(question.key, 0) > 1 or self._stays(question, block):
            return True
        return any(True for _ in self._other_names_provided(question))

    def _other_names_provided(self, question: Question) -> Iterator[AddressKey]:
        """The other names that the question may take under which something is provided; its own where it comes
        back."""
        space, base, offset, size, width, *_ = question
        if self.accesses.has_candidate(question):
            count = self.accesses.count
            for other, more in self._renamed(base, width):
                key = (space, other, offset + more, size)
                if key in count:
                    yield key

    def _renamed(self, base: int, width: int) -> Iterator[tuple[int, int]]:
        """The other names that an address of this base may take within ``threshold`` turns, two or so for each, as
        bases and what the offset grows by; once more its own where it comes back. Found as far as they are asked for,
        and kept."""
        known = self._other_names.get((base, width))
        if known is None:
            known = self._other_names[base, width] = ([], self._find_names(base, width))
        found, more = known
        yield from found
        for each in more:
            found.append(each)
            yield each

    def _find_names(self, base: int, width: int) -> Iterator[tuple[int, int]]:
        own = (base, 0)
        turns_of: dict[tuple[int, int], int] = {own: 0}
        work: list[tuple[int, int]] = [own]
        for each in work:
            if len(work) >= 2 * self.visits:
                return
            for before, join, renamed in self._names_before(each, width):
                turns = turns_of[each] + self._is_back_edge(before, join)
                if renamed == each or turns > self.threshold:
                    continue
                known = turns_of.get(renamed)
                if known is None or renamed == own:
                    yield renamed
                if known is None or turns < known:
                    turns_of[renamed] = turns
                    work.append(renamed)

    def _names_before(self, name: tuple[int, int], width: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """The edges into the block whose φs the base is made of, and the names in front of them."""
        base, offset = name
        join = self._join_of(base)
        for before in self.cfg.pred[join] if join >= 0 else ():
            called = self._called_before(base, width, before, join) if self.cfg.reachable[before] else None
            if called is not None:
                yield before, join, (called[0], offset + called[1])

    def _may_be_provided(self, question: Question) -> bool:
        """Whether an access provides the bytes under this name, or under one that the question may take from here
        within ``threshold`` turns. Where not, asking on finds nothing, and in a loop it would do so once a turn."""
        known = self._is_hopeful.get(question)
        if known is None:
            known = question.key in self.accesses.count or any(True for _ in self._other_names_provided(question))
            self._is_hopeful[question] = known
        return known

    def askers(self, question: Question, instr: Instr) -> list[tuple[int, int, Instr]]:
        """Block, position and instruction of the loads other than ``instr`` that ask for these bytes, under any name
        that their questions may take. Looks at names, not at paths."""
        kind = question.space, question.bytes
        askers = self._askers.get(kind)
        if askers is None:
            askers = self._askers[kind] = self._find_askers(kind)
        return [found for found in askers.get(question.key, ()) if found[2] is not instr]

    def _find_askers(self, kind: tuple[str, int]) -> dict[AddressKey, list[tuple[int, int, Instr]]]:
        """The loads of so many bytes from a space, by all that they may ask for and is provided."""
        found: dict[AddressKey, list[tuple[int, int, Instr]]] = {}
        for block, accesses in self.accesses.blocks.items():
            for position, load in accesses.loads:
                own = self.accesses.question(load)
                if own is not None and (own.space, own.bytes) == kind:
                    for key in {own.key, *self._other_names_provided(own)}:
                        found.setdefault(key, []).append((block, position, load))
        return found

    def _stays(self, question: Question, block: int) -> bool:
        """Whether ``block`` is in a loop in which nothing that the address is made of is defined."""
        index = self.loops.loop_of[block]
        leaves = self.symbols.leaves(question.base)
        if index < 0 or leaves is None:
            return False
        loop = self.loops.loops[index]
        places = (self.symbols.places.get(leaf) for leaf in leaves)
        return not any(place is not None and place.block in loop for place in places)

    def _join_of(self, base: int) -> int:
        """Of the blocks whose φs the base is computed from, the one that is met first on all ways back from where the
        base is known: all these blocks dominate that place, and it is the lowest. -1 where there is none."""
        places = (self.symbols.places.get(leaf) for leaf in self.symbols.leaves(base) or ())
        joins = [place.block for place in places if place is not None and place.position < 0]
        return max(joins, key=self.cfg.rpo_number.__getitem__, default=-1)


def solve(exploration: Exploration, may_insert: MayInsert) -> Solution:
    """The greatest solution of the equation in the module's header, with the insertions that it needs."""
    states = list(exploration.replies)
    solution = _Solver(exploration, may_insert)
    solution.run(states)
    return solution.result()


class _Solver:
    def __init__(self, exploration: Exploration, may_insert: MayInsert) -> None:
        self.exploration = exploration
        self.may_insert = may_insert
        self.replies = exploration.replies
        self.false: set[State] = set()
        self.askers: dict[State, list[State]] = {}
        self._insertable: dict[tuple[State, int], str] = {}
        #: The states from which a source can be reached at all.
        self.hopeful: set[State] = set()
        for state, replies in self.replies.items():
            for reply in replies:
                if reply.state is not None:
                    self.askers.setdefault(reply.state, []).append(state)

    def run(self, states: list[State]) -> None:
        self.hopeful = self._real()
        self._spread(states)
        while True:
            real = self._real()
            lost = [state for state in states if state not in self.false and not self._holds(state, real)]
            if not lost:
                return
            self.false.update(lost)
            self._spread([asker for state in lost for asker in self.askers.get(state, ())])

    def _is_true(self, reply: Reply) -> bool:
        if reply.answer.provider is not None:
            return True
        return reply.state is not None and reply.state not in self.false

    def _spread(self, work: list[State]) -> None:
        """Take back what no longer holds, and what depended on it."""
        work = list(work)
        while work:
            state = work.pop()
            if state in self.false or self._may_hold(state):
                continue
            self.false.add(state)
            work.extend(self.askers.get(state, ()))

    def _may_hold(self, state: State) -> bool:
        missing = [reply for reply in self.replies[state] if not self._is_true(reply)]
        if not missing:
            return True
        # Whether a load may be inserted takes long to say: first whether there is something to gain.
        if not self._holds(state, self.hopeful):
            return False
        return all(not self._refusal(reply, state) for reply in missing)

    def _refusal(self, reply: Reply, state: State) -> str:
        key = (state, reply.block)
        known = self._insertable.get(key)
        if known is None:
            if reply.question is None:
                known = reply.answer.reason
            else:
                known = self.may_insert(reply, state, self.exploration.names[state])
            self._insertable[key] = known
        return known

    def _real(self) -> set[State]:
        """The available states that reach a source through available states."""
        work = [
            state
            for state, replies in self.replies.items()
            if state not in self.false and any(reply.answer.provider is not None for reply in replies)
        ]
        real = set(work)
        while work:
            for asker in self.askers.get(work.pop(), ()):
                if asker not in real and asker not in self.false:
                    real.add(asker)
                    work.append(asker)
        return real

    def _holds(self, state: State, real: set[State]) -> bool:
        """Whether an available state needs no insertion, or has a predecessor that is available and real."""
        replies = self.replies[state]
        if all(self._is_true(reply) for reply in replies):
            return True
        return any(
            reply.answer.provider is not None or (self._is_true(reply) and reply.state in real) for reply in replies
        )

    def result(self) -> Solution:
        refusals = list({reason: None for reason in self._insertable.values() if reason})
        root = self.exploration.root
        if root in self.false or root not in self._real():
            return Solution(False, refusals=refusals)
        found = Solution(True, refusals=refusals)
        seen = {root}
        found.support.append(root)
        for state in found.support:
            for reply in self.replies[state]:
                if not self._is_true(reply):
                    found.insertions.append((reply, state))
                elif reply.state is not None and reply.state not in seen:
                    seen.add(reply.state)
                    found.support.append(reply.state)
        return found
