"""How long the host takes for a call of the CUDA driver: by cuda-bindings, by cuda.core, and prepared with ctypes.

    python docs/experiments/driver_calls.py

The driver is `tests/unit/fake_driver.cpp`, which does next to nothing, so the times are those of the libraries. No GPU
is needed; a C++ compiler is. Prints nanoseconds per call, the best of three runs of 100,000 calls.

Requires: the extra `gpu`.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ptxmotion.harness.cuda import CudaBackend
from ptxmotion.toolchain.tools import find_tool

ROOT = Path(__file__).resolve().parents[2]
CALLS, RUNS = 100_000, 3


def main() -> int:
    """Build the driver, and measure in a process that loads it."""
    if "--measure" in sys.argv:
        measure()
        return 0
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise SystemExit("driver_calls: error: there is no C++ compiler")
    include = find_tool("nvcc").path.parents[1] / "include"
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", f"{folder}/libcuda.so.1"]
        subprocess.run([*command, str(ROOT / "tests" / "unit" / "fake_driver.cpp"), "-ldl"], check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": folder}
        return subprocess.run([sys.executable, "-P", __file__, "--measure"], env=environment).returncode


def measure() -> None:
    """Print the time of each call."""
    core: Any = importlib.import_module("cuda.core")
    backend = CudaBackend()
    kernel = backend.load_cubin(b"kernel k 8 4 8\n").kernel("k")
    buffer = backend.allocate(100)
    packed = backend.pack(kernel, [buffer, np.uint32(7), np.uint64(3)])
    stream = backend.stream.handle
    event, other = backend.event(), backend.call("cuEventCreate", 0)
    graph = backend.graph(lambda: None)
    config = core.LaunchConfig(grid=1, block=32)
    sizes = ((1, 1, 1), (32, 1, 1))
    rows: list[tuple[str, Callable[[], object]]] = [
        ("an event is recorded, cuda-bindings", lambda: backend.call("cuEventRecord", other, stream)),
        ("an event is recorded, cuda.core", lambda: backend.record(event)),
        ("a graph is launched, cuda-bindings", lambda: backend.call("cuGraphLaunch", graph.handle, stream)),
        ("a graph is launched, cuda.core", lambda: backend.launch_graph(graph)),
        ("a kernel is launched, cuda-bindings", lambda: backend.launch_packed(kernel, *sizes, 0, packed)),
        (
            "a kernel is launched, cuda.core",
            lambda: core.launch(backend.stream, config, kernel.core, buffer.pointer, np.uint32(7), np.uint64(3)),
        ),
        ("a kernel is launched, a prepared call", backend.launch_call(kernel, *sizes, 0, packed)),
    ]
    for name, call in rows:
        print(f"{name:40} {min(nanoseconds(call) for _ in range(RUNS)):7.0f} ns")


def nanoseconds(call: Callable[[], object]) -> float:
    """Nanoseconds of a call, the loop included."""
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e9


if __name__ == "__main__":
    sys.exit(main())
