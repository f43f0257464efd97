"""Counts of the emulator by groups of blocks."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from ptxmotion.emulator import Emulator
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.emulator.block_groups import BlockGroups

#: Block b loops b times, and only odd lanes of even blocks execute the last part.
KERNEL = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry k()
{
    .reg .b32 %r<6>;
    .reg .pred %p<4>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
LOOP:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, %r1;
    @%p2 bra LOOP;
DONE:
    add.u32 %r4, %r1, %r2;
    and.b32 %r4, %r4, 1;
    setp.eq.u32 %p3, %r4, 0;
    @%p3 bra END;
    add.u32 %r3, %r3, 2;
END:
    ret;
}
"""
BLOCKS, THREADS = 7, 96


def run(groups: list[int], lanes: int) -> tuple[EmulatorBackend, dict[tuple[str, int], Any]]:
    """The backend after a launch, and the counts of the groups by function and basic block."""
    backend = EmulatorBackend(device=Emulator(lanes=lanes))
    counted = BlockGroups(groups)
    kernel = backend.load(KERNEL).kernel("k")
    backend.launch_in_groups(kernel, (BLOCKS, 1, 1), (THREADS, 1, 1), 0, [], counted)
    return backend, {(function.name, number): warps.tolist() for (function, number), warps in counted.warps.items()}


@pytest.mark.parametrize("lanes", [1 << 16, 2 * THREADS], ids=["one batch", "several batches"])
def test_the_groups_together_are_the_whole_launch(lanes: int) -> None:
    backend, counted = run([0, 1, 2, 0, 1, 2, 0], lanes)
    whole: Counter[tuple[str, int]] = Counter()
    for function, executions in backend.counts.executions.items():
        whole += Counter({(function.name, number): warps for number, (warps, _) in executions.blocks.items()})
    assert {place: sum(warps) for place, warps in counted.items()} == whole


@pytest.mark.parametrize("lanes", [1 << 16, 2 * THREADS], ids=["one batch", "several batches"])
def test_each_block_counts_for_its_group(lanes: int) -> None:
    _, counted = run(list(range(BLOCKS)), lanes)
    warps = THREADS // 32
    assert counted["k", 0] == [warps] * BLOCKS
    assert counted["k", 1] == [warps * block for block in range(BLOCKS)]  # the loop
    _, pairs = run([0, 0, 1, 1, 1, 0, 0], lanes)
    of_group = [[0, 1, 5, 6], [2, 3, 4]]
    assert pairs["k", 1] == [sum(warps * block for block in blocks) for blocks in of_group]


def test_counts_do_not_need_the_other_counts() -> None:
    backend = EmulatorBackend(checks=False, counts=False)
    groups = BlockGroups(np.zeros(BLOCKS, np.int64))
    backend.launch_in_groups(backend.load(KERNEL).kernel("k"), (BLOCKS, 1, 1), (THREADS, 1, 1), 0, [], groups)
    assert sum(int(each[0]) for (_, number), each in groups.warps.items() if number == 1) == 3 * sum(range(BLOCKS))
