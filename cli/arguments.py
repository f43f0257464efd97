"""The parser of the command line: verbs, options that all verbs have, and settings files as defaults.

Only the parser of the called verb is built; `--help` builds all. rich-argparse formats help, and is
imported only when help is printed in colour.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn, Protocol, cast

from .. import __version__
from ..spelling import did_you_mean
from . import color
from .outcome import usage_error, warn

__all__ = [
    "OPTIONAL_VALUE",
    "TRUSTED_ONLY",
    "VERBS",
    "Verb",
    "actions_of",
    "build_parser",
    "parse_arguments",
    "pass_list",
    "positive",
    "regex",
    "settable",
    "target",
    "verb_module",
]

#: The verbs in the order of the help, with their help texts.
VERBS: dict[str, str] = {
    "opt": "optimize a PTX file",
    "analyze": "report loops, divergence, memory accesses and redundancies of a PTX file",
    "diff": "compare the machine code of two PTX files",
    "verify": "check a PTX file, compare the results of two, or check parsing and printing of a folder",
    "emulate": "run a kernel on the emulator",
    "fuse": "fuse the kernel launches of a host program",
    "image": "show how an image pipeline is lowered, or run it on pictures",
    "nvcc": "run nvcc and optimize the PTX that it compiles",
    "bisect": "find the kernel and the rewrite that change the result of a program",
    "extract": "list or write the PTX and the cubins in executables, libraries and objects",
    "contract": "print or check a launch contract",
    "bench": "run benchmarks; compare and track their results",
    "doctor": "check that this machine has everything that ptxmotion needs",
    "completion": "print the completion script of a shell",
}

_DESCRIPTION = "Post-compilation optimizer for NVIDIA PTX: PTX in, faster PTX out, with a reason for every change."

_EPILOG = """\
examples:
  ptxmotion doctor
  ptxmotion opt kernel.ptx -o faster.ptx --remarks
  ptxmotion diff kernel.ptx faster.ptx
  ptxmotion verify kernel.ptx faster.ptx

exit codes: 0 success, 1 regression or mismatch, 2 wrong usage, 3 bad input or ptxas rejects the output,
4 a tool or GPU is missing, 5 inconclusive, 70 internal error
"""


class Verb(Protocol):
    """The interface of the module of a verb."""

    EPILOG: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def verb_module(name: str) -> Verb:
    """The module of a verb."""
    return cast("Verb", importlib.import_module(f"{__package__}.{name}"))


def _plain(prog: str) -> argparse.HelpFormatter:
    # Without a width, argparse imports shutil when an argument is added, and shutil imports bz2, lzma and zlib.
    return argparse.RawDescriptionHelpFormatter(prog, width=100)


class _Parser(argparse.ArgumentParser):
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


def _chosen_parser(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> argparse.ArgumentParser:
    """The parser of the verb, or of the action of the verb, that ``arguments`` name."""
    for action in actions_of(parser):
        parsers = cast("dict[str, argparse.ArgumentParser]", action.choices)
        if action.nargs == argparse.PARSER and (chosen := getattr(arguments, action.dest, None)) in parsers:
            return _chosen_parser(parsers[chosen], arguments)
    return parser


def _rich_formatter() -> Any:
    from rich_argparse import RawDescriptionRichHelpFormatter

    os.environ.setdefault("FORCE_COLOR", "1")  # `color` has decided, not rich
    return RawDescriptionRichHelpFormatter


class _ColorAction(argparse.Action):
    """Takes effect when it is parsed, so that it also applies to help and errors of the parser."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        color.set_when(values)
        setattr(namespace, self.dest, values)


def build_parser(verbs: Iterable[str] = tuple(VERBS)) -> argparse.ArgumentParser:
    """The parser with the arguments of ``verbs``; of the other verbs it has only the names."""
    parser = _Parser(prog="ptxmotion", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"ptxmotion {__version__}")
    _add_common(parser)
    # Without `prog`, argparse formats the usage to find the name of the command.
    kinds = parser.add_subparsers(dest="verb", metavar="VERB", prog="ptxmotion", title="verbs", required=True)
    chosen = set(verbs)
    for name, text in VERBS.items():
        if name in chosen:
            verb = verb_module(name)
            each = kinds.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=verb.EPILOG)
            verb.add_arguments(each)
            _add_common(each, hide=True)
        else:
            kinds.add_parser(name, help=text)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, hide: bool = False) -> None:
    # These options may stand before or after the verb. After it, a default must not overwrite a value from before it.
    default = argparse.SUPPRESS if hide else None
    group = parser.add_argument_group("options of every verb")
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        action=_ColorAction,
        default=default,
        help="coloured messages, tables and help (default: auto, which is on a terminal unless NO_COLOR is set)",
    )
    config = group.add_mutually_exclusive_group()
    config.add_argument(
        "--config",
        metavar="FILE",
        default=default,
        help="read settings from this file, not from the nearest ptxmotion.toml or pyproject.toml",
    )
    config.add_argument("--no-config", action="store_true", default=default, help="read no settings file")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The arguments, with settings as defaults; ``command`` is ``argv``.

    Raises `SystemExit` (wrong usage), `CommandError`, `SettingsError`.
    """
    color.set_when("auto")
    named = next((word for word in argv if word in VERBS), None)
    parser = build_parser([named] if named and not _asks_for_all(argv, named) else VERBS)
    arguments, unknown = parser.parse_known_args(_explicit(argv))
    if unknown:
        _refuse_unknown(_chosen_parser(parser, arguments), unknown)
    _apply_settings(parser, arguments)
    arguments.command = argv
    return arguments


def _refuse_unknown(parser: argparse.ArgumentParser, unknown: list[str]) -> NoReturn:
    """End the command: ``parser`` has no options ``unknown``."""
    known = [option for action in actions_of(parser) for option in action.option_strings]
    similar = did_you_mean(unknown[0].partition("=")[0], known) if unknown[0].startswith("-") else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{similar}")


def _asks_for_all(argv: list[str], named: str) -> bool:
    before = argv[: argv.index(named)]
    return "-h" in before or "--help" in before


#: Options whose value is optional. The value must follow an `=`; the next word is never their value.
OPTIONAL_VALUE = frozenset(["--remarks", "--stats-json"])


_LEVEL = re.compile(r"-O\d")


def _explicit(argv: list[str]) -> list[str]:
    """The command line with ``=`` where argparse would read it differently: `--remarks FILE`, `--passes -O3`."""
    end = argv.index("--") if "--" in argv else len(argv)
    words: list[str] = []
    for word in argv[:end]:
        if words and words[-1] == "--passes" and _LEVEL.fullmatch(word):
            words[-1] = f"--passes={word}"
        else:
            words.append(f"{word}=" if word in OPTIONAL_VALUE else word)
    return words + argv[end:]


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
    return text.removeprefix("-") if _LEVEL.fullmatch(text) else text


#: Groups of options: one of them on the command line disables a setting of the others.
_EXCLUSIVE = (
    frozenset(["level", "passes"]),
    frozenset(["folder", "branch"]),
    frozenset(["history", "history_branch"]),
)


#: The settings by verb that execute a file, write a file, or make a promise that is not checked. A settings file may
#: set them only if it belongs to the user.
TRUSTED_ONLY = {
    "opt": frozenset(["remarks-output", "stats-json", "dump", "report", "alias", "contract"]),
    "analyze": frozenset(["picture", "alias"]),
    "verify": frozenset(["inputs", "log"]),
    "emulate": frozenset(["trace"]),
    "fuse": frozenset(["assume-independent"]),
    "doctor": frozenset(["calibrate"]),
    # A variant can name a git revision, whose code is executed.
    "bench": frozenset(["variant", "baseline", "json", "markdown", "folder", "branch"]),
}


def _apply_settings(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.no_config:
        return
    from ..settings import Source, find_settings, read_settings

    source = Source(arguments.config) if arguments.config else find_settings(os.getcwd())
    settings = read_settings(source.path if source else None, frozenset(VERBS))
    options = {verb: settable(parser, verb) for verb in settings.tables if verb == arguments.verb}
    of_action = settable(parser, arguments.verb, getattr(arguments, "action", ""))
    given = {dest for dest, value in vars(arguments).items() if value is not None}
    for key, value in settings.table(arguments.verb).items():
        action = options[arguments.verb].get(key)
        if action is None:
            known = sorted(options[arguments.verb])
            where = f"{settings.path}: unknown key '{key}'{did_you_mean(key, known)} in table '{arguments.verb}'"
            usage_error(f"{where}; there are {', '.join(known) or 'none'}")
        if key not in of_action:
            continue  # a setting of another action of the verb
        action = of_action[key]
        if action.dest in given or any(action.dest in group and group & given for group in _EXCLUSIVE):
            continue
        if source and source.doubt and key in TRUSTED_ONLY.get(arguments.verb, ()):
            warn(f"{source.path}: '{key}' is ignored: {source.doubt}; name the file with --config to use it")
            continue
        setattr(arguments, action.dest, _converted(action, key, value, str(settings.path)))


def settable(parser: argparse.ArgumentParser, verb: str, action_name: str = "") -> dict[str, argparse.Action]:
    """The options of a verb that a settings file may set, by long name. Their default is ``None``.

    For a verb with actions, such as `bench`, these are the options of all actions, or of the one named ``action_name``.
    """
    of_command: list[Any] = cast("Any", parser)._actions  # argparse has no public access to them
    of_verb = next(action for action in of_command if action.dest == "verb").choices[verb]
    actions: list[argparse.Action] = of_verb._actions
    several: Any = next((each for each in actions if _has_actions(each)), None)
    if several is None:
        return _settable(actions)
    chosen: list[Any] = [several.choices[action_name]] if action_name else list(several.choices.values())
    found: dict[str, argparse.Action] = {}
    for each in chosen:
        inner: list[Any] = [x for action in each._actions if _has_actions(action) for x in action.choices.values()]
        for parser in (each, *inner):
            for name, action in _settable(parser._actions).items():
                found.setdefault(name, action)
    return found


def _has_actions(action: Any) -> bool:
    return isinstance(action, argparse._SubParsersAction)  # pyright: ignore[reportPrivateUsage]


def _settable(actions: Iterable[argparse.Action]) -> dict[str, argparse.Action]:
    by_name: dict[str, argparse.Action] = {}
    for action in actions:
        if action.default is None and not action.required and action.dest not in ("color", "config", "no_config"):
            names = [option[2:] for option in action.option_strings if option.startswith("--")]
            names = ["level"] if action.dest == "level" else names
            if names:
                by_name[names[0]] = action
    return by_name


def _converted(action: argparse.Action, key: str, value: Any, path: str) -> Any:
    is_flag = action.nargs == 0
    if is_flag:
        if isinstance(value, bool):
            return value or None
        usage_error(f"{path}: '{key}' takes true or false, not {value!r}")
    if isinstance(action, argparse._AppendAction):  # pyright: ignore[reportPrivateUsage]
        several = cast("list[Any]", value) if isinstance(value, list) else [value]
        return [_one_converted(action, key, each, path) for each in several]
    return _one_converted(action, key, value, path)


def _one_converted(action: argparse.Action, key: str, value: Any, path: str) -> Any:
    if isinstance(value, list):
        value = ",".join(str(item) for item in cast("list[object]", value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        usage_error(f"{path}: '{key}' takes a string or a number, not {value!r}")
    text = str(value)
    kind: Any = action.type
    try:
        converted = kind(text) if kind is not None else text
    except (argparse.ArgumentTypeError, ValueError) as error:
        usage_error(f"{path}: '{key}': {error}")
    if action.choices is not None and converted not in action.choices:
        choices = [str(each) for each in action.choices]
        usage_error(f"{path}: '{key}' takes one of {', '.join(choices)}, not {text!r}{did_you_mean(text, choices)}")
    return converted
