"""Checks of the CUDA backend on `fake_driver.cpp`: `test_cuda_backend_calls.py` runs each in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer, probe
from ptxmotion.harness.machine import DeviceFailed

MODULE = b"kernel plain 8 4 2\nkernel structure 8 12\nkernel nothing\nkernel fault\n"


def check_the_gpu() -> None:
    assert probe() == (1, "")
    backend = CudaBackend()
    assert backend.sm == 90 and backend.attribute("MULTIPROCESSOR_COUNT") == 4
    told = backend.describe()
    assert told["gpu"] == "Fake" and told["driver_cuda"] == "13.0" and told["compute_capability"] == 90


def launched(backend: CudaBackend, out: CudaBuffer, extra: int = 0) -> list[int]:
    return backend.read(out, np.uint32, 8 + extra).tolist()


def check_launches_and_their_arguments() -> None:
    backend = CudaBackend()
    module = backend.load_cubin(MODULE)
    out = backend.allocate(64)
    plain = module.kernel("plain")
    assert plain.sizes == (8, 4, 2)
    args: list[Any] = [out, np.float32(2.5), np.int16(-3)]
    backend.launch(plain, (5, 4), (32, 2, 1), 99, args)
    assert launched(backend, out) == [5, 4, 1, 32, 2, 1, 99, 0]
    assert backend.read(out, np.float32, 1, offset=32) == 2.5 and backend.read(out, np.int16, 1, offset=36) == -3
    structure = module.kernel("structure")
    assert module.kernel("nothing").sizes == ()
    backend.launch(module.kernel("nothing"), 1, 1, 0, [])
    backend.launch(structure, 3, 64, 0, [out, np.arange(3, dtype=np.uint32).tobytes()])
    assert launched(backend, out, 3) == [3, 1, 1, 64, 1, 1, 0, 0, 0, 1, 2]
    backend.launch(backend.cooperative(structure), 2, 64, 0, [out, np.arange(3, dtype=np.uint32).tobytes()])
    assert launched(backend, out)[7] == 1
    backend.launch(structure, 1, 64, 100_000, [out, bytes(12)])
    assert launched(backend, out)[6] == 100_000
    assert backend.occupancy(plain, 256) == 8


def check_prepared_calls() -> None:
    backend = CudaBackend()
    kernel = backend.load_cubin(MODULE).kernel("plain")
    out, other = backend.allocate(64), backend.allocate(64)
    packed = backend.pack(kernel, [out, np.uint32(7), np.uint16(8)])
    backend.fill_call(out, 0xAB)()
    assert launched(backend, out) == [0xABABABAB] * 8
    backend.launch_call(kernel, (3, 2, 1), (64, 1, 1), 16, packed)()
    backend.copy_call(other, out, 36, 0, 0)()
    assert launched(backend, other, 1) == [3, 2, 1, 64, 1, 1, 16, 0, 7]
    cooperative = backend.cooperative(kernel)
    backend.launch_call(cooperative, (2, 1, 1), (64, 1, 1), 0, packed)()
    assert launched(backend, out)[7] == 1


def check_events_and_graphs() -> None:
    backend = CudaBackend()
    kernel = backend.load_cubin(MODULE).kernel("plain")
    out = backend.allocate(64)
    packed = backend.pack(kernel, [out, np.uint32(7), np.uint16(8)])
    call = backend.launch_call(kernel, (9, 1, 1), (32, 1, 1), 0, packed)
    backend.fill(out, 0)

    def work() -> None:
        call()
        backend.launch_packed(kernel, (6, 1, 1), (32, 1, 1), 0, packed)
        call()

    graph = backend.graph(work)
    assert launched(backend, out) == [0] * 8
    first, second = backend.event(), backend.event()
    backend.record(first)
    backend.launch_graph(graph)
    backend.launch_graph(graph)
    backend.record(second)
    assert launched(backend, out)[0] == 9
    assert backend.seconds_between(first, second) == 6e-3
    backend.destroy_graph(graph)


def fails(action: Callable[[], object], message: str) -> None:
    try:
        action()
    except DeviceFailed as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"{message} was expected")


def check_errors() -> None:
    backend = CudaBackend()
    module = backend.load_cubin(MODULE)
    fails(lambda: module.kernel("none"), "CUDA_ERROR_NOT_FOUND")
    fails(lambda: backend.load_cubin(b"garbage\n"), "CUDA_ERROR_INVALID_IMAGE")
    backend.launch(module.kernel("fault"), 1, 1, 0, [])
    fails(backend.synchronize, "CUDA_ERROR_ILLEGAL_ADDRESS")
    fails(lambda: backend.seconds_between(backend.event(), backend.event()), "recorded")
    for wrong in ValueError("mine"), RuntimeError("mine, too"), KeyboardInterrupt():

        def body(error: BaseException = wrong) -> None:
            raise error

        try:
            backend.graph(body)
        except BaseException as error:
            assert error is wrong
        else:
            raise AssertionError("the error of the body was lost")
        out = backend.allocate(4)
        backend.fill(out, 1)  # not captured any more
        assert backend.read(out, np.uint32, 1) == 0x01010101


if __name__ == "__main__":
    globals()[sys.argv[1]]()
