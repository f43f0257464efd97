"""Writes a report of a result file: speedups with confidence intervals, and figures before and after.

Writes `speedups.png`/`.svg`, `figures.png`/`.svg` and `report.md`. Requires: matplotlib (the extra `plots`) for plots;
only the result file is read. Guarantees: an arm without valid times is never drawn as a speedup.
Refuses: `PlotsMissing` without matplotlib; `ValueError` for a format that is not in `FORMS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from .exporters import export
from .figures import FIGURES, noise_free, number_text, percent_text
from .results import BenchmarkResult, ComparisonResult, ResultFile, write_text

__all__ = ["FORMS", "PlotsMissing", "report"]

FORMS = ("png", "svg", "markdown")

#: The noise-free figures that are drawn before and after, summed over kernels.
_FIGURES = (
    "registers",
    "spill_bytes",
    "instructions",
    "weighted_instructions",
    "warp_instructions",
    "branches_diverged",
    "global_load_sectors",
    "global_store_sectors",
    "shared_bank_conflicts",
    "launches",
)
_TALLEST = 400


class PlotsMissing(Exception):
    """matplotlib is not installed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"plots need matplotlib: {reason}\ninstall it with: python -m pip install 'ptxmotion[plots]'")


def report(result: ResultFile, folder: Path, forms: Sequence[str]) -> list[Path]:
    """Write the report in each of the formats; the written files. Raises `OSError`; and `PlotsMissing` and `ValueError`
    before anything is written."""
    if unknown := sorted(set(forms) - set(FORMS)):
        raise ValueError(f"unknown format of a report: {', '.join(unknown)}; there are {', '.join(FORMS)}")
    written: list[Path] = []
    images = [form for form in forms if form != "markdown"]
    plots = _plots(result) if images else []
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in plots:
        for form in images:
            path = folder / f"{name}.{form}"
            figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Date": None} if form == "svg" else None)
            written.append(path)
        figure.clear()
    if "markdown" in forms:
        path = folder / "report.md"
        write_text(path, _markdown(result, [each.name for each in written]))
        written.append(path)
    return written


def _plots(result: ResultFile) -> list[tuple[str, Any]]:
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError as error:
        raise PlotsMissing(str(error)) from error
    matplotlib.rcParams["svg.hashsalt"] = "ptxmotion"
    plots: list[tuple[str, Any]] = []
    # In files of earlier versions, identical code has the speedup 1 also without times.
    bars = _speedups(result) if result.control.aa_verdict != "NONE" else []
    if bars:
        plots.append(("speedups", _draw_speedups(figures, result, bars)))
    changed = _before_and_after(result)
    if changed:
        plots.append(("figures", _draw_figures(figures, changed)))
    return plots


def _speedups(result: ResultFile) -> list[tuple[BenchmarkResult, ComparisonResult]]:
    return [
        (benchmark, each)
        for benchmark in result.benchmarks
        for each in benchmark.candidates
        if each.speedup is not None and each.ci is not None and each.verdict not in ("INVALID", "MISMATCH")
    ][:_TALLEST]


_COLORS = {
    "FASTER": "#2a7f3f",
    "SLOWER": "#b3261e",
    "SAME": "#5f6368",
    "IDENTICAL": "#b0b4b9",
    "INCONCLUSIVE": "#c58b00",
}


def _draw_speedups(figures: Any, result: ResultFile, bars: list[tuple[BenchmarkResult, ComparisonResult]]) -> Any:
    figure = figures.Figure(figsize=(8, 1.2 + 0.28 * len(bars)))
    axes = figure.add_subplot()
    for place, (_, each) in enumerate(bars):
        assert each.speedup is not None and each.ci is not None
        percent = [100 * (value - 1) for value in (each.speedup, *each.ci)]
        errors = [[max(0.0, percent[0] - percent[1])], [max(0.0, percent[2] - percent[0])]]
        axes.barh(place, percent[0], color=_COLORS.get(each.verdict, "#5f6368"), xerr=errors, capsize=2)
    several = len({each.candidate for _, each in bars}) > 1
    names = [f"{b.fullname}  {each.candidate}" if several else b.fullname for b, each in bars]
    axes.set_yticks(range(len(bars)), names, fontsize=8)
    axes.set_ylim(len(bars) - 0.3, -0.7)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel(f"faster than {bars[0][1].baseline}, in %, with 99 % intervals")
    where = str(result.machine_info.get("gpu", result.backend))
    axes.set_title(where)
    handles = [axes.barh(0, 0, color=color, label=verdict) for verdict, color in _COLORS.items() if _has(bars, verdict)]
    axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def _has(bars: list[tuple[BenchmarkResult, ComparisonResult]], verdict: str) -> bool:
    return any(each.verdict == verdict for _, each in bars)


def _before_and_after(result: ResultFile) -> list[tuple[str, str, float, float]]:
    """Figure, ``benchmark candidate``, before, after, for each that differs."""
    differences: list[tuple[str, str, float, float]] = []
    for benchmark in result.benchmarks:
        base = next((each for each in benchmark.arms if each.role == "baseline"), None)
        if base is None:
            continue
        before = _summed(noise_free(base))
        for arm in benchmark.arms:
            after = _summed(noise_free(arm))
            for name in _FIGURES:
                if before.get(name) != after.get(name) and name in before and name in after:
                    differences.append((name, f"{benchmark.fullname}  {arm.id}", before[name], after[name]))
    return differences


def _summed(figures: dict[str, float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for name, value in figures.items():
        what = name.rpartition(":")[2]
        total[what] = total.get(what, 0.0) + value
    return total


def _draw_figures(figures: Any, changed: list[tuple[str, str, float, float]]) -> Any:
    kinds = [name for name in _FIGURES if any(name == each[0] for each in changed)]
    rows = [[each for each in changed if each[0] == kind][:_TALLEST] for kind in kinds]
    figure = figures.Figure(figsize=(8, sum(1.2 + 0.3 * len(each) for each in rows)), layout="constrained")
    many: Any = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=[1 + len(each) for each in rows])
    for kind, lines, (axes,) in zip(kinds, rows, many, strict=True):
        for place, (_, _, before, after) in enumerate(lines):
            # Changes are in percent, because programs differ in size by orders of magnitude. From 0 the change counts
            # as 100 %.
            percent = 100 * (after / before - 1) if before else 100.0
            color = _COLORS["FASTER"] if after < before else _COLORS["SLOWER"]
            bar = axes.barh(place, percent, color=color)
            axes.bar_label(bar, [f" {before:g} → {after:g} "], fontsize=7)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.margins(x=0.25)
        axes.set_yticks(range(len(lines)), [each[1] for each in lines], fontsize=8)
        axes.set_ylim(len(lines) - 0.3, -0.7)
        figure_row = FIGURES[kind]
        axes.set_title(f"{figure_row.label}: change in % (labels: {figure_row.unit})", fontsize=9)
    return figure


def _markdown(result: ResultFile, images: Sequence[str]) -> str:
    lines = ["# Benchmark report", "", f"Run of {result.datetime}, ptxmotion {result.version}.", ""]
    if not result.complete:
        lines += ["**This run was interrupted: benchmarks are missing.**", ""]
    shown: dict[str, str] = {}
    for image in images:
        shown.setdefault(image.rpartition(".")[0], image)
    lines += [f"![{name}]({image})\n" for name, image in shown.items()]
    lines += [export(result, "markdown")]
    changed = _before_and_after(result)
    if changed:
        lines += [
            "## Figures that differ",
            "",
            "| figure | unit | benchmark | before | after | change |",
            "| --- | --- | --- | ---: | ---: | ---: |",
        ]
        for name, who, old, new in changed:
            values = f"{number_text(old)} | {number_text(new)} | {percent_text(old, new)}"
            lines.append(f"| {FIGURES[name].label} | {FIGURES[name].unit} | {who} | {values} |")
        lines.append("")
    facts = {**result.machine_info}
    if isinstance(workers := facts.get("workers"), list):
        facts["workers"] = len(cast("list[Any]", workers))
    machine = ", ".join(f"{name} {value}" for name, value in facts.items() if value not in ("", []))
    return "\n".join([*lines, f"Machine: {machine}.", ""])
