"""The argparse parser of the command: a parser with our formats of help and errors, and its parts.

Help is formatted only when it is printed; rich-argparse formats it where colour is on, and is imported only then.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, cast

from ..spelling import did_you_mean
from . import color

__all__ = ["CommandParser", "actions_of", "chosen_parser"]


def _plain(prog: str) -> argparse.HelpFormatter:
    # Without a width, argparse imports shutil when an argument is added, and shutil imports bz2, lzma and zlib.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


class CommandParser(argparse.ArgumentParser):
    """Chooses the format of the help only when help is printed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, formatter_class=_plain, allow_abbrev=False, **kwargs)

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        if color.is_wanted(stream):
            self.formatter_class = _rich_formatter()
        stream.write(self.format_help())

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, but the message also has the choice that is similar."""
        if action.choices is not None and value not in action.choices:
            choices = [str(each) for each in action.choices]
            listed = ", ".join(choices)
            message = f"invalid choice: '{value}'{did_you_mean(str(value), choices)}; choose from {listed}"
            raise argparse.ArgumentError(action, message)


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a parser. argparse has no public access to them."""
    return cast("Any", parser)._actions


def chosen_parser(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the verb, or of the action of the verb, that ``arguments`` name."""
    for action in actions_of(parser):
        parsers = cast("dict[str, argparse.ArgumentParser]", action.choices)
        if action.nargs == argparse.PARSER and (chosen := getattr(arguments, action.dest, None)) in parsers:
            return chosen_parser(parsers[chosen], arguments)
    return parser


def _rich_formatter() -> Any:
    from rich_argparse import RawDescriptionRichHelpFormatter

    os.environ.setdefault("FORCE_COLOR", "1")  # `color` has decided, not rich
    return RawDescriptionRichHelpFormatter
