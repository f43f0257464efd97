"""Buffers of intermediate images that share memory.

An image is alive from the step that writes it first to the last step that uses it. Steps of a graph may run in many
orders, so two images can share memory only if all steps that use the one have ended before the first step of the
other begins. Where no dependence says so, sharing needs further edges. `share` adds them only if ``accept`` allows it.

Guarantees: `problems` finds nothing in a result of `share`. It reads only the steps, and the buffers and edges of the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ... import types as t
from ..lowered import Lowered
from ..operators import Image
from .dependences import Edge, Step, ancestors, reduced

__all__ = ["ALIGNMENT", "Accept", "Sharing", "bytes_of", "free_only", "problems", "share", "unshared"]

#: Buffers have a multiple of so many bytes.
ALIGNMENT = 256

#: Whether further edges may be added so that a buffer is used again: the edges so far, and the further ones.
Accept: TypeAlias = "Callable[[frozenset[Edge], frozenset[Edge]], bool]"


@dataclass(frozen=True)
class Sharing:
    """``slots`` are the bytes of each buffer. ``slot_of`` maps an intermediate image to the number of its buffer.
    ``edges`` are all dependences; ``added`` are those that only the sharing needs."""

    slots: tuple[int, ...]
    slot_of: dict[Image[Any], int]
    edges: frozenset[Edge]
    added: frozenset[Edge] = frozenset()

    @property
    def bytes(self) -> int:
        """The bytes of all buffers."""
        return sum(self.slots)


def bytes_of(image: Image[Any]) -> int:
    """The bytes of the pixels of an image."""
    return int(image.width) * int(image.height) * t.size_of(image.pixel)


def free_only(edges: frozenset[Edge], more: frozenset[Edge]) -> bool:
    """Accept no further edges."""
    return not more


def unshared(lowered: Lowered, edges: frozenset[Edge]) -> Sharing:
    """Each image has a buffer of its own."""
    images = lowered.buffers
    return Sharing(tuple(_rounded(bytes_of(image)) for image in images), {im: n for n, im in enumerate(images)}, edges)


def share(lowered: Lowered, steps: Sequence[Step], edges: frozenset[Edge], accept: Accept = free_only) -> Sharing:
    """Give each intermediate image, in the order of the steps, a buffer whose image is not needed any more: first one
    that needs no further edges, then one for which ``accept`` takes the edges, and else a new one. Among several, the
    one is taken whose size fits best."""
    intermediate, users = set(lowered.buffers), _users(steps)
    slots: list[int] = []
    #: By slot: the image that had it last.
    last: list[Image[Any]] = []
    slot_of: dict[Image[Any], int] = {}
    all_edges = edges
    for number, step in enumerate(steps):
        for image in step.writes:
            if image not in intermediate or image in slot_of:
                continue
            size = _rounded(bytes_of(image))
            before = ancestors(len(steps), all_edges)[number]
            ended = [slot for slot, other in enumerate(last) if max(users[other]) < number]
            needed = {slot: frozenset((user, number) for user in users[last[slot]] - before) for slot in ended}
            ended.sort(key=lambda slot: (len(needed[slot]) > 0, abs(slots[slot] - size), slot))
            chosen = next((slot for slot in ended if not needed[slot] or accept(all_edges, needed[slot])), None)
            if chosen is None:
                chosen = len(slots)
                slots.append(size)
                last.append(image)
            else:
                all_edges |= needed[chosen]
                slots[chosen] = max(slots[chosen], size)
                last[chosen] = image
            slot_of[image] = chosen
    whole = reduced(len(steps), all_edges)
    return Sharing(tuple(slots), slot_of, whole, whole - edges)


def _users(steps: Sequence[Step]) -> dict[Image[Any], frozenset[int]]:
    """By image: the steps that use it."""
    found: dict[Image[Any], set[int]] = {}
    for number, step in enumerate(steps):
        for image in step.uses:
            found.setdefault(image, set()).add(number)
    return {image: frozenset(numbers) for image, numbers in found.items()}


def problems(steps: Sequence[Step], sharing: Sharing) -> Iterator[str]:
    """Each pair of steps that use the same memory in no fixed order although one of them writes it, and each buffer
    that is too small."""
    before = ancestors(len(steps), sharing.edges)
    memory: dict[Image[Any], object] = {}
    for step in steps:
        for image in step.uses:
            slot = sharing.slot_of.get(image)
            memory[image] = image if slot is None else slot
            if slot is not None and sharing.slots[slot] < bytes_of(image):
                yield f"{image.name} needs {bytes_of(image)} bytes, and its buffer has {sharing.slots[slot]}"
    written = [{memory[image] for image in step.writes} for step in steps]
    used = [{memory[image] for image in step.uses} for step in steps]
    for second in range(len(steps)):
        for first in range(second):
            common = (written[first] & used[second]) | (used[first] & written[second])
            if common and first not in before[second]:
                yield f"{steps[first].name} and {steps[second].name} use the same memory in no fixed order"


def _rounded(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT
