"""Results over commits: small entries made of result files, the series of each figure, and their steps.

An `Entry` has the figures of one run: for each program and arm, the noise-free figures, and where there was a GPU the
speedup over the baseline and the median time. A `Series` is one figure of one arm over the entries of one environment
(the GPU, or the emulator), in the order of the commits.

Speedups are ratios within one run, so they can be compared between runs. Times of different runs contain the
differences of clocks and machines; they show what changes all arms alike, and their noise is larger.

Requires: result files; for steps of speedups and times, ruptures (`steps`).
Guarantees: an entry has only values of its result file; a benchmark whose baseline was not the `SAME` as itself has
neither speedups nor times. Refuses: `ResultError` for a file that is no entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .figures import figure_of, noise_free
from .results import ArmResult, BenchmarkResult, ResultError, ResultFile
from .steps import Step, exact_steps, noisy_steps

__all__ = ["Entry", "Series", "SeriesStep", "entry_of", "parse_entry", "series_of", "steps_of"]

FORMAT = "ptxmotion history"
SCHEMA_VERSION = 1

#: Figures of a GPU, which have noise: name → (unit, whether a greater value is better).
NOISY = {"speedup": ("times as fast", True), "time": ("seconds", False)}


@dataclass(frozen=True)
class Entry:
    """The figures of one run: ``results[program][arm][figure]``. A figure is named ``kernel:figure``,
    ``emulated:figure``, `speedup` or `time`; a program has its size in parentheses."""

    datetime: str
    commit: dict[str, Any]
    environment: str
    results: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict[str, dict[str, dict[str, float]]])

    @property
    def id(self) -> str:
        """The commit in short form, with a star if the tree had changes; `unknown` where there is none."""
        name = str(self.commit.get("id") or "unknown")[:12]
        return f"{name}*" if self.commit.get("dirty") else name

    @property
    def order(self) -> tuple[str, str]:
        """Sorts entries: the time of the commit, then that of the run, both in UTC."""
        return _utc(str(self.commit.get("time") or self.datetime)), _utc(self.datetime)

    @property
    def filename(self) -> str:
        """The name of its file, which sorts by the time of the run."""
        stamp = _utc(self.datetime).replace(":", "").replace("-", "")
        place = "".join(c if c.isalnum() else "-" for c in self.environment.lower())
        return f"{stamp}-{self.id.rstrip('*')}-{place}.json"

    def replaces(self, other: Entry) -> bool:
        """Whether both are noise-free results of the same commit without changes, so that one is enough."""
        same = self.commit.get("id") is not None and self.commit == other.commit and not self.commit.get("dirty")
        return same and self.environment == other.environment == "emulator"

    def dumps(self) -> str:
        """The text of its file."""
        document = {"format": FORMAT, "schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(document, indent=0, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _utc(text: str) -> str:
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return moment.astimezone(datetime.UTC).isoformat(timespec="seconds")


def entry_of(result: ResultFile) -> Entry:
    """The entry of a result file."""
    environment = result.backend
    if gpu := result.machine_info.get("gpu"):
        environment = str(gpu)
    entry = Entry(result.datetime, dict(result.commit_info), environment)
    for benchmark in result.benchmarks:
        if not benchmark.error:
            entry.results[_program(benchmark)] = {
                arm.id: _figures(benchmark, arm, result.backend != "emulator")
                for arm in benchmark.arms
                if arm.role != "control" and arm.correctness.status == "ok"
            }
    return entry


def _program(benchmark: BenchmarkResult) -> str:
    params = ", ".join(str(value) for value in benchmark.params.values())
    return f"{benchmark.fullname} ({params})" if params else benchmark.fullname


def _figures(benchmark: BenchmarkResult, arm: ArmResult, was_timed: bool) -> dict[str, float]:
    """The figures of an arm. ``was_timed``: the run was on a machine that times. There, identical machine code has the
    speedup 1 without a measurement. Files of earlier versions have that speedup also without times."""
    found = dict(noise_free(arm))
    comparison = next((each for each in benchmark.candidates if each.candidate == arm.id), None)
    if comparison is not None and comparison.verdict == "IDENTICAL" and was_timed:
        found["speedup"] = 1.0
    if benchmark.gates:
        if comparison is not None and comparison.speedup is not None and comparison.verdict in _MEASURED:
            found["speedup"] = comparison.speedup
        if arm.stats is not None:
            found["time"] = arm.stats.median
    return found


_MEASURED = ("FASTER", "SLOWER", "SAME", "INCONCLUSIVE")

_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
_SCHEMA = {
    "type": "object",
    "properties": {
        "format": {"const": FORMAT},
        "schema_version": {"const": SCHEMA_VERSION},
        "datetime": {"type": "string"},
        "commit": {"type": "object"},
        "environment": {"type": "string"},
        "results": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": _NUMBERS},
        },
    },
    "required": ["format", "schema_version", "datetime", "commit", "environment", "results"],
    "additionalProperties": False,
}


def parse_entry(text: str, place: str) -> Entry:
    """The entry in a file. ``place`` names the file in errors. Raises `ResultError`."""
    import jsonschema

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{place}: invalid JSON: {error}") from error
    validator: Any = jsonschema.Draft202012Validator(_SCHEMA)
    fault: jsonschema.ValidationError | None = next(validator.iter_errors(data), None)
    if fault is not None:
        raise ResultError(f"{place}: not an entry of a history: {fault.json_path}: {fault.message[:200]}")
    return Entry(data["datetime"], data["commit"], data["environment"], data["results"])


# --- series and steps


@dataclass(frozen=True)
class Series:
    """One figure of one arm of a program in one environment, over the entries that have it, in the order of commits."""

    environment: str
    program: str
    arm: str
    figure: str
    entries: Sequence[Entry]
    values: Sequence[float]

    @property
    def unit(self) -> str:
        """The unit of a value."""
        if self.figure in NOISY:
            return NOISY[self.figure][0]
        row = figure_of(self.figure)
        return row.unit if row is not None else "count"

    @property
    def is_gain(self) -> bool:
        """Whether a greater value is better."""
        if self.figure in NOISY:
            return NOISY[self.figure][1]
        row = figure_of(self.figure)
        return row is not None and row.is_gain


@dataclass(frozen=True)
class SeriesStep:
    """A step of a series. ``first`` is the first entry with the new level, ``last`` the last one with the old level.

    ``arms`` are the arms that have this step; ``is_all``: every arm of the program has it.
    """

    series: Series
    step: Step
    arms: tuple[str, ...]
    is_all: bool

    @property
    def first(self) -> Entry:
        """The first entry after the step."""
        return self.series.entries[self.step.index]

    @property
    def last(self) -> Entry:
        """The last entry before the step."""
        return self.series.entries[self.step.index - 1]

    @property
    def regressed(self) -> bool:
        """Whether the figure got worse."""
        return (self.step.after < self.step.before) == self.series.is_gain

    @property
    def kind(self) -> str:
        """`slower`, `faster`, `worse` or `better`, as in `compare`."""
        if self.series.figure in NOISY:
            return "slower" if self.regressed else "faster"
        return "worse" if self.regressed else "better"


def series_of(entries: Sequence[Entry]) -> list[Series]:
    """The series of all figures, by environment, program, arm and figure."""
    ordered = sorted(entries, key=lambda each: each.order)
    found: dict[tuple[str, str, str, str], tuple[list[Entry], list[float]]] = {}
    for entry in ordered:
        for program, arms in entry.results.items():
            for arm, figures in arms.items():
                for figure, value in figures.items():
                    those, values = found.setdefault((entry.environment, program, arm, figure), ([], []))
                    those.append(entry)
                    values.append(value)
    return [Series(*key, those, values) for key, (those, values) in found.items()]


def steps_of(series: Sequence[Series], min_effect: float = 0.01) -> list[SeriesStep]:
    """The steps of the series, in the order of the commits. A step that several arms share is one step.

    ``min_effect`` is for figures with noise; of the others every change is a step. Raises `StepsMissing`.
    """
    arms: dict[tuple[str, str, str], list[str]] = {}
    alike: dict[tuple[Any, ...], list[tuple[Series, Step]]] = {}
    for each in series:
        arms.setdefault((each.environment, each.program, each.figure), []).append(each.arm)
        steps = noisy_steps(each.values, min_effect) if each.figure in NOISY else exact_steps(each.values)
        for step in steps:
            entry = each.entries[step.index]
            # Levels with noise are never equal, so each arm has its own step.
            levels = (each.arm,) if each.figure in NOISY else (step.before, step.after)
            alike.setdefault((each.environment, each.program, each.figure, entry.order, entry.id, *levels), []).append(
                (each, step)
            )
    found: list[SeriesStep] = []
    for group in alike.values():
        first, step = group[0]
        names = tuple(each.arm for each, _ in group)
        every = arms[first.environment, first.program, first.figure]
        found.append(SeriesStep(first, step, names, len(every) > 1 and list(names) == every))
    return sorted(found, key=lambda each: each.first.order)
