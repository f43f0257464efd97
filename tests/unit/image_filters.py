"""Operators that several tests apply."""

from __future__ import annotations

from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Window, local

__all__ = ["apart"]


@local((7, 7))
def apart(src: Window[f32]) -> f32:
    """The sum of the differences from the centre. By `isp_rows`, it needs more than 64 registers."""
    total: f32 = 0.0
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            total += abs(src[dx, dy] - src[0, 0])
    return total
