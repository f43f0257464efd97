"""The passes on memory climb the ladder over the kernels of `random_pointers`: their accesses overlap in every way.

Only one thread runs: where threads race, nothing has to stay as it was. `restrict` is promised where the buffers of the
launch are not one.
"""

import random

import pytest
from ladder import Ladder, Launch
from ptxmotion.analysis.alias import CONSERVATIVE, Promise
from random_pointers import PARAMS, pointer_kernel

RESTRICT = Promise(everything=True)
LISTS = (
    "deadstores",
    "vectormerge:aligned=16",
    "readonly",
    "O1",
    "sscm:min_cost=0",
    "deadstores,lcm:min_cost=0,deadstores,dce",
    "vectormerge:aligned=16,readonly,deadstores,lcm:min_cost=0",
)
SHARE = 10
FIXED = 40


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        count = int(metafunc.config.getoption("--fuzz-n") or 0)
        metafunc.parametrize("share", range(max(1, -(-(count or FIXED) // SHARE))))


def drawn(seed: int) -> tuple[str, Launch]:
    soup = pointer_kernel(seed, (8, 20, 40)[seed % 3])
    return soup.ptx, Launch(soup.kernel, (1,), (1,), 0, soup.make_inputs)


@pytest.mark.fuzz
def test_memory_is_as_it_was(share: int, pytestconfig: pytest.Config) -> None:
    for number in range(share * SHARE, (share + 1) * SHARE):
        seed = random.randrange(1 << 40) if pytestconfig.getoption("--fuzz-n") else number
        rng = random.Random(f"memory:{seed}")
        ptx, launch = drawn(seed)
        ladder = Ladder(ptx, launch, (seed,))
        assert not ladder.fault, seed
        pointers = launch.arguments(seed)[: len(PARAMS)]
        promise = RESTRICT if len({id(each) for each in pointers}) == len(PARAMS) else CONSERVATIVE
        for passes in rng.sample(LISTS, 2):
            assert ladder.complaints(passes, promise=promise) == [], (seed, passes, promise)
