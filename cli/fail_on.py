"""`--fail-on` and `--threshold` of the actions of `bench`, and the exit code that they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .outcome import DIFFERENT, FINE, INCONCLUSIVE, usage_error

if TYPE_CHECKING:
    from ..harness.figures import Threshold

__all__ = ["exit_code", "failing", "thresholds"]


def failing(text: str | None, default: str, known: Sequence[str]) -> set[str]:
    """The kinds of changes or verdicts that ``--fail-on`` names. Raises `CommandError` for others than ``known``."""
    named = {each for each in (default if text is None else text).split(",") if each not in ("", "none")}
    if unknown := sorted(named - set(known)):
        usage_error(f"--fail-on: unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return named


def thresholds(texts: Sequence[str] | None) -> list[Threshold]:
    """The thresholds of ``--threshold``. Raises `CommandError`."""
    from ..harness.figures import parse_threshold

    try:
        return [parse_threshold(each) for each in texts or ()]
    except ValueError as error:
        usage_error(f"--threshold: {error}")


def exit_code(failed: set[str]) -> int:
    """The exit code for the kinds that failed."""
    if failed - {"inconclusive", "invalid"}:
        return DIFFERENT
    return INCONCLUSIVE if failed else FINE
