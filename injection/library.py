"""The C libraries (`ptxmotion_inject.c` with the files beside it, and `kernel_times.c`), and the environment of a
program that loads the first one.

The wheel and `make` build them beside this file where there is a C compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ..cache import cache_folder, source_identity
from ..python_child import FOLDER

__all__ = ["NoLibrary", "environment", "find_library"]

#: The dynamic linker splits LD_PRELOAD at these characters, and there is no way to quote them.
_SEPARATORS = ": "

#: The variables by which Triton finds ptxas. The second one is for sm_90 and newer, in versions that have it.
_TRITON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")

#: Variables of Triton and of PyTorch that name a folder for compiled kernels, and its name in our cache.
_CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "torchinductor"}


class NoLibrary(Exception):
    """The library was not built; the text says what to do."""


def find_library(name: str = "_inject") -> str:
    """The path of a library in this folder: ``_inject`` for `ptxmotion run`, ``_times`` for `ptxmotion times`. Raises
    `NoLibrary`."""
    here = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = here / f"{name}{suffix}"
        if path.is_file():
            return str(path)
    advice = f"install a C compiler, and in the checkout: {sys.executable} -m pip install --force-reinstall --no-deps ."
    needs = "it is built when ptxmotion is installed where there is a C compiler, on Linux on x86-64 with glibc"
    verb = {"_inject": "run", "_times": "times"}[name]
    raise NoLibrary(f"the library for `ptxmotion {verb}` was not built: {needs}\n{advice}")


def environment(library: str, folder: str) -> dict[str, str]:
    """The variables of a program that loads ``library``, in addition to or instead of those of this process.
    ``folder`` has the socket and the log of this run."""
    if set(library) & set(_SEPARATORS):
        link = os.path.join(folder, "inject.so")
        os.symlink(library, link)
        library = link
    preloaded = [library, *filter(None, [os.environ.get("LD_PRELOAD")])]
    return {
        "LD_PRELOAD": ":".join(preloaded),
        "PTXMOTION_RUN": folder,
        "PTXMOTION_LOG": os.path.join(folder, "log"),
        **_of_triton(os.environ),
    }


def _of_triton(given: Mapping[str, str]) -> dict[str, str]:
    """The variables for Triton, and so for torch.compile, which run ptxas themselves. What the user has set stays.

    The keys of Triton's cache do not contain the settings of the optimizer, so the kernels get a cache of their own.
    """
    ptxas = _own_program("ptxmotion-ptxas")
    if ptxas is None or any(name in given for name in _TRITON):
        return {}
    names = ("FLAGS", "ONLY", "SKIP", "PTXAS")
    settings = repr([given.get(f"PTXMOTION_{name}") for name in names])
    folders = (".", "analysis", "compiler", "ptx", "toolchain", "transforms")
    key = hashlib.sha256(f"{settings}\0{source_identity(FOLDER, folders)}".encode()).hexdigest()[:16]
    parent = cache_folder()
    caches = {} if parent is None else {name: str(parent / "run" / key / each) for name, each in _CACHES.items()}
    return {**dict.fromkeys(_TRITON, ptxas), **{name: path for name, path in caches.items() if name not in given}}


def _own_program(name: str) -> str | None:
    """The path of a program of this installation; it is beside Python, or in PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name)
