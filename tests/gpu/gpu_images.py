"""Textures and surfaces on a GPU: handles of the images that the emulator takes as arguments."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from ptxmotion.emulator import Surface, Texture

__all__ = ["handle_of", "read_back"]

_SIGNED, _UNSIGNED, _FLOAT = "SIGNED_INT", "UNSIGNED_INT", "FLOAT"
_MAY_STORE = 2  #: CUDA_ARRAY3D_SURFACE_LDST
_AS_INTEGERS = 1  #: CU_TRSF_READ_AS_INTEGER


def _driver() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def _call(name: str, *arguments: Any) -> Any:
    driver = _driver()
    status, *values = getattr(driver, name)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{name}: {status.name}")
    return values[0] if values else None


def _copy(image: Surface, array: Any, data: np.ndarray[Any, Any], *, to_host: bool) -> None:
    """Copy the elements between the array of the driver and ``data``, without padding."""
    driver = _driver()
    extents = [*image.extents, 1, 1][:3]
    copy = driver.CUDA_MEMCPY3D()
    host, device = driver.CUmemorytype.CU_MEMORYTYPE_HOST, driver.CUmemorytype.CU_MEMORYTYPE_ARRAY
    if to_host:
        copy.srcMemoryType, copy.srcArray, copy.dstMemoryType = device, array, host
        copy.dstHost, copy.dstPitch, copy.dstHeight = data.ctypes.data, image.row_bytes, extents[1]
    else:
        copy.srcMemoryType, copy.dstMemoryType, copy.dstArray = host, device, array
        copy.srcHost, copy.srcPitch, copy.srcHeight = data.ctypes.data, image.row_bytes, extents[1]
    copy.WidthInBytes, copy.Height, copy.Depth = image.row_bytes, extents[1], extents[2]
    _call("cuMemcpy3D", copy)


def handle_of(image: Surface) -> tuple[np.uint64, Any]:
    """The handle of a texture or surface, and the array of the driver. The context is current."""
    driver = _driver()
    data = np.ascontiguousarray(image.array)
    kind = {"u": _UNSIGNED, "i": _SIGNED, "f": _FLOAT}[data.dtype.kind]
    description = driver.CUDA_ARRAY3D_DESCRIPTOR()
    description.Width, description.Height, description.Depth = [*image.extents, 0, 0][:3]
    name = kind if kind == _FLOAT else f"{kind}{8 * data.itemsize}"
    description.Format = getattr(driver.CUarray_format, f"CU_AD_FORMAT_{name}")
    description.NumChannels, description.Flags = image.channels, _MAY_STORE
    array = _call("cuArray3DCreate", description)
    _copy(image, array, data, to_host=False)
    resource = driver.CUDA_RESOURCE_DESC()
    resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = array
    if not isinstance(image, Texture):
        return np.uint64(int(_call("cuSurfObjectCreate", resource))), array
    mode = driver.CUaddress_mode
    sampler = driver.CUDA_TEXTURE_DESC()
    border = mode.CU_TR_ADDRESS_MODE_CLAMP if image.border == "clamp" else mode.CU_TR_ADDRESS_MODE_BORDER
    sampler.addressMode = [border] * 3
    sampler.filterMode = driver.CUfilter_mode.CU_TR_FILTER_MODE_POINT
    sampler.flags = 0 if kind == _FLOAT else _AS_INTEGERS
    return np.uint64(int(_call("cuTexObjectCreate", resource, sampler, None))), array


def read_back(image: Surface, array: Any) -> np.ndarray[Any, Any]:
    """The elements that the array of the driver contains."""
    data = np.zeros(image.array.shape, image.array.dtype)
    _copy(image, array, data, to_host=True)
    return data
