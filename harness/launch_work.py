"""Single launches of a work, with the memory that they find: what is timed to tune a contract.

`observe` runs a work once and returns the kernel and the size of each launch. `snapshots` runs it again, and keeps the
arguments of chosen launches and the content that their buffers have before the launch. `LaunchWork` is a work of such
launches, each with buffers of its own. It is plain data, so another process or another machine can run it.

Requires: a host program that makes the same launches in each run. A launch whose snapshot is of another kernel is left
out. Guarantees: a program runs as it does without the observation.
Refuses: cooperative launches, and arguments that are a part of a buffer, are not kept. `ValueError` for a file that
`LaunchWork.save` has not written.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from ..contract import Extent, KernelContract, Launch
from .contract_guard import address_of
from .workload import Arm, Work

__all__ = ["LaunchWork", "ObservedLaunch", "Snapshot", "observe", "snapshots"]

Triple = tuple[int, int, int]

#: The version of the files of `LaunchWork.save`.
_FORMAT = 1


class ObservedLaunch(NamedTuple):
    """A launch of a run: the PTX of its module, the kernel, and the number of threads."""

    ptx: str
    kernel: str
    threads: int


@dataclass(frozen=True)
class Snapshot:
    """A launch. An argument is the number of a buffer, a NumPy scalar, or bytes. ``buffers``: the content of each
    buffer. ``addresses``: where they were in the observed run."""

    ptx: str
    kernel: str
    grid: Triple
    block: Triple
    shared: int
    args: tuple[int | np.generic | bytes, ...]
    buffers: tuple[bytes, ...]
    addresses: tuple[int, ...]

    @property
    def threads(self) -> int:
        """The threads of the launch."""
        return math.prod(self.grid) * math.prod(self.block)

    @property
    def nbytes(self) -> int:
        """The bytes of its buffers."""
        return sum(map(len, self.buffers))

    def facts(self, kernel: KernelContract) -> Launch:
        """The facts of the launch that the conditions of a contract read. The extent of a pointer is its buffer."""
        arguments: list[int | bytes | None] = []
        extents: dict[int, Extent | None] = {}
        for index, (parameter, arg) in enumerate(zip(kernel.parameters, self.args, strict=True)):
            if isinstance(arg, int):
                begin = self.addresses[arg]
                arguments.append(begin)
                extents[index] = Extent(begin, begin + len(self.buffers[arg]))
            else:
                raw = arg if isinstance(arg, bytes) else arg.tobytes()
                arguments.append(parameter.value(raw))
        return Launch(tuple(arguments), self.grid, self.block, self.shared, extents)


@dataclass(frozen=True)
class LaunchWork:
    """A work of launches of one kernel, one after another. The name of its module is ``module``.

    No host program and no reference exist: the content of all buffers after the launches is compared.
    """

    fullname: str
    launches: tuple[Snapshot, ...]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    module: str = "module"

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.fullname.partition("/")[0]

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """Do nothing: the data is here, and there is no reference."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, Any]:
        """Allocate and write all buffers, then launch. The results are in the buffers only."""
        loaded = backend.load(modules[self.module])
        prepared: list[tuple[Snapshot, list[Any]]] = []
        for each in self.launches:
            buffers: list[Any] = []
            for content in each.buffers:
                buffers.append(backend.allocate(len(content)))
                if content:
                    backend.write(buffers[-1], np.frombuffer(content, np.uint8))
            prepared.append((each, buffers))
        for each, buffers in prepared:
            args = [buffers[arg] if isinstance(arg, int) else arg for arg in each.args]
            backend.launch(loaded.kernel(each.kernel), each.grid, each.block, each.shared, args)
        backend.synchronize()
        for _, buffers in prepared:
            for buffer in buffers:
                backend.free(buffer)
        return {}

    def check(self, seed: int, outputs: Mapping[str, Any], /) -> list[str]:
        """There is no reference, so no error is found."""
        return []

    # --- files -------------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The work as the bytes of a file: a NumPy archive with a description and each buffer."""
        arrays: dict[str, Any] = {}
        launches: list[dict[str, Any]] = []
        for number, each in enumerate(self.launches):
            args: list[Any] = []
            for place, arg in enumerate(each.args):
                if isinstance(arg, int):
                    args.append(["buffer", arg])
                elif isinstance(arg, bytes):
                    args.append(["bytes", arg.hex()])
                else:
                    arrays[f"a{number}_{place}"] = np.asarray(arg)
                    args.append(["scalar", f"a{number}_{place}"])
            for place, content in enumerate(each.buffers):
                arrays[f"b{number}_{place}"] = np.frombuffer(content, np.uint8)
            launches.append(
                {
                    "ptx": each.ptx,
                    "kernel": each.kernel,
                    "grid": each.grid,
                    "block": each.block,
                    "shared": each.shared,
                    "args": args,
                    "addresses": each.addresses,
                }
            )
        document = {
            "format": _FORMAT,
            "fullname": self.fullname,
            "params": dict(self.params),
            "launches": launches,
        }
        arrays["document"] = np.frombuffer(json.dumps(document).encode("utf-8", "surrogateescape"), np.uint8)
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    @classmethod
    def load(cls, data: bytes) -> LaunchWork:
        """Read what `save` has written. Raises `ValueError`."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                document = json.loads(bytes(arrays["document"]).decode("utf-8", "surrogateescape"))
                if document["format"] != _FORMAT:
                    raise ValueError(f"the format is {document['format']}; this ptxmotion reads {_FORMAT}")
                found = [_snapshot(arrays, number, each) for number, each in enumerate(document["launches"])]
        except (OSError, EOFError, KeyError, TypeError, IndexError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"these are no recorded launches: {error}") from error
        return cls(document["fullname"], tuple(found), document["params"])


def _snapshot(arrays: Any, number: int, launch: Mapping[str, Any]) -> Snapshot:
    args: list[int | np.generic | bytes] = []
    for kind, value in launch["args"]:
        if kind == "buffer":
            args.append(int(value))
        else:
            args.append(bytes.fromhex(value) if kind == "bytes" else arrays[value][()])
    addresses = tuple(int(each) for each in launch["addresses"])
    buffers = tuple(arrays[f"b{number}_{place}"].tobytes() for place in range(len(addresses)))
    x, y, z = launch["grid"]
    p, q, r = launch["block"]
    return Snapshot(
        launch["ptx"], launch["kernel"], (x, y, z), (p, q, r), launch["shared"], tuple(args), buffers, addresses
    )


# --- observing


class _Kernel(NamedTuple):
    ptx: str
    name: str
    inner: Any
    is_cooperative: bool = False


class _Module:
    def __init__(self, ptx: str, inner: Any) -> None:
        self.ptx, self.inner = ptx, inner

    def kernel(self, name: str, /) -> _Kernel:
        return _Kernel(self.ptx, name, self.inner.kernel(name))


class _Observer:
    """A backend around another one. ``seen`` has all launches; ``kept`` maps the number of a launch of ``wanted`` to
    its snapshot. ``_alive`` maps the id of each allocated buffer to the buffer."""

    def __init__(self, inner: Any, wanted: Collection[int] = ()) -> None:
        self.inner, self.wanted = inner, wanted
        self.name: str = inner.name
        self.seen: list[ObservedLaunch] = []
        self.kept: dict[int, Snapshot] = {}
        self._alive: dict[int, Any] = {}

    def load(self, ptx: str, /) -> _Module:
        return _Module(ptx, self.inner.load(ptx))

    def allocate(self, nbytes: int, /) -> Any:
        buffer = self.inner.allocate(nbytes)
        self._alive[id(buffer)] = buffer
        return buffer

    def free(self, buffer: Any, /) -> None:
        self._alive.pop(id(buffer), None)
        self.inner.free(buffer)

    def cooperative(self, kernel: _Kernel, /) -> _Kernel:
        return kernel._replace(inner=self.inner.cooperative(kernel.inner), is_cooperative=True)

    def launch(self, kernel: _Kernel, grid: Any, block: Any, shared: int, args: Sequence[Any], /) -> None:
        sizes = _three(grid), _three(block)
        number = len(self.seen)
        self.seen.append(ObservedLaunch(kernel.ptx, kernel.name, math.prod(sizes[0]) * math.prod(sizes[1])))
        if number in self.wanted and not kernel.is_cooperative:
            kept = self._snapshot(kernel, *sizes, shared, args)
            if kept is not None:
                self.kept[number] = kept
        self.inner.launch(kernel.inner, grid, block, shared, args)

    def _snapshot(
        self, kernel: _Kernel, grid: Triple, block: Triple, shared: int, args: Sequence[Any]
    ) -> Snapshot | None:
        buffers: dict[int, Any] = {}
        kept: list[int | np.generic | bytes] = []
        for each in args:
            if id(each) in self._alive:
                buffers.setdefault(id(each), each)
                kept.append(list(buffers).index(id(each)))
            elif isinstance(each, np.generic | bytes):
                kept.append(cast("Any", each))
            else:
                return None
        addresses = [address_of(each) for each in buffers.values()]
        content = [self.inner.read(each, np.dtype(np.uint8), each.nbytes).tobytes() for each in buffers.values()]
        known = [each for each in addresses if each is not None]
        if len(known) < len(addresses):
            return None
        return Snapshot(kernel.ptx, kernel.name, grid, block, shared, tuple(kept), tuple(content), tuple(known))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _three(size: Any) -> Triple:
    x, y, z = (*(int(each) for each in size), 1, 1, 1)[:3]
    return x, y, z


def observe(backend: Any, work: Work, arm: Arm, seed: int) -> list[ObservedLaunch]:
    """Run an arm of a work once; its launches. Raises what the backend raises."""
    observer = _Observer(backend)
    work.run(observer, arm.modules, seed)
    backend.synchronize()
    return observer.seen


def snapshots(backend: Any, work: Work, arm: Arm, seed: int, wanted: Collection[int]) -> dict[int, Snapshot]:
    """Run an arm of a work once; the snapshots of the launches with these numbers, as far as they can be kept. Raises
    what the backend raises."""
    observer = _Observer(backend, wanted)
    work.run(observer, arm.modules, seed)
    backend.synchronize()
    return observer.kept
