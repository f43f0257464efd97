"""Interleaved rounds of timing: the order of the arms, and when to stop.

Computes samples of several arms of one work in rounds. In each round all arms run in a new random order, so that drift
and clock steps affect all arms equally. While a comparison is `INCONCLUSIVE`, the number of rounds is doubled, at most
`Plan.doublings` times.

Requires: a `Stopwatch` of the machine; arms that were found correct.
Guarantees: the baseline is a second time among the arms (`CONTROL`) and is compared with itself; a round in which the
SM clocks of the arms differed counts for no arm; all arms have the same number of samples in all rounds.
Refuses: `ValueError` for fewer than one round or sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .stats import DEFAULT_RULE, Estimate, Rule, Verdict, estimate, keep_rounds

__all__ = ["CONTROL", "FEWEST", "Block", "Plan", "Rounds", "Stopwatch", "compare_arms", "rule_of", "time_arms"]

#: The suffix of the name of the second entry of the baseline.
CONTROL = " (again)"

#: The least number of samples of an arm in a round, unless the plan has fewer.
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. ``seeds`` are those of the correctness check.

    The baseline is warmed up for ``warm_up_seconds``, each other arm for a fifth of that. An arm has ``samples``
    samples in a round. It has fewer, but at least `FEWEST`, if they would take more than ``block_seconds``: long runs
    have little noise. ``thresholds`` say how much a noise-free figure may get worse (`figures.parse_threshold`).
    """

    rounds: int = 30
    samples: int = 10
    doublings: int = 2
    warm_up_seconds: float = 0.1
    block_seconds: float = 0.1
    seeds: tuple[int, ...] = (1, 2, 3)
    shuffle_seed: int = 0
    rule: Rule = DEFAULT_RULE
    thresholds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.samples < 1 or self.doublings < 0 or not self.seeds or not self.block_seconds > 0:
            raise ValueError(f"invalid plan: {self}")

    def samples_of(self, seconds: float) -> int:
        """The number of samples of each arm in a round, if one sample takes ``seconds``.

        >>> Plan().samples_of(1e-4), Plan().samples_of(0.02), Plan().samples_of(1.0)
        (10, 5, 3)
        """
        return min(self.samples, max(FEWEST, int(self.block_seconds / seconds)))

    def options(self) -> dict[str, Any]:
        """The plan as plain data, for the result file; `rule_of` and `figures.thresholds_of` read it back."""
        plain = {**asdict(self), "seeds": list(self.seeds), "thresholds": list(self.thresholds)}
        if not self.thresholds:
            del plain["thresholds"]  # so that the options of an older file are equal, and it can be continued
        return plain


def rule_of(options: Mapping[str, Any]) -> Rule:
    """The rule of the verdicts of a result file. Raises `TypeError`, `ValueError` for an invalid rule."""
    return Rule(**options.get("rule", {}))


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one arm in one round: seconds per run of the work, and the SM clock in Hz (NaN: unknown)."""

    seconds: tuple[float, ...]
    clock_hz: float


class Stopwatch(Protocol):
    """A machine with prepared arms, numbered from 0; the baseline is first."""

    def warm_up(self, arm: int, seconds: float, /) -> float:
        """Run an arm untimed for about ``seconds``; the estimated seconds of the work of one sample."""
        ...

    def measure(self, arm: int, samples: int, /) -> Block:
        """Take ``samples`` samples of an arm. Raises `OSError` if the machine fails."""
        ...


@dataclass(slots=True)
class Rounds:
    """The measurements: ``seconds[arm][round][sample]``, and ``clocks[round][arm]`` in Hz."""

    seconds: list[list[list[float]]] = field(default_factory=list[list[list[float]]])
    clocks: list[list[float]] = field(default_factory=list[list[float]])

    def kept(self, rule: Rule) -> list[bool]:
        """Which rounds count."""
        return keep_rounds(self.clocks, rule).tolist()


def compare_arms(rounds: Rounds, pairs: Sequence[tuple[int, int]], rule: Rule) -> list[Estimate]:
    """The comparison of each pair (baseline, candidate)."""
    keep = rounds.kept(rule)
    return [estimate(rounds.seconds[base], rounds.seconds[other], keep, rule) for base, other in pairs]


def time_arms(
    stopwatch: Stopwatch,
    arms: int,
    pairs: Sequence[tuple[int, int]],
    plan: Plan,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[Rounds, list[Estimate]]:
    """Time ``arms`` arms in rounds until every pair has a verdict, or no further rounds are allowed.

    ``report`` is called after each round with the number of finished and of planned rounds.
    """
    order = random.Random(plan.shuffle_seed)
    longest = 0.0
    for arm in range(arms):
        longest = max(longest, stopwatch.warm_up(arm, plan.warm_up_seconds / (1 if arm == 0 else 5)))
        report(0, plan.rounds)
    samples = plan.samples_of(longest)
    rounds = Rounds([[] for _ in range(arms)])
    intended = plan.rounds
    for _ in range(plan.doublings + 1):
        while len(rounds.clocks) < intended:
            _one_round(stopwatch, rounds, order, samples)
            report(len(rounds.clocks), intended)
        estimates = compare_arms(rounds, pairs, plan.rule)
        if all(each.verdict is not Verdict.INCONCLUSIVE for each in estimates):
            break
        intended *= 2
    return rounds, estimates  # pyright: ignore[reportPossiblyUnboundVariable]


def _one_round(stopwatch: Stopwatch, rounds: Rounds, order: random.Random, samples: int) -> None:
    arms = list(range(len(rounds.seconds)))
    order.shuffle(arms)
    blocks = {arm: stopwatch.measure(arm, samples) for arm in arms}
    for arm, block in blocks.items():
        rounds.seconds[arm].append(list(block.seconds))
    rounds.clocks.append([blocks[arm].clock_hz for arm in sorted(blocks)])
