"""The parser of the command line: verbs, options that all verbs have, and settings files as defaults.

Only the parser of the called verb is built; `--help` builds all. rich-argparse formats help, and is
imported only when help is printed in colour.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn, Protocol, cast

from .. import __version__
from ..spelling import did_you_mean
from . import color
from .argument_types import LEVEL
from .command_parser import CommandParser, actions_of, chosen_parser
from .outcome import usage_error, warn

__all__ = [
    "OPTIONAL_VALUE",
    "TRUSTED_ONLY",
    "VERBS",
    "Verb",
    "build_parser",
    "parse_arguments",
    "settable",
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
    "run": "run a program and optimize the PTX that it loads",
    "times": "print how long the kernels of a program take, or compare them with another program",
    "bisect": "find the kernel and the rewrite that change the result of a program",
    "extract": "list or write the PTX and the cubins in executables, libraries and objects",
    "contract": "print, check or tune launch contracts",
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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments and options of the verb."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the verb. Returns the exit code."""
        ...


def verb_module(name: str) -> Verb:
    """The module of a verb."""
    return cast("Verb", importlib.import_module(f"{__package__}.{name}"))


class _ColorAction(argparse.Action):
    """Takes effect when it is parsed, so that it also applies to help and errors of the parser."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        color.set_when(values)
        setattr(namespace, self.dest, values)


def build_parser(verbs: Iterable[str] = tuple(VERBS)) -> argparse.ArgumentParser:
    """The parser with the arguments of ``verbs``; of the other verbs it has only the names."""
    parser = CommandParser(prog="ptxmotion", description=_DESCRIPTION, epilog=_EPILOG)
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
            for inner in _with_actions(each) if name != "nvcc" else []:  # all arguments of `nvcc` are those of nvcc
                _add_common(inner, hide=True)
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
    arguments, unknown = parser.parse_known_args(argv if named in _RUN_A_COMMAND else _explicit(argv))
    if unknown:
        _refuse_unknown(chosen_parser(parser, arguments), unknown)
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


#: The verbs whose words, from the first one that is no option, are the command line of another program.
_RUN_A_COMMAND = frozenset(["run", "times"])

#: Options whose value is optional. The value must follow an `=`; the next word is never their value.
OPTIONAL_VALUE = frozenset(["--remarks", "--stats-json"])


def _explicit(argv: list[str]) -> list[str]:
    """The command line with ``=`` where argparse would read it differently: `--remarks FILE`, `--passes -O3`."""
    end = argv.index("--") if "--" in argv else len(argv)
    words: list[str] = []
    for word in argv[:end]:
        if words and words[-1] == "--passes" and LEVEL.fullmatch(word):
            words[-1] = f"--passes={word}"
        else:
            words.append(f"{word}=" if word in OPTIONAL_VALUE else word)
    return words + argv[end:]


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
    "contract": frozenset(["record"]),
    "doctor": frozenset(["calibrate"]),
    "image": frozenset(["save-schedule"]),
    "run": frozenset(["json"]),
    # The command before is executed.
    "times": frozenset(["json", "before"]),
    # A variant can name a git revision, whose code is executed.
    "bench": frozenset(["variant", "baseline", "json", "markdown", "folder", "branch"]),
}


#: By verb and key: the actions to which the key applies in the table of the verb. In the other actions, the option of
#: that name means another thing, so only the table of the action, such as `[bench.run]`, can set it. `--fail-on` of
#: `bench run` compares variants of one run, and that of the others compares two commits. `--json` of `bench run` is the
#: result file, and that of the others is the list of differences. `--baseline` of `bench run` is a variant, and that of
#: the others is a result file.
_ONLY_FOR_ACTIONS = {
    "bench": {
        "fail-on": frozenset(["compare", "track", "history"]),
        "json": frozenset(["run"]),
        "baseline": frozenset(["run"]),
    },
}


def _apply_settings(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if arguments.no_config:
        return
    from ..settings import Source, find_settings, read_settings

    source = Source(arguments.config) if arguments.config else find_settings(os.getcwd())
    settings = read_settings(source.path if source else None, frozenset(VERBS))
    verb, path = arguments.verb, str(settings.path)
    given = {dest for dest, value in vars(arguments).items() if value is not None}
    for table in _tables(parser, arguments, settings.table(verb), path):
        found = [each for each in table if not _is_given(each.option.dest, given)]
        for key, value, option in found:
            if source and source.doubt and key in TRUSTED_ONLY.get(verb, ()):
                warn(f"{source.path}: '{key}' is ignored: {source.doubt}; name the file with --config to use it")
            else:
                setattr(arguments, option.dest, _converted(option, key, value, path))
        given |= {each.option.dest for each in found}


class _Setting(NamedTuple):
    key: str
    value: Any
    option: argparse.Action


def _is_given(dest: str, given: set[str]) -> bool:
    """Whether an option, or one that excludes it, is among those that are ``given``."""
    return dest in given or any(dest in group and group & given for group in _EXCLUSIVE)


def _tables(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, table: dict[str, Any], path: str
) -> list[list[_Setting]]:
    """The settings of the called action of the verb, then those of the verb. ``table`` is that of the verb in the file
    ``path``."""
    verb: str = arguments.verb
    actions = _actions(parser, verb)
    of_actions: dict[str, dict[str, Any]] = {k: v for k, v in table.items() if actions and isinstance(v, dict)}
    of_verb = {key: value for key, value in table.items() if key not in of_actions}
    for name in of_actions:
        if name not in actions:
            where = f"{path}: unknown table '{verb}.{name}'{did_you_mean(name, actions)}"
            usage_error(f"{where}; there are tables for {', '.join(actions)}")
        _refuse_unknown_keys(of_actions[name], settable(parser, verb, name), path, f"{verb}.{name}")
    _refuse_unknown_keys(of_verb, settable(parser, verb), path, verb)
    called: str = getattr(arguments, "action", "")
    options = settable(parser, verb, called)
    only = _ONLY_FOR_ACTIONS.get(verb, {})
    # A key of the verb's table may be an option of other actions only.
    common = {key: of_verb[key] for key in of_verb if key in options and called in only.get(key, [called])}
    both = (of_actions.get(called, {}), common)
    return [[_Setting(key, value, options[key]) for key, value in each.items()] for each in both]


def _refuse_unknown_keys(table: dict[str, Any], options: dict[str, argparse.Action], path: str, name: str) -> None:
    for key in table:
        if key not in options:
            known = sorted(options)
            where = f"{path}: unknown key '{key}'{did_you_mean(key, known)} in table '{name}'"
            usage_error(f"{where}; there are {', '.join(known) or 'none'}")


def settable(parser: argparse.ArgumentParser, verb: str, action_name: str = "") -> dict[str, argparse.Action]:
    """The options of a verb that a settings file may set, by long name. Their default is ``None``.

    For a verb with actions, such as `bench`, these are the options of all actions, or of the one named ``action_name``.
    """
    several = _actions(parser, verb)
    chosen = [several[action_name]] if several and action_name else [_verb_parser(parser, verb)]
    found: dict[str, argparse.Action] = {}
    for each in (inner for outer in chosen for inner in _with_actions(outer)):
        for name, action in _settable(actions_of(each)).items():
            found.setdefault(name, action)
    return found


def _verb_parser(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    of_verbs: Any = next(action for action in actions_of(parser) if action.dest == "verb")
    return of_verbs.choices[verb]


def _actions(parser: argparse.ArgumentParser, verb: str) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the actions of a verb, by name; empty where it has none."""
    several: Any = next((each for each in actions_of(_verb_parser(parser, verb)) if _has_actions(each)), None)
    return {} if several is None else several.choices


def _with_actions(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser of a verb or of an action, and those of the actions below it."""
    below: list[Any] = [each for each in actions_of(parser) if _has_actions(each)]
    return [parser, *(found for each in below for inner in each.choices.values() for found in _with_actions(inner))]


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
