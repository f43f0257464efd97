"""A folder that looks like nvcc's own, but whose step cicc also optimizes the PTX that it has written.

nvcc reads `nvcc.profile` in the folder of the path by which it is started. This file names the folder of cicc, and the
folders of the headers, the libraries and the other programs. So the view consists of

- ``bin/``: a symbolic link to every file of nvcc's folder, and a profile whose text is that of the original, with the
  original folder in place of ``$(_HERE_)`` and the view's folder in each ``CICC…_PATH``;
- in the profile, also the folder ``lib`` of the toolkit, where the profile names only folders of libraries that do not
  exist. So it is with NVIDIA's wheels: their nvcc does not find the CUDA runtime that is installed with it;
- ``steps/NAME/cicc`` for each ``CICC…_PATH``: a shell script, which runs the original cicc, and then the optimizer.

The script has the exit status of cicc, whatever becomes of the optimizer. So an optimizer that is killed cannot make a
build fail. For the same reason the script empties the file for contracts that objects include (`host_contracts`).

Requires: Linux, and nvcc's own executable, not a script around it.
Guarantees: a view that is returned is complete, also if several processes make it at the same time, and belongs to the
user. Its name is a hash of everything that its files contain.
Refuses: with `NoView`, a toolkit whose profile names no folder of cicc, and a machine where no folder can be written.
Reference: CUDA Compiler Driver NVCC 13.0, §2.7.3 "nvcc.profile".
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

from ..cache import cache_path
from ..python_child import isolated_command

__all__ = ["NoView", "missing_libraries", "own_folder", "private_folders", "toolkit_view"]

#: The definition of a folder of cicc: `CICC_PATH = …`, and in some versions `CICC_NEXT_PATH = …`.
_FOLDER_OF_CICC = re.compile(r"^(?P<name>CICC\w*_PATH)[ \t]*=[ \t]*(?P<folder>.*?)[ \t]*$", re.MULTILINE)
_FOLDERS_OF_LIBRARIES = re.compile(r"^LIBRARIES[ \t]*=\+[ \t]*(?P<options>.*?)[ \t]*$", re.MULTILINE)
_FOLDER_OPTION = re.compile(r'"-L([^"]*)"')
_DEFINITION = re.compile(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_REFERENCE = re.compile(r"\$\((\w+)\)")

_SCRIPT = """\
#!/bin/sh
{cicc} "$@"
status=$?
[ $status -gt 128 ] && kill -$((status - 128)) $$
[ $status -ne 0 ] && exit $status
if [ -n "$PTXMOTION_SIBLINGS" ]; then
  before=
  for word do
    [ "$before" = --gen_c_file_name ] && [ -f "$word" ] && printf "" 2>/dev/null > "$word"
    before=$word
  done
fi
{optimizer} "$@"
exit 0
"""

_OPTIMIZER = "from {package}.cli.ptx_step import main; sys.exit(main(sys.argv[1:]))\n"


#: What nvcc defines before it reads the profile, on a machine with 64 bits for which it also compiles.
_OWN_DEFINITIONS = {"_SPACE_": " ", "_TARGET_SIZE_": "64", "_TARGET_DIR_": ""}


class NoView(Exception):
    """There can be no view of this toolkit; the text says why."""


def toolkit_view(nvcc: str) -> str:
    """The path of nvcc in the view of its toolkit, which is made if it does not exist. ``nvcc`` is an absolute path.
    Raises `NoView`."""
    folder = os.path.dirname(nvcc)
    try:
        files = _files(folder)
        links = {name: os.path.join(folder, name) for name in os.listdir(folder) if name != "nvcc.profile"}
    except OSError as error:
        raise NoView(f"{error.filename}: {error.strerror}") from None
    name = hashlib.sha256(repr((sorted(files.items()), sorted(links.items()))).encode()).hexdigest()[:16]
    problem = "there is no home folder and no folder for temporary files"
    for parent in private_folders("toolkits"):
        try:
            return _made(os.path.join(own_folder(parent), name), files, links)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}"
    raise NoView(problem)


def missing_libraries(folder: str) -> str | None:
    """The folder of the CUDA libraries beside nvcc's ``folder``, if no folder of libraries that the profile there names
    exists. `None` also where there is no profile that can be read."""
    try:
        with open(os.path.join(folder, "nvcc.profile"), encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        values = _values(text, folder)
        match = _FOLDERS_OF_LIBRARIES.search(text)
        named = [_expanded(each, values) for each in _FOLDER_OPTION.findall(match["options"])] if match else []
    except (OSError, NoView):
        return None
    libraries = os.path.join(os.path.dirname(folder), "lib")
    if not named or any(map(os.path.isdir, named)):
        return None
    return libraries if os.path.isfile(os.path.join(libraries, "libcudart_static.a")) else None


def private_folders(kind: str) -> list[str]:
    """The folders in which files of a kind may be, the preferred one first. `own_folder` makes them."""
    cache = cache_path()
    inside = [os.path.join(cache, kind)] if cache is not None else []
    return [*inside, os.path.join(os.environ.get("TMPDIR") or "/tmp", f"ptxmotion-nvcc-{kind}-{os.getuid()}")]


def own_folder(parent: str) -> str:
    """The path ``parent``, if only this user can write to it. Raises `OSError`."""
    os.makedirs(parent, mode=0o700, exist_ok=True)
    status = os.lstat(parent)
    if not os.path.isdir(parent) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(1, "it is not a folder that only its owner can write to, or the owner is another", parent)
    return parent


def _made(view: str, files: dict[str, str], links: dict[str, str]) -> str:
    """The path of nvcc in ``view``, which exists completely on return. Raises `OSError`."""
    if not _is_complete(view, files, links):
        new = f"{view}.{os.getpid()}"
        try:
            _write(new, files, links)
            if os.path.lexists(view):  # a program that removes old files may have removed some of them
                os.rename(view, f"{new}.old")
            with contextlib.suppress(FileExistsError):
                _rename_to_absent(new, view)
        finally:
            _remove(new)
            _remove(f"{new}.old")
        if not _is_complete(view, files, links):
            raise OSError(5, "another program changes the folder", view)
    return os.path.join(view, "bin", "nvcc")


def _rename_to_absent(new: str, view: str) -> None:
    """Raises `FileExistsError` if another process has made the view."""
    try:
        os.rename(new, view)
    except OSError as error:
        if os.path.isdir(view):
            raise FileExistsError(error.errno, error.strerror, view) from error
        raise


def _is_complete(view: str, files: dict[str, str], links: dict[str, str]) -> bool:
    names = [*files, *(os.path.join("bin", name) for name in links)]
    return all(os.path.lexists(os.path.join(view, name)) for name in names)


def _write(new: str, files: dict[str, str], links: dict[str, str]) -> None:
    os.makedirs(os.path.join(new, "bin"), mode=0o700)
    for name, target in links.items():
        os.symlink(target, os.path.join(new, "bin", name))
    for name, text in files.items():
        path = os.path.join(new, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.chmod(path, 0o700)


def _remove(folder: str) -> None:
    """Remove a folder that this process has made or moved. What cannot be removed stays; its name is unique."""
    for path, folders, names in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            for name in names:
                os.unlink(os.path.join(path, name))
            for name in folders:
                each = os.path.join(path, name)
                (os.unlink if os.path.islink(each) else os.rmdir)(each)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _files(folder: str) -> dict[str, str]:
    """The profile and the scripts of the view of nvcc's ``folder``: path → text. Raises `OSError`, `NoView`.

    A script contains its own path nowhere, so that the name of the view can be a hash of the texts. The profile names
    the folders of the scripts relative to the folder of the profile, which nvcc knows as ``$(_HERE_)``.
    """
    profile = os.path.join(folder, "nvcc.profile")
    with open(profile, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    values = _values(text, folder)
    optimizer = _quoted(isolated_command(_OPTIMIZER.format(package=__name__.partition(".")[0])))
    files: dict[str, str] = {}
    for match in _FOLDER_OF_CICC.finditer(text):
        cicc = os.path.join(_expanded(match["folder"], values), "cicc")
        if os.access(cicc, os.X_OK):
            script = _SCRIPT.format(cicc=_quoted([cicc]), optimizer=optimizer)
            files[os.path.join("steps", match["name"], "cicc")] = script
    if not files:
        raise NoView(f"{profile} does not name the folder of cicc")
    files[os.path.join("bin", "nvcc.profile")] = _profile(text, folder, files)
    return files


def _values(text: str, folder: str) -> dict[str, str]:
    """The definitions that hold in a profile of nvcc's ``folder``: name → value. ``text`` is that of the profile."""
    return {**_OWN_DEFINITIONS, **dict(_DEFINITION.findall(text)), "_HERE_": folder}


def _profile(text: str, folder: str, files: dict[str, str]) -> str:
    """The profile of the view. ``files`` has the scripts."""
    here = text.replace("$(_HERE_)", folder)

    def in_view(match: re.Match[str]) -> str:
        name = os.path.join("steps", match["name"])
        return f"{match['name']} = $(_HERE_)/../{name}" if os.path.join(name, "cicc") in files else match[0]

    libraries = missing_libraries(folder)
    if libraries is not None:
        here = _FOLDERS_OF_LIBRARIES.sub(lambda match: f'{match[0]} "-L{libraries}"', here)
    return _FOLDER_OF_CICC.sub(in_view, here)


def _expanded(text: str, values: dict[str, str], depth: int = 8) -> str:
    """``text`` with the definitions of the profile in place of references. Raises `NoView` for unknown names."""
    if not depth:
        raise NoView("a definition in nvcc.profile refers to itself")

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise NoView(f"nvcc.profile does not define {match[1]}")
        return _expanded(values[match[1]], values, depth - 1)

    return _REFERENCE.sub(value, text)


def _quoted(words: list[str]) -> str:
    """A command for the shell."""
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
