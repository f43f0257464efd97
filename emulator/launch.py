"""Launches: check the arguments, run a kernel over its grid batch by batch, and return arguments and counts.

Requires: NumPy arrays for pointer parameters (copied to the device and back), NumPy scalars or bytes for the others,
one for each parameter. Guarantees: blocks run in batches of about ``lanes`` threads, in order. Results depend on the
batch size only if the program has races or waits for blocks of another batch.
Refuses, with `LaunchError` and one line: arguments of wrong number or type, an unknown kernel, a grid or block that is
empty or too large, too much shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..ptx import Kernel, Module, Param, parse
from ..ptx.verify import verify
from .batch import Batch
from .block_groups import BlockGroups
from .calls import MAX_FRAME
from .checks import EmulatorFault, Finding, Findings, LaunchError
from .counts import Counts
from .engine import Engine
from .image import Image, require_kernel
from .instances import InstanceJudge
from .loading import Loaded
from .memory import AddressSpace, MemoryObject, Windows
from .options import Options
from .profile import Executions
from .races import GridOrder
from .schedule import SCHEDULES
from .textures import Surface, Texture
from .trace import Trace

__all__ = ["Emulator", "EmulatorModule", "Launch", "LaunchResult"]

Array: TypeAlias = npt.NDArray[Any]
Triple: TypeAlias = tuple[int, int, int]

#: The largest number of threads that run together. One block always runs.
LANES = 1 << 16
#: Instructions that one batch may issue before it counts as endless. Warp fragments that run together count once.
BUDGET = 20_000_000
MAX_THREADS = 1024
MAX_BLOCK: Triple = (1024, 1024, 64)
MAX_GRID: Triple = (2**31 - 1, 65535, 65535)
#: Bytes of shared memory that a block may have on compute capability 9.0.
MAX_SHARED = 227 * 1024


@dataclass(slots=True)
class LaunchResult:
    """The results of a launch: ``output`` is what the kernel printed, ``trace`` its accesses if they were requested.

    ``skipped``: the addresses of accesses that were skipped with ``keep_going``, as in `Findings.skipped`.
    """

    counts: Counts
    findings: list[Finding]
    trace: Trace | None
    output: str
    skipped: dict[tuple[str, str, str], set[int]] = field(default_factory=dict[tuple[str, str, str], set[int]])


@dataclass(slots=True)
class Launch:
    """The state of a launch, which all its batches share."""

    space: AddressSpace
    grid: Triple
    block: Triple
    shared: int
    number: int
    findings: Findings
    counts: Counts
    trace: Trace | None
    grid_order: GridOrder
    output: list[str] = field(default_factory=list[str])
    heap: dict[int, MemoryObject] = field(default_factory=dict[int, MemoryObject])
    steps: int = 0
    judge: InstanceJudge | None = None
    groups: BlockGroups | None = None


class Emulator:
    """A device. Modules loaded into it share one address space.

    >>> ptx = ".version 9.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k(.param .u64 p) {\\n" \\
    ...     ".reg .b64 %a; ld.param.b64 %a, [p]; st.global.b32 [%a], 7; ret; }"
    >>> x = np.zeros(1, np.int32)
    >>> _ = Emulator().load(ptx).launch("k", 1, 1, [x])
    >>> int(x[0])
    7
    """

    def __init__(self, *, lanes: int = LANES, budget: int = BUDGET) -> None:
        self.lanes = lanes
        self.budget = budget
        self.launches = 0
        self.heap: dict[int, MemoryObject] = {}
        self._space: AddressSpace | None = None

    def space(self, address_size: int = 64) -> AddressSpace:
        """The address space, which is made at the first use."""
        if self._space is None:
            self._space = AddressSpace(Windows.of(address_size))
        return self._space

    def load(self, ptx: str | Module) -> EmulatorModule:
        """Load a module from PTX text, which is verified, or a parsed one, which is taken as verified.

        Raises `PtxError` or `LaunchError`.
        """
        if isinstance(ptx, str):
            module = parse(ptx)
            verify(module)
        else:
            module = ptx
        return EmulatorModule(self, Loaded(module, self.space(module.address_size or 64)))


@dataclass(slots=True)
class EmulatorModule:
    """A module on an emulated device."""

    device: Emulator
    loaded: Loaded

    @property
    def kernels(self) -> list[str]:
        """The names of the entries."""
        return [entry.name for entry in self.loaded.module.entries]

    def entry(self, name: str) -> Kernel:
        """The entry called ``name``; `LaunchError` where there is none."""
        return require_kernel(self.loaded, name)

    def variable(self, name: str, dtype: npt.DTypeLike = np.uint8) -> Array:
        """The module variable ``name`` as an array on the device. Later launches read what is written to it. Raises
        `LaunchError` for an unknown name."""
        target = self.loaded.variables.get(name)
        if target is None:
            raise LaunchError(f"no variable '{name}'")
        return target.bytes[: target.nbytes].view(dtype)

    def reset(self) -> None:
        """Give variables their initial values again, and free what kernels allocated."""
        self.loaded.reset()
        space = self.loaded.space
        for target in self.device.heap.values():
            space.free(target)
        self.device.heap.clear()
        space.rewind()

    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        *,
        checks: bool = True,
        schedule: str = "order",
        seed: int = 0,
        counts: bool = True,
        trace: bool = False,
        keep_going: bool = False,
        progress: Callable[[int, int], None] | None = None,
        judge: InstanceJudge | None = None,
    ) -> LaunchResult:
        """Run ``kernel`` on NumPy arguments. Arrays are copied to the device and, in place, back. Arguments for handles
        are `Texture` and `Surface`.

        ``grid`` and ``block`` have up to three sizes; ``shared`` are bytes of dynamic shared memory. ``checks``,
        ``counts`` and ``trace`` select what is recorded. ``schedule`` decides which threads run next: ``order``,
        ``random`` (by ``seed``), or ``warps``. With ``keep_going``, an access that faults is skipped and recorded.
        ``progress(done, all)`` is called from time to time with numbers of blocks. ``judge`` observes every branch at
        which lanes diverge. Raises `LaunchError`, `UnsupportedInstruction`, and `EmulatorFault` if a fault ends the
        launch.
        """
        entry = require_kernel(self.loaded, kernel)
        params = check_arguments(entry, args)
        placed = _PlacedArguments(self.loaded.space, self.loaded.module.address_size or 64)
        try:
            values = [placed.bytes_of(param, value) for param, value in zip(params, args, strict=True)]
            return self.launch_bytes(
                entry,
                grid,
                block,
                values,
                shared,
                Options(checks, counts, trace, fine=schedule != "order", by_block=judge is not None),
                schedule=schedule,
                seed=seed,
                keep_going=keep_going,
                progress=progress,
                judge=judge,
            )
        finally:
            placed.take_back()

    def launch_bytes(
        self,
        entry: Kernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        values: Sequence[bytes],
        shared: int,
        options: Options,
        *,
        schedule: str = "order",
        seed: int = 0,
        keep_going: bool = False,
        progress: Callable[[int, int], None] | None = None,
        judge: InstanceJudge | None = None,
        groups: BlockGroups | None = None,
    ) -> LaunchResult:
        """Run ``entry`` on the bytes of its parameters. ``groups`` counts by groups of blocks, one for each block of
        the grid. It raises the errors of `launch`."""
        if schedule not in SCHEDULES:
            raise LaunchError(f"schedule '{schedule}' is none of {', '.join(SCHEDULES)}")
        shape = check_shape(entry, grid, block)
        image = self.loaded.image(entry, options)
        check_shared(image, shared)
        check_local(image)
        _fill_parameters(image, values)
        blocks = math.prod(shape[0])
        launch = Launch(
            self.loaded.space,
            *shape,
            shared,
            self.device.launches,
            Findings(keep_going),
            Counts(launches=1),
            Trace() if options.trace else None,
            GridOrder(blocks),
            heap=self.device.heap,
            judge=judge,
            groups=groups,
        )
        self.device.launches += 1
        if options.counts:
            launch.counts.executions[entry] = Executions(launches=1)
        for target in self.loaded.space.objects:
            target.races = None
        random = np.random.default_rng(seed) if schedule != "order" else None
        size = math.prod(shape[1])
        step = max(self.device.lanes // (-(-size // 32) * 32), 1)
        try:
            for first in range(0, blocks, step):
                batch = Batch(launch, image, first, min(step, blocks - first))
                batch_progress = None if progress is None else partial(_report_progress, progress, first, blocks)
                Engine(batch, random, self.device.budget, by_warp=schedule == "warps", progress=batch_progress).run()
                if progress is not None:
                    progress(first + batch.blocks, blocks)
        except EmulatorFault as fault:
            fault.output = "".join(launch.output)
            raise
        findings = launch.findings
        return LaunchResult(launch.counts, findings.all, launch.trace, "".join(launch.output), findings.skipped)


class _PlacedArguments:
    """Arguments of a launch that are copied to the device. ``buffers`` has each array with its memory there, ``images``
    each surface or texture."""

    def __init__(self, space: AddressSpace, address_bits: int) -> None:
        self.space = space
        self.address_bits = address_bits
        self.buffers: list[tuple[Array, MemoryObject]] = []
        self.images: list[tuple[Surface, MemoryObject]] = []

    def bytes_of(self, param: Param, value: Any) -> bytes:
        """The bytes of the parameter: an address or a handle after a copy to the device, or the value itself."""
        if isinstance(value, Surface):
            return self._handle(param, value)
        if isinstance(value, np.ndarray) and _is_pointer(param, self.address_bits):
            return self._address(param, cast("Array", value))
        return scalar_bytes(param, value)

    def _address(self, param: Param, array: Array) -> bytes:
        check_array(param, array)
        buffer = next((buffer for other, buffer in self.buffers if is_same_buffer(param, array, other)), None)
        if buffer is None:
            buffer = self.space.allocate(param.name, "global", array.nbytes)
            buffer.fill_from(np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8))
            buffer.written = None
            self.buffers.append((array, buffer))
        return buffer.base.to_bytes(param.bytes, "little")

    def _handle(self, param: Param, surface: Surface) -> bytes:
        """The handle of ``surface``. One `Surface` object has one handle."""
        if param.dims or param.bytes != 8 or param.type.is_float:
            raise LaunchError(f"parameter '{param.name}' (.{param.type.name}) cannot take a {type(surface).__name__}")
        buffer = next((buffer for other, buffer in self.images if other is surface), None)
        if buffer is None:
            buffer = self.space.allocate(param.name, "global", surface.nbytes)
            buffer.fill_from(surface.to_bytes())
            buffer.written = None
            buffer.is_read_only = isinstance(surface, Texture)
            self.space.images[buffer.base] = surface
            self.images.append((surface, buffer))
        return buffer.base.to_bytes(8, "little")

    def take_back(self) -> None:
        """Copy arrays and surfaces from the device in place, and free its memory."""
        for array, buffer in self.buffers:
            array[...] = buffer.bytes[: array.nbytes].view(array.dtype).reshape(array.shape)
            self.space.free(buffer)
        for surface, buffer in self.images:
            if not isinstance(surface, Texture):
                surface.take_back(buffer.bytes[: surface.nbytes])
            del self.space.images[buffer.base]
            self.space.free(buffer)


def _report_progress(progress: Callable[[int, int], None], first: int, blocks: int, done: int) -> None:
    progress(first + done, blocks)


def _fill_parameters(image: Image, values: Sequence[bytes]) -> None:
    target = image.param_object
    target.bytes[:] = 0
    target.written = None
    for offset, value in zip(image.params.offsets.values(), values, strict=True):
        target.bytes[offset : offset + len(value)] = np.frombuffer(value, np.uint8)


def _triple(value: int | Sequence[int], what: str) -> Triple:
    parts = [int(value)] if isinstance(value, int | np.integer) else [int(part) for part in value]
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"a {what} has one to three dimensions, not {len(parts)}")
    parts += [1] * (3 - len(parts))
    return parts[0], parts[1], parts[2]


def check_shape(entry: Kernel, grid: int | Sequence[int], block: int | Sequence[int]) -> tuple[Triple, Triple]:
    """Grid and block as triples. `LaunchError` if no device accepts them or the kernel states another size."""
    blocks, threads = _triple(grid, "grid"), _triple(block, "block")
    for what, shape, most in (("grid", blocks, MAX_GRID), ("block", threads, MAX_BLOCK)):
        for extent, limit in zip(shape, most, strict=True):
            if extent < 1:
                raise LaunchError(f"{what} {shape} is empty")
            if extent > limit:
                raise LaunchError(f"{what} {shape} is larger than {most}")
    size = math.prod(threads)
    if size > MAX_THREADS:
        raise LaunchError(f"block {threads} has {size} threads, more than {MAX_THREADS}")
    for name in ("maxntid", "reqntid"):
        stated = entry.directive_numbers(name)
        if name == "maxntid" and stated and size > math.prod(stated):
            raise LaunchError(f"block {threads} is larger than the kernel's .maxntid {entry.directive(name)}")
        if name == "reqntid" and stated and (*stated, 1, 1)[:3] != threads:
            raise LaunchError(f"block {threads} is not the kernel's .reqntid {entry.directive(name)}")
    return blocks, threads


def check_shared(image: Image, shared: int) -> None:
    """`LaunchError` if static and dynamic shared memory together are more than a block may have."""
    if shared < 0:
        raise LaunchError(f"{shared} bytes of shared memory")
    total = image.shared.static_bytes + shared
    if total > MAX_SHARED:
        raise LaunchError(
            f"{total} bytes of shared memory ({image.shared.static_bytes} static, {shared} dynamic), "
            f"more than {MAX_SHARED}"
        )


def check_local(image: Image) -> None:
    """`LaunchError` if the variables of the entry need more local memory than a thread may have."""
    nbytes = image.functions[image.kernel.name].frame.variable_bytes
    if nbytes > MAX_FRAME:
        raise LaunchError(f"{nbytes} bytes of local memory for each thread, more than {MAX_FRAME}")


def check_arguments(entry: Kernel, args: Sequence[Any]) -> list[Param]:
    """The parameters. `LaunchError` if there are more or fewer arguments."""
    params = entry.params or []
    if len(params) != len(args):
        raise LaunchError(f"'{entry.name}' takes {len(params)} arguments, not {len(args)}")
    return params


def is_same_buffer(param: Param, array: Array, other: Array) -> bool:
    """Whether two arrays are the same memory. `LaunchError` if they overlap in another way."""
    if array is other or not np.may_share_memory(array, other):
        return array is other
    if _extent(array) == _extent(other):
        return True
    if np.shares_memory(array, other):
        raise LaunchError(
            f"the array for parameter '{param.name}' overlaps the array of another parameter without being equal to it"
        )
    return False


def _extent(array: Array) -> tuple[int, int, bool]:
    return array.ctypes.data, array.nbytes, array.flags.c_contiguous


def check_array(param: Param, array: Array) -> None:
    """`LaunchError` if ``array`` cannot be copied to a device and back."""
    if array.dtype.hasobject:
        raise LaunchError(f"parameter '{param.name}' cannot take an array of Python objects")
    if not array.dtype.isnative:
        raise LaunchError(
            f"parameter '{param.name}' cannot take an array of {array.dtype}: convert it to the byte order of the host"
        )
    if not array.flags.writeable:
        raise LaunchError(f"the array for parameter '{param.name}' is read-only: its contents could not be copied back")


def _is_pointer(param: Param, bits: int) -> bool:
    return not param.dims and param.lanes == 1 and param.type.bits == bits and not param.type.is_float


_KINDS = {"u": "iu", "s": "iu", "f": "f", "b": "iuf", "p": "b"}


def scalar_bytes(param: Param, value: Any) -> bytes:
    """The bytes of an argument by value: a NumPy scalar of the width of the parameter, a structure, or ``bytes``."""
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(cast("bytes", value))
    elif isinstance(value, np.generic):
        dtype = np.dtype(cast("Any", value).dtype)
        if not param.dims and dtype.kind != "V" and dtype.kind not in _KINDS.get(param.type.kind, ""):
            raise LaunchError(f"parameter '{param.name}' is .{param.type.name}, the argument is {dtype}")
        raw = cast("Any", value).tobytes()
    elif isinstance(value, bool | int) and not param.dims and param.type.kind in "usb":
        bits = param.type.bits
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise LaunchError(f"{value} does not fit into parameter '{param.name}' (.{param.type.name})")
        raw = (int(value) & ((1 << bits) - 1)).to_bytes(param.type.bytes, "little")
    elif isinstance(value, float) and not param.dims and param.type.name in ("f32", "f64"):
        raw = np.array(value, f"f{param.type.bytes}").tobytes()
    elif isinstance(value, np.ndarray) and param.dims:
        raw = cast("Array", value).tobytes()
    else:
        kind = type(cast("object", value)).__name__
        raise LaunchError(f"parameter '{param.name}' (.{param.type.name}) cannot take a {kind}")
    if len(raw) != param.bytes:
        raise LaunchError(f"parameter '{param.name}' has {param.bytes} bytes, the argument has {len(raw)}")
    return raw
