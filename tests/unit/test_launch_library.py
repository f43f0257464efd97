"""The C library with a driver of the test: what is launched with which arguments, and what it does when things fail."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence

import pytest
from fake_driver import INVALID, OUT_OF_RESOURCES, Entry, FakeDriver, built_library
from ptxmotion.contract import (
    Condition,
    Contract,
    Disjoint,
    Expression,
    Extent,
    Holds,
    Inside,
    KernelContract,
    Launch,
    LaunchChange,
    Number,
    Parameter,
    Range,
    Version,
    holds,
    parse,
)
from ptxmotion.contract.bytecode import encode
from ptxmotion.runtime.choice import Flag, Reason, Request
from ptxmotion.runtime.cuda_machine import CudaMachine
from ptxmotion.runtime.library import (
    BoundKernel,
    BoundModule,
    packed_attributes,
    packed_config,
)

PARAMETERS = (
    Parameter("x", 0, 8, "u64", pointer=True),
    Parameter("y", 8, 8, "u64", pointer=True),
    Parameter("n", 16, 4, "u32"),
)
SIZES = [(each.offset, each.size) for each in PARAMETERS]
X, Y = Extent(0x1000, 0x1040), Extent(0x2000, 0x2040)
DISJOINT = Disjoint(Range(0), Range(1))


def contract_of(*versions: Version) -> Contract:
    return Contract("ab" * 32, {"k": KernelContract("k", PARAMETERS, (*versions, Version("k")))})


def driver_of(**entries: Entry) -> FakeDriver:
    found = {"k_1": Entry(SIZES), **entries}
    return FakeDriver({**found, "k": found.get("k", Entry(SIZES))}, [X, Y])


def bound(driver: FakeDriver, *versions: Version, conditions: Sequence[Condition] = (DISJOINT,)) -> BoundKernel:
    contract = contract_of(*(versions or (Version("k_1", tuple(conditions)),)))
    kernel = built_library().bind(encode(contract), driver.MODULE, driver=driver.table()).kernel("k")
    assert kernel is not None
    return kernel


def launch(
    kernel: BoundKernel,
    x: int = X.begin,
    y: int = Y.begin,
    n: int = 4,
    *,
    grid: int = 1,
    block: int = 32,
    shared: int = 0,
    stream: int = 0,
    attributes: Sequence[tuple[int, int]] = (),
    flags: Flag = Flag(0),  # noqa: B008
    extents: bytes | None = None,
) -> int:
    request = Request((), (1, 1, 1), (1, 1, 1), attributes=tuple((i, v.to_bytes(4, "little")) for i, v in attributes))
    raw = ctypes.create_string_buffer(packed_attributes(request))
    config = packed_config((grid, 1, 1), (block, 1, 1), shared, stream, ctypes.addressof(raw), len(attributes))
    return kernel.launch(config, struct.pack("<QQI", x, y, n), extents, int(flags))


def change(**parts: str) -> LaunchChange:
    """A change of the launch, from texts."""

    def three(text: str | None) -> tuple[Expression, Expression, Expression] | None:
        return None if text is None else (parse(text), Number(1), Number(1))

    shared = parts.get("shared")
    extra = tuple(map(parse, parts.get("arguments", "").split(";"))) if "arguments" in parts else ()
    return LaunchChange(
        three(parts.get("grid")), three(parts.get("block")), None if not shared else parse(shared), extra
    )


def entries(driver: FakeDriver) -> list[str]:
    return [entry for entry, _, _ in driver.launched]


def test_a_launch_with_its_arguments() -> None:
    driver = driver_of()
    assert launch(bound(driver), n=7, grid=3, block=64, shared=16, stream=9) == 0
    ((entry, shape, values),) = driver.launched
    assert entry == "k_1"
    assert shape == (3, 1, 1, 64, 1, 1, 16, 9)
    assert values == [struct.pack("<Q", X.begin), struct.pack("<Q", Y.begin), struct.pack("<I", 7)]


def test_each_pointer_is_looked_up_once() -> None:
    """Three conditions read both extents; a kernel without versions needs no call of the driver."""
    driver = driver_of()
    ranges = [Range(index, Number(0), parse("4 * arg2")) for index in (0, 1)]
    kernel = bound(driver, conditions=(DISJOINT, Inside(ranges[0]), Disjoint(*ranges), Inside(ranges[1])))
    driver.calls.clear()
    launch(kernel, stream=7)
    assert driver.calls["pointer_get_attributes"] == 2
    assert driver.calls["stream_is_capturing"] == 1
    assert "mem_get_address_range" not in driver.calls
    assert driver.calls["occupancy"] == 2
    driver.calls.clear()
    launch(kernel, stream=7)
    assert driver.calls == {"pointer_get_attributes": 2, "stream_is_capturing": 1, "launch_kernel_ex": 1}
    driver.calls.clear()
    launch(kernel, y=X.begin + 32, stream=7)
    assert driver.calls == {"pointer_get_attributes": 1, "stream_is_capturing": 1, "launch_kernel_ex": 1}
    alone = bound(driver, Version("k_1", (Holds(parse("arg2 == 4")),)))
    driver.calls.clear()
    launch(alone, n=5, stream=7)
    assert driver.calls == {"stream_is_capturing": 1, "launch_kernel_ex": 1}
    driver.calls.clear()
    launch(alone, n=5)
    assert driver.calls == {"launch_kernel_ex": 1}  # the legacy null stream cannot be captured


def test_a_launch_that_is_repeated() -> None:
    """The extents are found again. So the decision changes if a buffer was freed and allocated with another size."""
    driver = driver_of()
    kernel = bound(driver, conditions=[DISJOINT, Inside(Range(1, Number(0), parse("4 * arg2")))])
    for n, entry in ((4, "k_1"), (4, "k_1"), (17, "k"), (17, "k"), (4, "k_1")):
        launch(kernel, n=n)
        assert entries(driver)[-1] == entry
    assert kernel.reasons(0, 2) == {Reason.TAKEN: 3, Reason.FALSE: 2} and kernel.condition_counts(0, 1) == (2, 0)
    driver.allocations = [X, Extent(Y.begin, Y.begin + 12)]
    launch(kernel)
    driver.allocations = [X]
    launch(kernel)
    driver.allocations = [X, Y]
    launch(kernel)
    assert entries(driver)[-3:] == ["k", "k", "k_1"]
    assert kernel.condition_counts(0, 1) == (3, 0) and kernel.condition_counts(0, 0) == (0, 1)


def test_an_allocation_is_known_by_its_number() -> None:
    """A launch that is repeated asks for the numbers only. With a new number, the extent is found again."""
    driver = driver_of()
    kernel = bound(driver, conditions=[Inside(Range(index, Number(0), parse("4 * arg2"))) for index in (0, 1)])
    launch(kernel)
    assert driver.asked == [4, 4]
    launch(kernel)
    assert driver.asked == [4, 4, 1, 1]
    driver.allocations = [X, Extent(Y.begin, Y.begin + 12)]
    launch(kernel)
    assert entries(driver) == ["k_1", "k_1", "k"]
    driver.allocations, driver.mapped_twice, driver.buffer_ids = [X, Y], [Y], {X: 1, Y: 99}
    launch(kernel)
    driver.mapped_twice, driver.buffer_ids = [], {X: 0, Y: 0}  # a driver that knows no numbers
    launch(kernel)
    driver.asked.clear()
    launch(kernel)
    assert entries(driver)[-3:] == ["k", "k_1", "k_1"] and driver.asked == [4, 4]


def test_pointers_into_one_allocation() -> None:
    """The query for the first one serves both. It does not serve a pointer behind the last byte."""
    driver = driver_of()
    driver.allocations = [X, Extent(X.end, X.end + 64)]
    kernel = bound(driver, conditions=[Disjoint(*(Range(i, Number(0), parse("4 * arg2")) for i in (0, 1)))])
    for y, n, entry in ((X.begin + 16, 4, "k_1"), (X.begin + 16, 5, "k"), (X.end, 16, "k_1"), (X.end, 17, "k")):
        launch(kernel, y=y, n=n)
        assert entries(driver)[-1] == entry
    driver.allocations = [X]
    launch(kernel, y=X.begin + 16)
    launch(kernel, y=X.end)
    assert entries(driver)[-2:] == ["k_1", "k"]


def test_an_extent_of_the_caller_serves_no_other_pointer() -> None:
    driver = driver_of()
    kernel = bound(driver, conditions=[Inside(Range(index, Number(0), parse("4 * arg2"))) for index in (0, 1)])
    config = packed_config((1, 1, 1), (32, 1, 1), 0, 0, 0, 0)
    arguments = struct.pack("<QQI", X.begin, X.begin + 16, 8)
    assert kernel.launch(config, arguments, None, 0) == 0
    stated = struct.pack("<6Q", X.begin, X.begin + 32, 0, 0, 0, 0)
    assert kernel.launch(config, arguments, stated, 0) == 0
    assert entries(driver) == ["k_1", "k_1"] and driver.calls["pointer_get_attributes"] == 1 + 2


def test_the_same_memory() -> None:
    driver = driver_of()
    kernel = bound(driver)
    launch(kernel, y=X.begin + 32)
    assert entries(driver) == ["k"]
    assert kernel.reasons(0, 2) == {Reason.FALSE: 1} and kernel.condition_counts(0, 0) == (1, 0)
    assert kernel.reasons(1, 2) == {Reason.TAKEN: 1}


@pytest.mark.parametrize("pointer", [0, 8, X.end, 2**64 - 1])
def test_a_pointer_into_nothing(pointer: int) -> None:
    driver = driver_of()
    kernel = bound(driver)
    launch(kernel, y=pointer)
    assert entries(driver) == ["k"]
    assert kernel.condition_counts(0, 0) == (0, 1)


def test_memory_that_may_have_two_addresses() -> None:
    driver = driver_of()
    driver.mapped_twice = [Y]
    kernel = bound(driver)
    launch(kernel)
    launch(kernel, flags=Flag.MAPPED_ONCE)
    assert entries(driver) == ["k", "k_1"]


@pytest.mark.parametrize("start", [Y.end, Y.begin - 0x40])
def test_a_buffer_of_several_mappings(start: int) -> None:
    """One buffer may consist of several mappings of cuMemMap in one range of addresses. The driver gives the extent of
    one mapping. So a larger index is not outside of the buffer, and two extents may be parts of one buffer."""
    driver = driver_of()
    driver.allocations = [X, Y, Extent(start, start + 0x40)]
    driver.mapped_twice = driver.allocations
    kernel = bound(driver, conditions=[Holds(parse("end(arg1) >= 0"))])
    launch(kernel, flags=Flag.MAPPED_ONCE)
    assert entries(driver) == ["k"]
    driver.allocations = [X, Y]
    launch(kernel, flags=Flag.MAPPED_ONCE)
    assert entries(driver) == ["k", "k_1"]


@pytest.mark.parametrize(
    ("attributes", "entry"),
    [
        ({10: 1}, "k_1"),  # cuMemAlloc
        ({10: 0}, "k"),  # cuMemMap, pinned, registered, imported
        ({10: 0, 8: 1}, "k_1"),  # managed
        ({10: 0, 17: 0x5555, 14: 0}, "k_1"),  # a pool
        ({10: 0, 17: 0x5555, 14: 1}, "k"),  # a pool that can be exported, and imported again
        ({10: 0, 14: 0}, "k"),
        ({10: 1, 12: 0}, "k"),
    ],
)
def test_kinds_of_memory(attributes: dict[int, int], entry: str) -> None:
    driver = driver_of()
    driver.pointer_attributes = {Y: attributes}
    launch(bound(driver))
    assert entries(driver) == [entry]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7 // 2 == -4 and -7 % 2 == 1", True),
        ("7 // -2 == -4 and 7 % -2 == -1", True),
        ("-7 // -2 == 3 and -7 % -2 == -1", True),
        ("6 // -2 == -3 and 6 % -2 == 0", True),
        ("-9223372036854775808 // -1 == 9223372036854775808", True),
        ("18446744073709551616 // -3 == -6148914691236517206", True),
        ("18446744073709551616 % -3 == -2", True),
        ("arg2 // 0 == 0", False),
        ("not arg2 % 0", False),
        ("0 and 1 // 0", False),
        ("1 or 1 // 0", True),
        ("1 // 0 or 1", False),
        ("18446744073709551615 + 1 == 18446744073709551616", True),
        ("18446744073709551616 + 1 > 0", False),
        ("-18446744073709551616 - 1 < 0", False),
        ("4294967296 * 4294967296 > 0", True),
        ("4294967296 * 4294967297 > 0", False),
        ("arg0 * 1073741823 > 0", True),
        ("arg0 * 36893488147419103 > 0", False),
        ("arg0 * 1099511627776 - arg0 * 1099511627775 == arg0", True),
        ("min(3, arg2, 5) == 3 and max(3, arg2, 5) == 5", True),
        ("(5 if arg2 == 4 else 1 // 0) == 5", True),
        ("2 and 3", True),
        ("(2 and 3) == 1 and (0 or 7) == 1", True),
        ("-arg2 == 0 - 4 and not (arg2 == 5)", True),
    ],
)
def test_c_and_python_agree_on_expressions(text: str, expected: bool) -> None:
    """C and Python agree. A condition is undecidable if an intermediate value exceeds 2**64."""
    condition = Holds(parse(text))
    assert holds(condition, Launch((X.begin, Y.begin, 4))) == expected
    driver = driver_of()
    launch(bound(driver, conditions=[condition]))
    assert entries(driver) == ["k_1" if expected else "k"]


@pytest.mark.parametrize(
    ("x", "start", "stop", "entry"),
    [
        (X.begin, "0", "64", "k_1"),
        (X.begin, "0", "65", "k"),
        (X.begin, "-1", "64", "k"),
        (X.begin + 60, "0", "arg2", "k_1"),
        (X.begin + 60, "0", "arg2 + 1", "k"),
        (0, "5", "5", "k_1"),
        (0, "5", "6", "k"),
        (2**64 - 1, "0", "1", "k"),
        (2**64 - 1, "arg0 * 2 - arg0 * 2", "0", "k"),  # undecidable, though it would be empty
    ],
)
def test_which_entry_a_range_allows(x: int, start: str, stop: str, entry: str) -> None:
    """An empty range needs no extent."""
    driver = driver_of()
    launch(bound(driver, conditions=[Inside(Range(0, parse(start), parse(stop)))]), x=x)
    assert entries(driver) == [entry]


@pytest.mark.parametrize(("last", "entry"), [(64, "k_1"), (65, "k")])
def test_more_ranges_than_a_launch_keeps(last: int, entry: str) -> None:
    """More different ranges than are kept in a launch, each of them twice; the last one decides."""
    driver = driver_of()
    stops = [*range(1, 41), last]
    conditions = [Inside(Range(0, Number(0), Number(stop))) for stop in [*stops, *stops]]
    kernel = bound(driver, conditions=conditions)
    launch(kernel)
    assert entries(driver) == [entry]
    assert kernel.condition_counts(0, 40) == (int(last > 64), 0)


def test_disjoint_from_an_empty_range() -> None:
    driver = driver_of()
    condition = Disjoint(Range(0, parse("5"), parse("5")), Range(1, parse("0"), parse("4")))
    launch(bound(driver, conditions=[condition]), x=0, y=8)
    assert entries(driver) == ["k_1"]


@pytest.mark.parametrize(("grid", "entry"), [(1, "k_1"), (8, "k_1"), (9, "k"), (33, "k_1")])
def test_residence_of_a_changed_launch(grid: int, entry: str) -> None:
    """The version has four times the blocks, of the same occupancy: 32 fit on the GPU."""
    driver = driver_of()
    launch(bound(driver, Version("k_1", (), launch=change(grid="4 * grid_x"))), grid=grid)
    assert entries(driver) == [entry]


def test_a_captured_launch() -> None:
    driver = driver_of()
    driver.capturing = frozenset([5])
    kernel = bound(driver)
    launch(kernel, stream=5)
    launch(kernel, stream=6)
    launch(kernel, stream=5, flags=Flag.CAPTURE)
    assert entries(driver) == ["k", "k_1", "k_1"]
    assert kernel.reasons(0, 2) == {Reason.CAPTURED: 1, Reason.TAKEN: 2}


def test_a_version_that_the_driver_refuses() -> None:
    """The kernel itself is launched instead; an error of the kernel is the error of the launch."""
    driver = driver_of()
    driver.refuses = {"k_1": OUT_OF_RESOURCES}
    kernel = bound(driver)
    assert launch(kernel) == 0
    assert entries(driver) == ["k"]
    assert kernel.reasons(0, 2) == {Reason.REFUSED: 1} and kernel.reasons(1, 2) == {Reason.TAKEN: 1}
    driver.refuses = {"k_1": OUT_OF_RESOURCES, "k": INVALID}
    assert launch(kernel) == INVALID


@pytest.mark.parametrize(
    ("attributes", "entry"),
    [
        ([(2, 1)], "k_1"),
        ([(6, 1), (8, 3)], "k_1"),
        ([(13, 0)], "k_1"),
        ([(13, 1)], "k"),
        ([(17, 0)], "k"),
        ([(-1, 0)], "k"),
        ([(1, 0), (99, 1)], "k"),
    ],
)
def test_which_attributes_of_a_launch_allow_a_version(attributes: list[tuple[int, int]], entry: str) -> None:
    """A node that the device may update, and an attribute that is not known, take the kernel."""
    driver = driver_of()
    launch(bound(driver), attributes=attributes)
    assert entries(driver) == [entry]


def test_function_attributes_are_copied() -> None:
    """The limit of dynamic shared memory and the carveout, also if they are set after the first launch."""
    driver = driver_of()
    kernel = bound(driver)
    launch(kernel)
    driver.entries["k"].attributes.update({8: 100_000, 9: 50})
    launch(kernel, shared=90_000)
    assert entries(driver) == ["k_1", "k_1"]
    assert driver.entries["k_1"].attributes == {8: 100_000, 9: 50}
    driver.entries["k"].attributes[9] = 25
    launch(kernel)
    assert driver.entries["k_1"].attributes[9] == 50
    kernel.attributes_changed()
    launch(kernel)
    assert driver.entries["k_1"].attributes[9] == 25


def test_a_version_for_smaller_blocks() -> None:
    driver = driver_of(k_1=Entry(SIZES, attributes={0: 64}))
    kernel = bound(driver)
    launch(kernel, block=64)
    launch(kernel, block=128)
    assert entries(driver) == ["k_1", "k"]
    assert kernel.reasons(0, 2) == {Reason.TAKEN: 1, Reason.UNUSABLE: 1}


@pytest.mark.parametrize(
    ("grid", "partitioned", "clusters", "entry"),
    [
        (8, False, False, "k_1"),  # 4 multiprocessors × 2 blocks of the version
        (9, False, False, "k"),
        (32, False, False, "k"),  # × 8 blocks of the kernel: all of them run at the same time
        (33, False, False, "k_1"),
        (2, True, False, "k_1"),
        (8, True, False, "k"),
        (2, False, True, "k"),
        (33, False, True, "k"),
    ],
)
def test_a_version_with_fewer_resident_blocks_is_refused_where_blocks_may_wait(
    grid: int, partitioned: bool, clusters: bool, entry: str
) -> None:
    """Fewer blocks of the version run at the same time, and blocks may wait for each other."""
    driver = driver_of(k_1=Entry(SIZES, blocks=2))
    driver.partitioned = frozenset([0]) if partitioned else frozenset()
    launch(bound(driver), grid=grid, attributes=[(4, 2)] if clusters else ())
    assert entries(driver) == [entry]


@pytest.mark.parametrize(
    ("parts", "shape"),
    [
        ({"grid": "2 * grid_x"}, (6, 1, 1, 32, 1, 1, 0, 0)),
        ({"grid": "arg2 - 3", "block": "block_x * grid_x"}, (1, 1, 1, 96, 1, 1, 0, 0)),
        ({"shared": "4 * arg2"}, (3, 1, 1, 32, 1, 1, 16, 0)),
        ({"grid": "0"}, None),
        ({"grid": "2 // 0"}, None),
        ({"block": "1025"}, None),
        ({"shared": "-1"}, None),
        ({"shared": "4294967296"}, None),
    ],
)
def test_a_version_changes_the_shape_of_its_launch(parts: dict[str, str], shape: tuple[int, ...] | None) -> None:
    driver = driver_of()
    launch(bound(driver, Version("k_1", (), launch=change(**parts))), grid=3)
    ((entry, launched, _),) = driver.launched
    assert (entry, launched) == (("k_1", shape) if shape else ("k", (3, 1, 1, 32, 1, 1, 0, 0)))


@pytest.mark.parametrize(
    ("arguments", "sizes", "raw"),
    [
        ("arg2 + 1", [4], [struct.pack("<I", 5)]),
        ("arg2 - 5; end(arg0)", [2, 8], [b"\xff\xff", struct.pack("<Q", X.end)]),
        ("256", [1], None),
        ("-129", [1], None),
        ("255", [1], [b"\xff"]),
        ("arg2", [4, 4], None),
        ("arg2", [], None),
        ("arg2", [3], None),
    ],
)
def test_a_version_gets_extra_arguments(arguments: str, sizes: list[int], raw: list[bytes] | None) -> None:
    """They are out of range, or the entry has another number of parameters: the kernel itself."""
    offsets = [24 + 8 * index for index in range(len(sizes))]
    driver = driver_of(k_1=Entry([*SIZES, *zip(offsets, sizes, strict=True)]))
    launch(bound(driver, Version("k_1", (), launch=change(arguments=arguments))))
    ((entry, _, values),) = driver.launched
    assert entry == ("k" if raw is None else "k_1")
    assert values[3:] == (raw or [])


@pytest.mark.parametrize(
    "entries_of_module",
    [
        {},
        {"k_1": Entry([(0, 8), (8, 8)])},
        {"k_1": Entry([*SIZES, (20, 4)])},
        {"k_1": Entry([(0, 8), (8, 8), (16, 8)])},
        {"k_1": Entry(SIZES), "k": Entry([(0, 8), (8, 8)])},
    ],
)
def test_a_module_that_does_not_fit(entries_of_module: dict[str, Entry]) -> None:
    """No version is used if one is missing, or if parameters are not those of the contract."""
    driver = FakeDriver({"k": Entry(SIZES), **entries_of_module}, [X, Y])
    kernel = bound(driver)
    launch(kernel)
    assert entries(driver) == ["k"]
    assert kernel.reasons(0, 2) == {Reason.UNUSABLE: 1}


def test_parameters_at_other_places() -> None:
    """ptxas has aligned the last one in the constant bank. The driver gets pointers to the arguments."""
    aligned = Entry([(0, 8), (8, 8), (48, 4)])
    driver = FakeDriver({"k": aligned, "k_1": aligned}, [X, Y])
    launch(bound(driver), n=7)
    ((entry, _, values),) = driver.launched
    assert entry == "k_1" and values[2] == struct.pack("<I", 7)
    sizes = {"k": aligned.parameters, "k_1": aligned.parameters}
    machine = CudaMachine(None, {}, contract_of(Version("k_1")).kernels["k"], sizes)
    assert machine.extra_sizes("k_1") == []


def test_a_kernel_that_the_module_lacks() -> None:
    driver = FakeDriver({"k_1": Entry(SIZES)}, [X, Y])
    assert launch(bound(driver)) == 400  # CUDA_ERROR_INVALID_HANDLE, from the driver
    assert driver.launched == []


def test_kernels_are_found_by_name_and_by_handle() -> None:
    driver = driver_of()
    library = built_library()
    module = library.bind(encode(contract_of()), driver.MODULE, driver=driver.table())
    assert module.kernel("other") is None and module.kernel("k_1") is None
    find = library.functions.ptxmotion_find_handle
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
    handles = {name: number for number, name in enumerate(driver.entries, 1)}
    assert find(module.address, handles["k"]) == library.functions.ptxmotion_find(module.address, b"k")
    assert find(module.address, handles["k_1"]) is None
    digest = library.functions.ptxmotion_digest
    digest.restype = ctypes.POINTER(ctypes.c_uint8 * 32)
    digest.argtypes = (ctypes.c_void_p,)
    assert bytes(digest(module.address)[0]).hex() == "ab" * 32


@pytest.mark.parametrize("is_library", [False, True])
def test_modules_and_libraries(is_library: bool) -> None:
    """A CUmodule has functions, a CUlibrary has kernels."""
    driver = driver_of()
    contract = contract_of(Version("k_1", (DISJOINT,)))
    module = built_library().bind(encode(contract), driver.MODULE, is_library=is_library, driver=driver.table())
    assert ("kernel_get_function" in driver.calls) == is_library
    assert ("library_get_kernel" in driver.calls) == is_library
    kernel = module.kernel("k")
    assert kernel is not None
    launch(kernel)
    assert entries(driver) == ["k_1"]


def test_the_library_of_a_kernel() -> None:
    """A contract is bound through a CUkernel, which the program launches."""
    driver = driver_of()
    raw, table = encode(contract_of(Version("k_1", (DISJOINT,)))), driver.table()
    functions = built_library().functions
    functions.ptxmotion_bind_kernel.argtypes = functions.ptxmotion_bind_library.argtypes
    result = ctypes.c_void_p()
    assert functions.ptxmotion_bind_kernel(ctypes.byref(table), raw, len(raw), 99, ctypes.byref(result)) == 4
    assert result.value is None
    handle = list(driver.entries).index("k") + 1
    assert functions.ptxmotion_bind_kernel(ctypes.byref(table), raw, len(raw), handle, ctypes.byref(result)) == 0
    assert result.value is not None
    kernel = BoundModule(built_library(), result.value, table).kernel("k")
    assert kernel is not None
    launch(kernel)
    assert entries(driver) == ["k_1"]


def test_more_shapes_of_blocks_than_are_kept() -> None:
    """More sizes of blocks than are kept."""
    driver = driver_of()
    kernel = bound(driver)
    for _ in range(2):
        for block in range(1, 101):
            assert launch(kernel, block=block) == 0
    assert entries(driver) == ["k_1"] * 200


def test_launches_and_statistics_of_several_threads_add_up() -> None:
    """Launches and statistics of several threads add up, while attributes change."""
    driver = driver_of()
    kernel = bound(driver)
    count, each = 4, 200

    def run(number: int) -> None:
        for index in range(each):
            launch(kernel, y=X.begin if (index + number) % 2 else Y.begin, block=1 + index % 7)
            if index % 50 == 0:
                kernel.attributes_changed()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    half = count * each // 2
    assert kernel.reasons(0, 2) == {Reason.TAKEN: half, Reason.FALSE: half}
    assert kernel.reasons(1, 2) == {Reason.TAKEN: half}
    assert sorted(entries(driver)) == ["k"] * half + ["k_1"] * half
