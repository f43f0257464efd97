"""Several kernels in one translation unit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Mask, Window, local, pipeline
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.partition_kernels import NODE_LOWERINGS, SameKernel, compile_kernels
from ptxmotion.dsl.joined_units import joined_units
from ptxmotion.dsl.kernel import PythonKernel
from ptxmotion.toolchain.cubin import KernelCode, read_cubin
from ptxmotion.toolchain.tools import assemble

WEIGHTS = Mask(np.arange(9, dtype=np.float32).reshape(3, 3))
TABLE = np.arange(9, dtype=np.float32)


@local(WEIGHTS)
def small(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


@local((9, 1))
def large(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx in range(-4, 5):
        total += TABLE[dx + 4] * src[dx, 0]
    return total


def node_of(operator: Any) -> Any:
    @pipeline
    def filtered(src: Image[f32]) -> Image[f32]:
        return operator(Accessor(src, Boundary.MIRROR))

    return filtered.graph(150, 40).nodes[0]


@cache
def kernels() -> tuple[PythonKernel[Any], ...]:
    """Kernels whose device functions have the same names, and one with a table in constant memory."""
    words = ("naive", "isp", "isp_rows")
    found = [NODE_LOWERINGS[word](node_of(small), f"k_{word}", Options()).kernel for word in words]
    return (*found, NODE_LOWERINGS["naive"](node_of(large), "k_large", Options()).kernel)


def codes_of(text: str) -> dict[str, KernelCode]:
    return read_cubin(assemble(compiler().ptx(text), verbose=True).cubin)


@pytest.mark.parametrize("most", [1, 2, 8])
def test_a_kernel_has_the_machine_code_of_a_unit_of_its_own(most: int) -> None:
    units = joined_units(kernels(), most)
    assert len(units) == 1 + min(most, 3)
    assert sorted(kernel.name for _, members in units for kernel in members) == sorted(k.name for k in kernels())
    codes = {name: code for text, _ in units for name, code in codes_of(text).items()}
    for kernel in kernels():
        assert codes[kernel.name] == codes_of(kernel.cuda_with_lines)[kernel.name]


def test_a_table_in_constant_memory_has_its_own_unit() -> None:
    assert "__constant__" in kernels()[-1].cuda
    (_, alone), *others = joined_units(kernels(), 1)
    assert alone == [kernels()[-1]] and [len(members) for _, members in others] == [3]


def test_kernels_are_found_again() -> None:
    def wanted(word: str) -> SameKernel:
        return SameKernel(word, node_of(small), Options(nvcc=compiler()))

    first = compile_kernels([wanted("naive"), wanted("isp")])
    again = compile_kernels([wanted("isp"), wanted("isp_rows")])
    assert again[wanted("isp")] is first[wanted("isp")]
    assert again[wanted("isp_rows")].code != first[wanted("isp")].code
