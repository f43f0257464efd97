"""The C library `ptxmotion_launch.c` through ctypes.

The wheel and `make` build it beside this file where there is a C compiler. Without it, `runtime.choice` decides.

Refuses: `LibraryError` for a file that is not this library or has another ABI version, and for a contract that it
refuses.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from .choice import Choice, Reason, Request

__all__ = [
    "ABI_VERSION",
    "BoundKernel",
    "BoundModule",
    "CConfig",
    "CDriver",
    "Library",
    "LibraryError",
    "find_library",
    "packed_attributes",
    "packed_config",
]

ABI_VERSION = 3

#: `ptxmotion_config`: grid, block, shared, stream, attributes, number of attributes.
_CONFIG = struct.Struct("<7I4xQQI4x")
#: `CUlaunchAttribute`: number and value.
_ATTRIBUTE = struct.Struct("<i4x64s")


class LibraryError(Exception):
    """The C library cannot be used, or refuses a contract."""


class CConfig(ctypes.Structure):
    """`ptxmotion_config`."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


class _CChoice(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("entry", ctypes.c_char_p),
        ("handle", ctypes.c_void_p),
        ("config", CConfig),
    )


class _CCounts(ctypes.Structure):
    _fields_ = (("entry", ctypes.c_char_p), ("reasons", ctypes.c_uint64 * len(Reason)))


class CDriver(ctypes.Structure):
    """`ptxmotion_driver`: the addresses of functions. Tests fill it with functions of their own."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "mem_get_address_range pointer_get_attributes stream_is_capturing launch_kernel_ex module_get_function "
            "func_get_attribute func_set_attribute func_get_param_info occupancy ctx_get_current ctx_get_device "
            "device_get_attribute device_get_count library_get_kernel kernel_get_function kernel_get_library "
            "stream_get_green_context func_load module_get_loading_mode "
            "thread_exchange_stream_capture_mode device_get_name"
        ).split()
    )


def find_library() -> Library | None:
    """The library that was built with the package; None if there is none. Raises `LibraryError`."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_launch{suffix}")
        if path.is_file():
            return Library(path)
    return None


class Library:
    """The loaded library."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path))
            version = int(self._library.ptxmotion_abi_version())
        except (OSError, AttributeError) as error:
            raise LibraryError(f"{path} is not the launch library: {error}") from None
        if version != ABI_VERSION:
            raise LibraryError(f"{path} has ABI version {version}, and this ptxmotion uses {ABI_VERSION}")
        pointer, word = ctypes.c_void_p, ctypes.c_uint32
        self.functions: Any = self._library
        for name, result, arguments in (
            ("ptxmotion_message", ctypes.c_char_p, (ctypes.c_int,)),
            ("ptxmotion_bind_module", ctypes.c_int, (pointer, pointer, ctypes.c_size_t, pointer, pointer)),
            ("ptxmotion_bind_library", ctypes.c_int, (pointer, pointer, ctypes.c_size_t, pointer, pointer)),
            ("ptxmotion_unload", None, (pointer,)),
            ("ptxmotion_find", pointer, (pointer, ctypes.c_char_p)),
            ("ptxmotion_launch_packed", ctypes.c_int, (pointer, ctypes.c_char_p, pointer, ctypes.c_char_p, word)),
            ("ptxmotion_choose", None, (pointer, pointer, pointer, pointer, word, pointer, pointer)),
            ("ptxmotion_statistics", word, (pointer, pointer, word)),
            ("ptxmotion_condition_counts", ctypes.c_int, (pointer, word, word, pointer)),
            ("ptxmotion_attributes_changed", None, (pointer,)),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    def bind(
        self, contract: bytes, loaded: int, *, is_library: bool = True, driver: CDriver | None = None
    ) -> BoundModule:
        """Bind the bytes of a contract to a CUlibrary or CUmodule. Raises `LibraryError`."""
        result = ctypes.c_void_p()
        bind = self.functions.ptxmotion_bind_library if is_library else self.functions.ptxmotion_bind_module
        table = None if driver is None else ctypes.byref(driver)
        status = bind(table, contract, len(contract), loaded, ctypes.byref(result))
        if status:
            raise LibraryError(self.functions.ptxmotion_message(status).decode())
        assert result.value is not None
        return BoundModule(self, result.value, driver)


class BoundModule:
    """A contract that is bound to a module."""

    def __init__(self, library: Library, address: int, driver: CDriver | None) -> None:
        self.library, self.address, self._driver = library, address, driver

    def __del__(self) -> None:
        self.library.functions.ptxmotion_unload(self.address)

    def kernel(self, name: str) -> BoundKernel | None:
        """A kernel of the contract."""
        address = self.library.functions.ptxmotion_find(self.address, name.encode())
        return None if address is None else BoundKernel(self, address)


class BoundKernel:
    """A kernel of a `BoundModule`. It keeps the module alive."""

    def __init__(self, module: BoundModule, address: int) -> None:
        self._module, self._address = module, address
        self._functions = module.library.functions
        self._launch = module.library.functions.ptxmotion_launch_packed

    def launch(self, config: bytes, arguments: bytes, extents: bytes | None, flags: int) -> int:
        """Launch; the CUresult. ``config`` is from `packed_config`, ``extents`` has 16 bytes for each parameter."""
        return self._launch(self._address, config, arguments, extents, flags)

    def choose(self, request: Request) -> Choice:
        """The version that a launch would take. The extra arguments are not known."""
        choice, reasons = _CChoice(), (ctypes.c_uint8 * 256)()
        buffers = [ctypes.create_string_buffer(each, len(each)) for each in request.arguments]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*map(ctypes.addressof, buffers))
        extents = (ctypes.c_uint64 * max(2 * len(buffers), 1))()
        for index, (begin, end) in request.extents.items():
            extents[2 * index], extents[2 * index + 1] = begin, end
        attributes = ctypes.create_string_buffer(packed_attributes(request))
        count = len(request.attributes)
        stream = ctypes.c_void_p(request.stream)
        address = ctypes.addressof(attributes) if count else None
        grid, block = (ctypes.c_uint32 * 3)(*request.grid), (ctypes.c_uint32 * 3)(*request.block)
        config = CConfig(grid, block, request.shared, stream, address, count)
        self._functions.ptxmotion_choose(
            self._address,
            ctypes.byref(config),
            pointers,
            extents if request.extents else None,
            int(request.flags),
            ctypes.byref(choice),
            reasons,
        )
        found = choice.config
        x, y, z = found.grid
        width, height, depth = found.block
        why = tuple(Reason(reasons[index]) for index in range(choice.version + 1))
        return Choice(choice.version, (x, y, z), (width, height, depth), found.shared, (), why, (None,) * len(why))

    def reasons(self, version: int, versions: int) -> dict[Reason, int]:
        """How often each reason was the result for a version of ``versions``; only counts that are not 0."""
        counts = (_CCounts * versions)()
        self._functions.ptxmotion_statistics(self._address, counts, versions)
        return {reason: counts[version].reasons[reason] for reason in Reason if counts[version].reasons[reason]}

    def condition_counts(self, version: int, condition: int) -> tuple[int, int]:
        """How often a condition was false, and undecidable."""
        counts = (ctypes.c_uint64 * 2)()
        self._functions.ptxmotion_condition_counts(self._address, version, condition, counts)
        return counts[0], counts[1]

    def attributes_changed(self) -> None:
        """Attributes of the function were set; copy them to the versions at the next launch."""
        self._functions.ptxmotion_attributes_changed(self._address)


def packed_attributes(request: Request) -> bytes:
    """The launch attributes as an array of `CUlaunchAttribute`."""
    return b"".join(_ATTRIBUTE.pack(*each) for each in request.attributes)


def packed_config(
    grid: Sequence[int], block: Sequence[int], shared: int, stream: int, attributes: int = 0, count: int = 0
) -> bytes:
    """The bytes of a `ptxmotion_config`; ``attributes`` is the address of ``count`` launch attributes."""
    return _CONFIG.pack(*grid, *block, shared, stream, attributes, count)
