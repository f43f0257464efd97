"""The driver of the fusion phases: KFCM repeats both phases until nothing changes; KF_trad has one step.

A round visits the launches in reverse postorder. BKF (`backward`) is applied to each launch, and FKF (`forward`) if BKF
fused nothing (§5.2.3, §5.3.1). Rounds are repeated until a round changes nothing, so each phase can use the result of
the other: these are the second-order effects of figure 5.14. `PhaseOrder` offers the other orders that §5.3.3
discusses.

FKF also moves launches that it does not fuse. If no later fusion uses such a motion, it only copied code. Then the
program is transformed again without the motion (``tidy``). A launch never moves past another launch, so the fusions
stay the same; if they do not, the first result is taken.

Termination: no phase adds, removes or reorders branches, so the paths through the program stay the same. Consider the
finite set of paths from start to end that use no edge more than twice; each relevant statement is on one of them. A
fusion removes one launch from each of these paths that contains it and adds none to the others, so there are finitely
many fusions. Between two fusions launches are only sunk, each to the last place that it can reach, and no launch passes
another. A sunk launch moves again only after the next launch has moved, and the last launch on each path stops first.

Guarantees: each path executes the same launches, fused or not, in the same order among themselves and relative to their
modification statements. It executes as many launches as before or fewer.
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

__all__ = ["ORDERS", "STRATEGIES", "NamedStep", "PhaseOrder", "Result", "Strategy", "transform"]

Strategy = Literal["kf_trad", "kfcm"]
PhaseOrder = Literal["backward-first", "forward-first", "backward", "forward"]
STRATEGIES: tuple[Strategy, ...] = ("kf_trad", "kfcm")
#: The order of the thesis comes first. The last two orders omit a phase.
ORDERS: tuple[PhaseOrder, ...] = ("backward-first", "forward-first", "backward", "forward")

#: A program of 100 launches needs about 12.
_MOST_ROUNDS = 1000


class FusingProgram(Editable, Protocol):
    """A program that also decides which launches may be fused."""

    def may_fuse(self, first: Node, second: Node, at: Node) -> bool:
        """Whether ``second`` may be fused with ``first`` if both are at ``at``, which is one of them."""
        ...

    def allow_more(self) -> bool:
        """Called when no fusion is possible: let ``may_fuse`` allow more from now on. False if there is nothing more to
        allow."""
        ...


P = TypeVar("P", bound=FusingProgram)


@dataclass(frozen=True)
class NamedStep:
    """A step with the names of the launches that it used and made. The names are the same in each run on the same
    program: ``3`` is the third launch, ``3.1`` its first copy, ``3+4`` the result of fusing 3 and 4."""

    step: Step
    launch: str
    partners: tuple[str, ...]
    inserted: tuple[str, ...]
    fused: tuple[str, ...]


@dataclass
class Result:
    """``steps`` in their order. ``steps_before_more`` counts the steps before `FusingProgram.allow_more` first had an
    effect."""

    steps: list[NamedStep] = field(default_factory=list[NamedStep])
    steps_before_more: int | None = None

    @property
    def fusions(self) -> int:
        """The number of fused launches that were made. A launch that was fused again counts each time."""
        return sum(len(done.fused) for done in self.steps)

    @property
    def rank(self) -> tuple[int, int]:
        """A measure for comparing results: fusions before `FusingProgram.allow_more` count more than all others."""
        return sum(len(done.fused) for done in self.steps[: self.steps_before_more]), self.fusions

    def useless_motions(self) -> frozenset[str]:
        """The launches that were sunk although no fusion used them or their copies."""
        used: set[str] = set()
        useless: set[str] = set()
        for done in reversed(self.steps):
            if done.fused:
                used |= {done.launch, *done.partners}
            elif used & set(done.inserted):
                used.add(done.launch)
            else:
                useless.add(done.launch)
        return frozenset(useless)


def transform(
    make: Callable[[], P],
    strategy: Strategy = "kfcm",
    order: PhaseOrder = "backward-first",
    *,
    tidy: bool = True,
) -> tuple[P, Result]:
    """Fuse the program that ``make`` returns. ``make`` must return the same program each time. ``tidy`` undoes motions
    that no fusion used."""
    program = make()
    result = _Transformation(program, strategy, order, frozenset()).run()
    denied = frozenset[str]()
    while tidy and (useless := result.useless_motions() - denied):
        denied |= useless
        again = make()
        shorter = _Transformation(again, strategy, order, denied).run()
        if shorter.rank < result.rank:
            break
        program, result = again, shorter
    return program, result


class _Transformation:
    """One run of a strategy over a program. ``denied`` names launches that FKF must not move without fusing them."""

    def __init__(self, program: FusingProgram, strategy: Strategy, order: PhaseOrder, denied: frozenset[str]) -> None:
        self.program, self.strategy, self.order, self.denied = program, strategy, order, denied
        self.graph: LaunchGraph = program.graph()
        self.names: dict[Node, str] = {node: str(at) for at, node in enumerate(self.graph.launches, 1)}
        self.result = Result()

    def run(self) -> Result:
        self._fuse()
        while self.program.allow_more():
            if self.result.steps_before_more is None:
                self.result.steps_before_more = len(self.result.steps)
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

    def _named(self, step: Step, applied: Applied) -> NamedStep:
        name = self.names[step.launch]
        # Read before the names change: a fused launch may use its partner's node.
        partners = tuple(self.names[node] for node in step.fusions)
        copies = [node for nodes in applied.inserted for node in nodes]
        for number, node in enumerate(copies, 1):
            self.names[node] = f"{name}.{number}"
        for (first, second), node in zip(step.pairs, applied.fused, strict=True):
            self.names[node] = f"{self.names[first]}+{self.names[second]}"
        return NamedStep(
            step,
            name,
            partners,
            tuple(self.names[node] for node in copies),
            tuple(self.names[node] for node in applied.fused),
        )
