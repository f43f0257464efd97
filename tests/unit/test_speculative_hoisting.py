"""The blocks to which loads may be hoisted, compared with the recursive algorithm of the thesis."""

import random
from types import SimpleNamespace
from typing import Any

from ptxmotion.transforms.scalar_replacement.block_answers import THROUGH, Answer, PlannedLoad
from ptxmotion.transforms.scalar_replacement.questions import Question
from ptxmotion.transforms.scalar_replacement.speculative_hoisting import ELSEWHERE, MAX_DEPTH, NOWHERE, Hoisting, Places

QUESTION = Question("global", 1, 0, 4, 64)
PHI = 7


class Graph:
    """A random graph with random values for all properties that hoisting uses."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        count = chance.randint(2, 14)
        # Mostly chains, in which hoisting moves several blocks in one step.
        self.succ = [
            sorted({block + 1, *(chance.randrange(count) for _ in range(chance.choice((0, 0, 0, 1))))})
            for block in range(count - 1)
        ]
        self.succ.append([])
        self.pred = [[before for before in range(count) if block in self.succ[before]] for block in range(count)]
        self.exits = [count - 1, *(block for block in range(count - 1) if chance.random() < 0.05)]
        self.reachable = [True] * count
        self.rpo = list(range(count))
        self.controllers = [{each for each in range(count) if chance.random() < 0.4} for _ in range(count)]
        self.parting = {block for block in range(count) if chance.random() < 0.5}
        self.convergent = {block for block in range(count) if chance.random() < 0.7}
        self.evaluated = {(a, b) for a in range(count) for b in range(count) if chance.random() < 0.7}
        self.phis = {block: {PHI: block} for block in range(count) if chance.random() < 0.05}
        says: list[Answer] = [THROUGH] * 8 + [Answer(PlannedLoad()), Answer(reason="store")]
        self.said = [chance.choice(says) for _ in range(count)]
        self.leaves = chance.choice((frozenset[int](), frozenset([PHI]), None))

    def hoisting(self) -> Hoisting:
        facts: Any = SimpleNamespace(cfg=self, control_dependence=SimpleNamespace(controllers=self.controllers))
        symbols = SimpleNamespace(phis=self.phis, leaves=self.leaves_of)
        availability: Any = SimpleNamespace(symbols=symbols, answers_to=self.answers_to)
        anticipation: Any = SimpleNamespace(is_evaluated=self.is_evaluated)
        return Hoisting(facts, availability, anticipation, self.parting.__contains__)

    def leaves_of(self, base: int) -> frozenset[int] | None:
        return self.leaves

    def answers_to(self, question: Question) -> SimpleNamespace:
        return SimpleNamespace(at_end=self.said.__getitem__)

    def is_evaluated(self, block: int, successor: int, question: Question) -> bool:
        return (block, successor) in self.evaluated


class Plain:
    """Algorithms 2.1 and 2.2, as in the header of the module."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.answers: dict[tuple[int, int], Places | None] = {}

    def above(self, m: int, n: int, depth: int) -> Places:
        graph = self.graph
        before = graph.pred[n]
        is_named_anew = n in graph.phis and (graph.leaves is None or PHI in graph.leaves)
        if not before or n == 0 or is_named_anew:
            return NOWHERE
        answers = {block: self.at(m, block, depth + 1) for block in before}
        places = frozenset[int]().union(*(answer.blocks for answer in answers.values()))
        refusing = [block for block, answer in answers.items() if not answer.may_rise]
        if not refusing:
            return Places(True, places)
        if len(refusing) == len(before) or not graph.convergent.issuperset(refusing):
            return NOWHERE
        if not all((block, n) in graph.evaluated for block in refusing):
            return NOWHERE
        if any(self.is_in_vain(block) for block in refusing):
            return NOWHERE
        return Places(True, places.union(refusing))

    def is_in_vain(self, block: int) -> bool:
        """Whether a warp may evaluate at the end of ``block`` what it does not need."""
        graph = self.graph
        if len(graph.succ[block]) + (block in graph.exits) == 1 or block in graph.parting:
            return False
        return block in graph.exits or not all((block, after) in graph.evaluated for after in graph.succ[block])

    def at(self, m: int, n: int, depth: int) -> Places:
        if (m, n) in self.answers:
            return self.answers[m, n] or ELSEWHERE
        if depth > MAX_DEPTH:
            return NOWHERE
        self.answers[m, n] = None
        found = self.answers[m, n] = self.find(m, n, depth)
        return found

    def find(self, m: int, n: int, depth: int) -> Places:
        graph = self.graph
        said = graph.said[n]
        if said.provider is not None:
            return ELSEWHERE
        ways = len(graph.succ[n]) + (n in graph.exits)
        depends = n in graph.controllers[m]
        may_speculate = ways > 1 and n in graph.parting
        if said.reason:
            return Places(True, frozenset([n])) if may_speculate and depends else NOWHERE
        if may_speculate:
            if not depends:
                return self.above(m, n, depth)
            higher = self.above(n, n, depth)
            return higher if higher.may_rise else Places(True, frozenset([n]))
        if ways > 1:
            if n in graph.exits or not all((n, after) in graph.evaluated for after in graph.succ[n]):
                return NOWHERE
            return self.above(n if depends else m, n, depth)
        return self.above(m, n, depth)


def test_chains_are_gone_up_as_block_by_block() -> None:
    risen = 0
    for seed in range(3000):
        graph = Graph(seed)
        hoisting = graph.hoisting()
        for block in graph.rpo:
            found = hoisting.places(block, QUESTION, graph.convergent.__contains__)
            assert found == Plain(graph).above(block, block, 0), (seed, block)
            risen += bool(found.blocks)
    assert risen > 1000


def test_no_way_is_longer_than_the_bound() -> None:
    graph = Graph(0)
    count = MAX_DEPTH + 20
    graph.succ = [[block + 1] for block in range(count - 1)] + [[]]
    graph.pred = [[], *([block] for block in range(count - 1))]
    graph.reachable, graph.rpo, graph.exits = [True] * count, list(range(count)), [count - 1]
    graph.controllers, graph.phis = [set[int]() for _ in range(count)], {}
    graph.said = [Answer(PlannedLoad()), *([THROUGH] * (count - 1))]
    hoisting = graph.hoisting()
    assert hoisting.places(MAX_DEPTH, QUESTION, graph.convergent.__contains__) == ELSEWHERE
    assert hoisting.places(MAX_DEPTH + 1, QUESTION, graph.convergent.__contains__) == NOWHERE
