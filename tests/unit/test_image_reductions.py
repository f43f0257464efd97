"""Global operators on the emulator, against NumPy and against the documented order of combining."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, device, f32, float2, float3, i32, i64, struct, u8, u16, u32, uchar4
from ptxmotion.dsl import types as t
from ptxmotion.dsl.image import LOWERINGS, Image, global_operators, lower, pipeline, point
from ptxmotion.dsl.image.global_operators import (
    BLOCK,
    FEW,
    MOST_BLOCKS,
    UNROLL,
    Histogram,
    Reduction,
    Words,
    mean,
    reduction,
)
from ptxmotion.dsl.language import dtype_of, type_from
from ptxmotion.emulator.backend import EmulatorBackend, EmulatorKernel
from ptxmotion.suites.runner import compiler

#: One operator for each type, which `loaded` then finds.
minimum, maximum, total = map(cache, (global_operators.minimum, global_operators.maximum, global_operators.total))

SIZES = (0, 1, 3, 4, 15, 16, 17, 255, 1025, 5000, 33333)


@struct
class Text:
    """A hash of a sequence, and 31 to the power of its length. Joining two sequences is not commutative."""

    hash: u32
    power: u32


@device
def letter(pixel: u8) -> Text:
    return Text(pixel + 1, 31)


@device
def empty_text() -> Text:
    return Text(0, 1)


@reduction(identity=empty_text, lift=letter, commutative=False)
def joined(left: Text, right: Text) -> Text:
    return Text(left.hash * right.power + right.hash, left.power * right.power)


@lru_cache(maxsize=16)
def loaded(
    operator: Reduction | Histogram, pixel: t.Scalar | t.Struct, vectors: bool, sm: int, few: int
) -> tuple[EmulatorBackend, EmulatorKernel]:
    """The kernel of an operator, and the backend that has it. ``few`` is `global_operators.FEW`."""
    assert few == global_operators.FEW
    backend = EmulatorBackend()
    kernel = operator.kernel(pixel, "reduce", vectors=vectors, sm=sm)
    return backend, backend.load(kernel.ptx(compiler())).kernel("reduce")


def run(
    operator: Reduction | Histogram,
    image: NDArray[Any],
    pixel: Any,
    *,
    skip: int = 0,
    vectors: bool = True,
    sm: int = 90,
) -> NDArray[Any]:
    """The result for ``image[skip:]``, which does not begin at a multiple of 16 bytes if ``skip`` is not 0. ``sm`` is
    the architecture that the kernel may use."""
    element = type_from(pixel)
    assert isinstance(element, t.Scalar | t.Struct)
    backend, entry = loaded(operator, element, vectors, sm, global_operators.FEW)
    pixels = len(image) - skip
    grid = Words.of(element).blocks(pixels)
    is_histogram = isinstance(operator, Histogram)
    dtype = np.dtype(np.uint32) if is_histogram else dtype_of(operator.result())
    sizes = (
        image.nbytes,
        4,
        4 * operator.bins if is_histogram else 16 * grid,
        4 * operator.bins if is_histogram else 16,
    )
    source, counter, memory, out = buffers = [backend.allocate(size) for size in sizes]
    backend.write(source, image)
    backend.fill(counter, 0)
    if is_histogram:
        backend.fill(memory, 0)
    arguments = [np.int32(pixels), np.uint64(source.address + skip * t.size_of(element)), memory, counter, out]
    backend.launch(entry, (grid, 1, 1), (BLOCK, 1, 1), 0, arguments)
    assert backend.read(counter, np.dtype(np.uint32), 1)[0] == 0
    assert not backend.findings
    if is_histogram:
        assert not backend.read(memory, dtype, operator.bins).any()
    result = backend.read(out, dtype, operator.bins if is_histogram else 1)
    for buffer in buffers:
        backend.free(buffer)
    return result


def pixels_of(dtype: Any, count: int, seed: int = 1) -> NDArray[Any]:
    numbers = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (numbers.standard_normal(count) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    return numbers.integers(limits.min, limits.max, count, dtype, endpoint=True)


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("count", SIZES)
def test_integers_of_every_size(count: int, vectors: bool) -> None:
    """Minimum, maximum and sum of bytes are NumPy's. An image without pixels gives the identity."""
    image = pixels_of(np.uint8, count + 3)
    inside = image[3:]
    smallest = run(minimum(u8), image, u8, skip=3, vectors=vectors)
    largest = run(maximum(u8), image, u8, skip=3, vectors=vectors)
    added = run(total(i64), image, u8, skip=3, vectors=vectors)
    assert smallest[0] == (inside.min() if count else 255)
    assert largest[0] == (inside.max() if count else 0)
    assert added[0] == inside.sum(dtype=np.int64)


@pytest.mark.parametrize(
    ("pixel", "dtype"),
    [
        (u16, np.uint16),
        (i32, np.int32),
        (t.U32, np.uint32),
        (t.I64, np.int64),
        (t.F16, np.float16),
        (f32, np.float32),
    ],
)
@pytest.mark.parametrize("sm", [75, 90])
def test_extrema_of_other_pixels(pixel: Any, dtype: Any, sm: int) -> None:
    # A part of one block; several blocks, which one warp combines.
    for count in (3001, 40001):
        image = pixels_of(dtype, count)
        assert run(minimum(pixel), image, pixel, sm=sm)[0] == image.min()
        assert run(maximum(pixel), image, pixel, sm=sm)[0] == image.max()


def test_a_warp_is_reduced_at_once_where_the_architecture_can() -> None:
    for operator, pixel, sm, expected in (
        (maximum(i32), t.I32, 90, True),
        (minimum(u8), t.U8, 80, True),
        (maximum(i32), t.I32, 75, False),
        (maximum(f32), t.F32, 90, False),
        (maximum(t.I64), t.I64, 90, False),
        (total(i32), t.I32, 90, False),
    ):
        cuda = operator.kernel(pixel, "reduce", sm=sm).cuda
        assert ("__reduce_m" in cuda) is expected and ("__shfl_down_sync" in cuda) is not expected


@pytest.mark.parametrize(("pixel", "dtype"), [(t.U8, np.uint8), (t.I8, np.int8), (t.U16, np.uint16), (t.I16, np.int16)])
@pytest.mark.parametrize("operator", [minimum, maximum])
def test_extrema_of_narrow_integers_are_found_at_every_place(operator: Any, pixel: Any, dtype: Any) -> None:
    """Such integers are compared in pairs of 16 bits. Bytes have every value beside them."""
    limits = np.iinfo(dtype)
    kept = limits.min // 2 + limits.max // 2
    # One tile of words, and pixels behind it.
    count = 16384 // np.dtype(dtype).itemsize + 3
    for at in (0, 1, 2, 3, 5, 10, 15, count - 1):
        image = np.full(count, kept, dtype)
        image[at] = kept - 1 if operator is minimum else kept + 1
        assert run(operator(pixel), image, pixel)[0] == image[at]
        image = pixels_of(dtype, count, seed=at)
        # Values of one half of the range, so that the extreme one is rare.
        image = np.maximum(image, kept) if operator is minimum else np.minimum(image, kept)
        image[at] = kept - 1 if operator is minimum else kept + 1
        assert run(operator(pixel), image, pixel)[0] == image[at]


@pytest.mark.parametrize(("pixel", "dtype"), [(t.F16, np.float16), (f32, np.float32), (t.F64, np.float64)])
def test_extrema_of_pixels_that_are_nan(pixel: Any, dtype: Any) -> None:
    """A NaN is the smallest and the largest pixel only where every pixel is NaN."""
    image = np.full(300, np.nan, dtype)
    assert np.isnan(run(minimum(pixel), image, pixel)[0]) and np.isnan(run(maximum(pixel), image, pixel)[0])
    image[17] = np.inf
    assert run(minimum(pixel), image, pixel)[0] == np.inf
    image[290] = -np.inf
    assert run(minimum(pixel), image, pixel)[0] == -np.inf and run(maximum(pixel), image, pixel)[0] == np.inf


def tree(values: NDArray[Any]) -> Any:
    """The values combined in pairs of neighbours, then in pairs of pairs. Their number is a power of two."""
    while len(values) > 1:
        values = values[0::2] + values[1::2]
    return values[0]


def block_of(values: NDArray[Any]) -> Any:
    """The sum of the values of the threads of a block, in the documented order."""
    return tree(np.array([tree(warp) for warp in values.reshape(-1, 32)], values.dtype))


def documented_sum(image: NDArray[np.float32], few: int = FEW) -> np.float32:
    """The sum in the documented order, written again with NumPy. ``few``: the most blocks for each lane of one warp."""
    per, tile = 4, BLOCK * UNROLL
    grid = Words.of(t.F32).blocks(len(image))
    whole = len(image) // per
    partial = np.zeros(grid, np.float32)
    for block in range(grid):
        threads = np.zeros(BLOCK, np.float32)
        for first in range(block * tile, whole, grid * tile):
            for word in range(first, min(first + tile, whole)):
                for pixel in image[word * per : word * per + per]:
                    threads[(word - first) % BLOCK] += pixel
        if block == 0:
            rest = image[whole * per :]
            threads[: len(rest)] += rest
        partial[block] = block_of(threads)
    if grid == 1:
        return partial[0]
    count, share = (32, few) if grid <= 32 * few else (BLOCK, -(-MOST_BLOCKS // BLOCK))
    threads = np.zeros(count, np.float32)
    for thread in range(count):
        for value in partial[thread * share : thread * share + share]:
            threads[thread] += value
    return tree(threads) if count == 32 else block_of(threads)


@pytest.mark.parametrize("count", [1, 30, 4096, 4099, 20001, 45003])
def test_float_sums_have_the_documented_order(count: int) -> None:
    """With and without vector loads, at any address."""
    image = pixels_of(np.float32, count + 1)
    expected = documented_sum(image[1:]).tobytes()
    assert run(total(f32), image[1:], f32)[0].tobytes() == expected
    assert run(total(f32), image, f32, skip=1)[0].tobytes() == expected
    assert run(total(f32), image[1:], f32, vectors=False)[0].tobytes() == expected


def test_the_values_of_many_blocks_are_combined_by_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_operators, "FEW", 1)
    image = pixels_of(np.float32, 4096 * 37)
    assert run(total(f32), image, f32)[0].tobytes() == documented_sum(image, 1).tobytes()
    monkeypatch.setattr(global_operators, "FEW", 2)
    assert run(total(f32), image, f32)[0].tobytes() == documented_sum(image, 2).tobytes()


def test_the_order_matters_for_these_images() -> None:
    """Otherwise the tests above would not notice another order."""
    image = pixels_of(np.float32, 20001)
    assert documented_sum(image) != documented_sum(image[::-1].copy())
    image = pixels_of(np.float32, 4096 * 37)
    assert documented_sum(image, 1) != documented_sum(image, 2)


@pytest.mark.parametrize("skip", [0, 5])
@pytest.mark.parametrize("count", [0, 1, 14, 40, 5000, 40000])
def test_an_operator_that_is_not_commutative(count: int, skip: int) -> None:
    """The pixels are combined from left to right: the hash of the whole is that of the sequence."""
    image = pixels_of(np.uint8, count + skip)
    hash = 0
    for pixel in image[skip:].tolist():
        hash = (hash * 31 + pixel + 1) % 2**32
    assert run(joined, image, u8, skip=skip)["hash"][0] == hash


@device
def weight(pixel: uchar4) -> float2:
    return float2(pixel.x + pixel.y, pixel.w)


@device
def zero2() -> float2:
    return float2(0.0, 0.0)


@device
def share(value: float2, pixels: i64) -> f32:
    return value.x / value.y + f32(pixels)


@reduction(identity=zero2, lift=weight, finish=share)
def weights(left: float2, right: float2) -> float2:
    return float2(left.x + right.x, left.y + right.y)


def test_vectors_of_pixels_and_of_values() -> None:
    """The sums are integers below 2²⁴, so that every order gives the same."""
    image = pixels_of(np.uint8, 4 * 3000).reshape(-1, 4)
    sums = image.astype(np.float32).sum(0)
    found = run(weights, image.view(dtype_of(uchar4)).ravel(), uchar4)
    assert found[0] == (sums[0] + sums[1]) / sums[3] + np.float32(3000)


def test_the_mean_of_an_image() -> None:
    image = pixels_of(np.uint16, 7001)
    assert run(mean(i64, t.F64), image, u16)[0] == image.sum(dtype=np.int64) / 7001


@device
def low_bits(pixel: u16) -> i32:
    return i32(pixel) - 60000


@pytest.mark.parametrize("bins", [1, 256, 5000])
@pytest.mark.parametrize("count", [0, 9, 4000])
def test_the_histogram_of_an_image(bins: int, count: int) -> None:
    """Pixels outside of the bins are not counted."""
    image = pixels_of(np.uint16, count + 1)
    found = run(Histogram(bins, low_bits), image, u16, skip=1)
    expected = np.bincount(np.maximum(image[1:].astype(int) - 60000, -1) + 1, minlength=bins + 1)[1 : bins + 1]
    assert (found == expected).all()


def test_blocks_are_few_for_small_images_and_bounded_for_large_ones() -> None:
    words = Words.of(t.F32)
    assert words.blocks(0) == words.blocks(4096) == 1
    assert words.blocks(4096 + 4) == 2
    assert words.blocks(4096 * (MOST_BLOCKS + 1)) == MOST_BLOCKS // 2 + 1
    assert words.blocks(1 << 30) <= MOST_BLOCKS


def test_words_of_pixels_that_do_not_divide_them() -> None:
    twelve = type_from(float3)
    assert isinstance(twelve, t.Struct)
    assert Words.of(twelve) == Words(twelve, twelve, 1)


@device
def three(pixel: u8) -> f32:
    return 3.0


@device
def two_types(left: f32, right: i32) -> f32:
    return left


def test_what_does_not_fit_is_refused_at_the_function() -> None:
    with pytest.raises(DslError, match=r"combine needs two parameters.*") as error:
        Reduction(two_types, 0.0).kernel(t.F32, "k")
    assert error.value.place is not None
    with pytest.raises(DslError, match="lift needs the parameter f32"):
        Reduction(total(f32).combine, 0.0, lift=three).kernel(t.F32, "k")
    with pytest.raises(DslError, match="bin needs the parameter u8"):
        Histogram(16, low_bits).kernel(t.U8, "k")
    with pytest.raises(DslError, match="1 to 8192 bins"):
        Histogram(9000, low_bits).kernel(t.U16, "k")
    with pytest.raises(DslError, match="a floating-point number"):
        mean(i64, i32)
    with pytest.raises(DslError, match="convert"):
        struct4 = type_from(uchar4)
        assert isinstance(struct4, t.Struct)
        total(f32).kernel(struct4, "k")


# --- in pipelines ------------------------------------------------------------------------------------------------


@point
def scaled(pixel: f32, low: f32, high: f32) -> f32:
    return (pixel - low) / (high - low)


@pipeline
def stretched(src: Image[f32]) -> Image[f32]:
    """All pixels between 0 and 1."""
    return scaled(src, minimum(f32)(src), maximum(f32)(src))


@point
def doubled(pixel: u16) -> u16:
    return u16(pixel * 2)


@pipeline
def counted(src: Image[u16]) -> tuple[Image[u32], Image[i64]]:
    twice = doubled(src)
    return Histogram(300, low_bits)(twice), total(i64)(twice)


@pytest.mark.parametrize(
    ("shape", "lowering"),
    [*(((37, 53), each) for each in sorted(LOWERINGS)), *((shape, "naive") for shape in ((1, 2), (70, 130)))],
)
def test_values_of_an_image_as_arguments_of_operators(shape: tuple[int, int], lowering: str) -> None:
    image = pixels_of(np.float32, shape[0] * shape[1]).reshape(shape)
    made = stretched.compile(shape, lowering=lowering)(image, backend=EmulatorBackend())
    assert (made == (image - image.min()) / (image.max() - image.min())).all()


def test_global_operators_of_images_between_operators() -> None:
    image = pixels_of(np.uint16, 40 * 50).reshape(40, 50)
    twice = image * np.uint16(2)
    bins, sums = counted.compile((40, 50))(image, backend=EmulatorBackend())
    inside = twice[twice >= 60000].astype(int) - 60000
    assert bins.shape == (1, 300)
    assert (bins[0] == np.bincount(inside[inside < 300], minlength=300)).all()
    assert sums.tolist() == [[twice.sum(dtype=np.int64)]]


def test_a_program_for_every_size() -> None:
    """The number of blocks and the sizes of the memory between them follow from the size of the image."""
    program = lower(counted.graph(width=50, height=40)).program(any_size=True)
    for height, width in ((40, 50), (99, 101)):
        image = pixels_of(np.uint16, height * width)
        results = program.run(
            EmulatorBackend(),
            compiler(),
            src=image,
            histogram=np.zeros(300, np.uint32),
            total=np.zeros(1, np.int64),
            src_width=width,
            src_height=height,
        )
        assert results["total"][0] == (image * np.uint16(2)).sum(dtype=np.int64)


def test_what_a_pipeline_refuses_of_global_operators() -> None:
    def wrong(src: Image[u16]) -> Image[f32]:
        return total(f32)(low_bits)

    with pytest.raises(DslError, match="total reads an image"):
        pipeline(wrong).graph(width=3, height=3)
    with pytest.raises(DslError, match="combine must be a @device function"):
        Reduction(max, 0)


@device
def weighted(pixel: f32) -> f32:
    return pixel * f32(0.3)


@reduction(identity=0, lift=weighted)
def weighted_sum(left: f32, right: f32) -> f32:
    return left + right


def test_a_product_and_the_sum_that_reads_it_round_one_by_one() -> None:
    """So the loops with and without vector loads compute the same bits."""
    assert "fma." not in weighted_sum.kernel(t.F32, "reduce").ptx(compiler())
    assert "fma." in weighted_sum.kernel(t.F32, "reduce", arithmetic="nvcc").ptx(compiler())
    image = pixels_of(np.float32, 5001)
    with_vectors = run(weighted_sum, image, f32)
    assert run(weighted_sum, image, f32, vectors=False).tobytes() == with_vectors.tobytes()
    products = image * np.float32(0.3)
    assert with_vectors.tobytes() == documented_sum(products).tobytes()
