"""CuPy: kernels of `cupy.RawModule` and `cupy.RawKernel` that NVRTC compiles.

NVRTC compiles the source to PTX instead of machine code. The optimized PTX is assembled, and CuPy loads and caches the
machine code. Keys of CuPy's cache get the settings of the optimizer.

Refuses: source that nvcc compiles (for that, set ``NVCC=ptxmotion-nvcc``), CuPy's own kernels, and a driver that is
older than ptxas. A kernel of which no rewrite is kept is compiled as without the hook.
Requires: CuPy 13.6 or newer. `enable` is called before the kernels are compiled.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from ..driver import Policy
from .hook import Hook, import_library, is_driver_new_enough

__all__ = ["enable"]

#: What every kernel of CuPy itself includes.
_OWN_HEADER = "#include <cupy/carray.cuh>"

#: The options by which CuPy links kernels. The linker gets PTX then.
_RELOCATABLE = {"--device-c", "-dc", "-rdc=true", "--relocatable-device-code=true"}


def enable(passes: str = "O3", policy: Policy | None = None) -> Hook:
    """Optimize kernels that are compiled from now on. Raises `NotSupported`, also if the library is not
    installed."""
    compiler: Any = import_library("cupy.cuda.compiler")
    hook = Hook("CuPy", passes, policy)
    name = "_compile_using_nvrtc_no_warning"
    name = name if hasattr(compiler, name) else "compile_using_nvrtc"
    state = threading.local()

    def architecture(original: Callable[..., tuple[str, str]]) -> Callable[..., tuple[str, str]]:
        @functools.wraps(original)
        def option(arch: str | None = None) -> tuple[str, str]:
            if not getattr(state, "wants_ptx", False):
                return original(arch)
            return f"-arch=compute_{arch or compiler._get_arch()}", "ptx"

        return option

    def key(original: Callable[[], object]) -> Callable[[], str]:
        digest = hook.digest()
        return lambda: f"{original()}-ptxmotion-{digest}"

    def compilation(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compiled(
            source: str, options: tuple[str, ...] = (), arch: str | None = None, *rest: Any, **named: Any
        ) -> Any:
            if _OWN_HEADER in source or named.get("method") or any(each == "lto" for each in rest):
                return original(source, options, arch, *rest, **named)
            state.wants_ptx = True
            try:
                code, mapping = original(source, options, arch, *rest, **named)
            finally:
                state.wants_ptx = False
            made = _machine_code(hook, code, str(arch or compiler._get_arch()), options)
            return (made, mapping) if made is not None else original(source, options, arch, *rest, **named)

        return compiled

    hook.replace(compiler, "_get_arch_for_options_for_nvrtc", architecture)
    hook.replace(compiler, "_get_cupy_cache_key", key)
    hook.replace(compiler, name, compilation)
    return hook


def _machine_code(hook: Hook, code: bytes, arch: str, options: tuple[str, ...]) -> bytes | None:
    """The machine code of optimized PTX, or PTX for a linker; `None` if CuPy's own code is to be used."""
    from ..toolchain.cubin_cache import assemble_kept
    from ..toolchain.tools import ToolchainError

    target = f"sm_{arch}"
    registers = [each for option in options for each in _register_limit(option)]
    runtime: Any = import_library("cupy.cuda.runtime")
    try:
        if not is_driver_new_enough(runtime.driverGetVersion()):
            hook.warn("the driver is older than ptxas")
            return None
        text = hook.optimized(code.rstrip(b"\0").decode("utf-8", "surrogateescape"), target, registers)
        if text is None or _RELOCATABLE.intersection(options):
            return text.encode("utf-8", "surrogateescape") if text is not None else None
        return assemble_kept(text, target, flags=registers).cubin
    except ToolchainError as error:
        hook.warn(error)
        return None


def _register_limit(option: str) -> list[str]:
    """The option of ptxas for one of NVRTC.

    >>> _register_limit("--maxrregcount=40"), _register_limit("-std=c++17")
    (['-maxrregcount=40'], [])
    """
    name, _, value = option.lstrip("-").partition("=")
    return [f"-maxrregcount={value}"] if name == "maxrregcount" and value else []
