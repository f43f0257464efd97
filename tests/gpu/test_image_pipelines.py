"""Image pipelines on arrays of PyTorch and CuPy, and on NumPy arrays that are copied to the GPU."""

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from image_filters import apart
from numpy.typing import NDArray
from ptxmotion.dsl import f32, i32, u8, uchar4
from ptxmotion.dsl.image import Accessor, Boundary, Image, Mask, Window, local, pipeline, point
from ptxmotion.harness.cuda import CudaBackend

pytestmark = pytest.mark.gpu

WEIGHTS = Mask(np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]], np.float32) / 16)


@local(WEIGHTS)
def blur(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


@point
def gray(color: uchar4) -> u8:
    return u8((i32(color.x) + 2 * color.y + color.z) // 4)


@pipeline
def differences(src: Image[f32]) -> Image[f32]:
    return apart(Accessor(src, Boundary.CLAMP))


@pipeline
def twice(src: Image[f32]) -> Image[f32]:
    return blur(Accessor(blur(Accessor(src, Boundary.MIRROR)), Boundary.REPEAT))


@pipeline
def grays(src: Image[uchar4]) -> Image[u8]:
    return gray(src)


def reference(image: NDArray[Any], mode: Any) -> NDArray[Any]:
    wide: NDArray[Any] = np.pad(image, 1, mode=mode)
    height, width = image.shape
    total: NDArray[Any] = np.zeros_like(image)
    for dx, dy, weight in WEIGHTS:
        total = total + weight * wide[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
    return total


def on_gpu(library: str) -> tuple[Callable[[NDArray[Any]], Any], Callable[[Any], NDArray[Any]]]:
    if library == "cupy":
        cupy: Any = pytest.importorskip("cupy")
        return cupy.asarray, cupy.asnumpy
    torch: Any = pytest.importorskip("torch")
    return lambda array: torch.from_numpy(array).cuda(), lambda tensor: tensor.cpu().numpy()


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("lowering", ["naive", "isp", "isp_warp", "isp_rows"])
@pytest.mark.parametrize("shape", [(1, 1), (61, 37), (700, 1001)])
def test_arrays_stay_on_the_gpu(library: str, lowering: str, shape: tuple[int, int]) -> None:
    to_gpu, to_host = on_gpu(library)
    array = np.random.default_rng(1).random(shape, np.float32)
    given = to_gpu(array)
    made = twice.compile(shape, lowering=lowering, block=(64, 4), flags=("-fmad=false",))(given)
    assert type(made) is type(given)
    assert np.array_equal(to_host(made), reference(reference(array, "symmetric"), "wrap"))


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_vectors_are_pixels(library: str) -> None:
    to_gpu, to_host = on_gpu(library)
    colors = np.random.default_rng(2).integers(0, 256, (33, 65, 4)).astype(np.uint8)
    wide = colors.astype(np.int32)
    expected = ((wide[..., 0] + 2 * wide[..., 1] + wide[..., 2]) // 4).astype(np.uint8)
    assert np.array_equal(to_host(grays(to_gpu(colors))), expected)


def test_work_is_on_the_current_stream() -> None:
    to_gpu, to_host = on_gpu("torch")
    torch = importlib.import_module("torch")
    array = np.random.default_rng(3).random((1000, 1000), np.float32)
    compiled = twice.compile((1000, 1000), flags=("-fmad=false",))
    with torch.cuda.stream(torch.cuda.Stream()):
        made = to_host(compiled(to_gpu(array)))
    assert np.array_equal(made, reference(reference(array, "symmetric"), "wrap"))


def test_numpy_arrays_are_copied() -> None:
    array = np.random.default_rng(4).random((61, 37), np.float32)
    made = twice.compile((61, 37), flags=("-fmad=false",))(array, backend=CudaBackend())
    assert np.array_equal(made, reference(reference(array, "symmetric"), "wrap"))


@pytest.mark.parametrize("block", [(32, 32), (32, 9)])
def test_kernels_with_many_registers_are_launched_with_large_blocks(block: tuple[int, int]) -> None:
    """Without a limit, `isp_rows` needs more than the 64 registers that a thread can have in a block of 1024."""
    array, backend = np.random.default_rng(5).random((300, 200), np.float32), CudaBackend()
    expected = differences.compile((300, 200))(array, backend=backend)
    made = differences.compile((300, 200), lowering="isp_rows", block=block)(array, backend=backend)
    assert np.array_equal(made, expected)


@pytest.mark.parametrize("execution", ["stream", "graph"])
def test_threads_that_have_not_used_the_gpu(execution: str) -> None:
    """No context is current in them."""
    to_gpu, to_host = on_gpu("torch")
    array, backend = np.random.default_rng(6).random((61, 37), np.float32), CudaBackend()
    compiled = twice.compile((61, 37), flags=("-fmad=false",), execution=execution)
    given, expected = to_gpu(array), reference(reference(array, "symmetric"), "wrap")
    calls: list[Callable[[], Any]] = [
        lambda: compiled(array, backend=backend),
        lambda: to_host(compiled(given)),
    ]
    for call in calls:
        with ThreadPoolExecutor(1) as pool:
            assert np.array_equal(pool.submit(call).result(), expected)
        assert np.array_equal(call(), expected)
