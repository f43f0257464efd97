"""Several kernels in one translation unit."""

from __future__ import annotations

from typing import Any

import pytest
from ptxmotion.dsl import f32, i32, kernel, ptr
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.joined_units import joined_units
from ptxmotion.dsl.kernel import kernel_from_text
from ptxmotion.toolchain.cubin import read_cubin
from ptxmotion.toolchain.tools import assemble

NAMES: dict[str, object] = {"f32": f32, "i32": i32, "ptr": ptr}


def scaled(number: int) -> Any:
    """A kernel whose device functions have the same names in all kernels."""
    lines = [
        f"def kernel{number}(out: ptr[f32], n: i32) -> None:",
        "    i: i32 = block_idx.x * block_dim.x + thread_idx.x",
        "    if i < n:",
        f"        out[i] = out[i] * {number + 1}.0 + f32(i)",
    ]
    return kernel_from_text("\n".join(lines) + "\n", NAMES)
