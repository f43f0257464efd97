"""Operations of a run in a graph with the real dependences: what waits for what, and what kernels access."""

import random
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from ptxmotion.harness.step_order import in_a_row, sources_of
from ptxmotion.harness.workload import Arm, Copy, Fill, RecordedLaunch, Step, Write
from ptxmotion.programs.launch_accesses import with_accesses
from ptxmotion.programs.variants import parse_variant
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import compiler, ptx_of

#: The kernel reads its first parameter and writes its second one.
ACCESSES = {("module", "map"): (frozenset([0]), frozenset([1]))}


def launch(source: int, target: int, kernel: str = "map") -> RecordedLaunch:
    return RecordedLaunch(0, kernel, (1, 1, 1), (32, 1, 1), 0, (source, target, np.int32(7)))


def sources(*steps: Step) -> list[tuple[int, ...]]:
    return sources_of(steps, ["module"], ACCESSES)


def test_a_step_waits_for_what_it_reads_and_overwrites() -> None:
    assert sources(launch(0, 1), launch(0, 2), launch(1, 3), launch(2, 4)) == [(), (), (0,), (1,)]
    # The second one overwrites what the first one reads, and the third one what the second one wrote.
    assert sources(launch(0, 1), launch(2, 0), launch(3, 0)) == [(), (0,), (1,)]
    assert sources(launch(0, 1), launch(1, 2), launch(2, 3)) == [(), (0,), (1,)], "edges that follow are left out"


def test_copies_and_fills() -> None:
    steps = (Fill(1, 0), Write(2, 0, b"x"), Copy(3, 2, 1, 0, 0), launch(3, 1), launch(2, 4))
    assert sources(*steps) == [(), (), (1,), (0, 2), (1,)]


def test_an_unknown_kernel_is_a_barrier() -> None:
    steps = (launch(0, 1), launch(2, 3), launch(8, 9, "unknown"), launch(4, 5), launch(5, 6))
    assert sources(*steps) == [(), (), (0, 1), (2,), (3,)]


def test_an_argument_with_bytes_may_hold_a_pointer() -> None:
    hidden = RecordedLaunch(0, "map", (1, 1, 1), (32, 1, 1), 0, (0, 1, b"12345678"))
    assert sources(launch(0, 1), hidden, launch(2, 3)) == [(), (0,), (1,)]


def test_random_steps_in_any_order_that_is_allowed_give_the_same_memory() -> None:
    rng = random.Random(4)
    for _ in range(60):
        steps = [launch(rng.randrange(4), rng.randrange(4)) for _ in range(8)]
        made = sources(*steps)
        expected = simulated(steps, range(len(steps)))
        done, order = set[int](), list[int]()
        while len(order) < len(steps):
            ready = [n for n in range(len(steps)) if n not in done and done.issuperset(made[n])]
            order.append(rng.choice(ready))
            done.add(order[-1])
        assert simulated(steps, order) == expected, (steps, order)


def simulated(steps: Sequence[RecordedLaunch], order: Iterable[int]) -> list[int]:
    """The memory after the steps: each launch writes a value that depends on its source and its number."""
    memory = [1, 2, 3, 4]
    for number in order:
        source, target, _ = steps[number].args
        assert isinstance(source, int) and isinstance(target, int)
        memory[target] = hash((memory[source], number))
    return memory


def test_runs_follow_each_other() -> None:
    assert in_a_row([[(), (), (0,)], [(), (0,)]]) == [(), (), (0,), (1, 2), (3,)]


def test_variants_with_branches() -> None:
    assert parse_variant("branches").launch == "branches"
    made = parse_variant("lowering:fused+branches")
    assert (made.lowering, made.launch, made.id) == ("fused", "branches", "lowering:fused+branches")
    with pytest.raises(ValueError, match=re.escape("is one of auto, stream, graph, branches, not 'tree'")):
        Arm("x", {}, launch="tree")


def test_accesses_of_a_program() -> None:
    benchmark = find("rodinia/cfd")
    modules = ptx_of(benchmark, compiler("sm_90a", tuple(benchmark.flags)))
    plain = Arm("graph", modules, launch="graph")
    assert with_accesses(plain, benchmark) is plain
    made = with_accesses(Arm("branches", modules, launch="branches"), benchmark).accesses
    assert made
    for (text, kernel), (read, written) in made.items():
        assert text in modules.values() and kernel in text
        assert read | written
