"""How often each version of a kernel was taken, and why the others were not."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from ..contract import KernelContract
from ..contract.wording import condition_words
from .choice import Choice, Reason

__all__ = ["Statistics", "VersionStatistics"]


@dataclass
class VersionStatistics:
    """The counts of a version. ``failed`` maps a condition to how often it was false and how often undecidable."""

    entry: str
    reasons: Counter[Reason] = field(default_factory=Counter[Reason])
    failed: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    @property
    def taken(self) -> int:
        """How often the version was launched."""
        return self.reasons[Reason.TAKEN]


class Statistics:
    """The counts of the launches of a kernel; ``str`` is a report. A launch that fails counts, too. So a launch that is
    made again because its thread had no context counts twice."""

    def __init__(self, kernel: KernelContract) -> None:
        self._kernel = kernel
        self._lock = threading.Lock()
        self.versions = [VersionStatistics(version.entry) for version in kernel.versions]

    @property
    def launches(self) -> int:
        """How often the kernel was launched, in any version."""
        return sum(version.taken for version in self.versions)

    def record(self, choice: Choice, *, is_refused: bool = False) -> None:
        """Count a launch. ``is_refused``: the driver refused the chosen version, and the kernel itself was launched."""
        with self._lock:
            for index, (reason, failed) in enumerate(zip(choice.reasons, choice.failed, strict=True)):
                is_last = index == choice.version
                self.versions[index].reasons[Reason.REFUSED if is_last and is_refused else reason] += 1
                if failed is not None:
                    self.versions[index].failed.setdefault(failed, [0, 0])[reason is Reason.UNDECIDABLE] += 1
            if is_refused:
                self.versions[-1].reasons[Reason.TAKEN] += 1

    def copy(self) -> Statistics:
        """The counts as they are now."""
        result = Statistics(self._kernel)
        with self._lock:
            for mine, copied in zip(self.versions, result.versions, strict=True):
                copied.reasons = Counter(mine.reasons)
                copied.failed = {condition: list(counts) for condition, counts in mine.failed.items()}
        return result

    def __str__(self) -> str:
        lines = [f"{self._kernel.name}: {self.launches} launches"]
        for version, counts in zip(self._kernel.versions, self.versions, strict=True):
            others = [f"{reason.words}: {times}" for reason, times in sorted(counts.reasons.items()) if reason]
            lines.append(f"  {counts.entry}: taken {counts.taken} times" + "".join(f"; {each}" for each in others))
            for index, (false, unknown) in sorted(counts.failed.items()):
                words = condition_words(version.requires[index], self._kernel.parameters)
                lines.append(f"    {words}: false {false} times, undecidable {unknown} times")
        return "\n".join(lines)
