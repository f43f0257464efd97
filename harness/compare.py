"""Compares two result files: what got worse, what got better, and what is a regression.

The noise-free figures (registers, spills, machine instructions, counts of the emulator) are compared exactly. Times of
two runs are never compared. Instead, the speedups of the two runs over their own baselines are compared, with their
intervals, and only for benchmarks whose baseline was the `SAME` as itself in both runs.

Requires: result files that have the compared benchmarks and arms in common.
Guarantees: an improvement is never a regression; a missing benchmark or arm is reported, as is a benchmark that ran
with another size or other parameters, whose figures are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .figures import Threshold, allowed, figure_of, noise_free, number_text, percent_of, percent_text
from .results import ArmResult, BenchmarkResult, ComparisonResult, ResultFile, settle

__all__ = [
    "FAILING",
    "KINDS",
    "Change",
    "change_lines",
    "counted_changes",
    "changes_to_json",
    "compare_results",
    "shared_changes",
    "slimmed",
]

#: The kinds of changes.
KINDS = ("slower", "worse", "mismatch", "invalid", "inconclusive", "missing", "better", "faster")

#: The kinds that `--fail-on` accepts.
FAILING = KINDS[:-2]

_SPEEDUP = "times as fast"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``subject`` is ``benchmark:arm:kernel:figure``; ``before`` and ``after`` are None if missing.

    ``unit`` is that of the values.
    """

    kind: str
    subject: str
    before: float | None
    after: float | None
    note: str = ""
    unit: str = ""

    @property
    def regressed(self) -> bool:
        """Whether something got worse: slower by the clock, or worse in a noise-free figure."""
        return self.kind in ("slower", "worse")

    @property
    def percent(self) -> float | None:
        """The change in percent; None if a value is missing, or if it grew from 0."""
        return None if self.before is None or self.after is None else percent_of(self.before, self.after)

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}{self.values}"

    @property
    def values(self) -> str:
        """The values, the change in percent and the note, as a message has them."""
        note = f" ({self.note})" if self.note else ""
        if self.before is None or self.after is None:
            return note
        unit = f" {self.unit}" if self.unit else ""
        change = percent_text(self.before, self.after)
        return f" {number_text(self.before)} → {number_text(self.after)}{unit} ({change}){note}"


def compare_results(before: ResultFile, after: ResultFile, thresholds: Sequence[Threshold] = ()) -> list[Change]:
    """The differences, in the order of the benchmarks of ``before``."""
    changes: list[Change] = []
    for old in before.benchmarks:
        new = after.benchmark(old.fullname)
        if new is None or new.error:
            note = "" if new is None else f"it failed: {new.error.splitlines()[0]}"
            changes.append(Change("missing", old.fullname, None, None, note))
            continue
        if old.params != new.params:
            note = f"it ran with {_params(new)}, and before with {_params(old)}: nothing is compared"
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


def _params(benchmark: BenchmarkResult) -> str:
    """The size and the parameters of a benchmark, for a message."""
    return " ".join(f"{name}={value}" for name, value in benchmark.params.items()) or "no parameters"


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
        figure = figure_of(name)
        unit = figure.unit if figure is not None else ""
        grew = other < value if figure is not None and figure.is_gain else other > value
        if not grew:
            yield Change("better", subject, value, other, unit=unit)
        elif abs(other - value) > allowed(subject, thresholds, 0.0) * abs(value):
            yield Change("worse", subject, value, other, unit=unit)


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
            yield Change(each.verdict.lower(), subject, _of(then), each.speedup, each.reason, _SPEEDUP)
        elif timed and each.speedup is not None and each.ci is not None:
            yield from _times(subject, then, each, thresholds)


def _times(
    subject: str, then: ComparisonResult | None, now: ComparisonResult, thresholds: Sequence[Threshold]
) -> Iterator[Change]:
    assert now.ci is not None
    least = allowed(subject, thresholds, now.delta or 0.01)
    before = then.ci if then is not None else None
    if now.verdict == "SLOWER" and now.ci[1] < 1 - least and (then is None or then.verdict != "SLOWER"):
        yield Change("slower", subject, _of(then), now.speedup, now.reason, _SPEEDUP)
    elif before is not None and now.ci[1] < before[0] * (1 - least):
        yield Change("slower", subject, _of(then), now.speedup, "the speedup got smaller", _SPEEDUP)
    elif before is not None and now.ci[0] > before[1] * (1 + least):
        yield Change("faster", subject, _of(then), now.speedup, unit=_SPEEDUP)


def _of(comparison: ComparisonResult | None) -> float | None:
    return comparison.speedup if comparison is not None else None


def change_lines(changes: Sequence[Change], before: ResultFile) -> list[str]:
    """The changes as lines. A change that several arms of a benchmark have in common is one line."""
    return [f"{each.kind}: {subject}{each.values}" for subject, each in shared_changes(changes, before)]


def counted_changes(changes: Sequence[Change], before: ResultFile) -> dict[str, int]:
    """The number of `change_lines` of each kind, as `history.steps_of` counts steps."""
    kinds = [each.kind for _, each in shared_changes(changes, before)]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def shared_changes(changes: Sequence[Change], before: ResultFile) -> list[tuple[str, Change]]:
    """The subject of each change, and the change. One that several arms of a benchmark have in common occurs once."""
    arms = {
        each.fullname: [arm.id for arm in each.arms if arm.role != "control"]
        for each in before.benchmarks
        if len(each.arms) > 1
    }
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    placed = [_placed(change, arms) for change in changes]
    for change, (benchmark, arm, rest) in zip(changes, placed, strict=True):
        if arm:
            alike.setdefault((change.kind, benchmark, rest, change.values), []).append(arm)
    found: dict[tuple[str, str, str], Change] = {}
    for change, (benchmark, arm, rest) in zip(changes, placed, strict=True):
        same = alike[change.kind, benchmark, rest, change.values] if arm else []
        if len(same) > 1:
            subject = f"{benchmark}:{_names(same, arms[benchmark])}:{rest}"
        else:
            subject = change.subject
        found.setdefault((change.kind, subject, change.values), change)
    return [(subject, change) for (_, subject, _), change in found.items()]


def _names(some: Sequence[str], arms: Sequence[str]) -> str:
    return f"(all {len(arms)} variants)" if some == arms else f"({', '.join(some)})"


def _placed(change: Change, arms: Mapping[str, Sequence[str]]) -> tuple[str, str, str]:
    """Benchmark, arm and the rest of the subject of a change; the arm is empty where it is about no arm."""
    for benchmark, ids in arms.items():
        for arm in ids:
            prefix = f"{benchmark}:{arm}:"
            if change.subject.startswith(prefix):
                return benchmark, arm, change.subject.removeprefix(prefix)
    return "", "", ""


def changes_to_json(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes as plain data."""
    return [
        {
            "kind": each.kind,
            "subject": each.subject,
            "before": each.before,
            "after": each.after,
            "percent": each.percent,
            "unit": each.unit,
            "note": each.note,
            "regressed": each.regressed,
        }
        for each in changes
    ]
