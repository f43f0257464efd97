"""All pairs of adjacent launches in a suite's program, with the numbers that the host passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from ptxmotion.emulator.backend import Buffer as DeviceBuffer
from ptxmotion.emulator.backend import EmulatorBackend, EmulatorKernel
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import run
from ptxmotion.transforms.kernel_fusion.fused_kernel import FusedKernel, build
from ptxmotion.transforms.kernel_fusion.fusibility import Fusibility, decide
from ptxmotion.transforms.kernel_fusion.launch_site import Argument, Buffer, LaunchSite, Scalar
from suite_programs import compiled

__all__ = ["AdjacentPair", "adjacent_pairs"]

Triple = tuple[int, int, int]


@dataclass
class AdjacentPair:
    """Two kernels that are launched one after the other, ``times`` times.

    ``worst`` is the worst verdict for the numbers that were passed. ``fused`` is the last fused kernel. ``differences``
    describe how its runs differed from separate launches.
    """

    first: str
    second: str
    times: int
    worst: Fusibility
    fused: FusedKernel | None = None
    differences: tuple[str, ...] = ()


_ORDER = ("thread", "block", "grid", "none")


class _Recorder(EmulatorBackend):
    """Examines each launch together with the one before. It fuses some of them in addition and compares memory."""

    def __init__(self, tries: int, *, grid_barrier: bool = False) -> None:
        super().__init__(counts=False)
        self.pairs: dict[tuple[str, str], AdjacentPair] = {}
        self.tries = tries
        self.grid_barrier = grid_barrier
        #: Arguments by value that are not integers.
        self._values: dict[tuple[str, str], Any] = {}
        self._last: tuple[LaunchSite, dict[int, Any]] | None = None
        self._tried: dict[tuple[str, str], int] = {}

    def write(self, buffer: DeviceBuffer, array: Any, offset: int = 0) -> None:
        self._last = None
        super().write(buffer, array, offset)

    def fill(self, buffer: DeviceBuffer, byte: int) -> None:
        self._last = None
        super().fill(buffer, byte)

    def read(self, buffer: DeviceBuffer, dtype: Any, count: int, offset: int = 0) -> Any:
        self._last = None
        return super().read(buffer, dtype, count, offset)

    def launch(self, kernel: EmulatorKernel, grid: Any, block: Any, shared: int, args: Sequence[Any]) -> None:
        site = self._site(kernel, grid, block, shared, args)
        before = self._memory()
        super().launch(kernel, grid, block, shared, args)
        if self._last is not None:
            self._look(self._last[0], site, self._last[1])
        self._last = site, before

    def _site(self, kernel: EmulatorKernel, grid: Any, block: Any, shared: int, args: Sequence[Any]) -> LaunchSite:
        arguments: dict[str, Argument] = {}
        for param, value in zip(kernel.entry.params or (), args, strict=True):
            if isinstance(value, DeviceBuffer):
                arguments[param.name] = Buffer(value.target.name)
            elif isinstance(value, np.generic) and cast("Any", value).dtype.kind in "iu":
                arguments[param.name] = Scalar(int(cast("Any", value)))
            else:
                arguments[param.name] = Scalar(None)
                self._values[kernel.name, param.name] = value
        return LaunchSite(kernel.entry, kernel.module.loaded.module, _three(grid), _three(block), shared, arguments)

    def _memory(self) -> dict[int, Any]:
        return {id(found): found.bytes.copy() for found in self._objects()}

    def _objects(self) -> list[Any]:
        return [found for found in self.device.space().objects if found.space == "global" and not found.is_free]

    def _look(self, first: LaunchSite, second: LaunchSite, before: dict[int, Any]) -> None:
        verdict = decide(first, second, may_pad=True)
        key = first.kernel.name, second.kernel.name
        pair = self.pairs.setdefault(key, AdjacentPair(*key, 0, verdict))
        pair.times += 1
        if _ORDER.index(verdict.kind) > _ORDER.index(pair.worst.kind):
            pair.worst = verdict
        self._tried[key] = self._tried.get(key, 0) + 1
        wanted = ("thread", "block", "grid") if self.grid_barrier else ("thread", "block")
        if verdict.kind in wanted and self._tried[key] <= self.tries:
            self._try(pair, first, second, verdict, before)

    def _try(
        self, pair: AdjacentPair, first: LaunchSite, second: LaunchSite, verdict: Fusibility, before: dict[int, Any]
    ) -> None:
        """Run the fused kernel on the memory from before both launches, compare, and restore the memory."""
        fused = pair.fused = build(first, second, verdict, name="fused", grid_barrier=self.grid_barrier)
        wanted = self._memory()
        objects = [found for found in self._objects() if id(found) in before]
        for found in objects:
            found.bytes[:] = before[id(found)]
        loaded = self.device.load(fused.module)
        sites = first, second
        values = [self._bytes(sites[side], name) for side, name in fused.parameters]
        result = loaded.launch_bytes(
            fused.kernel,
            [int(extent) for extent in fused.grid],
            [int(extent) for extent in first.block],
            values,
            int(fused.shared_bytes),
            self.options,
            keep_going=True,
        )
        after = self._memory()
        known = {finding.kind for finding in self.findings}
        differing = [found.name for found in objects if not np.array_equal(after[id(found)], wanted[id(found)])]
        pair.differences += tuple(differing)
        pair.differences += tuple(str(each) for each in result.findings if each.kind not in known)
        for found in objects:
            found.bytes[:] = wanted[id(found)]

    def _bytes(self, site: LaunchSite, name: str) -> bytes:
        if name.startswith("%nctaid"):
            return int(site.grid["xyz".index(name[-1])]).to_bytes(4, "little")
        param = next(each for each in site.kernel.params or () if each.name == name)
        argument = site.arguments[name]
        if isinstance(argument, Buffer):
            target = next(found for found in self._objects() if found.name == argument.name)
            return int(target.base).to_bytes(8, "little")
        if argument.value is None:
            value = self._values[site.kernel.name, name]
            return value if isinstance(value, bytes) else value.tobytes()
        return (int(argument.value) & ((1 << 8 * param.bytes) - 1)).to_bytes(param.bytes, "little")


def _three(value: Any) -> Triple:
    parts = [int(part) for part in (value if hasattr(value, "__iter__") else [value])]
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z


def adjacent_pairs(name: str, tries: int = 1, *, grid_barrier: bool = False) -> list[AdjacentPair]:
    """The pairs of program ``name`` in its smallest size. Up to ``tries`` of each are fused and run."""
    backend = _Recorder(tries, grid_barrier=grid_barrier)
    outcome = run(find(name), backend, compiled(name), "tiny", 0)
    assert outcome.differences == []
    return list(backend.pairs.values())
