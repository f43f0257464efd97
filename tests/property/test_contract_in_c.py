"""The C library and `runtime.choice` decide the same, on random contracts, launches and machines."""

from __future__ import annotations

import random_contracts as make
from fake_driver import Entry, FakeDriver, built_library
from hypothesis import given
from hypothesis import strategies as st
from ptxmotion.contract import Contract, Extent, KernelContract, Launch, Symbol, Version, holds, parse
from ptxmotion.contract.bytecode import encode
from ptxmotion.contract.conditions import Condition, Holds
from ptxmotion.contract.expressions import Expression
from ptxmotion.contract.tuning import tuned_kernel
from ptxmotion.runtime.choice import Choice, Flag, Reason, Request, choose
from ptxmotion.runtime.library import packed_config

SIZES = tuple((each.offset, each.size) for each in make.PARAMETERS)
ONE = Contract("0" * 64)


def raw_arguments(launch: Launch) -> tuple[bytes, ...]:
    """The bytes of the arguments."""
    raw: list[bytes] = []
    for parameter, value in zip(make.PARAMETERS, launch.arguments, strict=True):
        if isinstance(value, int):
            raw.append((value % (1 << (8 * parameter.size))).to_bytes(parameter.size, "little"))
        else:
            raw.append(value or bytes(parameter.size))
    return tuple(raw)


def in_c(kernel: KernelContract, request: Request, driver: FakeDriver) -> Choice:
    bound = built_library().bind(encode(Contract("0" * 64, {"k": kernel})), driver.MODULE, driver=driver.table())
    found = bound.kernel("k")
    assert found is not None
    return found.choose(request)


def of_one(condition: Condition) -> KernelContract:
    return KernelContract("k", make.PARAMETERS, (Version("k_1", (condition,)), Version("k")))


def driver_of(launch: Launch) -> FakeDriver:
    """A driver that knows nothing, so that the extents are those of the launch."""
    return FakeDriver({name: Entry(SIZES) for name in ("k_1", "k_2", "k_3", "k")})


@given(make.conditions, make.launches())
def test_conditions_hold_in_c_where_they_hold_in_python(condition: Condition, launch: Launch) -> None:
    """Also against `contract.holds`, which does not depend on the machine."""
    extents = {index: each for index, each in launch.extents.items() if each is not None and each.end < 2**64}
    block = (launch.block[0], 1, 1)
    launch = Launch(launch.arguments, launch.grid, block, 0, extents)
    request = Request(raw_arguments(launch), launch.grid, block, 0, extents=extents, flags=Flag.MAPPED_ONCE)
    result = in_c(of_one(condition), request, driver_of(launch))
    assert (result.version == 0) == holds(condition, launch)
    if result.version:
        assert result.reasons[0] in (Reason.FALSE, Reason.UNDECIDABLE)


@given(make.expressions | make.affine, make.launches())
def test_conditions_over_an_expression_hold_in_c_where_they_do_in_python(
    expression: Expression, launch: Launch
) -> None:
    """Conditions over an expression hold in C where they hold in Python, also if its value needs more than 64 bits."""
    launch = Launch(launch.arguments, launch.grid, (launch.block[0], 1, 1), 0)
    request = Request(raw_arguments(launch), launch.grid, launch.block)
    for limit in (0, 1, 2**63, -(2**63)):
        condition = Holds(expression - limit)
        assert (in_c(of_one(condition), request, driver_of(launch)).version == 0) == holds(condition, launch)


entries = st.builds(
    Entry,
    st.just(SIZES),
    st.sampled_from([8, 1, 2, 4, 16, 0]),
    st.just(()),
    st.dictionaries(st.sampled_from([8, 9, 8, 9, 11, 0]), st.sampled_from([0, 1, 64, 1024, 65536]), max_size=2),
)


@st.composite
def drivers(draw: st.DrawFn, kernel: KernelContract) -> FakeDriver:
    """A machine on which some entries are missing or do not fit. The kernel itself is the last entry."""
    found: dict[str, Entry] = {}
    for name in ("k_1", "k_2", "k_3"):
        extra = max((len(v.launch.arguments) for v in kernel.versions if v.entry == name and v.launch), default=0)
        entry = draw(entries)
        entry.extra_sizes = tuple(draw(st.sampled_from([1, 2, 4, 8])) for _ in range(extra))
        entry.parameters = (*SIZES, *((72 + 8 * index, size) for index, size in enumerate(entry.extra_sizes)))
        if draw(st.integers(0, 5)):
            found[name] = entry
    found["k"] = draw(entries)
    allocations = draw(st.lists(st.sampled_from([Extent(0x1000, 0x1040), Extent(0x1040, 0x1080)]), unique=True))
    return FakeDriver(
        found,
        allocations,
        mapped_twice=[each for each in allocations if not draw(st.integers(0, 3))],
        multiprocessors=draw(st.sampled_from([4, 132]) | st.integers(1, 200)),
        capturing=draw(st.sampled_from([frozenset[int](), frozenset([5])])),
        partitioned=draw(st.sampled_from([frozenset[int](), frozenset([5])])),
    )


attributes = st.lists(
    st.tuples(st.sampled_from([1, 2, 6, 4, 13, 17]), st.sampled_from([bytes(64), b"\1" + bytes(63)])), max_size=1
)
_good_blocks = [(128, 1, 1), (1, 1, 1), (33, 2, 3), (1024, 1, 1), (32, 32, 1)] * 3
heights = st.sampled_from([1] * 9 + [65536])
blocks = st.sampled_from([*_good_blocks, *_good_blocks, (1024, 2, 1), (1, 1, 65)])


@given(st.data())
def test_c_and_python_launch_the_same_version(data: st.DataObject) -> None:
    """Everything together: versions, machine, capture, attributes, occupancy; and what is launched, to the bit."""
    kernel = data.draw(make.kernels | make.easy_kernels)
    driver = data.draw(drivers(kernel))
    launch = data.draw(make.launches())
    extents = {index: each for index, each in launch.extents.items() if each is not None and each.end < 2**64}
    request = Request(
        raw_arguments(launch),
        (data.draw(st.sampled_from([1, 7, 30, 60, 100, 500, 2000, 0])), data.draw(heights), 1),
        data.draw(blocks),
        data.draw(st.sampled_from([0, 64, 50000])),
        data.draw(st.sampled_from([0, 5])),
        tuple(data.draw(attributes)),
        extents if data.draw(st.booleans()) else {},
        Flag(data.draw(st.sampled_from([0, 8, 10, 1, 2, 3, 10, 4]))),
    )
    expected = choose(tuned_kernel(kernel, driver.machine), request, driver)
    bound = built_library().bind(encode(Contract("0" * 64, {"k": kernel})), driver.MODULE, driver=driver.table())
    found = bound.kernel("k")
    assert found is not None
    result = found.choose(request)
    assert (result.version, result.reasons) == (expected.version, expected.reasons)
    assert (result.grid, result.block, result.shared) == (expected.grid, expected.block, expected.shared)
    if request.attributes:
        return
    packed = bytearray(72)
    for (offset, size), raw in zip(SIZES, request.arguments, strict=True):
        packed[offset : offset + size] = raw
    given_extents = bytearray(16 * len(SIZES))
    for index, (begin, end) in request.extents.items():
        given_extents[16 * index : 16 * index + 16] = begin.to_bytes(8, "little") + end.to_bytes(8, "little")
    config = packed_config(request.grid, request.block, request.shared, request.stream)
    assert found.launch(config, bytes(packed), bytes(given_extents), int(request.flags)) == 0
    ((entry, shape, values),) = driver.launched
    assert entry == kernel.versions[expected.version].entry
    assert shape == (*expected.grid, *expected.block, expected.shared, request.stream)
    assert values == [*request.arguments, *expected.extra]
    for index, reason in enumerate(expected.reasons):
        assert found.reasons(index, len(kernel.versions)) == {reason: 1}
    for index, failed in enumerate(expected.failed):
        if failed is not None:
            is_unknown = expected.reasons[index] is Reason.UNDECIDABLE
            assert found.condition_counts(index, failed) == (not is_unknown, is_unknown)


@given(st.data())
def test_remembered_decisions_are_those_of_first_launches(data: st.DataObject) -> None:
    """Launches of one kernel, some of them again, while memory is freed and allocated: as if each were the first."""
    kernel = data.draw(make.kernels | make.easy_kernels)
    driver = data.draw(drivers(kernel))
    bound = built_library().bind(encode(Contract("0" * 64, {"k": kernel})), driver.MODULE, driver=driver.table())
    found = bound.kernel("k")
    assert found is not None
    arguments = [raw_arguments(each) for each in data.draw(st.lists(make.launches(), min_size=1, max_size=3))]
    regions = [Extent(0x1000, 0x1040), Extent(0x1000, 0x1020), Extent(0x1040, 0x1080), Extent(0x1000, 0x1080)]
    for _ in range(data.draw(st.integers(2, 8))):
        if data.draw(st.booleans()):
            driver.allocations = data.draw(st.lists(st.sampled_from(regions), unique=True, max_size=2))
            driver.mapped_twice = [each for each in driver.allocations if not data.draw(st.integers(0, 4))]
        request = Request(
            data.draw(st.sampled_from(arguments)),
            (data.draw(st.sampled_from([1, 60])), 1, 1),
            data.draw(st.sampled_from([(128, 1, 1), (33, 2, 3)])),
            0,
            data.draw(st.sampled_from([0, 5])),
            flags=Flag(data.draw(st.sampled_from([0, 8, 2]))),
        )
        expected = choose(tuned_kernel(kernel, driver.machine), request, driver)
        result = found.choose(request)
        assert (result.version, result.reasons) == (expected.version, expected.reasons)
        assert (result.grid, result.block, result.shared) == (expected.grid, expected.block, expected.shared)


def test_the_symbols_have_their_numbers() -> None:
    """Every symbol, one by one."""
    request = Request(tuple(bytes(size) for _, size in SIZES), (2, 3, 4), (5, 6, 7), 8)
    names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")
    for value, name in enumerate(names, 2):
        kernel = of_one(Holds(Expression.__sub__(Symbol(name), value)))
        assert in_c(kernel, request, FakeDriver({"k_1": Entry(SIZES), "k": Entry(SIZES)})).version == 1


@given(st.data())
def test_c_and_python_agree_on_resident_blocks(data: st.DataObject) -> None:
    """How many blocks run at the same time: a version whose conditions always hold, and all sizes."""
    true = of_one(Holds(parse("1")))
    changed = Version("k_1", (), None, data.draw(make.easy_changes))
    kernel = data.draw(st.sampled_from([true, KernelContract("k", make.PARAMETERS, (changed, Version("k")))]))
    sizes = st.sampled_from([1, 2, 4, 8])
    clusters = {11: 1} if not data.draw(st.integers(0, 4)) else {}
    driver = FakeDriver(
        {"k_1": Entry(SIZES, data.draw(sizes)), "k": Entry(SIZES, data.draw(sizes), attributes=clusters)},
        multiprocessors=data.draw(st.sampled_from([1, 4, 10])),
        partitioned=data.draw(st.sampled_from([frozenset[int](), frozenset([0])])),
    )
    attribute = data.draw(st.sampled_from([(), ((4, bytes(64)),)]))
    arguments = tuple(bytes(size) for _, size in SIZES)
    grid = data.draw(st.integers(1, 100)), data.draw(st.sampled_from([1, 1, 2])), 1
    request = Request(arguments, grid, (64, 1, 1), 0, 0, attribute)
    expected, result = choose(kernel, request, driver), in_c(kernel, request, driver)
    assert (result.version, result.reasons) == (expected.version, expected.reasons)
