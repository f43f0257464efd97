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
Reference: thesis §4.3.1, §4.3.2, §4.5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ...analysis.manager import Facts
from ...analysis.values.symbolic_values import SymbolicValues
from ...ptx import TYPES, Imm, Instr, decode
from .access_index import Accesses, AddressKey, Provider, Question
from .address_translation import AddressNames

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


@dataclass(eq=False, frozen=True, slots=True)
class State:
    """A question at the start of a block. `Availability` makes one for each, so that states are compared by
    identity."""

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


_TOO_FAR = Answer(reason="threshold")
_TOO_MANY = Answer(reason="budget")
_NOTHING_EARLIER = Answer(reason="no-earlier-access")
_NEW_OPERAND = Answer(reason="operand")


class Reply(NamedTuple):
    """What predecessor ``block`` says to the question, which is ``question`` at its end; ``state`` is asked next."""

    block: int
    question: Question | None
    answer: Answer
    state: State | None = None


#: What is said to a question that comes to the start of the kernel.
_FROM_OUTSIDE = Reply(-1, None, Answer(reason="entry"))


@dataclass(slots=True)
class Exploration:
    """The states that a question leads to, with the replies of their predecessors."""

    root: State
    replies: dict[State, list[Reply]] = field(default_factory=dict[State, list[Reply]])
    #: Over how many back edges the question has changed its name on the way to each state.
    turns: dict[State, int] = field(default_factory=dict[State, int])
    #: The names that the question had on the way from the root to each state, its own among them.
    names: dict[State, frozenset[Question]] = field(default_factory=dict[State, "frozenset[Question]"])
    #: The states of which a predecessor has a provider.
    sources: list[State] = field(default_factory=list[State])

    @property
    def has_source(self) -> bool:
        return bool(self.sources)

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
class _Asked:
    """What has been found out about a question, whoever asked it. ``concerning`` are the blocks that provide the bytes
    or define what the address is made of: the others let the question through unless they write memory."""

    question: Question
    concerning: set[int]
    #: What whole blocks say of which that is not so.
    answers: dict[int, Answer] = field(default_factory=dict[int, Answer])
    #: By block, the question at its start.
    states: dict[int, State] = field(default_factory=dict[int, State])


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
        self._names = AddressNames(facts.cfg, symbols, accesses, threshold)
        self._asked: dict[Question, _Asked] = {}
        #: What the predecessors of a state say, whichever way the question came there.
        self._replies: dict[State, list[Reply]] = {}
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
        reason = self.accesses.last_kill(block, question, after, end)
        if reason:
            return Answer(reason=reason)
        if provider is not None:
            return Answer(provider)
        return Answer(reason="operand") if operand >= 0 else THROUGH

    def at_end(self, block: int, question: Question) -> Answer:
        """What the whole of ``block`` says."""
        return self._at_end(block, self._known_of(question))

    def said_of(self, question: Question) -> Callable[[int], Answer]:
        """The same for one question and many blocks."""
        asked = self._known_of(question)
        return lambda block: self._at_end(block, asked)

    def _at_end(self, block: int, asked: _Asked) -> Answer:
        if block not in asked.concerning and block not in self.accesses.writing:
            return THROUGH
        known = asked.answers.get(block)
        if known is None:
            known = self.within(block, asked.question, len(self.cfg.blocks[block].instrs))
            asked.answers[block] = known
        return known

    def _known_of(self, question: Question) -> _Asked:
        found = self._asked.get(question)
        if found is None:
            found = self._asked[question] = _Asked(question, self.accesses.concerning(question))
        return found

    def before(self, question: Question, block: int, successor: int) -> Question | None:
        """The question at the start of ``successor`` as it is called at the end of ``block``."""
        if not self.symbols.phis.get(successor):
            return question
        called = self._names.in_front(question.base, question.width, block, successor)
        return None if called is None else question.at(called[0], question.offset + called[1])

    def explore(
        self, block: int, question: Question, planned: Mapping[int, Question] = MappingProxyType({})
    ) -> Exploration:
        """Ask all ways to the start of ``block``. At the ends of the blocks in ``planned`` the bytes of the question
        there will be available, from `PLANNED`."""
        root = self._state(block, self._known_of(question))
        found = Exploration(root)
        visited: dict[int, int] = {block: 1}
        found.names[root] = frozenset([question])
        found.turns[root] = 0
        work = [root]
        entry = self.cfg.rpo[0]
        for state in work:
            replies = found.replies[state] = []
            if state.block == entry:
                replies.append(_FROM_OUTSIDE)
            turns = found.turns[state]
            is_source = False
            for reply in self._replies.get(state) or self._find_replies(state):
                is_renamed = reply.question is not state.question
                if planned or is_renamed:
                    reply = self._cut_off(reply, state, turns, planned) or reply
                following = reply.state
                if following is None:
                    is_source |= reply.answer.provider is not None
                elif following not in found.turns:
                    before = following.block
                    count = visited.get(before, 0)
                    if count >= self.visits:
                        reply = Reply(before, following.question, _TOO_FAR)
                    elif len(work) >= self.budget:
                        reply = Reply(before, following.question, _TOO_MANY)
                    else:
                        visited[before] = count + 1
                        found.turns[following] = turns + (is_renamed and self._names.is_back_edge(before, state.block))
                        names = found.names[state]
                        is_new = is_renamed and following.question not in names
                        found.names[following] = names | {following.question} if is_new else names
                        work.append(following)
                replies.append(reply)
            if is_source:
                found.sources.append(state)
        return found

    def _state(self, block: int, asked: _Asked) -> State:
        found = asked.states.get(block)
        if found is None:
            found = asked.states[block] = State(block, asked.question)
        return found

    def _find_replies(self, state: State) -> list[Reply]:
        """What the predecessors of a state say, but for what depends on the way that a question has come, or on what is
        planned: so the replies are the same for all questions that lead to the state, and are kept."""
        asked = self._known_of(state.question)
        leaves = self.symbols.leaves(state.question.base)
        phis = self.symbols.phis.get(state.block)
        is_called_so = not phis or (leaves is not None and leaves.isdisjoint(phis))
        reachable = self.cfg.reachable
        found = self._replies[state] = []
        for before in self.cfg.pred[state.block]:
            if not reachable[before]:
                continue
            named = asked
            if not is_called_so:
                question = self.before(state.question, before, state.block)
                if question is None:
                    found.append(Reply(before, None, _NEW_OPERAND))
                    continue
                if question is not state.question:
                    named = self._known_of(question)
            answer = self._at_end(before, named)
            following = self._state(before, named) if answer is THROUGH else None
            found.append(Reply(before, named.question, answer, following))
        return found

    def _cut_off(self, reply: Reply, state: State, turns: int, planned: Mapping[int, Question]) -> Reply | None:
        """What is said instead of ``reply`` after so many turns, with what is planned."""
        before, question, _, following = reply
        if question is None:
            return None
        is_renamed = question is not state.question
        if is_renamed and turns >= self.threshold and self._names.is_back_edge(before, state.block):
            return Reply(before, question, _TOO_FAR)
        if planned:
            return Reply(before, question, Answer(PLANNED)) if planned.get(before) == question else None
        if is_renamed and following is not None and not self._may_be_provided(following.question):
            return Reply(before, question, _NOTHING_EARLIER)
        return None

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
        """What `AddressNames.others` gives, found as far as it is asked for, and kept."""
        known = self._other_names.get((base, width))
        if known is None:
            known = self._other_names[base, width] = ([], self._names.others(base, width))
        found, more = known
        yield from found
        for each in more:
            found.append(each)
            yield each

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

    def readers(self, question: Question) -> list[Instr]:
        """The loads that may read these bytes later, whether or not anything provides them there."""
        found: list[Instr] = []
        for accesses in self.accesses.blocks.values():
            for _, load in accesses.loads:
                own = self.accesses.question(load)
                if own is not None and self._may_read(own, question):
                    found.append(load)
        return found

    def _may_read(self, own: Question, question: Question) -> bool:
        """Whether a load that asks ``own`` may read the bytes of ``question``, by the names that its address takes
        within ``threshold`` turns; and in later ones, if it moves on by the same step as in the last two of these."""
        if (own.space, own.bytes, own.width) != (question.space, question.bytes, question.width):
            return False
        names = [(own.base, 0), *self._renamed(own.base, own.width)]
        offsets = [own.offset + more for base, more in names if base == question.base]
        if question.offset in offsets:
            return True
        if len(offsets) < 2:
            return False
        left, step = question.offset - offsets[-1], offsets[-1] - offsets[-2]
        return left * step > 0 and left % step == 0

    def _stays(self, question: Question, block: int) -> bool:
        """Whether ``block`` is in a loop in which nothing that the address is made of is defined."""
        index = self.loops.loop_of[block]
        leaves = self.symbols.leaves(question.base)
        if index < 0 or leaves is None:
            return False
        loop = self.loops.loops[index]
        places = (self.symbols.places.get(leaf) for leaf in leaves)
        return not any(place is not None and place.block in loop for place in places)


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
        #: A state is here once for each reply that leads to the other.
        self.askers: dict[State, list[State]] = {}
        #: How many replies to a state are not true.
        self.missing: dict[State, int] = {}
        self._insertable: dict[tuple[State, int], str] = {}
        for state, replies in self.replies.items():
            missing = 0
            for _, _, answer, following in replies:
                if following is not None:
                    self.askers.setdefault(following, []).append(state)
                elif answer.provider is None:
                    missing += 1
            self.missing[state] = missing
        #: The states from which a source can be reached at all.
        self.hopeful = self._real()

    def run(self, states: list[State]) -> None:
        self._spread(states)
        while True:
            real = self._real()
            lost = [
                state
                for state in states
                if self.missing[state] and state not in self.false and not self._has_gain(state, real)
            ]
            if not lost:
                return
            for state in lost:
                self._take_back(state)
            self._spread([asker for state in lost for asker in self.askers.get(state, ())])

    def _is_true(self, reply: Reply) -> bool:
        if reply.answer.provider is not None:
            return True
        return reply.state is not None and reply.state not in self.false

    def _take_back(self, state: State) -> None:
        self.false.add(state)
        for asker in self.askers.get(state, ()):
            self.missing[asker] += 1

    def _spread(self, work: list[State]) -> None:
        """Take back what no longer holds, and what depended on it."""
        work = list(work)
        while work:
            state = work.pop()
            if not self.missing[state] or state in self.false or self._may_hold(state):
                continue
            self._take_back(state)
            work.extend(self.askers.get(state, ()))

    def _may_hold(self, state: State) -> bool:
        """Whether a state holds although replies to it are missing."""
        # Whether a load may be inserted takes long to say: first whether there is something to gain.
        if state not in self.hopeful or not self._has_gain(state, self.hopeful):
            return False
        return all(self._is_true(reply) or not self._refusal(reply, state) for reply in self.replies[state])

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
        work = [state for state in self.exploration.sources if state not in self.false]
        real = set(work)
        while work:
            for asker in self.askers.get(work.pop(), ()):
                if asker not in real and asker not in self.false:
                    real.add(asker)
                    work.append(asker)
        return real

    def _has_gain(self, state: State, real: set[State]) -> bool:
        """Whether a state has a predecessor that is available and real."""
        return any(
            reply.answer.provider is not None or (reply.state in real and reply.state not in self.false)
            for reply in self.replies[state]
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
