"""The argparse types of arguments that several verbs have. Each raises `argparse.ArgumentTypeError` with the reason."""

from __future__ import annotations

import argparse
import re

from ..spelling import did_you_mean

__all__ = ["LEVEL", "pass_list", "positive", "regex", "target"]

#: A level of `opt`, as an option.
LEVEL = re.compile(r"-O\d")


def regex(text: str) -> re.Pattern[str]:
    """The argparse type of a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a regular expression: {error}") from None


def positive(text: str) -> int:
    """The argparse type of a number greater than 0."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number greater than 0")
    return int(text)


def target(text: str) -> str:
    """The argparse type of a target: one of the architectures of this package, or one that a ptxas here supports."""
    from ..arch import ARCHITECTURES

    known = [f"sm_{sm}" for sm in ARCHITECTURES]
    known += [f"sm_{sm}{row.suffix}" for sm, row in ARCHITECTURES.items() if row.suffix]
    if text in known:
        return text
    from ..toolchain.tools import every_target

    known = every_target() or sorted(known)
    if text in known:
        return text
    similar = did_you_mean(text, known)
    raise argparse.ArgumentTypeError(f"'{text}' is not a target of ptxas{similar}; there are {', '.join(known)}")


def pass_list(text: str) -> str:
    """The argparse type of ``--passes``: a list of passes, or a level with or without its dash.

    >>> pass_list("-O3"), pass_list("lcm,dce")
    ('O3', 'lcm,dce')
    """
    return text.removeprefix("-") if LEVEL.fullmatch(text) else text
