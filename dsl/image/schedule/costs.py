"""Cost functions of groups, and their weights.

`Model` is a weighted sum of terms of the work of a kernel, in microseconds. `terms_of_paper` are the seven terms of the
cost function of Jangda and Guha. `terms_of_time` are what takes time: bytes, instructions by kind, and waits.
The weights of both are fitted to measured times (`fitting`); those of this GPU are kept in the cache, and without them
those of an H200 are used.

Differences from the paper: the terms are for one pixel of a result, so that tiles of different sizes can be compared;
a sum over groups weighs each group with its pixels and adds the time of a launch; and transactions are counted for
stores, too. The weights are then times.

Source: Jangda, Guha: Model-Based Warp Overlapped Tiling, §6 (algorithm 2, table 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ....arch import REGISTERS, architecture
from ....cache import cache_folder
from ...errors import DslError
from ..fusion.machine import multiprocessors_here
from .work import SECTOR, Work

__all__ = ["LAUNCH", "PAPER", "TIME", "Model", "model_here", "terms_of_paper", "terms_of_time", "weights_path"]

#: Microseconds of a kernel of a CUDA graph that does nothing.
LAUNCH = 0.9

#: Bytes and operations per microsecond of the GPU.
_BYTES, _OPERATIONS = 4.2e6, 1.4e7

#: Instructions of code that is fetched without delay, and how many more double the time of all.
_CACHED, _FETCHED = 600, 3000

Terms: TypeAlias = "Callable[[Work], tuple[float, ...]]"

#: The terms of the paper, in its order.
PAPER = ("transactions", "idle warps", "memory/compute", "unused shared", "unused registers", "overlap", "last wave")
TIME = ("bytes", "alu", "sfu", "loads", "reads", "shuffles", "filled", "waits", "threads", "blocks", "serial")


def terms_of_paper(work: Work) -> tuple[float, ...]:
    """The seven terms of algorithm 2, for one pixel of a result."""
    row = architecture(90)
    shared = row.shared if row is not None else 0
    pixel_bytes = work.moved / work.pixels
    transactions = work.transactions + pixel_bytes / SECTOR
    computing = (work.alu + 8 * work.sfu) / _OPERATIONS
    moving = transactions * SECTOR / _BYTES
    wave = max(1, work.resident) * multiprocessors_here()
    waves = work.blocks / wave
    return (
        transactions,
        1 - work.occupancy,
        min(10.0, moving / computing) if computing else 10.0,
        1 - min(1.0, work.shared * work.resident / shared) if shared else 1.0,
        1 - min(1.0, work.registers * work.threads * work.resident / REGISTERS),
        work.overlap,
        -(-work.blocks // wave) / waves - 1,
    )


def terms_of_time(work: Work) -> tuple[float, ...]:
    """What one pixel of a result takes. Instructions take longer if the caches for instructions are too small for the
    code."""
    slow = 1 + max(0.0, work.code - _CACHED) / _FETCHED
    counts = (work.alu, work.sfu, work.loads, work.reads, work.shuffles, work.filled)
    threads, blocks = work.blocks * work.threads / work.pixels, work.blocks / work.pixels
    # The last block begins late, so every kernel takes the time of one thread once.
    serial = work.serial * slow / work.pixels * 1e6
    return (work.moved / work.pixels, *(each * slow for each in counts), work.waits, threads, 100 * blocks, serial)


@dataclass(frozen=True)
class Model:
    """A cost function: ``weights`` are picoseconds of a pixel, by the name of a term. ``machine`` says where they come
    from."""

    name: str
    names: tuple[str, ...]
    terms: Terms
    weights: tuple[float, ...]
    machine: str

    def __call__(self, work: Work) -> float:
        """Microseconds of the kernel."""
        each = sum(weight * term for weight, term in zip(self.weights, self.terms(work), strict=True))
        return LAUNCH + max(0.0, each) * work.pixels * 1e-6

    def __str__(self) -> str:
        parts = [f"{name} {weight:.3g}" for name, weight in zip(self.names, self.weights, strict=True)]
        return f"{self.name} ({self.machine}): {', '.join(parts)}"


#: By name of the model: its terms, and its weights on an H200.
_MODELS: Mapping[str, tuple[tuple[str, ...], Terms, tuple[float, ...]]] = {
    "paper": (PAPER, terms_of_paper, (2.7, 5.26, 0.001, 0.325, 0.189, 0.545, 0.593)),
    "time": (TIME, terms_of_time, (0.181, 0.0237, 0.449, 0.0814, 0.214, 0.175, 0.118, 0.001, 0.958, 0.0504, 0.00055)),
}


def weights_path() -> Path | None:
    """The file with the weights of this GPU."""
    folder = cache_folder()
    return folder / "schedule-weights.json" if folder is not None else None


def model_here(name: str, path: Path | None = None) -> Model:
    """The model ``paper`` or ``time`` with the weights of this GPU, or of an H200. Raises `DslError` for a broken
    file."""
    names, terms, weights = _MODELS[name]
    path = path or weights_path()
    if path is None or not path.is_file():
        return Model(name, names, terms, weights, "an H200")
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        chosen: Sequence[Any] = [document[name][each] for each in names]
        if any(isinstance(each, bool) or not isinstance(each, int | float) or each < 0 for each in chosen):
            raise ValueError(f"weights of {name} are numbers that are not negative")
        return Model(name, names, terms, tuple(float(each) for each in chosen), str(document["machine"]))
    except (ValueError, KeyError, TypeError) as why:
        message = f"{path} does not have the weights of schedules ({why}): fit them again, or delete the file"
        raise DslError(message) from None
