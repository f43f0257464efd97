"""The emulator as a backend, with the interface of the GPU backend. Host programs of the DSL use it, too.

The interface is structural: ``name``, ``load``, ``allocate``, ``free``, ``write``, ``read``, ``fill``, ``launch``,
``synchronize``. Guarantees: buffers keep their contents between launches. Bytes that were never written are recorded,
and a kernel that reads them gets a finding. ``counts`` is the sum, and ``findings`` the list, over all launches since
`reset`. Refuses, with `LaunchError`: a buffer that was freed or belongs to another device, and accesses outside of a
buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.ir import Kernel
from .block_groups import BlockGroups
from .checks import Finding, LaunchError
from .counts import Counts
from .instances import InstanceJudge
from .launch import Emulator, EmulatorModule, check_arguments, scalar_bytes
from .memory import MemoryObject
from .options import Options
from .trace import Trace

__all__ = ["Buffer", "EmulatorBackend", "EmulatorKernel", "LoadedModule"]

Array: TypeAlias = npt.NDArray[Any]


class Buffer:
    """Device memory of ``nbytes`` bytes."""

    __slots__ = ("nbytes", "target")

    def __init__(self, target: MemoryObject) -> None:
        self.target = target
        self.nbytes = target.nbytes

    @property
    def address(self) -> int:
        """The device address."""
        return self.target.base


class EmulatorKernel:
    """A kernel of a loaded module."""

    __slots__ = ("entry", "module")

    def __init__(self, module: EmulatorModule, entry: Kernel) -> None:
        self.module = module
        self.entry = entry

    @property
    def name(self) -> str:
        return self.entry.name


class LoadedModule:
    """A module on the backend."""

    __slots__ = ("module",)

    def __init__(self, module: EmulatorModule) -> None:
        self.module = module

    def kernel(self, name: str) -> EmulatorKernel:
        """The entry ``name``; `LaunchError` where there is none."""
        return EmulatorKernel(self.module, self.module.entry(name))


class EmulatorBackend:
    """A device that needs no GPU.

    >>> backend = EmulatorBackend()
    >>> buffer = backend.allocate(16)
    >>> backend.write(buffer, np.arange(4, dtype=np.int32))
    >>> backend.read(buffer, np.int32, 2, offset=8)
    array([2, 3], dtype=int32)
    """

    name = "emulator"

    def __init__(
        self,
        *,
        checks: bool = True,
        counts: bool = True,
        trace: bool = False,
        schedule: str = "order",
        seed: int = 0,
        keep_going: bool = False,
        device: Emulator | None = None,
        judge: InstanceJudge | None = None,
    ) -> None:
        self.device = device if device is not None else Emulator()
        self.options = Options(checks, counts, trace, fine=schedule != "order", by_block=judge is not None)
        self.judge = judge
        self.schedule = schedule
        self.seed = seed
        self.keep_going = keep_going
        self.counts = Counts()
        self.findings: list[Finding] = []
        self.traces: list[Trace] = []
        self.output: list[str] = []
        self._number = 0

    def reset(self) -> None:
        """Delete counts, findings, traces and output."""
        self.counts = Counts()
        self.findings = []
        self.traces = []
        self.output = []

    def load(self, ptx: str) -> LoadedModule:
        """Load a module from PTX text."""
        return LoadedModule(self.device.load(ptx))

    def allocate(self, nbytes: int) -> Buffer:
        """Device memory of ``nbytes`` bytes, its contents undefined. Raises `LaunchError` for a negative size."""
        if nbytes < 0:
            raise LaunchError(f"a buffer of {nbytes} bytes")
        self._number += 1
        return Buffer(self.device.space().allocate(f"buffer {self._number}", "global", nbytes))

    def free(self, buffer: Buffer) -> None:
        """Free the buffer. Later accesses to it are out of bounds."""
        self._check(buffer, 0, 0)
        self.device.space().free(buffer.target)

    def write(self, buffer: Buffer, array: Array, offset: int = 0) -> None:
        """Copy ``array`` to byte ``offset`` of ``buffer``."""
        raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self._check(buffer, offset, raw.size)
        buffer.target.fill_from(raw, offset)

    def read(self, buffer: Buffer, dtype: npt.DTypeLike, count: int, offset: int = 0) -> Array:
        """A copy of ``count`` elements from byte ``offset`` of ``buffer``."""
        size = np.dtype(dtype).itemsize * count
        self._check(buffer, offset, size)
        return np.frombuffer(buffer.target.bytes[offset : offset + size].tobytes(), dtype).copy()

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Set every byte of ``buffer`` to ``byte``."""
        self._check(buffer, 0, 0)
        buffer.target.fill_from(np.full(buffer.nbytes, byte & 0xFF, np.uint8))

    def cooperative(self, kernel: EmulatorKernel) -> EmulatorKernel:
        """The same kernel: in the emulator, every launch is a cooperative one."""
        return kernel

    def launch(
        self,
        kernel: EmulatorKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int,
        args: Sequence[Buffer | np.generic | bytes],
    ) -> None:
        """Run ``kernel``. Raises `LaunchError`, `UnsupportedInstruction`, `EmulatorFault`."""
        self.launch_in_groups(kernel, grid, block, shared, args, None)

    def launch_in_groups(
        self,
        kernel: EmulatorKernel,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        shared: int,
        args: Sequence[Buffer | np.generic | bytes],
        groups: BlockGroups | None,
    ) -> None:
        """The same as `launch`, and ``groups`` counts what its groups of blocks execute."""
        params = check_arguments(kernel.entry, args)
        values: list[bytes] = []
        for param, value in zip(params, args, strict=True):
            if isinstance(value, Buffer):
                self._check(value, 0, 0)
                if param.bytes not in (4, 8):
                    raise LaunchError(f"parameter '{param.name}' has {param.bytes} bytes; a pointer has 4 or 8")
                values.append(value.address.to_bytes(param.bytes, "little"))
            else:
                values.append(scalar_bytes(param, value))
        result = kernel.module.launch_bytes(
            kernel.entry,
            grid,
            block,
            values,
            shared,
            self.options,
            schedule=self.schedule,
            seed=self.seed,
            keep_going=self.keep_going,
            judge=self.judge,
            groups=groups,
        )
        self.counts.add(result.counts)
        self.findings += result.findings
        self.output.append(result.output)
        if result.trace is not None:
            self.traces.append(result.trace)

    def synchronize(self) -> None:
        """Does nothing: a launch has ended when `launch` returns."""

    def _check(self, buffer: Buffer, offset: int, nbytes: int) -> None:
        if buffer.target.is_free:
            raise LaunchError(f"{buffer.target.name} has been freed")
        if offset < 0 or offset + nbytes > buffer.nbytes:
            raise LaunchError(
                f"bytes {offset} to {offset + nbytes} are outside of {buffer.target.name} ({buffer.nbytes} bytes)"
            )
