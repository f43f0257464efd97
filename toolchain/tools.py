"""Find and run NVIDIA's command-line tools: nvcc, ptxas, cuobjdump, nvdisasm.

These places are searched for a tool, in this order. The first tool found is used.

1. the environment variable PTXMOTION_NVCC, PTXMOTION_PTXAS, PTXMOTION_CUOBJDUMP or PTXMOTION_NVDISASM;
2. NVIDIA's wheels from PyPI (`nvidia/cu13/bin` in a folder of `sys.path`);
3. an installed CUDA, 13.0 or newer: CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*, PATH;
4. the place where cuda-pathfinder finds it, of the same versions: it also searches Conda and the folders of the
   dynamic loader.

Requires: nvcc needs a C++ host compiler. No tool needs a GPU.
Guarantees: when a call returns or raises, its temporary files and child processes are gone. Calls may run in parallel,
in threads or processes. ptxas and nvcc run without the variables NVCC_*_FLAGS of the environment, so equal arguments
give equal outputs. For a module whose PTX is newer than the ptxas that is found, `find_ptxas` searches the system for a
newer one.
Refuses: an environment variable that does not name an executable is an error; the other places are not searched then.
Reference: CUDA Compiler Driver NVCC 13.0, §4.2 "NVCC Command Options" and §7.1 "PTXAS"; CUDA Binary Utilities 13.0.

Every `opt` imports this module, so the modules that only a child process needs are imported late.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arch import DEFAULT_TARGET, OLDEST
from ..cache import file_identity
from .places import executable, is_executable, system_folders, version_numbers, wheel_folders

#: An older installed CUDA is ignored.
OLDEST_CUDA = (13, 0)

#: _WHEELS[tool]: the wheel that contains it.
_WHEELS = {
    "nvcc": "nvidia-cuda-nvcc",
    "ptxas": "nvidia-cuda-nvcc",
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
}

TOOLS: tuple[str, ...] = tuple(_WHEELS)

#: Every ptxas that is taken reads this version of PTX and older ones.
OLDEST_PTX = (9, 0)

_VERSION = re.compile(r"^[ \t]*\.version[ \t]+(\d+\.\d+)", re.MULTILINE)
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(sm_(\d+)[af]?)\b", re.MULTILINE)
#: In the message of ptxas about a function of another module.
_UNRESOLVED = "Unresolved extern"
_DIAGNOSTIC = re.compile(r"^ptxas (?:(?P<file>.*), line (?P<line>\d+); )?(?P<severity>\w+)\s*: (?P<message>.*)$")


class ToolchainError(Exception):
    """The base class of the errors of this module."""


class ToolMissing(ToolchainError):
    """A tool is not on this machine. `install` is the command that installs it, or lets another one be found."""

    def __init__(self, name: str, reason: str, install: str) -> None:
        advice = "another one is searched after: " if install.startswith("unset ") else "install it with: "
        super().__init__(f"{name} not found: {reason}\n{advice}{install}")
        self.name = name
        self.reason = reason
        self.install = install


class ToolFailed(ToolchainError):
    """A tool ended with an error. `log` has its output on stderr and stdout."""

    def __init__(self, name: str, returncode: int, log: str) -> None:
        how = f"failed with status {returncode}" if returncode >= 0 else f"was ended by {_signal(-returncode)}"
        super().__init__(f"{name} {how}" + (f":\n{log.strip()}" if log.strip() else ""))
        self.name = name
        self.returncode = returncode
        self.log = log


def _signal(number: int) -> str:
    """The name of a signal."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class ToolTimeout(ToolchainError):
    """A tool was killed because it ran longer than its time limit."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"{name} was ended after {seconds:g} s")
        self.name = name
        self.seconds = seconds

    def __reduce__(self) -> tuple[type[ToolTimeout], tuple[str, float]]:
        """What pickle needs, because the message is not the argument: the error may end a task of another process."""
        return type(self), (self.name, self.seconds)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of ptxas. `severity` is `info`, `warning`, `error` or `fatal`. `line` is `None` if the message has
    none."""

    severity: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line is not None else self.message


class PtxasError(ToolFailed):
    """ptxas refused a module. `diagnostics` has the errors, with their lines in the module."""

    def __init__(self, returncode: int, log: str) -> None:
        super().__init__("ptxas", returncode, log)
        self.diagnostics = tuple(d for d in parse_diagnostics(log) if d.severity not in ("info", "warning"))


@dataclass(frozen=True, slots=True)
class Tool:
    """An executable. `source` is `environment`, `wheel` or `system`."""

    name: str
    path: Path
    source: str

    @property
    def version(self) -> str:
        """The version, such as `13.0.88`. The tool is run once for each path, which takes about 10 ms."""
        return _version_of(self.path)

    @property
    def identity(self) -> str:
        """A text that differs from that of every other tool, also of an earlier one at the same path; for keys of
        caches. For a script, it contains the version, because a script may run any program. Raises `OSError`,
        `ToolchainError`."""
        return _identity_of(self.path)


@dataclass(frozen=True, slots=True)
class Assembled:
    """The output of ptxas for a module.

    `arch` is the target for which it was assembled. If this ptxas does not support the target of the module, its oldest
    target is used instead, and `retargeted_from` is the target of the module; else it is empty. `seconds` is the wall
    time of ptxas.
    """

    cubin: bytes
    log: str
    seconds: float
    arch: str
    retargeted_from: str

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The messages in the log."""
        return parse_diagnostics(self.log)


def find_tool(name: str) -> Tool:
    """Find the tool ``name``, one of `TOOLS`.

    Raises `ToolMissing`.

    >>> find_tool("ptxas").name
    'ptxas'
    """
    variable = f"PTXMOTION_{name.upper()}"
    if configured := os.environ.get(variable):
        if is_executable(configured):
            return Tool(name, Path(configured), "environment")
        raise ToolMissing(name, f"{variable}={configured} is no executable", f"unset {variable}")
    for folder in wheel_folders():
        if path := _executable(folder, name):
            return Tool(name, path, "wheel")
    passed_over: list[str] = []
    for path in _system_paths(name):
        tool = Tool(name, path, "system")
        if version_numbers(tool.version) >= OLDEST_CUDA:
            return tool
        passed_over.append(f"{path} is of CUDA {tool.version}")
    needed = ".".join(map(str, OLDEST_CUDA))
    reason = f"{'; '.join(passed_over)}; {needed} or newer is needed" if passed_over else "no wheel, no system CUDA"
    raise ToolMissing(name, reason, f"{sys.executable} -m pip install {_requirement(name)}")


def find_ptxas(ptx: str) -> Tool:
    """The ptxas for a module: that of `find_tool` where it reads the module's PTX version, else one of the system that
    does. Raises `ToolMissing` where there is none.
    """
    first = find_tool("ptxas")
    version = _VERSION.search(ptx)
    if version is None or version_numbers(version[1]) <= OLDEST_PTX or _reads(first, version[1]):
        return first
    if first.source != "environment":
        for path in _system_paths("ptxas"):
            if _reads(tool := Tool("ptxas", path, "system"), version[1]):
                return tool
    newest = _ptx_versions_of(first.path)[-1]
    reason = f"{first.path} reads PTX up to {newest}, and the module is PTX {version[1]}"
    is_chosen = first.source == "environment"
    upgrade = f"{sys.executable} -m pip install --upgrade nvidia-cuda-nvcc"
    raise ToolMissing("ptxas", reason, "unset PTXMOTION_PTXAS" if is_chosen else upgrade)


def _reads(ptxas: Tool, version: str) -> bool:
    return version in _ptx_versions_of(ptxas.path)


def target_of(ptx: str) -> str:
    """The `sm_…` in the `.target` of a module; empty if it has none.

    >>> target_of(".version 8.0\\n.target sm_90a, debug\\n")
    'sm_90a'
    """
    match = _TARGET.search(ptx)
    return match[1] if match else ""


def supported_targets(ptxas: Tool | None = None) -> tuple[str, ...]:
    """The targets that ptxas supports, the oldest first: `sm_75`, …"""
    return _targets_of((ptxas or find_tool("ptxas")).path)


def every_target() -> list[str]:
    """The targets that a ptxas of this machine supports, the oldest first: that of `find_tool`, and those of installed
    CUDAs. Empty if there is none."""
    paths = [path for folder in system_folders() if (path := _executable(folder, "ptxas"))]
    with contextlib.suppress(ToolMissing):
        paths.insert(0, find_tool("ptxas").path)
    found: set[str] = set()
    for path in dict.fromkeys(paths):
        with contextlib.suppress(ToolFailed, ToolTimeout, OSError):  # one that does not run supports nothing
            found.update(_targets_of(path))
    return sorted(found, key=lambda target: (version_numbers(target), target))


def arch_for(ptx: str, ptxas: Tool | None = None) -> str:
    """The target that `assemble` uses by default: that of the module, or the oldest supported one."""
    match = _TARGET.search(ptx)
    if match and int(match[2]) >= OLDEST:
        return match[1]
    targets = supported_targets(ptxas)
    return match[1] if match and match[1] in targets else targets[0]


def assemble(
    ptx: str | Path,
    arch: str | None = None,
    *,
    flags: Sequence[str] = (),
    opt_level: int | None = None,
    verbose: bool = False,
    timeout: float = 600.0,
    tool: Tool | None = None,
) -> Assembled:
    """Assemble a module to a cubin. `ptx` is a text or the path of a file.

    `verbose` adds ptxas's figures for each kernel to the log. Without `opt_level`, ptxas uses level 3, or level 0 for a
    module with the target option `debug`, which it refuses to optimize. Raises `PtxasError` if ptxas refuses the
    module, `ToolTimeout` after `timeout` seconds, `ToolMissing`.

    >>> assemble(".version 8.0\\n.target sm_90\\n.address_size 64\\n.entry k() { ret; }").cubin[:4]
    b'\\x7fELF'
    """
    text = ptx.read_text(encoding="utf-8", errors="surrogateescape") if isinstance(ptx, Path) else ptx
    tool = tool or find_ptxas(text)
    chosen = arch or arch_for(text, tool)
    own = target_of(text)
    with _scratch() as folder:
        source, output = folder / "module.ptx", folder / "module.cubin"
        source.write_text(text, encoding="utf-8", errors="surrogateescape")
        level = [] if opt_level is None else [f"-O{opt_level}"]
        command = [str(tool.path), f"-arch={chosen}", *level, *(["-v"] if verbose else []), *flags]
        started = time.perf_counter()
        code, log = _run([*command, "module.ptx", "-o", "module.cubin"], folder, timeout)
        seconds = time.perf_counter() - started
        if code != 0 or not output.exists():
            raise PtxasError(code, log)
        cubin = output.read_bytes()
    return Assembled(cubin, log, seconds, chosen, own if not arch and own != chosen else "")


def assemble_whole_or_relocatable(ptx: str, arch: str | None = None, **options: Any) -> Assembled:
    """`assemble`; as relocatable code if the module calls functions of other modules, which ptxas refuses otherwise.

    The code of a kernel may then differ: ptxas does not know how many registers a function of another module needs.
    """
    try:
        return assemble(ptx, arch, **options)
    except PtxasError as error:
        if _UNRESOLVED not in error.log:
            raise
        flags = (*options.pop("flags", ()), "--compile-only")
        return assemble(ptx, arch, flags=flags, **options)


def compile_cuda(
    source: str | Path,
    arch: str = DEFAULT_TARGET,
    *,
    flags: Sequence[str] = (),
    timeout: float = 600.0,
    tool: Tool | None = None,
) -> str:
    """Compile CUDA C++ to PTX with nvcc. `source` is a text or the path of a file.

    The folder of a file is searched for its `#include "…"`. Raises `ToolFailed` with the messages of nvcc if it refuses
    the source, `ToolTimeout` after `timeout` seconds, `ToolMissing`.

    >>> ".visible .entry k()" in compile_cuda('extern "C" __global__ void k() {}')
    True
    """
    tool = tool or find_tool("nvcc")
    with _scratch() as folder:
        if isinstance(source, Path):
            origin = source.resolve()
        else:
            origin = folder / "module.cu"
            origin.write_text(source, encoding="utf-8")
        output = folder / "module.ptx"
        command = [str(tool.path), "-ptx", f"-arch={arch}", *flags, str(origin), "-o", str(output)]
        code, log = _run(command, folder, timeout)
        if code != 0 or not output.exists():
            raise ToolFailed("nvcc", code, log.replace(f"{folder}{os.sep}", ""))
        return output.read_text(encoding="utf-8", errors="surrogateescape")


def disassemble(
    cubin: bytes, *, flags: Sequence[str] = ("-c",), timeout: float = 600.0, tool: Tool | None = None
) -> str:
    """The output of nvdisasm for a cubin. The default of `flags`, `-c`, prints the code sections only. ``timeout``
    is in seconds. Raises `ToolMissing`, `ToolFailed`, `ToolTimeout`."""
    tool = tool or find_tool("nvdisasm")
    with _scratch() as folder:
        (folder / "module.cubin").write_bytes(cubin)
        code, log = _run([str(tool.path), *flags, "module.cubin"], folder, timeout)
        if code != 0:
            raise ToolFailed("nvdisasm", code, log)
        return log


def parse_diagnostics(log: str) -> tuple[Diagnostic, ...]:
    """The messages in a log of ptxas. Lines of another form are ignored.

    >>> parse_diagnostics("ptxas m.ptx, line 4; error   : Unknown symbol 'X'")
    (Diagnostic(severity='error', line=4, message="Unknown symbol 'X'"),)
    """
    matches = (_DIAGNOSTIC.match(line) for line in log.splitlines())
    return tuple(
        Diagnostic(m["severity"], int(m["line"]) if m["line"] else None, m["message"].strip()) for m in matches if m
    )


# Search for tools


def _executable(folder: str, name: str) -> Path | None:
    path = executable(folder, name)
    return Path(path) if path is not None else None


def wheel_folder() -> Path:
    """Where a wheel that is installed for this Python puts its tools, whether there is one or not."""
    import sysconfig

    return Path(sysconfig.get_path("platlib")) / "nvidia" / "cu13" / "bin"


def _system_paths(name: str) -> Iterator[Path]:
    """The places of a tool that is not in a wheel."""
    for folder in system_folders():
        if path := _executable(folder, name):
            yield path
    if path := _from_pathfinder(name):
        yield path


def _from_pathfinder(name: str) -> Path | None:
    """The path that cuda-pathfinder finds. It comes last, because its import and a search without a result take 0.1 s.
    `None` also if it is not installed, or older than 1.4.2."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:
        return None
    found = find_nvidia_binary_utility(name)
    return Path(found) if found is not None else None


def _requirement(name: str) -> str:
    """The requirement for pip. The version of nvcc and ptxas is one whose output a driver of the 580 series loads."""
    wheel = _WHEELS[name]
    if wheel != "nvidia-cuda-nvcc":
        return f"'{wheel}>=13.2,<14'"
    return " ".join(f"'{w}==13.0.*'" for w in (wheel, "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"))


@functools.cache
def _identity_of(path: Path) -> str:
    identity = file_identity(path)
    with path.open("rb") as file:
        is_program = file.read(4) == b"\x7fELF"
    return identity if is_program else f"{identity}\0{_version_of(path)}"


@functools.cache
def _version_of(path: Path) -> str:
    code, log = _run([str(path), "--version"], None, 30.0)
    match = re.search(r"\bV(\d+(?:\.\d+)+)", log) or re.search(r"\brelease (\d+(?:\.\d+)+)", log)
    if code != 0 or not match:
        raise ToolFailed(path.name, code, log)
    return match[1]


@functools.cache
def _ptx_versions_of(path: Path) -> tuple[str, ...]:
    """The PTX versions that this ptxas reads, oldest first."""
    code, log = _run([str(path), "--list-version"], None, 30.0)
    versions = re.findall(r"^(\d+\.\d+)$", log, re.MULTILINE)
    if code != 0 or not versions:
        raise ToolFailed(path.name, code, log)
    return tuple(sorted(versions, key=version_numbers))


@functools.cache
def _targets_of(path: Path) -> tuple[str, ...]:
    """The targets in the help of ptxas, as values of --gpu-name. ptxas has no option that lists them."""
    code, log = _run([str(path), "--help"], None, 30.0)
    option = log[log.find("--gpu-name") :]
    allowed = option[: option.find("Default value")]
    targets = set(re.findall(r"'(sm_\d+[af]?)'", allowed))
    if code != 0 or not targets:
        raise ToolFailed(path.name, code, log)
    return tuple(sorted(targets, key=lambda target: (version_numbers(target), target)))


# Run tools


@contextlib.contextmanager
def _scratch() -> Generator[Path]:
    """A folder that is removed at the end of the `with`."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ptxmotion-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _run(command: list[str], folder: Path | None, timeout: float) -> tuple[int, str]:
    """The exit status and the output, stderr first. The child has its own process group, so that children of nvcc can
    be killed, too."""
    import subprocess

    environment = {k: v for k, v in os.environ.items() if k not in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")}
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=timeout)
    except BaseException as why:
        _end_group(child.pid)
        child.communicate()
        if isinstance(why, subprocess.TimeoutExpired):
            raise ToolTimeout(Path(command[0]).name, timeout) from None
        raise
    return child.returncode, errors + output


def _end_group(pid: int) -> None:
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
