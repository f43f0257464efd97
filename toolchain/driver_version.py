"""The version of CUDA that a driver supports, and the oldest one that loads what our ptxas assembles."""

from __future__ import annotations

__all__ = ["OLDEST_DRIVER", "cuda_version", "version_text"]

#: A driver loads cubins of the same major version of CUDA. This is the oldest driver that loads those of CUDA 13.
OLDEST_DRIVER = (13, 0)


def cuda_version(number: int) -> tuple[int, int]:
    """Major and minor version for the ``number`` that the driver returns.

    >>> cuda_version(13010)
    (13, 1)
    """
    return number // 1000, number % 1000 // 10


def version_text(number: int) -> str:
    """The version as text.

    >>> version_text(12080)
    '12.8'
    """
    return "{}.{}".format(*cuda_version(number))
