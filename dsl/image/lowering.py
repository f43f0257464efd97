"""From a graph to kernels: the parts of kernels, and `naive`, which makes one kernel for each operator.

A kernel consists of pixel functions ``(x, y, *params) -> pixel`` and a store. `load_function` makes the one that reads
an image with the checks of a boundary; `region` makes the one that computes an operator, from one pixel function for
each image that the operator reads. An operator does not know where its pixels come from. Other lowerings use the same
parts: they check less in some regions, or put the region of another operator in place of a load function.
Guarantees: buffers of a launch do not overlap, so pointers are ``restrict``. Sizes are parameters of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias

from ...arch import ALWAYS_FITS
from .. import types as t
from ..errors import DslError
from ..functions import GeneratedFunction, Param
from ..intrinsics import uint_as_float
from ..kernel import GeneratedKernel, PythonKernel, device_from_text, kernel_from_text
from ..language import addr, blockDim, blockIdx, const_ptr, pointer_cast, ptr, restrict, threadIdx
from ..unit import RESERVED, Arithmetic, TablesIn
from .borders import MAP_NAMES, Boundary, Checks, reach_of_one_step
from .global_operators import GlobalNode
from .graph import Graph
from .lowered import KernelArgument, Launch, Lowered, Options
from .operator_body import PixelFunction, RowOf
from .operators import Access, Image, Node, ScalarInput
from .reduction_lowering import global_launch
from .sizes import ceil_div, text_of

__all__ = [
    "Arguments",
    "MOST_ROWS",
    "LowerNode",
    "Store",
    "arguments_for",
    "checks_of",
    "constant_of",
    "grid_of",
    "kernel_for",
    "load_function",
    "lower_nodes",
    "mapped",
    "max_threads",
    "naive",
    "naive_node",
    "named_launches",
    "pixel_function",
    "region",
    "store_kernel",
    "words_of",
]

#: The words that generated text may mention.
_WORDS: dict[str, object] = {
    **{name: type for name, type in t.SCALARS.items() if name != "bool"},
    "blockDim": blockDim,
    "blockIdx": blockIdx,
    "threadIdx": threadIdx,
    "const_ptr": const_ptr,
    "ptr": ptr,
    "restrict": restrict,
}

#: The threads of a multiprocessor, and the blocks with which reads of constant memory are fast.
_THREADS, _BLOCKS = 2048, 8

#: The largest grid along y.
MOST_ROWS = 65535


class Arguments:
    """The parameters of a kernel that is being made, with their values. Names are unique. ``shared_sizes``: widths and
    heights that are equal for all sizes of inputs are one parameter, so nvcc finds equal indices in several images."""

    def __init__(self, *reserved: str, shared_sizes: bool = False) -> None:
        self._by_key: dict[object, KernelArgument] = {}
        self._names = {*reserved, *_WORDS}
        self._shared_sizes = shared_sizes

    def pointer(self, image: Image[Any], name: str) -> Param:
        """The pixels of an image that the kernel reads. ``name`` is its name, unless the image has one already."""
        return self._param((image, "pixels"), name, t.Pointer(image.pixel, const=True, restrict=True), image)

    def width(self, image: Image[Any], name: str) -> Param:
        """The width of an image that the kernel reads as ``name``."""
        return self._size((image, "width"), f"{name}_width", image.width)

    def height(self, image: Image[Any], name: str) -> Param:
        """The height of an image that the kernel reads as ``name``."""
        return self._size((image, "height"), f"{name}_height", image.height)

    def _size(self, key: object, name: str, value: int) -> Param:
        return self._param(("size", text_of(value)) if self._shared_sizes else key, name, t.I32, value)

    def output(self, image: Image[Any], name: str = "out") -> Param:
        """The pixels of an image that the kernel writes."""
        return self._param((image, "output"), name, t.Pointer(image.pixel, restrict=True), image)

    def scalar(self, scalar: ScalarInput) -> Param:
        """A number that the pipeline takes."""
        return self._param(scalar, scalar.name, scalar.type, scalar)

    def integer(self, name: str, value: int) -> Param:
        """A further integer of the launch."""
        return self._param(("integer", name), name, t.I32, value)

    def _param(self, key: object, name: str, type: t.Type, value: Image[Any] | int | ScalarInput) -> Param:
        found = self._by_key.get(key)
        if found is None:
            while name in self._names or name in RESERVED:
                name += "_"
            self._names.add(name)
            self._by_key[key] = found = KernelArgument(Param(name, type), value)
        return found.param

    def reserved(self, name: str) -> str:
        """A name like ``name`` that no parameter has or will get, for a function or a variable of the kernel."""
        while name in self._names or name in RESERVED:
            name += "_"
        self._names.add(name)
        return name

    def of(self, params: Sequence[Param]) -> tuple[KernelArgument, ...]:
        """The arguments for some parameters."""
        by_name = {each.param.name: each for each in self._by_key.values()}
        return tuple(by_name[param.name] for param in params)


# --- parts of kernels ---------------------------------------------------------------------------------------------


def checks_of(access: Access, node: Node[Any], options: Options) -> tuple[Checks, Checks]:
    """What has to be checked along x and y so that every read of an access is inside of its image."""
    return checks_by_loops(access, node, options.loops)


@lru_cache(maxsize=4096)
def checks_by_loops(access: Access, node: Node[Any], loops: bool) -> tuple[Checks, Checks]:
    """`checks_of`, which depends on ``loops`` of the options only."""
    extent, space = access.extent, node.space
    return (
        _axis(access, 0, space.x0, space.width, (extent.left, extent.right), loops),
        _axis(access, 1, space.y0, space.height, (extent.up, extent.down), loops),
    )


def _axis(access: Access, axis: int, start: int, count: int, reach: tuple[int, int], loops: bool) -> Checks:
    if access.boundary.kind == "undefined":
        return Checks(False, False)
    # Plain integers: a sum of sizes makes a text, which nobody reads here.
    centre, size = access.centres[axis], int(access.image.size[axis])
    before = reach[0] - centre(int(start))
    after = centre(int(start) + int(count) - 1) + reach[1] - (size - 1)
    step = reach_of_one_step(access.boundary, size)
    far = before > step or after > step or (loops and access.boundary.kind == "repeat")
    return Checks(before > 0, after > 0, far)


def load_function(
    access: Access, checks: tuple[Checks, Checks], arguments: Arguments, name: str, *, selected: bool = False
) -> PixelFunction:
    """The pixel function that reads an image, with these checks along x and y. A read outside of a constant boundary is
    left out; if ``selected``, the nearest pixel is read instead, and then replaced by the constant."""
    pixels = arguments.pointer(access.image, access.param.name)
    width = arguments.width(access.image, pixels.name)
    element: Callable[[str, str], str] = lambda x, y: f"{pixels.name}[{y} * {width.name} + {x}]"  # noqa: E731
    whole = _pair_of(access.image.pixel, name, arguments)
    if whole is None:
        return _checked(access, checks, arguments, name, element, (pixels, width), pixels.name, selected)
    address = arguments.reserved("addr")
    pair: Callable[[str, str], str] = lambda x, y: f"{whole.name}({address}({element(x, y)}))"  # noqa: E731
    made = _checked(access, checks, arguments, name, pair, (pixels, width), pixels.name, selected)
    assert isinstance(made.function, GeneratedFunction)
    made.function.names.update({whole.name: whole, address: addr})
    return made


def _pair_of(pixel: t.Scalar | t.Struct, name: str, arguments: Arguments) -> GeneratedFunction | None:
    """The function that loads a pixel of two words from its address at once; None for pixels of other types. Where the
    fields of such pixels are used in several places, nvcc loads each field alone."""
    fields = [type for _, type in pixel.fields] if isinstance(pixel, t.Struct) else []
    words: dict[t.Type, str] = {t.F32: "uint_as_float(u32({}))", t.I32: "i32(u32({}))", t.U32: "u32({})"}
    if len(fields) != 2 or fields[0] not in words or fields[1] not in words or t.align_of(pixel) != 8:
        return None
    low, high = (words[type].format(bits) for type, bits in zip(fields, ("bits", "bits >> 32"), strict=True))
    called = arguments.reserved(f"{name}_pair")
    text = f"""def {called}(place: const_ptr[{pixel}]) -> {pixel}:
    bits = pointer_cast(u64, place)[0]
    return {pixel}({low}, {high})
"""
    names = {**words_of(pixel, ()), "pointer_cast": pointer_cast, "uint_as_float": uint_as_float}
    return device_from_text(text, names, inline=True, file=f"<{called}>")


def mapped(
    access: Access, checks: tuple[Checks, Checks], source: PixelFunction, arguments: Arguments, name: str
) -> PixelFunction:
    """The pixel function that reads an image by ``source``, with these checks along x and y. ``source`` is only called
    for pixels of the image, if the checks are all that the access needs."""
    rest = "".join(f", {param.name}" for param in source.params)
    element: Callable[[str, str], str] = lambda x, y: f"{source.function.name}({x}, {y}{rest})"  # noqa: E731
    if not any(checks):
        return source
    made = _checked(access, checks, arguments, name, element, source.params, access.image.name)
    assert isinstance(made.function, GeneratedFunction)
    made.function.names[source.function.name] = source.function
    return made


def _checked(
    access: Access,
    checks: tuple[Checks, Checks],
    arguments: Arguments,
    name: str,
    element: Callable[[str, str], str],
    taken: Sequence[Param],
    called: str,
    selected: bool = False,
) -> PixelFunction:
    """A pixel function that maps an index by the boundary of an access and then evaluates ``element``. ``taken`` are
    the parameters that ``element`` mentions. The image is called ``called`` in names of parameters. ``selected``: see
    `load_function`."""
    image, boundary = access.image, access.boundary
    params = list(taken)
    names: dict[str, object] = {}
    indices: list[str] = []
    #: The tests of an index that is outside, each with the opposite.
    tests: list[tuple[str, str]] = []
    for axis, check in zip("xy", checks, strict=True):
        is_tested = boundary.kind == "constant"
        index_map = check.map(Boundary.CLAMP if is_tested and selected else boundary)
        size = (arguments.width if axis == "x" else arguments.height)(image, called) if check else None
        if size is not None and size not in params:
            params.append(size)
        indices.append(axis)
        if index_map is not None and size is not None:
            names[index_map.name] = index_map
            indices[-1] = f"{index_map.name}({axis}, {size.name})"
        if is_tested and size is not None:
            tests += [(f"{axis} < 0", f"{axis} >= 0")] if check.low else []
            tests += [(f"{axis} >= {size.name}", f"{axis} < {size.name}")] if check.high else []
    value = element(indices[0], indices[1])
    body = [f"return {value}"]
    if tests:
        outside, objects = constant_of(boundary, image.pixel, "outside")
        names |= objects
        # Reads behind tests share neither addresses nor pixels of several rows: ptxas loads the address for each one.
        first, test, then = value, " or ".join(test for test, _ in tests), outside
        if not selected:
            first, test, then = outside, " and ".join(opposite for _, opposite in tests), value
        body = [f"value: {image.pixel} = {first}", f"if {test}:", f"    value = {then}", "return value"]
    return pixel_function(name, params, image.pixel, body, names)


def constant_of(boundary: Boundary, pixel: t.Scalar | t.Struct, name: str) -> tuple[str, dict[str, object]]:
    """The pixel outside of an image with a constant boundary, as text that mentions names like ``name``, and the
    objects of these names."""
    values = boundary.value if isinstance(boundary.value, tuple) else (boundary.value,)
    if isinstance(pixel, t.Scalar):
        (value,) = values
        return name, {name: pixel.dtype.type(value)}
    lanes = values if len(values) > 1 else values * len(pixel.fields)
    names: dict[str, object] = {}
    for number, ((_, type), lane) in enumerate(zip(pixel.fields, lanes, strict=True)):
        assert isinstance(type, t.Scalar)
        names[f"{name}_{number}"] = type.dtype.type(lane)
    return f"{pixel}({', '.join(names)})", names


def region(
    node: Node[Any],
    loads: Mapping[str, PixelFunction],
    arguments: Arguments,
    name: str,
    *,
    unrolled: bool = False,
    rows: RowOf | None = None,
) -> PixelFunction:
    """The pixel function of an operator. ``loads`` maps each parameter that is an image to the function that reads it.
    Functions of one kernel have different names. ``unrolled``: nvcc has to unroll loops of few steps. ``rows``: gives
    parameters that take the place of ``y`` (`RowOf`)."""
    body = node.operator.body
    windows = {param.name: loads[param.name] for param in body.windows}
    centres = {access.param.name: access.centres for access in node.accesses}
    function, params = body.bind(f"{name}_pixel", windows, centres, unrolled=unrolled, rows=rows)
    taken = list(params)
    names: dict[str, object] = {function.name: function}
    values: list[str] = []
    for argument in node.arguments:
        if isinstance(argument, Access):
            if argument.param.is_window:
                continue
            load = loads[argument.param.name]
            names[load.function.name] = load.function
            taken += [param for param in load.params if param not in taken]
            row = rows(argument.centres[1]) if rows is not None else None
            taken += [row] if row is not None and row not in taken else []
            below = row.name if row is not None else "y"
            x, y = (centre.text(at) for centre, at in zip(argument.centres, ("x", below), strict=True))
            values.append(f"{load.function.name}({', '.join([x, y, *(param.name for param in load.params)])})")
        elif isinstance(argument.value, ScalarInput):
            param = arguments.scalar(argument.value)
            taken += [param] if param not in taken else []
            values.append(param.name)
        else:
            assert isinstance(argument.param.pixel, t.Scalar)
            constant = arguments.reserved(f"{argument.param.name}_value")
            names[constant] = argument.param.pixel.dtype.type(argument.value)
            values.append(constant)
    call = ", ".join(["x", "y", *(param.name for param in params), *values])
    return pixel_function(name, taken, node.pixel, [f"return {function.name}({call})"], names)


def pixel_function(
    name: str, params: Sequence[Param], pixel: t.Scalar | t.Struct, body: Sequence[str], names: Mapping[str, object]
) -> PixelFunction:
    """A device function of the pixel at ``(x, y)``: its ``body`` may use ``params`` and ``names``."""
    signature = ", ".join(["x: i32", "y: i32", *(f"{param.name}: {param.type}" for param in params)])
    lines = [f"def {name}({signature}) -> {pixel}:", *(f"    {line}" for line in body)]
    made: GeneratedFunction = device_from_text(
        "\n".join(lines) + "\n", {**words_of(pixel, params), **names}, inline=True, file=f"<{name}>"
    )
    return PixelFunction(made, tuple(params))


def words_of(pixel: t.Scalar | t.Struct, params: Sequence[Param]) -> dict[str, object]:
    """The words of generated text, with the types of vectors that it mentions."""
    vectors = [pixel, *(param.type.target for param in params if isinstance(param.type, t.Pointer))]
    structs = [vector for vector in vectors if isinstance(vector, t.Struct)]
    return {**_WORDS, **{each.name: type(each.name, (), {"__ptxmotion_struct__": each}) for each in structs}}


class Store(Protocol):
    """Makes the statements that compute the pixels of a thread by a pixel function and store them. ``cut``: some of its
    rows may be below the image."""

    def __call__(self, part: PixelFunction, *, cut: bool = True) -> list[str]: ...


def store_kernel(
    name: str,
    node: Node[Any],
    arguments: Arguments,
    regions: Sequence[PixelFunction],
    body: Callable[[Store], Sequence[str]],
    options: Options,
    more: Sequence[Param] = (),
    rows: int = 1,
) -> tuple[GeneratedKernel, tuple[KernelArgument, ...]]:
    """A kernel in which each thread computes ``rows`` pixels of a node, one below the other, with its arguments.

    ``regions`` are the pixel functions that it may call. ``body`` makes the lines for a thread whose first pixel is in
    the image; it gets a function that makes the statements that compute the pixels by a region and store them.
    ``more`` are parameters that these lines read.
    """
    out = arguments.output(node)
    width, height = arguments.integer("width", node.width), arguments.integer("height", node.height)
    params = [out, width, height]
    x, below = "x", ""
    space = node.space
    if space.x0 or space.y0:
        x0, y0 = arguments.integer("x0", space.x0), arguments.integer("y0", space.y0)
        params += [x0, y0]
        x, below = f"x + {x0.name}", f" + {y0.name}"
    for each in (*(param for part in regions for param in part.params), *more):
        params += [each] if each not in params else []

    def value(part: PixelFunction, y: str) -> str:
        return f"{part.function.name}({', '.join([x, y + below, *(param.name for param in part.params)])})"

    def store(part: PixelFunction, *, cut: bool = True) -> list[str]:
        if rows == 1:
            return [f"{out.name}[y * {width.name} + x] = {value(part, 'y')}"]
        # All pixels are computed before the first one is stored, so that nvcc loads what they share only once.
        values = [f"value_{row} = {value(part, f'y + {row}')}" for row in range(rows)]
        lines = [*values, *(f"{out.name}[(y + {row}) * {width.name} + x] = value_{row}" for row in range(rows))]
        if not cut:
            return lines
        # One pixel after the other takes several times as long, so only threads at the end do this.
        line = f"{out.name}[(y + row) * {width.name} + x] = {value(part, 'y + row')}"
        loop = [f"for row in range({height.name} - y):", f"    {line}"]
        whole = f"if y + {rows - 1} < {height.name}:"
        return [whole, *(f"    {each}" for each in lines), "else:", *(f"    {each}" for each in loop)]

    first = "i32(blockIdx.y * blockDim.y + threadIdx.y)"
    lines = [
        f"def {name}({', '.join(f'{param.name}: {param.type}' for param in params)}) -> None:",
        "    x = i32(blockIdx.x * blockDim.x + threadIdx.x)",
        f"    y = {first}{f' * {rows}' if rows > 1 else ''}",
        f"    if x < {width.name} and y < {height.name}:",
        *(f"        {line}" for line in body(store)),
    ]
    names = {**words_of(node.pixel, params), **{part.function.name: part.function for part in regions}}
    kernel = kernel_for("\n".join(lines) + "\n", names, name, options.block, options.arithmetic)
    return kernel, arguments.of(params)


def kernel_for(
    text: str, names: Mapping[str, object], name: str, block: tuple[int, int], arithmetic: Arithmetic
) -> GeneratedKernel:
    """The kernel of the text of a function, as `kernel_from_text`, for launches with blocks of these threads."""
    threads, tables = max_threads(block), _tables_in(block)
    return kernel_from_text(text, names, max_threads=threads, file=f"<{name}>", arithmetic=arithmetic, tables=tables)


def max_threads(block: tuple[int, int]) -> int:
    """The threads for which ptxas must limit the registers of a kernel, or 0 if every kernel can be launched with these
    blocks. The driver refuses a launch whose block needs more registers than a multiprocessor has."""
    threads = block[0] * block[1]
    return threads if threads > ALWAYS_FITS else 0


def _tables_in(block: tuple[int, int]) -> TablesIn:
    """The memory of tables of a kernel with blocks of these threads. Reads of constant memory are slow if a
    multiprocessor holds more than eight blocks."""
    return "constant" if block[0] * block[1] >= _THREADS // _BLOCKS else "global"


def grid_of(node: Node[Any], block: tuple[int, int]) -> tuple[int, int]:
    """The blocks of a kernel whose blocks compute ``block`` pixels. Raises `DslError` if they are too many."""
    grid = ceil_div(node.width, block[0]), ceil_div(node.height, block[1])
    if grid[1] > MOST_ROWS:
        raise DslError(
            f"{node.name} needs {int(grid[1])} rows of blocks, and a grid has at most {MOST_ROWS}: "
            "choose a higher block",
            node.place,
        )
    return grid


# --- naive --------------------------------------------------------------------------------------------------------

#: Makes the launch of one node: the node, the name of its kernel, the options.
LowerNode: TypeAlias = "Callable[[Node[Any], str, Options], Launch]"


def naive_node(node: Node[Any], name: str, options: Options) -> Launch:
    """A kernel that checks every index in every thread."""
    arguments = arguments_for(node)
    loads = {
        access.param.name: load_function(
            access, checks_of(access, node, options), arguments, f"load_{access.param.name}"
        )
        for access in node.accesses
    }
    whole = region(node, loads, arguments, f"{node.operator.name}_at")
    kernel, bound = store_kernel(name, node, arguments, [whole], lambda store: store(whole), options)
    return Launch(kernel, grid_of(node, options.block), options.block, bound, (node,))


def arguments_for(node: Node[Any], *functions: str) -> Arguments:
    """The arguments of a kernel of a node, without any yet. No parameter gets the name of one of these functions."""
    words = ["x", "y", "value", "outside", node.operator.name, f"{node.operator.name}_at", *functions]
    return Arguments(*MAP_NAMES, *words, *(f"load_{access.param.name}" for access in node.accesses))


def lower_nodes(graph: Graph, lowering: str, options: Options, lower: LowerNode) -> Lowered:
    """One launch for each node. Nodes whose kernels are equal share one."""

    def made(node: Node[Any], name: str) -> Launch:
        if isinstance(node, GlobalNode):
            return global_launch(node, name, lowering, options)
        return lower(node, name, options)

    launches = named_launches([(node.operator.name, partial(made, node)) for node in graph.nodes])
    again: Callable[[Graph], Lowered] = lambda other: lower_nodes(other, lowering, options, lower)  # noqa: E731
    return Lowered(graph, lowering, options, launches, again)


def named_launches(makers: Sequence[tuple[str, Callable[[str], Launch]]]) -> tuple[Launch, ...]:
    """Launches from functions that take the name of their kernel, each with the first part of this name. Names are
    unique, and launches whose kernels are equal share one."""
    launches: list[Launch] = []
    #: By code without the name of the kernel: the kernel.
    kernels: dict[str, PythonKernel[...]] = {}
    names: set[str] = set()
    for word, make in makers:
        name, number = f"{word}_kernel", 2
        while name in names:
            name, number = f"{word}_kernel_{number}", number + 1
        launch = make(name)
        code = launch.kernel.cuda.replace(f" {name}(", " (")
        if code not in kernels:
            kernels[code] = launch.kernel
            names.add(name)
        launches.append(replace(launch, kernel=kernels[code]))
    return tuple(launches)


def naive(graph: Graph, options: Options) -> Lowered:
    """One kernel for each operator, which checks every index in every thread."""
    return lower_nodes(graph, "naive", options, naive_node)
