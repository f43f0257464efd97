"""Images for the programs of this suite, and pixels around each pixel for their references, with NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dsl.image import Boundary

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["around", "bytes_with_noise", "colours", "hills"]


def hills(width: int, height: int, numbers: Any) -> NDArray[Any]:
    """Smooth hills with noise: f32 from 0 to 1."""
    import numpy as np

    y, x = np.ogrid[:height, :width]
    waves = np.sin(x / 17 + numbers.random()) * np.cos(y / 23 + numbers.random())
    noise = numbers.random((height, width), np.float32)
    return np.asarray(0.4 * waves.astype(np.float32) + 0.45 + 0.1 * noise, np.float32)


def bytes_with_noise(width: int, height: int, numbers: Any) -> NDArray[Any]:
    """The same as u8 from 0 to 255."""
    import numpy as np

    return np.asarray(hills(width, height, numbers) * 255, np.uint8)


def colours(width: int, height: int, numbers: Any) -> NDArray[Any]:
    """Four components, each of them hills."""
    import numpy as np

    return np.stack([hills(width, height, numbers) for _ in range(4)], axis=2)


def around(image: NDArray[Any], reach: int, boundary: Boundary) -> Callable[[int, int], NDArray[Any]]:
    """A function from an offset (dx, dy) to the image of the pixels at this offset. No offset is above ``reach``."""
    import numpy as np

    height, width = image.shape[:2]
    margins = [(reach, reach), (reach, reach), (0, 0)][: image.ndim]
    mode: Any = boundary.numpy_mode
    padded = np.pad(image, margins, mode=mode)
    return lambda dx, dy: padded[reach + dy : reach + dy + height, reach + dx : reach + dx + width]
