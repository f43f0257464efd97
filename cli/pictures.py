"""Pictures as images of pipelines: files that Pillow (the extra `pictures`) reads and writes.

Pixels of u8 and f32 are grey, those of uchar4 and float4 red, green, blue and opacity; u16 is grey with 16 bits.
Floating-point pixels are from 0 to 1; others are cut off when a picture is written.
"""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..programs.errors import BadInput, BadRequest, RequirementMissing

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["check_pixel", "picture_file", "read_picture"]

#: By the type of pixels: the mode of Pillow.
_MODES = {"u8": "L", "u16": "I;16", "f32": "L", "uchar4": "RGBA", "float4": "RGBA"}


def check_pixel(pixel: str, what: str) -> None:
    """Raise `BadRequest` unless a picture can have these pixels."""
    if pixel not in _MODES:
        raise BadRequest(f"{what} has pixels of {pixel}, and pictures have {', '.join(_MODES)}")


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        install = "python -m pip install 'ptxmotion[pictures]'"
        raise RequirementMissing(f"pictures need Pillow: {error}\ninstall it with: {install}") from None


def read_picture(path: str, pixel: str) -> NDArray[Any]:
    """The picture in a file as an image of these pixels. Raises `OSError`, `BadInput`, `RequirementMissing`."""
    import numpy as np

    pillow = _pillow()
    data = Path(path).read_bytes()
    try:
        picture = pillow.open(io.BytesIO(data))
        picture.load()
    except (OSError, SyntaxError, ValueError):
        raise BadInput("this is no picture that Pillow reads", path) from None
    if picture.mode.startswith("I") and _MODES[pixel] != "RGBA":  # grey with 16 bits
        deep = np.clip(np.asarray(picture), 0, 65535).astype(np.uint16)
        if pixel == "u8":
            return (deep >> 8).astype(np.uint8)
        return deep if pixel == "u16" else deep.astype(np.float32) / np.float32(65535)
    plain = np.array(picture.convert("L" if pixel == "u16" else _MODES[pixel]))
    if pixel == "u16":
        return plain.astype(np.uint16) * np.uint16(257)
    return plain.astype(np.float32) / np.float32(255) if pixel in ("f32", "float4") else plain


def picture_file(path: str, image: NDArray[Any], pixel: str) -> bytes:
    """The content of a file with this image. Its name says the format. Raises `BadRequest`, `RequirementMissing`."""
    import numpy as np

    pillow = _pillow()
    form = pillow.registered_extensions().get(Path(path).suffix.lower())
    if form is None or form not in pillow.SAVE:
        raise BadRequest(f"'{path}': Pillow knows no format of pictures by this name; choose one such as out.png")
    if pixel in ("f32", "float4"):
        image = np.rint(np.clip(np.nan_to_num(image), 0, 1) * 255).astype(np.uint8)
    picture = pillow.fromarray(image)
    data = io.BytesIO()
    try:
        picture.save(data, format=form)
    except (OSError, ValueError) as error:
        raise BadRequest(f"'{path}': {error}") from None
    return data.getvalue()
