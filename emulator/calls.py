"""Device functions: calls, returns, and the functions that the system provides.

Computes: at a call, the calling warp fragment waits at the segment after the call. A child fragment starts at the first
segment of the callee, one frame deeper, and ends at `ret`. `.param` arguments and results are copied between the frames
in local memory, `.reg` ones between the register files of the two depths. A register may be passed to a `.param`
parameter and a variable to a `.reg` one. The same holds for results.
Provided: `vprintf`, `malloc`, `free`, `__assertfail`. Refuses: calls of functions without a body.
Limits: a call depth above `MAX_DEPTH`, or more than `MAX_FRAME` bytes of local memory for a thread, end the launch with
a message.
Reference: PTX ISA 9.0, chapter 7, §9.7.12.5; CUDA C++ Programming Guide, "Formatted Output", "Assertion".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Directive, Instr
from ..ptx.ir import Kernel, Param, Variable
from ..ptx.operands import Args, Imm, Operand, Reg, Sink, Special, Sym
from ..ptx.prototypes import signature_of_prototype
from ..ptx.types import TYPES, ScalarType
from .layout import alignment
from .memory import spread
from .printf import format_output
from .registers import Binder, Getter, Refused, Registers, Setter
from .schedule import JOIN, RETURN

if TYPE_CHECKING:
    from .batch import Batch
    from .cohort import Cohort
    from .image import Code, Function, Image

__all__ = ["bind_call", "bind_return", "receive", "register_parameters"]

Array: TypeAlias = npt.NDArray[Any]
Finish: TypeAlias = "Callable[[Batch, Cohort], None]"

MAX_DEPTH = 512
MAX_FRAME = 1 << 19
BUILTINS = frozenset(["vprintf", "malloc", "free", "__assertfail"])


def register_parameters(registers: Registers, kernel: Kernel, params: list[Param] | None) -> list[list[int]]:
    """For each of ``params`` the keys of its registers; an empty list if it is in memory."""
    keys: list[list[int]] = []
    for param in params or ():
        if param.space != "reg":
            keys.append([])
            continue
        reg = registers.used_parameters(kernel).get(param.name)
        if reg is None:
            keys.append(registers.of_parameter(kernel, param))
        else:
            keys.append([registers.key(reg, index) for index in range(reg.lanes)])
    return keys


def slots_of(params: Sequence[Param]) -> list[tuple[int, int]]:
    """Offset and size of each parameter or result in the frame of the callee, as in `layout.local_frame`; (-1, 0) for a
    register."""
    slots: list[tuple[int, int]] = []
    end = 0
    for param in params:
        if param.space != "param":
            slots.append((-1, 0))
            continue
        align = max(alignment(param), 4)
        end = -(-end // align) * align
        slots.append((end, param.bytes))
        end += param.bytes
    return slots


class _Call:
    """The parts of a call instruction."""

    def __init__(self, image: Image, code: Code) -> None:
        self.image = image
        self.code = code
        end = code.segment.end
        assert end is not None
        self.instr: Instr = end
        results, target = end.operands[0], end.operands[1]
        arguments = end.operands[2] if len(end.operands) > 2 else Args(())
        assert isinstance(results, Args) and isinstance(arguments, Args)
        self.results: tuple[Operand, ...] = results.elements
        self.target: Operand = target
        self.arguments: tuple[Operand, ...] = arguments.elements
        self.binder: Binder = code.function.binder

    def slot(self, operand: Operand) -> tuple[Getter, int] | None:
        """The address of an argument in the frame of the caller, and its size; ``None`` for a register or literal."""
        if not isinstance(operand, Sym):
            return None
        declaration = operand.declaration
        if not isinstance(declaration, Variable | Param):
            raise Refused(f"argument '{operand.text}'")
        address = self.binder.symbol(operand)
        size = declaration.bytes or 0
        if isinstance(address, int):
            constant = np.array([address], np.int64)
            return (lambda c: constant), size
        return address, size

    def callee(self) -> Function | None:
        """The function that a direct call reaches; ``None`` for an indirect call."""
        if not isinstance(self.target, Sym):
            return None
        name = self.image.loaded.aliases.get(self.target.name, self.target.name)
        function = self.image.functions.get(name)
        if function is None:
            raise Refused(f"function '{name}' has no body")
        return function


def bind_call(image: Image, code: Code) -> Finish:
    """The function that executes a call for a cohort."""
    call = _Call(image, code)
    target = call.target
    if isinstance(target, Sym) and target.name in BUILTINS and target.name not in image.loaded.functions:
        return _builtin(call, target.name)
    callee = call.callee()
    slots = [call.slot(argument) for argument in call.arguments]
    types = _types_of_arguments(call, callee)
    reads: list[list[Getter]] = []
    for argument, slot, scalar in zip(call.arguments, slots, types, strict=True):
        is_value = slot is None and not isinstance(argument, Sink)
        parts = call.binder.elements(argument) if is_value else []
        reads.append([call.binder.source(part, scalar) for part in parts])
    following = code.segment.targets[0].index
    for slot, param in zip(slots, callee.kernel.params or () if callee is not None else (), strict=False):
        if slot is not None and param.space == "reg" and slot[1] not in (1, 2, 4, 8):
            raise Refused(f"{slot[1]} bytes for the register '{param.name}'")
    if callee is not None:
        return lambda batch, c: _enter(batch, c, call, callee, slots, reads, following, c.ids, None)
    pointer = call.binder.source(target, None)

    def indirect(batch: Batch, c: Cohort) -> None:
        addresses = np.broadcast_to(pointer(c), (c.n,)).astype(np.int64)
        distinct: list[int] = np.unique(addresses).tolist()
        unknown = [value for value in distinct if value not in image.by_address]
        if unknown:
            bad = np.flatnonzero(addresses == unknown[0])
            batch.report(
                "call", call.instr, c, bad, f"calls address {unknown[0]:#x}, which is not the address of a function"
            )
        if len(distinct) == 1:
            _enter(batch, c, call, image.by_address[distinct[0]], slots, reads, following, c.ids, None)
            return
        pool = batch.pool
        _wait_behind(batch, c, following)
        for value in distinct:
            lanes = np.flatnonzero(addresses == value)
            masks = c.row_masks(addresses == value)
            some = masks != 0
            function = image.by_address[value]
            _pass(batch, c, call, function, slots, reads, lanes)
            point = (c.depth + 1) * batch.segments + function.first
            pool.child(c.ids[some], masks[some], c.warps[some], point, RETURN)

    return indirect


def _types_of_arguments(call: _Call, callee: Function | None) -> list[ScalarType | None]:
    """The type of each argument: that of the parameter.

    For an indirect call it is that of the register, or for a literal, the type with the size that the prototype states.
    """
    if callee is not None:
        _check_arity(call, callee)
        params = callee.kernel.params or []
        return [None if param.dims else param.type for param in params]
    sizes = _prototype_sizes(call)
    types: list[ScalarType | None] = []
    for number, argument in enumerate(call.arguments):
        size = sizes[number] if number < len(sizes) else None
        if isinstance(argument, Reg | Special):
            types.append(argument.type)
        elif isinstance(argument, Imm):
            types.append(TYPES[f"b{8 * (size or 4)}"])
        else:
            types.append(None)
    return types


def _prototype_sizes(call: _Call) -> tuple[int | None, ...]:
    label = call.instr.operands[3] if len(call.instr.operands) > 3 else None
    for instr in (instr for block in call.binder.kernel.blocks for instr in block.instrs):
        if isinstance(instr, Directive) and instr.kind == "callprototype" and instr.label is label:
            signature = signature_of_prototype(instr.payload)
            return signature.params if signature is not None else ()
    return ()


def _check_arity(call: _Call, callee: Function) -> None:
    params, results = callee.kernel.params or [], callee.kernel.results or []
    if len(params) != len(call.arguments) or len(results) != len(call.results):
        raise Refused(f"'{callee.kernel.name}' takes {len(params)} arguments and returns {len(results)} results")


def _wait_behind(batch: Batch, c: Cohort, following: int) -> None:
    pool = batch.pool
    pool.joined = True
    pool.point[c.ids] = c.depth * batch.segments + following
    pool.state[c.ids] = JOIN


def _enter(
    batch: Batch,
    c: Cohort,
    call: _Call,
    function: Function,
    slots: list[tuple[Getter, int] | None],
    reads: list[list[Getter]],
    following: int,
    ids: Array,
    lanes: Array | None,
) -> None:
    if c.depth + 1 >= MAX_DEPTH:
        batch.report("call", call.instr, c, np.arange(1), f"call depth exceeds {MAX_DEPTH}")
    _pass(batch, c, call, function, slots, reads, lanes)
    _wait_behind(batch, c, following)
    batch.pool.child(ids, c.masks, c.warps, (c.depth + 1) * batch.segments + function.first, RETURN)


def _pass(
    batch: Batch,
    c: Cohort,
    call: _Call,
    function: Function,
    slots: list[tuple[Getter, int] | None],
    reads: list[list[Getter]],
    lanes: Array | None,
) -> None:
    """Make the frame of the callee and copy the arguments into it, for ``lanes`` of the cohort."""
    own_base = batch.frame_base(c)
    caller = call.code.function.frame.nbytes
    base = np.broadcast_to(own_base + np.int64(-(-caller // 16) * 16), (c.n,))
    threads = c.threads
    if lanes is not None:
        base, threads = base[lanes], threads[lanes]
    top = int(base.max()) + function.frame.nbytes
    if top > MAX_FRAME:
        batch.report("call", call.instr, c, np.arange(1), f"the stack exceeds {MAX_FRAME} bytes")
    batch.push_frames(c.depth + 1, threads, base, function.frame.nbytes)
    batch.clear_local(threads, base, function.frame.nbytes)
    kernel = function.kernel
    target_slots = slots_of([*(kernel.results or ()), *(kernel.params or ())])[len(kernel.results or ()) :]
    registers = function.binder.registers
    keys = register_parameters(registers, kernel, kernel.params)
    for shadow in (registers.shadows[key] for of_param in keys for key in of_param if key in registers.shadows):
        batch.write_file(c.depth + 1, shadow, threads, np.ones(threads.size, bool))
    for slot, read, (offset, size), target_keys in zip(slots, reads, target_slots, keys, strict=True):
        if slot is not None:
            source = np.broadcast_to(own_base * 0 + slot[0](c), (c.n,))
            source = source if lanes is None else source[lanes]
            if offset >= 0:
                batch.copy_local(threads, source, base + offset, min(slot[1], size))
            elif target_keys:
                batch.write_file(c.depth + 1, target_keys[0], threads, batch.get_local(threads, source, slot[1]))
        elif read and target_keys:
            for part, key in zip(read, target_keys, strict=True):
                values = spread(part(c), c.n)
                batch.write_file(c.depth + 1, key, threads, values if lanes is None else values[lanes])
        elif read and offset >= 0:
            values = spread(read[0](c), c.n)
            values = np.ascontiguousarray(values if lanes is None else values[lanes])
            batch.put_local(threads, base + offset, values, size)


def bind_return(image: Image, code: Code) -> Finish:
    """``ret``, or the end of the text. Threads of an entry exit; those of a function return to the caller."""
    kernel = code.segment.kernel
    if kernel.is_entry:
        return lambda batch, c: batch.pool.exit(c.ids)
    results = register_parameters(code.function.binder.registers, kernel, kernel.results)
    keys: list[int] = [key for of_result in results for key in of_result]

    def back(batch: Batch, c: Cohort) -> None:
        for key in keys:
            if key in c.env:
                batch.write_file(c.depth, key, c.threads, np.broadcast_to(c.env[key], (c.n,)))
        batch.pool.retire(c.ids)

    return back


def receive(image: Image, code: Code) -> Callable[[Cohort], None] | None:
    """The step after the call in ``code`` that takes the results; ``None`` if there are none."""
    call = _Call(image, code)
    if not call.results:
        return None
    target = call.target
    if isinstance(target, Sym) and target.name in BUILTINS and target.name not in image.loaded.functions:
        return None
    callee = call.callee()
    memory: list[tuple[tuple[Getter, int], int]] = []
    copies: list[tuple[int, Setter]] = []
    loads: list[tuple[int, int, Setter]] = []
    stores: list[tuple[tuple[Getter, int], int]] = []
    if callee is not None:
        source_slots = slots_of(callee.kernel.results or ())
        keys: list[list[int]] = register_parameters(callee.binder.registers, callee.kernel, callee.kernel.results)
    else:
        source_slots = slots_of([_as_param(operand) for operand in call.results])
        keys = [[] for _ in call.results]
    for operand, (offset, size), source in zip(call.results, source_slots, keys, strict=False):
        slot = call.slot(operand) if isinstance(operand, Sym) else None
        if isinstance(operand, Sink):
            continue
        if slot is not None and offset >= 0:
            memory.append((slot, offset))
        elif slot is not None and source:
            stores.append((slot, source[0]))
        elif source:
            for key, part in zip(source, call.binder.elements(operand), strict=True):
                copies.append((key, call.binder.destination(part, None)))
        elif size in (1, 2, 4, 8):
            loads.append((offset, size, call.binder.destination(operand, TYPES[f"b{8 * size}"])))
        else:
            raise Refused(f"a result of {size} bytes in '{operand.text}'")
    size = -(-code.function.frame.nbytes // 16) * 16

    def take(c: Cohort) -> None:
        batch = c.batch
        own_base = np.broadcast_to(batch.frame_base(c), (c.n,))
        for (address, nbytes), offset in memory:
            target_at = np.broadcast_to(address(c), (c.n,))
            batch.copy_local(c.threads, own_base + (size + offset), target_at, nbytes)
        for offset, nbytes, load in loads:
            at = own_base + (size + offset)
            if image.options.checks:
                _check_result(c, call.instr, at, nbytes)
            load(c, batch.get_local(c.threads, at, nbytes), None)
        for (address, nbytes), key in stores:
            values = np.ascontiguousarray(spread(batch.read_file(c.depth + 1, key, c.threads), c.n))
            batch.put_local(c.threads, np.broadcast_to(address(c), (c.n,)), values, nbytes)
        for key, write in copies:
            write(c, batch.read_file(c.depth + 1, key, c.threads), None)

    return take


def _check_result(c: Cohort, instr: Instr, at: Array, nbytes: int) -> None:
    bad = ~c.batch.is_written_local(c.threads, at, nbytes)
    if bool(bad.any()):
        message = f"takes a result of {nbytes} bytes that was never written"
        c.batch.report("uninitialised-memory", instr, c, np.flatnonzero(bad), message)


def _as_param(operand: Operand) -> Param:
    if isinstance(operand, Reg) and operand.lanes == 1:
        return Param(operand.text, "param", operand.type)
    declaration = operand.declaration if isinstance(operand, Sym) else None
    if not isinstance(declaration, Variable | Param):
        raise Refused(f"result '{operand.text}' of an indirect call")
    return Param(
        declaration.name, "param", declaration.type, declaration.align, declaration.dims, lanes=declaration.lanes
    )


# --- what the system provides ------------------------------------------------------------------------------------


def _builtin(call: _Call, name: str) -> Finish:
    slots = [call.slot(argument) for argument in call.arguments]
    if any(slot is None for slot in slots):
        raise Refused(f"'{name}' with register arguments")
    addresses = [slot for slot in slots if slot is not None]
    results = [slot for slot in (call.slot(result) for result in call.results) if slot is not None]
    following = call.code.segment.targets[0].index
    run = {"vprintf": _vprintf, "malloc": _malloc, "free": _free, "__assertfail": _assertfail}[name]

    def go(batch: Batch, c: Cohort) -> None:
        values = [batch.get_local(c.threads, np.broadcast_to(address(c), (c.n,)), size) for address, size in addresses]
        result = run(batch, c, call.instr, values)
        for address, size in results:
            batch.put_local(c.threads, np.broadcast_to(address(c), (c.n,)), result, size)
        batch.pool.point[c.ids] = c.depth * batch.segments + following
        batch.pool.arrive(c.ids)

    return go


def _vprintf(batch: Batch, c: Cohort, instr: Instr, values: list[Array]) -> Array:
    counts = np.zeros(c.n, np.uint32)
    for lane in range(c.n):
        text = batch.read_string(c, lane, int(values[0][lane]), instr)
        buffer = int(values[1][lane])
        written, count = format_output(
            text,
            lambda offset, size, at=buffer, who=lane: batch.read_generic(c, who, at + offset, size, instr),
            lambda address, who=lane: batch.read_string(c, who, address, instr),
        )
        batch.output.append(written)
        counts[lane] = count & 0xFFFFFFFF
    return counts


def _malloc(batch: Batch, c: Cohort, instr: Instr, values: list[Array]) -> Array:
    return np.array([batch.heap_allocate(int(size)) for size in values[0]], np.uint64)


def _free(batch: Batch, c: Cohort, instr: Instr, values: list[Array]) -> Array:
    for lane in range(c.n):
        address = int(values[0][lane])
        if address and not batch.heap_free(address):
            batch.report(
                "out-of-bounds", instr, c, np.array([lane]), f"frees {address:#x}, which malloc did not return", address
            )
    return np.zeros(c.n, np.uint32)


def _assertfail(batch: Batch, c: Cohort, instr: Instr, values: list[Array]) -> Array:
    message, file, line, function = values[:4]
    text = batch.read_string(c, 0, int(message[0]), instr)
    file_name = batch.read_string(c, 0, int(file[0]), instr)
    function_name = batch.read_string(c, 0, int(function[0]), instr)
    finding = f"assertion `{text}` failed at {file_name}:{int(line[0])} in {function_name}"
    batch.report("assert", instr, c, np.arange(c.n), finding)
    return np.zeros(c.n, np.uint32)
