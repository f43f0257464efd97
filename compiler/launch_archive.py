"""The archive that is linked into programs whose launches are checked, and the options of the linker for it.

The archive has the C launch library, and for each function of the CUDA runtime in `WRAPPED` a member that takes its
place (``--wrap=NAME``). It is compiled with the host compiler of the build, once, into the folder of the cache.

Guarantees: a path that is returned names a complete archive, also if several processes build it at the same time. Its
name is a hash of the sources, the compiler and its options.
Refuses: with `NoArchive`, where it cannot be built.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from ..cache import file_identity
from ..python_child import FOLDER
from ..toolchain.places import executable, is_executable, path_folders
from .toolkit_view import own_folder, private_folders

__all__ = ["WRAPPED", "NoArchive", "launch_archive", "link_options"]

#: The functions of the CUDA runtime that launch kernels, register them, or use them in another way; and those of the
#: driver that set attributes.
WRAPPED = (
    "__cudaRegisterFunction",
    "__cudaGetKernel",
    "__cudaLaunchKernel",
    "__cudaLaunchKernel_ptsz",
    "cudaLaunchKernel",
    "cudaLaunchKernel_ptsz",
    "cudaLaunchKernelExC",
    "cudaLaunchKernelExC_ptsz",
    "cudaLaunchCooperativeKernel",
    "cudaLaunchCooperativeKernel_ptsz",
    "cudaFuncGetAttributes",
    "cudaFuncSetCacheConfig",
    "cudaGetFuncBySymbol",
    "cudaFuncSetAttribute",
    "cudaKernelSetAttributeForDevice",
    "cuFuncSetAttribute",
    "cuKernelSetAttribute",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cudaOccupancyAvailableDynamicSMemPerBlock",
    "cudaOccupancyMaxPotentialClusterSize",
    "cudaOccupancyMaxActiveClusters",
)

_SOURCES = ("ptxmotion_launch.h", "ptxmotion_launch.c", "ptxmotion_cudart.h", "ptxmotion_cudart.c", "ptxmotion_wrap.c")
_FLAGS = ("-x", "c", "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-c")


class NoArchive(Exception):
    """The archive cannot be built; the text says why."""


def link_options(archive: str) -> list[str]:
    """The options of the linker, without ``-Wl`` or ``-Xlinker``. Those behind the archive are what it needs.

    The archive is not named by its path: CMake takes a path on nvcc's link line for a library of the compiler, and
    keeps it in its files."""
    folder, name = os.path.split(archive)
    named = [f"--library-path={folder}", f"--library=:{name}"]
    return [*(f"--wrap={name}" for name in WRAPPED), *named, "-ldl", "-lpthread"]


def launch_archive(compiler: Sequence[str]) -> str:
    """The path of the archive, compiled with ``compiler``: a program of gcc or clang, and options of the machine such
    as ``-m64``. Raises `NoArchive`."""
    program = _found(compiler[0])
    if program is None:
        raise NoArchive(f"{compiler[0]} is missing")
    problem = "there is no home folder and no folder for temporary files"
    try:
        name = _digest([program, *compiler[1:]])
    except OSError as error:
        raise NoArchive(f"{error.filename}: {error.strerror}") from None
    for folder in private_folders("launch"):
        path = os.path.join(folder, f"libptxmotion-{name}.a")
        if "," in path or any(each.isspace() for each in path):
            problem = f"{path}: a path with a comma or a blank cannot be given to the linker"
            continue
        try:
            own_folder(folder)
            if not os.path.isfile(path):
                _build([program, *compiler[1:]], path)
            return path
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
        except NoArchive as error:  # for example because the disk of this folder is full
            problem = str(error)
    raise NoArchive(problem)


def _found(compiler: str) -> str | None:
    """The path of a program that is named as in a command of the shell."""
    if os.path.dirname(compiler):
        return compiler if is_executable(compiler) else None
    return next((path for folder in path_folders() if (path := executable(folder, compiler)) is not None), None)


def _digest(compiler: Sequence[str]) -> str:
    hash = hashlib.sha256(repr((compiler, file_identity(compiler[0]), _FLAGS, WRAPPED)).encode())
    for source in _SOURCES:
        with open(_source(source), "rb") as file:
            hash.update(hashlib.sha256(file.read()).digest())
    return hash.hexdigest()[:16]


def _source(name: str) -> str:
    return os.path.join(FOLDER, "runtime", name)


def _build(compiler: Sequence[str], path: str) -> None:
    """Compile the archive, and rename it to ``path``. Raises `OSError`, `NoArchive`."""
    import tempfile

    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as work:
        objects = [_compiled(compiler, f"ptxmotion_{name}", work, ()) for name in ("launch", "cudart")]
        objects += [_compiled(compiler, "ptxmotion_wrap", work, (f"-DPTXMOTION_{name}",)) for name in WRAPPED]
        archive = os.path.join(work, "archive.a")
        _run(["ar", "rcs", archive, *objects])
        os.replace(archive, path)


def _compiled(compiler: Sequence[str], name: str, work: str, defines: Sequence[str]) -> str:
    """The path of an object in the folder ``work``."""
    output = os.path.join(work, f"{name}{''.join(defines)}.o")
    _run([*compiler, *_FLAGS, *defines, _source(f"{name}.c"), "-o", output])
    return output


def _run(command: Sequence[str]) -> None:
    import subprocess

    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        raise NoArchive(f"{command[0]} is missing") from None
    if done.returncode:
        reason = " ".join(done.stderr.split())[-300:]
        raise NoArchive(f"{os.path.basename(command[0])} cannot compile the launch library: {reason}")
