"""Operators and pipelines on the emulator, against NumPy, and the kernels that they become."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, device, f16, f32, float2, float3, i32, sqrt, u8, u16, uchar4
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Domain,
    Image,
    IterationSpace,
    Mask,
    Window,
    execution,
    here,
    local,
    operator_from_text,
    pipeline,
    point,
)
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.image.gaussian import SMALL

EXACT = ("-fmad=false",)
ACROSS = Mask(np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.int32), skip_zeros=True)
LEVELS = Mask(np.arange(15, dtype=np.int32).reshape(3, 5))
CROSS = Domain([(0, -1), (-1, 0), (0, 0), (1, 0), (0, 1)])
HALF: Any = np.float32(0.5)


def shifted(array: NDArray[Any], dx: int, dy: int, mode: Any = "edge") -> NDArray[Any]:
    wide: NDArray[Any] = np.pad(array, ((9, 9), (9, 9), (0, 0))[: array.ndim], mode=mode)
    height, width = array.shape[:2]
    return wide[9 + dy : 9 + dy + height, 9 + dx : 9 + dx + width]


def random_image(dtype: Any, *shape: int) -> NDArray[Any]:
    random = np.random.default_rng(7)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 200, shape).astype(dtype)


@local(SMALL)
def blur(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in SMALL:
        total += weight * src[dx, dy]
    return total


@local(ACROSS)
def across(src: Window[u8]) -> i32:
    total: i32 = 0
    for dx, dy, weight in ACROSS:
        total += weight * src[dx, dy]
    return total


@device
def square(value: f32) -> f32:
    return value * value


@point
def strength(a: f32, b: f32) -> f32:
    return sqrt(square(a) + b * b)


def test_a_pipeline_of_floats_equals_numpy_bit_for_bit() -> None:
    @pipeline
    def smooth(src: Image[f32], bias: f32) -> tuple[Image[f32], Image[f32]]:
        once = blur(Accessor(src, Boundary.CLAMP))
        twice = blur(Accessor(once, Boundary.CLAMP))
        return strength(once, bias), strength(twice, 0.25)

    array = random_image(np.float32, 13, 37)
    compiled = smooth.compile(array.shape, flags=EXACT)
    assert list(compiled.lowered.kernels) == ["blur_kernel", "strength_kernel", "strength_kernel_2"]
    first, second = compiled(array, 0.125, backend=EmulatorBackend())

    def reference(image: NDArray[Any]) -> NDArray[Any]:
        total: NDArray[Any] = np.zeros_like(image)
        for dx, dy, weight in SMALL:
            total = total + weight * shifted(image, dx, dy)
        return total

    once = reference(array)
    twice = reference(once)
    assert np.array_equal(first, np.sqrt(once * once + np.float32(0.125) * np.float32(0.125)))
    assert np.array_equal(second, np.sqrt(twice * twice + np.float32(0.25) * np.float32(0.25)))


def test_zero_weights_are_skipped_on_request_only() -> None:
    @pipeline
    def gradient(src: Image[u8]) -> Image[i32]:
        return across(Accessor(src, Boundary.MIRROR))

    array = random_image(np.uint8, 6, 40)
    compiled = gradient.compile(array.shape)
    assert compiled.cuda.count("load_src(x") == 6
    wide = array.astype(np.int32)
    total = sum(int(weight) * shifted(wide, dx, dy, "symmetric") for dx, dy, weight in ACROSS)
    assert np.array_equal(compiled(array, backend=EmulatorBackend()), total)
    assert len(list(Mask(ACROSS.array))) == 9


def test_tables_of_weights_and_coordinates() -> None:
    @local(LEVELS)
    def weighted(src: Window[u16]) -> i32:
        x, y = here()
        total: i32 = x * 1000 + y
        for dy in range(-1, 2):
            for dx in range(-2, 3):
                total += LEVELS[dx, dy] * src[dx, dy]
        return total + LEVELS[2, 1]

    @pipeline
    def all_levels(src: Image[u16]) -> Image[i32]:
        return weighted(Accessor(src, Boundary.REFLECT))

    array = random_image(np.uint16, 5, 33)
    compiled = all_levels.compile(array.shape)
    assert "__constant__ const int LEVELS_weights_table[3][5]" in compiled.cuda
    y, x = np.indices(array.shape, np.int32)
    wide = array.astype(np.int32)
    expected = x * 1000 + y + sum(int(w) * shifted(wide, dx, dy, "reflect") for dx, dy, w in LEVELS) + 14
    assert np.array_equal(compiled(array, backend=EmulatorBackend()), expected)


def test_several_windows_on_several_images() -> None:
    @local(CROSS, (3, 1))
    def mixed(a: Window[i32], b: Window[i32], c: i32, scale: i32) -> i32:
        total: i32 = c
        for dx, dy in CROSS:
            total += a[dx, dy]
        return total + (b[-1, 0] - b[1, 0]) * scale

    @pipeline
    def combined(a: Image[i32], b: Image[i32], scale: i32) -> Image[i32]:
        return mixed(Accessor(a, Boundary.constant(5)), Accessor(b, Boundary.REPEAT), b, scale)

    a, b = random_image(np.int32, 9, 20), random_image(np.int32, 9, 20) * 3
    padded = np.pad(a, 1, constant_values=5)
    cross = sum(padded[1 + dy : 10 + dy, 1 + dx : 21 + dx] for dx, dy in CROSS)
    expected = b + cross + (shifted(b, -1, 0, "wrap") - shifted(b, 1, 0, "wrap")) * 3
    assert np.array_equal(combined(a, scale=3, b=b, backend=EmulatorBackend()), expected)


def test_vectors_are_pixels() -> None:
    @local((3, 1))
    def slope(src: Window[float3]) -> float2:
        left, right = src[-1, 0], src[1, 0]
        return float2(right.x - left.x, (right.y + left.z) * HALF)

    @point
    def gray(color: uchar4) -> u8:
        return u8((color.x + 2 * color.y + color.z) // 4)

    @pipeline
    def slopes(src: Image[float3]) -> Image[float2]:
        return slope(Accessor(src, Boundary.constant((1.0, 2.0, 4.0))))

    @pipeline
    def grays(src: Image[uchar4]) -> Image[u8]:
        return gray(src)

    colors = random_image(np.float32, 4, 10, 3)
    outside = np.broadcast_to(np.array([1, 2, 4], np.float32), (4, 1, 3))
    wide = np.concatenate([outside, colors, outside], axis=1)
    left, right = wide[:, :-2], wide[:, 2:]
    expected = np.stack([right[..., 0] - left[..., 0], (right[..., 1] + left[..., 2]) * HALF], -1)
    compiled = slopes.compile((4, 10), flags=EXACT)
    assert np.array_equal(compiled(colors, backend=EmulatorBackend()), expected)

    bytes_ = random_image(np.uint8, 7, 5, 4)
    whole = bytes_.astype(np.int32)
    wanted = (whole[..., 0] + 2 * whole[..., 1] + whole[..., 2]) // 4
    assert np.array_equal(grays(bytes_, backend=EmulatorBackend()), wanted.astype(np.uint8))


def test_operators_of_half_precision() -> None:
    mask = Mask(np.array([[1, 3, 1]], np.float16) / np.float16(4))

    @local(mask)
    def weighted(src: Window[f16]) -> f16:
        total: f16 = f16(0.0)
        for dx, dy, weight in mask:
            total += weight * src[dx, dy]
        return total

    @pipeline
    def smooth(src: Image[f16]) -> Image[f16]:
        return weighted(Accessor(src, Boundary.CLAMP))

    array = random_image(np.float16, 3, 9)
    total: NDArray[Any] = np.zeros_like(array)
    for dx, dy, weight in mask:
        total = total + weight * shifted(array, dx, dy)
    assert np.array_equal(smooth.compile((3, 9), flags=EXACT)(array, backend=EmulatorBackend()), total)


def test_loops_may_have_the_same_variable() -> None:
    @local((5, 1))
    def twice(src: Window[i32]) -> i32:
        total: i32 = 0
        for dx in range(-1, 2):
            total += src[dx, 0]
        for dx in range(-2, 3):
            for step in range(1):
                total += src[dx + step, 0] * 10
        return total

    assert twice.body.extents["src"].size == (5, 1)


@local((3, 3))
def corner_sum(src: Window[i32]) -> i32:
    return src[-1, -1] * 7 + src[0, 0] + src[1, 1] * 3


def corners(image: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """`corner_sum` with its centres at these places, for a clamped image."""
    height, width = image.shape

    def at(dx: int, dy: int) -> NDArray[Any]:
        return image[np.clip(y + dy, 0, height - 1)[:, None], np.clip(x + dx, 0, width - 1)[None, :]]

    return at(-1, -1) * 7 + at(0, 0) + at(1, 1) * 3


def test_scales_offsets_and_spaces() -> None:
    @pipeline
    def down(src: Image[i32]) -> Image[i32]:
        half = IterationSpace((src.width + 1) // 2, (src.height + 1) // 2)
        return corner_sum(Accessor(src, Boundary.CLAMP, scale=2, offset=(1, 0)), space=half)

    @pipeline
    def up(src: Image[i32]) -> Image[i32]:
        whole = IterationSpace(2 * src.width, 3 * src.height)
        return corner_sum(Accessor(src, Boundary.CLAMP, scale=(Fraction(1, 2), Fraction(1, 3))), space=whole)

    @pipeline
    def part(src: Image[i32]) -> Image[i32]:
        return corner_sum(Accessor(src, Boundary.CLAMP), space=IterationSpace(6, 4, x0=5, y0=-2))

    array = random_image(np.int32, 9, 13)
    backend = EmulatorBackend()
    assert np.array_equal(down(array, backend=backend), corners(array, np.arange(7) * 2 + 1, np.arange(5) * 2))
    assert np.array_equal(up(array, backend=backend), corners(array, np.arange(26) // 2, np.arange(27) // 3))
    assert np.array_equal(part(array, backend=backend), corners(array, np.arange(5, 11), np.arange(-2, 2)))


@pipeline
def twice_down(src: Image[i32]) -> Image[i32]:
    first = corner_sum(Accessor(src, Boundary.MIRROR), space=IterationSpace(src.width // 2, src.height // 2))
    return corner_sum(Accessor(first, Boundary.MIRROR))


def test_one_host_program_for_all_sizes() -> None:
    program = twice_down.compile((20, 30)).lowered.program(any_size=True)
    nvcc = compiler()
    for width, height in [(30, 20), (17, 9)]:
        array = random_image(np.int32, height, width)
        shape = (height // 2, width // 2)
        arguments = {"src": array.ravel(), "corner_sum_2": np.zeros(shape[0] * shape[1], np.int32)}
        sizes = {"src_width": width, "src_height": height}
        made = program.run(EmulatorBackend(), nvcc, **arguments, **sizes)["corner_sum_2"].reshape(shape)
        assert np.array_equal(made, twice_down(array, backend=EmulatorBackend()))


def test_a_host_program_refuses_sizes_that_need_other_kernels() -> None:
    far = operator_from_text(
        "def far(src: Window[i32]) -> i32:\n    return src[-4, 0]\n", {"Window": Window, "i32": i32}, (9, 1)
    )

    @pipeline
    def moved(src: Image[i32]) -> Image[i32]:
        return far(Accessor(src, Boundary.REPEAT))

    program = moved.compile((2, 30)).lowered.program(any_size=True)
    array = np.arange(6, dtype=np.int32)
    with pytest.raises(DslError, match=r"moved \(naive\) for 30 x 2 pixels has other kernels than for 3 x 2"):
        program.run(EmulatorBackend(), compiler(), src=array, far=array, src_width=3, src_height=2)


def test_results_in_given_arrays() -> None:
    array = random_image(np.int32, 6, 8)
    out: NDArray[Any] = np.zeros((3, 4), np.int32)
    assert twice_down(array, out=out, backend=EmulatorBackend()) is out
    assert np.array_equal(out, twice_down(array, backend=EmulatorBackend())) and out.any()
    with pytest.raises(DslError, match=r"output corner_sum_2 has 5 x 3 pixels, not 4 x 3"):
        twice_down(array, out=np.zeros((3, 5), np.int32))


def test_a_given_backend_is_not_used_by_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    default, given = EmulatorBackend(), EmulatorBackend()
    used: list[EmulatorBackend] = []
    monkeypatch.setattr(execution, "default_backend", lambda: default)
    real = EmulatorBackend.launch

    def launch(self: EmulatorBackend, *arguments: Any) -> None:
        used.append(self)
        real(self, *arguments)

    monkeypatch.setattr(EmulatorBackend, "launch", launch)
    compiled, array = twice_down.compile((9, 9)), random_image(np.int32, 9, 9)
    for chosen, wanted in ((given, given), (None, default), (given, given), (None, default)):
        used.clear()
        compiled(array, backend=chosen)
        assert set(map(id, used)) == {id(wanted)}


def test_the_graph_in_words() -> None:
    graph = twice_down.graph(width=20, height=10)
    assert str(graph).splitlines() == [
        "pipeline twice_down",
        "  input src: i32 20 x 10",
        "  image corner_sum: i32 10 x 5 = local corner_sum([src, SYMMETRIC, 3 x 3])",
        "  output corner_sum_2: i32 10 x 5 = local corner_sum([corner_sum, SYMMETRIC, 3 x 3])",
    ]
    first, second = graph.nodes
    assert graph.internal == (first,) and graph.outputs == (second,) and graph.consumers(first) == (second,)


def test_operators_from_text() -> None:
    text = "def shift(src: Window[i32], by: i32) -> i32:\n    return src[1, 0] + by\n"
    shift = operator_from_text(text, {"Window": Window, "i32": i32}, (3, 1))

    @pipeline
    def moved(src: Image[i32]) -> Image[i32]:
        return shift(Accessor(src, Boundary.REPEAT), 4)

    array = random_image(np.int32, 2, 5)
    assert np.array_equal(moved(array, backend=EmulatorBackend()), np.roll(array, -1, axis=1) + 4)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 5), np.float64), "image src must be an array of int32, not of float64"),
        (np.zeros((4, 5, 3), np.int32), r"image src must have the shape \(height, width\), not \(4, 5, 3\)"),
        (np.zeros((4, 5), ">i4"), "image src must be an array of int32, not of >i4"),
        ([[1]], "image src is a list, and not an array of NumPy, CuPy or PyTorch"),
    ],
)
def test_arrays_that_do_not_fit(array: Any, message: str) -> None:
    with pytest.raises(DslError, match=message):
        twice_down(array)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(DslError, match="twice_down: too many positional arguments; it takes src"):
        twice_down(np.zeros((4, 4), np.int32), 1)
    with pytest.raises(DslError, match="twice_down has no image dst"):
        twice_down.graph(4, 4, sizes={"dst": (1, 1)})
    with pytest.raises(DslError, match="no lowering 'naiv' \\(did you mean 'naive'\\?\\)"):
        twice_down.compile((4, 4), lowering="naiv")
    with pytest.raises(DslError, match="a block has 1 to 1024 threads, not 64 x 32"):
        twice_down.compile((4, 4), block=(64, 32))
    with pytest.raises(DslError, match="a block is a pair of integers \\(x, y\\), not 32"):
        twice_down.compile((4, 4), block=32)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DslError, match="the shape of image src is a tuple \\(height, width\\), not 4"):
        twice_down.compile(4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DslError, match="flags= is a sequence of flags, such as \\('-fmad=false',\\)"):
        twice_down.compile((4, 4), flags="-fmad=false")
    for call in (lambda: twice_down.graph(), lambda: twice_down.compile({})):
        with pytest.raises(DslError, match="twice_down needs the size of image src"):
            call()


NEXT_PIXEL = "def op(src: Window[i32]) -> i32:\n    return src[1, 0]\n"
ONE_PIXEL = "def op(src: Window[i32]) -> i32:\n    return src[0, 0]\n"


def test_one_offset_is_for_both_axes() -> None:
    operator = operator_from_text(ONE_PIXEL, {"Window": Window, "i32": i32}, (1, 1))

    @pipeline
    def moved(src: Image[i32]) -> Image[i32]:
        return operator(Accessor(src, Boundary.REPEAT, offset=1))

    array = random_image(np.int32, 3, 5)
    assert np.array_equal(moved(array, backend=EmulatorBackend()), np.roll(array, (-1, -1), (0, 1)))


def test_the_kernels_of_a_pipeline_are_translation_units() -> None:
    operator = operator_from_text(NEXT_PIXEL, {"Window": Window, "i32": i32}, (3, 1))

    @pipeline
    def twice(src: Image[i32]) -> Image[i32]:
        return operator(Accessor(operator(Accessor(src, Boundary.CLAMP)), Boundary.REPEAT))

    first, *units = twice.compile((4, 4)).cuda.split("// translation unit: ")
    assert first == "" and len(units) == 2
    assert all(unit.count("__global__") == 1 for unit in units)


@point
def scaled_and_moved(pixel: f32, by: f32, more: f32) -> f32:
    return pixel * by + more


@pipeline
def names_that_meet(src: Image[f32], by_value: f32) -> Image[f32]:
    """A constant and a number of the pipeline, for which the same name might be generated."""
    return scaled_and_moved(src, 3.0, by_value)


def test_a_constant_and_a_number_of_the_pipeline_have_different_names() -> None:
    image = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (names_that_meet(image, 10.0, backend=EmulatorBackend()) == image * 3 + 10).all()


@pytest.mark.parametrize("lowering", ["naive", "isp", "fused"])
def test_windows_may_be_called_x_and_y(lowering: str) -> None:
    """The names of the coordinates, also where the operator does not mention them."""

    @local((3, 1))
    def apart(x: Window[i32], y: Window[i32], x_: i32) -> i32:
        return x[1, 0] * x_ - y[-1, 0]

    @local((1, 3))
    def below(y: Window[i32]) -> i32:
        across, down = here()
        return y[0, 1] + across * 7 - down

    @pipeline
    def named(x: Image[i32], y: Image[i32]) -> Image[i32]:
        clamp = Boundary.CLAMP
        return below(Accessor(apart(Accessor(x, clamp), Accessor(y, clamp, scale=2), 3), clamp))

    one, other = np.random.default_rng(0).integers(0, 99, (2, 5, 40), np.int32)
    made = named.compile((5, 40), lowering=lowering)(one, other, backend=EmulatorBackend())
    at = np.arange(40)
    rows = np.minimum(2 * np.arange(5), 4)[:, None]
    step = one[:, np.minimum(at + 1, 39)] * 3 - other[rows, np.clip(2 * at - 1, 0, 39)]
    expected = step[np.minimum(np.arange(5) + 1, 4)] + at * 7 - np.arange(5)[:, None]
    assert np.array_equal(made, expected)
