"""Checks before timing that a candidate computes what the baseline computes, bit for bit.

Every arm runs on several seeds. New memory is filled with a poison byte, and in a second run with another one, which
detects outputs that are never written or left from an earlier run. Guard bands detect writes outside of buffers. If the
host program is the same, all device memory is compared, which detects changed inputs. Outputs are read as soon as the
stream of the work is done, which detects work on other streams.

Guarantees: bytes are compared. Only outputs that the baseline itself computes differently from run to run are compared
with a tolerance: eight times the largest difference between runs of the baseline, and NaN exactly where the baseline
has NaN.
Refuses: integers that the baseline computes differently each time are `not_comparable`.

Runs in a process that can be killed (`worker`), because a kernel may never end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arch import WARP
from .alias_check import guarded
from .contract_guard import under_contracts
from .results import Correctness
from .workload import Arm, Recorder, Recording, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PATTERNS", "Checker", "Outcome", "run_once"]

#: The poison bytes of new memory.
PATTERNS = (0xA5, 0x3C)

#: The number of further runs of the baseline on each seed, which show whether it is deterministic.
_REPEATS = 2
_MARGIN = 8.0
_SHOWN = 5


@dataclass(frozen=True)
class Outcome:
    """The result of one run: the outputs, and the recording with the state of device memory."""

    outputs: dict[str, NDArray[Any]]
    recording: Recording
    fallbacks: tuple[str, ...] = ()  #: launches that broke a promise about pointers (`alias_check`)


@dataclass
class _Variation:
    """What differs between runs of the baseline. ``outputs`` maps a name to the largest difference; ``buffers`` has
    numbers of buffers; ``reads``: the host read other bytes; ``flow``: the host made other operations."""

    outputs: dict[str, float] = field(default_factory=dict[str, float])
    buffers: set[int] = field(default_factory=set[int])
    reads: bool = False
    flow: bool = False

    @property
    def names(self) -> list[str]:
        return [*sorted(self.outputs), *(f"buffer {index}" for index in sorted(self.buffers))]


def run_once(backend: Any, work: Work, arm: Arm, seed: int, poison: int | None, *, digests: bool = True) -> Outcome:
    """Run an arm once on a backend. Raises what the backend raises."""
    recorder = Recorder(backend, poison, digests=digests)
    watched = under_contracts(guarded(recorder, arm.promises), arm.contracts)
    try:
        outputs = {name: np.asarray(each) for name, each in work.run(watched, arm.modules, seed).items()}
        return Outcome(outputs, recorder.finish(), tuple(getattr(watched, "fallbacks", ())))
    except BaseException:
        recorder.discard()
        raise


class Checker:
    """Checks arms of one work against its baseline.

    ``is_deterministic`` says that equal runs give equal bytes, as on the emulator: then the baseline runs once, and
    each seed has one of the two poison bytes. ``_runs`` maps seed and poison byte to the run of the baseline.
    """

    def __init__(
        self, backend: Any, work: Work, baseline: Arm, seeds: Sequence[int], *, is_deterministic: bool = False
    ) -> None:
        self.backend, self.work, self.baseline, self.seeds = backend, work, baseline, tuple(seeds)
        self.is_deterministic = is_deterministic
        self._runs: dict[tuple[int, int], Outcome] = {}
        self._recorded: dict[str, Recording] = {}
        self._variation = _Variation()
        self.counts: dict[str, Any] = {}

    def _patterns(self, position: int) -> tuple[int, ...]:
        return (PATTERNS[position % len(PATTERNS)],) if self.is_deterministic else PATTERNS

    def get_ready(self) -> None:
        """Compute the data of all seeds and the reference of the first one; this needs no machine."""
        for position, seed in enumerate(self.seeds):
            self.work.get_ready(seed, position == 0)

    def check_baseline(self) -> Correctness:
        """Run the baseline; compare it with itself on every seed, and with the reference on the first seed."""
        wrong: list[str] = []
        for position, seed in enumerate(self.seeds):
            for pattern in self._patterns(position):
                outcome = self._run(self.baseline, seed, pattern, count=not self._runs)
                self._runs[seed, pattern] = outcome
                if (seed, pattern) == (self.seeds[0], PATTERNS[0]):
                    self._keep(self.baseline, outcome)
                # A NumPy reference can take minutes at full size, so it is computed for one seed only.
                if position == 0:
                    wrong += [f"seed {seed}: {line}" for line in self.work.check(seed, outcome.outputs)]
                wrong += _torn(outcome, seed)
            first = self._runs[seed, self._patterns(position)[0]]
            for _ in range(0 if self.is_deterministic else _REPEATS):
                self._vary(first, self._run(self.baseline, seed, PATTERNS[0]))
        return self._result("mismatch" if wrong else "ok", wrong)

    @property
    def recorded(self) -> dict[str, Recording]:
        """The recordings of correct arms on the first seed and poison byte, if the work is deterministic."""
        varies = self._variation
        return {} if varies.flow or varies.reads or varies.buffers or varies.outputs else dict(self._recorded)

    def _keep(self, arm: Arm, found: Outcome) -> None:
        """Keep a recording for the replay. Equal steps of the host are stored once."""
        first = self._runs[self.seeds[0], PATTERNS[0]].recording
        recording = found.recording
        if recording.steps == first.steps:
            recording = replace(recording, steps=first.steps)
        self._recorded[arm.id] = replace(recording, reads=[])

    def launches(self) -> dict[str, tuple[int, int]]:
        """By kernel of the baseline: the threads of its largest block, and the dynamic shared bytes of that launch."""
        largest: dict[str, tuple[int, int]] = {}
        for run in self._runs.values():
            for step in run.recording.launches:
                x, y, z = step.block
                largest[step.kernel] = max(largest.get(step.kernel, (0, 0)), (x * y * z, step.shared))
        return largest

    def check(self, arm: Arm) -> Correctness:
        """Compare an arm with the baseline. Requires `check_baseline`."""
        wrong: list[str] = []
        fallbacks: dict[str, None] = {}
        status = "ok"
        self.counts = {}
        for (seed, pattern), base in self._runs.items():
            outcome = self._run(arm, seed, pattern, count=not self.counts)
            if arm.same_program and (seed, pattern) == (self.seeds[0], PATTERNS[0]):
                self._keep(arm, outcome)
            fallbacks.update(dict.fromkeys(outcome.fallbacks))
            lines, unclear = self._differences(base, outcome, arm.same_program)
            lines += _torn(outcome, seed)
            wrong += [line if line.startswith("seed") else f"seed {seed}: {line}" for line in lines + unclear]
            if lines:
                status = "mismatch"
            elif unclear and status == "ok":
                status = "not_comparable"
            if len(wrong) >= _SHOWN:
                break
        return self._result(status, wrong + [f"{line}: launched without the promise" for line in fallbacks])

    def _result(self, status: str, wrong: list[str]) -> Correctness:
        shown = list(dict.fromkeys(wrong))
        if len(shown) > _SHOWN:
            shown = [*shown[:_SHOWN], f"and {len(shown) - _SHOWN} more"]
        patterns = sorted({pattern for _, pattern in self._runs})
        return Correctness(status, shown, list(self.seeds), patterns, self._variation.names)

    def _run(self, arm: Arm, seed: int, pattern: int, *, count: bool = False) -> Outcome:
        counting = count and hasattr(self.backend, "counts")
        if counting:
            self.backend.reset()
        outcome = run_once(self.backend, self.work, arm, seed, pattern)
        if counting:
            # Lists with all blocks and branches would make the result file large.
            plain = self.backend.counts.as_dict()
            self.counts = {name: value for name, value in plain.items() if not isinstance(value, list)}
            self.counts["warps_by_kernel"] = _warps(outcome.recording)
        return outcome

    # --- the baseline against itself ---------------------------------------------------------------------------

    def _vary(self, first: Outcome, again: Outcome) -> None:
        variation = self._variation
        for name, value in first.outputs.items():
            other = again.outputs[name]
            if value.tobytes() != other.tobytes():
                spread = float("nan")
                if value.dtype.kind == "f" and value.shape == other.shape:
                    with np.errstate(invalid="ignore"):
                        apart = np.abs(value.astype(np.float64) - other.astype(np.float64))
                    spread = float(np.nanmax(apart[np.isfinite(apart)], initial=0.0))
                variation.outputs[name] = max(spread, variation.outputs.get(name, 0.0))
        one, two = first.recording, again.recording
        variation.flow |= len(one.steps) != len(two.steps) or one.sizes != two.sizes
        variation.reads |= not _same_reads(one, two)
        variation.buffers |= {index for index in one.final if one.final[index] != two.final.get(index)}

    # --- a candidate against the baseline ----------------------------------------------------------------------

    def _differences(self, base: Outcome, found: Outcome, same_program: bool) -> tuple[list[str], list[str]]:
        """Lines about what is wrong, and about what cannot be compared."""
        wrong, unclear = self._output_differences(base.outputs, found.outputs)
        if same_program and not self._variation.flow:
            one, two = base.recording, found.recording
            if one.sizes != two.sizes or len(one.launches) != len(two.launches):
                wrong.append("other buffers or launches than in the baseline")
            else:
                varies = self._variation.buffers
                apart = [i for i in one.final if i not in varies and one.final[i] != two.final.get(i)]
                wrong += [f"buffer {index} ({one.sizes[index]} bytes) holds other bytes" for index in apart]
            if not self._variation.reads and not _same_reads(one, two):
                wrong.append("the host read other bytes")
        return wrong, unclear

    def _output_differences(
        self, base: Mapping[str, NDArray[Any]], found: Mapping[str, NDArray[Any]]
    ) -> tuple[list[str], list[str]]:
        wrong: list[str] = []
        unclear: list[str] = []
        if set(base) != set(found):
            return [f"outputs {', '.join(sorted(found))} instead of {', '.join(sorted(base))}"], []
        for name, value in base.items():
            other = found[name]
            if value.dtype != other.dtype or value.shape != other.shape:
                wrong.append(f"{name}: {other.dtype}{list(other.shape)} instead of {value.dtype}{list(value.shape)}")
            elif value.tobytes() != other.tobytes():
                spread = self._variation.outputs.get(name)
                if spread is None:
                    wrong.append(f"{name}: {_first_difference(value, other)}")
                elif not np.isfinite(spread):
                    unclear.append(f"{name}: the baseline itself computes other {value.dtype} values each time")
                elif line := _beyond_tolerance(value, other, spread):
                    wrong.append(f"{name}: {line}")
        return wrong, unclear


def _warps(recording: Recording) -> dict[str, int]:
    """The number of launched warps by kernel."""
    warps: dict[str, int] = {}
    for step in recording.launches:
        blocks, threads = math.prod(step.grid), math.prod(step.block)
        warps[step.kernel] = warps.get(step.kernel, 0) + blocks * -(-threads // WARP)
    return warps


def _torn(found: Outcome, seed: int) -> list[str]:
    sizes = found.recording.sizes
    return [f"seed {seed}: writes outside of buffer {i} ({sizes[i]} bytes)" for i in found.recording.torn]


def _same_reads(one: Recording, two: Recording) -> bool:
    return len(one.reads) == len(two.reads) and all(
        a.tobytes() == b.tobytes() for a, b in zip(one.reads, two.reads, strict=True)
    )


def _first_difference(value: NDArray[Any], other: NDArray[Any]) -> str:
    size = value.dtype.itemsize
    left = np.frombuffer(value.tobytes(), np.uint8).reshape(-1, size)
    right = np.frombuffer(other.tobytes(), np.uint8).reshape(-1, size)
    apart = np.flatnonzero((left != right).any(axis=1))
    at = int(apart[0])
    return f"{apart.size} of {value.size} elements differ; [{at}] is {other.reshape(-1)[at]} instead of " + str(
        value.reshape(-1)[at]
    )


def _beyond_tolerance(value: NDArray[Any], other: NDArray[Any], spread: float) -> str:
    """Where a float output differs by more than the tolerance, or is NaN elsewhere; an empty string if nowhere."""
    left, right = value.astype(np.float64).reshape(-1), other.astype(np.float64).reshape(-1)
    ulps = 4 * float(np.finfo(value.dtype).eps)
    finite = np.isfinite(left)
    with np.errstate(invalid="ignore"):
        near = np.abs(left - right) <= _MARGIN * spread + ulps * np.abs(left)
    same = np.where(finite, near, (np.isnan(left) & np.isnan(right)) | (left == right))
    if same.all():
        return ""
    at, count = int(np.flatnonzero(~same)[0]), int((~same).sum())
    limit = f"{count} of {value.size} elements differ by more than {_MARGIN * spread:.3g}"
    return f"{limit}; [{at}] is {right[at]:.9g} instead of {left[at]:.9g}"
