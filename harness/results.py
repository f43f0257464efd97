"""The result document: what a run of benchmarks found, as one JSON file.

Field names follow pytest-benchmark where it has them (`fullname`, `group`, `params`, `stats`, `commit_info`,
`machine_info`); times are seconds, clocks Hz, sizes bytes. `result_schema.json` beside this file describes the
document for others; tests compare the two.

Requires: nothing but Python; no GPU, no NumPy to read or write.
Guarantees: `write` replaces the file in one step after everything is on disk, so an interrupt, a full disk or a kill
leaves the old file; reading a written file gives the same result; samples are stored, so every verdict can be checked.
Refuses: `ResultError`, with the place in the document, for a file that is no result file or has another schema version.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

__all__ = [
    "SCHEMA_VERSION",
    "ArmResult",
    "BenchmarkResult",
    "ComparisonResult",
    "Control",
    "Correctness",
    "FigureResult",
    "ResultError",
    "ResultFile",
    "Stats",
    "Summary",
    "TimeEstimate",
    "Timing",
    "control_of",
    "dumps",
    "from_json",
    "hashes",
    "read",
    "schema",
    "settle",
    "summary_of",
    "to_json",
    "write",
    "write_text",
]

SCHEMA_VERSION = 2

#: Versions that can be read. Version 1 has no figures and no estimates in its comparisons, and the verdict `UNTIMED`
#: where version 2 has `BETTER`, `WORSE` or `EQUAL`.
_READABLE = (1, 2)


class ResultError(ValueError):
    """A file is not a result file of this version, or it contradicts itself."""


@dataclass(slots=True)
class Stats:
    """Seconds of one arm in the rounds that count; ``rounds`` is the number of samples, as in pytest-benchmark."""

    min: float
    q1: float
    median: float
    q3: float
    iqr: float
    mean: float
    stddev: float
    max: float
    rounds: int


@dataclass(slots=True)
class Correctness:
    """The result of the checks of an arm, before and after timing.

    ``status``: `ok`; `mismatch`; `hang`; `crash`; `not_made`: the optimizer failed; `not_comparable`: the
    baseline differs from itself in a way that no tolerance covers. ``nondeterministic`` names the outputs and buffers
    that the baseline itself computes differently each time.
    """

    status: str
    details: list[str] = field(default_factory=list[str])
    seeds: list[int] = field(default_factory=list[int])
    patterns: list[int] = field(default_factory=list[int])
    nondeterministic: list[str] = field(default_factory=list[str])
    checked_after_timing: bool = False


@dataclass(slots=True)
class ArmResult:
    """One arm. ``role`` is `baseline`, `candidate` or `control`; the hashes cover all its modules by name.

    ``static`` has the figures of the cubin by kernel; ``emulated`` has the counts of the emulator, empty if it did not
    run. ``samples[round][sample]`` are seconds per run of the work, with the dropped rounds. ``same_code_as`` names an
    earlier candidate with the same machine code, which was timed for both; then ``samples`` are stored there only.
    """

    id: str
    role: str
    ptx_sha256: str
    cubin_sha256: str
    correctness: Correctness
    static: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    emulated: dict[str, Any] = field(default_factory=dict[str, Any])
    stats: Stats | None = None
    samples: list[list[float]] = field(default_factory=list[list[float]])
    same_code_as: str = ""


@dataclass(slots=True)
class FigureResult:
    """A noise-free figure of the baseline (``before``) and of a candidate (``after``).

    ``kernel`` is empty for a figure of the whole program. ``percent`` is the change; None if ``before`` is 0 and
    ``after`` is not. ``verdict`` is `BETTER`, `WORSE` or `EQUAL`.
    """

    name: str
    kernel: str
    unit: str
    before: float
    after: float
    percent: float | None
    verdict: str


@dataclass(slots=True)
class TimeEstimate:
    """Not measured: cycles by a ``model``. ``speedup`` > 1: the model expects the candidate to be faster."""

    baseline_cycles: float
    candidate_cycles: float
    speedup: float
    model: str


@dataclass(slots=True)
class ComparisonResult:
    """``speedup`` > 1: the candidate is faster. ``ci`` is its interval, ``delta`` the smallest effect that counts.

    ``figures`` are the noise-free figures of both arms. They decide the verdict if nothing was timed. ``estimate`` is
    an estimate of time, which decides nothing.
    """

    baseline: str
    candidate: str
    speedup: float | None
    ci: tuple[float, float] | None
    delta: float | None
    rounds: int
    rounds_dropped: int
    verdict: str
    reason: str
    figures: list[FigureResult] = field(default_factory=list[FigureResult])
    estimate: TimeEstimate | None = None

    @property
    def regressed(self) -> bool:
        """Whether the candidate is worse than the baseline: slower by the clock, or worse in a noise-free figure."""
        return self.verdict in ("SLOWER", "WORSE")


@dataclass(slots=True)
class Timing:
    """How a benchmark was timed.

    ``arms`` gives the order of the columns of ``clocks_hz[round][arm]``; `null` is an unknown clock. ``mode`` is the
    launch mode of the baseline, `stream` or `graph`. ``launches_per_sample`` is the number of runs of the work between
    two events, and ``copies`` the number of sets of buffers that they rotate over. ``machine`` is the number of the
    GPU.
    """

    arms: list[str]
    mode: str
    launches_per_sample: int
    copies: int
    flushed_bytes: int
    clocks_hz: list[list[float | None]]
    dropped_rounds: list[int]
    machine: int = 0


@dataclass(slots=True)
class BenchmarkResult:
    """One benchmark. ``error`` says why it could not be completed, or is empty. ``work`` is that of one run: its
    ``bytes`` of memory traffic and its ``elements``, as far as the program declares them."""

    fullname: str
    name: str
    group: str
    params: dict[str, Any]
    arms: list[ArmResult] = field(default_factory=list[ArmResult])
    comparisons: list[ComparisonResult] = field(default_factory=list[ComparisonResult])
    timing: Timing | None = None
    error: str = ""
    seconds: float = 0.0
    work: dict[str, float] = field(default_factory=dict[str, float])

    def arm(self, id: str) -> ArmResult:
        """The arm of that name. Raises `ResultError`."""
        for each in self.arms:
            if each.id == id:
                return each
        raise ResultError(f"{self.fullname}: no arm '{id}'")

    def timed_as(self, arm: ArmResult) -> ArmResult:
        """The arm that was timed for this one: itself, or one with the same machine code. Raises `ResultError`."""
        return self.arm(arm.same_code_as) if arm.same_code_as else arm

    @property
    def gates(self) -> bool:
        """Whether its verdicts count: it was timed, and the baseline compared with itself is `SAME`."""
        return self.control is not None and self.control.verdict == "SAME"

    @property
    def candidates(self) -> list[ComparisonResult]:
        """The comparisons, without the control."""
        control = {each.id for each in self.arms if each.role == "control"}
        return [each for each in self.comparisons if each.candidate not in control]

    @property
    def control(self) -> ComparisonResult | None:
        """The comparison of the baseline with itself, if it was timed."""
        control = {each.id for each in self.arms if each.role == "control"}
        return next((each for each in self.comparisons if each.candidate in control), None)


@dataclass(slots=True)
class Control:
    """The baseline compared with itself. ``aa_verdict`` is `SAME` if it was so in every benchmark, `NONE` if nothing
    was timed, otherwise the worst verdict. A benchmark in which it was not `SAME` has no verdicts."""

    aa_verdict: str
    counts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Summary:
    """Over all candidates: the geometric mean of the valid speedups (`IDENTICAL` is 1), and counts of verdicts."""

    geomean_speedup: float | None
    counts: dict[str, int]
    geomean_by_candidate: dict[str, float]


@dataclass(slots=True)
class ResultFile:
    """A run. ``options`` has its options, including the rule of the verdicts. ``complete`` is false while benchmarks
    are missing."""

    datetime: str
    version: str
    backend: str
    machine_info: dict[str, Any]
    commit_info: dict[str, Any]
    options: dict[str, Any]
    benchmarks: list[BenchmarkResult] = field(default_factory=list[BenchmarkResult])
    control: Control = field(default_factory=lambda: Control("NONE"))
    summary: Summary = field(default_factory=lambda: Summary(None, {}, {}))
    complete: bool = False
    schema_version: int = SCHEMA_VERSION

    def benchmark(self, fullname: str) -> BenchmarkResult | None:
        """The benchmark of that name, or None."""
        return next((each for each in self.benchmarks if each.fullname == fullname), None)

    @property
    def gates(self) -> bool:
        """Whether the verdicts of every timed benchmark count: the control is `SAME` everywhere."""
        return self.control.aa_verdict == "SAME"


#: Verdicts of the control, the worst first.
_CONTROL_ORDER = ("INVALID", "SLOWER", "FASTER", "INCONCLUSIVE", "SAME")


def settle(result: ResultFile) -> None:
    """Compute ``control`` and ``summary`` from the benchmarks."""
    result.control, result.summary = control_of(result.benchmarks), summary_of(result.benchmarks)


def control_of(benchmarks: list[BenchmarkResult]) -> Control:
    """The result of comparing the baseline with itself."""
    verdicts = [each.control.verdict for each in benchmarks if each.control is not None]
    worst = next((verdict for verdict in _CONTROL_ORDER if verdict in verdicts), "NONE")
    return Control(worst, _counted(verdicts))


def summary_of(benchmarks: list[BenchmarkResult]) -> Summary:
    """The mean speedups and the verdicts of the candidates."""
    found = [comparison for each in benchmarks for comparison in each.candidates]
    by_candidate: dict[str, list[float]] = {}
    for each in found:
        if each.speedup is not None and each.verdict not in ("INVALID", "MISMATCH"):
            by_candidate.setdefault(each.candidate, []).append(each.speedup)
    means = {candidate: _geometric_mean(ratios) for candidate, ratios in sorted(by_candidate.items())}
    every = [ratio for ratios in by_candidate.values() for ratio in ratios]
    return Summary(_geometric_mean(every) if every else None, _counted([each.verdict for each in found]), means)


def _counted(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in sorted(set(words))}


def _geometric_mean(ratios: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


# --- JSON


def to_json(result: ResultFile) -> dict[str, Any]:
    """The document as plain data; NaN becomes ``None``."""
    plain = _without_nan(dataclasses.asdict(result))
    return {"schema_version": plain.pop("schema_version"), **plain}


def from_json(data: Any) -> ResultFile:
    """The result of a JSON document of any readable version. Raises `ResultError` with the place of the error."""
    if not isinstance(data, dict) or "schema_version" not in data:
        raise ResultError("not a result file: it has no schema_version")
    version = cast("dict[str, Any]", data)["schema_version"]
    if isinstance(version, bool) or version not in _READABLE:
        raise ResultError(f"schema_version is {version!r}, but this version reads {' and '.join(map(str, _READABLE))}")
    found = cast("ResultFile", _decoded(ResultFile, data, "$"))
    found.schema_version = SCHEMA_VERSION
    _check_schema(data)
    return found


def _check_schema(data: Any) -> None:
    """Raise `ResultError` with the place of the first value that the schema refuses."""
    import jsonschema

    validator: Any = jsonschema.Draft202012Validator(schema())
    error: jsonschema.ValidationError | None = next(validator.iter_errors(data), None)
    if error is not None:
        raise ResultError(f"{error.json_path}: {error.message[:200]}")


def read(path: str | Path) -> ResultFile:
    """Read a result file. Raises `OSError`, `ResultError`."""
    raw = Path(path).read_bytes()
    try:
        data = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: invalid JSON: {error}") from error
    try:
        return from_json(data)
    except ResultError as error:
        raise ResultError(f"{path}: {error}") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def write(path: str | Path, result: ResultFile) -> None:
    """Replace the file at ``path`` in one step. Raises `OSError`; then the old file is unchanged."""
    write_text(path, dumps(result))


def write_text(path: str | Path, text: str) -> None:
    """Replace a text file in one step, after its bytes are on disk. A device or a pipe is written directly. Raises
    `OSError` with the path in ``filename``."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        try:
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            error.filename = str(path)
            raise
        return
    temporary = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:100]}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def dumps(result: ResultFile) -> str:
    """The text of the file: indented, with each list of numbers on one line."""
    text = json.dumps(to_json(result), indent=1, ensure_ascii=False, allow_nan=False)
    return _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"), text) + "\n"


_NUMBERS = re.compile(r"\[\s+(?:(?:-?[\d.]+(?:e[-+]?\d+)?|null)(?:,\s+)?)+\s+\]")


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return json.loads(Path(__file__).with_name("result_schema.json").read_text(encoding="utf-8"))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in cast("list[Any]", value)]
    return value


def _decoded(kind: Any, value: Any, place: str) -> Any:
    """``value`` as an instance of the annotation ``kind``."""
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _record(cast("type[Any]", kind), value, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _decoded(next(each for each in inner if each is not type(None)), value, place)
    if origin is list:
        items = _expect(value, list, place)
        return [_decoded(inner[0], each, f"{place}[{i}]") for i, each in enumerate(items)]
    if origin is tuple:
        items = _expect(value, list, place)
        if len(items) != len(inner):
            raise ResultError(f"{place}: {len(inner)} values are expected, not {len(items)}")
        return tuple(_decoded(k, each, f"{place}[{i}]") for i, (k, each) in enumerate(zip(inner, items, strict=True)))
    if origin is dict:
        table = _expect(value, dict, place)
        return {str(key): _decoded(inner[1], each, f"{place}.{key}") for key, each in table.items()}
    return _plain(kind, value, place)


def _plain(kind: Any, value: Any, place: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ResultError(f"{place}: the number is too large") from None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ResultError(f"{place}: {kind.__name__} is expected, not {type(value).__name__}")
    return value


def _record(kind: type[Any], value: Any, place: str) -> Any:
    table = _expect(value, dict, place)
    hints = get_type_hints(kind, vars(sys.modules[__name__]))
    fields = {each.name: each for each in dataclasses.fields(kind)}
    if unknown := sorted(set(table) - set(fields)):
        raise ResultError(f"{place}: unknown field '{unknown[0]}'")
    given: dict[str, Any] = {}
    for name, each in fields.items():
        if name in table:
            given[name] = _decoded(hints[name], table[name], f"{place}.{name}")
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            raise ResultError(f"{place}: field '{name}' is missing")
    return kind(**given)


def _expect(value: Any, kind: type[Any], place: str) -> Any:
    if not isinstance(value, kind):
        raise ResultError(f"{place}: {kind.__name__} is expected, not {type(value).__name__}")
    return value


def hashes(parts: Mapping[str, bytes]) -> str:
    """The SHA-256 of named parts, in the order of their names.

    >>> hashes({"a": b""})[:8]
    'beae57e4'
    """
    import hashlib

    digest = hashlib.sha256()
    for name, data in sorted(parts.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
