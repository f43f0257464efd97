"""The subjects of a measurement: works and arms, and a backend that records a run of a work.

A `Work` is a host program with its data. An `Arm` is the PTX of its kernels under a name. `Recorder` is a backend
around another one. It forwards every call, records the device operations for a timed replay, fills new memory with a
poison byte, puts guard bands around each buffer, and keeps a digest of each buffer when the program frees it.

Requires: works that can be pickled, because they run in another process. Guarantees: recording does not change what a
work computes; `Recording.steps` has all operations on device memory except reads, in their order.
Refuses: `TypeError` for an argument of a launch that is a buffer of another backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .alias_check import Promised

__all__ = [
    "GUARD",
    "LAUNCH_MODES",
    "Accesses",
    "Arm",
    "Copy",
    "Fill",
    "KernelWork",
    "RecordedLaunch",
    "Recorder",
    "Recording",
    "Step",
    "Work",
    "Write",
]

#: Bytes before and after every buffer; a multiple of every alignment that a kernel may assume.
GUARD = 4096
_GUARD_BYTE = 0xC3

#: How an arm is launched for timing.
LAUNCH_MODES = ("auto", "stream", "graph", "branches")

#: By the PTX of a module and the name of a kernel: the positions of the parameters whose memory it reads and writes.
#: Kernels that are not known to access parameters only are left out.
Accesses: TypeAlias = "Mapping[tuple[str, str], tuple[frozenset[int], frozenset[int]]]"

#: A hash of the final content of a buffer. Of reads, the bytes themselves are kept.
Digest: TypeAlias = bytes


class Work(Protocol):
    """A host program with its data.

    ``run`` runs it once on a backend (the protocol of `dsl.backend`) with the PTX of each module by name, on the data
    of a seed, and returns the outputs by name. ``check`` compares outputs with a reference that uses no kernel; it
    returns one line for each wrong output. ``get_ready`` computes in advance what needs no machine: the data of a seed
    and the reference.
    """

    @property
    def fullname(self) -> str:
        """``suite/program``, with the parameters that it runs with."""
        ...

    @property
    def group(self) -> str:
        """The suite."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """The size and the parameters by name, for the result file."""
        ...

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """Compute the data of ``seed``, and with ``reference`` what the outputs must be."""
        ...

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> Mapping[str, NDArray[Any]]:
        """Run once. Returns the outputs by name."""
        ...

    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]:
        """A line for each wrong output; none if all are right."""
        ...


@dataclass(frozen=True)
class Arm:
    """A variant of a work: the PTX of its modules by name.

    ``launch`` is the launch mode for timing: `stream`, `graph` (captured once, replayed), `branches` (a graph in which
    launches only wait for those that they depend on), or `auto`, which is a graph if a run is short or has several
    launches. ``accesses`` is what kernels read and write; `branches` needs it. ``same_program`` says that the host
    program is that of the baseline: then all device memory must be equal, not only the outputs. ``error`` says why the
    variant could not be made; then it is not run. ``promises`` maps the PTX of a module to the promise about its
    pointers, which is checked at each launch (`alias_check`). ``contracts`` maps the PTX of a module to the text of its
    contract (`contract_guard`).
    """

    id: str
    modules: Mapping[str, str]
    role: str = "candidate"
    launch: str = "auto"
    same_program: bool = True
    error: str = ""
    promises: Mapping[str, Promised] = field(default_factory=dict[str, "Promised"])
    contracts: Mapping[str, str] = field(default_factory=dict[str, str])
    accesses: Accesses = field(default_factory=dict[tuple[str, str], "tuple[frozenset[int], frozenset[int]]"])

    def __post_init__(self) -> None:
        if self.launch not in LAUNCH_MODES:
            raise ValueError(f"arm {self.id}: the launch mode is one of {', '.join(LAUNCH_MODES)}, not {self.launch!r}")


@dataclass(frozen=True, slots=True)
class Write:
    """A copy from the host: ``data`` to ``offset`` of the buffer with number ``buffer``."""

    buffer: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fill:
    """Every byte of a buffer is set to ``byte``."""

    buffer: int
    byte: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of ``nbytes`` from buffer ``source`` to buffer ``target``."""

    target: int
    source: int
    nbytes: int
    target_offset: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A launch of a kernel, named by the number of its module and its name. An argument is the number of a buffer, a
    NumPy scalar, or bytes. ``cooperative``: a cooperative launch."""

    module: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[int | np.generic | bytes, ...]
    cooperative: bool = False


Step: TypeAlias = "Write | Fill | Copy | RecordedLaunch"


@dataclass
class Recording:
    """One run of a work: the PTX of its modules, the sizes of its buffers in bytes, and its steps.

    ``reads`` has the arrays that the host read, ``final`` the digest of each buffer, by number, when it was freed, and
    ``torn`` the numbers of the buffers whose guard bands were written.
    """

    modules: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])
    steps: list[Step] = field(default_factory=list["Step"])
    reads: list[NDArray[Any]] = field(default_factory=list["NDArray[Any]"])
    final: dict[int, Digest] = field(default_factory=dict[int, Digest])
    torn: list[int] = field(default_factory=list[int])

    @property
    def launches(self) -> list[RecordedLaunch]:
        """The launches in their order."""
        return [step for step in self.steps if isinstance(step, RecordedLaunch)]


class RecordedBuffer:
    """A buffer of a `Recorder`. ``inner`` is the buffer of the wrapped backend, ``whole`` includes the guard bands."""

    __slots__ = ("index", "inner", "nbytes", "whole")

    def __init__(self, index: int, nbytes: int, inner: Any, whole: Any) -> None:
        self.index, self.nbytes, self.inner, self.whole = index, nbytes, inner, whole


class _RecordedKernel(NamedTuple):
    module: int
    name: str
    inner: Any
    cooperative: bool = False


class _RecordedModule:
    def __init__(self, index: int, inner: Any) -> None:
        self.index, self.inner = index, inner

    def kernel(self, name: str, /) -> _RecordedKernel:
        return _RecordedKernel(self.index, name, self.inner.kernel(name))


class Recorder:
    """A backend around ``inner``. New memory is filled with the byte ``poison``, or not at all for None.

    Guard bands need a backend with `view`, which gives a part of a buffer to a kernel. The emulator has none, and
    reports accesses outside of a buffer itself.
    """

    def __init__(self, inner: Any, poison: int | None = None, *, digests: bool = True) -> None:
        self.inner = inner
        self.name: str = inner.name
        self.recording = Recording()
        self._poison = poison
        self._digests = digests
        self._can_view = hasattr(inner, "view")
        self._alive: dict[int, RecordedBuffer] = {}

    def load(self, ptx: str, /) -> _RecordedModule:
        """Load a module."""
        self.recording.modules.append(ptx)
        return _RecordedModule(len(self.recording.modules) - 1, self.inner.load(ptx))

    def allocate(self, nbytes: int, /) -> RecordedBuffer:
        """A poisoned buffer between guard bands."""
        if self._can_view:
            padded = -(-nbytes // GUARD) * GUARD
            whole = self.inner.allocate(padded + 2 * GUARD)
            self.inner.fill(whole, _GUARD_BYTE)
            inner = self.inner.view(whole, GUARD, nbytes)
        else:
            whole = inner = self.inner.allocate(nbytes)
        if self._poison is not None:
            self.inner.fill(inner, self._poison)
        buffer = RecordedBuffer(len(self.recording.sizes), nbytes, inner, whole)
        self.recording.sizes.append(nbytes)
        self._alive[buffer.index] = buffer
        return buffer

    def free(self, buffer: RecordedBuffer, /) -> None:
        """Keep a digest of the buffer, and free it."""
        self._keep(buffer)
        self.inner.free(buffer.whole)
        del self._alive[buffer.index]

    def write(self, buffer: RecordedBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy an array to the device."""
        self.recording.steps.append(Write(buffer.index, offset, np.ascontiguousarray(array).tobytes()))
        self.inner.write(buffer.inner, array, offset=offset)

    def read(self, buffer: RecordedBuffer, dtype: Any, count: int, /, offset: int = 0) -> NDArray[Any]:
        """Copy elements to the host."""
        array = self.inner.read(buffer.inner, dtype, count, offset=offset)
        self.recording.reads.append(array.copy())
        return array

    def fill(self, buffer: RecordedBuffer, byte: int, /) -> None:
        """Set every byte."""
        self.recording.steps.append(Fill(buffer.index, byte))
        self.inner.fill(buffer.inner, byte)

    def copy(
        self, target: RecordedBuffer, source: RecordedBuffer, nbytes: int, target_offset: int, source_offset: int, /
    ) -> None:
        """Copy between buffers; through the host if the backend has no `copy`."""
        self.recording.steps.append(Copy(target.index, source.index, nbytes, target_offset, source_offset))
        if hasattr(self.inner, "copy"):
            self.inner.copy(target.inner, source.inner, nbytes, target_offset, source_offset)
            return
        data = self.inner.read(source.inner, np.dtype(np.uint8), nbytes, offset=source_offset)
        self.inner.write(target.inner, data, offset=target_offset)

    def cooperative(self, kernel: _RecordedKernel, /) -> _RecordedKernel:
        """The kernel for cooperative launches. Raises `AttributeError` if ``inner`` has none."""
        return kernel._replace(inner=self.inner.cooperative(kernel.inner), cooperative=True)

    def launch(self, kernel: _RecordedKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Record the launch of a kernel, and launch it. Raises `TypeError` for an argument that is no buffer, NumPy
        scalar or bytes."""
        module, name, handle, cooperative = kernel
        recorded: list[int | np.generic | bytes] = []
        passed: list[Any] = []
        for each in args:
            if isinstance(each, RecordedBuffer):
                recorded.append(each.index)
                passed.append(each.inner)
                continue
            if not isinstance(each, np.generic | bytes):
                raise TypeError(f"{name}: an argument is a buffer, a NumPy scalar or bytes, not {type(each).__name__}")
            value = cast("Any", each)
            recorded.append(value)
            passed.append(value)
        x, y, z = (*grid, 1, 1, 1)[:3]
        p, q, r = (*block, 1, 1, 1)[:3]
        self.recording.steps.append(
            RecordedLaunch(module, name, (x, y, z), (p, q, r), shared, tuple(recorded), cooperative)
        )
        self.inner.launch(handle, grid, block, shared, passed)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.inner.synchronize()

    def finish(self) -> Recording:
        """Free the buffers that the program left allocated; the recording."""
        self.inner.synchronize()
        for buffer in list(self._alive.values()):
            self.free(buffer)
        return self.recording

    def discard(self) -> None:
        """Free the buffers of a run that failed."""
        for buffer in self._alive.values():
            self.inner.free(buffer.whole)
        self._alive.clear()

    def _keep(self, buffer: RecordedBuffer) -> None:
        if not self._digests:
            return
        data = self.inner.read(buffer.inner, np.dtype(np.uint8), buffer.nbytes)
        self.recording.final[buffer.index] = hashlib.blake2b(data, digest_size=16).digest()
        if not self._can_view:
            return
        behind = GUARD + buffer.nbytes
        for start, size in ((0, GUARD), (behind, -(-buffer.nbytes // GUARD) * GUARD + 2 * GUARD - behind)):
            if (self.inner.read(buffer.whole, np.dtype(np.uint8), size, offset=start) != _GUARD_BYTE).any():
                self.recording.torn.append(buffer.index)
                return


@dataclass(frozen=True)
class KernelWork:
    """A work that launches one kernel once. It is plain data and needs no host program.

    ``arguments`` are names of arrays or NumPy scalars, in the order of the parameters. ``arrays`` maps a name to dtype
    and number of elements. ``outputs`` names the arrays that the kernel writes. The other arrays hold random numbers:
    floats in [0, 1), integers in [0, ``below``).
    """

    fullname: str
    module: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arrays: Mapping[str, tuple[str, int]]
    arguments: tuple[str | np.generic, ...]
    outputs: tuple[str, ...]
    shared: int = 0
    below: int = 1 << 16
    group: str = "kernels"
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def data(self, seed: int) -> dict[str, NDArray[Any]]:
        """The arrays before the launch, without the outputs."""
        generator = np.random.default_rng(seed)
        arrays: dict[str, NDArray[Any]] = {}
        for name, (dtype, count) in self.arrays.items():
            if name not in self.outputs:
                floating = np.dtype(dtype).kind == "f"
                arrays[name] = (
                    generator.random(count).astype(dtype)
                    if floating
                    else generator.integers(0, self.below, count).astype(dtype)
                )
        return arrays

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """Do nothing: the data is made quickly, and there is no reference."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, NDArray[Any]]:
        """Allocate, write, launch, read; the outputs by name."""
        kernel = backend.load(modules[self.module]).kernel(self.kernel)
        data = self.data(seed)
        buffers: dict[str, Any] = {}
        for name, (dtype, count) in self.arrays.items():
            buffers[name] = backend.allocate(np.dtype(dtype).itemsize * count)
            if name in data:
                backend.write(buffers[name], data[name])
        args = [buffers[each] if isinstance(each, str) else each for each in self.arguments]
        backend.launch(kernel, self.grid, self.block, self.shared, args)
        backend.synchronize()
        outputs = {
            name: backend.read(buffers[name], np.dtype(self.arrays[name][0]), self.arrays[name][1])
            for name in self.outputs
        }
        for buffer in buffers.values():
            backend.free(buffer)
        return outputs

    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]:
        """There is no reference, so no error is found."""
        return []
