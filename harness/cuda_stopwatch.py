"""Times arms on a GPU: replays the device operations of a work between two events.

A sample is: flush L2 (a memset of twice its size), restore the buffers that the work changes, record an event, run the
work, record an event. There is one synchronization for each block of samples. The work is the recorded device
operations from its first launch to its last. Copies of the host before the first launch are part of the restored
inputs; reads of the host between launches are left out. A work under 20 µs runs many times between the two events, on
rotating sets of buffers of five times L2 in total. The fastest of several replays decides whether a work is that short.
Two events add 1 to 4 µs, so up to 25 µs count as short.

A work that is short or has several launches is replayed as a CUDA graph, so that the host cannot slow it down. An arm
with the launch mode `stream` is launched call by call from this thread, with calls that cost as much as in a C program.
If one arm has this mode, then for all arms the stream is empty when the first event is recorded, and each of several
runs between two events is a separate graph launch. So the cost of launches is part of every time.

A block begins and ends with a clock probe: one warp reads the counter of the SM clock and the global nanosecond timer
over 30 µs, from tick to tick. The ratio is the SM clock frequency. This needs no library and changes no setting.

Requires: arms that were found correct. Recordings of the correctness check are used if the work is deterministic;
otherwise the work is recorded again. Guarantees: arms with the same buffers and inputs run on the same memory. A replay
leaves the same bytes as the work, checked before the first sample and after the last, except in buffers that the work
itself computes differently each time.
Refuses: `ReplayDiffers`; `ValueError` for a work without a launch.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .correctness import PATTERNS, run_once
from .cuda import CudaBackend, CudaBuffer, CudaKernel
from .cuda_capture import graph_with_edges
from .protocol import Block
from .step_order import in_a_row, sources_of
from .workload import Arm, Copy, Fill, RecordedLaunch, Recording, Step, Work, Write

__all__ = ["CudaStopwatch", "ReplayDiffers"]

#: A run of fewer seconds between two events is short: 20 µs of work and up to 5 µs between the events. A run that is
#: classified as short without need is timed correctly, too.
SHORT = 25e-6
#: A sample of a short work takes about this many seconds, in at most this many runs.
_TARGET, _MOST_COPIES = 400e-6, 256
_ALIGNMENT = 4096

_PROBE_NANOSECONDS = 30_000
_PROBE = f"""
.version 8.0
.target sm_75
.address_size 64
.visible .entry clock_probe(.param .u64 out)
{{
  .reg .u64 %o, %t<3>, %c<2>, %d<2>;
  .reg .pred %p;
  ld.param.u64 %o, [out];
  mov.u64 %t0, %globaltimer;
EDGE:
  mov.u64 %t1, %globaltimer;
  setp.eq.u64 %p, %t1, %t0;
  @%p bra EDGE;
  mov.u64 %c0, %clock64;
SPIN:
  mov.u64 %t2, %globaltimer;
  sub.u64 %d0, %t2, %t1;
  setp.lt.u64 %p, %d0, {_PROBE_NANOSECONDS};
  @%p bra SPIN;
  mov.u64 %c1, %clock64;
  sub.u64 %d1, %c1, %c0;
  st.global.v2.u64 [%o], {{%d1, %d0}};
  ret;
}}
"""


class ReplayDiffers(RuntimeError):
    """The replay of the recorded operations leaves other bytes than the work."""


@dataclass
class _Memory:
    """The buffers of one recording: a pristine set, and the sets that runs use. ``changed`` are the buffers that runs
    change and that must be restored."""

    offsets: list[int]
    sizes: list[int]
    pristine: CudaBuffer
    arena: CudaBuffer
    stride: int
    changed: set[int] = field(default_factory=set[int])

    def place(self, buffer: int, copy: int) -> int:
        """The address of a buffer in one of the sets."""
        return self.arena.pointer + copy * self.stride + self.offsets[buffer]


_Operation = Callable[[], None]


@dataclass
class _Prepared:
    """One arm, ready to run on each of its sets of buffers. ``unstable`` are buffers that differ from run to run."""

    arm: Arm
    recording: Recording
    unstable: set[int]
    memory: _Memory
    kernels: dict[tuple[int, str], CudaKernel]
    steps: list[Step]
    runs: list[list[_Operation]] = field(default_factory=list["list[_Operation]"])
    restore: Any = None
    graphs: list[Any] = field(default_factory=list[Any])


class CudaStopwatch:
    """Arms of a work on a GPU (`protocol.Stopwatch`)."""

    def __init__(
        self,
        backend: CudaBackend,
        work: Work,
        arms: Sequence[Arm],
        seed: int,
        recorded: Mapping[str, Recording] | None = None,
    ) -> None:
        self.backend = backend
        self._l2 = max(backend.attribute("L2_CACHE_SIZE"), 1 << 20)
        self._flush = backend.allocate(2 * self._l2)
        self._probe = backend.load(_PROBE).kernel("clock_probe")
        self._ticks = backend.allocate(32)
        self._probe_arguments = [backend.pack(self._probe, [backend.view(self._ticks, 16 * i, 16)]) for i in range(2)]
        self._events = [(backend.event(), backend.event()) for _ in range(64)]
        self._staged: list[CudaBuffer] = []
        runs = [self._record(work, arm, seed, (recorded or {}).get(arm.id)) for arm in arms]
        seconds = self._estimate(arms[0], *runs[0])
        is_short = seconds < SHORT
        self.copies = min(max(math.ceil(_TARGET / seconds), 8), _MOST_COPIES) if is_short else 1
        many = len(runs[0][0].launches) > 1
        self._auto = "graph" if is_short or many else "stream"
        self.mode = self._mode_of(arms[0])
        #: Whether the time that the host takes for launches is part of the measured time.
        self.counts_launches = any(each.launch == "stream" for each in arms)
        memories: dict[Any, _Memory] = {}
        self.arms = [self._prepare(arm, *each, memories, self.copies) for arm, each in zip(arms, runs, strict=True)]
        self._find_changed()
        for each in self.arms:
            self._make_graphs(each)
        for number in range(len(self.arms)):
            if wrong := self.verify(number):
                raise ReplayDiffers(f"{arms[number].id}: {wrong[0]}")

    # --- the protocol `Stopwatch` -----------------------------------------------------------------------------------

    def warm_up(self, arm: int, seconds: float, /) -> float:
        """Run an arm for about this many seconds; the seconds of one sample."""
        end = time.monotonic() + seconds
        block = self.measure(arm, 2)
        while time.monotonic() < end:
            block = self.measure(arm, 2)
        return min(block.seconds) * self.copies

    def measure(self, arm: int, samples: int, /) -> Block:
        """A block of samples of an arm."""
        backend, prepared = self.backend, self.arms[arm]
        while len(self._events) < samples:
            self._events.append((backend.event(), backend.event()))
        self._probe_clock(0)
        # The garbage collector must not run between timed launches.
        collects = gc.isenabled()
        gc.disable()
        try:
            for first, second in self._events[:samples]:
                backend.launch_graph(prepared.restore)
                if self.counts_launches:
                    backend.synchronize()
                backend.record(first)
                self._run(prepared)
                backend.record(second)
        finally:
            if collects:
                gc.enable()
        self._probe_clock(1)
        backend.synchronize()
        seconds = tuple(backend.seconds_between(*pair) / self.copies for pair in self._events[:samples])
        return Block(seconds, self._clock())

    def verify(self, arm: int) -> list[str]:
        """Run an arm once more and compare its memory with that of the work: one line for each difference."""
        prepared = self.arms[arm]
        self.backend.launch_graph(prepared.restore)
        self._run(prepared)
        wrong: list[str] = []
        for copy in {0, self.copies - 1}:
            digests = self._digests(prepared.memory, copy)
            for buffer, digest in prepared.recording.final.items():
                if buffer not in prepared.unstable and digests[buffer] != digest:
                    wrong.append(f"buffer {buffer} ({prepared.memory.sizes[buffer]} bytes) of set {copy} differs")
        return wrong

    def how(self) -> dict[str, Any]:
        """How the arms were timed, for the result file."""
        return {
            "mode": self.mode,
            "launches_per_sample": self.copies,
            "copies": self.copies,
            "flushed_bytes": self._flush.nbytes,
        }

    def close(self) -> None:
        """Free all memory, graphs and staged buffers."""
        for graph in [graph for each in self.arms for graph in (each.restore, *each.graphs) if graph is not None]:
            self.backend.destroy_graph(graph)
        held = {id(each.memory): each.memory for each in self.arms}
        for memory in held.values():
            self.backend.free(memory.pristine)
            self.backend.free(memory.arena)
        for buffer in (*self._staged, self._flush, self._ticks):
            self.backend.free(buffer)

    # --- preparation -----------------------------------------------------------------------------------------

    def _record(self, work: Work, arm: Arm, seed: int, known: Recording | None) -> tuple[Recording, set[int]]:
        """The operations of a run, and the buffers that cannot be compared with those of a replay."""
        first = known or run_once(self.backend, work, arm, seed, PATTERNS[0]).recording
        again = known or run_once(self.backend, work, arm, seed, PATTERNS[0]).recording
        if not first.launches:
            raise ValueError(f"{work.fullname}: the program launches no kernel, so there is nothing to time")
        unstable = {index for index in first.final if first.final[index] != again.final.get(index)}
        # Operations of the host after the last launch are not replayed.
        last = max(i for i, step in enumerate(first.steps) if isinstance(step, RecordedLaunch))
        behind = {step.target if isinstance(step, Copy) else step.buffer for step in first.steps[last + 1 :]}  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        return first, unstable | behind

    def _estimate(self, arm: Arm, recording: Recording, unstable: set[int]) -> float:
        """Seconds of a run between two events: the least of six, without the first one, which loads the graph."""
        prepared = self._prepare(arm, recording, unstable, {}, 1)
        start, stop = self._events[0]
        graph = self.backend.graph(lambda: _do(prepared.runs[0]))
        seconds: list[float] = []
        for _ in range(6):
            self.backend.fill(self._flush, 0)
            self._restore(prepared.memory, 1, range(len(prepared.memory.sizes)))
            self.backend.record(start)
            self.backend.launch_graph(graph)
            self.backend.record(stop)
            self.backend.synchronize()
            seconds.append(self.backend.seconds_between(start, stop))
        self.backend.destroy_graph(graph)
        self.backend.free(prepared.memory.pristine)
        self.backend.free(prepared.memory.arena)
        return max(min(seconds[1:]), 1e-6)

    def _prepare(
        self, arm: Arm, recording: Recording, unstable: set[int], memories: dict[Any, _Memory], copies: int
    ) -> _Prepared:
        first = next(i for i, step in enumerate(recording.steps) if isinstance(step, RecordedLaunch))
        last = max(i for i, step in enumerate(recording.steps) if isinstance(step, RecordedLaunch))
        before, timed = recording.steps[:first], recording.steps[first : last + 1]
        # Arms with the same initial memory share it, so that its addresses cannot make a difference.
        key = (tuple(recording.sizes), tuple(before))
        memory = memories.get(key)
        if memory is None:
            memory = memories[key] = self._lay_out(recording.sizes, before, copies)
        modules = [self.backend.load(ptx) for ptx in recording.modules]
        named = {(step.module, step.kernel) for step in recording.launches}
        kernels = {(module, name): modules[module].kernel(name) for module, name in named}
        prepared = _Prepared(arm, recording, unstable, memory, kernels, timed)
        staged = self._stage(timed)
        prepared.runs = [self._operations(prepared, staged, copy) for copy in range(copies)]
        return prepared

    def _lay_out(self, sizes: Sequence[int], before: Sequence[Step], copies: int) -> _Memory:
        offsets: list[int] = []
        end = 0
        for size in sizes:
            offsets.append(end)
            end += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        stride = end
        if copies > 1:
            stride = max(end, -(-5 * self._l2 // copies // _ALIGNMENT) * _ALIGNMENT)
        backend = self.backend
        memory = _Memory(offsets, list(sizes), backend.allocate(end), backend.allocate(stride * copies), stride)
        backend.fill(memory.pristine, PATTERNS[0])
        for step in before:
            self._apply(step, lambda buffer: memory.pristine.pointer + offsets[buffer], sizes)
        backend.fill(memory.arena, PATTERNS[0])
        self._restore(memory, copies, range(len(sizes)))
        return memory

    def _apply(self, step: Step, place: Callable[[int], int], sizes: Sequence[int]) -> None:
        """Apply an operation of the host program to memory, before its first launch."""
        backend = self.backend
        if isinstance(step, Write):
            data = np.frombuffer(step.data, np.uint8)
            backend.write(CudaBuffer(place(step.buffer), sizes[step.buffer]), data, offset=step.offset)
        elif isinstance(step, Fill):
            backend.fill(CudaBuffer(place(step.buffer), sizes[step.buffer]), step.byte)
        elif isinstance(step, Copy):
            target = CudaBuffer(place(step.target), sizes[step.target])
            source = CudaBuffer(place(step.source), sizes[step.source])
            backend.copy(target, source, step.nbytes, step.target_offset, step.source_offset)

    def _stage(self, steps: Sequence[Step]) -> dict[int, int]:
        """Copy the data that the host wrote between launches to the device; the addresses by number of the step."""
        addresses: dict[int, int] = {}
        for number, step in enumerate(steps):
            if isinstance(step, Write) and step.data:
                buffer = self.backend.allocate(len(step.data))
                self.backend.write(buffer, np.frombuffer(step.data, np.uint8))
                self._staged.append(buffer)
                addresses[number] = buffer.pointer
        return addresses

    def _operations(self, prepared: _Prepared, staged: dict[int, int], copy: int) -> list[_Operation]:
        return [self._operation(prepared, step, staged.get(n, 0), copy) for n, step in enumerate(prepared.steps)]

    def _operation(self, prepared: _Prepared, step: Step, staged: int, copy: int) -> _Operation:
        backend, memory = self.backend, prepared.memory

        def buffer(number: int) -> CudaBuffer:
            return CudaBuffer(memory.place(number, copy), memory.sizes[number])

        if isinstance(step, RecordedLaunch):
            kernel = prepared.kernels[step.module, step.kernel]
            kernel = backend.cooperative(kernel) if step.cooperative else kernel
            packed = backend.pack(kernel, [buffer(each) if isinstance(each, int) else each for each in step.args])
            return backend.launch_call(kernel, step.grid, step.block, step.shared, packed)
        if isinstance(step, Fill):
            target, byte = buffer(step.buffer), step.byte
            return backend.fill_call(target, byte)
        if isinstance(step, Copy):
            target, source = buffer(step.target), buffer(step.source)
            return backend.copy_call(target, source, step.nbytes, step.target_offset, step.source_offset)
        source = CudaBuffer(staged, len(step.data))
        return backend.copy_call(buffer(step.buffer), source, source.nbytes, step.offset, 0)

    def _find_changed(self) -> None:
        """Find the buffers that the runs change. Only these are restored; the others stay out of the cache."""
        before: dict[int, dict[int, bytes]] = {}
        for prepared in self.arms:
            memory = prepared.memory
            if id(memory) not in before:
                before[id(memory)] = self._digests(memory, 0)
            began, ended = before[id(memory)], prepared.recording.final
            memory.changed |= {i for i in began if i in prepared.unstable or began[i] != ended.get(i)}

    def _make_graphs(self, prepared: _Prepared) -> None:
        def restore() -> None:
            self.backend.fill(self._flush, 0)
            self._restore(prepared.memory, self.copies, sorted(prepared.memory.changed))

        prepared.restore = self.backend.graph(restore)
        if self._mode_of(prepared.arm) == "graph":
            every = [operation for run in prepared.runs for operation in run]
            captured = prepared.runs if self.counts_launches else [every]
            prepared.graphs = [self.backend.graph(lambda run=run: _do(run)) for run in captured]
        if self._mode_of(prepared.arm) == "branches":
            prepared.graphs = self._branches(prepared)

    def _branches(self, prepared: _Prepared) -> list[Any]:
        """Graphs of the runs in which operations wait for those that they depend on."""
        sources = sources_of(prepared.steps, prepared.recording.modules, prepared.arm.accesses)
        if self.counts_launches:
            return [graph_with_edges(self.backend, run, sources) for run in prepared.runs]
        every = [operation for run in prepared.runs for operation in run]
        return [graph_with_edges(self.backend, every, in_a_row([sources] * len(prepared.runs)))]

    def _mode_of(self, arm: Arm) -> str:
        return self._auto if arm.launch == "auto" else arm.launch

    # --- running -----------------------------------------------------------------------------------------------

    def _run(self, prepared: _Prepared) -> None:
        for graph in prepared.graphs:
            self.backend.launch_graph(graph)
        if not prepared.graphs:
            for run in prepared.runs:
                _do(run)

    def _restore(self, memory: _Memory, copies: int, buffers: Sequence[int]) -> None:
        backend = self.backend
        for copy in range(copies):
            for index in buffers:
                size, offset = memory.sizes[index], memory.offsets[index]
                target = CudaBuffer(memory.place(index, copy), size)
                backend.copy(target, CudaBuffer(memory.pristine.pointer + offset, size), size, 0, 0)

    def _digests(self, memory: _Memory, copy: int) -> dict[int, bytes]:
        digests: dict[int, bytes] = {}
        for index, size in enumerate(memory.sizes):
            data = self.backend.read(CudaBuffer(memory.place(index, copy), size), np.uint8, size)
            digests[index] = hashlib.blake2b(data.tobytes(), digest_size=16).digest()
        return digests

    def _probe_clock(self, slot: int) -> None:
        self.backend.launch_packed(self._probe, (1, 1, 1), (1, 1, 1), 0, self._probe_arguments[slot])

    def _clock(self) -> float:
        """The SM clock in Hz: the mean of the two probes of a block."""
        ticks = self.backend.read(self._ticks, np.uint64, 4).astype(np.float64)
        return float(np.mean(ticks[[0, 2]] / ticks[[1, 3]])) * 1e9


def _do(operations: Sequence[_Operation]) -> None:
    for operation in operations:
        operation()
