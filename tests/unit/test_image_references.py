"""The references of the suite `image` against a second implementation: SciPy, and OpenCV where it is installed.

    python -m pip install opencv-python-headless

The programs are compared with these references (`test_suites_image.py`).
"""

import importlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl.image import Boundary
from ptxmotion.suites.image import box, corners, gaussian, laplace, median, prewitt, sobel, unsharp
from ptxmotion.suites.image.image_benchmark import BOUNDARIES
from ptxmotion.suites.image.surroundings import bytes_with_noise, hills

#: By boundary: the mode of `scipy.ndimage`, and the border of OpenCV.
SCIPY = {"clamp": "nearest", "mirror": "reflect", "reflect": "mirror", "repeat": "wrap", "constant": "constant"}
OPENCV = {
    "clamp": "BORDER_REPLICATE",
    "mirror": "BORDER_REFLECT",
    "reflect": "BORDER_REFLECT_101",
    "repeat": "BORDER_WRAP",
    "constant": "BORDER_CONSTANT",
}
#: (height, width). The last two are smaller than a window of 5 x 5.
SHAPES = [(19, 97), (31, 30), (1, 40), (40, 1), (3, 2)]


def rows(of: Any) -> NDArray[np.float32]:
    return np.array(of, np.float32)


def images(shape: tuple[int, int]) -> tuple[NDArray[Any], NDArray[Any]]:
    height, width = shape
    numbers = np.random.default_rng(height * width)
    return hills(width, height, numbers), bytes_with_noise(width, height, numbers)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_filters_compute_what_scipy_does(boundary: str, shape: tuple[int, int]) -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    ndimage: Any = importlib.import_module("scipy.ndimage")
    floats, numbers = images(shape)
    chosen = BOUNDARIES[boundary]

    def correlated(image: NDArray[Any], weights: Any, kind: Any = np.float32) -> Any:
        return ndimage.correlate(image.astype(kind), np.asarray(weights, kind), mode=SCIPY[boundary])

    def close(found: NDArray[Any], expected: Any) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=4e-6)

    close(gaussian.small_reference(floats, chosen), correlated(floats, rows(gaussian.SMALL_ROWS) / 16))
    blurred = correlated(floats, rows(gaussian.LARGE_ROWS) / 256)
    close(gaussian.large_reference(floats, chosen), blurred)
    close(laplace.reference(floats, chosen), correlated(floats, laplace.ROWS))
    x, y = correlated(floats, sobel.ACROSS_ROWS), correlated(floats, sobel.DOWN_ROWS)
    close(sobel.reference(floats, chosen), np.sqrt(x * x + y * y))
    close(unsharp.reference(floats, chosen, 1.5), np.clip(floats + 1.5 * (floats - blurred), 0, 1))
    xx, xy, yy = (correlated(each, rows(gaussian.SMALL_ROWS) / 16) for each in (x * x, x * y, y * y))
    close(corners.harris_reference(floats, chosen, 0.04), xx * yy - xy * xy - 0.04 * (xx + yy) ** 2)
    root = np.sqrt(((xx - yy) / 2) ** 2 + xy * xy)
    close(corners.shi_tomasi_reference(floats, chosen), (xx + yy) / 2 - root)
    total = correlated(numbers, np.ones((5, 5)), np.int32)
    assert np.array_equal(box.reference(numbers, chosen), (total + 12) // 25)
    across = np.array([[-1, 0, 1]] * 3)
    strength = abs(correlated(numbers, across, np.int32)) + abs(correlated(numbers, across.T, np.int32))
    assert np.array_equal(prewitt.reference(numbers, chosen), np.minimum(strength, 255))
    middle = ndimage.median_filter(numbers, size=3, mode=SCIPY[boundary])
    assert np.array_equal(median.reference(numbers, chosen), middle)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_filters_compute_what_opencv_does(boundary: str, shape: tuple[int, int]) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed: python -m pip install opencv-python-headless")
    cv2: Any = importlib.import_module("cv2")
    floats, numbers = images(shape)
    chosen, border = BOUNDARIES[boundary], getattr(cv2, OPENCV[boundary])

    def padded(image: NDArray[Any], reach: int) -> Any:
        return cv2.copyMakeBorder(image, reach, reach, reach, reach, border, value=0)

    def filtered(image: NDArray[Any], weights: Any) -> Any:
        """The correlation: the padded image without its border. The border of OpenCV's filter is not used."""
        mask = rows(weights)
        reach = len(mask) // 2
        return cv2.filter2D(padded(image, reach), cv2.CV_32F, mask)[reach:-reach, reach:-reach]

    def close(found: NDArray[Any], expected: Any) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=4e-6)

    close(gaussian.small_reference(floats, chosen), filtered(floats, rows(gaussian.SMALL_ROWS) / 16))
    close(gaussian.large_reference(floats, chosen), filtered(floats, rows(gaussian.LARGE_ROWS) / 256))
    close(laplace.reference(floats, chosen), filtered(floats, laplace.ROWS))
    x, y = filtered(floats, sobel.ACROSS_ROWS), filtered(floats, sobel.DOWN_ROWS)
    close(sobel.reference(floats, chosen), np.sqrt(x * x + y * y))
    total = filtered(numbers.astype(np.float32), np.ones((5, 5))).astype(np.int64)
    assert np.array_equal(box.reference(numbers, chosen), (total + 12) // 25)
    middle = cv2.medianBlur(padded(numbers, 1), 3)[1:-1, 1:-1]
    assert np.array_equal(median.reference(numbers, chosen), middle)


def test_the_boundaries_are_those_of_the_suite() -> None:
    assert SCIPY.keys() == OPENCV.keys() == BOUNDARIES.keys()
    assert Boundary.SYMMETRIC is BOUNDARIES["mirror"]
