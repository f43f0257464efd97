"""The errors of contracts."""

from __future__ import annotations

__all__ = ["ContractError", "Undecidable"]


class ContractError(ValueError):
    """A contract breaks a rule. ``place`` is the file or the part of the document, or the empty string."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class Undecidable(Exception):
    """An expression has no value for this launch, or none that is known. The text says why."""
