"""The first parts of a report's page: what changed since a baseline, the verdicts, the slower variants, the table.

A reader wants to know first what got slower and why. So these parts come first, and rows are in the order of their
importance: wrong results, what is slower or worse, what has no verdict, what is faster or better, the rest.

Guarantees: every text out of a file is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from ..toolchain.demangle import demangled
from .compare import Change, counted_changes, shared_changes
from .exporters import estimate_text
from .figures import MODEL, compare_figures, number_text, percent_text, shown
from .results import BenchmarkResult, ComparisonResult, FigureResult, ResultFile

__all__ = ["Since", "anchor", "attention", "changes_since", "summary", "table", "verdict"]

#: Groups of verdicts, the most important first.
_ORDER = (
    ("error", "MISMATCH"),
    ("SLOWER", "WORSE"),
    ("INVALID", "INCONCLUSIVE"),
    ("FASTER", "BETTER"),
    ("SAME", "EQUAL"),
    ("IDENTICAL",),
)
#: The groups that a reader must look at.
_PROBLEMS = {word for group in _ORDER[:3] for word in group}

#: The kinds of changes, the most important first.
_KINDS = ("mismatch", "slower", "worse", "missing", "invalid", "inconclusive", "faster", "better")

#: The largest number of rows of a part that is not the table, and of figures in a row.
_ROWS, _FIGURES = 40, 4


@dataclass(frozen=True, slots=True)
class Since:
    """``changes`` are the differences between the result file ``before``, called ``name``, and that of the page."""

    name: str
    before: ResultFile
    changes: Sequence[Change]


def verdict(word: str, label: str = "") -> str:
    """A verdict in its colour; ``label`` is shown in its place."""
    return f'<span class="v v-{escape(word)}">{escape(label or word)}</span>'


def anchor(fullname: str) -> str:
    """The id of the part of a program."""
    return escape("p-" + "".join(c if c.isalnum() or c in "-_" else f"-{ord(c):x}-" for c in fullname))


# --- since a baseline


def changes_since(since: Since | None, result: ResultFile) -> Iterator[str]:
    """The changes since an earlier result, what got worse first."""
    if since is None:
        return
    yield "<h2>Since the baseline</h2>"
    commit = str(since.before.commit_info.get("id") or "")[:12]
    made = f"{since.name} of {since.before.datetime}" + (f", commit {commit}" if commit else "")
    if not since.changes:
        yield f"<p>No figure and no verdict differs from {escape(made)}.</p>"
        return
    counts = counted_changes(since.changes, since.before)
    yield '<ul class="chips">'
    for kind in _KINDS:
        if kind in counts:
            yield f"<li>{verdict(_colour(kind), kind)} {counts[kind]}</li>"
    yield f'</ul><p class="soft">Compared with {escape(made)}.</p>'
    rows = sorted(shared_changes(since.changes, since.before), key=lambda each: _KINDS.index(each[1].kind))
    names = ["program", "variant", "change", "figure", "before", "after", "percent"]
    yield from _head(names)
    known = {each.fullname for each in result.benchmarks}
    for subject, change in rows[:_ROWS]:
        program, variant, figure = _parts(subject)
        link = f'<a href="#{anchor(program)}">{escape(program)}</a>' if program in known else escape(program)
        before = "" if change.before is None else number_text(change.before)
        after = "" if change.after is None else f"{number_text(change.after)} {change.unit}".strip()
        both = change.before is not None and change.after is not None
        percent = percent_text(change.before or 0.0, change.after or 0.0) if both else ""
        note = f" {change.note}" if change.note else ""
        kind = verdict(_colour(change.kind), change.kind)
        yield _row(names, [link, escape(variant), kind, escape(figure + note), before, escape(after), percent])
    yield "</tbody></table></div>"
    if len(rows) > _ROWS:
        yield f"<p>{len(rows) - _ROWS} more changes; <code>bench track</code> prints all.</p>"


def _parts(subject: str) -> tuple[str, str, str]:
    """Program, variant, and figure with its kernel, of the subject of a change."""
    program, _, rest = subject.partition(":")
    variant, _, figure = rest.partition(":")
    kernel, _, name = figure.partition(":")
    words = name.replace("_", " ")
    if not name:
        return program, variant, figure
    return program, variant, words if kernel == "emulated" else f"{words} of {demangled(kernel)}"


def _colour(kind: str) -> str:
    """The verdict whose colour a kind of change has."""
    if kind in ("better", "faster"):
        return "BETTER"
    return "WORSE" if kind in ("worse", "slower", "mismatch") else "INVALID"


# --- the summary


def summary(result: ResultFile) -> Iterator[str]:
    """The number of each verdict, which is a link to its rows, and how it was decided."""
    yield '<h2>Summary</h2><ul class="chips">'
    for word, count in sorted(result.summary.counts.items(), key=lambda each: _rank(each[0])):
        yield f'<li><a href="#results" data-verdict="{escape(word)}">{verdict(word)} {count}</a></li>'
    if failed := sum(bool(each.error) for each in result.benchmarks):
        yield f'<li><a href="#results" data-verdict="error">{verdict("error")} {failed}</a></li>'
    yield "</ul>"
    if not result.complete:
        yield "<p><strong>This run was interrupted: benchmarks are missing.</strong></p>"
    if result.control.aa_verdict == "NONE":
        yield (
            "<p>Nothing was timed: noise-free figures decide the verdicts. An estimated time is not measured; it is "
            f"the change of the cycles by {MODEL}.</p>"
        )
    else:
        means = ", ".join(f"{name} {mean:.3f}" for name, mean in result.summary.geomean_by_candidate.items())
        yield f"<p>Compared with itself, the baseline is {verdict(result.control.aa_verdict)}."
        yield f" Geometric means of the speedups: {escape(means)}.</p>" if means else "</p>"


def _rank(word: str) -> int:
    """The place of a verdict in `_ORDER`."""
    return next((place for place, group in enumerate(_ORDER) if word in group), len(_ORDER))


# --- rows


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the table: a variant of a program, or a program that failed. ``size`` orders rows of equal verdicts."""

    program: str
    variant: str
    verdict: str
    value: str
    key: str
    why: str
    size: float = 0.0


def _lines(result: ResultFile) -> list[_Line]:
    """All rows in the order of their importance."""
    found: list[_Line] = []
    timed = result.control.aa_verdict != "NONE"
    for benchmark in result.benchmarks:
        if benchmark.error:
            found.append(_Line(benchmark.fullname, "", "error", "", "", benchmark.error.splitlines()[0]))
        for each in benchmark.candidates:
            value, key = _value(each, timed)
            size = -abs((each.speedup or 1.0) - 1.0)
            why = _why(benchmark, each)
            found.append(_Line(benchmark.fullname, each.candidate, each.verdict, value, key, why, size))
    return sorted(found, key=lambda each: (_rank(each.verdict), each.size))


def _value(each: ComparisonResult, timed: bool) -> tuple[str, str]:
    """The value of the fourth column, and the number that it is sorted by."""
    if not timed:
        found = each.estimate
        key = "" if found is None else f"{found.candidate_cycles / found.baseline_cycles:.9g}"
        return estimate_text(each), key
    if each.speedup is None:
        return "", ""
    # Identical code is not timed.
    ci = None if each.verdict == "IDENTICAL" else each.ci
    interval = "" if ci is None else f" ({ci[0]:.3f} to {ci[1]:.3f})"
    return f"{each.speedup:.3f}{interval}", f"{each.speedup:.9g}"


def _why(benchmark: BenchmarkResult, each: ComparisonResult) -> str:
    """The figures that differ most from the baseline, those that are worse first; or the reason of the verdict."""
    if each.verdict in ("MISMATCH", "INVALID", "INCONCLUSIVE", "IDENTICAL"):
        return each.reason
    # The figures of a timed variant do not decide. They are not in the file, but the arms have them.
    figures = each.figures
    if not figures:
        base, arm = benchmark.arm(each.baseline), benchmark.arm(each.candidate)
        figures = compare_figures(benchmark.fullname, base, arm)
    order = {"WORSE": 0, "BETTER": 1, "EQUAL": 2}

    def rank(figure: FigureResult) -> tuple[int, float]:
        return order[figure.verdict], -abs(figure.percent if figure.percent is not None else float("inf"))

    differing = sorted((figure for figure in figures if figure.before != figure.after), key=rank)
    words = [shown(replace(figure, kernel=demangled(figure.kernel))) for figure in differing[:_FIGURES]]
    if len(differing) > _FIGURES:
        words.append(f"{len(differing) - _FIGURES} more")
    return ", ".join(words) or each.reason


# --- tables


def attention(result: ResultFile) -> Iterator[str]:
    """What is slower or worse than the baseline of the run, is wrong, or has no verdict; and which figures differ."""
    lines = [line for line in _lines(result) if line.verdict in _PROBLEMS]
    timed = result.control.aa_verdict != "NONE"
    word = "slower" if timed else "worse"
    yield f"<h2>{word.capitalize()} variants</h2>"
    baselines = ", ".join(dict.fromkeys(each.baseline for b in result.benchmarks for each in b.candidates))
    if not lines:
        yield f"<p>No variant is {word} than {escape(baselines) or 'the baseline'}.</p>"
        return
    yield f'<p class="soft">These are {word} than {escape(baselines) or "the baseline"}, are wrong, '
    yield "or have no verdict.</p>"
    names = _names(timed)
    yield from _head(names)
    for line in lines[:_ROWS]:
        yield _row(names, _cells(line), line)
    yield "</tbody></table></div>"
    if len(lines) > _ROWS:
        yield f"<p>{len(lines) - _ROWS} more are in the table below.</p>"


def table(result: ResultFile) -> Iterator[str]:
    """All variants. The script sorts and filters them."""
    names = _names(result.control.aa_verdict != "NONE")
    yield '<h2>Results</h2><div class="controls" hidden>'
    yield '<label>Filter<input id="filter" type="search" autocomplete="off"></label>'
    lines = _lines(result)
    words = "".join(f"<option>{escape(word)}</option>" for word in dict.fromkeys(line.verdict for line in lines))
    yield f'<label>Verdict<select id="verdict"><option value="">all</option>{words}</select></label>'
    yield '<span id="shown" class="soft" role="status"></span></div>'
    yield '<div class="scroll" tabindex="0"><table id="results" class="rows"><thead><tr>'
    yield "".join(f'<th scope="col"><button type="button">{name}</button></th>' for name in names)
    yield "</tr></thead><tbody>"
    for line in lines:
        yield _row(names, _cells(line), line)
    yield "</tbody></table></div>"


def _names(timed: bool) -> list[str]:
    return ["program", "variant", "verdict", "speedup" if timed else "estimated time", "what differs"]


def _cells(line: _Line) -> list[str]:
    link = f'<a href="#{anchor(line.program)}">{escape(line.program)}</a>'
    why = escape(line.why).replace(" %", "&nbsp;%")
    return [link, escape(line.variant), verdict(line.verdict), escape(line.value), why]


def _head(names: Sequence[str]) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    yield f'<div class="scroll" tabindex="0"><table class="rows"><thead><tr>{heads}</tr></thead><tbody>'


def _row(names: Sequence[str], cells: Sequence[str], line: _Line | None = None) -> str:
    """A row with these cells, which are HTML. ``line`` gives what the script sorts and filters by."""
    made: list[str] = []
    for column, (name, cell) in enumerate(zip(names, cells, strict=True)):
        number = f' class="n" data-key="{line.key}"' if line is not None and column == 3 else ""
        made.append(f'<td data-name="{name}"{number}>{cell}</td>')
    mark = f' data-verdict="{escape(line.verdict)}"' if line is not None else ""
    return f"<tr{mark}>{''.join(made)}</tr>"
