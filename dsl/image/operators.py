"""Operators and images: `point` and `local` make an operator of a Python function, and a call of it makes an image.

An image is symbolic: an input of a pipeline, or the result of an operator (`Node`). It has a size and a type of pixels,
and no pixels. `graph.Graph` collects the nodes that an output depends on.
Refuses, with `DslError` at the user's line: what `operator_body` refuses, and calls with arguments that do not fit.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeGuard, TypeVar

from .. import types as t
from ..errors import DslError, FunctionSource, Place, source_from_text, source_of
from ..scope import Scope
from .borders import Boundary
from .operator_body import Centre, OperatorBody, OperatorParam, read_operator
from .sizes import is_integer, is_number, is_value_of
from .thread_words import check_operator
from .windows import Domain, Mask, Offsets, WindowExtent, offsets_of
from .windows import pixel_type as _pixel_type  # pyright: ignore[reportUnusedImport]

T = TypeVar("T")

__all__ = [
    "Access",
    "Accessor",
    "Argument",
    "Image",
    "ImageType",
    "InputImage",
    "IterationSpace",
    "Node",
    "Number",
    "Operator",
    "ScalarInput",
    "Scratch",
    "caller",
    "local",
    "operator_from_text",
    "point",
]

#: The largest number of pixels along an axis, so that no index map of the kernels overflows.
LARGEST = 1 << 28


@dataclass(frozen=True, slots=True)
class ImageType:
    """The type of a parameter of a pipeline: an image."""

    pixel: t.Scalar | t.Struct


class _NoPixel:
    """What a pixel can do in an operator, and an image or a number of a pipeline cannot: it raises `DslError`."""

    name: str

    def _refuse(self, *_: object) -> NoReturn:
        raise DslError(f"a pipeline cannot compute with {self.name}: only operators compute", caller())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = _refuse
    __xor__ = __rxor__ = __invert__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __getitem__ = _refuse


class Image(_NoPixel, Generic[T]):
    """An image of a pipeline while its graph is built. ``pixel`` is the type of its pixels."""

    def __init__(self, name: str, pixel: t.Scalar | t.Struct, width: int, height: int) -> None:
        self.name = name
        self.pixel = pixel
        self.width = width
        self.height = height
        if not (1 <= width <= LARGEST and 1 <= height <= LARGEST and width * height < 1 << 31):
            raise DslError(f"{name} cannot have {int(width)} x {int(height)} pixels", caller())

    if not TYPE_CHECKING:

        def __class_getitem__(cls, pixel: object) -> object:
            is_general = isinstance(pixel, TypeVar) or pixel is Any
            return super().__class_getitem__(pixel) if is_general else ImageType(_pixel_type(pixel))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {int(self.width)} x {int(self.height)} {self.pixel}>"


class InputImage(Image[T]):
    """An image that a pipeline takes."""


@dataclass(frozen=True)
class ScalarInput(_NoPixel):
    """A number that a pipeline takes."""

    name: str
    type: t.Scalar


@dataclass(frozen=True, slots=True)
class IterationSpace:
    """The pixels that an operator computes: ``width`` x ``height`` pixels. The first one has the coordinates ``(x0,
    y0)``, so that a space is also a part of an image."""

    width: int
    height: int
    x0: int = 0
    y0: int = 0

    def __post_init__(self) -> None:
        for value in (self.width, self.height, self.x0, self.y0):
            if not is_integer(value):
                raise DslError(f"the numbers of an IterationSpace are integers, not {value!r}", caller())

    def __str__(self) -> str:
        at = f" from ({self.x0}, {self.y0})" if (self.x0, self.y0) != (0, 0) else ""
        return f"{int(self.width)} x {int(self.height)}{at}"


class Accessor(Generic[T]):
    """How an operator reads an image: ``boundary`` outside of it, and the centre of a window at ``x * scale + offset``
    for the pixel ``x`` of the result, rounded down, along each axis."""

    def __init__(
        self,
        image: Image[T],
        boundary: Boundary = Boundary.UNDEFINED,
        *,
        scale: int | Fraction | tuple[int | Fraction, int | Fraction] = (1, 1),
        offset: int | tuple[int, int] = (0, 0),
    ) -> None:
        place = caller()
        if not _is_image(image):
            raise DslError(f"an Accessor reads an image, not a {type(image).__name__}", place)
        if not isinstance(boundary, Boundary):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DslError("the boundary of an Accessor is one of Boundary", place)
        self.image = image
        self.boundary = boundary
        scales = scale if isinstance(scale, tuple) else (scale, scale)
        offsets = offset if isinstance(offset, tuple) else (offset, offset)
        for each in offsets:
            if not is_integer(each):
                raise DslError(f"an offset is an integer, not {each!r}", place)
        try:
            fractions = [Fraction(each) for each in scales]
        except (TypeError, ValueError, OverflowError):
            raise DslError(f"a scale is an integer or a Fraction, not {scale!r}", place) from None
        if len(fractions) != 2 or len(offsets) != 2 or any(each <= 0 for each in fractions):
            raise DslError("a scale is positive, and scale and offset have one number or two", place)
        if any(each.numerator > 64 or each.denominator > 64 for each in fractions):
            raise DslError("the numerator and the denominator of a scale are at most 64", place)
        x, y = (Centre(each.numerator, each.denominator, int(by)) for each, by in zip(fractions, offsets, strict=True))
        self.centres = x, y
        _check_constant(boundary, image.pixel, place)


def _is_image(value: object) -> TypeGuard[Image[Any]]:
    return isinstance(value, Image)


def _is_accessor(value: object) -> TypeGuard[Accessor[Any]]:
    return isinstance(value, Accessor)


def _check_constant(boundary: Boundary, pixel: t.Scalar | t.Struct, place: Place | None) -> None:
    if boundary.kind != "constant":
        return
    lanes = len(pixel.fields) if isinstance(pixel, t.Struct) else 1
    values = boundary.value if isinstance(boundary.value, tuple) else (boundary.value,) * lanes
    scalar = pixel.fields[0][1] if isinstance(pixel, t.Struct) else pixel
    assert isinstance(scalar, t.Scalar)
    if len(values) != lanes:
        raise DslError(f"the constant of this boundary has {len(values)} components, and {pixel} has {lanes}", place)
    for value in values:
        if not is_number(value):
            raise DslError(f"the constant of a boundary is a number, or one for each component, not {value!r}", place)
        if not is_value_of(value, scalar):
            raise DslError(f"{value} is not a value of {scalar}", place)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """An argument of a node: an image with the way in which it is read. ``extent`` is how far the operator reads. Each
    is an argument of one node only, and is compared by identity."""

    param: OperatorParam
    image: Image[Any]
    boundary: Boundary
    centres: tuple[Centre, Centre]
    extent: WindowExtent


@dataclass(frozen=True, slots=True)
class Number:
    """An argument of a node: a number, or a number that the pipeline takes."""

    param: OperatorParam
    value: int | float | ScalarInput


Argument: TypeAlias = "Access | Number"


class Node(Image[T]):
    """The result of an operator for some arguments. ``place`` is the line of the call."""

    def __init__(
        self,
        operator: Operator[T],
        arguments: tuple[Argument, ...],
        space: IterationSpace,
        place: Place | None,
        pixel: t.Scalar | t.Struct | None = None,
    ) -> None:
        super().__init__(operator.name, pixel or operator.body.result, space.width, space.height)
        self.operator = operator
        self.arguments = arguments
        #: The arguments that are images.
        self.accesses = tuple(each for each in arguments if isinstance(each, Access))
        self.space = space
        self.place = place


class Scratch(Image[Any]):
    """Memory that a launch uses and no operator reads: ``width`` elements of any type. All its bytes are 0 before a
    launch if ``is_zero``."""

    def __init__(self, name: str, element: t.Scalar | t.Struct, count: int, *, is_zero: bool = False) -> None:
        super().__init__(name, element, count, 1)
        self.is_zero = is_zero


class Operator(Generic[T]):
    """An operator. ``kind`` is ``point``, ``local`` or ``global``. `body` is checked when it is first used."""

    def __init__(
        self,
        kind: str,
        source: FunctionSource,
        scope: Scope,
        windows: Sequence[Mask | Domain] = (),
        function: Callable[..., Any] | None = None,
        names: Mapping[str, object] | None = None,
    ) -> None:
        self.kind = kind
        self.name = source.tree.name
        self.source = source
        self.scope = scope
        self.windows = tuple(windows)
        self.function = function
        self.names = dict(names or {})
        self._has_checked_names = False
        self.__doc__ = function.__doc__ if function else None

    @cached_property
    def body(self) -> OperatorBody:
        """The checked source. Raises `DslError`."""
        made = read_operator(self.source, self.scope, self.windows, self.function, self.names)
        if self.kind == "point" and made.windows:
            message = "a point operator reads one pixel of each image: write f32 instead of Window[f32], or use @local"
            raise self.source.error(message, self.source.tree)
        if self.kind == "local" and not made.windows:
            raise self.source.error(
                "a local operator has a Window parameter; without one it is @point", self.source.tree
            )
        return made

    def _check_names(self) -> None:
        """Raise `DslError` if the operator depends on threads. Names are looked up now, and not by `body`: an operator
        may call functions that are defined below it."""
        if not self._has_checked_names:
            check_operator(self.source, self.scope)
            self._has_checked_names = True

    @cached_property
    def reads_coordinates(self) -> bool:
        """Whether the value depends on the coordinates of the pixel."""
        body = self.body
        return any(isinstance(each, ast.Name) and each.id in (body.x, body.y) for each in ast.walk(body.tree))

    def __call__(self, *arguments: Any, space: IterationSpace | None = None) -> Image[T]:
        """The image that the operator makes. Arguments are images, accessors and numbers. ``space`` are the pixels that
        are computed, by default as many as the first image has."""
        place = caller()
        params = self.body.params
        self._check_names()
        if space is not None and not isinstance(space, IterationSpace):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DslError(f"space= of {self.name} is an IterationSpace(width, height), not {space!r}", place)
        if len(arguments) != len(params):
            raise DslError(f"{self.name} takes {len(params)} arguments, not {len(arguments)}", place)
        for param, argument in zip(params, arguments, strict=True):
            if param.is_window and not _is_accessor(argument):
                hint = f": write Accessor({argument.name}, Boundary.CLAMP)" if _is_image(argument) else ""
                shown = f"argument {param.name} of {self.name} is a window, which needs an Accessor"
                raise DslError(shown + (hint or f", not a {type(argument).__name__}"), place)
        images = [each.image if _is_accessor(each) else each for each in arguments]
        first = next((each for each in images if _is_image(each)), None)
        if space is None:
            if first is None:
                for param, argument in zip(params, arguments, strict=True):
                    self._number(param, argument, f"argument {param.name} of {self.name}", place)
                raise DslError(f"{self.name} gets no image: give it space=IterationSpace(width, height)", place)
            space = IterationSpace(first.width, first.height)
        bound = tuple(
            self._argument(param, argument, space, place) for param, argument in zip(params, arguments, strict=True)
        )
        return Node(self, bound, space, place)

    def _argument(self, param: OperatorParam, value: Any, space: IterationSpace, place: Place | None) -> Argument:
        what = f"argument {param.name} of {self.name}"
        if _is_image(value):
            return self._access(param, Accessor(value), space, what, place)
        if _is_accessor(value):
            return self._access(param, value, space, what, place)
        return self._number(param, value, what, place)

    def _access(
        self, param: OperatorParam, accessor: Accessor[Any], space: IterationSpace, what: str, place: Place | None
    ) -> Access:
        image, centres = accessor.image, accessor.centres
        if image.pixel != param.pixel:
            raise DslError(f"{what} is an image of {image.pixel}, but {param.pixel} is expected", place)
        if any(centre.denominator > 1 for centre in centres) and min(space.x0, space.y0) < 0:
            raise DslError(f"{what} has a scale that is no integer, and {space} has negative coordinates", place)
        boundary = accessor.boundary
        if not param.is_window and isinstance(image, Node) and image.operator.kind == "global":
            boundary = Boundary.CLAMP  # the result of a global operator has the same value at every pixel
        if not param.is_window and boundary is Boundary.UNDEFINED and not _is_inside(image, centres, space):
            size = f"{int(image.width)} x {int(image.height)}"
            message = f"{what} has {size} pixels, but {space} are computed: write Accessor(image, boundary)"
            raise DslError(message, place)
        extent = self.body.extents.get(param.name, WindowExtent())
        made = Access(param, image, boundary, centres, extent)
        if not _is_representable(made, space):
            raise DslError(f"{what} would be read at coordinates beyond {LARGEST}", place)
        return made

    @staticmethod
    def _number(param: OperatorParam, value: Any, what: str, place: Place | None) -> Number:
        if isinstance(param.pixel, t.Struct):
            raise DslError(f"{what} is {param.pixel}, which only an image can be", place)
        if isinstance(value, ScalarInput):
            if value.type is not param.pixel:
                raise DslError(f"{what} is {value.type}, but {param.pixel} is expected", place)
            return Number(param, value)
        plain = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
        if isinstance(plain, bool) or not isinstance(plain, int | float):
            raise DslError(f"{what} is an image or a number, not a {type(value).__name__}", place)
        if not is_value_of(plain, param.pixel):
            raise DslError(f"{what} is {plain}, which is not a value of {param.pixel}", place)
        return Number(param, int(plain) if param.pixel.is_integer else float(plain))

    def __repr__(self) -> str:
        return f"<{self.kind} operator {self.name}>"


def _is_inside(image: Image[Any], centres: Sequence[Centre], space: IterationSpace) -> bool:
    """Whether the centre of every pixel of ``space`` is in the image."""
    starts, counts = (space.x0, space.y0), (space.width, space.height)
    return all(
        centre(start) >= 0 and centre(start + count - 1) < size
        for centre, start, count, size in zip(centres, starts, counts, image.size, strict=True)
    )


def _is_representable(access: Access, space: IterationSpace) -> bool:
    """Whether no coordinate that is computed for an access overflows."""
    starts, counts = (space.x0, space.y0), (space.width, space.height)
    reach = max(access.extent.size)
    ends = [
        (centre, at)
        for centre, start, count in zip(access.centres, starts, counts, strict=True)
        for at in (start, start + count - 1)
    ]
    return all(abs(at) * c.numerator < 1 << 30 and abs(c(at)) + reach <= LARGEST for c, at in ends)


def point(function: Callable[..., T]) -> Operator[T]:
    """Make a point operator: each pixel of the result is computed from the pixels of images at the same place."""
    source, scope = _source(function)
    made: Operator[T] = Operator("point", source, scope, (), function)
    _ = made.body
    return made


def local(*windows: Offsets) -> Callable[[Callable[..., T]], Operator[T]]:
    """Make a local operator: each pixel of the result is computed from pixels around the same place.

    ``windows`` says what it may read around a pixel: a `Mask`, a `Domain`, or a size ``(width, height)``; one for
    all parameters that are windows, or one for each. Raises `DslError` for another argument.
    """
    if not windows:
        raise DslError("@local needs a Mask, a Domain or the size of a window", caller())
    try:
        allowed = [offsets_of(window) for window in windows]
    except DslError as why:
        raise DslError(why.message, caller()) from None

    def made(function: Callable[..., T]) -> Operator[T]:
        source, scope = _source(function)
        operator: Operator[T] = Operator("local", source, scope, allowed, function)
        _ = operator.body
        return operator

    return made


def _source(function: Callable[..., Any]) -> tuple[FunctionSource, Scope]:
    return source_of(function), Scope(function)


def operator_from_text(
    text: str, names: Mapping[str, object], *windows: Offsets, file: str = "<operator>"
) -> Operator[Any]:
    """An operator from the text of its function, for programs that generate operators: local with ``windows``, point
    without. ``names`` holds everything that the text mentions, except Python's builtins. Raises `DslError`."""
    source = source_from_text(text, file)
    allowed = [offsets_of(window) for window in windows]
    made: Operator[Any] = Operator("local" if windows else "point", source, Scope(None, names), allowed, None, names)
    _ = made.body
    return made


_FOLDER = str(Path(__file__).parent)


def caller() -> Place | None:
    """The line outside of this package that is being run."""
    frame = inspect.currentframe()
    while frame is not None and (frame.f_code.co_filename.startswith(_FOLDER) or _is_of_dataclass(frame.f_code)):
        frame = frame.f_back
    if frame is None:
        return None
    file, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, number).rstrip("\n")
    return Place(file, number, len(text) - len(text.lstrip()) + 1, text)


def _is_of_dataclass(code: CodeType) -> bool:
    """Whether this is the ``__init__`` that `dataclass` has generated."""
    return (code.co_filename, code.co_name) == ("<string>", "__init__")
