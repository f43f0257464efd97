"""What is measured: works, arms, and a backend that watches a work run.

A `Work` is a host program with its data; an `Arm` is the PTX of its kernels under a name. `Recorder` is a backend
around another one: it hands every call through, keeps the list of device operations for a replay under the clock,
poisons what is allocated, puts guard bands around it, and keeps the contents of every buffer when the program gives it
back.

Requires: works are picklable, for they run in another process. Guarantees: what a work computes is not changed by being
watched; `Recording.steps` in their order are all operations on device memory but reads.
Refuses: an argument of a launch that is a buffer of another backend is a `TypeError`.
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
    "Arm",
    "Copy",
    "Fill",
    "KernelWork",
    "Launch",
    "Recorder",
    "Recording",
    "Step",
    "Work",
    "Write",
]

#: Bytes before and behind every buffer; a multiple of every alignment that a kernel may count on.
GUARD = 4096
_GUARD_BYTE = 0xC3

#: What a read gives has to be compared, so its bytes are kept; of a buffer's final contents only this digest.
Digest: TypeAlias = bytes


class Work(Protocol):
    """A host program with its data.

    ``run`` runs it once on a backend (the protocol of `dsl.backend`) with the PTX of each module by name, on the data
    of a seed, and gives the outputs by name. ``check`` compares outputs with a reference that uses no kernel: one line
    for each that is wrong. ``get_ready`` may compute before what needs no machine: the data of a seed, the reference.
    """

    @property
    def fullname(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def params(self) -> Mapping[str, Any]: ...
    def get_ready(self, seed: int, reference: bool, /) -> None: ...
    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> Mapping[str, NDArray[Any]]: ...
    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]: ...


@dataclass(frozen=True)
class Arm:
    """A variant of a work: the PTX of its modules by name.

    ``launch`` is how it is timed: `stream`, `graph` (captured once, replayed), or `auto`: a graph where a run is too
    short for, or made of too many launches for, a host to keep up with. ``same_program`` says that the host program is
    the baseline's, so that all device memory must come out equal, not only the outputs. ``error`` says why the variant
    could not be made; then nothing is run of it. ``promises`` says of modules, by their PTX, what was promised of their
    pointers: each launch is checked (`alias_check`).
    """

    id: str
    modules: Mapping[str, str]
    role: str = "candidate"
    launch: str = "auto"
    same_program: bool = True
    error: str = ""
    promises: Mapping[str, Promised] = field(default_factory=dict[str, "Promised"])

    def __post_init__(self) -> None:
        if self.launch not in ("auto", "stream", "graph"):
            raise ValueError(f"arm {self.id}: launched by stream, graph or auto, not by {self.launch!r}")


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes from the host."""

    buffer: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fill:
    """Every byte of a buffer set."""

    buffer: int
    byte: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes from buffer to buffer."""

    target: int
    source: int
    nbytes: int
    target_offset: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel by module and name. An argument is the number of a buffer, or a NumPy scalar, or bytes; ``cooperative``
    asks for all blocks at once."""

    module: int
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[int | np.generic | bytes, ...]
    cooperative: bool = False


Step: TypeAlias = "Write | Fill | Copy | Launch"


@dataclass
class Recording:
    """One run of a work: modules, buffer sizes, steps, and what became of the memory.

    ``reads`` is what the host saw, ``final`` a digest of every buffer when it was given back, ``torn`` the numbers of
    the buffers whose guard bands were written to.
    """

    modules: list[str] = field(default_factory=list[str])
    sizes: list[int] = field(default_factory=list[int])
    steps: list[Step] = field(default_factory=list["Step"])
    reads: list[NDArray[Any]] = field(default_factory=list["NDArray[Any]"])
    final: dict[int, Digest] = field(default_factory=dict[int, Digest])
    torn: list[int] = field(default_factory=list[int])

    @property
    def launches(self) -> list[Launch]:
        """The launches in their order."""
        return [step for step in self.steps if isinstance(step, Launch)]


class RecordedBuffer:
    """A buffer of a `Recorder`; ``inner`` is the wrapped backend's, ``whole`` with its guard bands."""

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
    """A backend around ``inner``. ``poison`` is the byte that fresh memory holds; None leaves it as it is.

    Guard bands need a backend that can hand a part of a buffer to a kernel (`view`); where there is none, as on the
    emulator, accesses outside of a buffer are the backend's own to report.
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
        """Keep what the buffer holds, and give it back."""
        self._keep(buffer)
        self.inner.free(buffer.whole)
        del self._alive[buffer.index]

    def write(self, buffer: RecordedBuffer, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy in."""
        self.recording.steps.append(Write(buffer.index, offset, np.ascontiguousarray(array).tobytes()))
        self.inner.write(buffer.inner, array, offset=offset)

    def read(self, buffer: RecordedBuffer, dtype: Any, count: int, /, offset: int = 0) -> NDArray[Any]:
        """Copy out."""
        found = self.inner.read(buffer.inner, dtype, count, offset=offset)
        self.recording.reads.append(found.copy())
        return found

    def fill(self, buffer: RecordedBuffer, byte: int, /) -> None:
        """Set every byte."""
        self.recording.steps.append(Fill(buffer.index, byte))
        self.inner.fill(buffer.inner, byte)

    def copy(
        self, target: RecordedBuffer, source: RecordedBuffer, nbytes: int, target_offset: int, source_offset: int, /
    ) -> None:
        """Copy between buffers, through the host where the backend cannot."""
        self.recording.steps.append(Copy(target.index, source.index, nbytes, target_offset, source_offset))
        if hasattr(self.inner, "copy"):
            self.inner.copy(target.inner, source.inner, nbytes, target_offset, source_offset)
            return
        data = self.inner.read(source.inner, np.dtype(np.uint8), nbytes, offset=source_offset)
        self.inner.write(target.inner, data, offset=target_offset)

    def cooperative(self, kernel: _RecordedKernel, /) -> _RecordedKernel:
        """The kernel, to be launched with all its blocks at once. Raises `AttributeError` where ``inner`` cannot."""
        return kernel._replace(inner=self.inner.cooperative(kernel.inner), cooperative=True)

    def launch(self, kernel: _RecordedKernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        """Launch."""
        module, name, handle, together = kernel
        kept: list[int | np.generic | bytes] = []
        passed: list[Any] = []
        for each in args:
            if isinstance(each, RecordedBuffer):
                kept.append(each.index)
                passed.append(each.inner)
                continue
            if not isinstance(each, np.generic | bytes):
                raise TypeError(f"{name}: an argument is a buffer, a NumPy scalar or bytes, not {type(each).__name__}")
            value = cast("Any", each)
            kept.append(value)
            passed.append(value)
        x, y, z = (*grid, 1, 1, 1)[:3]
        p, q, r = (*block, 1, 1, 1)[:3]
        self.recording.steps.append(Launch(module, name, (x, y, z), (p, q, r), shared, tuple(kept), together))
        self.inner.launch(handle, grid, block, shared, passed)

    def synchronize(self) -> None:
        """Wait."""
        self.inner.synchronize()

    def finish(self) -> Recording:
        """Keep and give back what the program left allocated; the recording."""
        self.inner.synchronize()
        for buffer in list(self._alive.values()):
            self.free(buffer)
        return self.recording

    def discard(self) -> None:
        """Give back what is left of a run that failed."""
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
    """A work that launches one kernel once. All of it is plain data, so it needs no host program.

    ``arguments`` are, in the order of the parameters: the name of an array, or a NumPy scalar. ``arrays`` gives dtype
    and number of elements of each, ``outputs`` the names of those that the kernel writes; the others hold random
    numbers, floats in [0, 1), integers in [0, ``below``).
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
        """The arrays before the launch; those that are only written are left out."""
        generator = np.random.default_rng(seed)
        made: dict[str, NDArray[Any]] = {}
        for name, (dtype, count) in self.arrays.items():
            if name not in self.outputs:
                floating = np.dtype(dtype).kind == "f"
                made[name] = (
                    generator.random(count).astype(dtype)
                    if floating
                    else generator.integers(0, self.below, count).astype(dtype)
                )
        return made

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """There is nothing that would take long."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, NDArray[Any]]:
        """Allocate, write, launch, read."""
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
        found = {
            name: backend.read(buffers[name], np.dtype(self.arrays[name][0]), self.arrays[name][1])
            for name in self.outputs
        }
        for buffer in buffers.values():
            backend.free(buffer)
        return found

    def check(self, seed: int, outputs: Mapping[str, NDArray[Any]], /) -> list[str]:
        """There is no reference: nothing is known to be wrong."""
        return []
