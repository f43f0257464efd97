"""Theoretical occupancy, against values computed by hand with the rules of the CUDA occupancy calculator."""

import pytest
from ptxmotion.arch import ARCHITECTURES
from ptxmotion.ptx import parse
from ptxmotion.ptx.verify import verify
from ptxmotion.toolchain.machine_ops import names
from ptxmotion.toolchain.occupancy import occupancy


@pytest.mark.parametrize(
    ("sm", "threads", "registers", "shared", "blocks", "limit"),
    [
        (90, 256, 32, 0, 8, "warps"),
        (90, 32, 32, 0, 32, "blocks"),
        (90, 256, 33, 0, 6, "registers"),  # 40 × 32 = 1280 registers for a warp: 12 warps in each of 4 partitions
        (90, 256, 255, 0, 1, "registers"),
        (90, 1024, 65, 0, 0, "registers"),
        (90, 128, 32, 47 * 1024, 4, "shared"),  # 48 KiB with the memory that the system reserves
        (90, 128, 32, 227 * 1024, 1, "shared"),
        (90, 128, 32, 228 * 1024, 0, "shared"),
        (75, 64, 32, 0, 16, "blocks"),
        (75, 256, 16, 0, 4, "warps"),
        (75, 128, 16, 9 * 1024, 7, "shared"),
        (86, 192, 40, 0, 8, "warps"),
        (80, 33, 40, 0, 24, "registers"),  # a block of 33 threads has two warps
        (90, 1025, 16, 0, 0, "warps"),
    ],
)
def test_blocks_and_what_limits_them(
    sm: int, threads: int, registers: int, shared: int, blocks: int, limit: str
) -> None:
    found = occupancy(sm, threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == found.warps / ARCHITECTURES[sm].warps


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_each_architecture_has_its_limits_machine_operations_and_targets(sm: int) -> None:
    row = ARCHITECTURES[sm]
    for shared, blocks in ((row.shared - row.reserved, 1), (row.shared - row.reserved + 1, 0)):
        found = occupancy(sm, 32, 16, shared)
        assert found is not None and found.blocks == blocks
    assert "EXIT" in names(sm).values()
    for target in {f"sm_{sm}", f"sm_{sm}{row.suffix}"}:
        verify(parse(f".version 9.0\n.target {target}\n.address_size 64\n"))


def test_an_unknown_architecture_is_no_guess() -> None:
    assert occupancy(777, 128, 32) is None


def test_a_block_has_threads() -> None:
    with pytest.raises(ValueError, match="at least one"):
        occupancy(90, 0, 32)


def test_more_of_anything_never_gives_more_blocks() -> None:
    for sm in ARCHITECTURES:
        for threads in (32, 96, 256, 1024):
            by_registers = [occupancy(sm, threads, r) for r in range(16, 256)]
            by_shared = [occupancy(sm, threads, 32, s) for s in range(0, 256 << 10, 1000)]
            for series in (by_registers, by_shared):
                blocks = [found.blocks for found in series if found]
                assert blocks == sorted(blocks, reverse=True)
