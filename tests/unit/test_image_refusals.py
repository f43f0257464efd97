"""Each error of an operator or a pipeline is at the line of the user's file."""

import runpy
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from ptxmotion.dsl import (
    DslError,
    addr,
    atomic_add,
    blockIdx,
    clock64,
    device,
    f32,
    f64,
    float4,
    i32,
    intrinsics,
    ptr,
    shared,
    shfl_sync,
    struct,
    syncthreads,
    threadIdx,
    u8,
)
from ptxmotion.dsl.image import (
    Accessor,
    Boundary,
    Domain,
    Histogram,
    Image,
    IterationSpace,
    Mask,
    Window,
    here,
    local,
    lower,
    operator_from_text,
    pipeline,
    point,
    reduction,
)

BOX = Domain.box(3, 3)
CROSS = Domain([(0, -1), (-1, 0), (0, 0), (0, 1)])
WEIGHTS = Mask([[1, 2, 1]])

NAMES: dict[str, object] = {
    "BOX": BOX,
    "CROSS": CROSS,
    "WEIGHTS": WEIGHTS,
    "Window": Window,
    "f32": f32,
    "i32": i32,
    "here": here,
    "u8": u8,
    "ptr": ptr,
    "addr": addr,
}

#: The text of an operator whose window is 3 x 3 pixels, the number of the wrong line, the message.
WRONG: Sequence[tuple[str, int, str]] = [
    (
        "def op(src: Window[i32]) -> i32:\n    return src[2, 0]",
        2,
        r"the offset \(2, 0\) is outside of the window of 3 x 3 pixels",
    ),
    ("def op(src: Window[i32]) -> i32:\n    return src[0]", 2, r"a window is read as src\[dx, dy\]"),
    (
        "def op(src: Window[i32]) -> i32:\n    src[0, 0] = 1\n    return 1",
        2,
        "src is a window, which cannot be written",
    ),
    ("def op(src: Window[i32]) -> i32:\n    p = src\n    return 1", 2, "src is a window, which can only be read as"),
    ("def op(src: Window[i32], n: i32) -> i32:\n    return src[n, 0]", 2, "`n` is not known to lie within the window"),
    (
        "def op(src: Window[i32]) -> i32:\n    t = 0\n    for d in range(-1, 3):\n        t += src[d, 0]\n    return t",
        4,
        r"the offset \(-1 to 2, 0\) is outside of the window",
    ),
    (
        "def op(src: Window[i32]) -> i32:\n    k = 0\n    while k < 2:\n        k += 1\n    return src[k, 0]",
        5,
        "`k` is not known to lie",
    ),
    ("def op(src: Window[i32]) -> i32:\n    k: u8 = 0 - 1\n    return src[k, 0]", 3, "`k` is not known to lie"),
    (
        "def op(src: Window[i32]) -> i32:\n    k = 0\n    f(addr(k))\n    return src[k, 0]",
        4,
        "`k` is not known to lie",
    ),
    (
        "def op(src: Window[i32]) -> i32:\n    for dx in BOX:\n        pass\n    return 1",
        2,
        "write `for dx, dy in BOX:`",
    ),
    (
        "def op(src: Window[i32]) -> i32:\n    for dx, dy in BOX:\n        break\n    return 1",
        3,
        "is unrolled and has no `break`",
    ),
    (
        "def op(src: Window[i32]) -> i32:\n    for dx, dy in OTHER:\n        pass\n    return 1",
        2,
        "`OTHER` is neither a Mask nor a Domain",
    ),
    (
        "def op(src: Window[i32]) -> i32:\n    for dx, dy in BOX:\n        dx = 1\n    return 1",
        3,
        "dx is a constant in this loop",
    ),
    ("def op(src: Window[i32]) -> i32:\n    return WEIGHTS[2, 0]", 2, r"\(2, 0\) is outside of the mask"),
    (
        "def op(src: Window[i32]) -> i32:\n    t = 0\n    for d in range(3):\n        t += WEIGHTS[d, 0]\n    return t",
        4,
        r"the offset \(0 to 2, 0\) is outside of the window of 3 x 1 pixels",
    ),
    ("def op(src: Window[i32]) -> i32:\n    x = here()\n    return 1", 2, "a tuple may only be assigned to a tuple"),
    ("def op(src: Window[i32]) -> i32:\n    return here()[0]", 2, "write `x, y = here\\(\\)`"),
    ("def op(src: Window[i32]) -> i32:\n    x, y = here(1)\n    return x", 2, "here\\(\\) takes no arguments"),
    ("def op(src: Window[i32]):\n    return 1", 1, "op needs the type of its result"),
    ("def op(src) -> i32:\n    return 1", 1, "parameter src needs a type"),
    ("def op(src: Window[i32], p: ptr[i32]) -> i32:\n    return 1", 1, r"ptr\[i32\] is not a type of pixels"),
    ("def op(src: Window[i32], n: i32 = 1) -> i32:\n    return 1", 1, "without default values"),
    ("def op(a: i32) -> i32:\n    return a", 1, "a local operator has a Window parameter"),
    ("def op(src: Window[i32]) -> i32:\n    return src[0, 0] / 2", 2, "`/` between integers"),
    ("def op(src: Window[f32]) -> i32:\n    return src[0, 0]", 2, "the result is f32, but i32 is expected"),
]


@pytest.mark.parametrize(("text", "line", "message"), WRONG, ids=[message[:30] for _, _, message in WRONG])
def test_wrong_operators_are_refused_at_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DslError, match=message) as caught:
        operator = operator_from_text(text + "\n", NAMES, (3, 3), file="wrong.py")
        pixel = operator.body.windows[0].pixel

        def whole(src: Image[Any]) -> Image[Any]:
            return operator(Accessor(src, Boundary.CLAMP))

        from ptxmotion.dsl.image import graph_of, lower
        from ptxmotion.dsl.image.operators import InputImage

        src: InputImage[Any] = InputImage("src", pixel, 8, 8)
        _ = lower(graph_of("whole", [whole(src)], [src])).cuda
    place = caught.value.place
    assert place is not None and (place.file, place.line) == ("wrong.py", line)


def test_offsets_of_a_domain_are_its_members() -> None:
    text = "def op(src: Window[i32]) -> i32:\n    return src[1, 0]\n"
    with pytest.raises(DslError, match=r"the offset \(1, 0\) is outside of the window of 4 offsets"):
        operator_from_text(text, NAMES, CROSS)


@local((3, 3))
def middle(src: Window[f32]) -> f32:
    return src[0, 0]


@point
def both(a: f32, b: f32) -> f32:
    return a + b


def wrong_argument_count(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP), 1)


def image_for_a_window(src: Image[f32]) -> Image[f32]:
    return middle(src)


def number_for_a_window(src: Image[f32]) -> Image[f32]:
    return middle(1.0)


def other_pixels(src: Image[i32]) -> Image[f32]:
    return both(src, 1.0)


def text_for_a_number(src: Image[f32]) -> Image[f32]:
    return both(src, "1")


def smaller_image(src: Image[f32]) -> Image[f32]:
    return both(src, 1.0, space=IterationSpace(src.width + 1, src.height))


def no_image(src: Image[f32]) -> Image[f32]:
    return both(1.0, 2.0)


def too_large(src: Image[f32]) -> Image[f32]:
    return both(1.0, 2.0, space=IterationSpace(0, 1))


def no_boundary(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, "clamp"))  # pyright: ignore[reportArgumentType]


def wrong_constant(src: Image[u8]) -> Image[f32]:
    return middle(Accessor(src, Boundary.constant(256)))


def wrong_components(src: Image[float4]) -> Image[f32]:
    return middle(Accessor(src, Boundary.constant((1.0, 2.0))))


def wrong_scale(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, scale=0))


def text_for_a_scale(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, scale="large"))  # pyright: ignore[reportArgumentType]


def three_scales(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, scale=(1, 1, 1)))  # pyright: ignore[reportArgumentType]


def half_an_offset(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, offset=(0.5, 0)))  # pyright: ignore[reportArgumentType]


def text_for_a_constant(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.constant("0")))  # pyright: ignore[reportArgumentType]


def half_a_space(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP), space=IterationSpace(src.width / 2, 4))  # pyright: ignore[reportArgumentType]


def tuple_for_a_space(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP), space=(8, 4))  # pyright: ignore[reportArgumentType]


def far_away(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, offset=(1 << 29, 0)))


def an_array(src: Image[f32]) -> Image[f32]:
    return both(np.ones((4, 8), np.float32), 2.0)


def large_integer(src: Image[f32]) -> Image[f32]:
    return both(src, 10**400)


def large_constant(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.constant(10**400)))


def another_pipeline(src: Image[f32]) -> Image[f32]:
    return pipeline(no_image)(src)


def large_products(src: Image[f32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.CLAMP, scale=Fraction(63, 64)), space=IterationSpace(1 << 25, 1))


def rounded_limit(src: Image[i32]) -> Image[f32]:
    return middle(Accessor(src, Boundary.constant(cast("float", np.float32(2**31)))))


CALLS: Sequence[tuple[Callable[..., Any], str]] = [
    (wrong_argument_count, "middle takes 1 arguments, not 2"),
    (
        image_for_a_window,
        r"argument src of middle is a window, which needs an Accessor: write Accessor\(src, Boundary.CLAMP\)",
    ),
    (number_for_a_window, "argument src of middle is a window, which needs an Accessor, not a float"),
    (other_pixels, "argument a of both is an image of i32, but f32 is expected"),
    (text_for_a_number, "argument b of both is an image or a number, not a str"),
    (smaller_image, r"argument a of both has 8 x 4 pixels, but 9 x 4 are computed: write Accessor"),
    (no_image, "both gets no image"),
    (too_large, "both cannot have 0 x 1 pixels"),
    (no_boundary, "the boundary of an Accessor is one of Boundary"),
    (wrong_constant, "256 is not a value of u8"),
    (wrong_components, "the constant of this boundary has 2 components, and float4 has 4"),
    (wrong_scale, "a scale is positive"),
    (text_for_a_scale, "a scale is an integer or a Fraction, not 'large'"),
    (three_scales, "scale and offset have one number or two"),
    (half_an_offset, r"an offset is an integer, not 0\.5"),
    (text_for_a_constant, "the constant of a boundary is a number, or one for each component, not '0'"),
    (half_a_space, r"the numbers of an IterationSpace are integers, not 4\.0"),
    (tuple_for_a_space, r"space= of middle is an IterationSpace\(width, height\), not \(8, 4\)"),
    (far_away, "argument src of middle would be read at coordinates beyond 268435456"),
    (an_array, "argument a of both is an image or a number, not a ndarray"),
    (large_integer, "argument b of both is 1000*, which is not a value of f32"),
    (large_constant, "1000* is not a value of f32"),
    (rounded_limit, "2147483648.* is not a value of i32"),
    (another_pipeline, "no_image computes arrays: within another pipeline, call no_image.function"),
    (large_products, "argument src of middle would be read at coordinates beyond"),
]


@pytest.mark.parametrize(("function", "message"), CALLS, ids=[each.__name__ for each, _ in CALLS])
def test_wrong_calls_of_operators_are_refused_at_their_line(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(DslError, match=message) as caught:
        pipeline(function).graph(width=8, height=4)
    place = caught.value.place
    assert place is not None and place.file == __file__
    assert place.line == function.__code__.co_firstlineno + 1


def test_wrong_pipelines_are_refused() -> None:
    @pipeline
    def returns_its_input(src: Image[f32]) -> Image[f32]:
        return src

    @pipeline
    def returns_a_number(src: Image[f32]) -> Any:
        return 1

    @pipeline
    def returns_other_pixels(src: Image[f32]) -> Image[f64]:
        return both(src, 1.0)

    @pipeline
    def takes_no_image(a: f32) -> Any:
        return a

    @pipeline
    def takes_an_array(src: list[int]) -> Any:
        return src

    cases: list[tuple[Any, str]] = [
        (returns_its_input, "must return images that operators make, and not src"),
        (returns_a_number, "must return an image, or a tuple of images"),
        (returns_other_pixels, "returns an image of f32, but f64 is declared"),
        (takes_no_image, "a pipeline takes at least one image"),
        (takes_an_array, "a pipeline takes images"),
    ]
    for each, message in cases:
        with pytest.raises(DslError, match=message):
            each.graph(width=4, height=4)


COMPUTATIONS: Sequence[Callable[[Any, Any], Any]] = [
    lambda src, a: src + src,
    lambda src, a: 2 * src,
    lambda src, a: np.float32(2) * src,
    lambda src, a: np.ones(3) - src,
    lambda src, a: -src,
    lambda src, a: src[0, 0],
    lambda src, a: both(src, 1.0) if src > 0 else src,
    lambda src, a: src or src,
    lambda src, a: both(src, a + 1),
    lambda src, a: both(src, 1 / a),
]


@pytest.mark.parametrize("compute", COMPUTATIONS)
def test_only_operators_compute(compute: Callable[[Any, Any], Any]) -> None:
    @pipeline
    def wrong(src: Image[f32], a: f32) -> Any:
        return compute(src, a)

    with pytest.raises(DslError, match=r"a pipeline cannot compute with (src|a): only operators compute") as caught:
        wrong.graph(width=8, height=4)
    place = caught.value.place
    assert place is not None and place.file == __file__
    assert place.line == compute.__code__.co_firstlineno


def test_a_mask_of_another_type() -> None:
    for weights in (np.ones((3, 3)) / 9, np.ones((3, 3), np.float32) / 9, [[1, 2, 1]]):
        assert Mask(weights, type=f32).array.dtype == np.float32
        assert Mask(weights, type=f64).array.dtype == np.float64


def test_wrong_masks_and_domains_are_refused() -> None:
    for make, message in [
        (lambda: Mask(np.zeros(3)), r"a mask has rows and columns of weights, not the shape \(3,\)"),
        (lambda: Mask(np.zeros((1, 1), complex)), "a mask cannot have weights of complex128"),
        (lambda: Mask(np.ones((3, 3)) / 9), "the weights of the mask are f64: give type=f32, or type=f64"),
        (lambda: Mask([[0.5]], type="f32"), "the type of weights is a number such as f32, not 'f32'"),
        (lambda: Mask([[0.5]], type=i32), "weights of float32 cannot become i32"),
        (lambda: Mask([[1]], origin=(1, 0)), r"the origin \(1, 0\) is outside of a mask of 1 x 1 weights"),
        (lambda: Domain([]), "a domain has at least one offset"),
        (lambda: Domain([(0, 0), (0, 0)]), "an offset occurs twice"),
        (lambda: Domain(np.zeros((3, 3))), r"a domain is a pair of integers \(dx, dy\)"),
        (lambda: Domain([(0.5, 0)]), r"a pair of integers \(dx, dy\), not \(0\.5, 0\)"),  # pyright: ignore[reportArgumentType]
        (lambda: Domain([1]), r"a pair of integers \(dx, dy\), not 1"),  # pyright: ignore[reportArgumentType]
        (lambda: Domain(3), r"a domain is made of offsets \(dx, dy\), not of 3"),  # pyright: ignore[reportArgumentType]
        (lambda: Domain.box(0, 1), "a window of 0 x 1 pixels"),
        (lambda: local((100_001, 100_001)), "a window of 100001 x 100001 pixels has more than 1048576"),
        (lambda: local(), "@local needs a Mask"),
        (lambda: local("3x3"), "a window is a Mask, a Domain, or its size"),  # pyright: ignore[reportArgumentType]
    ]:
        with pytest.raises(DslError, match=message):
            make()


def test_a_struct_is_no_pixel() -> None:
    @struct
    class Own:
        a: f32

    with pytest.raises(DslError, match="Own is not a type of pixels"):
        Image[Own]  # pyright: ignore[reportUnusedExpression]


def test_a_device_function_cannot_be_called_outside() -> None:
    @device
    def one(a: f32) -> f32:
        return a

    with pytest.raises(DslError, match="only kernels can call it"):
        one(1.0)


@device
def lane() -> i32:
    return i32(threadIdx.x)


@device
def neighbour(a: f32) -> f32:
    return shfl_sync(0xFFFFFFFF, a, lane())


@point
def of_a_block(a: f32) -> f32:
    return a + f32(blockIdx.x)


@point
def of_a_neighbour(a: f32) -> f32:
    return neighbour(a)


@point
def of_a_barrier(a: f32) -> f32:
    syncthreads()
    return a


@point
def of_a_tile(a: f32) -> f32:
    tile = shared(f32, 32)
    tile[0] = a
    return tile[0]


@point
def of_a_clock(a: f32) -> f32:
    return a + f32(clock64())


@point
def of_an_atomic(a: f32) -> f32:
    total: f32 = 0.0
    return atomic_add(addr(total), a)


@device
def bin_of_a_thread(a: f32) -> i32:
    return i32(threadIdx.x)


@reduction(identity=0)
def of_lanes(left: f32, right: f32) -> f32:
    return left + right + f32(lane())


@pytest.mark.parametrize(
    ("operator", "word"),
    [
        (of_a_block, "blockIdx"),
        (of_a_neighbour, "shfl_sync"),
        (of_a_barrier, "syncthreads"),
        (of_a_tile, "shared"),
        (of_a_clock, "clock64"),
        (of_an_atomic, "atomic_add"),
        (of_lanes, "threadIdx"),
        (Histogram(4, bin_of_a_thread), "threadIdx"),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_operators_do_not_depend_on_threads(operator: Any, word: str) -> None:
    """They would give other pixels with other blocks or lowerings."""

    @pipeline
    def whole(src: Image[f32]) -> Any:
        return operator(src)

    with pytest.raises(DslError, match=f"{word} depends on threads, and a lowering chooses") as caught:
        whole.graph(width=8, height=4)
    place = caught.value.place
    assert place is not None and place.file == __file__ and word in place.text


def test_what_depends_on_threads() -> None:
    """All barriers, fences, functions of warps, and atomics; no function of numbers."""
    found = {name for name, each in intrinsics.INTRINSICS.items() if each.of_threads}
    named = {name for name in intrinsics.INTRINSICS if "sync" in name or name.startswith(("atomic_", "threadfence"))}
    assert found == named | {"activemask", "clock64"}


def test_identities_and_bins_that_are_no_values() -> None:
    for identity in (0.5, 1 << 40, "0", None):

        @reduction(identity=identity)
        def sums(left: i32, right: i32) -> i32:
            return left + right

        with pytest.raises(DslError, match=r"the identity .* is not a value of i32") as caught:
            pipeline(lambda_of(sums)).graph(width=8, height=4)
        assert caught.value.place is not None and caught.value.place.file == __file__
    for bins in (2.5, "4", 0):
        with pytest.raises(DslError, match=f"a histogram has 1 to 8192 bins, not {bins!r}"):
            Histogram(bins, bin_of_a_thread)  # pyright: ignore[reportArgumentType]


def lambda_of(operator: Any) -> Callable[..., Any]:
    def whole(src: Image[i32]) -> Any:
        return operator(src)

    return whole


GENERIC = """
from ptxmotion.dsl import device
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, pipeline, point

def generic(pixel, number):
    @device
    def twice(a: pixel) -> pixel:
        return a + a

    @point
    def weighed(a: pixel, b: pixel, factor: number) -> pixel:
        return twice(a) - b

    @local((3, 1))
    def right(src: Window[pixel]) -> pixel:
        return src[1, 0]

    @pipeline
    def whole(src: Image[pixel], factor: number) -> Image[pixel]:
        return weighed(right(Accessor(src, Boundary.CLAMP)), src, factor)

    return whole

def unknown():
    @pipeline
    def nothing(src: "Image[missing]"):
        return src

    return nothing
"""


def test_types_that_only_annotations_mention(tmp_path: Path) -> None:
    """Python does not capture them."""
    file = tmp_path / "generic_operators.py"
    file.write_text(GENERIC)
    made = runpy.run_path(str(file))
    for pixel, number, text in ((i32, f32, "const int *"), (f32, i32, "const float *")):
        graph = made["generic"](pixel, number).graph(width=8, height=4)
        assert [node.pixel for node in (*graph.inputs, *graph.nodes)] == [pixel] * 3 and graph.scalars[0].type is number
        assert text in lower(graph, "fused").cuda
    with pytest.raises(DslError, match="missing is not defined: a function does not capture names of an enclosing one"):
        made["unknown"]().graph(width=8, height=4)
