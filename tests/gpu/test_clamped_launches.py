"""Versions with clamped indices on a GPU: the runtime computes the limits, and the results are those of the kernel.

The kernels and launches are those of `random_gathers`, as far as the kernel does not fault on the emulator. The extents
are stated: under compute-sanitizer with ``--padding``, those of the driver contain the padding.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_driver import built_library
from ptxmotion import Policy, optimize
from ptxmotion.contract import Contract, Extent
from ptxmotion.emulator import EmulatorFault
from ptxmotion.runtime import CudaDevice, EmulatedDevice, Flag, Pointer, load

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "property"))

from random_gathers import THREADS, GatherLaunch, gather_launch, random_gather

pytestmark = pytest.mark.gpu

POINTERS = ("f", "b", "p", "q", "y")
KERNELS = 40


@pytest.fixture(params=["c", "python"])
def device(request: pytest.FixtureRequest) -> CudaDevice:
    return CudaDevice(built_library()) if request.param == "c" else CudaDevice(in_python=True)


def faults(ptx: str, launch: GatherLaunch) -> bool:
    """Whether the kernel itself faults in a launch."""
    buffers = {name: content.copy() for name, content in launch.buffers.items()}
    arguments: list[Any] = [buffers[name][launch.offsets[name] :] for name in POINTERS]
    kernel = load(ptx, device=EmulatedDevice())["k"]
    try:
        kernel.launch(-(-launch.n // THREADS), THREADS, *arguments, np.uint32(launch.n), np.int32(launch.s))
    except EmulatorFault:
        return True
    return False


def outcome(device: CudaDevice, ptx: str, contract: Contract | None, launch: GatherLaunch) -> tuple[bytes, str]:
    """The content of ``y`` after a launch, and the entry that was launched."""
    places: dict[str, int] = {}
    try:
        for name, content in launch.buffers.items():
            places[name] = int(device.call("cuMemAlloc", max(content.size, 1)))
            device.call("cuMemcpyHtoD", places[name], content.ctypes.data, content.size)
        ends = {name: places[name] + launch.buffers[name].size for name in POINTERS}
        arguments = [
            Pointer(places[name] + launch.offsets[name], Extent(places[name], ends[name])) for name in POINTERS
        ]
        values = (*arguments, np.uint32(launch.n), np.int32(launch.s))
        kernel = load(ptx, contract, device=device)["k"]
        grid, flags = -(-launch.n // THREADS), Flag.ALWAYS_PREFER
        entry = kernel.decide(grid, THREADS, *values, flags=flags).entry
        kernel.launch(grid, THREADS, *values, flags=flags)
        device.call("cuCtxSynchronize")
        result = np.empty_like(launch.buffers["y"])
        device.call("cuMemcpyDtoH", result.ctypes.data, places["y"], result.size)
        return result.tobytes(), entry
    finally:
        for pointer in places.values():
            device.call("cuMemFree", pointer)


def test_clamped_loads_compute_the_same(device: CudaDevice) -> None:
    taken = 0
    for seed in range(KERNELS):
        kernel = random_gather(seed)
        result = optimize(kernel.ptx, "O3", Policy(gate="off", contract=True))
        assert result.contract is not None
        clamped = {each.entry for each in result.contract.kernels["k"].versions if "clamped" in each.description}
        for number in range(4):
            launch = gather_launch(kernel, 1000 * seed + number)
            if not clamped or faults(kernel.ptx, launch):
                continue
            wanted, _ = outcome(device, kernel.ptx, None, launch)
            found, entry = outcome(device, result.text, result.contract, launch)
            taken += entry in clamped
            assert found == wanted, (seed, number, entry)
    assert taken >= 10
