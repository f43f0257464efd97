"""What may follow on a command line: the candidates for the word at the cursor, for the completion of all shells.

Computes, from the words before the cursor and the current word: what kind of word is wanted (values, files or folders),
the part of the current word that stays, and the values that may follow it. Options, their values and verbs are those of
argparse; passes, programs, targets and kernels are searched where they are wanted.

Guarantees: nothing is executed but the code of passes of other distributions, no settings are read, and a word that
argparse would refuse gives no error but fewer candidates.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from .arguments import OPTIONAL_VALUE, VERBS, build_parser
from .command_parser import actions_of

__all__ = ["FILES", "FOLDERS", "MIXED", "VALUES", "Candidates", "candidates"]

VALUES, FILES, FOLDERS, MIXED = "values", "files", "folders", "mixed"

#: Values and what they mean; the second text may be empty.
Values: TypeAlias = "list[tuple[str, str]]"


@dataclass(frozen=True)
class Candidates:
    """``kind`` is `VALUES`, `FILES`, `FOLDERS`, or `MIXED` (values or files).

    ``prefix`` is the part of the current word that stays as it is. Each of ``values`` is a text that may follow it, and
    what it means. ``is_open``: more may follow a value without a space, as in a list.
    """

    kind: str
    prefix: str = ""
    values: Values = field(default_factory=list[tuple[str, str]])
    is_open: bool = False


def candidates(words: Sequence[str], current: str) -> Candidates:
    """The candidates for ``current``, which follows ``words`` (the command itself is not among them).

    >>> candidates(["opt"], "--gate=s").values
    [('static', '')]
    """
    verb = next((word for word in words if word in VERBS), None)
    place = _Place.after(build_parser([verb] if verb else ()), words)
    found = _found(place, words, current)
    rest = current[len(found.prefix) :]
    values = [(value, text) for value, text in found.values if value.startswith(rest)]
    return Candidates(found.kind, found.prefix, values, found.is_open)


def _found(place: _Place, words: Sequence[str], current: str) -> Candidates:
    """All candidates at a place, also those that do not begin as ``current`` does."""
    if place.awaited is not None:
        return _values_of(place.awaited, "", current, words)
    if current.startswith("-") and not place.is_after_dashes:
        name, equals, _ = current.partition("=")
        if equals and (action := place.option(name)) is not None:
            return _values_of(action, f"{name}=", current[len(name) + 1 :], words)
        if (action := place.option(current[:2])) is not None and action.choices is not None and current[1] != "-":
            return Candidates(VALUES, current[:2], [(str(each), "") for each in action.choices])
        return Candidates(VALUES, "", _options(place.parser))
    action = place.positional()
    return Candidates(VALUES) if action is None else _values_of(action, "", current, words)


@dataclass
class _Place:
    """Where the words before the cursor lead to.

    ``parser`` is that of the verb, or of its action. ``positionals`` counts the words that were no options.
    ``awaited`` is the option whose value comes next. ``is_after_dashes``: after ``--``, nothing is an option.
    """

    parser: argparse.ArgumentParser
    positionals: int = 0
    awaited: argparse.Action | None = None
    is_after_dashes: bool = False

    @classmethod
    def after(cls, parser: argparse.ArgumentParser, words: Iterable[str]) -> _Place:
        """The place after ``words``."""
        place = cls(parser)
        for word in words:
            place._pass(word)
        return place

    def _pass(self, word: str) -> None:
        if self.awaited is not None:
            self.awaited = None
        elif word == "--" and not self.is_after_dashes:
            self.is_after_dashes = True
        elif word.startswith("-") and len(word) > 1 and not self.is_after_dashes:
            action = self.option(word)
            if action is not None and action.nargs is None and word not in OPTIONAL_VALUE:
                self.awaited = action
        else:
            self._pass_positional(word)

    def _pass_positional(self, word: str) -> None:
        action = self.positional()
        self.positionals += 1
        if action is not None and action.nargs == argparse.PARSER:
            parsers = cast("dict[str, argparse.ArgumentParser]", action.choices)
            if word in parsers:
                self.parser, self.positionals = parsers[word], 0

    def option(self, name: str) -> argparse.Action | None:
        """The option of that name."""
        return next((action for action in actions_of(self.parser) if name in action.option_strings), None)

    def positional(self) -> argparse.Action | None:
        """The positional argument that the next word is."""
        left = self.positionals
        for action in actions_of(self.parser):
            if not action.option_strings:
                if left == 0 or action.nargs in ("*", "+"):
                    return action
                left -= 1
        return None


def _options(parser: argparse.ArgumentParser) -> Values:
    return [
        (option, _plain(action.help))
        for action in actions_of(parser)
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]


def _plain(text: str | None) -> str:
    """The first part of a help text, on one line."""
    short = " ".join((text or "").replace("%%", "%").split())
    return re.split(r"[;:] |\. | \(default", short, maxsplit=1)[0]


def _values_of(action: argparse.Action, prefix: str, current: str, words: Sequence[str]) -> Candidates:
    """The values of an option or a positional argument. ``prefix`` is what precedes the value in the current word."""
    if action.nargs == argparse.PARSER:
        kinds: list[argparse.Action] = cast("Any", action)._choices_actions
        return Candidates(VALUES, prefix, [(each.dest, _plain(each.help)) for each in kinds])
    if action.choices is not None:
        return Candidates(VALUES, prefix, [(str(each), "") for each in action.choices])
    metavar = str(action.metavar or "").removeprefix("=")
    for key in (*(f"{option} {metavar}" for option in action.option_strings), *action.option_strings, metavar):
        if key in _KNOWN:
            kind, find = _KNOWN[key]
            return Candidates(kind, prefix, find(words, current))
        if key in _LISTS:
            item = current.rpartition(",")[2]
            done = current.removesuffix(item)
            return Candidates(VALUES, prefix + done, _LISTS[key](words, item), is_open=True)
    return Candidates(FOLDERS if metavar == "DIR" else VALUES if metavar in _FREE else FILES, prefix)


def _passes(words: Sequence[str], item: str) -> Values:
    """The passes and levels; where ``item`` already names a pass, its options."""
    from dataclasses import fields

    from ..transforms.passes import LEVELS, UnknownPass, option_text, pass_class, pass_names
    from .print_passes import summary_of

    name, colon, _ = item.rpartition(":")
    found: Values = []
    try:
        if colon:
            options = fields(pass_class(name.partition(":")[0]))
            return [(f"{name}:{option.name}=", option_text(option)) for option in options]
        found += [(each, summary_of(pass_class(each))) for each in pass_names()]
    except UnknownPass:  # one of another distribution; `--print-passes` says why
        found += [(each, "") for each in pass_names()]
    return found + [(level, ",".join(names)) for level, names in LEVELS.items()]


def _variants(words: Sequence[str], item: str) -> Values:
    from ..dsl.image import LOWERINGS

    levels = [(f"-{name}", text) for name, text in _passes(words, "") if re.fullmatch(r"O\d", name)]
    fused = [("kf_trad", "the fused program"), ("kfcm", "the fused program")]
    lowered = [(f"lowering:{name}", "of an image pipeline") for name in LOWERINGS]
    return [*levels, *fused, *lowered, ("O3", "the output of nvcc"), ("thesis", "every method of the thesis")]


def _programs(words: Sequence[str], item: str) -> Values:
    """The programs with their suites; where ``item`` begins no such name, without them."""
    from ..suites.registry import benchmarks

    found = [(each.fullname, each.name, each.description) for each in benchmarks()]
    is_short = not any(fullname.startswith(item) for fullname, _, _ in found)
    return [(name if is_short else fullname, text) for fullname, name, text in found]


def _pipelines(words: Sequence[str], item: str) -> Values:
    """The programs of the suite image."""
    from ..suites.registry import benchmarks

    is_full = item.startswith("image/")
    return [(each.fullname if is_full else each.name, each.description) for each in benchmarks("image")]


def _lowerings(words: Sequence[str], item: str) -> Values:
    from ..dsl.image import LOWERINGS

    return [(name, "") for name in LOWERINGS]


def _programs_and_suites(words: Sequence[str], item: str) -> Values:
    from ..suites.registry import suites

    return [*((name, "all programs of this suite") for name in suites()), *_programs(words, item)]


def _targets(words: Sequence[str], item: str) -> Values:
    from ..arch import ARCHITECTURES

    plain = [f"sm_{sm}" for sm in ARCHITECTURES]
    return [(each, "") for each in plain + [f"sm_{sm}{row.suffix}" for sm, row in ARCHITECTURES.items() if row.suffix]]


def _kernels(words: Sequence[str], item: str) -> Values:
    """The kernels of the PTX files among ``words``."""
    found: dict[str, str] = {}
    for word in words:
        if word.endswith(".ptx"):
            try:
                with open(os.path.expanduser(word), "rb") as file:
                    text = file.read(_MOST_PTX).decode("utf-8", errors="replace")
            except OSError:
                continue
            found |= dict.fromkeys(re.findall(r"\.entry\s+([\w$.]+)", text), word)
    return list(found.items())


def _alias(words: Sequence[str], item: str) -> Values:
    conservative = ("conservative", "any pointer parameters may point to the same memory")
    restrict = ("restrict", "no two pointer parameters point to the same buffer")
    single = [(f"restrict:{name}", "for this kernel only") for name, _ in _kernels(words, item)]
    return [conservative, restrict, *single]


def _names_of_passes(words: Sequence[str], item: str) -> Values:
    return [(name, text) for name, text in _passes(words, "") if ":" not in name and not re.fullmatch(r"O\d", name)]


def _sizes(words: Sequence[str], item: str) -> Values:
    from ..suites.registry import SIZES

    return [(size, "") for size in SIZES]


def _nothing(words: Sequence[str], item: str) -> Values:
    return []


def _changes(words: Sequence[str], item: str) -> Values:
    from ..harness.compare import KINDS

    return [(kind, "") for kind in (*KINDS[:-2], "none")]


def _report_formats(words: Sequence[str], item: str) -> Values:
    from ..harness.report import FORMS

    return [(form, "") for form in (*FORMS, "thesis")]


def _export_formats(words: Sequence[str], item: str) -> Values:
    from ..harness.exporters import FORMATS

    return [(form, "") for form in FORMATS]


#: How much of a PTX file is searched for kernels.
_MOST_PTX = 16 << 20

#: A function of the words before the cursor and of the text that the value begins with.
_Find: TypeAlias = "Callable[[Sequence[str], str], Values]"

#: Options whose value is a list with commas. By option, or by its placeholder in the help: what finds the items.
_LISTS: dict[str, _Find] = {"PASSES": _passes, "--fail-on": _changes, "--format": _report_formats}

#: Options with other known values. By option, or by its placeholder: the kind of the values, and what finds them.
_KNOWN: dict[str, tuple[str, _Find]] = {
    "--kernel": (VALUES, _kernels),
    "--remarks": (VALUES, _names_of_passes),
    "--program": (VALUES, _nothing),
    "--size": (VALUES, _sizes),
    "PROGRAM": (MIXED, _programs),
    "PIPELINE": (MIXED, _pipelines),
    "LOWERING": (VALUES, _lowerings),
    "NAME": (MIXED, _programs_and_suites),
    "SPEC": (MIXED, _variants),
    "SM": (VALUES, _targets),
    "LEVEL": (VALUES, _alias),
    "--format FORMAT": (VALUES, _export_formats),
}

#: Placeholders of values that are not known: numbers and free texts. What is in no table is a file.
_FREE = frozenset("N S P% REGEX SECONDS BYTES OPTIONS X[,Y[,Z]] K1,K2 REGEX=P% [NAME=]WxH XxY NAME=VALUE".split())
