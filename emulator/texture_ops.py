"""Textures and surfaces: `tex` with point filter, `txq`, `suld.b`, `sust.b`, `suq`.

Computes: the addresses of elements, and then loads and stores like those of global memory, with the same checks. A
coordinate of type f32 is rounded down. A component that the texture does not have is zero. With integer coordinates, a
fetch outside of the texture gives zeros whatever its border is, as on an H200. There, one with one integer coordinate
reads only textures in linear memory, and so `tex.1d` with type s32 is taken to read one.
Requires: handles in registers, of images that the launch got (`textures`). Guarantees: a handle of no image, an image
of another number of dimensions, and elements of another kind than the instruction reads, are reported as
`out-of-bounds`.
Refuses, by name: layers, cubes, mipmaps, samples, gathers (`tld4`), offsets, comparison of depths, `.f16`, `sust.p`,
`sured`, other queries, and references by name (`.texref`, `.surfref`).
Reference: PTX ISA 9.0, §9.7.10 (textures), §9.7.11 (surfaces).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.operands import Mem, Operand, Reg, Vec
from ..ptx.types import TYPES
from .access import Access
from .memory import spread
from .memory_ops import load_bytes, store_bytes
from .options import Options
from .registers import Binder, Getter, Refused
from .segments import semantics
from .textures import Surface, Texture

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["bind"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"

_GEOMETRIES = {"1d": 1, "2d": 2, "3d": 3}
_CACHING = frozenset(["ca", "cg", "cs", "cv", "wb", "wt"])
_WORD = TYPES["b32"]
_QUERIES = ("width", "height", "depth")


def bind(binder: Binder, options: Options, instr: Instr) -> Step:
    """The step of an instruction on textures or surfaces."""
    make = {"texture_fetch": _fetch, "texture_query": _query, "surface_load": _load, "surface_store": _store}
    return make[semantics(instr)](binder, options, instr)


class _Target:
    """The image and the coordinates that an instruction names: ``[handle, {x, y, …}]``."""

    def __init__(self, binder: Binder, instr: Instr, operand: Operand, dimensions: int) -> None:
        if not isinstance(operand, Mem) or not isinstance(operand.base, Reg) or operand.offset:
            raise Refused("a texture or surface by name")
        if len(operand.rest) != (dimensions > 0):
            raise Refused("a sampler")
        self.instr = instr
        self.handle = binder.source(operand.base, TYPES["b64"])
        self.coordinates: list[Getter] = []
        if dimensions:
            (rest,) = operand.rest
            elements = list(rest.elements) if isinstance(rest, Vec) else binder.elements(rest)
            if len(elements) != (4 if dimensions == 3 else dimensions):
                raise Refused(f"{len(elements)} coordinates")
            self.coordinates = [binder.source(element, _WORD) for element in elements[:dimensions]]
        self.guard = binder.guard(instr)

    def lanes(self, c: Cohort) -> Array:
        """The positions of the lanes in which the instruction takes effect."""
        return np.arange(c.n) if self.guard is None else np.flatnonzero(spread(self.guard(c), c.n))

    def images(self, c: Cohort, lanes: Array, kind: type[Surface]) -> list[tuple[int, Surface, Array]]:
        """The images that ``lanes`` access: address, image, and the lanes that access it. Others are reported."""
        handles = spread(self.handle(c), c.n)[lanes]
        found: list[tuple[int, Surface, Array]] = []
        for handle in np.unique(handles).tolist():
            image, here = c.batch.launch.space.images.get(handle), lanes[handles == handle]
            what = "texture" if kind is Texture else "surface"
            if image is None or (kind is Texture) != isinstance(image, Texture):
                self.report(c, here, f"{handle:#x} is no {what}")
            elif self.coordinates and len(image.extents) != len(self.coordinates):
                self.report(c, here, f"the {what} has {len(image.extents)} dimensions")
            else:
                found.append((handle, image, here))
        return found

    def report(self, c: Cohort, lanes: Array, message: str) -> None:
        c.batch.report("out-of-bounds", self.instr, c, lanes, message)


def _words(instr: Instr, known: Mapping[str, tuple[str, ...]], ignored: frozenset[str] = frozenset()) -> dict[str, str]:
    """The modifiers of the instruction by what they are; ``known`` has the words for each."""
    found: dict[str, str] = {}
    for word in instr.form.mods.get("*", "").split("."):
        name = next((name for name, words in known.items() if word in words and name not in found), None)
        if name is not None:
            found[name] = word
        elif word not in ignored:
            raise Refused(f".{word}" if word else "")
    return found


def _required(words: dict[str, str], *names: str) -> list[str]:
    if not all(name in words for name in names):
        raise Refused("its modifiers are not modelled")
    return [words[name] for name in names]


# --- textures -------------------------------------------------------------------------------------------------------


def _fetch(binder: Binder, options: Options, instr: Instr) -> Step:
    kinds = {"geometry": tuple(_GEOMETRIES), "vector": ("v4",), "type": ("u32", "s32", "f32"), "by": ("s32", "f32")}
    geometry, _, kind, by = _required(_words(instr, kinds), *kinds)
    if len(instr.operands) != 2:
        raise Refused("offsets or a comparison of depths")
    target = _Target(binder, instr, instr.operands[1], _GEOMETRIES[geometry])
    writes = [binder.destination(element, TYPES[kind]) for element in binder.elements(instr.operands[0])]
    if len(writes) != 4:
        raise Refused(f"{len(writes)} results")
    accesses: dict[tuple[int, int], Access] = {}

    def step(c: Cohort) -> None:
        lanes = target.lanes(c)
        coordinates = [_whole(spread(read(c), c.n), by) for read in target.coordinates]
        results = np.zeros((4, c.n), np.uint32)
        for address, image, here in target.images(c, lanes, Texture):
            if (image.array.dtype.kind == "f") != (kind == "f32"):
                target.report(c, here, f"the texture has elements of {image.array.dtype}")
                continue
            shape = (image.array.itemsize, image.channels)
            access = accesses.setdefault(shape, Access(instr, "global", *shape, options, reads=True, writes=False))
            places = [coordinate[here] for coordinate in coordinates]
            inside = np.ones(here.size, bool)
            if by == "s32" or (isinstance(image, Texture) and image.border == "zero"):
                for place, extent in zip(places, image.extents, strict=True):
                    inside &= (place >= 0) & (place < extent)
            first, *rest = [np.clip(place, 0, extent - 1) for place, extent in zip(places, image.extents, strict=True)]
            at = np.broadcast_to(address + image.row(rest) + first * image.element_bytes, here.shape)
            if bool(inside.any()):
                data = load_bytes(c, access, at[inside], here[inside]).view(image.array.dtype)
                wide = data if kind == "f32" else data.astype(np.int64).astype(np.uint32)
                results[: image.channels, here[inside]] = wide.view(np.uint32).T
        flags = None if target.guard is None else target.guard(c)
        for write, result in zip(writes, results, strict=True):
            write(c, result, flags)

    return step


def _whole(bits: Array, kind: str) -> Array:
    """Coordinates as whole numbers. The texture has at most 2^31 elements in each direction; NaN counts as 0."""
    if kind == "s32":
        return bits.view(np.int32).astype(np.int64)
    return np.clip(np.nan_to_num(np.floor(bits.view(np.float32).astype(np.float64))), -(2**31), 2**31).astype(np.int64)


def _query(binder: Binder, options: Options, instr: Instr) -> Step:
    kinds = {"query": _QUERIES, "type": ("b32",)}
    query, _ = _required(_words(instr, kinds), *kinds)
    if len(instr.operands) != 2:
        raise Refused("a mipmap")
    target = _Target(binder, instr, instr.operands[1], 0)
    write = binder.destination(instr.operands[0], _WORD)
    kind, number = (Texture if instr.form.op.base == "txq" else Surface), _QUERIES.index(query)

    def step(c: Cohort) -> None:
        lanes = target.lanes(c)
        result = np.zeros(c.n, np.uint32)
        for _, image, here in target.images(c, lanes, kind):
            if number >= len(image.extents):
                target.report(c, here, f"the image has no {query}")
            else:
                result[here] = image.extents[number]
        write(c, result, None if target.guard is None else target.guard(c))

    return step


# --- surfaces -------------------------------------------------------------------------------------------------------

_SURFACE = {
    "kind": ("b",),
    "geometry": tuple(_GEOMETRIES),
    "vector": ("v2", "v4"),
    "type": ("b8", "b16", "b32", "b64"),
    "outside": ("trap", "clamp", "zero"),
}


class _SurfaceAccess:
    """What `suld.b` and `sust.b` share. The first coordinate is an offset in bytes."""

    def __init__(self, binder: Binder, options: Options, instr: Instr, place: Operand, *, writes: bool) -> None:
        words = _words(instr, _SURFACE, _CACHING)
        _, geometry, kind = _required(words, "kind", "geometry", "type")
        self.outside = words.get("outside", "trap")
        self.scalar = TYPES[kind]
        self.count = int(words.get("vector", "v1")[1])
        self.target = _Target(binder, instr, place, _GEOMETRIES[geometry])
        self.access = Access(instr, "global", self.scalar.bytes, self.count, options, reads=not writes, writes=writes)

    def places(self, c: Cohort) -> list[tuple[Array, Array]]:
        """Addresses and lanes of the accesses. Lanes outside of the surface are left out, moved inside or reported."""
        size = self.access.nbytes
        coordinates = [spread(read(c), c.n).view(np.int32).astype(np.int64) for read in self.target.coordinates]
        found: list[tuple[Array, Array]] = []
        for address, image, here in self.target.images(c, self.target.lanes(c), Surface):
            ends = (image.row_bytes - size + 1, *image.extents[1:])
            first, *rest = places = [coordinate[here] for coordinate in coordinates]
            inside = np.all([(place >= 0) & (place < end) for place, end in zip(places, ends, strict=True)], axis=0)
            if self.outside == "clamp":
                first, *rest = [np.clip(place, 0, end - 1) for place, end in zip(places, ends, strict=True)]
                inside[:] = True
                first = first // size * size
            elif self.outside == "trap" and not bool(inside.all()):
                self.target.report(c, here[~inside], f"outside of a surface of {image.extents}")
            at = np.broadcast_to(address + image.row(rest) + first, here.shape)
            if bool(inside.any()):
                found.append((at[inside], here[inside]))
        return found


def _load(binder: Binder, options: Options, instr: Instr) -> Step:
    surface = _SurfaceAccess(binder, options, instr, instr.operands[1], writes=False)
    writes = [binder.destination(element, surface.scalar) for element in binder.elements(instr.operands[0])]
    if len(writes) != surface.count:
        raise Refused(f"{len(writes)} results")
    dtype = np.dtype(f"u{surface.scalar.bytes}")

    def step(c: Cohort) -> None:
        results = np.zeros((surface.count, c.n), dtype)
        for addresses, lanes in surface.places(c):
            results[:, lanes] = load_bytes(c, surface.access, addresses, lanes).view(dtype).T
        flags = None if surface.target.guard is None else surface.target.guard(c)
        for write, result in zip(writes, results, strict=True):
            write(c, result, flags)

    return step


def _store(binder: Binder, options: Options, instr: Instr) -> Step:
    surface = _SurfaceAccess(binder, options, instr, instr.operands[0], writes=True)
    reads = [binder.source(element, surface.scalar) for element in binder.elements(instr.operands[1])]
    if len(reads) != surface.count:
        raise Refused(f"{len(reads)} sources")

    def step(c: Cohort) -> None:
        values = np.stack([spread(read(c), c.n) for read in reads], axis=1)
        for addresses, lanes in surface.places(c):
            data = np.ascontiguousarray(values[lanes]).view(np.uint8).reshape(lanes.size, -1)
            store_bytes(c, surface.access, addresses, lanes, data)

    return step
