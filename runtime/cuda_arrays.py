"""Arrays on a GPU as arguments: the address, and the extent of the memory that owns the array.

An extent has to be the whole allocation. It is taken from PyTorch and CuPy only where they own the memory: storage or
memory that they have imported may show a part of an allocation. For all others the driver knows the allocation.

Nothing of the frameworks is imported. Reference: CUDA Array Interface, version 3; DLPack.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..contract import Extent
from .arguments import Pointer

__all__ = ["pointer_of"]


def pointer_of(value: Any) -> Pointer | None:
    """The address and the extent of an array; None for what is no array. Raises `TypeError` for arrays on the host."""
    library = type(value).__module__.partition(".")[0]
    if library == "torch" and hasattr(value, "data_ptr"):
        return _of_torch(value)
    if library == "cupy" and hasattr(value, "data"):
        return _of_cupy(value)
    if library == "numpy":
        if getattr(value, "shape", ()) != ():
            raise TypeError("a NumPy array is not on the GPU")
        return None
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return Pointer(int(interface["data"][0]))
    if hasattr(value, "__dlpack_device__"):
        return _of_dlpack(value)
    return None


def _of_torch(tensor: Any) -> Pointer:
    if not tensor.is_cuda:
        raise TypeError(f"a tensor on {tensor.device} is not on the GPU")
    storage = tensor.untyped_storage()
    if not storage.resizable():  # memory that PyTorch does not own
        return Pointer(tensor.data_ptr())
    begin = storage.data_ptr()
    return Pointer(tensor.data_ptr(), Extent(begin, begin + storage.nbytes()) if begin else None)


def _of_cupy(array: Any) -> Pointer | None:
    address = getattr(array.data, "ptr", None)
    if address is None:
        return None
    memory: Any = array.data.mem
    if type(memory).__name__ not in ("Memory", "PooledMemory", "ManagedMemory", "MemoryAsync"):
        return Pointer(int(address))
    begin = int(memory.ptr)
    return Pointer(int(address), Extent(begin, begin + int(memory.size)) if begin else None)


def _of_dlpack(value: Any) -> Pointer:
    kind, _ = value.__dlpack_device__()
    if int(kind) not in (2, 13):  # kDLCUDA, kDLCUDAManaged
        raise TypeError(f"a {type(value).__name__} is not on the GPU")
    view = importlib.import_module("cuda.core.utils").StridedMemoryView
    # -1: the caller orders the work on streams, as for every other argument.
    return Pointer(int(view.from_dlpack(value, stream_ptr=-1).ptr))
