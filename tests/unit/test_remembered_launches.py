"""Decisions that the C library remembers: which extents a repeated launch asks for, with a driver of the test."""

from __future__ import annotations

import ctypes
import struct
from random import Random
from typing import Any

import pytest
from fake_driver import NO_CONTEXT, Entry, FakeDriver, built_library
from ptxmotion.contract import (
    Condition,
    Contract,
    Disjoint,
    Extent,
    Holds,
    Inside,
    KernelContract,
    Number,
    Parameter,
    Range,
    Version,
    parse,
)
from ptxmotion.contract.bytecode import encode
from ptxmotion.runtime.choice import Flag, Reason
from ptxmotion.runtime.cuda_machine import CudaMachine
from ptxmotion.runtime.library import packed_config
from test_launch_library import (
    DISJOINT,
    PARAMETERS,
    SIZES,
    X,
    Y,
    bound,
    change,
    contract_of,
    driver_of,
    entries,
    launch,
)


def test_one_extent_of_disjoint_buffers_is_queried() -> None:
    """While the allocation of one pointer is there, no other allocation has a byte in common with it. But a pointer to
    the end of it may be one into it. So then the extent of the other pointer is asked for."""
    driver = driver_of()
    kernel = bound(driver)
    launch(kernel)
    driver.asked.clear()
    launch(kernel)
    assert driver.asked == [1]
    driver.allocations, driver.buffer_ids = [Extent(X.begin, Y.end)], {Extent(X.begin, Y.end): 77}
    launch(kernel)
    assert entries(driver) == ["k_1", "k_1", "k"]
    behind = Extent(X.end, X.end + 0x40)
    for first, second in ((X, behind), (behind, X)):
        driver.allocations, driver.buffer_ids = [X, behind], {}
        for _ in range(2):
            launch(kernel, x=first.begin, y=second.begin)
            assert entries(driver)[-1] == "k_1"
        # The second one is free. It was behind the first one: then a pointer to it may be a pointer to the first one.
        driver.allocations = [X]
        launch(kernel, x=first.begin, y=second.begin)
        assert entries(driver)[-1] == "k"


@pytest.mark.parametrize(
    ("pairs", "asked"), [([(0, 1), (0, 2)], 1), ([(2, 0), (2, 1)], 1), ([(0, 1), (0, 2), (1, 2)], 2), ([(0, 1)], 1)]
)
def test_few_extents_serve_all_pairs(pairs: list[tuple[int, int]], asked: int) -> None:
    parameters = tuple(Parameter(name, 8 * index, 8, "u64", pointer=True) for index, name in enumerate("xyz"))
    sizes = [(each.offset, each.size) for each in parameters]
    buffers = [Extent(0x1000 * number, 0x1000 * number + 0x40) for number in (1, 2, 3)]
    driver = FakeDriver({"k_1": Entry(sizes), "k": Entry(sizes)}, buffers)
    version = Version("k_1", tuple(Disjoint(Range(one), Range(two)) for one, two in pairs))
    contract = Contract("ab" * 32, {"k": KernelContract("k", parameters, (version, Version("k")))})
    driver.buffer_ids = {buffer: number for number, buffer in enumerate(buffers, 1)}
    kernel = built_library().bind(encode(contract), driver.MODULE, driver=driver.table()).kernel("k")
    assert kernel is not None
    config = packed_config((1, 1, 1), (32, 1, 1), 0, 0, 0, 0)
    arguments = struct.pack("<QQQ", *(each.begin for each in buffers))
    for number in range(4):
        driver.asked.clear()
        assert kernel.launch(config, arguments, None, 0) == 0
        assert driver.asked == ([1] * asked if number else [4] * len({each for pair in pairs for each in pair}))
    # Another allocation in the place of any buffer: only that of one that is asked for is seen.
    seen = 0
    for buffer in buffers:
        driver.buffer_ids[buffer] += 100
        driver.asked.clear()
        assert kernel.launch(config, arguments, None, 0) == 0
        seen += 4 in driver.asked
    assert seen == asked and entries(driver) == ["k_1"] * 7


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize(
    "version",
    [
        Version("k_1", (DISJOINT,)),
        Version("k_1", (), prefer_when=parse("warps_per_scheduler <= 4")),
        Version("k_1", (), launch=change(grid="2")),
    ],
)
def test_what_fails_without_a_context_is_not_remembered(version: Version, is_library: bool) -> None:
    """The first launch of a thread may have no context. Then no occupancy is known, also not for later launches."""
    driver = driver_of()
    module = built_library().bind(
        encode(contract_of(version)), driver.MODULE, is_library=is_library, driver=driver.table()
    )
    kernel = module.kernel("k")
    assert kernel is not None
    driver.has_context = False
    assert launch(kernel) == NO_CONTEXT
    driver.has_context = True
    for block in (32, 32, 64):
        assert launch(kernel, block=block) == 0
    assert entries(driver) == ["k_1"] * 3


class _Functions:
    """The functions of libcuda that `CudaMachine` asks for an occupancy."""

    has_context = False

    def cuCtxGetDevice(self, device: Any) -> int:
        return 0 if self.has_context else NO_CONTEXT

    def cuDeviceGetAttribute(self, value: Any, number: int, device: int) -> int:
        value._obj.value = 4
        return 0

    def cuKernelGetFunction(self, function: Any, kernel: Any) -> int:
        return self.cuCtxGetDevice(None)

    def cuFuncGetAttribute(self, value: Any, number: int, function: Any) -> int:
        value._obj.value = 1024
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: Any, function: Any, threads: int, shared: Any) -> int:
        blocks._obj.value = 8
        return 0


def test_python_keeps_no_occupancy_without_a_context() -> None:
    functions = _Functions()
    machine = CudaMachine(functions, {"k": 1}, KernelContract("k", PARAMETERS, (Version("k"),)), {"k": SIZES})
    assert machine.occupancy("k", 32, 0).blocks == 0
    functions.has_context = True
    assert machine.occupancy("k", 32, 0).blocks == 8


#: Conditions of two pointers: the buffers, parts of them, a range inside, the end of a buffer.
_PARTS = [Range(index, Number(0), parse("4 * arg2")) for index in (0, 1)]
CONDITIONS = [
    DISJOINT,
    Disjoint(*_PARTS),
    Disjoint(Range(0), _PARTS[1]),
    *map(Inside, _PARTS),
    Holds(parse("end(arg0) - arg0 >= 16")),
]


def _reads(condition: Condition, pointer: int, n: int) -> bool:
    """Whether a condition reads the extent of a pointer, besides that it is another one. An empty range has none."""
    if condition == CONDITIONS[-1]:
        return pointer == 0
    if condition == CONDITIONS[2]:
        return pointer == 0 or n > 0
    return condition == Inside(_PARTS[pointer]) and n > 0


def test_remembered_decisions_are_those_of_new_ones() -> None:
    """Random launches, while buffers are freed and allocated in random places. A launch that is repeated has the
    version that a kernel without memory of it has. There is one exception: a pointer into no allocation, if all that is
    required of its buffer is that it is another one than that of a pointer whose allocation is still there."""
    random = Random(5)
    remembered = exceptions = 0
    places = [Extent(0x1000 + 0x40 * place, 0x1040 + 0x40 * place) for place in range(4)]
    for _ in range(80):
        chosen = random.sample(CONDITIONS, random.randint(1, 3))
        versions = [Version("k_1", tuple(chosen)), Version("k_2", (random.choice(CONDITIONS),))]
        driver = driver_of(k_2=Entry(SIZES))
        kernel, number = bound(driver, *versions), 4
        driver.buffer_ids = {place: index + 1 for index, place in enumerate(places)}
        starts = [place.begin + offset for place in places for offset in (0, 0x20)]
        launches = [(random.choice(starts), random.choice(starts), random.choice([0, 4, 8, 20])) for _ in range(3)]
        for _ in range(20):
            if random.random() < 0.3:
                number += 1
                place = random.choice(places)
                driver.buffer_ids[place] = number if driver.buffer_ids[place] == 0 or random.random() < 0.5 else 0
            driver.allocations = [place for place in places if driver.buffer_ids[place]]
            x, y, n = random.choice(launches)
            driver.asked.clear()
            launch(kernel, x, y, n)
            remembered += bool(driver.asked) and 4 not in driver.asked
            launch(bound(driver, *versions), x, y, n)
            old, new = entries(driver)[-2:]
            if old != new:
                exceptions += 1
                unknown, known = (0, 1) if driver.allocation(x) is None else (1, 0)
                extent = driver.allocation((x, y)[known])
                assert extent is not None and driver.allocation((x, y)[unknown]) is None
                assert extent.end != (x, y)[unknown]
                assert old != "k" and not any(_reads(each, unknown, n) for each in versions[old == "k_2"].requires)
    assert remembered > 100 and exceptions > 0


@pytest.mark.parametrize(
    ("threads", "flags", "reason"), [(0, Flag(0), Reason.BAD_LAUNCH), (32, Flag.ORIGINAL, Reason.FORBIDDEN)]
)
def test_no_argument_of_a_launch_without_versions_is_read(threads: int, flags: Flag, reason: Reason) -> None:
    """The driver refuses a launch without threads before it reads arguments, which need not be there."""
    driver = driver_of()
    module = built_library().bind(
        encode(contract_of(Version("k_1", (DISJOINT,)))), driver.MODULE, driver=driver.table()
    )
    functions = module.library.functions
    kernel = functions.ptxmotion_find(module.address, b"k")
    arguments, choice, reasons = (ctypes.c_void_p * 3)(), (ctypes.c_uint8 * 256)(), (ctypes.c_uint8 * 2)()
    config = packed_config((1, 1, 1), (threads, 1, 1), 0, 0, 0, 0)
    functions.ptxmotion_choose(kernel, config, arguments, None, int(flags), choice, reasons)
    assert list(reasons) == [reason, Reason.TAKEN] and choice[0] == 1


@pytest.mark.parametrize("flags", [Flag(0), Flag.MAPPED_ONCE])
def test_remembered_decisions_on_stated_extents(flags: Flag) -> None:
    """Random launches, for which the caller states the extents of both pointers, of one, or of none."""
    random = Random(7)
    repeated = differing = 0
    whole = Extent(0x1000, 0x1100)
    for _ in range(60):
        versions = [
            Version("k_1", tuple(random.sample(CONDITIONS, random.randint(1, 3)))),
            Version("k_2", (random.choice(CONDITIONS),)),
        ]
        driver = driver_of(k_2=Entry(SIZES))
        kernel, last = bound(driver, *versions), ""
        starts = [0x1000, 0x1040, 0x1080]
        x, y, n = random.choice(starts), random.choice(starts), random.choice([0, 4, 8, 20])
        for _ in range(20):
            driver.allocations = [whole] if random.random() < 0.8 else []
            stated = [random.choice([Extent(0, 0), Extent(at, at + 0x20), Extent(at, at + 0x80)]) for at in (x, y)]
            extents = None if random.random() < 0.2 else b"".join(struct.pack("<QQ", *each) for each in stated)
            driver.asked.clear()
            for each in (kernel, kernel, bound(driver, *versions)):
                launch(each, x, y, n, flags=flags, extents=extents)
            first, second, new = entries(driver)[-3:]
            assert first == second == new
            repeated += 1
            differing += last not in ("", new)
            last = new
    assert repeated > 1000 and differing > 100
