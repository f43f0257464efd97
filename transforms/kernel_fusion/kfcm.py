"""KFCM: both phases, launch by launch, until nothing changes; and KF_trad.

A round visits the launches in reverse postorder. BKF is applied to each; FKF where BKF fused nothing (§5.2.3,
§5.3.1). Rounds are repeated until one changes nothing, so that each phase meets what the other one has made:
second-order effects, as in figure 5.14. `PhaseOrder` offers the other orders that §5.3.3 asks for.

FKF also moves a launch that it fuses with nothing. Where nothing came of it, such a motion only copies code, so the
program is transformed again without it (`tidy`); a launch never passes another one, so what is fused stays the same,
and where it does not, the first result is taken.

Termination. No phase adds, removes or reorders branches, so a way through the program stays one. Take the finite set
of ways from start to end that use no edge more than twice: every statement that matters lies on one. A fusion takes
one launch off each of these ways that passes it and adds none to the others, so there are finitely many fusions.
Between two fusions launches are only sunk, each to the last place that it reaches, and no launch passes another; so a
launch that was sunk moves again only when the one behind it has moved, and the last one on each way comes to rest
first.

Guarantees: each way executes the same launches, fused or not, in the same order among themselves and among the
statements that they may not change places with; it executes as many or fewer.
Reference: thesis §5.2.3, §5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from .backward import backward_step
from .forward import forward_step
from .launch_graph import Applied, Editable, LaunchGraph, Node, Step
from .traditional import traditional_step

__all__ = ["ORDERS", "STRATEGIES", "Done", "PhaseOrder", "Result", "Strategy", "transform"]

Strategy = Literal["kf_trad", "kfcm"]
PhaseOrder = Literal["backward-first", "forward-first", "backward", "forward"]
STRATEGIES: tuple[Strategy, ...] = ("kf_trad", "kfcm")
#: The paper's order first; the last two leave a phase out.
ORDERS: tuple[PhaseOrder, ...] = ("backward-first", "forward-first", "backward", "forward")

#: A program of a hundred launches needs a dozen.
_MOST_ROUNDS = 1000


class FusingProgram(Editable, Protocol):
    """A program that also knows which launches may be fused."""

    def may_fuse(self, first: Node, second: Node, at: Node) -> bool:
        """Whether ``second`` may be fused with ``first`` if both stand where ``at`` does, which is one of them."""
        ...

    def allow_more(self) -> bool:
        """Called when nothing is left to fuse: whether there is now, as ``may_fuse`` allows more."""
        ...


P = TypeVar("P", bound=FusingProgram)


@dataclass(frozen=True)
class Done:
    """A step with the names of what it took and made. Names are the same in every run over the same program: ``3`` is
    the third launch, ``3.1`` its first copy, ``3+4`` what it was fused to."""

    step: Step
    launch: str
    partners: tuple[str, ...]
    inserted: tuple[str, ...]
    fused: tuple[str, ...]


@dataclass
class Result:
    """The steps in their order. ``first`` of them are those before more was allowed."""

    steps: list[Done] = field(default_factory=list[Done])
    first: int | None = None

    @property
    def fusions(self) -> int:
        """How many fused launches were made; one that was fused again counts each time."""
        return sum(len(done.fused) for done in self.steps)

    @property
    def rank(self) -> tuple[int, int]:
        """For comparisons: the fusions that were allowed from the beginning count before all others."""
        return sum(len(done.fused) for done in self.steps[: self.first]), self.fusions

    def vain(self) -> frozenset[str]:
        """The launches that were sunk, and of which neither was fused nor anything that was."""
        used: set[str] = set()
        vain: set[str] = set()
        for done in reversed(self.steps):
            if done.fused:
                used |= {done.launch, *done.partners}
            elif used & set(done.inserted):
                used.add(done.launch)
            else:
                vain.add(done.launch)
        return frozenset(vain)


def transform(
    make: Callable[[], P],
    strategy: Strategy = "kfcm",
    order: PhaseOrder = "backward-first",
    *,
    tidy: bool = True,
) -> tuple[P, Result]:
    """Fuse what ``make`` gives, which is the same program each time. ``tidy`` undoes motions that came to nothing."""
    program = make()
    result = _Run(program, strategy, order, frozenset()).run()
    denied = frozenset[str]()
    while tidy and (vain := result.vain() - denied):
        denied |= vain
        again = make()
        shorter = _Run(again, strategy, order, denied).run()
        if shorter.rank < result.rank:
            break
        program, result = again, shorter
    return program, result


class _Run:
    def __init__(self, program: FusingProgram, strategy: Strategy, order: PhaseOrder, denied: frozenset[str]) -> None:
        self.program, self.strategy, self.order, self.denied = program, strategy, order, denied
        self.graph: LaunchGraph = program.graph()
        self.names: dict[Node, str] = {node: str(at) for at, node in enumerate(self.graph.launches, 1)}
        self.result = Result()

    def run(self) -> Result:
        self._fuse()
        while self.program.allow_more():
            if self.result.first is None:
                self.result.first = len(self.result.steps)
            self._fuse()
        return self.result

    def _fuse(self) -> None:
        if self.strategy == "kf_trad":
            while step := traditional_step(self.graph, self.program.may_fuse):
                self._apply(step)
            return
        for _ in range(_MOST_ROUNDS):
            if not self._round():
                return
        raise RuntimeError(f"launches still move after {_MOST_ROUNDS} rounds")

    def _round(self) -> bool:
        changed = False
        for launch in list(self.graph.launches):
            if launch in self.graph.is_launch and (step := self._step(launch)):
                self._apply(step)
                changed = True
        return changed

    def _step(self, launch: Node) -> Step | None:
        sinking: Step | None = None
        for step in self._phases(launch):
            if step.fusions:
                return step
            sinking = step
        return None if self.names[launch] in self.denied else sinking

    def _phases(self, launch: Node) -> Iterator[Step]:
        backward = self.order in ("backward-first", "backward")
        for phase in (backward_step, forward_step) if backward else (forward_step, backward_step):
            if self.order in ("backward", "forward") and phase is not (backward_step if backward else forward_step):
                continue
            if step := phase(self.graph, launch, self.program.may_fuse):
                yield step

    def _apply(self, step: Step) -> None:
        applied = self.program.apply(step)
        self.graph = self.program.graph()
        self.result.steps.append(self._named(step, applied))

    def _named(self, step: Step, applied: Applied) -> Done:
        mine = self.names[step.launch]
        partners = tuple(self.names[node] for node in step.fusions)  # a fused launch may take its partner's node
        copies = [node for nodes in applied.inserted for node in nodes]
        for number, node in enumerate(copies, 1):
            self.names[node] = f"{mine}.{number}"
        for (first, second), node in zip(step.pairs, applied.fused, strict=True):
            self.names[node] = f"{self.names[first]}+{self.names[second]}"
        return Done(
            step,
            mine,
            partners,
            tuple(self.names[node] for node in copies),
            tuple(self.names[node] for node in applied.fused),
        )
