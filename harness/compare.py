"""Compares two result files: what got worse, what got better, and what is a regression.

The noise-free figures (registers, spills, machine instructions, counts of the emulator) are compared exactly. Times of
two runs are never compared. Instead, the speedups of the two runs over their own baselines are compared, with their
intervals, and only for benchmarks whose baseline was the `SAME` as itself in both runs.

Requires: result files that have the compared benchmarks and arms in common.
Guarantees: an improvement is never a regression; a missing benchmark or arm is reported.
Refuses: `ValueError` for a malformed threshold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .results import ArmResult, BenchmarkResult, ComparisonResult, ResultFile, settle

__all__ = [
    "KINDS",
    "Change",
    "Threshold",
    "changes_to_json",
    "compare_results",
    "noise_free",
    "parse_threshold",
    "slimmed",
]

#: The kinds of changes. `--fail-on` accepts all but the last two.
KINDS = ("slower", "worse", "mismatch", "invalid", "inconclusive", "missing", "better", "faster")

#: Figures of a kernel that are worse if greater.
_COSTS = (
    "registers",
    "spill_bytes",
    "stack_bytes",
    "shared_bytes",
    "instructions",
    "weighted_instructions",
)
#: Figures that are worse if smaller.
_GAINS = ("occupancy", "active_lane_ratio")
#: Counts of the emulator that are not a cost, or that other counts include.
_NO_COST = ("thread_instructions", "shared_requests", "branches_executed", "atomics", "barriers")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``subject`` is ``benchmark:arm:kernel:figure``; ``before`` and ``after`` are None if missing."""

    kind: str
    subject: str
    before: float | None
    after: float | None
    note: str = ""

    def __str__(self) -> str:
        values = "" if self.before is None or self.after is None else f" {self.before:g} → {self.after:g}"
        return f"{self.kind}: {self.subject}{values}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """How much a figure may get worse (0.02 is 2 %) if the pattern matches its subject."""

    pattern: re.Pattern[str]
    share: float


def parse_threshold(text: str) -> Threshold:
    """Read ``REGEX=2%``. Raises `ValueError`.

    >>> parse_threshold("registers=5%").share
    0.05
    """
    match = re.fullmatch(r"(.*)=(\d+(?:\.\d+)?)%", text)
    if match is None:
        raise ValueError(f"'{text}' is not a threshold such as REGEX=2%")
    try:
        return Threshold(re.compile(match[1]), float(match[2]) / 100)
    except re.error as error:
        raise ValueError(f"'{match[1]}' is not a regular expression: {error}") from None


def compare_results(before: ResultFile, after: ResultFile, thresholds: Sequence[Threshold] = ()) -> list[Change]:
    """The differences, in the order of the benchmarks of ``before``."""
    changes: list[Change] = []
    for old in before.benchmarks:
        new = after.benchmark(old.fullname)
        if new is None or new.error:
            note = "" if new is None else f"it failed: {new.error.splitlines()[0]}"
            changes.append(Change("missing", old.fullname, None, None, note))
            continue
        for arm in old.arms:
            if arm.role == "control":
                continue
            match = next((each for each in new.arms if each.id == arm.id), None)
            if match is None:
                changes.append(Change("missing", f"{old.fullname}:{arm.id}", None, None))
            else:
                changes += _figures(old.fullname, arm, match, thresholds)
        changes += _verdicts(old, new, thresholds)
    for new in after.benchmarks:
        if before.benchmark(new.fullname) is None:
            changes += [each for each in _verdicts(None, new, thresholds) if each.kind == "mismatch"]
    return changes


def noise_free(arm: ArmResult) -> dict[str, float]:
    """The noise-free figures of an arm by ``kernel:figure``, and those of the emulator by ``emulated:figure``."""
    values: dict[str, float] = {}
    for kernel, figures in arm.static.items():
        values |= {f"{kernel}:{name}": figures[name] for name in (*_COSTS, *_GAINS) if name in figures}
    values |= {
        f"emulated:{name}": value
        for name, value in arm.emulated.items()
        if isinstance(value, int | float) and name not in _NO_COST
    }
    return values


def slimmed(result: ResultFile) -> ResultFile:
    """A result without samples and clocks, small enough to commit as a baseline."""
    benchmarks = [
        replace(each, timing=None, arms=[replace(arm, samples=[]) for arm in each.arms]) for each in result.benchmarks
    ]
    made = replace(result, benchmarks=benchmarks)
    settle(made)
    return made


def _figures(benchmark: str, old: ArmResult, new: ArmResult, thresholds: Sequence[Threshold]) -> Iterator[Change]:
    before, after = noise_free(old), noise_free(new)
    for name, value in before.items():
        subject = f"{benchmark}:{old.id}:{name}"
        other = after.get(name)
        if other is None:
            # Another machine has other figures. Only a missing kernel is reported.
            if not name.startswith("emulated:") and name.split(":")[0] not in new.static:
                yield Change("missing", subject, value, None)
            continue
        if other == value:
            continue
        is_gain = name.rpartition(":")[2] in _GAINS
        grew = other < value if is_gain else other > value
        if not grew:
            yield Change("better", subject, value, other)
        elif abs(other - value) > _allowed(subject, thresholds, 0.0) * abs(value):
            yield Change("worse", subject, value, other)


def _verdicts(old: BenchmarkResult | None, new: BenchmarkResult, thresholds: Sequence[Threshold]) -> Iterator[Change]:
    timed = new.gates and (old is None or old.gates)
    former: Mapping[str, ComparisonResult] = {each.candidate: each for each in (old.candidates if old else [])}
    for arm in new.arms:
        if arm.role == "baseline" and arm.correctness.status != "ok":
            note = arm.correctness.details[0] if arm.correctness.details else ""
            yield Change("mismatch", f"{new.fullname}:{arm.id}", None, None, note)
    if new.control is not None and not new.gates:
        note = f"the baseline compared with itself is {new.control.verdict}: these times are not used"
        yield Change("invalid", f"{new.fullname}:control", None, None, note)
    for each in new.candidates:
        subject = f"{new.fullname}:{each.candidate}:time"
        then = former.get(each.candidate)
        if each.verdict == "MISMATCH":
            yield Change("mismatch", subject, None, None, each.reason)
        elif each.verdict in ("INVALID", "INCONCLUSIVE"):
            yield Change(each.verdict.lower(), subject, _of(then), each.speedup, each.reason)
        elif timed and each.speedup is not None and each.ci is not None:
            yield from _times(subject, then, each, thresholds)


def _times(
    subject: str, then: ComparisonResult | None, now: ComparisonResult, thresholds: Sequence[Threshold]
) -> Iterator[Change]:
    assert now.ci is not None
    least = _allowed(subject, thresholds, now.delta or 0.01)
    before = then.ci if then is not None else None
    if now.verdict == "SLOWER" and now.ci[1] < 1 - least and (then is None or then.verdict != "SLOWER"):
        yield Change("slower", subject, _of(then), now.speedup, now.reason)
    elif before is not None and now.ci[1] < before[0] * (1 - least):
        yield Change("slower", subject, _of(then), now.speedup, "the speedup got smaller")
    elif before is not None and now.ci[0] > before[1] * (1 + least):
        yield Change("faster", subject, _of(then), now.speedup)


def _of(comparison: ComparisonResult | None) -> float | None:
    return comparison.speedup if comparison is not None else None


def _allowed(subject: str, thresholds: Sequence[Threshold], default: float) -> float:
    """The share of the first threshold whose pattern matches the subject."""
    return next((each.share for each in thresholds if each.pattern.search(subject)), default)


def changes_to_json(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes as plain data."""
    return [
        {"kind": c.kind, "subject": c.subject, "before": c.before, "after": c.after, "note": c.note} for c in changes
    ]
