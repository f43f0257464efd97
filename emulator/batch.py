"""A batch: the blocks of a launch that run together, and all their state.

Computes: the indices of threads as arrays (columns), a register file for each call depth, shared and local memory, the
state of barriers, and the places of findings. Requires: an image and a launch. Guarantees: a register has an array only
while it is live in some thread (`prune`), so memory grows with the number of live registers. An array in a file is
changed in place only if nothing else refers to it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from .checks import Finding, Place
from .cohort import Cohort
from .memory import MemoryObject, spread
from .races import Order
from .schedule import Pool

if TYPE_CHECKING:
    from .image import Image
    from .launch import Launch

__all__ = ["Batch"]

Array: TypeAlias = npt.NDArray[Any]
Triple = tuple[int, int, int]


class Batch:
    """Blocks ``first_block`` … ``first_block + blocks - 1`` of ``launch``."""

    def __init__(self, launch: Launch, image: Image, first_block: int, blocks: int) -> None:
        self.launch = launch
        self.image = image
        self.first_block = first_block
        self.blocks = blocks
        self.grid_shape: Triple = launch.grid
        self.block_shape: Triple = launch.block
        self.block_size = math.prod(launch.block)
        self.threads = blocks * self.block_size
        self.warps_per_block = -(-self.block_size // 32)
        self.segments = len(image.codes)
        self.launch_number = launch.number
        self.dynamic_shared = launch.shared
        self.total_shared = image.shared.static_bytes + launch.shared
        self.output: list[str] = launch.output
        self.executed = np.zeros(self.segments, np.int64)
        self.diverged = np.zeros(self.segments, np.int64)
        self.order = Order(blocks, self.block_size, launch.grid_order, first_block)
        self.columns = self._columns()
        warps = np.arange(blocks * self.warps_per_block, dtype=np.int64)
        in_block = warps % self.warps_per_block
        self.warp_block = warps // self.warps_per_block
        self.warp_start = self.warp_block * self.block_size + 32 * in_block
        self.warp_lanes = self._masks(in_block)  #: lanes that have a thread
        self.pool = Pool(self.warp_lanes, 0)
        #: For each call depth the register file: the values of all threads of the batch, by the key of the register.
        self.files: list[dict[int, Array]] = [{}]
        #: The registers (depth, key) whose array nothing else refers to.
        self.owned: set[tuple[int, int]] = set()
        self.frames: list[tuple[Array, Array] | None] = [None]
        self.entry_frame = -(-image.functions[image.kernel.name].frame.nbytes // 16) * 16
        self.shared_stride = image.shared.stride(launch.shared)
        self.shared_owner = image.shared.owners(launch.shared)
        self.shared = MemoryObject("shared memory", "shared", 0, blocks * self.shared_stride)
        self.local_stride = max(-(-self.entry_frame // 32) * 32, 32)
        self.local = MemoryObject("local memory", "local", 0, self.threads * self.local_stride)
        self.barriers: Any = None
        self.copies: Any = None
        self.transfers: Any = None
        #: Whether no lane passed the wait for an mbarrier that ran last, so that other threads should run next.
        self.waits_in_vain = False

    def _columns(self) -> dict[str, Array]:
        thread = np.arange(self.block_size, dtype=np.uint32)
        bx, by, _ = self.block_shape
        of_one_block = {
            "tid0": thread % np.uint32(bx),
            "tid1": thread // np.uint32(bx) % np.uint32(by),
            "tid2": thread // np.uint32(bx * by),
            "lane": thread & np.uint32(31),
            "warpid": thread >> np.uint32(5),
        }
        columns: dict[str, Array] = {name: np.tile(column, self.blocks) for name, column in of_one_block.items()}
        number = np.arange(self.first_block, self.first_block + self.blocks, dtype=np.int64)
        gx, gy, _ = self.grid_shape
        for name, column in (("ctaid0", number % gx), ("ctaid1", number // gx % gy), ("ctaid2", number // (gx * gy))):
            columns[name] = np.repeat(column.astype(np.uint32), self.block_size)
        blocks: Array = np.arange(self.blocks, dtype=np.int64)
        columns["block"] = np.repeat(blocks, self.block_size)
        return columns

    def _masks(self, in_block: Array) -> Array:
        threads = np.minimum(self.block_size - 32 * in_block, 32)
        return ((np.uint64(1) << threads.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)

    def clock(self) -> int:
        """A clock that never goes back."""
        return self.launch.steps * 64

    # --- register files --------------------------------------------------------------------------------------------

    def read_register(self, c: Cohort, key: int) -> Array:
        """The values of a register for the cohort; zeros if nothing has written it."""
        values = self.files[c.depth].get(key)
        if values is None:
            return self.image.registers.zeros(key, 1)
        if values.shape[0] == 1:
            return values
        if c.full:
            self.owned.discard((c.depth, key))
            return values
        return values[c.sel].copy() if isinstance(c.sel, slice) else values[c.sel]

    def write_register(self, c: Cohort, key: int, value: Array) -> None:
        """Put the cohort's values of a register into the file."""
        if c.full:
            self.files[c.depth][key] = value
            self.owned.discard((c.depth, key))
        else:
            self.write_file(c.depth, key, c.sel, value)

    def write_file(self, depth: int, key: int, where: slice | Array, values: Array) -> None:
        """Put values for the threads ``where`` into the file of ``depth``."""
        file = self.files[depth]
        stored = file.get(key)
        if stored is None:
            stored = file[key] = self.image.registers.zeros(key, self.threads)
            self.owned.add((depth, key))
        elif (depth, key) not in self.owned:
            stored = file[key] = np.array(spread(stored, self.threads))
            self.owned.add((depth, key))
        stored[where] = values

    def read_file(self, depth: int, key: int, threads: Array) -> Array:
        """Values of the threads in the file of ``depth``."""
        values = self.files[depth].get(key) if depth < len(self.files) else None
        if values is None:
            return self.image.registers.zeros(key, 1)
        return values if values.shape[0] == 1 else values[threads]

    def prune(self, keep: frozenset[int]) -> None:
        """Drop the registers that are live in no warp fragment. Registers in ``keep`` are never dropped."""
        pool = self.pool
        points: list[int] = np.unique(pool.point[pool.state != 0]).tolist()
        live: list[set[int]] = [set(keep) for _ in self.files]
        for point in points:
            if point >= 0:
                live[point // self.segments] |= self.image.codes[point % self.segments].live_in
        for depth, file in enumerate(self.files):
            for key in [key for key in file if key not in live[depth]]:
                del file[key]
                self.owned.discard((depth, key))

    # --- local memory and frames -----------------------------------------------------------------------------------

    def frame_base(self, c: Cohort) -> Array:
        """The offset at which the current frame begins in the local memory of each thread of the cohort."""
        frame = self.frames[c.depth]
        return _ZERO if frame is None else frame[0][c.sel]

    def frame_top(self, c: Cohort) -> Array | int:
        """The offset at which that frame ends."""
        frame = self.frames[c.depth]
        return self.image.functions[self.image.kernel.name].frame.nbytes if frame is None else frame[1][c.sel]

    def push_frames(self, depth: int, threads: Array, base: Array, nbytes: int) -> None:
        """Make frames of ``nbytes`` bytes at ``base``, for calls at ``depth``."""
        while len(self.frames) <= depth:
            self.frames.append((np.zeros(self.threads, np.int64), np.zeros(self.threads, np.int64)))
            self.files.append({})
        frame = self.frames[depth]
        assert frame is not None
        frame[0][threads] = base
        frame[1][threads] = base + nbytes
        self._reserve_local(int(base.max()) + nbytes)

    def _reserve_local(self, nbytes: int) -> None:
        if nbytes <= self.local_stride:
            return
        old, new = self.local_stride, -(-max(nbytes, 2 * self.local_stride) // 32) * 32
        grown = MemoryObject("local memory", "local", 0, self.threads * new)
        for target, source in ((grown.bytes, self.local.bytes), (grown.written, self.local.written)):
            assert target is not None and source is not None
            pieces = source[: self.threads * old].reshape(self.threads, old)
            target[: self.threads * new].reshape(self.threads, new)[:, :old] = pieces
        self.local = grown
        self.local_stride = new

    def _local_index(self, threads: Array, at: Array, nbytes: int) -> Array:
        return (threads * self.local_stride + at)[:, None] + np.arange(nbytes)

    def clear_local(self, threads: Array, at: Array, nbytes: int) -> None:
        """Mark these bytes as never written."""
        if nbytes:
            assert self.local.written is not None
            self.local.written[self._local_index(threads, at, nbytes)] = 0

    def copy_local(self, threads: Array, source: Array, target: Array, nbytes: int) -> None:
        """Copy bytes between two places in the local memory of each thread. Bytes never written remain so."""
        assert self.local.written is not None
        start, end = self._local_index(threads, source, nbytes), self._local_index(threads, target, nbytes)
        self.local.bytes[end] = self.local.bytes[start]
        self.local.written[end] = self.local.written[start]

    def put_local(self, threads: Array, at: Array, values: Array, nbytes: int) -> None:
        """Store one value for each thread."""
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(values.shape[0], -1)[:, :nbytes]
        index = self._local_index(threads, at, raw.shape[1])
        assert self.local.written is not None
        self.local.bytes[index] = raw
        self.local.written[index] = 1

    def is_written_local(self, threads: Array, at: Array, nbytes: int) -> Array:
        """For each thread, whether all of these bytes of its local memory have been written."""
        assert self.local.written is not None
        return (self.local.written[self._local_index(threads, at, nbytes)] != 0).all(axis=1)

    def get_local(self, threads: Array, at: Array, nbytes: int) -> Array:
        """One value of 1, 2, 4 or 8 bytes for each thread."""
        raw = self.local.bytes[self._local_index(threads, at, nbytes)]
        return np.ascontiguousarray(raw).view(f"u{nbytes}")[:, 0]

    # --- what system functions use ---------------------------------------------------------------------------------

    def read_generic(self, c: Cohort, lane: int, address: int, nbytes: int, instr: Instr) -> bytes:
        """Bytes at a generic address as the thread of ``lane`` sees it."""
        windows = self.launch.space.windows
        if windows.local <= address < windows.local + windows.size:
            start = int(c.threads[lane]) * self.local_stride + address - windows.local
            return self.local.bytes[start : start + nbytes].tobytes()
        if windows.shared <= address < windows.shared + windows.size:
            start = int(c.blocks[lane]) * self.shared_stride + address - windows.shared
            return self.shared.bytes[start : start + nbytes].tobytes()
        target = self.launch.space.at(address)
        if target is None or address + nbytes > target.base + target.nbytes:
            self.report("out-of-bounds", instr, c, np.array([lane]), f"reads {nbytes} bytes at {address:#x}", address)
            return bytes(nbytes)
        start = address - target.base
        return target.bytes[start : start + nbytes].tobytes()

    def read_string(self, c: Cohort, lane: int, address: int, instr: Instr) -> str:
        """The zero-terminated string at a generic address."""
        target = self.launch.space.at(address)
        if target is not None:
            raw = target.bytes[address - target.base : target.nbytes].tobytes()
            return raw.partition(b"\0")[0].decode("utf-8", "replace")
        raw = bytearray()
        while (byte := self.read_generic(c, lane, address + len(raw), 1, instr)) != b"\0":
            raw += byte
        return raw.decode("utf-8", "replace")

    def heap_allocate(self, nbytes: int) -> int:
        """``malloc`` on the device."""
        target = self.launch.space.allocate(f"malloc({nbytes})", "heap", nbytes)
        self.launch.heap[target.base] = target
        return target.base

    def heap_free(self, address: int) -> bool:
        """``free`` on the device. The result is whether ``address`` was allocated."""
        target = self.launch.heap.pop(address, None)
        if target is not None:
            self.launch.space.free(target)
        return target is not None

    # --- findings --------------------------------------------------------------------------------------------------

    def place(self, thread: int) -> Place:
        """The block and thread of the thread with this number in the grid."""
        block, thread = divmod(int(thread), self.block_size)
        return Place(_coordinates(block, self.grid_shape), _coordinates(thread, self.block_shape))

    def report(
        self,
        kind: str,
        instr: Instr,
        c: Cohort,
        lanes: Array,
        message: str,
        address: int | None = None,
        *,
        other: int | None = None,
        severity: str = "error",
        detail: str = "",
    ) -> None:
        """Record a finding of ``instr`` for ``lanes`` of the cohort. This may end the launch."""
        function = self.image.codes[c.function].function
        thread = int(c.threads[lanes[0]]) + self.first_block * self.block_size
        loaded = self.image.loaded
        finding = Finding(
            kind,
            message,
            function.kernel.name,
            instr.form.text,
            loaded.line(instr.pos),
            self.place(thread),
            loaded.source_place(instr),
            self.place(other) if other is not None else None,
            address,
            severity=severity,
        )
        self.launch.findings.add(finding, instr, int(lanes.size), detail)


def _coordinates(number: int, shape: Triple) -> Triple:
    return number % shape[0], number // shape[0] % shape[1], number // (shape[0] * shape[1])


_ZERO = np.zeros(1, np.int64)
