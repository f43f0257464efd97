"""Triton: kernels of ``triton.jit``, and those that ``torch.compile`` makes.

Triton calls a hook for the stages of a compilation. It gets a stage that makes PTX and optimizes it; Triton then
assembles this PTX as usual. The keys of Triton's cache get the settings of the optimizer.

``torch.compile`` compiles kernels in other processes, and caches them without knowing of hooks. So with
``torch_compile=True`` it compiles in this process, and caches in a folder of its own.

Requires: Triton 3.5 or newer. `enable` is called before the kernels are compiled.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..cache import cache_folder
from ..driver import Policy
from .hook import Hook, NotSupported, import_library

__all__ = ["enable"]


def enable(passes: str = "O3", policy: Policy | None = None, *, torch_compile: bool = False) -> Hook:
    """Optimize kernels that are compiled from now on; with ``torch_compile`` also those of ``torch.compile``. Raises
    `NotSupported`, also for a library that is not installed."""
    knobs: Any = import_library("triton.knobs")
    backend: Any = import_library("triton.backends.nvidia.compiler")
    if not hasattr(knobs.runtime, "add_stages_inspection_hook"):
        raise NotSupported("this version of Triton has no hook for stages")
    inductor: Any = import_library("torch._inductor.config") if torch_compile else None
    hook = Hook("Triton", passes, policy)
    digest = hook.digest()
    previous = knobs.runtime.add_stages_inspection_hook

    def stages_hook(*arguments: Any) -> Any:
        """Without arguments, return the parts of a key of Triton's cache. With arguments, change the stages."""
        before = previous(*arguments) if previous is not None else None
        if not arguments:
            return tuple(f"{part}-ptxmotion-{digest}" for part in before or ("", ""))
        _, stages, options, *_ = arguments
        if "ptx" in stages:
            stages["ptx"] = _with_optimizer(hook, stages["ptx"], options)
        return before

    def with_key(original: Callable[[Any], str]) -> Callable[[Any], str]:
        """For versions of Triton whose hook returns no key."""

        @functools.wraps(original)
        def hash(self: Any) -> str:
            return f"{original(self)}-ptxmotion-{digest}"

        return hash

    hook.replace(backend.CUDABackend, "hash", with_key)
    knobs.runtime.add_stages_inspection_hook = stages_hook
    hook.on_disable(lambda: setattr(knobs.runtime, "add_stages_inspection_hook", previous))
    if inductor is not None:
        _prepare_inductor(hook, inductor, digest)
    return hook


def _with_optimizer(hook: Hook, make: Callable[[Any, Any], str], options: Any) -> Callable[[Any, Any], str]:
    """The stage that makes PTX, followed by the optimizer."""

    def stage(source: Any, metadata: Any) -> str:
        text = make(source, metadata)
        return hook.optimized(text, _target_of(text), _ptxas_options(options)) or text

    return stage


def _target_of(text: str) -> str:
    """The target for which Triton assembles: that of the PTX."""
    from ..toolchain.tools import target_of

    return target_of(text)


def _ptxas_options(options: Any) -> Sequence[str]:
    """The options with which Triton runs ptxas, except for those that do not change the code."""
    fused = () if getattr(options, "enable_fp_fusion", True) else ("--fmad=false",)
    return (*fused, *(getattr(options, "ptx_options", None) or "").split())


def _prepare_inductor(hook: Hook, config: Any, digest: str) -> None:
    """Let torch.compile, whose settings are ``config``, compile in this process, and cache in a folder for the settings
    of the optimizer."""
    threads = config.compile_threads
    config.compile_threads = 1
    hook.on_disable(lambda: setattr(config, "compile_threads", threads))
    parent = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache_folder() or "")
    if parent:
        folder = os.path.join(parent, "integrations", digest)
        names = {"TORCHINDUCTOR_CACHE_DIR": "torchinductor", "TRITON_CACHE_DIR": "triton"}
        hook.set_variables({name: os.path.join(folder, each) for name, each in names.items()})
