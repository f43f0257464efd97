"""Checks that this machine has everything that ptxmotion needs, and says how to install what is missing.

Guarantees: something missing or broken is reported and never raises; the GPU is only queried. A failed check that is
`needed` gives the exit code 4. A failed check that is not needed is a note: without a GPU everything works but timing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Any, Protocol

from ..cache import usage
from ..spelling import did_you_mean
from ..toolchain.driver_version import OLDEST_DRIVER, cuda_version, version_text
from ..toolchain.tools import (
    TOOLS,
    ToolchainError,
    ToolFailed,
    ToolMissing,
    compile_cuda,
    find_tool,
    supported_targets,
)

#: The exit code for something missing in the environment.
MISSING = 4

OLDEST_PYTHON = (3, 11)

#: The variables of the environment that a user can set.
VARIABLES = (
    *(f"PTXMOTION_{name.upper()}" for name in TOOLS),
    "PTXMOTION_CACHE",
    "PTXMOTION_COMMIT",
    "PTXMOTION_CONTRACT",
    "PTXMOTION_FLAGS",
    "PTXMOTION_LAUNCH",
    "PTXMOTION_LOG",
    "PTXMOTION_ONLY",
    "PTXMOTION_SCREENSHOTS",
    "PTXMOTION_SECONDS",
    "PTXMOTION_SKIP",
    "PTXMOTION_TUNED",
    "PTXMOTION_VERBOSE",
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `fix` says what to do if it is not `ok`; otherwise it is empty."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


class Writer(Protocol):
    """The output stream of `run`."""

    def write(self, text: str, /) -> object: ...


def collect() -> list[Check]:
    """All checks, the most important first."""
    return [_python(), *map(_tool, TOOLS), _host_compiler(), _scratch_folder(), _cache(), *_environment(), *_gpu()]


def run(out: Writer, json: bool = False, more: Sequence[Check] = ()) -> int:
    """Write all checks and ``more``, as text or JSON; the exit code: 0, or 4 if a needed check failed."""
    checks = [*collect(), *more]
    if json:
        from json import dumps

        out.write(dumps({"checks": [asdict(check) for check in checks]}, indent=2) + "\n")
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok  " if check.ok else "FAIL" if check.needed else "note"
            out.write(f"{mark}  {check.name:{width}}  {check.detail}\n")
            if check.fix:
                out.write(f"{'':{width + 8}}{check.fix}\n")
    return 0 if all(check.ok or not check.needed for check in checks) else MISSING


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= OLDEST_PYTHON
    needed = ".".join(map(str, OLDEST_PYTHON))
    return Check("python", ok, f"{version}  {sys.executable}", "" if ok else f"install Python {needed} or newer")


def _tool(name: str) -> Check:
    # These two only print machine code and extract it from executables. Nothing else needs them.
    needed = name not in ("cuobjdump", "nvdisasm")
    try:
        tool = find_tool(name)
        detail = f"{tool.version}  {tool.path}  ({tool.source})"
        if name == "ptxas":
            targets = supported_targets(tool)
            detail += f"  {targets[0]} to {targets[-1]}"
    except ToolMissing as missing:
        return Check(name, False, missing.reason, missing.install, needed)
    except (ToolchainError, OSError) as broken:
        return Check(name, False, f"does not run: {str(broken).splitlines()[0]}", f"reinstall {name}", needed)
    return Check(name, True, detail, needed=needed)


def _host_compiler() -> Check:
    """nvcc runs g++ as its preprocessor, or the compiler that NVCC_CCBIN names. An empty kernel is compiled, because
    nvcc refuses compilers and C libraries that are newer than it knows."""
    wanted = os.environ.get("NVCC_CCBIN") or "g++"
    path = shutil.which(wanted)
    if not path:
        fix = "on Debian and Ubuntu: sudo apt install g++; or set NVCC_CCBIN"
        lack = f"no {wanted}: nvcc cannot compile CUDA C++ without it; PTX input works"
        return Check("host compiler", False, lack, fix, False)
    if reason := _refusal_of_nvcc():
        fix = (
            "nvcc 13.0 needs g++ 6 to 15 and glibc 2.41 or older. For another g++: sudo apt install g++-14, and set "
            "NVCC_CCBIN=g++-14. PTX input works"
        )
        return Check("host compiler", False, f"{path}: nvcc cannot compile with it: {reason}", fix, False)
    return Check("host compiler", True, path, needed=False)


def _refusal_of_nvcc() -> str:
    """The first error of nvcc for an empty kernel; empty if there is none, or no nvcc that runs."""
    try:
        compile_cuda("__global__ void empty() {}", tool=find_tool("nvcc"), timeout=60.0)
    except ToolFailed as failed:
        errors = [line.partition("error")[2] for line in failed.log.splitlines() if "error" in line]
        words = errors[0].lstrip(":# -").removeprefix("error -- ") if errors else f"status {failed.returncode}"
        return shorten(words, 120, placeholder=" …")
    except (ToolchainError, OSError):
        return ""
    return ""


def _scratch_folder() -> Check:
    folder = ""
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("temporary files", False, f"{folder or 'no folder'}: {error}", "set TMPDIR to a writable folder")
    return Check("temporary files", True, f"{folder}, {free / 2**30:.1f} GiB free")


def _cache() -> Check:
    cache = usage()
    if cache.problem:
        fix = "set PTXMOTION_CACHE to a writable folder; without a cache, nothing is reused"
        return Check("cache", False, cache.problem, fix, False)
    return Check("cache", True, f"{cache.folder}, {cache.entries} files, {cache.bytes / 2**20:.1f} MiB", needed=False)


def _environment() -> Iterator[Check]:
    """The settings of the environment. A misspelled one has no effect, which nothing else reports."""
    names = sorted(name for name in os.environ if name.startswith("PTXMOTION_"))
    for name in names:
        if name in VARIABLES:
            yield Check("environment", True, f"{name}={os.environ[name]}", needed=False)
        else:
            fix = "docs/existing-programs.md and docs/command-line.md list the variables"
            yield Check("environment", False, f"{name} has no meaning{did_you_mean(name, VARIABLES)}", fix, False)


def _gpu() -> Iterator[Check]:
    fix = f"{sys.executable} -m pip install 'ptxmotion[gpu]'"
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except Exception as error:
        yield Check("cuda-bindings", False, f"not installed: {error}", fix, False)
        return
    yield Check("cuda-bindings", True, str(getattr(driver, "__file__", "")), needed=False)
    try:
        yield Check("cuda-core", True, importlib.metadata.version("cuda-core"), needed=False)
    except importlib.metadata.PackageNotFoundError:
        yield Check("cuda-core", False, "not installed", fix, False)
    try:
        yield from _driver(driver)
    except Exception as error:  # an incomplete driver installation can raise anything
        fix = "on a machine with a GPU, install the NVIDIA driver, 580 or newer; the emulator needs no driver"
        yield Check("driver", False, f"none: {error}", fix, False)


def _driver(driver: Any) -> Iterator[Check]:
    def query(call: Callable[..., Any], *arguments: Any) -> Any:
        status, *values = call(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{getattr(call, '__name__', 'the driver')} returned {status.name}")
        return values[0] if values else None

    number = int(query(driver.cuDriverGetVersion))
    ok = cuda_version(number) >= OLDEST_DRIVER
    fix = "" if ok else "update the NVIDIA driver to 580 or newer: this one cannot load machine code of CUDA 13"
    yield Check("driver", ok, f"for CUDA {version_text(number)}", fix, False)
    query(driver.cuInit, 0)
    attribute = driver.CUdevice_attribute
    for index in range(int(query(driver.cuDeviceGetCount))):
        device = query(driver.cuDeviceGet, index)
        name = bytes(query(driver.cuDeviceGetName, 256, device)).split(b"\0")[0].decode("utf-8", "replace")
        major, minor = (
            int(query(driver.cuDeviceGetAttribute, wanted, device))
            for wanted in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        yield Check(f"GPU {index}", True, f"{name}, sm_{major}{minor}", needed=False)
