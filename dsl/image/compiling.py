"""The nvcc of this machine, for kernels of pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from ..compilation import Nvcc

__all__ = ["compiler"]


def compiler(flags: Sequence[str] = (), arch: str = "") -> Nvcc:
    """The nvcc of this machine with these flags, for the target ``arch`` (by default `arch.DEFAULT_TARGET`). Raises
    `toolchain.tools.ToolMissing`, whose message says how to install it."""
    from ...arch import DEFAULT_TARGET
    from ...toolchain.tools import compile_cuda, find_tool

    tool = find_tool("nvcc")
    return Nvcc(compile_cuda, f"{tool.version} {tool.identity}", arch or DEFAULT_TARGET, tuple(flags))
