"""What a step takes longer because images are no longer in the L2 cache.

The model of a kernel (`fusion.cost`) takes it that the step before has just used all images of the kernel. Here the
bytes count that all steps have moved since an image was used last. The pipeline runs again and again, so what comes
before the first step are the last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..fusion.machine import Machine
from ..operators import Image
from .dependences import Step
from .memory import bytes_of

__all__ = ["seconds_of_misses"]


def seconds_of_misses(steps: Sequence[Step], machine: Machine) -> list[float]:
    """For each step: the seconds by which its reads take longer."""
    moved = [float(sum(bytes_of(image) for image in step.uses)) for step in steps]
    slower = max(0.0, 1 / machine.memory - 1 / machine.l2)
    found: list[float] = []
    for number, step in enumerate(steps):
        lost = 0.0
        for image in step.uses - set(step.writes):
            since = _moved_since(image, number, steps, moved)
            kept = machine.kept(moved[number]) - machine.kept(since)
            lost += max(0.0, kept) * bytes_of(image)
        found.append(lost * slower)
    return found


def _moved_since(image: Image[Any], number: int, steps: Sequence[Step], moved: Sequence[float]) -> float:
    """The bytes that steps have moved since ``image`` was used before step ``number``, with those of this step."""
    total = moved[number]
    for back in range(1, len(steps)):
        other = (number - back) % len(steps)
        if image in steps[other].uses:
            break
        total += moved[other]
    return total
