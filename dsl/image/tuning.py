"""Chooses the lowering of each operator by measured times (`tuned`), and keeps the times.

A node has the kernels that the model `isp+m` compares: naive, partitioned by blocks, partitioned by warps, and with
several pixels of a thread. All of them are timed on the GPU. The fastest is chosen; another one than the naive one only
if it is faster by more than `LEAST_GAIN`. Times are kept in one file, ``image-times.json`` in the cache folder, with
the machine and the date. They are used again only on a machine with the same name and driver, for the same PTX, sizes
and blocks. Without a cache folder, nothing is kept.

Refuses: with `MachineMissing`, a machine without a GPU; with `DslError`, a file that is broken.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...cache import cache_folder
from .. import types as t
from ..errors import DslError
from .compiling import compiler
from .graph import Graph
from .lowered import Launch, Lowered, Options
from .operators import Image, Node, ScalarInput
from .partition_model import by_choice, lowerings_of, node_launch
from .windows import layout_of

if TYPE_CHECKING:
    from ..compilation import Nvcc

__all__ = ["GpuTimer", "KeptTimes", "Timer", "Timing", "tuned"]

#: A partitioned kernel is chosen if it is faster by more than this share. Less is within the noise of two measurements.
LEAST_GAIN = 0.01


class Timer(Protocol):
    """Times kernels. ``machine`` names the GPU and its driver."""

    machine: str

    def seconds(self, launches: Sequence[Launch], ptx: Sequence[str]) -> list[float]:
        """The time of each launch in seconds; ``ptx`` has the compiled kernels."""
        ...


@dataclass(frozen=True)
class Timing:
    """The measured times of a node, in seconds by lowering. ``key`` is a digest of the kernels and their arguments."""

    key: str
    machine: str
    date: str
    node: str
    size: tuple[int, int]
    block: tuple[int, int]
    seconds: Mapping[str, float]

    @property
    def best(self) -> str:
        """The fastest lowering; the naive one unless another is clearly faster."""
        best = min(self.seconds, key=lambda name: self.seconds[name])
        return best if self.seconds[best] * (1 + LEAST_GAIN) < self.seconds["naive"] else "naive"

    def lines(self) -> list[str]:
        """The times and the decision, as lines of text."""
        times = ", ".join(f"{name} {seconds * 1e6:.2f} us" for name, seconds in self.seconds.items())
        return [f"measured on {self.machine}, {self.date}: {times}", f"chosen: {self.best}"]


class KeptTimes:
    """The file of kept times. ``path`` is None where nothing is kept. The key of an entry is (machine, digest)."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: dict[tuple[str, str], Timing] = _read(path) if path is not None else {}

    @staticmethod
    def of_user() -> KeptTimes:
        """The file in the user's cache folder."""
        folder = cache_folder()
        return KeptTimes(folder / "image-times.json" if folder is not None else None)

    def add(self, timings: Sequence[Timing]) -> None:
        """Add entries, and write the file. Entries that another process has written meanwhile stay."""
        if self.path is None or not timings:
            return
        self.entries = {**_read(self.path), **{(each.machine, each.key): each for each in timings}}
        text = json.dumps([asdict(each) for each in self.entries.values()], indent=1) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(self.path)


def _read(path: Path) -> dict[tuple[str, str], Timing]:
    try:
        found = [_timing(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DslError(f"{path} has no times of image kernels ({error}): delete it") from error
    return {(each.machine, each.key): each for each in found}


def _timing(entry: Any) -> Timing:
    """An entry of the file. Raises `TypeError`, `KeyError` or `ValueError` if it is broken."""
    fields = cast("dict[str, Any]", dict(entry))
    width, height = (int(each) for each in fields["size"])
    x, y = (int(each) for each in fields["block"])
    seconds = {str(name): float(value) for name, value in dict(fields["seconds"]).items()}
    if "naive" not in seconds or not all(value > 0 for value in seconds.values()):
        raise ValueError("an entry has no times")
    key, machine, date, node = (str(fields[name]) for name in ("key", "machine", "date", "node"))
    return Timing(key, machine, date, node, (width, height), (x, y), seconds)


def tuned(
    graph: Graph, options: Options, timer: Callable[[], Timer] | None = None, kept: KeptTimes | None = None
) -> Lowered:
    """One kernel for each operator, by the lowering that is fastest on this machine. The notes of a launch say why.

    ``timer`` opens the timer, by default that of the first GPU. ``kept`` are the times that are known, by default those
    of the user's file.
    """
    nvcc = options.nvcc or compiler()
    names = [lowerings_of(node, options) for node in graph.nodes]
    chosen = ["naive" for _ in graph.nodes]
    notes: list[list[str]] = [[] for _ in graph.nodes]
    if any(len(each) > 1 for each in names):
        known, opened = kept if kept is not None else KeptTimes.of_user(), (timer or GpuTimer)()
        new: list[Timing] = []
        for number, (node, lowerings) in enumerate(zip(graph.nodes, names, strict=True)):
            if len(lowerings) > 1:
                found = _timed(node, lowerings, options, nvcc, opened, known, new)
                chosen[number], notes[number] = found.best, found.lines()
        known.add(new)
    made = by_choice(graph, options, chosen, "tuned")
    launches = [
        replace(launch, notes=(*launch.notes, *more)) for launch, more in zip(made.launches, notes, strict=True)
    ]
    return replace(made, launches=tuple(launches))


def _timed(
    node: Node[Any],
    lowerings: Sequence[str],
    options: Options,
    nvcc: Nvcc,
    timer: Timer,
    known: KeptTimes,
    new: list[Timing],
) -> Timing:
    """The times of a node: those that are known or new, or measured ones, which are then added to ``new``."""
    launches = [node_launch(node, each, "kernel", options) for each in lowerings]
    ptx = [each.kernel.ptx(nvcc) for each in launches]
    digest = hashlib.sha256()
    for launch, text in zip(launches, ptx, strict=True):
        digest.update(repr((text, launch.grid, launch.block, _shown(launch))).encode())
    key = digest.hexdigest()[:32]
    measured = {(each.machine, each.key): each for each in new}
    found = known.entries.get((timer.machine, key)) or measured.get((timer.machine, key))
    if found is None:
        seconds = timer.seconds(launches, ptx)
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        size = int(node.width), int(node.height)
        times = dict(zip(lowerings, seconds, strict=True))
        found = Timing(key, timer.machine, date, node.name, size, options.block, times)
        new.append(found)
    return found


def _shown(launch: Launch) -> list[tuple[str, ...]]:
    """The arguments of a launch without names: sizes and pixels of images, numbers."""
    images: dict[Image[Any], int] = {}
    shown: list[tuple[str, ...]] = []
    for each in launch.arguments:
        value: Any = each.value
        if isinstance(value, Image):
            image = cast("Image[Any]", value)
            number = images.setdefault(image, len(images))
            shown.append((str(number), str(image.pixel), str(int(image.width)), str(int(image.height))))
        else:
            shown.append(("number", "1" if isinstance(value, ScalarInput) else str(int(value))))
    return shown


class GpuTimer:
    """Times kernels on the first visible GPU. Raises `MachineMissing` if there is none.

    The time of a kernel is that of a CUDA graph with several launches, divided by their number; the median of
    `ROUNDS`. Kernels take turns. Images have random pixels, and a number that a pipeline takes is 1.
    """

    ROUNDS = 15
    #: Seconds of a graph.
    SAMPLE = 200e-6

    def __init__(self) -> None:
        from ...harness.cuda import open_backend
        from ...harness.machine import MachineMissing

        try:
            self.backend = open_backend()
        except MachineMissing as error:
            raise MachineMissing(f"times are measured on a GPU: {error.reason}", error.advice) from error
        about = self.backend.describe()
        self.machine = f"{about['gpu']}, driver {about['driver'] or about['driver_cuda']}"
        self.events = self.backend.event(), self.backend.event()

    def seconds(self, launches: Sequence[Launch], ptx: Sequence[str]) -> list[float]:
        """The time of each launch in seconds."""
        memory: dict[Image[Any], Any] = {}
        try:
            calls = [self._call(launch, text, memory) for launch, text in zip(launches, ptx, strict=True)]
            return self._medians(calls)
        finally:
            for buffer in memory.values():
                self.backend.free(buffer)

    def _call(self, launch: Launch, ptx: str, memory: dict[Image[Any], Any]) -> Callable[[], object]:
        kernel = self.backend.load(ptx).kernel(launch.kernel.entry(ptx))
        values: list[Any] = []
        for each in launch.arguments:
            value: Any = each.value
            if isinstance(value, Image):
                image = cast("Image[Any]", value)
                if image not in memory:
                    memory[image] = self._pixels(image)
                values.append(memory[image])
            else:
                type = each.param.type
                assert isinstance(type, t.Scalar)
                values.append(type.dtype.type(1 if isinstance(value, ScalarInput) else int(value)))
        (columns, rows), (x, y) = launch.grid, launch.block
        packed = self.backend.pack(kernel, values)
        return self.backend.launch_call(kernel, (int(columns), int(rows), 1), (x, y, 1), 0, packed)

    def _pixels(self, image: Image[Any]) -> Any:
        """A buffer with random pixels: from 0 to 1, or from 0 to 100 for integers."""
        import numpy as np

        dtype, lanes = layout_of(image.pixel)
        count = int(image.width) * int(image.height) * lanes
        numbers = np.random.default_rng(0)
        values = numbers.random(count) if dtype.kind == "f" else numbers.integers(0, 101, count)
        buffer = self.backend.allocate(count * dtype.itemsize)
        self.backend.write(buffer, values.astype(dtype))
        return buffer

    def _medians(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        probe = self._graph(calls[0], 3)
        count = max(2, min(50, int(self.SAMPLE / min(self._sample(probe) / 3 for _ in range(3)))))
        self.backend.destroy_graph(probe)
        graphs = [self._graph(call, count) for call in calls]
        found: list[list[float]] = [[] for _ in calls]
        order = random.Random(0)
        for number in range(self.ROUNDS + 1):
            for which in order.sample(range(len(calls)), len(calls)):
                seconds = self._sample(graphs[which])
                if number:
                    found[which].append(seconds / count)
        for graph in graphs:
            self.backend.destroy_graph(graph)
        return [statistics.median(each) for each in found]

    def _graph(self, call: Callable[[], object], count: int) -> Any:
        def body() -> None:
            for _ in range(count):
                call()

        call()
        self.backend.synchronize()
        return self.backend.graph(body)

    def _sample(self, graph: Any) -> float:
        first, last = self.events
        self.backend.record(first)
        self.backend.launch_graph(graph)
        self.backend.record(last)
        self.backend.synchronize()
        return self.backend.seconds_between(first, last)
