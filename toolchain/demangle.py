"""Names of C++ functions as they are written in the source, by the demangler of the C++ library of this machine.

Guarantees: a name that is not mangled, or on a machine without that library, is returned as it is.
Reference: Itanium C++ ABI, §3.4 "Demangler API".
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["demangled"]

#: The C++ libraries, GNU's and LLVM's.
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")


def demangled(name: str) -> str:
    """The name in the source.

    >>> demangled("main")
    'main'
    """
    libraries = _libraries()
    if not name.startswith("_Z") or libraries is None:
        return name
    import ctypes

    demangle, free = libraries
    status = ctypes.c_int()
    text = demangle(name.encode("utf-8", "surrogateescape"), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return name
    try:
        return (ctypes.cast(text, ctypes.c_char_p).value or b"").decode("utf-8", "surrogateescape")
    finally:
        free(text)


@cache
def _libraries() -> tuple[Any, Any] | None:
    """The demangler, and the function that frees its result."""
    import ctypes

    for each in _LIBRARIES:
        try:
            demangle: Any = ctypes.CDLL(each)["__cxa_demangle"]
            free: Any = ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        demangle.restype = ctypes.c_void_p
        demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        free.argtypes = [ctypes.c_void_p]
        free.restype = None
        return demangle, free
    return None
