"""Which pairs of pointer parameters a transformed kernel needs to be disjoint.

Computes: the pairs for which the passes used a promise, and a subset of them under which the passes give the same
kernel. The search tries to leave out one pair after the other, so the subset is small but not always the smallest.

Requires: a kernel without nested scopes. Guarantees: under the promise of the returned pairs alone, the passes give the
same kernel as under the promise for all pairs. So whoever checks these pairs has checked everything that was assumed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..analysis.memory.alias import Promise, RecordingPromise
from ..ptx import Kernel, Module, print_kernel
from ..transforms.remarks import Remarks

if TYPE_CHECKING:
    from ..transforms.pipeline import KernelTransform

__all__ = ["Pair", "needed_pairs", "promise_of", "transform_with"]

#: The names of two parameters in alphabetical order.
Pair = tuple[str, str]

#: The most subsets that are tried for one kernel. A trial runs all passes.
MOST_TRIALS = 24


def promise_of(kernel: str, pairs: frozenset[Pair]) -> Promise:
    """The promise that these pairs of parameters of ``kernel`` are disjoint."""
    return Promise(pairs=frozenset((kernel, one, two) for one, two in pairs))


def needed_pairs(
    transform: KernelTransform, module: Module, kernel: Kernel, relevant: frozenset[Pair]
) -> frozenset[Pair]:
    """A small set of pairs under which ``transform`` gives the same as under a promise for all pairs of ``kernel``.

    ``relevant``: the pairs of which one parameter is written. Others are not needed by any correct rewrite, but they
    are kept where the passes give something else without them.
    """
    recording = RecordingPromise(everything=True)
    wanted = _transformed(transform, module, kernel, recording)
    pairs = frozenset((one, two) for _, one, two in recording.asked)
    trials = [pairs & relevant, *(frozenset([pair]) for pair in sorted(pairs))]
    for number, trial in enumerate(trials[:MOST_TRIALS]):
        fewer = trial if number == 0 else pairs - trial
        if fewer < pairs and _transformed(transform, module, kernel, promise_of(kernel.name, fewer)) == wanted:
            pairs = fewer
    return pairs


def transform_with(transform: KernelTransform, module: Module, kernel: Kernel, promise: Promise) -> None:
    """Run the passes over the kernel under a promise, without a gate."""
    replace(transform, promise=promise, timings={}, observer=None)(module, kernel, Remarks(module))


def _transformed(transform: KernelTransform, module: Module, kernel: Kernel, promise: Promise) -> str:
    """The text of the kernel after the passes."""
    copy = kernel.clone()
    transform_with(transform, module, copy, promise)
    return print_kernel(copy)
