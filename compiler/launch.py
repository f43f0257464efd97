"""Runs nvcc so that the PTX between its steps cicc and ptxas is optimized.

This process prepares the run, and then becomes nvcc (`execve`). So arguments, outputs, exit status, messages, signals
and parallel steps are nvcc's own. Three things are prepared:

- a view of the toolkit, whose step cicc optimizes what it has written, and which names the folder of the CUDA libraries
  if the toolkit is that of NVIDIA's wheels (`toolkit_view`);
- the options that ptxas will get, from a dry run of the same command. They are in the environment variable
  `ASSEMBLIES`, which the step reads;
- the variable PTXMOTION_PTXAS, so that the gate uses the ptxas of the same toolkit.

With PTXMOTION_CONTRACT, options of the linker are added for the launch library (`launch_archive`), and the names of the
files into which the steps cicc write contracts are in the environment variable `SIBLINGS` (`host_contracts`).

The nvcc that is run is, in this order: PTXMOTION_NVCC; the first one in PATH, which a build without this tool would
use; that of NVIDIA's wheels; that of an installed CUDA.

Guarantees: where there is no view, or nvcc is a script or older than CUDA 13, or anything fails here, nvcc runs
unchanged after one warning. A command without a step cicc runs unchanged without a warning.
Alternatives that were tried. Running the steps that a dry run prints would repeat nvcc's parallel steps, its clean-up
and its messages. A ptxas that is found first would optimize neither the output of ``-ptx`` nor the PTX in executables,
and would optimize a PTX file once for each target. A search path is no way to either: nvcc puts its own folders first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..toolchain.places import executable, is_executable, path_folders, system_folders, wheel_folders
from .host_contracts import SIBLINGS, check_tuned, makes_objects, siblings_of, wants_contracts

__all__ = ["ASSEMBLIES", "NoCompiler", "encoded", "find_nvcc", "launch"]

#: The environment variable with the runs of ptxas, as a JSON list of [PTX file, target, options].
ASSEMBLIES = "PTXMOTION_ASSEMBLIES"

#: The environment variable that is set in a dry run, and what this program prints then: nvcc runs it again.
_IS_DRY_RUN = "PTXMOTION_IS_DRY_RUN"
_AGAIN = "ptxmotion: a dry run of nvcc runs ptxmotion-nvcc"

#: The most bytes of that variable. Linux allows 128 KiB.
_MOST = 100_000

#: Commands that compile nothing. nvcc takes them only as the whole option.
_ONLY_INFORMATION = frozenset(["--version", "-V", "--help", "-h", "--list-gpu-arch", "-arch-ls", "--list-gpu-code"])

_OLDEST_CUDA = 13

#: Words by which a file without a suffix of CUDA can be compiled: the language, a file with options.
_INDIRECT = ("-x", "--x", "-optf", "--options-file", "@")

#: The numbers in the name of a temporary file: of the process, and of the file among those that exist.
_TEMPORARY = re.compile(r"tmpxft_[0-9a-f]+_[0-9a-f]+-[0-9]+_")

#: A script that runs one program with its own arguments, as some installations of CUDA have it in PATH.
_ONLY_EXEC = re.compile(rb'#! */bin/(?:ba|da)?sh\s+exec +"?(/[^\s"$`\\]+)"? +"\$@"\s*')


class NoCompiler(Exception):
    """There is no nvcc that can be run; the text says what to do."""


def launch(arguments: Sequence[str], say: Callable[[str], None]) -> NoReturn:
    """Replace this process with nvcc and ``arguments``. ``say`` prints a message. Raises `NoCompiler`,
    `InvalidSetting`, and `OSError` if nvcc cannot be executed."""
    if os.environ.get(_IS_DRY_RUN):
        say(_AGAIN)
        os._exit(1)
    check_tuned()
    nvcc, has_contracts = _unwrapped(find_nvcc()), wants_contracts()
    before = dict(os.environ)
    try:
        program, added = _prepared(nvcc, arguments, has_contracts, say)
        os.execv(program, [program, *arguments, *added])
    except NoCompiler:
        raise
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        say(f"ptxmotion: warning: {nvcc} runs without the optimizer: {problem}")
        os.execve(nvcc, [nvcc, *arguments], before)


def _prepared(
    nvcc: str, arguments: Sequence[str], has_contracts: bool, say: Callable[[str], None]
) -> tuple[str, list[str]]:
    """The program that runs in place of ``nvcc``, and the arguments that it gets in addition. Sets the environment."""
    program, added = nvcc, list[str]()
    lacks_libraries = _lacks_libraries(nvcc, arguments)
    if lacks_libraries or _may_compile(arguments) or not _is_elf(nvcc):
        steps = _dry_run(nvcc, arguments)
        if steps is not None and "/cicc" in steps:
            program = _with_optimizer(nvcc, steps, arguments, say)
        elif steps is not None and lacks_libraries:
            program = _with_libraries(nvcc, steps, arguments)
        if steps is not None and has_contracts:
            added = _launch_checks(steps, say)
    return program, added


def find_nvcc() -> str:
    """The path of nvcc. Raises `NoCompiler`."""
    configured = os.environ.get("PTXMOTION_NVCC")
    if configured:
        if not is_executable(configured):
            raise NoCompiler(f"PTXMOTION_NVCC={configured} is no executable; unset it")
        return configured
    for folder in (*path_folders(), *wheel_folders(), *system_folders()):
        path = executable(folder, "nvcc")
        if path is not None and os.path.basename(os.path.realpath(path)) != "ptxmotion-nvcc":
            return path
    from ..toolchain.tools import ToolMissing, find_tool

    try:
        return str(find_tool("nvcc").path)
    except ToolMissing as error:
        raise NoCompiler(str(error)) from None


def _may_compile(arguments: Sequence[str]) -> bool:
    """Whether the command may have a step that is changed. A dry run shows this exactly, but takes 10 ms."""
    if _ONLY_INFORMATION.intersection(arguments):
        return False
    if wants_contracts():
        return True  # it may link, too
    if any(os.environ.get(f"NVCC_{where}_FLAGS") for where in ("PREPEND", "APPEND")):
        return True
    return any(word.endswith((".cu", ".ii")) or word.startswith(_INDIRECT) for word in arguments)


def _unwrapped(nvcc: str) -> str:
    """The program that a script runs which does nothing else; otherwise ``nvcc``."""
    try:
        with open(nvcc, "rb") as file:
            script = _ONLY_EXEC.fullmatch(file.read(1000))
    except OSError:
        return nvcc
    program = script[1].decode("utf-8", "surrogateescape") if script is not None else ""
    return program if program and _is_elf(program) else nvcc


def _with_optimizer(nvcc: str, steps: str, arguments: Sequence[str], say: Callable[[str], None]) -> str:
    """The path of the nvcc that optimizes; ``nvcc`` itself where that is impossible. Sets the environment."""
    from .dry_run import assemblies_of, steps_of
    from .toolkit_view import NoView, toolkit_view

    try:
        program = _program(nvcc, steps, arguments)
        view = toolkit_view(program)
    except NoView as error:
        say(f"ptxmotion: warning: {nvcc} runs without the optimizer: {error}")
        return nvcc
    if " -olto " in steps or " -lto " in steps:
        say("ptxmotion: note: with -dlto the linker compiles kernels without PTX: what it links is not optimized")
    runs = [[each.ptx, each.target, list(each.options)] for each in assemblies_of(steps_of(steps))]
    os.environ[ASSEMBLIES] = encoded(runs)
    if wants_contracts() and makes_objects(steps_of(steps)):
        text = json.dumps(siblings_of(steps_of(steps)), separators=(",", ":"))
        os.environ[SIBLINGS] = text if len(text) <= _MOST else "[]"
    ptxas = executable(os.path.dirname(program), "ptxas")
    if ptxas is not None:
        os.environ.setdefault("PTXMOTION_PTXAS", ptxas)
    return view


def _launch_checks(steps: str, say: Callable[[str], None]) -> list[str]:
    """The arguments of nvcc that link checks at the launch into the output. Empty if nothing is linked with the CUDA
    runtime. Also empty, with a warning, if the library cannot be built."""
    from .dry_run import host_linker, steps_of
    from .launch_archive import NoArchive, launch_archive, link_options

    linker = host_linker(steps_of(steps))
    if linker is None:
        return []
    try:
        options = link_options(launch_archive(linker))
    except NoArchive as error:
        say(f"ptxmotion: warning: linked without checks at the launch: {error}")
        return []
    return [word for option in options for word in ("-Xlinker", option)]


def encoded(runs: Sequence[Sequence[object]]) -> str:
    """The value of `ASSEMBLIES`. If it is too long, one run without a file name stands for all that are otherwise
    equal; it is then the run for every PTX file."""
    text = json.dumps(runs, separators=(",", ":"))
    if len(text) <= _MOST:
        return text
    unnamed = {json.dumps(["", *rest]): ["", *rest] for _, *rest in runs}
    return json.dumps(list(unnamed.values()))


def _lacks_libraries(nvcc: str, arguments: Sequence[str]) -> bool:
    """Whether the command may link, and ``nvcc`` does not find the CUDA libraries that are installed with it."""
    from .toolkit_view import missing_libraries

    if _ONLY_INFORMATION.intersection(arguments):
        return False
    return missing_libraries(os.path.dirname(os.path.abspath(nvcc))) is not None


def _with_libraries(nvcc: str, steps: str, arguments: Sequence[str]) -> str:
    """The path of an nvcc that finds its libraries, for a command that compiles no kernels; ``nvcc`` itself where there
    can be no view."""
    from .toolkit_view import NoView, toolkit_view

    try:
        return toolkit_view(_program(nvcc, steps, arguments))
    except NoView:
        return nvcc


def _program(nvcc: str, steps: str, arguments: Sequence[str]) -> str:
    """The executable for the view. ``steps`` is what ``nvcc`` prints in a dry run. It names the folder by which nvcc
    finds its headers, and so their paths in messages and in debug information. Raises `NoView` where it cannot be
    used."""
    from .toolkit_view import NoView

    if {"-noprof", "--dont-use-profile"}.intersection(arguments):
        raise NoView("--dont-use-profile is given, and the profile names the step that optimizes")
    version = re.search(r"-D__CUDACC_VER_MAJOR__=(\d+)", steps)
    if version is not None and int(version[1]) < _OLDEST_CUDA:
        raise NoView(f"it is of CUDA {version[1]}, and {_OLDEST_CUDA}.0 or newer is needed")
    here = re.search(r"^#\$ _HERE_=(.*)$", steps, re.MULTILINE)
    program = os.path.abspath(os.path.join(here[1] if here is not None else "", "nvcc"))
    if not _is_elf(nvcc) and not (_is_elf(program) and _are_same_steps(steps, _dry_run(program, arguments))):
        raise NoView("it is a script that does more than to run an nvcc; name that nvcc in PTXMOTION_NVCC")
    return program


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _are_same_steps(one: str, other: str | None) -> bool:
    """Whether two dry runs print the same commands, except for names of temporary files."""
    from .dry_run import steps_of

    def steps(output: str) -> str:
        return _TEMPORARY.sub("", repr(steps_of(output)))

    return other is not None and steps(one) == steps(other)


def _dry_run(nvcc: str, arguments: Sequence[str]) -> str | None:
    """What nvcc prints with ``--dryrun``; `None` where it refuses the arguments. Raises `NoCompiler` for a script that
    runs this program."""
    read, write = os.pipe()
    child = os.posix_spawn(
        nvcc,
        [nvcc, "--dryrun", *arguments],
        {**os.environ, _IS_DRY_RUN: "1"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, write, 1),
            (os.POSIX_SPAWN_DUP2, write, 2),
            (os.POSIX_SPAWN_CLOSE, read),
        ],
    )
    os.close(write)
    with open(read, "rb") as output:
        text = output.read().decode("utf-8", "surrogateescape")
    _, status = os.waitpid(child, 0)
    if _AGAIN in text:
        raise NoCompiler(f"{nvcc} runs ptxmotion-nvcc again: name NVIDIA's nvcc in PTXMOTION_NVCC")
    return text if status == 0 else None
