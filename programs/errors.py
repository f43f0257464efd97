"""The errors of this folder. Each class has one exit code of the command line; `cli` prints and exits."""

from __future__ import annotations

__all__ = ["BadInput", "BadRequest", "ProgramError", "RequirementMissing", "WrongOutputs"]


class ProgramError(Exception):
    """Base class. ``place`` is the file that the message is about; it is empty where there is none."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class BadRequest(ProgramError):
    """The request contradicts itself, or names something that does not exist. Exit code 2 (usage)."""


class BadInput(ProgramError):
    """A file or program that was read cannot be used. Exit code 3 (bad input)."""


class RequirementMissing(ProgramError):
    """This machine lacks something that the request needs, such as a GPU. Exit code 4 (environment)."""


class WrongOutputs(ProgramError):
    """A transformed program computes other outputs than the original. Exit code 1 (mismatch)."""
