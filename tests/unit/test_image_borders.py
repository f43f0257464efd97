"""Every boundary against `numpy.pad`, on images from one pixel on, with windows larger than the image."""

import itertools
from typing import Any

import numpy as np
import pytest
from image_modes import MODES
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, index_map, local, pipeline
from ptxmotion.dsl.image.borders import Checks, reach_of_one_step
from ptxmotion.emulator.backend import EmulatorBackend

#: One pixel, one pixel wide, smaller than the window, as large as a block, one pixel more, several blocks.
SIZES = [(1, 1), (1, 2), (2, 1), (1, 9), (9, 1), (3, 2), (5, 5), (16, 4), (17, 5), (35, 10)]


@local((5, 5))
def hashed(src: Window[i32]) -> i32:
    """A number that depends on every pixel of the window and on its place."""
    total: i32 = 0
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            total = total * 31 + src[dx, dy]
    return total


@local((1, 13))
def hashed_column(src: Window[i32]) -> i32:
    total: i32 = 0
    for dy in range(-6, 7):
        total = total * 31 + src[0, dy]
    return total


def expected(array: NDArray[Any], boundary: Boundary, left: int, up: int) -> NDArray[Any]:
    mode: Any = boundary.numpy_mode
    constant = {"constant_values": boundary.value} if boundary.kind == "constant" else {}
    wide: NDArray[Any] = np.pad(array, ((up, up), (left, left)), mode=mode, **constant)
    height, width = array.shape
    total: NDArray[Any] = np.zeros_like(array)
    for dy in range(2 * up + 1):
        for dx in range(2 * left + 1):
            total = total * np.int32(31) + wide[dy : dy + height, dx : dx + width]
    return total


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_that_of_numpy(mode: str) -> None:
    boundary = MODES[mode]

    @pipeline
    def both(src: Image[i32]) -> tuple[Image[i32], Image[i32]]:
        return hashed(Accessor(src, boundary)), hashed_column(Accessor(src, boundary))

    random = np.random.default_rng(1)
    for width, height in SIZES:
        array = random.integers(-1000, 1000, (height, width), np.int32)
        for loops in (False, True):
            compiled = both.compile((height, width), block=(16, 4), loops=loops)
            wide, high = compiled(array, backend=EmulatorBackend())
            assert np.array_equal(wide, expected(array, boundary, 2, 2)), (width, height, loops)
            assert np.array_equal(high, expected(array, boundary, 0, 6)), (width, height, loops)


def test_kernels_of_small_images_are_loops_only_where_needed() -> None:
    @pipeline
    def one(src: Image[i32]) -> Image[i32]:
        return hashed(Accessor(src, Boundary.REPEAT))

    assert "while" not in one.compile((2, 2)).cuda
    assert "while" in one.compile((1, 2)).cuda
    assert "while" in one.compile((2, 2), loops=True).cuda


@pytest.mark.parametrize("mode", ["clamp", "mirror", "reflect", "repeat", "constant"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_index_maps_in_numpy(mode: str, size: int) -> None:
    boundary = MODES[mode]
    around = np.arange(-20, size + 20)
    found = index_map(boundary, around, size)
    if boundary.kind == "constant":
        assert np.array_equal(found, np.where((around >= 0) & (around < size), around, -1))
        return
    pad_mode: Any = boundary.numpy_mode
    assert np.array_equal(found, np.pad(np.arange(size), 20, mode=pad_mode))


def test_maps_of_one_step_reach_one_image() -> None:
    """The distance up to which kernels use the maps without loops, against `index_map`."""

    def low(kind: str, at: int, size: int) -> int:
        return {"clamp": 0, "symmetric": -1 - at, "reflect": -at, "repeat": at + size}[kind]

    def high(kind: str, at: int, size: int) -> int:
        return {"clamp": size - 1, "symmetric": 2 * size - 1 - at, "reflect": 2 * size - 2 - at, "repeat": at - size}[
            kind
        ]

    for name, size in itertools.product(("clamp", "mirror", "reflect", "repeat"), (1, 2, 5)):
        boundary = MODES[name]
        reach = reach_of_one_step(boundary, size)
        for outside in range(1, reach + 1):
            below, above = index_map(boundary, np.array([-outside, size - 1 + outside]), size).tolist()
            assert (low(boundary.kind, -outside, size), high(boundary.kind, size - 1 + outside, size)) == (below, above)


def test_checks_of_one_side_use_the_map_of_that_side() -> None:
    names = [
        made.name if (made := Checks(low, high, far).map(Boundary.MIRROR)) else None
        for low, high, far in [(True, True, False), (True, False, False), (False, True, False), (False, True, True)]
    ]
    assert names == ["symmetric", "symmetric_low", "symmetric_high", "symmetric_far"]
    assert Checks(False, False).map(Boundary.MIRROR) is None
    assert Checks().map(Boundary.constant(1)) is None and Checks().map(Boundary.UNDEFINED) is None
    clamp = Checks(True, True, True).map(Boundary.CLAMP)
    assert clamp is not None and clamp.name == "clamp"


def test_an_undefined_boundary_has_no_mode() -> None:
    with pytest.raises(DslError, match="undefined boundary"):
        _ = Boundary.UNDEFINED.numpy_mode
