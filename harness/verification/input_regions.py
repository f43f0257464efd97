"""Generates memory for a kernel from its PTX alone: each pointer points to its own region, wherever it is stored.

Computes: base addresses for pointers in parameters and in memory; the region that an address belongs to; the initial
bytes of a page. Method: the upper bits of a 64-bit base address encode where the pointer is stored. So the address of
an access identifies the word that was used as pointer, also after copies through local memory, functions or masks
(`pointer_search`). Regions extend `REACH` bytes in both directions.

    parameter word k          1 << 60 | k << 36
    word w of region r        1 << 61 | r << 50 | w << 36      (one region for all words of r)

Words of memory are numbered modulo 2**14, from -2**13 on, so that words before a base have negative numbers.

32-bit addresses are too small for this: each parameter has 16 MiB, and pointers in memory have no regions.
Guarantees: the content depends only on the address, the seed and what is known about the regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ...emulator.sparse import PAGE

__all__ = ["FILLS", "GeneratedMemory", "Region", "Regions"]

Array: TypeAlias = npt.NDArray[Any]
Word = TypeVar("Word", int, Array)

#: Bytes around a base that belong to its region.
REACH = 1 << 35
_PARAMETER, _MEMORY = 1 << 60, 1 << 61
_WORDS = 1 << 14
_NARROW_BASE, _NARROW_SHIFT = 0x4000_0000, 24

#: The content of regions: small indices and usual floats; all bit patterns of integers and floats of many magnitudes;
#: special values; numbers with which the code compares, among small indices; or pointers only (to find out which words
#: are used as pointers).
FILLS = ("index", "wide", "special", "compared", "pointers")

_SPECIAL_INTS = (0, 1, -1, 2, -2, 31, 32, 33, 127, 128, 255, 256, 32767, -32768, 65535, 65536, 2**31 - 1, -(2**31))
_SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 3.0, 1e30, -1e-30)
_SUBNORMAL = {2: 1e-6, 4: 1e-41, 8: 1e-310}


@dataclass(slots=True)
class Region:
    """What is known about a region.

    ``width`` is the size of the widest accessed element in bytes, or 0. ``pointers`` has the numbers of the 8-byte
    words that were used as pointers. They repeat every ``stride`` words, as in an array of structures; 0 if no pattern
    is known.
    """

    is_float: bool = False
    width: int = 0
    pointers: set[int] = field(default_factory=set[int])
    stride: int = 0

    def infer_stride(self) -> None:
        """Assume that the words that are pointers are members of the elements of an array."""
        first = min(self.pointers, default=0)
        apart = gcd(*(word - first for word in self.pointers))
        self.stride = apart or 1

    def are_pointers(self, words: Array) -> Array:
        """Which of the ``words`` hold pointers; ``words`` are distances in words from the region's base."""
        words = _word_number(words)
        if not self.pointers:
            return np.zeros(words.shape, bool)
        members = {word % self.stride for word in self.pointers} if self.stride else self.pointers
        return np.isin(words % self.stride if self.stride else words, list(members))


def _word_number(word: Word) -> Word:
    """The distance in words from a base, from -2**13 to 2**13 - 1. ``word`` is the same distance modulo 2**14."""
    return (word + _WORDS // 2) % _WORDS - _WORDS // 2


class Regions:
    """The regions of a kernel by number. ``_numbers`` maps kind and key (see `region`) to the number."""

    def __init__(self, address_bits: int = 64) -> None:
        self.is_wide = address_bits == 64
        self._numbers: dict[tuple[str, int], int] = {}
        self.regions: list[Region] = [Region()]  # number 0: addresses that no known pointer leads to

    def region(self, kind: str, key: int) -> int:
        """The number of a region, by its kind: the region that parameter word ``key`` points to (``parameter``), the
        region that words of region ``key`` point to (``memory``), or module variable ``key`` (``variable``)."""
        number = self._numbers.get((kind, key))
        if number is None:
            number = self._numbers[kind, key] = len(self.regions)
            self.regions.append(Region())
        return number

    def parameter_base(self, word: int) -> int:
        """The pointer that parameter word ``word`` holds."""
        return _PARAMETER | word << 36 if self.is_wide else _NARROW_BASE + (word << _NARROW_SHIFT)

    def memory_bases(self, region: int, words: Array) -> Array:
        """The pointers that words of a region hold."""
        base = np.int64(_MEMORY | (region & 0x3FF) << 50)
        return base | (words.astype(np.int64) % _WORDS) << np.int64(36)

    def origin(self, address: int) -> tuple[str, int, int] | None:
        """The location of the pointer that leads to ``address``: ``parameter``, its word, 0; or ``memory``, a region,
        and a word of it; or ``None`` if no generated pointer leads there."""
        if not self.is_wide:
            word = (address - _NARROW_BASE + (1 << _NARROW_SHIFT - 1)) >> _NARROW_SHIFT
            return ("parameter", word, 0) if 0 <= word < 64 else None
        tag = address + REACH >> 36
        if tag >> 24 == 1:
            return "parameter", tag & 0xFFFFFF, 0
        if tag >> 25 == 1:
            return "memory", tag >> 14 & 0x3FF, _word_number(tag)
        return None

    def offset(self, address: int) -> int:
        """Bytes from the base of the address's region; addresses before the base give negative numbers."""
        if not self.is_wide:
            reach = 1 << _NARROW_SHIFT - 1
            return (address - _NARROW_BASE + reach & (1 << _NARROW_SHIFT) - 1) - reach
        return (address + REACH & (1 << 36) - 1) - REACH

    def of(self, address: int) -> int:
        """The number of the region that ``address`` belongs to."""
        origin = self.origin(address)
        return 0 if origin is None else self.region(origin[0], origin[1])

    def first_word(self, page: int) -> int:
        """The number, within its region, of the first word of a page."""
        return self.offset(page * PAGE) // 8


class GeneratedMemory:
    """The initial content of pages and variables. ``fill`` is one of `FILLS`; ``high`` limits the indices. ``compared``
    are the numbers of the fill of this name."""

    def __init__(self, regions: Regions, fill: str, seed: int, high: int, compared: Sequence[int] = ()) -> None:
        self.regions = regions
        self.fill = fill
        self.seed = seed
        self.high = max(high, 2)
        self.compared = np.array([_signed(each) for each in compared], np.int64)

    def page(self, number: int) -> Array:
        """The bytes of page ``number``."""
        place = self.regions.of(number * PAGE)
        return self._bytes(place, self.regions.first_word(number), PAGE, (1, number & (1 << 64) - 1))

    def variable(self, number: int, nbytes: int) -> Array:
        """The bytes of the module variable of that number."""
        place = self.regions.region("variable", number)
        return self._bytes(place, 0, -(-nbytes // 8) * 8, (2, number))[:nbytes]

    def _bytes(self, place: int, first_word: int, nbytes: int, key: tuple[int, int]) -> Array:
        words = np.arange(first_word, first_word + nbytes // 8, dtype=np.int64)
        if self.fill == "pointers":
            return self.regions.memory_bases(place, words).view(np.uint8)
        region = self.regions.regions[place]
        data = np.ascontiguousarray(self._values(region, nbytes, np.random.default_rng([self.seed, *key])))
        generated = data.view(np.uint8)[:nbytes].copy()
        chosen = region.are_pointers(words)
        if bool(chosen.any()):
            generated.view(np.int64)[chosen] = self.regions.memory_bases(place, words[chosen])
        return generated

    def _values(self, region: Region, nbytes: int, random: np.random.Generator) -> Array:
        width = region.width if region.width in (1, 2, 4, 8) else 4
        count = nbytes // width
        if region.is_float and width > 1:
            with np.errstate(over="ignore"):
                return _floats(self.fill, count, width, random).astype(f"f{width}")
        if self.fill in ("index", "compared"):
            small = random.integers(0, random.choice([2, min(64, self.high), self.high]), count)
            if self.fill == "compared" and self.compared.size:
                small = np.where(random.random(count) < 0.5, random.choice(self.compared, count), small)
            return small.astype(f"i{width}")
        if self.fill == "special":
            return random.choice(np.array(_SPECIAL_INTS, np.int64), count).astype(f"i{width}")
        return np.frombuffer(random.bytes(nbytes), f"i{width}")


def _signed(number: int) -> int:
    """The number with the same 64 low bits that a signed word holds."""
    return (number + 2**63) % 2**64 - 2**63


def _floats(fill: str, count: int, width: int, random: np.random.Generator) -> Array:
    values = random.standard_normal(count)
    if fill in ("index", "compared"):
        return values
    if fill == "wide":
        return values * np.exp2(random.integers(-12, 13, count))
    special = random.choice(np.array([*_SPECIAL_FLOATS, _SUBNORMAL[width], -_SUBNORMAL[width]]), count)
    return np.where(random.random(count) < 0.5, special, values)
