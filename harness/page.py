"""The page of a report: one HTML file that needs no network and no other file.

Computes: for a result file, what changed since a baseline, the verdicts, the slower variants, a table that can be
sorted and filtered (all in `page_tables`), for each program its plot, figures and code, the trends of a history, and
the machine and protocol; for a single PTX file, what `opt` did to its kernels.

Requires: matplotlib for plots. Guarantees: every text out of a file is escaped; the page may load nothing (its content
security policy forbids it); without JavaScript everything can be read. Refuses: `PlotsMissing` without matplotlib.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..toolchain.demangle import demangled
from .code_view import CodeView, Note, Row
from .figures import FIGURES, number_text, percent_of, percent_text
from .history import Series, SeriesStep
from .page_plots import bars, intervals, trend
from .page_tables import Since, anchor, attention, changes_since, summary, table, verdict
from .results import BenchmarkResult, FigureResult, ResultFile
from .throughput import throughput_text

__all__ = ["code_page", "result_page"]

#: The code of an arm, by program and arm.
Codes = Mapping[tuple[str, str], Sequence[CodeView]]

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_COLOUR = {"BETTER": "good", "FASTER": "good", "WORSE": "bad", "SLOWER": "bad"}
#: The largest number of trends on a page.
_TRENDS = 120


def result_page(
    result: ResultFile,
    codes: Codes | None = None,
    history: Sequence[Series] = (),
    steps: Sequence[SeriesStep] = (),
    since: Since | None = None,
) -> str:
    """The page of a result file. ``history`` are series to draw, ``steps`` their steps; ``since`` are the changes since
    an earlier result. Raises `PlotsMissing`."""
    where = str(result.machine_info.get("gpu", result.backend))
    body = [
        _header(f"Benchmarks on {where}", f"{result.datetime}, ptxmotion {result.version}{_commit(result)}"),
        '<main id="main">',
        *changes_since(since, result),
        *summary(result),
        *attention(result),
        *table(result),
        *_programs(result, codes or {}),
        *_history(history, steps),
        *_machine(result),
        "</main>",
    ]
    return _document(f"Benchmarks on {where}", body)


def code_page(title: str, subtitle: str, views: Sequence[CodeView]) -> str:
    """The page of one PTX file: what was done to each kernel."""
    body = [_header(title, subtitle), '<main id="main">']
    if not views:
        body.append("<p>The file has no kernel.</p>")
    for view in views:
        body += _details(view.title, _code(view), is_open=True)
    return _document(title, [*body, "</main>"])


# --- the frame


def _document(title: str, body: Sequence[str]) -> str:
    here = Path(__file__)
    style, script = (here.with_name(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style></head>",
            "<body>",
            *body,
            "<footer>Made by ptxmotion. The page needs no network.</footer>",
            f"<script>\n{script}</script>",
            "</body></html>",
            "",
        ]
    )


def _header(title: str, subtitle: str) -> str:
    return (
        '<a class="skip" href="#main">Skip to the content</a>'
        f'<header><h1>{escape(title)}</h1><span class="soft">{escape(subtitle)}</span>'
        '<button id="theme" type="button" hidden>Light or dark</button></header>'
    )


def _commit(result: ResultFile) -> str:
    name = str(result.commit_info.get("id") or "")[:12]
    return f", commit {name}{'*' if result.commit_info.get('dirty') else ''}" if name else ""


def _details(title: str, body: Sequence[str], *, id: str = "", label: str = "", is_open: bool = False) -> list[str]:
    """A part that can be closed. ``label`` is HTML behind the title."""
    attributes = (f' id="{escape(id)}"' if id else "") + (" open" if is_open else "")
    head = f"<details{attributes}><summary>{escape(title)}{label}</summary>"
    return [f'{head}<div class="body">', *body, "</div></details>"]


# --- the programs


def _programs(result: ResultFile, codes: Codes) -> Iterator[str]:
    yield "<h2>Programs</h2>"
    for benchmark in result.benchmarks:
        words = _verdicts(benchmark) or verdict("error")
        body = list(_program(result, benchmark, codes))
        yield from _details(f"{benchmark.fullname} ", body, id=anchor(benchmark.fullname), label=words)


def _verdicts(benchmark: BenchmarkResult) -> str:
    """Each verdict of a program with its variants."""
    variants: dict[str, list[str]] = {}
    for each in benchmark.candidates:
        variants.setdefault(each.verdict, []).append(each.candidate)
    parts = [f"{verdict(word)} {escape(', '.join(names))}" for word, names in variants.items()]
    return "; ".join(parts)


def _program(result: ResultFile, benchmark: BenchmarkResult, codes: Codes) -> Iterator[str]:
    if benchmark.error:
        yield f"<p>It failed:</p><pre>{escape(benchmark.error)}</pre>"
        return
    params = ", ".join(f"{name} {value}" for name, value in benchmark.params.items())
    yield f'<p class="soft">{escape(params)}; {benchmark.seconds:.1f} s</p>' if params else ""
    yield from _plot(benchmark)
    for arm in benchmark.arms:
        if arm.role == "baseline" and (rate := throughput_text(result, benchmark, arm)):
            yield f"<p>{escape(arm.id)}, the baseline: {escape(rate)}</p>"
    for each in benchmark.candidates:
        yield f"<h3>{escape(each.candidate)}: {verdict(each.verdict)}</h3><p>{escape(each.reason)}</p>"
        if rate := throughput_text(result, benchmark, benchmark.arm(each.candidate)):
            yield f"<p>{escape(rate)}</p>"
        if each.figures:
            yield from _figures([figure for figure in each.figures if figure.before != figure.after])
            equal = [_label(figure) for figure in each.figures if figure.before == figure.after]
            yield f'<p class="soft">Equal: {escape(", ".join(equal))}.</p>' if equal else ""
        for view in codes.get((benchmark.fullname, each.candidate), ()):
            if view.missing:
                yield f'<p class="soft">{escape(view.missing)}</p>'
            else:
                yield from _details(f"Code: {view.title}", _code(view))


def _plot(benchmark: BenchmarkResult) -> Iterator[str]:
    timed = [each for each in benchmark.comparisons if each.speedup is not None and each.ci is not None and each.rounds]
    if timed:
        rows = [
            (
                each.candidate,
                100 * ((each.speedup or 1) - 1),
                100 * (each.ci[0] - 1),
                100 * (each.ci[1] - 1),
                _COLOUR.get(each.verdict, "neutral"),
            )
            for each in timed
            if each.ci is not None
        ]
        label = f"faster than {timed[0].baseline}, in %, with 99 % intervals"
        yield intervals(rows, label, f"Speedups of {benchmark.fullname}")
        return
    changed = [
        (f"{each.candidate}: {_label(figure)}", percent, _COLOUR.get(figure.verdict, "neutral"))
        for each in benchmark.candidates
        for figure in each.figures
        if (percent := percent_of(figure.before, figure.after))
    ]
    if changed:
        yield bars(changed, "change in % of the baseline", f"Changed figures of {benchmark.fullname}")


def _label(figure: FigureResult) -> str:
    label = FIGURES[figure.name].label if figure.name in FIGURES else figure.name
    return f"{label} of {demangled(figure.kernel)}" if figure.kernel else label


def _figures(figures: Sequence[FigureResult]) -> Iterator[str]:
    if not figures:
        return
    names = ["figure", "baseline", "variant", "unit", "change", "verdict"]
    yield '<div class="scroll" tabindex="0"><table class="rows"><thead><tr>'
    classes = ["", "n", "n", "", "n", ""]
    heads = zip(names, classes, strict=True)
    yield "".join(f'<th scope="col" class="{c}">{name}</th>' for name, c in heads) + "</tr></thead><tbody>"
    for each in figures:
        numbers = [number_text(each.before), number_text(each.after)]
        change = percent_text(each.before, each.after)
        cells = [escape(_label(each)), *numbers, escape(each.unit), change, verdict(each.verdict)]
        made = zip(names, cells, classes, strict=True)
        yield "<tr>" + "".join(f'<td class="{c}" data-name="{n}">{cell}</td>' for n, cell, c in made) + "</tr>"
    yield "</tbody></table></div>"


# --- code


def _code(view: CodeView) -> list[str]:
    if view.missing:
        return [f"<p>{escape(view.missing)}</p>"]
    found: list[str] = []
    if view.figures:
        found.append('<div class="scroll" tabindex="0"><table class="rows"><thead><tr>')
        found += [
            '<th scope="col">figure</th><th scope="col">before</th><th scope="col">after</th></tr></thead><tbody>'
        ]
        for name, before, after in view.figures:
            cells = zip(("figure", "before", "after"), (name, before, after), strict=True)
            found.append("<tr>" + "".join(f'<td data-name="{n}">{escape(c)}</td>' for n, c in cells) + "</tr>")
        found.append("</tbody></table></div>")
    if view.notes:
        found += ["<ul>", *(f'<li class="{n.kind}">{escape(_note(n))}</li>' for n in view.notes), "</ul>"]
    for title, rows in (
        ("PTX, with remarks at its lines", view.ptx),
        ("Machine code (registers and labels are not compared)", view.machine),
    ):
        if rows:
            found += [f"<h3>{title}</h3>", *_side_by_side(rows)]
    return found


def _note(note: Note) -> str:
    words = {"Passed": "done", "Missed": "refused"}
    return f"{words.get(note.kind, 'note')}: {note.text}"


def _side_by_side(rows: Sequence[Row]) -> Iterator[str]:
    yield '<div class="scroll" tabindex="0"><table class="code"><colgroup><col style="width:3.4rem"><col>'
    yield '<col style="width:3.4rem"><col></colgroup><tbody>'
    for row in rows:
        if row.skipped:
            lines = "line" if row.skipped == 1 else "lines"
            words = f"{row.skipped} equal {lines}" if row.skipped > 0 else "the rest is not shown"
            yield f'<tr class="gap"><td colspan="4">{words}</td></tr>'
            continue
        left, right = _cell(row.left, "" if row.is_equal else " del"), _cell(row.right, "" if row.is_equal else " add")
        yield f"<tr>{left}{right}</tr>"
        for note in row.notes:
            yield f'<tr class="note"><td colspan="4" class="{escape(note.kind)}">{escape(_note(note))}</td></tr>'
    yield "</tbody></table></div>"


def _cell(line: tuple[int, str] | None, mark: str) -> str:
    if line is None:
        return '<td class="l"></td><td></td>'
    return f'<td class="l">{line[0]}</td><td class="{mark.strip()}">{escape(line[1].expandtabs(4))}</td>'


# --- history and machine


def _history(history: Sequence[Series], steps: Sequence[SeriesStep]) -> Iterator[str]:
    changing = _shared([each for each in history if len(set(each.values)) > 1])
    if not history:
        return
    yield "<h2>History</h2>"
    if not changing:
        yield "<p>No figure has changed.</p>"
        return
    marks: dict[tuple[str, str, str, str], list[tuple[int, str, SeriesStep]]] = {}
    for step in steps:
        for arm in step.arms:
            key = (step.series.environment, step.series.program, arm, step.series.figure)
            marks.setdefault(key, []).append((step.step.index, "bad" if step.regressed else "good", step))
    yield '<div class="trends">'
    for each, arms in changing[:_TRENDS]:
        found = marks.get((each.environment, each.program, each.arm, each.figure), [])
        name = f"{each.program} {arms} {each.figure}"
        yield f"<figure>{trend(each.values, [(i, colour) for i, colour, _ in found], name)}"
        what = f"{each.unit}, {len(each.values)} results on {each.environment}".removeprefix(", ")
        yield f'<figcaption>{escape(name)}<br><span class="soft">{escape(what)}</span>'
        for _, colour, step in found:
            change = percent_text(step.step.before, step.step.after)
            word = "v-WORSE" if colour == "bad" else "v-BETTER"
            yield f'<br><span class="v {word}">{escape(step.kind)}</span> {escape(change)} at {escape(step.first.id)}'
        yield "</figcaption></figure>"
    yield "</div>"
    if len(changing) > _TRENDS:
        yield f"<p>{len(changing) - _TRENDS} more series changed; <code>bench history show</code> prints them.</p>"


def _shared(history: Sequence[Series]) -> list[tuple[Series, str]]:
    """The series, and their arms. Arms whose values of a figure are equal in the same runs are one series."""
    found: dict[tuple[Any, ...], tuple[Series, list[str]]] = {}
    for each in history:
        runs = tuple((entry.datetime, entry.id) for entry in each.entries)
        key = (each.environment, each.program, each.figure, tuple(each.values), runs)
        found.setdefault(key, (each, []))[1].append(each.arm)
    return [(series, ", ".join(arms)) for series, arms in found.values()]


#: The options that say how times are taken.
_TIMING = ("rounds", "samples", "doublings", "warm_up_seconds", "block_seconds", "shuffle_seed", "rule")


def _machine(result: ResultFile) -> Iterator[str]:
    yield "<h2>Machine and protocol</h2><dl>"
    facts: dict[str, Any] = {**result.machine_info, **{f"commit {k}": v for k, v in result.commit_info.items()}}
    unused = _TIMING if result.control.aa_verdict == "NONE" else ()
    options = {name: value for name, value in result.options.items() if name not in unused}
    for name, value in (facts | options).items():
        if value not in ("", [], None):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"<dt>{escape(str(name))}</dt><dd>{escape(text)}</dd>"
    yield "</dl>"
