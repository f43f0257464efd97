"""The description of a GPU and its driver that every result file contains.

Guarantees: no setting of the GPU is changed. What nvidia-smi cannot report is left out; `processes` has the reason.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any, Protocol

from ..toolchain.driver_version import version_text
from ..toolchain.tools import find_tool

__all__ = ["Gpu", "describe"]


class Gpu(Protocol):
    """The part of `cuda.CudaBackend` that a description needs."""

    device: Any
    sm: int

    def call(self, name: str, /, *arguments: Any) -> Any:
        """Call a function of the driver; its results without the status. Raises `DeviceFailed`."""
        ...

    def attribute(self, name: str, /) -> int:
        """An attribute of the device, such as ``L2_CACHE_SIZE``. Raises `DeviceFailed`."""
        ...


def describe(gpu: Gpu) -> dict[str, Any]:
    """GPU name, driver, toolkit, multiprocessors, L2 and memory (bytes), clocks (Hz), other processes on the GPU."""
    version = int(gpu.call("cuDriverGetVersion"))
    name = bytes(gpu.call("cuDeviceGetName", 128, gpu.device)).split(b"\0")[0].decode()
    reported = _from_smi(gpu)
    return {
        "gpu": name,
        "compute_capability": gpu.sm,
        "driver_cuda": version_text(version),
        "driver": reported.pop("driver_version", ""),
        "ptxas": find_tool("ptxas").version,
        "multiprocessors": gpu.attribute("MULTIPROCESSOR_COUNT"),
        "l2_bytes": gpu.attribute("L2_CACHE_SIZE"),
        "memory_bytes": int(gpu.call("cuDeviceTotalMem", gpu.device)),
        "max_clock_hz": gpu.attribute("CLOCK_RATE") * 1000,
        **reported,
    }


_QUERIED = ("driver_version", "persistence_mode", "mig.mode.current", "temperature.gpu", "power.limit")


def _from_smi(gpu: Gpu) -> dict[str, Any]:
    """What nvidia-smi, which comes with the driver, reports about this GPU."""
    bus = bytes(gpu.call("cuDeviceGetPCIBusId", 32, gpu.device)).split(b"\0")[0].decode()
    try:
        answer = _smi(f"--query-gpu={','.join(_QUERIED)}", f"--id={bus}")
        others = _smi("--query-compute-apps=pid,used_memory", f"--id={bus}")
    except (OSError, subprocess.SubprocessError) as error:
        return {"processes": f"unknown: {error}"}
    values = dict(zip(_QUERIED, (each.strip() for each in answer.split(",")), strict=False))
    own = {str(os.getpid()), str(os.getppid())}
    lines = [line for line in others.splitlines() if line.strip()]
    foreign = [line for line in lines if line.split(",")[0].strip() not in own]
    return {**values, "processes": foreign}


def _smi(*options: str) -> str:
    command = ["nvidia-smi", *options, "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
