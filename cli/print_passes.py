"""`opt --print-passes`: the passes, their options with default values, and the levels.

A pass is described by the first sentence of its docstring, an option by the text of its field (`passes.option`). A pass
of another distribution is described in the same way.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from ..transforms.passes import LEVELS, UnknownPass, option_text, pass_class, pass_names

__all__ = ["describe_passes", "summary_of"]

#: The end of a sentence: a full stop, and a space or the end of the text after it.
_END = re.compile(r"\.(?=\s|$)")


def describe_passes() -> str:
    """The text of ``--print-passes``."""
    lines: list[str] = []
    described: dict[str, str] = {}  # the lines of options that are printed → the pass that they belong to
    for name in pass_names():
        try:
            chosen = pass_class(name)
        except UnknownPass as error:  # of another distribution
            lines.append(f"{name:12} cannot be used: {error}")
            continue
        lines.append(f"{name:12} {summary_of(chosen)}".rstrip())
        options = _options(chosen)
        first = described.setdefault("\n".join(options), name)
        lines += options if first == name or not options else [f"    the options of {first}"]
    lines.append("")
    lines += [f"-{level:11} {','.join(names) or 'none'}" for level, names in LEVELS.items()]
    return "\n".join(lines) + "\n"


def summary_of(chosen: Any) -> str:
    """The first sentence of the docstring of a pass; empty where it has none."""
    # A dataclass without a docstring has its signature instead.
    text = str(chosen.__doc__ or "").replace("``", "").replace("`", "")
    text = "" if text.startswith(f"{chosen.__name__}(") else " ".join(text.split())
    return _END.split(text, maxsplit=1)[0]


def _options(chosen: Any) -> list[str]:
    return [
        f"{'':4}{f'{option.name}={_value(option.default)}':27} {option_text(option)}".rstrip()
        for option in fields(chosen)
    ]


def _value(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
