"""The steps of a lowered pipeline, and which step must wait for which.

A step is a launch, or sets a buffer to zero that a launch needs so. A step waits for the steps that write what it
reads, and for those that use what it overwrites. Nothing else is ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..lowered import Launch, Lowered
from ..operators import Image, Scratch

__all__ = ["Edge", "Step", "ancestors", "dependences", "reduced", "steps_of"]

#: The numbers of two steps. The second one waits for the first one.
Edge: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True)
class Step:
    """A launch, or the memory that is set to zero: one of both is None."""

    launch: Launch | None
    cleared: Scratch | None = None

    @property
    def name(self) -> str:
        """The kernel, or what is set to zero."""
        if self.launch is not None:
            return self.launch.kernel.name
        assert self.cleared is not None
        return f"zero {self.cleared.name}"

    @property
    def writes(self) -> tuple[Image[Any], ...]:
        """The images that it writes. It may read them, too."""
        if self.launch is not None:
            return self.launch.images(written=True)
        assert self.cleared is not None
        return (self.cleared,)

    @property
    def uses(self) -> frozenset[Image[Any]]:
        """All images that it reads or writes."""
        read = self.launch.images(written=False) if self.launch is not None else ()
        return frozenset((*read, *self.writes))


def steps_of(lowered: Lowered) -> tuple[Step, ...]:
    """The steps in an order in which they can run: that of the launches. Memory that has to be zero is cleared directly
    before the first launch that uses it."""
    made: list[Step] = []
    cleared: set[Image[Any]] = set()
    for launch in lowered.launches:
        for image in launch.images(written=True):
            if isinstance(image, Scratch) and image.is_zero and image not in cleared:
                cleared.add(image)
                made.append(Step(None, image))
        made.append(Step(launch))
    return tuple(made)


def dependences(steps: Sequence[Step]) -> frozenset[Edge]:
    """The edges between steps that use the same image, of which one writes it. Edges that follow from others are left
    out."""
    #: By image: the last step that wrote it, and the steps that have read it since then.
    writer: dict[Image[Any], int] = {}
    readers: dict[Image[Any], list[int]] = {}
    edges: set[Edge] = set()
    for number, step in enumerate(steps):
        written = set(step.writes)
        for image in step.uses:
            before = [writer[image]] if image in writer else []
            before += readers.get(image, []) if image in written else []
            edges |= {(other, number) for other in before}
        for image in step.uses:
            if image in written:
                writer[image], readers[image] = number, []
            else:
                readers.setdefault(image, []).append(number)
    return reduced(len(steps), edges)


def ancestors(size: int, edges: Iterable[Edge]) -> list[set[int]]:
    """For each step: all steps that have ended when it begins. Edges lead to higher numbers."""
    before: list[set[int]] = [set() for _ in range(size)]
    for first, second in sorted(edges, key=lambda edge: (edge[1], edge[0])):
        assert first < second
        before[second] |= {first, *before[first]}
    return before


def reduced(size: int, edges: Iterable[Edge]) -> frozenset[Edge]:
    """The edges without those that follow from others (the transitive reduction)."""
    every = set(edges)
    before = ancestors(size, every)
    sources: list[set[int]] = [set() for _ in range(size)]
    for first, second in every:
        sources[second].add(first)
    return frozenset(
        (first, second)
        for first, second in every
        if not any(first in before[other] for other in sources[second] if other != first)
    )
