"""Weights of cost functions from measured times.

The weights of the paper's cost function are those that are not negative and make the sum of squared relative errors
least. The numbers of the model of time make the sum of the squared logarithms of estimate over time least; they are
found by changing one number after the other. A small part of both objectives keeps them near those that are known, so
that terms that hardly vary in the measured schedules get no weight by chance. `leave_one_out` fits without the
schedules of one program and then predicts these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..fusion.cost import seconds_of
from ..fusion.machine import FITTED, Machine
from .costs import LAUNCH, Model, TimeModel
from .work import Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Measured", "Prediction", "fitted", "leave_one_out", "save"]

AnyModel = TypeVar("AnyModel", Model, TimeModel)

#: The share of the objective for known weights.
_KNOWN = 0.003


@dataclass(frozen=True)
class Measured:
    """A schedule that was measured: the program, the width of its images, what its kernels do, and microseconds. Each
    ``series`` of schedules of a program has the same weight in a fit."""

    program: str
    size: int
    works: tuple[Work, ...]
    microseconds: float
    series: str = ""


@dataclass(frozen=True)
class Prediction:
    """How well a model predicts a series of schedules of a program, for images of one size, that it was not fitted to:
    the rank correlation with the times, the time of the schedule that the model prefers over the least time, and the
    root mean square of the logarithms of estimate over time."""

    program: str
    size: int
    schedules: int
    correlation: float
    chosen_over_best: float
    error: float

    def __str__(self) -> str:
        return (
            f"{self.program} {self.size}: {self.schedules} schedules, rank correlation {self.correlation:.3f}, "
            f"chosen over best {self.chosen_over_best:.2f}, error {self.error:.2f}"
        )


#: What the numbers of the model of time are multiplied by and divided by, one factor after the other.
_FACTORS = (1.5, 1.2, 1.08, 1.03, 1.01)


def fitted(model: AnyModel, measured: Sequence[Measured], machine: str) -> AnyModel:
    """The model with the weights or numbers for these times."""
    if isinstance(model, TimeModel):
        return TimeModel(_fitted_machine(model.numbers, measured, machine))
    return _fitted_weights(model, measured, machine)


def _fitted_machine(known: Machine, measured: Sequence[Measured], name: str) -> Machine:
    found, least = known, _loss(known, known, measured)
    for factor in _FACTORS:
        has_changed = True
        while has_changed:
            has_changed = False
            for field in FITTED:
                for value in (getattr(found, field) * factor, getattr(found, field) / factor):
                    made = replace(found, **{field: value})
                    loss = _loss(made, known, measured)
                    if loss < least * 0.9999:
                        found, least, has_changed = made, loss, True
    return replace(found, name=name)


def _loss(machine: Machine, known: Machine, measured: Sequence[Measured]) -> float:
    """What the numbers should make least. All programs, sizes and series have the same weight."""
    #: By program, size and series: the squared errors of its schedules.
    squares: dict[tuple[str, int, str], list[float]] = {}
    for each in measured:
        estimate = sum(seconds_of(work, machine) for work in each.works) * 1e6
        squares.setdefault((each.program, each.size, each.series), []).append(log(estimate / each.microseconds) ** 2)
    moved = sum(log(getattr(machine, field) / getattr(known, field)) ** 2 for field in FITTED)
    return sum(sum(each) / len(each) for each in squares.values()) / len(squares) + _KNOWN * moved


def _fitted_weights(model: Model, measured: Sequence[Measured], machine: str) -> Model:
    import numpy as np

    sums = np.array([_terms(model, each) for each in measured])
    times = np.array([max(1e-3, each.microseconds - LAUNCH * len(each.works)) for each in measured])
    known = np.array([weight if weight > 0 else 1e-3 for weight in model.weights])
    share = (_KNOWN * len(measured)) ** 0.5
    left = np.vstack([sums / times[:, None], share * np.diag(1 / known)])
    right = np.concatenate([np.ones(len(times)), share * np.ones(len(known))])
    return replace(model, weights=tuple(_not_negative(left, right)), machine=machine)


def _terms(model: Model, measured: Measured) -> list[float]:
    """The terms of all kernels of a schedule, which the weights multiply to microseconds."""
    sums = [0.0] * len(model.names)
    for work in measured.works:
        for at, term in enumerate(model.terms(work)):
            sums[at] += term * work.pixels * 1e-6
    return sums


def _not_negative(left: NDArray[Any], right: NDArray[Any]) -> list[float]:
    """The vector without negative components for which ``left`` times it is nearest to ``right``, by descent along one
    component after the other."""
    import numpy as np

    squares, products = left.T @ left, left.T @ right
    found = np.zeros(left.shape[1])
    for _ in range(2000):
        for at in range(len(found)):
            if squares[at, at] > 0:
                slope = squares[at] @ found - products[at]
                found[at] = max(0.0, found[at] - slope / squares[at, at])
    return [float(each) for each in found]


def leave_one_out(model: AnyModel, measured: Sequence[Measured]) -> list[Prediction]:
    """For each program, size and series: how well the model predicts it that was fitted to the other programs."""
    import numpy as np

    predictions: list[Prediction] = []
    made: dict[str, AnyModel] = {}
    for program, size, series in dict.fromkeys((each.program, each.size, each.series) for each in measured):
        own = [each for each in measured if (each.program, each.size, each.series) == (program, size, series)]
        others = [each for each in measured if each.program != program]
        if len(own) < 3 or not others:
            continue
        if program not in made:
            made[program] = fitted(model, others, model.machine)
        estimates = np.array([sum(map(made[program], each.works)) for each in own])
        times = np.array([each.microseconds for each in own])
        ranks = [np.argsort(np.argsort(each, kind="stable"), kind="stable") for each in (estimates, times)]
        correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        chosen = float(times[int(np.argmin(estimates))] / times.min())
        error = float(np.sqrt(np.mean(np.log(estimates / times) ** 2)))
        predictions.append(Prediction(program, size, len(own), correlation, chosen, error))
    return predictions


def save(path: Path, time: TimeModel, paper: Model) -> None:
    """Write what was fitted, for `costs.time_model` and `costs.paper_model`."""
    document: dict[str, Any] = {"machine": ", ".join(sorted({time.machine, paper.machine}))}
    document["time"] = {name: getattr(time.numbers, name) for name in FITTED}
    document["paper"] = dict(zip(paper.names, paper.weights, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
