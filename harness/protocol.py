"""Interleaved rounds: when which arm is timed, and when enough has been seen.

Computes, for several arms of one work, samples in rounds; in each round all arms run in an order drawn anew, so that
drift and clock steps meet all arms alike. Doubles the rounds, at most `Plan.doublings` times, while a comparison is
`INCONCLUSIVE`.

Requires: a `Stopwatch`, which knows the machine; what is timed has been found correct before.
Guarantees: the baseline is among the arms a second time (`CONTROL`) and is compared with itself; rounds in which the
SM clocks of the arms were apart count for no arm; all arms have the same number of samples in all rounds.
Refuses: `ValueError` for fewer than one round or sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .stats import DEFAULT_RULE, Estimate, Rule, Verdict, estimate, keep_rounds

__all__ = ["CONTROL", "FEWEST", "Block", "Plan", "Rounds", "Stopwatch", "compare_arms", "rule_of", "time_arms"]

#: What is put behind the baseline's name where it is entered a second time.
CONTROL = " (again)"


#: The least number of samples that a median is taken of, unless fewer are asked for.
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. ``seeds`` are those of the correctness check.

    ``warm_up_seconds`` is for the baseline, and a fifth of it for each other arm: the machine is warm by then.
    An arm has ``samples`` in a round; fewer, but `FEWEST` at least, where they would take more than ``block_seconds``:
    what takes so long has little noise.
    """

    rounds: int = 30
    samples: int = 10
    doublings: int = 2
    warm_up_seconds: float = 0.1
    block_seconds: float = 0.1
    seeds: tuple[int, ...] = (1, 2, 3)
    shuffle_seed: int = 0
    rule: Rule = DEFAULT_RULE

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.samples < 1 or self.doublings < 0 or not self.seeds or not self.block_seconds > 0:
            raise ValueError(f"no plan: {self}")

    def samples_of(self, seconds: float) -> int:
        """How many samples a round has of arms of which one takes ``seconds``.

        >>> Plan().samples_of(1e-4), Plan().samples_of(0.02), Plan().samples_of(1.0)
        (10, 5, 3)
        """
        return min(self.samples, max(FEWEST, int(self.block_seconds / seconds)))

    def options(self) -> dict[str, Any]:
        """The plan as plain data, for the result file; `rule_of` reads the rule back."""
        return {**asdict(self), "seeds": list(self.seeds)}


def rule_of(options: Mapping[str, Any]) -> Rule:
    """The rule by which a result file's verdicts were found. Raises `TypeError`, `ValueError` where it is none."""
    return Rule(**options.get("rule", {}))


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one arm in one round: seconds per run of the work, and the SM clock in Hz (NaN: not to be read)."""

    seconds: tuple[float, ...]
    clock_hz: float


class Stopwatch(Protocol):
    """A machine on which the arms are ready to run; arms are numbered from 0, the baseline first."""

    def warm_up(self, arm: int, seconds: float, /) -> float:
        """Run an arm for about so long, untimed; about how many seconds the work of one sample takes."""
        ...

    def measure(self, arm: int, samples: int, /) -> Block:
        """Time an arm that many times. Raises `OSError` where the machine fails."""
        ...


@dataclass(slots=True)
class Rounds:
    """What was measured: ``seconds[arm][round][sample]`` and ``clocks[round][arm]`` in Hz."""

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
    """Time ``arms`` arms in rounds until every pair is decided, or the rounds are used up.

    ``report`` is called after each round with the rounds done and the rounds intended by then.
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
