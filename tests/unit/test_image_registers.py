"""Registers of the kernels of image pipelines: a multiprocessor has enough of them for a block that is launched."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from image_filters import apart
from ptxmotion.arch import ALWAYS_FITS, MAX_REGISTERS
from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, lower, pipeline
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan
from ptxmotion.dsl.image.lowered import Lowered, Options
from ptxmotion.dsl.image.lowering import max_threads
from ptxmotion.toolchain.cubin import KernelCode, read_cubin
from ptxmotion.toolchain.cubin_cache import assemble_kept
from ptxmotion.toolchain.occupancy import occupancy
from ptxmotion.toolchain.tools import ToolMissing, find_tool

ARCH = "sm_90"


@pipeline
def once(src: Image[f32]) -> Image[f32]:
    return apart(Accessor(src, Boundary.CLAMP))


@pipeline
def twice(src: Image[f32]) -> Image[f32]:
    return apart(Accessor(apart(Accessor(src, Boundary.CLAMP)), Boundary.CLAMP))


def codes_of(lowered: Lowered, *, limited: bool = True) -> list[tuple[KernelCode, int]]:
    """The machine code of each launch, with the threads of its block. ``limited`` is false: as it would be if the
    kernel did not state them."""
    found: list[tuple[KernelCode, int]] = []
    for launch in lowered.launches:
        ptx = launch.kernel.ptx(compiler(("-fmad=false",), ARCH))
        ptx = ptx if limited else re.sub(r"\.maxntid .*", "", ptx)
        code = read_cubin(assemble_kept(ptx, ARCH).cubin)[launch.kernel.entry(ptx)]
        found.append((code, launch.block[0] * launch.block[1]))
    return found


def is_launched(code: KernelCode, threads: int) -> bool:
    """Whether the driver launches a block of so many threads."""
    found = occupancy(code.sm, threads, code.registers, code.shared_bytes)
    return found is not None and found.blocks > 0


def lowered_by(way: str, block: tuple[int, int]) -> Lowered:
    options = Options(block)
    if way not in ("block", "lanes"):
        return lower(once.graph(300, 300), way, options)
    graph, pixels = twice.graph(300, 300), (1, 4) if way == "block" else (4, 16)
    group = Group(graph, graph.nodes, frozenset(graph.nodes[:1]), block, pixels, way)
    return lower_plan(Plan(graph, (group,)), options, way)


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    for name in ("nvcc", "ptxas"):
        try:
            find_tool(name)
        except ToolMissing as missing:
            pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("way", "block"),
    [("naive", (32, 9)), ("isp_rows", (32, 32)), ("block", (32, 32)), ("lanes", (32, 9)), ("lanes", (32, 32))],
)
def test_registers_of_a_block(way: str, block: tuple[int, int]) -> None:
    for code, threads in codes_of(lowered_by(way, block)):
        assert threads == block[0] * block[1] == code.max_threads
        assert is_launched(code, threads), code.registers


@pytest.mark.parametrize("way", ["isp_rows", "lanes"])
def test_without_a_limit_a_block_would_need_too_many(way: str) -> None:
    codes = codes_of(lowered_by(way, (32, 32)), limited=False)
    assert not all(is_launched(code, threads) for code, threads in codes)


def test_a_launch_needs_a_kernel_for_its_block() -> None:
    (launch,) = lowered_by("naive", (32, 8)).launches
    with pytest.raises(AssertionError, match="may need too many registers for blocks of 512 threads"):
        replace(launch, block=(32, 16))


def test_small_blocks_have_no_limit() -> None:
    """A block of 256 threads can have all registers that a kernel may have."""
    assert max_threads((32, 8)) == 0 and max_threads((257, 1)) == 257 and max_threads((32, 32)) == 1024
    found = occupancy(90, ALWAYS_FITS, MAX_REGISTERS)
    assert found is not None and found.blocks == 1
    assert [code.max_threads for code, _ in codes_of(lowered_by("naive", (32, 8)))] == [None]
