"""The CUDA driver through ctypes: the functions that launch the cases of `tests/run` on a GPU.

Requires: only libcuda.so.1 and NumPy, so that it runs on a machine without other packages.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any, cast

import numpy as np

__all__ = ["Gpu", "GpuError", "GpuProcess"]


class GpuError(Exception):
    """A driver call failed."""


class Gpu:
    """Device 0 with its primary context.

    ``sm`` is its compute capability, 90 for 9.0; ``driver_version`` the CUDA version of the driver, 13000 for 13.0.
    """

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), 0)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, 100, self._device)
        self.name = name.value.decode()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), self._device)
        self.sm = 10 * major.value + minor.value
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.driver_version = str(version.value)

    def _call(self, function: str, *args: Any) -> None:
        status = getattr(self.cuda, function)(*args)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{function}: {(text.value or b'?').decode()}")

    def load(self, code: str | bytes) -> ctypes.c_void_p:
        """A module from PTX text, which the driver assembles, or from a cubin."""
        module = ctypes.c_void_p()
        if isinstance(code, bytes):
            self._call("cuModuleLoadData", ctypes.byref(module), code)
            return module
        log = ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(8192))
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), code.encode() + b"\0", 2, options, values)
        except GpuError as error:
            raise GpuError(f"{error}: {log.value.decode(errors='replace')}") from None
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Unload a module."""
        self._call("cuModuleUnload", module)

    def launch(
        self,
        module: ctypes.c_void_p,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
    ) -> None:
        """Run ``kernel``. Arrays are copied to the GPU and, in place, back. The same array twice is one buffer."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        buffers: list[tuple[np.ndarray[Any, Any], ctypes.c_uint64]] = []
        holders: list[Any] = []
        for value in args:
            if isinstance(value, np.ndarray):
                array = cast("np.ndarray[Any, Any]", value)
                known = next((pointer for other, pointer in buffers if other is array), None)
                if known is not None:
                    holders.append(known)
                    continue
                pointer = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(array.nbytes, 1)))
                self._call(
                    "cuMemcpyHtoD_v2", pointer, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)
                )
                buffers.append((array, pointer))
                holders.append(pointer)
            else:
                raw = value if isinstance(value, bytes) else value.tobytes()
                holders.append(ctypes.create_string_buffer(raw, len(raw)))
        pointers = (ctypes.c_void_p * max(len(holders), 1))(
            *[ctypes.cast(ctypes.pointer(holder), ctypes.c_void_p) for holder in holders]
        )
        shape = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
        try:
            self._call("cuLaunchKernel", function, *shape, shared, None, pointers, None)
            self._call("cuCtxSynchronize")
            for value, pointer in buffers:
                target, size = value.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(value.nbytes)
                self._call("cuMemcpyDtoH_v2", target, pointer, size)
        finally:
            for _, pointer in buffers:
                self.cuda.cuMemFree_v2(pointer)  # after a fault this call fails, too; its error would hide the fault


class GpuProcess:
    """A process that uses the GPU. After a kernel that faults, the process cannot use the GPU any more. It is then
    replaced, so that the next kernel can run."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def launch(
        self, code: bytes, kernel: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared: int = 0
    ) -> list[np.ndarray[Any, Any]]:
        """Run the kernel of a cubin. The result is the contents of its arrays. Raises `GpuError`."""
        if self._pool is None:
            os.environ["PYTHONSAFEPATH"] = "1"  # nothing is imported from the current folder
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return self._pool.submit(_launched, code, kernel, grid, block, args, shared).result()
        except GpuError:
            self.close()
            raise

    def close(self) -> None:
        """End the process. The next launch starts another one."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


@cache
def _gpu() -> Gpu:
    return Gpu()


def _launched(
    code: bytes, kernel: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared: int
) -> list[np.ndarray[Any, Any]]:
    """Runs in the process of a `GpuProcess`."""
    gpu = _gpu()
    module = gpu.load(code)
    gpu.launch(module, kernel, grid, block, args, shared)
    gpu.unload(module)
    return [value for value in args if isinstance(value, np.ndarray)]
