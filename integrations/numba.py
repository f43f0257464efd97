"""Numba: kernels of ``cuda.jit``, through the package numba-cuda.

Numba links its code with nvJitLink: LTO-IR by default, or PTX with ``lto=False``. The hook takes the PTX that is
linked, optimizes it, and lets Numba link this PTX.

Refuses: kernels that are linked with LTO-IR and with other files, since nvJitLink then gives no PTX of the whole
kernel. They stay as they are. Kernels in files of Numba's cache (``cache=True``) are not compiled, so they are not
optimized; `NUMBA_CACHE_DIR` names another folder.
Requires: numba-cuda. `enable` is called before the kernels are compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..driver import Policy
from .hook import Hook, import_library

__all__ = ["enable"]


def enable(passes: str = "O3", policy: Policy | None = None) -> Hook:
    """Optimize kernels that are compiled from now on. Raises `NotSupported`, also if the library is not
    installed."""
    codegen: Any = import_library("numba.cuda.codegen")
    hook = Hook("Numba", passes, policy)

    def cubin(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_cubin(library: Any, cc: Any = None) -> Any:
            cc = library._ensure_cc(cc)
            if library._cubin_cache.get(cc):
                return original(library, cc)
            replaced = _optimized(hook, library, cc)
            if replaced is None:
                return original(library, cc)
            return _linked(hook, library, cc, replaced, original)

        return get_cubin

    hook.replace(codegen.CUDACodeLibrary, "get_cubin", cubin)
    return hook


def _linked(hook: Hook, library: Any, cc: Any, texts: list[str], original: Callable[..., Any]) -> Any:
    """What Numba links from these texts; from its own code if the linker refuses them."""
    is_lto, own = library._lto, library._ptx_cache.get(cc)
    library._lto = False
    library._ptx_cache[cc] = texts if hasattr(library, "get_asm_strs") else "\n".join(texts)
    try:
        return original(library, cc)
    except Exception as error:  # of each version of the linker
        hook.warn(error)
        library._lto = is_lto
        library._ptx_cache[cc] = own
        return original(library, cc)
    finally:
        library._lto = is_lto


def _optimized(hook: Hook, library: Any, cc: Any) -> list[str] | None:
    """The PTX files of a kernel with the optimized ones among them; `None` if nothing changed."""
    arch = f"sm_{cc[0]}{cc[1]}{''.join(cc[2:])}"
    registers = getattr(library, "_max_registers", None)
    options = (f"-maxrregcount={registers}",) if registers else ()
    if library._lto:
        if library._linking_files or getattr(library, "needs_cudadevrt", False):
            hook.warn("it is linked with LTO-IR and other files; lto=False lets it be optimized")
            return None
        given = [library.get_lto_ptx(cc=cc)]
    else:
        given = library.get_asm_strs(cc=cc) if hasattr(library, "get_asm_strs") else [library.get_asm_str(cc=cc)]
    texts = [hook.optimized(text.rstrip("\0"), arch, options) for text in given]
    if not any(texts):
        return None
    return [text or own for text, own in zip(texts, given, strict=True)]
