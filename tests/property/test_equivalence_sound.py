"""`verify A B` detects a store through any pointer: if the store is deleted, no kernel is reported as the same."""

import random

import pytest
from ptxmotion.harness.verification.equivalence import DIFFERENT, SAME, compare, verdict
from ptxmotion.ptx import parse
from random_pointer_routes import kernel_with_route

#: The number of kernels without --fuzz-n, and of kernels in one test case.
FIXED = 60
SHARE = 20


@pytest.mark.fuzz
def test_stores_through_random_pointers_are_compared(seeds: list[int]) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        first, second = kernel_with_route(rng, rng.randrange(6))
        module = parse(first)
        itself = list(compare(module, module, seeds=range(4), seconds=20))
        where = f"seed {seed}\n{first}"
        assert all(each.changed for each in itself if each.outcome == SAME), where
        assert verdict("k", itself).outcome == SAME, f"{where}\n{verdict('k', itself).undecided}"
        found = verdict("k", list(compare(module, parse(second), seeds=range(4), seconds=20)))
        assert found.outcome == DIFFERENT, where
