"""The noise-free figures of an arm: their names and units, and their comparison between the arms of one run.

Computes: for the baseline and a candidate, each figure before and after, its change, and its verdict `BETTER`, `WORSE`
or `EQUAL`; the verdict of the candidate over all figures that decide; and an estimate of time.

A figure that decides may get worse by its tolerance, or by the first threshold whose pattern matches its name. Two
variants of a kernel differ in small ways that do not matter, such as one register more. So figures have tolerances
here; between two runs of the same variant (`compare`) they have none.

The estimate is that of the gate's model (`cost.Figures.full`): cycles per warp on a full multiprocessor, times the
warps that were launched, summed over the kernels. It assumes how often loops run, and ignores the bandwidth of memory.
It never decides a verdict.

Requires: arms with the figures of the cubin, the counts of the emulator, or both. Guarantees: the result depends on the
arms only, so that an audit can compute it again. Refuses: `ValueError` for a malformed threshold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .results import ArmResult, FigureResult, TimeEstimate
from .stats import Verdict

__all__ = [
    "EMULATED",
    "FIGURES",
    "MODEL",
    "Figure",
    "Threshold",
    "allowed",
    "compare_figures",
    "estimate_time",
    "estimated_cycles",
    "figure_of",
    "judge_figures",
    "noise_free",
    "number_text",
    "parse_threshold",
    "percent_of",
    "percent_text",
    "shown",
    "thresholds_of",
]

#: Stands for the name of the kernel in the names of figures that the emulator counts over the whole program.
EMULATED = "emulated"

#: The name of the model of the estimate, as result files and messages have it.
MODEL = "the gate's model"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a kernel, or of a program if ``is_emulated``. ``unit`` belongs to one value of it.

    ``tolerance`` is the share by which a candidate may be worse than the baseline of the same run; with ``None``, the
    figure does not decide the verdict. ``is_gain``: a greater value is better. ``is_cost`` is false for counts that
    are neither better nor worse, or that other figures include.
    """

    name: str
    label: str
    unit: str
    is_emulated: bool = False
    tolerance: float | None = None
    is_gain: bool = False
    is_cost: bool = True


_ROWS = (
    Figure("registers", "registers", "registers per thread", tolerance=0.20),
    Figure("spill_bytes", "spills", "bytes per thread", tolerance=0.0),
    Figure("stack_bytes", "stack", "bytes per thread"),
    Figure("shared_bytes", "static shared memory", "bytes per block"),
    Figure("code_bytes", "code size", "bytes", tolerance=0.20),
    Figure("instructions", "machine instructions", "instructions"),
    Figure("weighted_instructions", "weighted machine instructions", "instructions"),
    Figure("occupancy", "occupancy", "share of the warps", tolerance=0.01, is_gain=True),
    Figure("warp_instructions", "executed warp instructions", "instructions", True, 0.01),
    Figure("branches_diverged", "divergent branches", "executions", True, 0.01),
    Figure("global_load_sectors", "global load sectors", "sectors of 32 bytes", True, 0.01),
    Figure("global_store_sectors", "global store sectors", "sectors of 32 bytes", True, 0.01),
    Figure("shared_bank_conflicts", "shared bank conflicts", "passes", True, 0.01),
    Figure("launches", "launches", "launches", True, 0.0),
    Figure("global_load_requests", "global load requests", "requests of a warp", True),
    Figure("global_store_requests", "global store requests", "requests of a warp", True),
    Figure("local_requests", "local memory requests", "requests of a warp", True),
    Figure("active_lane_ratio", "active lanes", "share of the lanes", True, is_gain=True),
    Figure("thread_instructions", "executed thread instructions", "instructions", True, is_cost=False),
    Figure("shared_requests", "shared memory requests", "requests of a warp", True, is_cost=False),
    Figure("branches_executed", "executed branches", "executions", True, is_cost=False),
    Figure("atomics", "atomic operations", "operations of a thread", True, is_cost=False),
    Figure("barriers", "barriers", "arrivals of a warp", True, is_cost=False),
)

#: Each figure by its name, which is the name of its field in an arm.
FIGURES: Mapping[str, Figure] = {each.name: each for each in _ROWS}


def figure_of(name: str) -> Figure | None:
    """The figure of a name such as ``registers``, ``kernel:registers`` or ``emulated:launches``.

    >>> figure_of("k:registers").unit
    'registers per thread'
    """
    return FIGURES.get(name.rpartition(":")[2])


def noise_free(arm: ArmResult) -> dict[str, float]:
    """The figures of an arm that are costs or gains: by ``kernel:figure``, and ``emulated:figure`` for the emulator's.

    A count of the emulator that has no row here is one of them.
    """
    found: dict[str, float] = {}
    static = [each.name for each in _ROWS if each.is_cost and not each.is_emulated]
    for kernel, figures in arm.static.items():
        found |= {f"{kernel}:{name}": figures[name] for name in static if name in figures}
    for name, value in arm.emulated.items():
        figure = FIGURES.get(name)
        if _is_number(value) and (figure is None or figure.is_cost):
            found[f"{EMULATED}:{name}"] = value
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- thresholds


@dataclass(frozen=True, slots=True)
class Threshold:
    """How much a figure may get worse (0.02 is 2 %) if the pattern matches its name ``benchmark:arm:kernel:figure``."""

    pattern: re.Pattern[str]
    share: float


def parse_threshold(text: str) -> Threshold:
    """Read ``REGEX=2%``. Raises `ValueError`.

    >>> parse_threshold("registers=5%").share
    0.05
    """
    found = re.fullmatch(r"(.*)=(\d+(?:\.\d+)?)%", text)
    if found is None:
        raise ValueError(f"'{text}' is not a threshold such as REGEX=2%")
    try:
        return Threshold(re.compile(found[1]), float(found[2]) / 100)
    except re.error as error:
        raise ValueError(f"'{found[1]}' is not a regular expression: {error}") from None


def thresholds_of(options: Mapping[str, Any]) -> list[Threshold]:
    """The thresholds of a result file. Raises `ValueError`."""
    return [parse_threshold(str(each)) for each in options.get("thresholds", ())]


def allowed(name: str, thresholds: Sequence[Threshold], default: float) -> float:
    """The share of the first threshold whose pattern matches the name of a figure."""
    return next((each.share for each in thresholds if each.pattern.search(name)), default)


# --- comparing two arms of a run


def compare_figures(
    benchmark: str, base: ArmResult, candidate: ArmResult, thresholds: Sequence[Threshold] = ()
) -> list[FigureResult]:
    """The figures that decide and that both arms have. A kernel that one arm lacks has none."""
    found: list[FigureResult] = []
    for figure in _ROWS:
        if figure.tolerance is None:
            continue
        for kernel, before, after in _pairs(figure, base, candidate):
            name = f"{benchmark}:{candidate.id}:{kernel or EMULATED}:{figure.name}"
            limit = allowed(name, thresholds, figure.tolerance)
            verdict = _verdict(figure, before, after, limit)
            percent = percent_of(before, after)
            found.append(FigureResult(figure.name, kernel, figure.unit, before, after, percent, verdict.value))
    return found


def _pairs(figure: Figure, base: ArmResult, candidate: ArmResult) -> Iterator[tuple[str, float, float]]:
    """Kernel (empty for the whole program), value of the baseline, value of the candidate."""
    if figure.is_emulated:
        if figure.name in base.emulated and figure.name in candidate.emulated:
            yield "", base.emulated[figure.name], candidate.emulated[figure.name]
        return
    for kernel, figures in base.static.items():
        other = candidate.static.get(kernel, {})
        if figure.name in figures and figure.name in other:
            yield kernel, figures[figure.name], other[figure.name]


def _verdict(figure: Figure, before: float, after: float, limit: float) -> Verdict:
    cost = before - after if figure.is_gain else after - before
    if abs(cost) <= limit * abs(before):
        return Verdict.EQUAL
    return Verdict.WORSE if cost > 0 else Verdict.BETTER


def percent_of(before: float, after: float) -> float | None:
    """The change in percent; None if the earlier value is 0 and the later one is not.

    >>> percent_of(100, 125), percent_of(0, 3)
    (25.0, None)
    """
    if before == after:
        return 0.0
    return 100 * (after / before - 1) if before else None


def percent_text(before: float, after: float) -> str:
    """The change in words.

    >>> percent_text(200, 150), percent_text(0, 3)
    ('-25.0 %', 'from 0')
    """
    percent = percent_of(before, after)
    if percent is None:
        return "from 0"
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 or percent == 0 else f"{percent:+.2g} %"


def number_text(value: float) -> str:
    """A value in words: counts exactly, others with four digits.

    >>> number_text(1234567), number_text(0.123456)
    ('1234567', '0.1235')
    """
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


def judge_figures(figures: Sequence[FigureResult]) -> tuple[Verdict, str]:
    """The verdict over all figures, and the reason: `WORSE` if one is, else `BETTER` if one is, else `EQUAL`.

    Without any figure: `UNTIMED`.
    """
    if not figures:
        return Verdict.UNTIMED, "neither timed nor counted"
    for verdict in (Verdict.WORSE, Verdict.BETTER):
        if any(each.verdict == verdict for each in figures):
            break
    else:
        return Verdict.EQUAL, "no figure differs by more than its tolerance"
    groups = ((word, [each for each in figures if each.verdict == word]) for word in (Verdict.WORSE, Verdict.BETTER))
    return verdict, "; ".join(f"{word.lower()}: {_listed(several)}" for word, several in groups if several)


_LISTED = 3


def _listed(figures: Sequence[FigureResult]) -> str:
    texts = [shown(each) for each in figures[:_LISTED]]
    return ", ".join(texts) + (f" and {len(figures) - _LISTED} more" if len(figures) > _LISTED else "")


def shown(figure: FigureResult) -> str:
    """A figure in words: ``executed warp instructions 100 → 125 (+25.0 %)``."""
    label = FIGURES[figure.name].label if figure.name in FIGURES else figure.name
    kernel = f" of {figure.kernel}" if figure.kernel else ""
    change = percent_text(figure.before, figure.after)
    return f"{label}{kernel} {number_text(figure.before)} → {number_text(figure.after)} ({change})"


# --- the estimate of time


def estimated_cycles(arm: ArmResult) -> float | None:
    """Cycles of one multiprocessor that executes all launched warps, by the gate's model; None if it is not known."""
    warps: Mapping[str, int] = arm.emulated.get("warps_by_kernel", {})
    cycles = [arm.static.get(kernel, {}).get("cycles_per_warp") for kernel in warps]
    if not warps or any(each is None for each in cycles):
        return None
    total = sum(count * float(each) for count, each in zip(warps.values(), cycles, strict=True) if each is not None)
    return total or None


def estimate_time(base: ArmResult, candidate: ArmResult) -> TimeEstimate | None:
    """The estimate for two arms; None where one has none."""
    before, after = estimated_cycles(base), estimated_cycles(candidate)
    if before is None or after is None:
        return None
    return TimeEstimate(before, after, before / after, MODEL)
