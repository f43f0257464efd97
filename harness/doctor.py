"""Look over this machine: is everything here that ptxmotion needs, and if not, what brings it?

Guarantees: never raises for what is missing or broken, it reports it; starts no GPU work beyond counting devices.
A check that fails and is `needed` makes the exit status 4; one that is not needed is a note: without a GPU all but
timing works.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..cache import usage
from ..toolchain.tools import TOOLS, ToolchainError, ToolMissing, find_tool, supported_targets

#: The exit status that says that something is missing in the environment.
MISSING = 4

OLDEST_PYTHON = (3, 11)

#: A driver loads cubins of its own CUDA's major version; this is the oldest that loads those of CUDA 13.
OLDEST_DRIVER = (13, 0)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for. `fix` is what to do where it is not `ok`, else empty."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


class Writer(Protocol):
    """What `run` writes to: `sys.stdout`, or a stream of the caller's."""

    def write(self, text: str, /) -> object: ...


def collect() -> list[Check]:
    """Every check, in the order in which they matter."""
    return [_python(), *map(_tool, TOOLS), _host_compiler(), _scratch_folder(), _cache(), *_gpu()]


def run(out: Writer, json: bool = False, more: Sequence[Check] = ()) -> int:
    """Write the checks, and ``more`` of them, as text or as one JSON document; 0 where all that is needed is here, else
    4."""
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
    # Machine code is counted without these two: they print it, and take it out of executables.
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
    """nvcc runs g++ for its preprocessor, or the compiler that NVCC_CCBIN names."""
    wanted = os.environ.get("NVCC_CCBIN") or "g++"
    if path := shutil.which(wanted):
        return Check("host compiler", True, path, needed=False)
    fix = "on Debian and Ubuntu: sudo apt install g++; or set NVCC_CCBIN"
    return Check("host compiler", False, f"no {wanted}: nvcc cannot compile CUDA C++; PTX needs none", fix, False)


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
    found = usage()
    if found.problem:
        fix = "set PTXMOTION_CACHE to a writable folder; without a cache everything is made anew"
        return Check("cache", False, found.problem, fix, False)
    return Check("cache", True, f"{found.folder}, {found.entries} files, {found.bytes / 2**20:.1f} MiB", needed=False)


def _gpu() -> Iterator[Check]:
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except Exception as error:
        fix = f"{sys.executable} -m pip install 'ptxmotion[gpu]'"
        yield Check("cuda-bindings", False, f"not installed: {error}", fix, False)
        return
    yield Check("cuda-bindings", True, str(getattr(driver, "__file__", "")), needed=False)
    try:
        yield from _driver(driver)
    except Exception as error:  # whatever a driver that is half installed raises
        fix = "install NVIDIA's driver, 580 or newer, where there is a GPU; the emulator needs none"
        yield Check("driver", False, f"none: {error}", fix, False)


def _driver(driver: Any) -> Iterator[Check]:
    def ask(call: Callable[..., Any], *arguments: Any) -> Any:
        status, *values = call(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{getattr(call, '__name__', 'the driver')} says {status.name}")
        return values[0] if values else None

    number = int(ask(driver.cuDriverGetVersion))
    version = (number // 1000, number % 1000 // 10)
    ok = version >= OLDEST_DRIVER
    fix = "" if ok else "update NVIDIA's driver to 580 or newer: this one does not load what CUDA 13 assembles"
    yield Check("driver", ok, f"for CUDA {version[0]}.{version[1]}", fix, False)
    ask(driver.cuInit, 0)
    attribute = driver.CUdevice_attribute
    for index in range(int(ask(driver.cuDeviceGetCount))):
        device = ask(driver.cuDeviceGet, index)
        name = bytes(ask(driver.cuDeviceGetName, 256, device)).split(b"\0")[0].decode("utf-8", "replace")
        major, minor = (
            int(ask(driver.cuDeviceGetAttribute, wanted, device))
            for wanted in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        yield Check(f"GPU {index}", True, f"{name}, sm_{major}{minor}", needed=False)
