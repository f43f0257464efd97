"""The runtime on the emulator: which version runs for which launch, and what happens with a contract that is not right.

The kernel adds windows of x to y and says by a mark which version ran.
"""

from __future__ import annotations

import ctypes
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from contract_modules import SUM_PARAMETERS, SUM_PTX, sum_contract
from ptxmotion.contract import Contract, ContractError, Extent, Parameter, parse
from ptxmotion.emulator.checks import EmulatorFault
from ptxmotion.harness.machine import DeviceFailed
from ptxmotion.runtime import ContractWarning, EmulatedDevice, Flag, Pointer, load
from ptxmotion.runtime.arguments import Packed, Packer
from ptxmotion.runtime.cuda_device import CudaModule
from ptxmotion.runtime.emulated_device import EmulatedLaunch
from ptxmotion.runtime.module import Kernel

FIRST, SECOND, ITSELF = 1, 2, 3
THREADS, N = 32, 4


def kernel(contract: Contract | None = None, **options: Any) -> Kernel:
    return load(SUM_PTX, contract or sum_contract(), device=EmulatedDevice(), **options)["sum"]


def expected(y: np.ndarray[Any, Any], x: np.ndarray[Any, Any], n: int = N) -> np.ndarray[Any, Any]:
    """What the kernel adds, as far as y and x are not the same memory."""
    return y + sum((x[index : index + THREADS] for index in range(n)), np.zeros(THREADS, np.float32))


def launched(of: Kernel, y: Any, x: Any, n: Any = N, **options: Any) -> int:
    """The mark of the version that ran."""
    mark = np.zeros(1, np.uint32)
    of.launch(1, THREADS, y, x, n, mark, **options)
    return int(mark[0])


def arrays(length: int = THREADS + N - 1) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.ones(THREADS, np.float32), np.arange(length, dtype=np.float32)


def test_the_first_version_whose_conditions_hold_runs() -> None:
    of = kernel()
    y, x = arrays()
    result = expected(y, x)
    assert launched(of, y, x) == FIRST
    assert (y == result).all()


def test_parts_of_one_array_are_disjoint_by_their_ranges() -> None:
    of = kernel()
    memory = np.arange(THREADS + THREADS + N - 1, dtype=np.float32)
    y, x = memory[:THREADS], memory[THREADS:]
    result = expected(y, x)
    assert launched(of, y, x) == SECOND
    assert (y == result).all()


@pytest.mark.parametrize("distance", [0, 1, THREADS + N - 2])
def test_overlapping_ranges_take_the_kernel_itself(distance: int) -> None:
    of = kernel()
    memory = np.arange(200, dtype=np.float32)
    x, y = memory[:100], memory[distance : distance + THREADS]
    alone = memory.copy()
    load(SUM_PTX, device=EmulatedDevice())["sum"].launch(
        1, THREADS, alone[distance : distance + THREADS], alone[:100], N, np.zeros(1, np.uint32)
    )
    assert launched(of, y, x) == ITSELF
    assert (memory == alone).all()


def test_a_range_that_leaves_the_array_by_one_element_is_refused() -> None:
    """The buffer has no padding, so a version that read it would be seen."""
    y, x = arrays(THREADS + N - 2)
    decision = kernel().decide(1, THREADS, y, x, N, np.zeros(1, np.uint32))
    assert decision.entry == "sum_2"
    ((entry, why),) = decision.refused
    assert entry == "sum_1"
    assert why.startswith("a condition does not hold: bytes 0 to 4 * (block_x * grid_x + n - 1)")
    assert why.endswith("are inside the allocation of x")


def test_no_turns_of_the_loop() -> None:
    """An empty range needs no buffer; the second version wants n > 0."""
    y, x = arrays(0)
    assert launched(kernel(), y, x, 0) == FIRST
    memory = np.zeros(THREADS, np.float32)
    assert launched(kernel(), memory, memory, 0) == ITSELF


def test_pointers_of_the_caller() -> None:
    """A null pointer has no extent; an extent that the caller states replaces that of the array."""
    of = kernel()
    y, x = arrays()
    decision = of.decide(1, THREADS, y, None, N, np.zeros(1, np.uint32))
    assert decision.entry == "sum"
    assert [why.partition(":")[0] for _, why in decision.refused] == ["a condition is undecidable"] * 2
    assert of.decide(1, THREADS, y, x, N, np.zeros(1, np.uint32)).entry == "sum_1"
    wrong = {1: Extent(4096, 8192)}  # x is not there, so its extent is unknown
    assert of.decide(1, THREADS, y, x, N, np.zeros(1, np.uint32), extents=wrong).entry == "sum"
    pointer = Pointer(0x10000, Extent(0x10000, 0x20000))
    assert of.decide(1, THREADS, y, pointer, N, np.zeros(1, np.uint32)).entry == "sum_1"


def test_preference_and_flags() -> None:
    few = parse("warps_per_scheduler < 2")
    of = kernel(sum_contract(prefer_when=few))
    y, x = arrays()
    mark = np.zeros(1, np.uint32)
    assert of.decide(1, THREADS, y, x, N, mark).entry == "sum_1"
    many = of.decide(132 * 64, 256, y, x, N, mark)
    assert many.entry == "sum"
    assert [why for _, why in many.refused] == ["not expected to be faster"] * 2
    assert of.decide(132 * 64, 256, y, x, N, mark, flags=Flag.ALWAYS_PREFER).entry == "sum"
    assert of.decide(1, THREADS, y, x, N, mark, flags=Flag.ORIGINAL).entry == "sum"


def test_statistics_count_versions_and_reasons() -> None:
    of = kernel()
    y, x = arrays()
    memory = np.zeros(200, np.float32)
    for _ in range(3):
        launched(of, y, x)
    launched(of, memory[:THREADS], memory)
    of.decide(1, THREADS, y, x, N, np.zeros(1, np.uint32))
    statistics = of.statistics
    assert statistics.launches == 4
    assert [version.taken for version in statistics.versions] == [3, 0, 1]
    assert str(statistics).splitlines() == [
        "sum: 4 launches",
        "  sum_1: taken 3 times; a condition does not hold: 1",
        "    the allocation of y and the allocation of x are disjoint: false 1 times, undecidable 0 times",
        "  sum_2: taken 0 times; a condition does not hold: 1",
        "    bytes 0 to 4 * block_x * grid_x of y and bytes 0 to 4 * (block_x * grid_x + n - 1) if n > 0 else 0 of x "
        "are disjoint: false 1 times, undecidable 0 times",
        "  sum: taken 1 times",
    ]


def test_a_program_without_the_contract_launches_the_kernel() -> None:
    y, x = arrays()
    result = expected(y, x)
    assert launched(load(SUM_PTX, device=EmulatedDevice())["sum"], y, x) == ITSELF
    assert (y == result).all()


@pytest.mark.parametrize(("start", "count"), [(0, 40), (16, 40)])
def test_arrays_that_share_memory_without_an_owner_are_refused(start: int, count: int) -> None:
    """Two arrays over one `bytearray` would get two buffers, and would not alias on the emulator."""
    memory = bytearray(400)
    x = np.frombuffer(memory, np.float32, THREADS + N - 1)
    y = np.frombuffer(memory, np.float32, count, start)
    with pytest.raises(TypeError, match="shares memory with another"):
        launched(kernel(), y, x)
    again = np.frombuffer(memory, np.float32, THREADS + N - 1)
    assert launched(kernel(), again, x) == ITSELF


# --- contracts that cannot be used -----------------------------------------------------------------------------------


def files(tmp_path: Path, ptx: str, contract: str) -> tuple[Path, Path]:
    module, document = tmp_path / "a.ptx", tmp_path / "a.json"
    module.write_text(ptx)
    document.write_text(contract)
    return module, document


def without(entry: str) -> str:
    """The module without one of its entries."""
    return SUM_PTX.replace(f".entry {entry}(", ".entry other(")


BROKEN = {
    "another module": (SUM_PTX + "// changed\n", sum_contract().dumps(), "of another module: the SHA-256 of the PTX"),
    "damaged": (SUM_PTX, sum_contract().dumps()[:-20], "no JSON"),
    "empty": (SUM_PTX, "", "no JSON"),
    "later version": (
        SUM_PTX,
        sum_contract().dumps().replace('"contract_version": 1', '"contract_version": 7'),
        "contract_version is 7",
    ),
    "no entry": (without("sum_1"), sum_contract(ptx=without("sum_1")).dumps(), "version sum_1: the module has no such"),
    "parameters": (
        SUM_PTX,
        json.dumps(sum_contract().to_json()).replace('"offset": 16, "size": 4', '"offset": 16, "size": 8'),
        r"arg2 \(n, .u32\) is not an integer",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_contract_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    """The kernel itself runs, with a warning; with `strict` it is an error."""
    ptx, contract, message = BROKEN[name]
    module, document = files(tmp_path, ptx, contract)
    with pytest.warns(ContractWarning, match=message):
        loaded = load(module, document, device=EmulatedDevice())
    assert loaded.contract is None
    y, x = arrays()
    result = expected(y, x)
    assert launched(loaded["sum"], y, x) == ITSELF
    assert (y == result).all()
    with pytest.raises(ContractError, match=message):
        load(module, document, device=EmulatedDevice(), strict=True)


def test_files_with_a_good_contract(tmp_path: Path) -> None:
    module, document = files(tmp_path, SUM_PTX, sum_contract().dumps())
    loaded = load(module, document, device=EmulatedDevice(), strict=True)
    assert list(loaded) == ["sum"] and len(loaded) == 1
    assert launched(loaded["sum"], *arrays()) == FIRST
    assert loaded.report().startswith("sum: 1 launches\n")


def test_the_emulator_runs_no_cubin() -> None:
    with pytest.raises(TypeError, match="the emulator runs PTX"):
        load(b"\x7fELF", device=EmulatedDevice())


# --- arguments -------------------------------------------------------------------------------------------------------


def no_array(value: object) -> Pointer | None:
    return None


@pytest.mark.parametrize(
    ("parameter", "value", "raw"),
    [
        (Parameter("n", 0, 4, "u32"), 1, b"\1\0\0\0"),
        (Parameter("n", 0, 4, "s32"), -1, b"\xff" * 4),
        (Parameter("n", 0, 4, "u32"), 2**32 - 1, b"\xff" * 4),
        (Parameter("n", 0, 1, "u8"), True, b"\1"),
        (Parameter("n", 0, 4, "u32"), np.int32(-1), b"\xff" * 4),
        (Parameter("a", 0, 4, "f32"), 1.0, b"\0\0\x80?"),
        (Parameter("a", 0, 4, "f32"), 1, b"\0\0\x80?"),
        (Parameter("a", 0, 8, "f64"), np.float64(1), b"\0" * 6 + b"\xf0?"),
        (Parameter("a", 0, 4, "b32"), np.float32(1), b"\0\0\x80?"),
        (Parameter("p", 0, 8, "u64"), None, bytes(8)),
        (Parameter("p", 0, 8, "u64"), Pointer(16), b"\x10" + bytes(7)),
        (Parameter("s", 0, 3, "b8"), b"abc", b"abc"),
        (Parameter("s", 0, 8, "b8"), (ctypes.c_int * 2)(1, 2), b"\1\0\0\0\2\0\0\0"),
    ],
)
def test_the_bytes_of_arguments(parameter: Parameter, value: object, raw: bytes) -> None:
    assert Packer("k", [parameter])([value], no_array).block == raw


@pytest.mark.parametrize(
    ("parameter", "value", "error", "message"),
    [
        (Parameter("n", 0, 4, "u32"), 2**32, OverflowError, "4294967296 does not fit into parameter n"),
        (Parameter("n", 0, 4, "u32"), 1.0, TypeError, r"parameter n \(.u32\) cannot take a float"),
        (Parameter("n", 0, 4, "u32"), np.float32(1), TypeError, "cannot take a float32"),
        (Parameter("n", 0, 4, "u32"), np.int64(1), TypeError, "has 4 bytes, and the argument has 8"),
        (Parameter("n", 0, 4, "u32"), None, TypeError, "cannot take a NoneType"),
        (Parameter("a", 0, 4, "f32"), np.int32(1), TypeError, "cannot take a int32"),
        (Parameter("a", 0, 4, "f32"), True, TypeError, "cannot take a bool"),
        (Parameter("s", 0, 3, "b8"), b"ab", TypeError, "has 3 bytes, and the argument has 2"),
        (Parameter("s", 0, 3, "b8"), "abc", TypeError, r"s \(3 bytes\) cannot take a str"),
    ],
)
def test_arguments_that_do_not_match(parameter: Parameter, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Packer("k", [parameter])([value], no_array)


def test_the_number_of_arguments() -> None:
    with pytest.raises(TypeError, match="sum takes 4 arguments, not 2"):
        kernel().launch(1, 1, 1, 2)
    assert len(SUM_PARAMETERS) == 4
    with pytest.raises(TypeError, match="the emulator has no streams"):
        launched(kernel(), *arrays(), stream=5)
    with pytest.raises(TypeError, match="one to three sizes"):
        kernel().launch((1, 1, 1, 1), 1, *arrays(), N, np.zeros(1, np.uint32))
    read_only = np.zeros(4, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(TypeError, match="writable"):
        launched(kernel(), read_only, read_only)


def test_sizes_and_options() -> None:
    of = kernel()
    for grid, block in ((np.int64(1), np.int32(THREADS)), (np.array([1, 1]), [THREADS])):
        (y, x), mark = arrays(), np.zeros(1, np.uint32)
        of.launch(grid, block, y, x, N, mark)  # pyright: ignore[reportArgumentType]
        assert mark[0] == FIRST
    y, x = arrays()
    mark = np.zeros(1, np.uint32)
    for size in (1.5, (1.5,), "1", ("1",)):
        with pytest.raises(TypeError):
            of.launch(size, THREADS, y, x, N, mark)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OverflowError):
        of.launch(-1, THREADS, y, x, N, mark)
    with pytest.raises(OverflowError, match="-1 is no size"):
        of.launch(1, THREADS, y, x, N, mark, shared=-1)
    with pytest.raises(TypeError, match=r"sum: a launch has no option 'streem' \(did you mean 'stream'\?\)"):
        of.launch(1, THREADS, y, x, N, mark, streem=0)  # pyright: ignore[reportCallIssue]
    with pytest.raises(IndexError, match="sum has no parameter 4, for which an extent is given"):
        of.launch(1, THREADS, y, x, N, mark, extents={4: (0, 8)})
    assert mark[0] == 0


def test_launches_from_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of a module on the emulator use the same memory, so one begins when another one has ended."""
    of, running, most = kernel(), list[int](), list[int]()
    real = EmulatedLaunch.launch

    def launch(self: EmulatedLaunch, *arguments: Any) -> None:
        running.append(1)
        time.sleep(0.002)
        most.append(len(running))
        real(self, *arguments)
        running.pop()

    monkeypatch.setattr(EmulatedLaunch, "launch", launch)

    def launches(start: int) -> None:
        for number in range(start, start + 3):
            x = np.arange(number, number + THREADS + N - 1, dtype=np.float32)
            y = np.full(THREADS, number, np.float32)
            result = expected(y, x)
            assert launched(of, y, x) == FIRST and np.array_equal(y, result)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(launches, range(0, 400, 100)))
    assert most == [1] * 12 and of.statistics.launches == 12
    with pytest.raises(EmulatorFault):
        launched(of, arrays()[0][:1].copy(), arrays()[1])
    assert launched(of, *arrays()) == FIRST


def test_a_thread_without_a_context_gets_one() -> None:
    """The launch is made again. Another error, or one with a context, is raised."""
    of = kernel().contract

    def made(statuses: list[int], has_context: bool) -> list[int]:
        launches = list(statuses)

        def launch(*_: object) -> int:
            return launches.pop(0)

        def named(status: int) -> Any:
            return SimpleNamespace(name=f"status {status}")

        bound, driver = SimpleNamespace(launch=launch), SimpleNamespace(CUresult=named)
        module: Any = CudaModule.__new__(CudaModule)
        module._device = SimpleNamespace(enter=lambda: not has_context, driver=driver)
        module._bound = {of.name: bound}
        last = of.parameters[-1]
        packed = Packed(bytes(last.offset + last.size), {})
        module.launch_packed(of, packed, (1, 1, 1), (32, 1, 1), Flag(0))
        return launches

    assert made([0, 5], has_context=True) == [5]
    assert made([201, 0, 5], has_context=False) == [5]
    for statuses, has_context in (([201, 0], True), ([700, 0], False), ([201, 201], False)):
        with pytest.raises(DeviceFailed, match=f"status {statuses[0]}"):
            made(statuses, has_context)
