"""The summary of a run of a program, from the lines of its log.

An entry of the log is of one of two kinds: PTX that was read by the optimizer (`compiler.build_step`), or code that was
left as it is, with a reason. Programs that run `ptxmotion-ptxas`, such as Triton, add entries of the first kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Summary", "summary_of"]

#: What to do about a reason.
_HINTS = {
    "it compiled to machine code": "CuPy loads PTX if CUPY_COMPILE_WITH_PTX=1 is set",
}

#: The way of entries that `ptxmotion-ptxas` has written; they name a PTX file.
_PTXAS = "ptxas"


@dataclass
class Summary:
    """``ways`` maps the function that loaded code, or ``ptxas``, to [PTX files, kernels seen, kernels changed].
    ``changed`` are the changed kernels, with what the gate says of each. ``warnings`` maps a warning of the optimizer
    to how often it was given. ``left`` maps (way, reason) to how often code was left as it is."""

    ways: dict[str, list[int]] = field(default_factory=dict[str, "list[int]"])
    changed: dict[str, str] = field(default_factory=dict[str, str])
    warnings: Counter[str] = field(default_factory=Counter[str])
    left: Counter[tuple[str, str]] = field(default_factory=Counter["tuple[str, str]"])

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "schema_version": 1,
            "loaded": [
                {"way": way, "ptx": files, "kernels": kernels, "changed": changed}
                for way, (files, kernels, changed) in self.ways.items()
            ],
            "changed": [{"kernel": name, "gate": text} for name, text in self.changed.items()],
            "warnings": [{"message": text, "times": times} for text, times in self.warnings.items()],
            "left": [{"way": way, "reason": why, "times": times} for (way, why), times in self.left.items()],
        }

    def text(self) -> str:
        """For the user; ends with a newline."""
        lines: list[str] = []
        files, kernels, changed = (sum(counts[index] for counts in self.ways.values()) for index in range(3))
        lines.append(f"ptxmotion: {_count(files, 'PTX file')} loaded: {changed} of {_count(kernels, 'kernel')} changed")
        if not (self.ways or self.warnings or self.left):
            lines.append("  no code was seen: none was loaded (is there a GPU?), or it was loaded in an unknown way")
        for way, (files, kernels, changed) in self.ways.items():
            lines.append(f"  {way}: {_count(files, 'PTX file')}, {changed} of {_count(kernels, 'kernel')} changed")
        lines += [f"  changed: {name}{': ' if gain else ''}{gain}" for name, gain in self.changed.items()]
        lines += [f"  not optimized: {text}{_times(number)}" for text, number in self.warnings.items()]
        for (way, reason), number in self.left.most_common():
            hint = f" ({_HINTS[reason]})" if reason in _HINTS else ""
            lines.append(f"  left as it is: {way}: {reason}{_times(number)}{hint}")
        return "\n".join(lines) + "\n"


def summary_of(lines: Iterable[str]) -> Summary:
    """The summary of the lines of a log. A line that is cut short, because the disk was full, is left out."""
    summary = Summary()
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "left" in entry:
            summary.left[entry["way"], entry["left"]] += 1
        else:
            _add(summary, entry)
    return summary


def _add(summary: Summary, entry: dict[str, Any]) -> None:
    counts = summary.ways.setdefault(entry.get("way", _PTXAS), [0, 0, 0])
    for index, number in enumerate((1, len(entry["kernels"]), len(entry["changed"]))):
        counts[index] += number
    summary.warnings.update(entry["warnings"])
    for kernel in entry["changed"]:
        summary.changed[_source_name(kernel)] = _gain(kernel, entry["remarks"])


def _gain(kernel: str, remarks: Sequence[Sequence[str]]) -> str:
    """The gate's report on a kernel."""
    texts = [text for name, text in remarks if name == kernel]
    return next((gain for text in texts if (gain := text.partition(f" gate: {kernel}: ")[2])), "")


def _source_name(kernel: str) -> str:
    from ..toolchain.demangle import demangled

    return demangled(kernel)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _times(number: int) -> str:
    return f" ({number} times)" if number > 1 else ""
