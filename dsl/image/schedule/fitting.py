"""Weights of cost functions from measured times.

The weights are those that are not negative and make the sum of squared relative errors least. A small part of the
objective keeps them near the weights that are known (`costs.model_here`), so that terms that hardly vary in the
measured schedules get no weight by chance. `leave_one_out` fits without the schedules of one program and then predicts
these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .costs import LAUNCH, Model
from .work import Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Measured", "Prediction", "fitted", "leave_one_out", "save"]

#: The share of the objective for known weights.
_KNOWN = 0.003


@dataclass(frozen=True)
class Measured:
    """A schedule that was measured: the program, the width of its images, what its kernels do, and microseconds."""

    program: str
    size: int
    works: tuple[Work, ...]
    microseconds: float


@dataclass(frozen=True)
class Prediction:
    """How well a model predicts the schedules of a program, for images of one size, that it was not fitted to: the rank
    correlation with the times, and the time of the schedule that the model prefers over the least time."""

    program: str
    size: int
    schedules: int
    correlation: float
    chosen_over_best: float

    def __str__(self) -> str:
        return (
            f"{self.program} {self.size}: {self.schedules} schedules, rank correlation {self.correlation:.2f}, "
            f"chosen over best {self.chosen_over_best:.2f}"
        )


def fitted(model: Model, measured: Sequence[Measured], machine: str) -> Model:
    """The model with the weights for these times."""
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


def leave_one_out(model: Model, measured: Sequence[Measured]) -> list[Prediction]:
    """For each program: how well the model predicts it that was fitted to the others."""
    import numpy as np

    predictions: list[Prediction] = []
    for program, size in dict.fromkeys((each.program, each.size) for each in measured):
        own = [each for each in measured if (each.program, each.size) == (program, size)]
        others = [each for each in measured if each.program != program]
        if len(own) < 3 or not others:
            continue
        made = fitted(model, others, model.machine)
        estimates = np.array([sum(made(work) for work in each.works) for each in own])
        times = np.array([each.microseconds for each in own])
        ranks = [np.argsort(np.argsort(each, kind="stable"), kind="stable") for each in (estimates, times)]
        correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
        chosen = float(times[int(np.argmin(estimates))] / times.min())
        predictions.append(Prediction(program, size, len(own), correlation, chosen))
    return predictions


def save(path: Path, models: Mapping[str, Model]) -> None:
    """Write the weights of models by their names, for `costs.model_here`."""
    machines = {model.machine for model in models.values()}
    document: dict[str, Any] = {"machine": ", ".join(sorted(machines))}
    for name, model in models.items():
        document[name] = dict(zip(model.names, model.weights, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
