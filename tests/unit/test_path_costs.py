"""Which insertions would add loads to a path, against all paths of small graphs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from motion import kernel_of
from ptxmotion.analysis.graph.cfg import Cfg
from ptxmotion.ptx import TYPES, Block, Instr, Reg
from ptxmotion.transforms.scalar_replacement.path_costs import Insertion, PathCosts

LONGEST = 14


def random_cfg(choose: random.Random, *, is_cyclic: bool) -> Cfg:
    count = choose.randint(3, 7)
    succ = [[number + 1] for number in range(count - 1)] + [[]]
    for number in range(count - 1):
        other = choose.randrange(count) if is_cyclic else choose.randrange(number + 1, count)
        if choose.random() < 0.7 and other not in succ[number]:
            succ[number].append(other)
    return Cfg([Block() for _ in succ], succ, [count - 1])


def paths(cfg: Cfg) -> Iterator[list[int]]:
    """All paths from the entry to the exit of at most `LONGEST` blocks."""
    pending = [[0]]
    while pending:
        path = pending.pop()
        if path[-1] in cfg.exits:
            yield path
        elif len(path) < LONGEST:
            pending += [[*path, to] for to in cfg.succ[path[-1]]]


Removed = dict[Instr, tuple[int, list[Insertion]]]


def weight(path: list[int], removed: Removed) -> int:
    """The loads that the path executes more than before."""
    inserted = {insertion for _, insertions in removed.values() for insertion in insertions}
    less = sum(path.count(block) for load, (block, _) in removed.items() if load.guard is None)
    return sum(list(pairwise(path)).count(edge) for edge, _ in inserted) - less


def random_loads(choose: random.Random, cfg: Cfg) -> Removed:
    edges = [(block, to) for block in cfg.rpo for to in cfg.succ[block]]
    registers = [Reg(f"%q{number}", TYPES["b32"]) for number in range(3)]
    removed: Removed = {}
    for _ in range(choose.randint(1, 5)):
        guard = "@%p1 " if choose.random() < 0.2 else ""
        (load,) = kernel_of(f"{guard}ld.global.u32 %r1, [%rd1];").kernels[0].instructions()
        register = choose.choice(registers)
        insertions = [(choose.choice(edges), register) for _ in range(choose.randint(0, 2))]
        removed[load] = choose.choice(cfg.rpo), insertions
    return removed


@pytest.mark.parametrize("is_cyclic", [False, True])
def test_what_is_left_adds_no_load_to_any_path(*, is_cyclic: bool) -> None:
    refused = kept = 0
    for seed in range(400):
        choose = random.Random(seed)
        cfg = random_cfg(choose, is_cyclic=is_cyclic)
        removed = random_loads(choose, cfg)
        costs = PathCosts(cfg, 3)
        for load, (block, insertions) in removed.items():
            costs.add(load, block, insertions)
        groups = costs.unbalanced()
        unbalanced = {load for loads, _ in groups for load in loads}
        every = list(paths(cfg))
        rest = {load: each for load, each in removed.items() if load not in unbalanced}
        assert all(weight(path, rest) <= 0 for path in every), seed
        if not is_cyclic and all(weight(path, removed) <= 0 for path in every):
            assert not unbalanced, seed
        assert len(unbalanced) == sum(len(loads) for loads, _ in groups), seed
        for loads, insertions in groups:
            assert insertions == {each for load in loads for each in removed[load][1]}, seed
        refused += len(unbalanced)
        kept += sum(bool(insertions) for _, insertions in rest.values())
    assert refused > 50 and kept > 50
