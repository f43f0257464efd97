"""Results that are cached between questions, and the solutions of their equations, compared with simple algorithms."""

import random

from motion import kernel_of
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.values.symbolic_values import SymbolicValues
from ptxmotion.transforms.scalar_replacement.access_index import Accesses
from ptxmotion.transforms.scalar_replacement.anticipation import Anticipation
from ptxmotion.transforms.scalar_replacement.availability_solver import solve
from ptxmotion.transforms.scalar_replacement.block_answers import THROUGH, Answer, PlannedLoad, State
from ptxmotion.transforms.scalar_replacement.question_propagation import Availability, Exploration, Reply
from ptxmotion.transforms.scalar_replacement.questions import Question

#: Two nested loops that advance a pointer, with reads and writes before, inside and after them, and a diamond.
BODY = """
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [out];
    mov.u32 %r2, 0;
    setp.eq.u32 %p3, %r1, 7;
    ld.global.u32 %r10, [%rd1];
    ld.global.u32 %r11, [%rd1+4];
O:  mov.u32 %r3, 0;
I:  ld.global.u32 %r12, [%rd1];
    @%p3 bra E;
    ld.global.u32 %r13, [%rd1+4];
    bra.uni J;
E:  ld.global.u32 %r14, [%rd1+8];
J:  ld.global.u32 %r15, [%rd1+4];
    add.s64 %rd1, %rd1, 4;
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra I;
    ld.global.u32 %r16, [%rd1];
    @%p3 bra M;
    st.shared.u32 [%r16], %r15;
    bar.sync 0;
M:  add.s32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, %r1;
    @%p2 bra O;
    ld.global.u32 %r17, [%rd1+-4];
    st.global.u32 [%rd1], %r17;
    ret;
"""


def described(found: Exploration) -> list[object]:
    """All results of an exploration, in their order."""
    lines: list[object] = []
    for state, replies in found.replies.items():
        said = [
            (reply.block, reply.question, reply.answer, (reply.state.block, reply.state.question))
            if reply.state is not None
            else (reply.block, reply.question, reply.answer)
            for reply in replies
        ]
        lines.append(
            (state.block, state.question, found.back_edges[state], found.names[state], state in found.sources, said)
        )
    return lines


def test_what_is_kept_between_questions_changes_no_answer() -> None:
    module = kernel_of(BODY)
    facts = Facts(module.kernels[0], module)
    symbols = SymbolicValues(facts)
    accesses = Accesses(facts, symbols)
    for threshold, budget in ((4, 200), (1, 200), (4, 7), (0, 200)):

        def new(threshold: int = threshold, budget: int = budget) -> Availability:
            return Availability(facts, symbols, accesses, threshold=threshold, budget=budget)

        kept = new()
        for block in facts.cfg.rpo:
            for _, load in accesses.blocks[block].loads:
                question = accesses.question(load)
                assert question is not None
                for planned in ({}, dict.fromkeys(facts.cfg.pred[block], question)):
                    found = kept.explore(block, question, planned)
                    assert described(found) == described(new().explore(block, question, planned))
                    assert all(found.back_edges[state] <= threshold for state in found.replies)
                    assert len(found.replies) <= budget


def test_cached_walks_change_no_answer() -> None:
    """Queries at every edge about the address of each load and about nearby addresses. An object that caches results
    between the queries must give the same answers as a new object for each query."""
    module = kernel_of(BODY)
    facts = Facts(module.kernels[0], module)
    symbols = SymbolicValues(facts)
    accesses = Accesses(facts, symbols)
    found = {accesses.question(load) for block in facts.cfg.rpo for _, load in accesses.blocks[block].loads}
    questions = [each.at(each.base, each.offset + more) for each in found if each is not None for more in (0, 4, 64)]
    kept = Anticipation(facts, symbols, accesses)
    answers: set[tuple[bool, bool]] = set()
    for block in facts.cfg.rpo:
        for successor in facts.cfg.succ[block]:
            for each in questions:
                alone = Anticipation(facts, symbols, accesses)
                is_evaluated = kept.is_evaluated(block, successor, each)
                is_dereferenced = kept.is_dereferenced(block, successor, each)
                assert is_evaluated == alone.is_evaluated(block, successor, each)
                assert is_dereferenced == alone.is_dereferenced(block, successor, each)
                answers.add((is_evaluated, is_dereferenced))
    assert len(answers) > 2


class Plain:
    """The solution by simple iteration: test every state until none changes."""

    def __init__(self, found: Exploration, refusal: dict[tuple[int, int], str]) -> None:
        self.replies = found.replies
        self.refusal = refusal
        self.false: set[State] = set()
        changed = True
        while changed:
            changed = False
            real = self.real()
            for state in self.replies:
                if state not in self.false and not self.holds(state, real):
                    self.false.add(state)
                    changed = True

    def is_true(self, reply: Reply) -> bool:
        return reply.answer.provider is not None or (reply.state is not None and reply.state not in self.false)

    def real(self) -> set[State]:
        real: set[State] = set()
        while True:
            more = {
                state
                for state, replies in self.replies.items()
                if state not in self.false and any(self.is_source(reply, real) for reply in replies)
            }
            if more == real:
                return real
            real = more

    def is_source(self, reply: Reply, real: set[State]) -> bool:
        return reply.answer.provider is not None or reply.state in real

    def holds(self, state: State, real: set[State]) -> bool:
        missing = [reply for reply in self.replies[state] if not self.is_true(reply)]
        if any(reply.question is None or self.refusal[reply.block, state.block] for reply in missing):
            return False
        return not missing or any(self.is_true(reply) and self.is_source(reply, real) for reply in self.replies[state])


def test_the_solution_is_the_greatest() -> None:
    question = Question("global", 1, 0, 4, 64)
    available = inserted = 0
    for seed in range(3000):
        chance = random.Random(seed)
        states = [State(block, question) for block in range(chance.randint(1, 9))]
        found = Exploration(states[0])
        for state in states:
            replies = found.replies[state] = []
            for _ in range(chance.randint(1, 3)):
                following = chance.choice(states)
                replies.append(
                    chance.choices(
                        [
                            Reply(following.block, question, THROUGH, following),
                            Reply(20 + state.block, question, Answer(PlannedLoad())),
                            Reply(30 + state.block, question, Answer(reason="store")),
                            Reply(40, None, Answer(reason="operand")),
                        ],
                        [6, 2, 2, 0.3],
                    )[0]
                )
            if any(reply.answer.provider is not None for reply in replies):
                found.sources.append(state)
        refusal = {
            (reply.block, state.block): "no" if chance.random() < 0.2 else ""
            for state, replies in found.replies.items()
            for reply in replies
        }
        for state in states:
            found.names[state] = frozenset([question])
        solution = solve(found, lambda reply, state, names, refusal=refusal: refusal[reply.block, state.block])
        plain = Plain(found, refusal)
        is_available = states[0] not in plain.false and states[0] in plain.real()
        assert solution.is_available == is_available, seed
        available += is_available
        inserted += bool(solution.insertions)
        assert plain.false.isdisjoint(solution.support)
        for reply, state in solution.insertions:
            assert state in solution.support
            assert not plain.is_true(reply)
            assert not refusal[reply.block, state.block]
    assert available > 300
    assert inserted > 100
