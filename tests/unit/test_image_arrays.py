"""Arrays that are not copied: a module of the test in place of CuPy, whose kernels the emulator runs."""

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion import runtime
from ptxmotion.dsl import DslError, f32, float4, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, pipeline, point
from ptxmotion.dsl.image.arrays import check_array, library_of
from ptxmotion.dsl.types import F32, Struct
from ptxmotion.emulator.backend import EmulatorBackend


class DeviceArray:
    """An array "on the GPU": `host` has its elements."""

    def __init__(self, host: NDArray[Any]) -> None:
        self.host = host
        self.shape, self.dtype, self.flags = host.shape, host.dtype, host.flags
        self.device: Any = contextlib.nullcontext()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.host.__array_interface__, "version": 3}


DeviceArray.__module__ = "cupy"


class OtherArray:
    """An array of an unknown library."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


class Launches:
    """The kernels of a module, which the emulator runs on the elements of device arrays. ``made`` are the launches."""

    made: list[tuple[str, Any, Any]] = []  # noqa: RUF012

    def __init__(self, text: str) -> None:
        self.module = runtime.load(text, device=runtime.EmulatedDevice())

    def __getitem__(self, name: str) -> Any:
        def launch(grid: Any, block: Any, *arguments: Any, stream: Any) -> None:
            self.made.append((name, grid, stream))
            hosts = [each.host if isinstance(each, DeviceArray) else each for each in arguments]
            self.module[name].launch(grid, block, *hosts)

        return types.SimpleNamespace(launch=launch)


@pytest.fixture
def allocations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """A module `cupy`, and the shapes of the arrays that it has made."""
    shapes: list[tuple[int, ...]] = []

    def empty(shape: tuple[int, ...], dtype: Any) -> DeviceArray:
        shapes.append(shape)
        return DeviceArray(np.full(shape, 77, dtype))

    stream = types.SimpleNamespace(get_current_stream=lambda: "the current stream")
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(empty=empty, cuda=stream))  # pyright: ignore[reportArgumentType]
    Launches.made.clear()
    real = runtime.load

    def load(text: str, **options: Any) -> Any:
        return real(text, **options) if options else Launches(text)

    monkeypatch.setattr(runtime, "load", load, raising=False)
    yield shapes


@local((3, 1))
def sums(src: Window[i32]) -> i32:
    return src[-1, 0] + src[1, 0]


@point
def scaled(a: i32, factor: i32) -> i32:
    return a * factor


@pipeline
def chain(src: Image[i32], factor: i32) -> tuple[Image[i32], Image[i32]]:
    first = sums(Accessor(src, Boundary.CLAMP))
    second = sums(Accessor(first, Boundary.CLAMP))
    return scaled(second, factor), scaled(src, -1)


def test_arrays_are_read_and_made_in_place(allocations: list[tuple[int, ...]]) -> None:
    array = np.arange(40, dtype=np.int32).reshape(4, 10)
    expected = chain(array, 3, backend=EmulatorBackend())
    made = chain(DeviceArray(array), 3)
    assert all(isinstance(each, DeviceArray) for each in made)
    for got, wanted in zip(made, expected, strict=True):
        assert np.array_equal(got.host, wanted)
    assert allocations == [(4, 10)] * 4, "two outputs and two images between"
    assert [name for name, _, _ in Launches.made] == ["sums_kernel", "sums_kernel", "scaled_kernel", "scaled_kernel_2"]
    assert {stream for _, _, stream in Launches.made} == {"the current stream"}


def test_results_are_written_to_given_arrays(allocations: list[tuple[int, ...]]) -> None:
    array = DeviceArray(np.arange(40, dtype=np.int32).reshape(4, 10))
    outs = DeviceArray(np.zeros((4, 10), np.int32)), DeviceArray(np.zeros((4, 10), np.int32))
    made = chain(array, 3, out=outs)
    assert made[0] is outs[0] and made[1] is outs[1]
    assert np.array_equal(outs[1].host, -array.host) and outs[0].host.any()
    assert len(allocations) == 2


def test_what_is_refused(allocations: list[tuple[int, ...]]) -> None:
    array = np.zeros((4, 10), np.int32)
    with pytest.raises(DslError, match="image src has gaps between its elements"):
        chain(DeviceArray(np.zeros((4, 20), np.int32)[:, ::2]), 1)
    with pytest.raises(DslError, match="a backend runs NumPy arrays"):
        chain(DeviceArray(array), 1, backend=EmulatorBackend())
    with pytest.raises(DslError, match="the arrays are of different libraries: cupy, numpy"):
        chain(DeviceArray(array), 1, out=(array, array))
    with pytest.raises(DslError, match=r"number factor is 0\.5, but i32 is expected"):
        chain(DeviceArray(array), 0.5)
    device, other = DeviceArray(array), DeviceArray(np.zeros((4, 10), np.int32))
    for out in [(device, other), (other, other)]:
        with pytest.raises(DslError, match="an array of out= shares memory"):
            chain(device, 1, out=out)
    far = DeviceArray(np.zeros((4, 10), np.int32))
    far.device = types.SimpleNamespace(id=1)
    with pytest.raises(DslError, match="the arrays are on different GPUs: 0, 1"):
        chain(device, 1, out=(other, far))
    assert not Launches.made and not allocations


def test_arrays_of_other_libraries() -> None:
    memory = np.zeros((4, 10, 4), np.float32)
    interface = {**memory.__array_interface__, "version": 3}
    other = OtherArray(interface)
    assert library_of([other]) == "cuda"
    pixel: Any = float4
    vector = pixel.__ptxmotion_struct__
    assert isinstance(vector, Struct)
    check_array(other, vector, "image src", (10, 4))
    address = memory.ctypes.data
    off = OtherArray({**interface, "data": (address - address % 16 + 4, False)})
    with pytest.raises(DslError, match="is not aligned to the 16 bytes that float4 needs"):
        check_array(off, vector, "image src")
    swapped = OtherArray({**interface, "typestr": ">f4"})
    with pytest.raises(DslError, match="must be an array of float32, not of >f4"):
        check_array(swapped, vector, "image src")
    gaps = OtherArray({**interface, "shape": (4, 5), "strides": (320, 32)})
    with pytest.raises(DslError, match="has gaps"):
        check_array(gaps, F32, "image src")
    dense = OtherArray({**interface, "shape": (4, 5), "strides": (20, 4)})
    check_array(dense, F32, "image src", (5, 4))


def test_arrays_on_the_host_of_pytorch_are_refused() -> None:
    class Tensor:
        is_cuda = False
        device = "cpu"

    Tensor.__module__ = "torch"
    with pytest.raises(DslError, match="is a tensor on cpu"):
        library_of([Tensor()])


def test_an_unknown_library_makes_no_results() -> None:
    @point
    def half(a: f32) -> f32:
        return a * 0.5

    @pipeline
    def halves(src: Image[f32]) -> Image[f32]:
        return half(src)

    memory = np.zeros((4, 10), np.float32)
    with pytest.raises(DslError, match="arrays like a OtherArray cannot be made: give the results as out="):
        halves(OtherArray({**memory.__array_interface__, "version": 3}))


class Derived(np.ndarray[Any, Any]):
    """As other libraries derive their arrays."""


def test_arrays_that_are_derived() -> None:
    array, backend = np.arange(40, dtype=np.int32).reshape(4, 10), EmulatorBackend()
    expected = chain(array, 2, backend=backend)
    made = chain(array.view(Derived), 2, backend=backend)
    assert all(np.array_equal(got, wanted) for got, wanted in zip(made, expected, strict=True))
    with pytest.raises(DslError, match="image src is a masked array"):
        chain(np.ma.masked_array(array, array > 5), 2, backend=backend)


def test_results_that_cannot_be_written() -> None:
    array, backend = np.arange(40, dtype=np.int32).reshape(4, 10), EmulatorBackend()
    fixed = np.zeros_like(array)
    fixed.flags.writeable = False
    with pytest.raises(DslError, match="an array of out= is read-only"):
        chain(array, 2, out=(np.zeros_like(array), fixed), backend=backend)
    both = np.zeros((5, 10), np.int32)
    with pytest.raises(DslError, match="an array of out= shares memory with another output"):
        chain(array, 2, out=(both[:4], both[1:]), backend=backend)
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(13, np.int32), 10, writeable=True)
    repeated = np.lib.stride_tricks.as_strided(np.zeros(10, np.int32), (4, 10), (0, 4))
    for each in (windows, repeated):
        with pytest.raises(DslError, match="elements of an array of out= share memory"):
            chain(array, 2, out=(np.zeros_like(array), each), backend=backend)
    turned = np.zeros((10, 4), np.int32).T[::-1, ::-1]
    chain(array, 2, out=(np.zeros_like(array), turned), backend=backend)
    assert np.array_equal(turned, -array)
    beside = np.zeros((4, 10, 2), np.int32)
    chain(array, 2, out=(beside[..., 0], beside[..., 1]), backend=backend)
    assert np.array_equal(beside[..., 1], -array) and beside[..., 0].any()


def test_what_a_compilation_takes() -> None:
    with pytest.raises(DslError, match=r"a block is a pair of integers \(x, y\), not \[32, 8\]"):
        chain.compile((4, 10), block=[32, 8])  # pyright: ignore[reportArgumentType]
    with pytest.raises(DslError, match="there is no lowering 3; there are naive"):
        chain.compile((4, 10), lowering=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DslError, match=r"the shape of image src is a tuple \(height, width\), not \('4', 10\)"):
        chain.compile(("4", 10))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DslError, match="a pipeline is a Python function, not <point operator scaled>"):
        pipeline(scaled)


def test_numbers_that_are_too_large() -> None:
    @point
    def raised(a: f32, by: f32) -> f32:
        return a + by

    @pipeline
    def sums_of(src: Image[f32], by: f32) -> Image[f32]:
        return raised(src, by)

    with pytest.raises(DslError, match="number by is an integer that does not fit f32"):
        sums_of(np.zeros((4, 10), np.float32), 10**400, backend=EmulatorBackend())
