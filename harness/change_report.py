"""The changes between two result files for systems of CI: Markdown, and annotations at source lines.

    github   commands that GitHub Actions reads from the output of a step: `::warning file=…,line=…,title=…::text`
    gitlab   a Code Quality report: a JSON list of issues with fingerprints

Guarantees: every change is in the output; a change that all variants of a program share is in it once.
Reference: GitHub, "Workflow commands for GitHub Actions"; GitLab, "Code Quality", report format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from .compare import Change, counted_changes, shared_changes
from .exporters import export
from .results import ResultFile

__all__ = ["Annotation", "changes_markdown", "github_commands", "gitlab_report"]

#: A marker by which a workflow finds the comment that it wrote before.
MARKER = "<!-- ptxmotion benchmarks -->"

_ORDER = ("mismatch", "slower", "worse", "missing", "invalid", "inconclusive", "faster", "better")


def changes_markdown(changes: Sequence[Change], before: ResultFile, after: ResultFile, failed: Set[str]) -> str:
    """A summary of the changes, their table, and the results themselves. ``failed`` are the kinds that fail."""
    counts = counted_changes(changes, before)
    words = ", ".join(f"{counts[kind]} {kind}" for kind in _ORDER if kind in counts) or "no differences"
    lines = [MARKER, "## Benchmarks", "", f"**{'Failed' if failed else 'Passed'}**: {words}.", ""]
    if changes:
        lines += [
            "| | benchmark:variant:kernel:figure | before | after | change |",
            "| --- | --- | ---: | ---: | ---: |",
        ]
        rows = sorted(shared_changes(changes, before), key=lambda each: _ORDER.index(each[1].kind))
        lines += [_row(subject, change) for subject, change in rows]
        lines.append("")
    lines += ["<details><summary>All results</summary>", "", export(after, "markdown"), "</details>", ""]
    return "\n".join(lines)


def _row(subject: str, change: Change) -> str:
    from .figures import number_text, percent_text

    before = "" if change.before is None else number_text(change.before)
    after = "" if change.after is None else f"{number_text(change.after)} {change.unit}".strip()
    percent = "" if change.before is None or change.after is None else percent_text(change.before, change.after)
    note = f" ({change.note})" if change.note else ""
    name = f"{subject}{note}".replace("|", "\\|").replace("\n", " ")
    kind = f"**{change.kind}**" if change.kind not in ("better", "faster") else change.kind
    return f"| {kind} | {name} | {before} | {after} | {percent} |"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A change at a place: a file relative to the root of the repository, and a line. The file is empty if unknown."""

    subject: str
    change: Change
    file: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        """The change in one line."""
        return f"{self.change.kind}: {self.subject}{self.change.values}"


def github_commands(annotations: Sequence[Annotation]) -> str:
    """A command for each annotation: a warning for what got worse, a notice for what got better.

    >>> change = Change("worse", "s/b:O3:k:registers", 10, 11)
    >>> print(github_commands([Annotation("s/b:O3:k:registers", change, "a.py", 7)]), end="")
    ::warning file=a.py,line=7,title=ptxmotion%3A worse::worse: s/b:O3:k:registers 10 → 11 (+10.0 %25)
    """
    lines: list[str] = []
    for each in annotations:
        level = "notice" if each.change.kind in ("better", "faster") else "warning"
        place = f"file={_property(each.file)},line={each.line}," if each.file else ""
        title = _property(f"ptxmotion: {each.change.kind}")
        lines.append(f"::{level} {place}title={title}::{_data(each.text)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def gitlab_report(annotations: Sequence[Annotation]) -> str:
    """The Code Quality report. It has only what got worse, since every issue in it is a problem."""
    issues: list[dict[str, Any]] = []
    for each in annotations:
        if each.change.kind not in ("better", "faster"):
            issues.append(
                {
                    "description": each.text,
                    "check_name": f"ptxmotion-{each.change.kind}",
                    "fingerprint": hashlib.sha256(f"{each.change.kind}:{each.subject}".encode()).hexdigest(),
                    "severity": "critical" if each.change.kind == "mismatch" else "major",
                    "location": {"path": each.file or "unknown", "lines": {"begin": max(each.line, 1)}},
                }
            )
    return json.dumps(issues, indent=1, ensure_ascii=False) + "\n"
