"""Command lines of Python processes that run this package, and no module from the current folder.

``python -c`` and ``python -m`` put the current folder first in the search path of imports: a file ``numpy.py`` or a
folder ``ptxmotion`` there would be executed. So every child process of this package is started with the command lines
of this module: with ``-P``, which leaves the current folder out, and a few lines of code that import the package from
the folder from which this process has imported it. So it does not matter how the package was installed.

Guarantees: a child imports the same package as its parent, and everything else from the absolute folders of its
parent's `sys.path`. An empty entry there, which stands for the current folder, is left out.
Reference: Python's manual, *Command line and environment*, ``-P`` and ``PYTHONSAFEPATH``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

__all__ = [
    "FOLDER",
    "child_environment",
    "import_paths",
    "isolated_command",
    "module_command",
    "process_pool",
    "python_command",
]

#: The name of the package, and the folder from which this process imports it.
PACKAGE = __name__.partition(".")[0]
FOLDER = os.path.dirname(os.path.abspath(__file__))

_IMPORT = """\
import sys, importlib.util as util
spec = util.spec_from_file_location({name!r}, {file!r}, submodule_search_locations=[{folder!r}])
sys.modules[{name!r}] = made = util.module_from_spec(spec)
spec.loader.exec_module(made)
"""


def python_command(code: str, *arguments: str, folder: str = FOLDER) -> list[str]:
    """The command line of a Python process that runs ``code`` with the package in ``folder``: that of this process, or
    another version. ``arguments`` are its ``sys.argv[1:]``. The process needs `child_environment`."""
    file = os.path.join(folder, "__init__.py")
    return [sys.executable, "-P", "-c", _IMPORT.format(name=PACKAGE, file=file, folder=folder) + code, *arguments]


def isolated_command(code: str) -> list[str]:
    """The command line of a process that runs ``code`` with this package, without reading the environment and without
    the module `site`, which takes longer than the rest of a start. The folders of imports are those of this process."""
    search = f"import sys; sys.path += [each for each in {import_paths()!r} if each not in sys.path]\n"
    file = os.path.join(FOLDER, "__init__.py")
    imported = _IMPORT.format(name=PACKAGE, file=file, folder=FOLDER)
    return [sys.executable, "-I", "-S", "-c", f"{search}{imported}{code}"]


def module_command(*arguments: str, folder: str = FOLDER) -> list[str]:
    """The command line of a process that runs the command ``ptxmotion``."""
    code = f"import runpy; runpy.run_module({PACKAGE!r}, run_name='__main__', alter_sys=True)"
    return python_command(code, *arguments, folder=folder)


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child process, which can import from the same folders; ``extra`` is added to it."""
    paths = {"PYTHONPATH": os.pathsep.join(import_paths()), "PYTHONSAFEPATH": "1"}
    return {**os.environ, **paths, **(extra or {})}


def import_paths() -> list[str]:
    """The folders from which this process imports, except for relative ones, which depend on the current folder."""
    return [entry for entry in sys.path if os.path.isabs(entry)]


def process_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of forked processes. Processes of ``spawn`` and ``forkserver`` would import from the current folder. They
    end soon after this process, also if it is killed."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(workers, get_context("fork"), _end_after, (os.getpid(),))


def _end_after(parent: int) -> None:
    """End this process when ``parent`` has ended. A worker of a pool would wait for its next task forever."""
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
