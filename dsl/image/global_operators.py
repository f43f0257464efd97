"""Global operators: all pixels of an image become one value, or a histogram.

A `Reduction` has an associative operator and its identity. It may have a function that converts each pixel to a value,
and a function that computes the result from the last value. `Reduction.kernel` fills the templates of
`reduction_kernels.py` for one type of pixels. The order in which values are combined is part of the definition. It
depends only on the number of pixels, so that sums of floating-point numbers are the same in every run and on every GPU.

Source: B. Qiao's thesis, §5.5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, cast

from ...arch import H200_MULTIPROCESSORS
from .. import types as t
from ..errors import DslError
from ..functions import DeviceFunction, GeneratedFunction, Signature, signature_of
from ..intrinsics import reduce_max_sync, reduce_min_sync, vmaxs2, vmaxu2, vmins2, vminu2
from ..kernel import PythonKernel, device
from ..language import f32, i64, type_from, uint4
from ..unit import Arithmetic
from . import reduction_kernels as kernels
from .borders import Boundary
from .operator_body import Centre, OperatorBody, OperatorParam
from .operators import Access, Image, IterationSpace, Node, Operator, caller
from .sizes import is_integer, is_number, is_value_of, largest
from .thread_words import check_function
from .windows import WindowExtent, pixel_type

#: Words of the functions below, which `_typed` replaces.
REDUCE_TYPE: TypeAlias = f32
REDUCE_RESULT: TypeAlias = f32

__all__ = [
    "GlobalNode",
    "GlobalOperator",
    "Histogram",
    "Reduction",
    "Words",
    "maximum",
    "mean",
    "minimum",
    "reduction",
    "total",
]

#: Threads of a block.
BLOCK = 256
#: Words that a thread loads before it combines them.
UNROLL = 4
#: The most blocks for each lane where one warp combines their values; more are combined by a whole block.
FEW = 8
#: The blocks that a multiprocessor holds at the same time.
MOST_RESIDENT = 8
#: The most blocks of a launch: those that an H200 holds. The number does not depend on the machine, because
#: the order in which values are combined depends on it.
MOST_BLOCKS = H200_MULTIPROCESSORS * MOST_RESIDENT
#: The first architecture that finds the extremum of a warp by one instruction.
WARP_EXTREMA = 80
#: Bytes of the widest load.
WORD = 16
#: Bytes of shared memory that a histogram may take, and the most copies of it in a block.
HISTOGRAM_BYTES, MOST_COPIES = 32768, 8


class GlobalOperator(Operator[Any]):
    """An operator whose result depends on all pixels of an image. ``function`` is its main device function."""

    def __init__(self, function: DeviceFunction, name: str) -> None:
        super().__init__("global", function.source(), function.scope({}))
        self.name = name or function.name.strip("_")

    @property
    def body(self) -> OperatorBody:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise DslError(f"{self.name} is a global operator, which has no value for a single pixel")

    def kernel(
        self,
        pixel: t.Scalar | t.Struct,
        name: str,
        *,
        vectors: bool = True,
        arithmetic: Arithmetic = "rounded",
        sm: int = 0,
    ) -> PythonKernel[...]:
        """The kernel for images of ``pixel``, called ``name``. Without ``vectors``, pixels are loaded one by one.
        ``arithmetic`` is that of floats, as in `Options`. ``sm`` is the architecture that it is compiled for, such as
        90, or 0 for any. Raises `DslError`."""
        raise NotImplementedError

    @property
    def functions(self) -> Sequence[DeviceFunction]:
        """The functions of the user."""
        raise NotImplementedError

    def _node(self, image: object, pixel: t.Type, width: int) -> GlobalNode:
        place = caller()
        if not isinstance(image, Image):
            raise DslError(f"{self.name} reads an image, not a {type(image).__name__}", place)
        given = cast("Image[Any]", image)
        try:
            made = pixel_type(pixel)
            self.kernel(given.pixel, self.name)
            for function in self.functions:
                check_function(function)
        except DslError as why:
            raise DslError(why.message, why.place or place) from None
        param = OperatorParam("pixels", given.pixel, False)
        access = Access(param, given, Boundary.UNDEFINED, (Centre(), Centre()), WindowExtent())
        return GlobalNode(self, (access,), IterationSpace(width, 1), place, made)


class GlobalNode(Node[Any]):
    """The result of a global operator: an image of one pixel, or of one row."""

    operator: Reduction | Histogram  # pyright: ignore[reportIncompatibleVariableOverride]


class Reduction(GlobalOperator):
    """A global operator whose result is one value.

    ``combine`` is a device function ``(value, value) -> value``. It must be associative. If it is not commutative, set
    ``commutative`` to False: pixels are then combined row by row, from left to right. ``identity`` is a number, or a
    device function ``() -> value`` for values that are structs; combined with it, a value stays as it is. ``lift`` is a
    device function ``(pixel) -> value``; without it, a pixel is converted to a value. ``finish`` is a device function
    ``(value, pixels: i64) -> result``. ``extremum`` names `minimum` and `maximum` of integers, which have shorter code.
    """

    def __init__(
        self,
        combine: Any,
        identity: Any,
        lift: Any = None,
        finish: Any = None,
        commutative: bool = True,
        name: str = "",
        extremum: str = "",
    ) -> None:
        self.extremum = extremum
        self.combine = _device(combine, "combine")
        self.identity: float | DeviceFunction = identity
        self.lift = None if lift is None else _device(lift, "lift")
        self.finish = None if finish is None else _device(finish, "finish")
        self.commutative = commutative
        super().__init__(self.combine, name)

    def __call__(self, image: Any) -> Image[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The result for an image: an image of one pixel. A point operator reads it at every pixel."""
        return self._node(image, self.result(), 1)

    @property
    def functions(self) -> Sequence[DeviceFunction]:
        """Those that are given of ``combine``, ``identity``, ``lift`` and ``finish``."""
        given = self.combine, self.identity, self.lift, self.finish
        return [each for each in given if isinstance(each, DeviceFunction)]

    @cached_property
    def value(self) -> t.Scalar | t.Struct:
        """The type of the values that are combined. Raises `DslError` if ``combine`` has other types."""
        signature = _signature(self.combine)
        value = signature.result
        if not isinstance(value, t.Scalar | t.Struct) or [p.type for p in signature.params] != [value, value]:
            raise _wrong(self.combine, "combine needs two parameters and a result of the same type")
        if isinstance(value, t.Struct) and t.size_of(value) % 4:
            raise _wrong(self.combine, f"a value's size must be a multiple of 4 bytes; {value} has {t.size_of(value)}")
        return value

    def result(self) -> t.Type:
        """The type of the result."""
        if self.finish is None:
            return self.value
        signature = _signature(self.finish)
        if [p.type for p in signature.params] != [self.value, t.I64] or isinstance(signature.result, t.Void):
            raise _wrong(self.finish, f"finish needs the parameters ({self.value}, i64) and a result")
        return signature.result

    def kernel(
        self,
        pixel: t.Scalar | t.Struct,
        name: str,
        *,
        vectors: bool = True,
        arithmetic: Arithmetic = "rounded",
        sm: int = 0,
    ) -> PythonKernel[...]:
        """The kernel, whose parameters are those of `reduction_kernels.reduce_in_strides`."""
        constants = {
            **Words.of(pixel).constants(vectors),
            "REDUCE_VALUE": self.value,
            "REDUCE_RESULT": self.result(),
            "REDUCE_combine": self.combine,
            "REDUCE_lift": self._lift(pixel),
            "REDUCE_finish": self.finish or kernels.value_itself,
            **self._identity(),
            **self._add(pixel),
            **_move(self.value),
            **self._warp(sm),
        }
        template = kernels.reduce_in_strides if self.commutative else kernels.reduce_in_order
        bounds = (BLOCK, MOST_RESIDENT) if t.size_of(self.value) <= 8 else (BLOCK,)
        return _kernel(template, bounds, name, constants, arithmetic)

    def _add(self, pixel: t.Scalar | t.Struct) -> dict[str, object]:
        """The functions that combine the words of a thread."""
        if not self.extremum or pixel != self.value or t.size_of(pixel) > 2:
            words = kernels.begin_words, kernels.add_word, kernels.end_words
            return dict(zip(("REDUCE_begin", "REDUCE_add", "REDUCE_end"), words, strict=True))
        assert isinstance(pixel, t.Scalar)
        pairs = _PAIRS[self.extremum, pixel.limits[0] < 0]
        return {
            "REDUCE_begin": kernels.begin_pairs,
            "REDUCE_add": kernels.add_pairs,
            "REDUCE_end": kernels.end_pairs,
            "REDUCE_pairs": pairs,
            "REDUCE_BITS": 8 * pixel.bytes,
        }

    def _warp(self, sm: int) -> dict[str, object]:
        """The function that combines the values of a warp."""
        if not self.extremum or sm < WARP_EXTREMA or t.size_of(self.value) > 4:
            return {"REDUCE_warp": kernels.warp_in_steps, "REDUCE_AT_ONCE": False}
        assert isinstance(self.value, t.Scalar)
        return {
            "REDUCE_warp": kernels.warp_at_once,
            "REDUCE_AT_ONCE": True,
            "REDUCE_extremum": reduce_min_sync if self.extremum == "minimum" else reduce_max_sync,
            "REDUCE_WIDE": self.value if self.value.bytes == 4 else t.I32,
        }

    def _lift(self, pixel: t.Scalar | t.Struct) -> object:
        if self.lift is not None:
            signature = _signature(self.lift)
            if [p.type for p in signature.params] != [pixel] or signature.result != self.value:
                raise _wrong(self.lift, f"lift needs the parameter {pixel} and the result {self.value}")
            return self.lift
        if pixel == self.value:
            return kernels.pixel_itself
        if isinstance(pixel, t.Struct) or isinstance(self.value, t.Struct):
            raise _wrong(self.combine, f"pixels of {pixel} do not convert to {self.value}: give a function lift")
        return kernels.pixel_converted

    def _identity(self) -> dict[str, object]:
        if not isinstance(self.identity, DeviceFunction):
            if isinstance(self.value, t.Struct):
                raise _wrong(self.combine, f"the identity of {self.value} must be a device function without parameters")
            if not is_number(self.identity) or not is_value_of(self.identity, self.value):
                raise _wrong(self.combine, f"the identity {self.identity!r} is not a value of {self.value}")
            return {"REDUCE_identity": kernels.identity_number, "REDUCE_IDENTITY": self.identity}
        signature = _signature(self.identity)
        if signature.params or signature.result != self.value:
            raise _wrong(self.identity, f"identity needs no parameter and the result {self.value}")
        return {"REDUCE_identity": self.identity}


class Histogram(GlobalOperator):
    """How many pixels fall into each of ``bins`` bins. ``bin`` is a device function ``(pixel) -> i32``.

    A pixel whose bin is outside of 0 … bins - 1 is not counted.
    """

    def __init__(self, bins: int, bin: Any, name: str = "") -> None:
        self.bins = bins
        self.bin = _device(bin, "bin")
        super().__init__(self.bin, name or "histogram")
        if not (is_integer(bins) and 1 <= bins <= HISTOGRAM_BYTES // 4):
            raise DslError(f"a histogram has 1 to {HISTOGRAM_BYTES // 4} bins, not {bins!r}", caller())

    @property
    def functions(self) -> Sequence[DeviceFunction]:
        """``bin``."""
        return [self.bin]

    def __call__(self, image: Any) -> Image[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The histogram of an image: an image of u32 with one row of ``bins`` pixels."""
        return self._node(image, t.U32, self.bins)

    def kernel(
        self,
        pixel: t.Scalar | t.Struct,
        name: str,
        *,
        vectors: bool = True,
        arithmetic: Arithmetic = "rounded",
        sm: int = 0,
    ) -> PythonKernel[...]:
        """The kernel, whose parameters are those of `reduction_kernels.histogram_of_pixels`."""
        signature = _signature(self.bin)
        if [p.type for p in signature.params] != [pixel] or signature.result != t.I32:
            raise _wrong(self.bin, f"bin needs the parameter {pixel} and the result i32")
        constants = {
            **Words.of(pixel).constants(vectors),
            "REDUCE_bin": self.bin,
            "REDUCE_BINS": self.bins,
            "REDUCE_COPIES": min(MOST_COPIES, HISTOGRAM_BYTES // (4 * self.bins)),
        }
        return _kernel(kernels.histogram_of_pixels, (BLOCK,), name, constants, arithmetic)


@dataclass(frozen=True)
class Words:
    """How pixels are grouped: ``per`` pixels are a ``word``, which is one load where vector loads are used. Without
    them, pixels are combined in the same order."""

    pixel: t.Scalar | t.Struct
    word: t.Scalar | t.Struct
    per: int

    @staticmethod
    def of(pixel: t.Scalar | t.Struct) -> Words:
        """Words of 16 bytes, or of one pixel if 16 bytes are not a whole number of pixels."""
        size = t.size_of(pixel)
        return Words(pixel, pixel, 1) if WORD % size else Words(pixel, cast("t.Struct", type_from(uint4)), WORD // size)

    def constants(self, vectors: bool) -> dict[str, object]:
        """The constants of the templates."""
        return {
            "REDUCE_PIXEL": self.pixel,
            "REDUCE_WORD": self.word,
            "REDUCE_PER": self.per,
            "REDUCE_ALIGN": 1 if self.per == 1 else t.align_of(self.word),
            "REDUCE_VECTORS": vectors,
            "REDUCE_UNROLL": UNROLL,
            "REDUCE_BLOCK": BLOCK,
            "REDUCE_WARPS": BLOCK // 32,
            "REDUCE_STEPS": (BLOCK // 32).bit_length() - 1,
            "REDUCE_SHARE": -(-MOST_BLOCKS // BLOCK),
            "REDUCE_FEW": FEW,
        }

    def blocks(self, pixels: int) -> int:
        """The blocks of a launch over ``pixels`` pixels, at most `MOST_BLOCKS`, all with nearly as many tiles. A `Size`
        if ``pixels`` is one."""
        tile = self.per * BLOCK * UNROLL
        tiles = largest(1, (pixels + (tile - 1)) // tile)
        rounds = (tiles + (MOST_BLOCKS - 1)) // MOST_BLOCKS
        return (tiles + (rounds - 1)) // rounds


def reduction(
    *, identity: Any, lift: Any = None, finish: Any = None, commutative: bool = True
) -> Callable[[Callable[..., Any]], Reduction]:
    """Make a global operator of a Python function with two parameters, as in ``@reduction(identity=0)``. The arguments
    are those of `Reduction`."""

    def made(function: Callable[..., Any]) -> Reduction:
        combine = function if isinstance(function, DeviceFunction) else DeviceFunction(function, True)
        return Reduction(combine, identity, lift, finish, commutative)

    return made


# --- predefined operators ----------------------------------------------------------------------------------------


@device(inline=True)
def _smaller(left: REDUCE_TYPE, right: REDUCE_TYPE) -> REDUCE_TYPE:
    return min(left, right)


@device(inline=True)
def _larger(left: REDUCE_TYPE, right: REDUCE_TYPE) -> REDUCE_TYPE:
    return max(left, right)


@device(inline=True)
def _sum(left: REDUCE_TYPE, right: REDUCE_TYPE) -> REDUCE_TYPE:
    return left + right


@device(inline=True)
def _mean(value: REDUCE_TYPE, pixels: i64) -> REDUCE_RESULT:
    return REDUCE_RESULT(value) / REDUCE_RESULT(pixels)


@device(inline=True)
def _converted(value: REDUCE_TYPE, pixels: i64) -> REDUCE_RESULT:
    return REDUCE_RESULT(value)


def minimum(type: object) -> Reduction:
    """The smallest pixel. A NaN is not the smallest, unless every pixel is NaN, or there is no pixel."""
    number = _number(type)
    return _extremum("minimum", _smaller, number, math.nan if number.is_float else number.limits[1])


def maximum(type: object) -> Reduction:
    """The largest pixel, as `minimum`."""
    number = _number(type)
    return _extremum("maximum", _larger, number, math.nan if number.is_float else number.limits[0])


def total(type: object) -> Reduction:
    """The sum of the pixels, computed in ``type``: each pixel is converted to it first. Integers wrap."""
    return Reduction(_typed(_sum, REDUCE_TYPE=_number(type)), 0, name="total")


def mean(type: object, result: object) -> Reduction:
    """The mean of the pixels: their sum in ``type``, divided in the floating-point type ``result``. Raises
    `DslError` if ``type`` is no number or ``result`` no floating-point type."""
    number, quotient = _number(type), _number(result)
    if not quotient.is_float:
        raise DslError(f"the result of a mean is a floating-point number, not {quotient}")
    finish = _typed(_mean, REDUCE_TYPE=number, REDUCE_RESULT=quotient)
    return Reduction(_typed(_sum, REDUCE_TYPE=number), 0, finish=finish, name="mean")


#: By name of the operator and whether numbers have a sign: what compares two pairs of 16 bits.
_PAIRS: dict[tuple[str, bool], object] = {
    ("minimum", False): vminu2,
    ("maximum", False): vmaxu2,
    ("minimum", True): vmins2,
    ("maximum", True): vmaxs2,
}


# --- helpers -----------------------------------------------------------------------------------------------------


def _extremum(name: str, combine: object, number: t.Scalar, identity: float) -> Reduction:
    """The kernel language compares no f16, so f16 pixels are compared as f32, and the result is converted back. The
    identity of floating-point numbers is NaN: the smaller and the larger one of NaN and a number is that number."""
    if number is t.F16:
        finish = _typed(_converted, REDUCE_TYPE=t.F32, REDUCE_RESULT=number)
        return Reduction(_typed(combine, REDUCE_TYPE=t.F32), identity, finish=finish, name=name)
    return Reduction(_typed(combine, REDUCE_TYPE=number), identity, name=name, extremum="" if number.is_float else name)


def _device(function: object, what: str) -> DeviceFunction:
    if not isinstance(function, DeviceFunction):
        raise DslError(f"{what} must be a @device function", caller())
    return function


def _kernel(
    template: PythonKernel[...],
    bounds: tuple[int, ...],
    name: str,
    constants: dict[str, object],
    arithmetic: Arithmetic,
) -> PythonKernel[...]:
    """The template with these constants, as a kernel called ``name``."""
    made = PythonKernel(template.function, bounds, name, constants)
    made.arithmetic = arithmetic
    return made


def _typed(device_function: object, **types: t.Scalar) -> DeviceFunction:
    """The function with these types in place of the words in capitals."""
    function = _device(device_function, "a template")
    return GeneratedFunction(function.source(), types, True, function.function)


def _number(type: object) -> t.Scalar:
    number = type_from(type)
    if not isinstance(number, t.Scalar) or number is t.BOOL:
        raise DslError(f"{number} is not a type of numbers")
    return number


def _signature(function: DeviceFunction) -> Signature:
    return signature_of(function.source(), function.scope({}), function.name)


def _wrong(function: DeviceFunction, message: str) -> DslError:
    source = function.source()
    return source.error(message, source.tree)


def _move(value: t.Scalar | t.Struct) -> dict[str, object]:
    """The function that reads the value of another lane, with its constants."""
    if isinstance(value, t.Struct):
        return {"REDUCE_move": kernels.move_words, "REDUCE_PARTS": t.size_of(value) // 4}
    if value.bytes >= 4:
        return {"REDUCE_move": kernels.move_number}
    return {"REDUCE_move": kernels.move_narrow, "REDUCE_WIDE": t.F32 if value.is_float else t.I32}
