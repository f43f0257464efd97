"""The steps of a compilation, as `nvcc --dryrun` prints them.

Each line of a step is ``#$`` and a command for the shell. A step cicc writes a PTX file, which steps ptxas read. This
module finds for each PTX file the targets and options of ptxas, which the gate needs: `-maxrregcount`, `-Xptxas` and
`--compile-only` change what ptxas makes of a kernel.

The names of temporary files contain a number of the process. Nothing else in them differs between a dry run and the run
that follows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Assembly", "assemblies_of", "assembly_of", "host_linker", "is_same_file", "steps_of"]

_PROCESS = re.compile(r"tmpxft_[0-9a-f]+_")
#: A word of the shell where nothing is quoted but by a pair of ".
_WORD = re.compile(r'(?:[^ \t\r\n"]|"[^"]*")+')
_REDIRECTION = re.compile(r"\d?>")

#: Options of the host compiler that say for which machine it compiles.
_OF_MACHINE = re.compile(r"-m(32|64)|--target=.*|--sysroot=.*")

#: Options of ptxas that change neither the code nor what ptxas refuses.
_WITHOUT_EFFECT = re.compile(r"-v|--verbose|-m64|--machine=64|-lineinfo|--generate-line-info")

#: Options of ptxas whose value may be the next word, and which name a file or a target.
_WITH_VALUE = ("-o", "--output-file", "-arch", "--gpu-name")


class Assembly(NamedTuple):
    """A run of ptxas over ``ptx``: the path of its input, the target, and the options that may change the code."""

    ptx: str
    target: str
    options: tuple[str, ...]


def steps_of(output: str) -> list[list[str]]:
    """The words of each command in the output of a dry run, without redirections. What is no command for the shell,
    such as the definitions of variables, is left out.

    >>> steps_of('#$ TOP=/usr\\n#$ ptxas -arch=sm_90 "a b.ptx" -o "a.cubin"  > /tmp/log')
    [['ptxas', '-arch=sm_90', 'a b.ptx', '-o', 'a.cubin']]
    """
    steps: list[list[str]] = []
    for line in output.splitlines():
        command = line.removeprefix("#$ ")
        if command == line or re.match(r"\w+=", command):
            continue
        words = _words(command)
        end = next((at for at, word in enumerate(words) if _REDIRECTION.match(word)), len(words))
        if words[:end]:
            steps.append(words[:end])
    return steps


def _words(command: str) -> list[str]:
    """The words of a command; none if a quotation mark is not closed. `shlex` takes milliseconds for a long line.

    >>> _words('cicc "-o" "a b"c ""'), _words('echo "a'), _words(r'echo "a\\"b"')
    (['cicc', '-o', 'a bc', ''], [], ['echo', 'a"b'])
    >>> _words("a\\u00a0b c")  # the shell knows no other spaces
    ['a\xa0b', 'c']
    """
    if "\\" not in command and "'" not in command and command.count('"') % 2 == 0:
        return [word.replace('"', "") for word in _WORD.findall(command)]
    import shlex

    try:
        return shlex.split(command)
    except ValueError:
        return []


def assemblies_of(steps: list[list[str]]) -> list[Assembly]:
    """The runs of ptxas among the steps whose input is the output of a step cicc, in order."""
    written = {words[words.index("-o") + 1] for words in steps if _is_program(words, "cicc") and "-o" in words[:-1]}
    found: list[Assembly] = []
    for words in steps:
        if _is_program(words, "ptxas"):
            found += [assembly_of(words[1:], name) for name in words[1:] if name in written]
    return found


def host_linker(steps: list[list[str]]) -> list[str] | None:
    """The host compiler that links with the CUDA runtime, and its options for the machine; `None` without such a
    step."""
    for words in steps:
        if "-Wl,--start-group" in words and not {"-lcudart", "-lcudart_static"}.isdisjoint(words):
            return [words[0], *filter(_OF_MACHINE.fullmatch, words[1:])]
    return None


def _is_program(words: list[str], name: str) -> bool:
    return os.path.basename(words[0]) == name


def assembly_of(words: Sequence[str], ptx: str) -> Assembly:
    """The run of ptxas with the arguments ``words``, of which ``ptx`` is the input."""
    target = ""
    options: list[str] = []
    rest = iter(word for word in words if word != ptx)
    for word in rest:
        name, equals, value = word.partition("=")
        if name in _WITH_VALUE:
            value = value if equals else next(rest, "")
            target = value if name in ("-arch", "--gpu-name") else target
        elif not _WITHOUT_EFFECT.fullmatch(name):
            options.append(word)
    return Assembly(ptx, target, tuple(options))


def is_same_file(one: str, other: str) -> bool:
    """Whether two runs of nvcc with the same arguments mean the same file by these paths.

    >>> is_same_file("/tmp/tmpxft_00000c4_00000000-6_a.ptx", "/tmp/tmpxft_0001f21_00000000-6_a.ptx")
    True
    """
    return _PROCESS.sub("", one) == _PROCESS.sub("", other)
