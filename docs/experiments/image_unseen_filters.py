"""Filters on which the model `isp+m` was not developed, for `image_isp.py --unseen`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from ptxmotion.dsl import f32, i32, u8, u16
from ptxmotion.dsl.image import Accessor, Boundary, Domain, Image, Mask, Pipeline, Window, local, pipeline

CROSS = Domain([(0, -1), (-1, 0), (0, 0), (1, 0), (0, 1)])
SEVEN = Domain.box(7, 7)
ROW, COLUMN = Domain.box(9, 1), Domain.box(1, 9)
EMBOSS = Mask(np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32), skip_zeros=True)
CLOSE = Domain.box(3, 3)


@local(CLOSE)
def largest(src: Window[u8]) -> u8:
    found: i32 = 0
    for dx, dy in CLOSE:
        found = max(found, i32(src[dx, dy]))
    return u8(found)


@local(SEVEN)
def mean_of_49(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy in SEVEN:
        total += src[dx, dy]
    return total * 0.020408163


@local(ROW)
def row_sum(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy in ROW:
        total += src[dx, dy]
    return total


@local(COLUMN)
def column_sum(src: Window[u16]) -> i32:
    total: i32 = 0
    for dx, dy in COLUMN:
        total += i32(src[dx, dy])
    return total


@local(EMBOSS)
def emboss(src: Window[f32]) -> f32:
    total: f32 = 0.5
    for dx, dy, weight in EMBOSS:
        total += weight * src[dx, dy]
    return total


@local(CROSS)
def cross(src: Window[i32]) -> i32:
    total: i32 = -5 * src[0, 0]
    for dx, dy in CROSS:
        total += src[dx, dy]
    return total


@local((5, 5))
def similar(src: Window[f32]) -> f32:
    centre = src[0, 0]
    weights: f32 = 0.0
    total: f32 = 0.0
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            apart = src[dx, dy] - centre
            weight = 1.0 / (1.0 + 50.0 * (apart * apart))
            weights += weight
            total += weight * src[dx, dy]
    return total / weights


def _of_f32(operator: Any) -> Callable[[Boundary], Pipeline[..., Any]]:
    def build(boundary: Boundary) -> Pipeline[..., Any]:
        @pipeline
        def filtered(src: Image[f32]) -> Image[f32]:
            return operator(Accessor(src, boundary))

        return filtered

    return build


def _dilated(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def filtered(src: Image[u8]) -> Image[u8]:
        return largest(Accessor(src, boundary))

    return filtered


def _column(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def filtered(src: Image[u16]) -> Image[i32]:
        return column_sum(Accessor(src, boundary))

    return filtered


def _cross(boundary: Boundary) -> Pipeline[..., Any]:
    @pipeline
    def filtered(src: Image[i32]) -> Image[i32]:
        return cross(Accessor(src, boundary))

    return filtered


#: By name: makes the pipeline for a boundary.
UNSEEN: dict[str, Callable[[Boundary], Pipeline[..., Any]]] = {
    "dilate3x3": _dilated,
    "mean7x7": _of_f32(mean_of_49),
    "row9": _of_f32(row_sum),
    "column9": _column,
    "emboss3x3": _of_f32(emboss),
    "cross3x3": _cross,
    "similar5x5": _of_f32(similar),
}
