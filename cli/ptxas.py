"""The program `ptxmotion-ptxas`: ptxas, which optimizes its PTX first.

It is for programs that run ptxas themselves and let the user choose which, such as Triton (`TRITON_PTXAS_PATH`). The
arguments, the output and the exit status are those of ptxas; settings are the environment variables of
`compiler.build_step`.

Guarantees: if the optimizer fails, or ptxas refuses its output, ptxas runs with the file that it was given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .outcome import MISSING, CommandError, guarded

__all__ = ["main"]


def main() -> int:
    """The program; its exit status."""
    return guarded(["ptxas", *sys.argv[1:]], lambda argv: run_ptxas(argv[1:]))


def run_ptxas(arguments: Sequence[str]) -> int:
    """Optimize the input of ptxas and run it. Raises `CommandError`."""
    import subprocess
    import tempfile

    from ..compiler.build_step import BuildStep
    from ..compiler.dry_run import assembly_of
    from .ptx_step import run_step

    ptxas = _found()
    inputs = [word for word in arguments if word.endswith(".ptx") and os.path.isfile(word)]
    if len(inputs) != 1 or {"-g", "--device-debug"}.intersection(arguments):
        _become(ptxas, arguments)
    (path,) = inputs
    run = assembly_of(arguments, path)
    os.environ.setdefault("PTXMOTION_PTXAS", ptxas)
    changed: list[str] = []
    status = run_step(BuildStep(path, [(run.target, run.options)]), path, changed.append)
    if status:
        return status
    if not changed:
        _become(ptxas, arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="ptxmotion-") as folder:
            other = os.path.join(folder, os.path.basename(path))
            with open(other, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(changed[0])
            command = [ptxas, *(other if word == path else word for word in arguments)]
            done = subprocess.run(command, capture_output=True)
    except OSError:  # a full disk, for example
        _become(ptxas, arguments)
    if done.returncode:
        _become(ptxas, arguments)
    for stream, text in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
        stream.buffer.write(text.replace(os.fsencode(other), os.fsencode(path)))
        stream.flush()
    return 0


def _found() -> str:
    """The path of ptxas."""
    from ..toolchain.tools import ToolMissing, find_tool

    try:
        path = str(find_tool("ptxas").path)
    except ToolMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: {error}") from None
    if os.path.basename(os.path.realpath(path)) == "ptxmotion-ptxas":
        problem = "PTXMOTION_PTXAS names this program; it must name NVIDIA's ptxas"
        raise CommandError(MISSING, f"ptxmotion: error: {problem}")
    return path


def _become(ptxas: str, arguments: Sequence[str]) -> NoReturn:
    os.execv(ptxas, [ptxas, *arguments])
