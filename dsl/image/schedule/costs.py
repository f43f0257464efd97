"""Cost functions of groups, and their weights.

`TimeModel` is the model of time that all searches share (`fusion.cost`). `Model` is a weighted sum of terms of the work
of a kernel, in microseconds; `terms_of_paper` are the seven terms of the cost function of Jangda and Guha. The numbers
of the first one and the weights of the second one are fitted to measured times (`fitting`); those of this GPU are kept
in the cache, and without them those of an H200 are used.

Differences from the paper: the terms are for one pixel of a result, so that tiles of different sizes can be compared;
a sum over groups weighs each group with its pixels and adds the time of a launch; and transactions are counted for
stores, too. The weights are then times.

Source: Jangda, Guha: Model-Based Warp Overlapped Tiling, §6 (algorithm 2, table 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ....arch import REGISTERS, architecture
from ...errors import DslError
from ..fusion.cost import seconds_of
from ..fusion.machine import FITTED, Machine, machine_here, multiprocessors_here, weights_path
from ..groups import Group
from .work import SECTOR, Work

__all__ = [
    "LAUNCH",
    "PAPER",
    "Costed",
    "Model",
    "TimeModel",
    "cheapest",
    "paper_model",
    "terms_of_paper",
    "time_model",
    "weights_path",
]

#: Microseconds of a kernel of a CUDA graph that does nothing.
LAUNCH = 0.9

#: Bytes and operations per microsecond of the GPU.
_BYTES, _OPERATIONS = 4.2e6, 1.4e7

Terms: TypeAlias = "Callable[[Work], tuple[float, ...]]"

#: The terms of the paper, in its order.
PAPER = ("transactions", "idle warps", "memory/compute", "unused shared", "unused registers", "overlap", "last wave")


class Costed(NamedTuple):
    """A group, and what its kernel costs, in the unit of the cost function."""

    group: Group
    cost: float


def cheapest(groups: Iterable[Costed]) -> Costed | None:
    """The first one of the groups with the least cost. None if there is none."""
    return min(groups, key=attrgetter("cost"), default=None)


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
        -(-work.blocks // wave) / waves - 1 if waves else 0.0,
    )


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


@dataclass(frozen=True)
class TimeModel:
    """The model of time with the numbers of a machine, in microseconds."""

    numbers: Machine

    @property
    def name(self) -> str:
        """The name of the cost function, for messages and tables."""
        return "time"

    @property
    def machine(self) -> str:
        """Where the numbers come from."""
        return self.numbers.name

    def __call__(self, work: Work) -> float:
        """Microseconds of the kernel."""
        return seconds_of(work, self.numbers) * 1e6

    def __str__(self) -> str:
        parts = [f"{name} {getattr(self.numbers, name):.3g}" for name in FITTED]
        return f"{self.name} ({self.machine}): {', '.join(parts)}"


#: The weights of the paper's terms on an H200.
_PAPER_WEIGHTS = (2.7, 5.26, 0.001, 0.325, 0.189, 0.545, 0.593)


def time_model(path: Path | None = None) -> TimeModel:
    """The model of time with the numbers of this GPU, or of an H200. Raises `DslError` for a broken file."""
    return TimeModel(machine_here(path))


def paper_model(path: Path | None = None) -> Model:
    """The model of the paper with the weights of this GPU, or of an H200. Raises `DslError` for a broken file."""
    path = path or weights_path()
    if path is None or not path.is_file():
        return Model("paper", PAPER, terms_of_paper, _PAPER_WEIGHTS, "an H200")
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
        chosen: Sequence[Any] = [document["paper"][each] for each in PAPER]
        if any(isinstance(each, bool) or not isinstance(each, int | float) or each < 0 for each in chosen):
            raise ValueError("weights of paper are numbers that are not negative")
        return Model("paper", PAPER, terms_of_paper, tuple(float(each) for each in chosen), str(document["machine"]))
    except (ValueError, KeyError, TypeError, RecursionError) as why:
        message = f"{path} does not have the weights of schedules ({why}): fit them again, or delete the file"
        raise DslError(message) from None
