"""Suggestions for misspelled names, for messages.

Imports no other module of this package, so every folder may import it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A text that follows an unknown ``name`` in a message: the most similar name; empty where none is similar.

    >>> did_you_mean("lmc", ["lcm", "dce"]), did_you_mean("frob", ["lcm", "dce"])
    (" (did you mean 'lcm'?)", '')
    """
    import difflib  # takes 5 ms, and only errors need it

    by_lower = {each.lower(): each for each in known}
    similar = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f" (did you mean '{by_lower[similar[0]]}'?)" if similar else ""
