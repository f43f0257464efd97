"""The boundaries of images that several tests read with."""

from __future__ import annotations

from ptxmotion.dsl.image import Boundary

__all__ = ["MODES"]

#: By name in the parameters of tests: the boundary.
MODES = {
    "clamp": Boundary.CLAMP,
    "mirror": Boundary.MIRROR,
    "reflect": Boundary.REFLECT,
    "repeat": Boundary.REPEAT,
    "constant": Boundary.constant(-7),
}
