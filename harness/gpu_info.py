"""What a GPU and its surroundings are: the preflight that stands in every result file.

Guarantees: nothing is set; what a management library cannot tell is left out, with the reason in `processes`.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from ..toolchain.tools import find_tool

if TYPE_CHECKING:
    from .cuda import CudaBackend

__all__ = ["describe"]


def describe(backend: CudaBackend) -> dict[str, Any]:
    """GPU name, driver, toolkit, multiprocessors, L2, memory, clocks, and the other processes on the GPU."""
    version = int(backend.call("cuDriverGetVersion"))
    name = bytes(backend.call("cuDeviceGetName", 128, backend.device)).split(b"\0")[0].decode()
    told = _from_smi(backend)
    return {
        "gpu": name,
        "compute_capability": backend.sm,
        "driver_cuda": f"{version // 1000}.{version % 1000 // 10}",
        "driver": told.pop("driver_version", ""),
        "ptxas": find_tool("ptxas").version,
        "multiprocessors": backend.attribute("MULTIPROCESSOR_COUNT"),
        "l2_bytes": backend.attribute("L2_CACHE_SIZE"),
        "memory_bytes": int(backend.call("cuDeviceTotalMem", backend.device)),
        "max_clock_hz": backend.attribute("CLOCK_RATE") * 1000,
        **told,
    }


_ASKED = ("driver_version", "persistence_mode", "mig.mode.current", "temperature.gpu", "power.limit")


def _from_smi(backend: CudaBackend) -> dict[str, Any]:
    """What nvidia-smi, which comes with the driver, tells of this GPU."""
    bus = bytes(backend.call("cuDeviceGetPCIBusId", 32, backend.device)).split(b"\0")[0].decode()
    try:
        answer = _smi(f"--query-gpu={','.join(_ASKED)}", f"--id={bus}")
        others = _smi("--query-compute-apps=pid,used_memory", f"--id={bus}")
    except (OSError, subprocess.SubprocessError) as error:
        return {"processes": f"unknown: {error}"}
    values = dict(zip(_ASKED, (each.strip() for each in answer.split(",")), strict=False))
    own = {str(os.getpid()), str(os.getppid())}
    lines = [line for line in others.splitlines() if line.strip()]
    foreign = [line for line in lines if line.split(",")[0].strip() not in own]
    return {**values, "processes": foreign}


def _smi(*options: str) -> str:
    command = ["nvidia-smi", *options, "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
