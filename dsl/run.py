"""Runs a host program on a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import types as t
from .backend import Argument, Backend, Dim3
from .errors import DslError
from .host_nodes import (
    Allocate,
    Assign,
    Body,
    CopyDevice,
    CopyIn,
    CopyOut,
    Expression,
    For,
    Free,
    If,
    Jump,
    Launch,
    Memset,
    Node,
    Read,
    Region,
    While,
    Write,
)
from .host_program import HostParam, HostProgram
from .host_values import callable_namespace, is_array, is_floating, is_integer, scalar
from .kernel import Kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..ptx import Kernel as PtxKernel
    from ..ptx import Param

__all__ = ["Loaded"]


@dataclass(slots=True)
class DeviceBuffer:
    """A buffer of a run. ``memory`` belongs to the backend; it is None after the buffer is freed."""

    memory: Any
    type: t.Type
    count: int
    name: str

    def __array__(self, *_: object, **__: object) -> Any:
        raise DslError(f"{self.name} is a device buffer")


@dataclass(frozen=True, slots=True)
class _LoadedKernel:
    handle: Any
    params: tuple[t.Type | Param, ...]


class Loaded:
    """A host program whose kernels are loaded on a backend. `run` may be called many times."""

    def __init__(self, program: HostProgram, backend: Backend, ptx: Callable[[Kernel[...]], str]) -> None:
        from ..ptx import parse

        self.program = program
        self.backend = backend
        self._kernels: dict[Kernel[...], _LoadedKernel] = {}
        #: By the text of a module: the loaded module, and its entries.
        modules: dict[str, tuple[Any, list[PtxKernel]]] = {}
        for kernel in program.kernels.values():
            if kernel not in self._kernels:
                text = ptx(kernel)
                if text not in modules:
                    modules[text] = backend.load(text), parse(text, f"{kernel.name}.ptx").entries
                self._kernels[kernel] = _loaded(kernel, *modules[text])

    def run(self, arguments: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Run the program once. ``arguments`` maps the parameters' names to arrays and scalars. Arrays that the program
        may write are copied first, and returned. Raises `DslError` at the statement that fails."""
        return _Execution(self, arguments).result()

    def kernel(self, kernel: Kernel[...]) -> _LoadedKernel:
        """The loaded kernel."""
        return self._kernels[kernel]


def _loaded(kernel: Kernel[...], module: Any, entries: list[PtxKernel]) -> _LoadedKernel:
    entry = kernel.entry_among(entries)
    name, in_ptx = entry.name, entry.params or []
    params = kernel.params
    if params is None:
        return _LoadedKernel(module.kernel(name), tuple(in_ptx))
    if [t.size_of(param.type) for param in params] != [param.bytes for param in in_ptx]:
        shown = ", ".join(str(param.type) for param in params)
        raise DslError(f"{kernel.name}({shown}) does not fit its PTX: ({', '.join(p.text for p in in_ptx)})")
    return _LoadedKernel(module.kernel(name), tuple(param.type for param in params))


class _Leave(Exception):
    """A jump out of a body: ``word`` is ``break``, ``continue`` or ``return``."""

    def __init__(self, word: str) -> None:
        self.word = word


class _Execution:
    def __init__(self, loaded: Loaded, arguments: Mapping[str, Any]) -> None:
        import numpy as np

        self.np = np
        self.loaded = loaded
        self.backend = loaded.backend
        self.program = loaded.program
        self.globals: dict[str, Any] = {"__builtins__": {}, **callable_namespace(self.program.namespace)}
        self.variables: dict[str, Any] = {}
        self.buffers: list[DeviceBuffer] = []
        params = {param.name: param for param in self.program.params}
        if wrong := sorted(set(params) ^ set(arguments)):
            raise DslError(f"{self.program.name} takes {', '.join(params)}; missing or unknown: {', '.join(wrong)}")
        outputs = set(self.program.outputs)
        for name, param in params.items():
            value = self._argument(param, arguments[name])
            self.variables[name] = value.copy() if name in outputs else value

    def _argument(self, param: HostParam, value: Any) -> Any:
        if isinstance(param.type, t.Scalar):
            return scalar(value, param.type, f"parameter {param.name}", None).item()
        expected = t.dtype_of_type(param.type.element)
        if not is_array(value) or value.dtype != expected:
            actual = value.dtype if is_array(value) else type(value).__name__
            raise DslError(f"parameter {param.name} must be an array of {expected}, not {actual}")
        if not value.flags.c_contiguous:
            raise DslError(f"parameter {param.name} must be C-contiguous")
        return value

    def result(self) -> dict[str, NDArray[Any]]:
        try:
            self._body(self.program.body)
            self.backend.synchronize()
        except _Leave:
            self.backend.synchronize()
        finally:
            for buffer in self.buffers:
                self._free(buffer)
        return {name: self.variables[name] for name in self.program.outputs}

    # --- control -----------------------------------------------------------------------------------------------

    def _body(self, body: Body) -> None:
        for item in body:
            match item:
                case Node():
                    self._node(item)
                case If():
                    self._body(item.body if self._value(item.branch.test, item.branch) else item.orelse)
                case While():
                    self._while(item)
                case For():
                    self._for(item)
                case Jump():
                    raise _Leave(item.word)

    def _while(self, item: While) -> None:
        while self._value(item.branch.test, item.branch):
            if not self._iteration(item.body):
                return
        self._body(item.orelse)

    def _for(self, item: For) -> None:
        bounds = [self._value(bound, item.init) for bound in (item.init.start, item.init.stop, item.init.step)]
        for number in self._checked(lambda: range(*bounds), item.init):
            self.variables[item.next.target] = number
            if not self._iteration(item.body):
                return
        self._body(item.orelse)

    def _iteration(self, body: Body) -> bool:
        """Run the body of a loop once. True if the loop continues."""
        try:
            self._body(body)
        except _Leave as jump:
            if jump.word == "return":
                raise
            return jump.word == "continue"
        return True

    # --- nodes -------------------------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        match node:
            case Launch():
                self._launch(node)
            case Assign():
                self._assign(node)
            case Allocate():
                count = self._integer(node.count, node)
                if count < 0:
                    raise DslError(f"allocation of {count} elements", node.place)
                # A launch may take an empty buffer, but backends do not allocate 0 bytes.
                memory = self.backend.allocate(max(1, count * t.size_of(node.type)))
                buffer = DeviceBuffer(memory, node.type, count, node.target)
                self.buffers.append(buffer)
                self.variables[node.target] = buffer
            case Free():
                self._free(self._buffer(node.buffer, node))
            case CopyIn():
                self._copy_in(node)
            case CopyOut():
                self._copy_out(node)
            case CopyDevice():
                self._copy_device(node)
            case Memset():
                byte = self._integer(node.byte, node)
                if not 0 <= byte < 256:
                    raise DslError(f"{byte} is not between 0 and 255", node.place)
                self.backend.fill(self._buffer(node.target.buffer, node).memory, byte)
            case Read():
                buffer = self._buffer(node.buffer, node)
                at = self._element(buffer, node.index, node)
                dtype = t.dtype_of_type(buffer.type)
                self.variables[node.target] = self.backend.read(buffer.memory, dtype, 1, at * dtype.itemsize)[0].item()
            case Write():
                self._write(node)
            case _:
                raise DslError(f"{node} cannot be run", node.place)

    def _assign(self, node: Assign) -> None:
        values = [self._value(value, node) for value in node.values]
        if len(node.targets) > 1 and len(values) == 1:
            values = list(values[0])
            if len(values) != len(node.targets):
                raise DslError(f"{len(values)} values for {len(node.targets)} targets", node.place)
        for target, value in zip(node.targets, values, strict=False):
            if target.is_name:
                self.variables[target.text] = value
            else:
                scope = {**self.variables, "_value": value}
                self._checked(lambda target=target, scope=scope: exec(f"{target} = _value", self.globals, scope), node)

    def _write(self, node: Write) -> None:
        buffer = self._buffer(node.buffer, node)
        at = self._element(buffer, node.index, node)
        if not isinstance(buffer.type, t.Scalar):
            raise DslError(
                f"write() sets scalars, but the elements of {node.buffer} are {buffer.type}: use copy()", node.place
            )
        value = scalar(self._value(node.value, node), buffer.type, "the value", node.place)
        self.backend.write(buffer.memory, self.np.array([value]), offset=at * buffer.type.bytes)

    def _copy_in(self, node: CopyIn) -> None:
        buffer, start, count = self._region(node.target, node)
        array = self._host_side(node.source, buffer, count, node)
        if count:
            self.backend.write(buffer.memory, array.reshape(-1), offset=start * t.size_of(buffer.type))

    def _copy_out(self, node: CopyOut) -> None:
        buffer, start, count = self._region(node.source, node)
        array = self._host_side(node.target, buffer, count, node)
        if count:
            dtype = t.dtype_of_type(buffer.type)
            array[...] = self.backend.read(buffer.memory, dtype, count, start * dtype.itemsize).reshape(array.shape)

    def _host_side(self, text: Expression, buffer: DeviceBuffer, count: int, node: Node) -> NDArray[Any]:
        array = self._value(text, node)
        expected = t.dtype_of_type(buffer.type)
        if not is_array(array) or array.dtype != expected or not array.flags.c_contiguous:
            raise DslError(f"{text} is not a contiguous array of {expected}", node.place)
        if array.size != count:
            raise DslError(f"{text} has {array.size} elements, but the device side has {count}", node.place)
        return array

    def _copy_device(self, node: CopyDevice) -> None:
        target, to, count = self._region(node.target, node)
        source, since, available = self._region(node.source, node)
        if target.type != source.type or count != available:
            raise DslError(
                f"{node.source} has {available} {source.type}, but {node.target} has {count} {target.type}", node.place
            )
        size = t.size_of(target.type)
        if count == 0:
            return
        # An isinstance test with a protocol would not find methods that a backend forwards by __getattr__ (Python
        # 3.12).
        if copy := getattr(self.backend, "copy", None):
            copy(target.memory, source.memory, count * size, to * size, since * size)
            return
        data = self.backend.read(source.memory, t.dtype_of_type(source.type), count, since * size)
        self.backend.write(target.memory, data, offset=to * size)

    def _region(self, region: Region, node: Node) -> tuple[DeviceBuffer, int, int]:
        """The buffer, its first element, and the number of elements."""
        buffer = self._buffer(region.buffer, node)
        start = 0 if region.start is None else self._integer(region.start, node)
        stop = buffer.count if region.stop is None else self._integer(region.stop, node)
        if not 0 <= start <= stop <= buffer.count:
            raise DslError(f"{region} is [{start}:{stop}], but {region.buffer} has {buffer.count} elements", node.place)
        return buffer, start, stop - start

    def _element(self, buffer: DeviceBuffer, index: Expression, node: Node) -> int:
        at = self._integer(index, node)
        if not 0 <= at < buffer.count:
            raise DslError(f"{buffer.name} has {buffer.count} elements, but no element {at}", node.place)
        return at

    def _launch(self, node: Launch) -> None:
        kernel = self.loaded.kernel(node.kernel)
        grid, block = self._dim3(node.grid, "grid", node), self._dim3(node.block, "block", node)
        shared = 0 if node.shared is None else self._integer(node.shared, node)
        if len(node.args) != len(kernel.params):
            message = f"{node.kernel.name} takes {len(kernel.params)} arguments, not {len(node.args)}"
            raise DslError(message, node.place)
        args = [self._kernel_argument(*pair, node) for pair in zip(node.args, kernel.params, strict=True)]
        self.backend.launch(self._handle(kernel, node), grid, block, shared, args)

    def _handle(self, kernel: _LoadedKernel, node: Launch) -> Any:
        """The kernel as an argument of `Backend.launch`."""
        if not node.cooperative:
            return kernel.handle
        cooperative = getattr(self.backend, "cooperative", None)
        if cooperative is None:
            raise DslError(f"{self.backend.name} does not support cooperative launches", node.place)
        return cooperative(kernel.handle)

    def _dim3(self, text: Expression, what: str, node: Node) -> Dim3:
        value = self._value(text, node)
        parts: list[Any] = list(value) if hasattr(value, "__iter__") else [value]
        if not 1 <= len(parts) <= 3 or not all(is_integer(p) and p > 0 for p in parts):
            raise DslError(f"the {what} is {value!r}, but must be one to three positive integers", node.place)
        x, y, z = (*(int(part) for part in parts), 1, 1)[:3]
        return x, y, z

    def _kernel_argument(self, text: Expression, param: t.Type | Param, node: Node) -> Argument:
        value = self._value(text, node)
        if isinstance(value, DeviceBuffer):
            if value.memory is None:
                raise DslError(f"{text} was freed", node.place)
            size = (
                t.size_of(param) if isinstance(param, t.Scalar | t.Pointer | t.Struct) else getattr(param, "bytes", 0)
            )
            expected = param.target if isinstance(param, t.Pointer) else value.type
            if size != 8 or isinstance(param, t.Scalar | t.Struct) or expected != value.type:
                raise DslError(f"{text} is a buffer of {value.type}, but {param} is expected", node.place)
            return value.memory
        if isinstance(param, t.Scalar):
            return scalar(value, param, str(text), node.place)
        if isinstance(param, t.Struct):
            return self.np.asarray(value, t.dtype_of_type(param)).tobytes()
        if isinstance(param, t.Pointer | t.Array | t.Void):
            raise DslError(f"{text} is not a buffer, but {param} is expected", node.place)
        return self._by_ptx(value, param, text, node)

    def _by_ptx(self, value: Any, param: Param, text: Expression, node: Node) -> Argument:
        """An argument of a kernel whose parameters are known from its PTX only. It is converted by width; NumPy scalars
        of that width are passed unchanged."""
        if isinstance(value, bytes) or (hasattr(value, "dtype") and value.dtype.names):
            data: bytes = value if isinstance(value, bytes) else value.tobytes()
            if len(data) != param.bytes:
                raise DslError(f"{text} has {len(data)} bytes, but {param.text} has {param.bytes}", node.place)
            return data
        if param.dims:
            raise DslError(f"{param.text} is a struct: pass a record of its {param.bytes} bytes", node.place)
        floating = is_floating(value)
        name = param.type.name
        kind = f"f{8 * param.bytes}" if floating or name.startswith("f") else f"u{8 * param.bytes}"
        if hasattr(value, "dtype") and value.dtype.itemsize == param.bytes:
            return value
        if not floating and kind[0] == "u" and value < 0:
            kind = f"i{8 * param.bytes}"
        return scalar(value, t.SCALARS[kind], str(text), node.place)

    # --- values ------------------------------------------------------------------------------------------------

    def _value(self, text: Expression, node: Node) -> Any:
        return self._checked(lambda: eval(text.code, self.globals, self.variables), node)

    def _checked(self, action: Callable[[], Any], node: Node) -> Any:
        try:
            return action()
        except DslError as why:
            raise why if why.place else DslError(why.message, node.place) from why
        except Exception as why:
            raise DslError(f"{type(why).__name__}: {why}", node.place) from why

    def _integer(self, text: Expression, node: Node) -> int:
        value = self._value(text, node)
        if is_integer(value):
            return int(value)
        raise DslError(f"{text} is {value!r}, but must be an integer", node.place)

    def _buffer(self, name: str, node: Node) -> DeviceBuffer:
        buffer = self.variables.get(name)
        if not isinstance(buffer, DeviceBuffer):
            raise DslError(f"{name} is not a buffer here: it was not allocated on this path", node.place)
        if buffer.memory is None:
            raise DslError(f"{name} was freed", node.place)
        return buffer

    def _free(self, buffer: DeviceBuffer) -> None:
        if buffer.memory is not None:
            self.backend.free(buffer.memory)
            buffer.memory = None
