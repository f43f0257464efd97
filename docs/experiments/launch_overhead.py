"""How long launches under a contract take: in C, in graphs, and in Python.

    python docs/experiments/launch_overhead.py

Needs a GPU, a C compiler, and the extra `gpu`; it also times CuPy and PyTorch arrays where they are installed. The
kernels return at once. The versions have equal code and three pointers; one has four conditions, the other one two.
"""

from __future__ import annotations

import importlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxmotion.contract import Contract, Disjoint, Inside, KernelContract, Number, Parameter, Range, Version, parse
from ptxmotion.contract.bytecode import encode
from ptxmotion.contract.document import digest_of
from ptxmotion.runtime import CudaDevice, load
from ptxmotion.runtime.library import Library
from ptxmotion.toolchain.tools import assemble

ROOT = Path(__file__).resolve().parents[2]
ENTRY = """
.visible .entry {name}(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n)
{{
    ret;
}}
"""
PTX = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(
    ENTRY.format(name=n) for n in ("k_1", "k", "apart_1", "apart", "alone")
)
PARAMETERS = (
    *(Parameter(name, 8 * index, 8, "u64", pointer=True) for index, name in enumerate("xyz")),
    Parameter("n", 24, 4, "u32"),
)
ROUNDS, LAUNCHES = 40, 300


def contract() -> Contract:
    """A version of `k`: x disjoint from y and z, and two ranges inside. One of `apart`: z is in another buffer."""
    ranges = [Range(index, Number(0), parse("4 * arg3")) for index in range(3)]
    conditions = (Disjoint(ranges[0], ranges[1]), Disjoint(ranges[0], ranges[2]), Inside(ranges[0]), Inside(ranges[1]))
    apart = (Disjoint(Range(2), Range(0)), Disjoint(Range(2), Range(1)))
    kernels = {
        "k": KernelContract("k", PARAMETERS, (Version("k_1", conditions), Version("k"))),
        "apart": KernelContract("apart", PARAMETERS, (Version("apart_1", apart), Version("apart"))),
        "alone": KernelContract("alone", PARAMETERS, (Version("alone"),)),
    }
    return Contract(digest_of(PTX), kernels)


def compiled(folder: Path, *arguments: str) -> Path:
    """Compile with the C compiler of the system."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "no C compiler"
    target = folder / f"out{len(list(folder.iterdir()))}"
    source = str(ROOT / "runtime" / "ptxmotion_launch.c")
    command = [compiler, "-std=gnu11", "-O2", "-w", "-I", str(ROOT / "runtime"), source, *arguments, "-o", str(target)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target


def timed(kinds: dict[str, Callable[[], object]], wait: Callable[[], object]) -> None:
    """Print nanoseconds for a call of each kind, median and least; the kinds take turns."""
    rounds: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(ROUNDS + 2):
        for name, call in kinds.items():
            wait()
            start = time.perf_counter_ns()
            for _ in range(LAUNCHES):
                call()
            if number >= 2:
                rounds[name].append((time.perf_counter_ns() - start) / LAUNCHES)
    for name, times in rounds.items():
        print(f"{name:58} {statistics.median(times):7.0f} {min(times):7.0f}")


def in_python(folder: Path) -> None:
    """Launches from Python, by the C library and in Python, beside those of cuda.core and CuPy."""
    library = Library(compiled(folder, "-shared", "-fPIC"))
    device = CudaDevice(library)
    call = device.call
    in_c = load(PTX, contract(), device=device, strict=True)
    plain = load(PTX, contract(), device=CudaDevice(in_python=True), strict=True)
    pointers = [int(call("cuMemAlloc", 4096)) for _ in range(3)]
    kinds: dict[str, Callable[[], object]] = {
        "runtime in C, addresses, version taken": lambda: in_c["k"].launch(1, 32, *pointers, 1024),
        "runtime in C, addresses, kernel without versions": lambda: in_c["alone"].launch(1, 32, *pointers, 1024),
        "runtime in Python, addresses, version taken": lambda: plain["k"].launch(1, 32, *pointers, 1024),
    }
    core: Any = importlib.import_module("cuda.core")
    gpu = core.Device()
    gpu.set_current()
    stream = gpu.create_stream()
    kernel = core.ObjectCode.from_cubin(assemble(PTX).cubin).get_kernel("k")
    config = core.LaunchConfig(grid=1, block=32)
    ctypes: Any = importlib.import_module("ctypes")
    boxed = [ctypes.c_uint64(each) for each in pointers]
    last = ctypes.c_uint32(1024)
    kinds["cuda.core.launch"] = lambda: core.launch(stream, config, kernel, *boxed, last)
    try:
        cupy: Any = importlib.import_module("cupy")
        arrays = [cupy.zeros(1024, cupy.float32) for _ in range(3)]
        number = cupy.uint32(1024)
        path = folder / "k.cubin"
        path.write_bytes(assemble(PTX).cubin)
        raw = cupy.RawModule(path=str(path)).get_function("k")
        kinds["CuPy's RawModule, CuPy arrays"] = lambda: raw((1,), (32,), (*arrays, number))
        kinds["runtime in C, CuPy arrays, version taken"] = lambda: in_c["k"].launch(1, 32, *arrays, 1024)
    except ImportError:
        print("CuPy is not installed")
    try:
        torch: Any = importlib.import_module("torch")
        tensors = [torch.zeros(1024, device="cuda") for _ in range(3)]
        kinds["runtime in C, PyTorch tensors, version taken"] = lambda: in_c["k"].launch(1, 32, *tensors, 1024)
    except ImportError:
        print("PyTorch is not installed")
    timed(kinds, lambda: call("cuCtxSynchronize"))
    print(in_c.report())
    print(plain.report())


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.cubin").write_bytes(assemble(PTX).cubin)
        (folder / "k.bytes").write_bytes(encode(contract()))
        program = compiled(folder, str(Path(__file__).with_suffix(".c")))
        print("from C", flush=True)
        subprocess.run([program, folder / "k.cubin", folder / "k.bytes"], check=True)
        print("from Python", flush=True)
        in_python(folder)


if __name__ == "__main__":
    main()
