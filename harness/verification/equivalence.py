"""Compares what two PTX files compute. Both run on the emulator with the same inputs.

Computes, for every kernel of the first file and every input: whether the second file has the kernel with the same
parameters; whether all memory and module variables have equal bytes at the end; whether the second run has a finding,
skips an access or touches a page of memory that the first run does not. Inputs are generated from the kernel
(`generated_inputs`, `pointer_search`) or come from a Python file. Generated inputs use sparse memory, in which every
address is mapped, so that stores through unknown pointers are compared, too.
Guarantees: bytes are compared, including NaN payloads. The result for an input is *same* only if the first run changed
something that is compared (memory, a variable, the output) and skipped no access. If a fault or the budget ends the
first run, the input is `INCONCLUSIVE`, unless the second run ends in another way. A kernel with a race is inconclusive
if its results differ.
Refuses: kernels that the emulator cannot execute (`UNSUPPORTED`).

A Python file of inputs defines ``launches(seed)``, which returns dictionaries with the keys ``kernel``, ``grid``,
``block``, ``args`` and optionally ``shared``.
"""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from ...emulator import LaunchError, UnsupportedInstruction
from ...ptx import Kernel, Module, print_kernel, print_module
from ...ptx.operations import Operation
from .generated_inputs import CASES, Input, Signature, compared_numbers, generate
from .input_regions import GeneratedMemory, Regions
from .input_runs import Device, EmulatedRun, OutOfTime
from .pointer_search import find_pointers
from .run_differences import DIFFERENT, INCONCLUSIVE, SAME, judge

__all__ = [
    "DIFFERENT",
    "INCONCLUSIVE",
    "INPUTS",
    "SAME",
    "SECONDS",
    "UNSUPPORTED",
    "Comparison",
    "GivenLaunch",
    "Verdict",
    "compare",
    "equal_kernels",
    "launches_from_file",
    "verdict",
]

UNSUPPORTED = "unsupported"

#: The most instructions of the first run: a generated input can lead to an endless loop. The second run may issue
#: `_SECOND_FACTOR` times as many, so that a somewhat longer kernel does not count as endless.
BUDGET = 20_000
_SECOND_FACTOR = 3

#: Inputs whose first run the budget ended are repeated at the end, with this multiple of the budget.
_RETRY_FACTOR = 8

#: The default number of inputs and of seconds for each kernel.
INPUTS = 48
SECONDS = 10.0

#: The fraction of the time for a kernel that the search for pointers may take.
_SEARCH = 0.3


@dataclass(slots=True)
class GivenLaunch:
    """One launch of a file of inputs; ``arguments()`` returns new copies of its arguments."""

    kernel: str
    grid: Any
    block: Any
    shared: int
    arguments: Callable[[], Sequence[Any]]


@dataclass(slots=True)
class Comparison:
    """The outcome for one kernel and input. ``details`` are lines about the differences, or the reason why the input
    is inconclusive. ``changed`` is the number of compared bytes that the first run changed. ``ended_by_budget``: the
    first run reached the limit of its instructions. ``left``: how many inputs were not compared to the end, because the
    time for the kernel ended."""

    kernel: str
    seed: int
    outcome: str
    details: list[str] = field(default_factory=list[str])
    name: str = ""
    changed: int = 0
    ended_by_budget: bool = False
    left: int = 0


@dataclass(slots=True)
class Verdict:
    """The outcome for a kernel over all its inputs. ``is_equal``: the text is equal, so nothing was run."""

    kernel: str
    outcome: str
    comparisons: list[Comparison]
    is_equal: bool = False

    @property
    def summary(self) -> str:
        """One line: the outcome and the number of inputs with this outcome."""
        if self.is_equal:
            return f"{self.outcome} (equal text)"
        compared = [each for each in self.comparisons if not each.left]
        decided = [each for each in compared if each.outcome == self.outcome]
        if self.outcome not in (SAME, DIFFERENT):
            return f"{self.outcome} (none of {len(compared)} inputs decides)"
        text = f"{self.outcome} ({len(decided)} of {len(compared)} inputs"
        if self.outcome == SAME:
            text += f", {sum(each.changed for each in decided)} changed bytes compared"
        return text + ")"

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time for the kernel ended before all inputs were compared."""
        return any(each.left for each in self.comparisons)

    @property
    def undecided(self) -> list[str]:
        """One line for each reason why inputs are undecided, with their number, and one for inputs not compared."""
        reasons: dict[str, int] = {}
        for each in self.comparisons:
            if each.outcome in (INCONCLUSIVE, UNSUPPORTED):
                for reason in each.details[-1:]:
                    reasons[reason] = reasons.get(reason, 0) + 1
        lines = [f"{number} undecided: {reason}" for reason, number in reasons.items()]
        left = sum(each.left for each in self.comparisons)
        return [*lines, f"{left} not compared: the time for this kernel ended"] if left else lines


def verdict(kernel: str, comparisons: Sequence[Comparison], *, is_equal: bool = False) -> Verdict:
    """*different* if one input is, else *same* if at least one input is, else *unsupported* or *inconclusive*. A kernel
    that ``is_equal`` is the *same* without inputs."""
    if is_equal:
        return Verdict(kernel, SAME, [], is_equal=True)
    outcomes = {each.outcome for each in comparisons}
    ranked = (DIFFERENT, SAME, UNSUPPORTED, INCONCLUSIVE)
    return Verdict(kernel, next((each for each in ranked if each in outcomes), INCONCLUSIVE), list(comparisons))


def compare(
    before: Module,
    after: Module,
    *,
    seeds: Sequence[int] | None = None,
    kernels: Sequence[str] | None = None,
    launches: Callable[[int], Sequence[GivenLaunch]] | None = None,
    budget: int = BUDGET,
    seconds: float | None = SECONDS,
    schedule: str = "order",
    restrict: bool = False,
) -> Iterator[Comparison]:
    """Compare every kernel of ``before`` (or only ``kernels``) with that of ``after``; one result for each input.

    ``seeds`` are the numbers of the inputs. ``seconds`` is the time for each kernel (``None``: no limit); when it ends,
    a last result has the number of inputs that are left. ``restrict`` skips inputs in which pointers share a buffer.
    Raises `LaunchError`.
    """
    devices: list[Device] = []
    for entry in [entry for entry in before.entries if kernels is None or entry.name in kernels]:
        problem = _signature_problem(entry, after)
        if problem is not None:
            yield problem
            continue
        if not devices:
            devices += [Device(before, schedule), Device(after, schedule)]
        pair = _Pair(entry, devices[0], devices[1], budget, None if seconds is None else time.monotonic() + seconds)
        if launches is not None:
            yield from pair.compare_given(launches, range(3) if seeds is None else seeds)
        else:
            yield from pair.compare_generated(range(INPUTS) if seeds is None else seeds, seconds, restrict=restrict)


def equal_kernels(before: Module, after: Module) -> frozenset[str]:
    """The kernels that have the same text in both modules, if everything besides the kernels has the same text, too.

    Such a kernel computes the same, so it need not be run.
    """
    first, second = _texts(before), _texts(after)
    if first[""] != second[""]:
        return frozenset()
    return frozenset(name for name in first if name and first[name] == second.get(name))


def _texts(module: Module) -> dict[str, str]:
    """Name of a kernel → its text; under the empty name, the text of the module without its kernels."""
    shared = [item for item in module.items if not (isinstance(item, Kernel) and item.is_entry)]
    texts = {entry.name: print_kernel(entry) for entry in module.entries}
    return {**texts, "": print_module(replace(module, items=shared))}


def _signature_problem(entry: Kernel, after: Module) -> Comparison | None:
    other = next((kernel for kernel in after.entries if kernel.name == entry.name), None)
    if other is None:
        return Comparison(entry.name, 0, DIFFERENT, ["the kernel is missing"])
    if [param.bytes for param in entry.params or ()] != [param.bytes for param in other.params or ()]:
        return Comparison(entry.name, 0, DIFFERENT, ["the parameters differ"])
    for name in ("reqntid", "reqnctapercluster"):
        if entry.directive(name) != other.directive(name):
            stated = f".{name} {entry.directive(name)} and .{name} {other.directive(name)}"
            return Comparison(entry.name, 0, DIFFERENT, [f"the possible launches differ: {stated}"])
    return None


@dataclass(slots=True)
class _Pair:
    """A kernel on two devices. ``deadline`` is a value of `time.monotonic`; ``describe`` describes an address."""

    entry: Kernel
    first: Device
    second: Device
    budget: int
    deadline: float | None
    describe: Callable[[int], str] = hex

    def compare_given(
        self, launches: Callable[[int], Sequence[GivenLaunch]], seeds: Sequence[int]
    ) -> Iterator[Comparison]:
        """Compare on the launches of a file of inputs."""
        for seed in seeds:
            chosen = [launch for launch in launches(seed) if launch.kernel == self.entry.name]
            if not chosen:
                yield Comparison(self.entry.name, seed, INCONCLUSIVE, ["there is no input for this kernel"])
            for launch in chosen:
                yield self._judged(seed, f"seed {seed}", partial(self._given, launch, seed), self.budget)

    def compare_generated(self, seeds: Sequence[int], seconds: float | None, *, restrict: bool) -> Iterator[Comparison]:
        """Compare on generated inputs, those with few threads first, up to the first difference."""
        name = self.entry.name
        regions = Regions(Signature.address_bits(self.first.module, self.entry))
        numbers = {each: place for place, each in enumerate(self.first.open_variables())}
        signature = Signature.of(self.entry, regions)
        limit = time.monotonic() + (SECONDS if seconds is None else seconds) * _SEARCH
        try:
            find_pointers(self.first, self.entry, signature, regions, numbers, limit)
        except UnsupportedInstruction as error:
            yield Comparison(name, 0, UNSUPPORTED, [str(error)])
            return
        except LaunchError as error:
            yield Comparison(name, 0, INCONCLUSIVE, [str(error)])
            return
        self.describe = lambda address: _described(address, regions, signature)
        other = self.second.module.kernel(name)
        compared = compared_numbers([self.entry, other])
        inputs = [generate(self.entry, signature, regions, seed, compared, [other]) for seed in seeds]
        may_share = not restrict and not _promises_no_writes(self.entry) and len(signature.pointers) > 1
        inputs = [each for each in inputs if each.buffers == "apart" or may_share]
        inputs.sort(key=lambda each: (each.seed >= len(CASES), each.threads))
        yield from self._in_turn(inputs, regions, numbers, compared)

    def _in_turn(
        self, inputs: Sequence[Input], regions: Regions, numbers: dict[str, int], compared: Sequence[int]
    ) -> Iterator[Comparison]:
        """Compare on ``inputs``, and at the end again on those that need a larger budget."""
        waiting = [(each, self.budget) for each in inputs]
        while waiting:
            each, budget = waiting.pop(0)
            if self.deadline is not None and time.monotonic() > self.deadline:
                yield self._out_of_time(each.seed, "the rest", len(waiting) + 1)
                return
            memory = GeneratedMemory(regions, each.fill, each.seed, each.threads, compared)
            comparison = self._judged(each.seed, each.name, partial(self._generated, each, memory, numbers), budget)
            if comparison.ended_by_budget and budget == self.budget:
                waiting.append((each, budget * _RETRY_FACTOR))
                continue
            yield comparison
            if comparison.outcome in (DIFFERENT, UNSUPPORTED):  # no further input changes the verdict
                return

    def _given(self, launch: GivenLaunch, seed: int, device: Device, budget: int) -> EmulatedRun:
        return device.run(
            launch.kernel,
            launch.grid,
            launch.block,
            launch.shared,
            launch.arguments(),
            seed=seed,
            budget=budget,
            deadline=self.deadline,
        )

    def _generated(
        self, launch: Input, memory: GeneratedMemory, numbers: dict[str, int], device: Device, budget: int
    ) -> EmulatedRun:
        return device.run(
            launch.kernel,
            launch.grid,
            launch.block,
            launch.shared,
            launch.arguments,
            seed=launch.seed,
            budget=budget,
            memory=memory,
            numbers=numbers,
            deadline=self.deadline,
        )

    def _out_of_time(self, seed: int, name: str, left: int) -> Comparison:
        """The outcome of ``left`` inputs for which there was no time."""
        return Comparison(self.entry.name, seed, INCONCLUSIVE, [], name, left=left)

    def _judged(self, seed: int, name: str, run: Callable[[Device, int], EmulatedRun], budget: int) -> Comparison:
        """Run both kernels and compare the results."""
        kernel = self.entry.name
        try:
            first = run(self.first, budget)
            if first.fault is not None and first.fault.kind == "endless":
                details = [f"the first does not end: {first.fault}"]
                return Comparison(kernel, seed, INCONCLUSIVE, details, name, ended_by_budget=True)
            second = run(self.second, budget * _SECOND_FACTOR)
            outcome, details, changed = judge(first, second, self.first.module, self.describe)
        except UnsupportedInstruction as error:
            return Comparison(kernel, seed, UNSUPPORTED, [str(error)], name)
        except LaunchError as error:
            return Comparison(kernel, seed, INCONCLUSIVE, [str(error)], name)
        except OutOfTime:
            return self._out_of_time(seed, name, 1)
        return Comparison(kernel, seed, outcome, details, name, changed)


def _promises_no_writes(kernel: Kernel) -> bool:
    """Whether the kernel has loads that require read-only memory. Then its buffers must not overlap."""
    return any(
        "nc" in instr.form.flags or instr.form.operation is Operation.UNIFORM_LOAD for instr in kernel.instructions()
    )


def _described(address: int, regions: Regions, signature: Signature) -> str:
    """The address relative to the pointer that leads to it."""
    origin = regions.origin(address)
    if origin is None:
        return hex(address)
    place = signature.name_of(origin[1]) if origin[0] == "parameter" else "a pointer in memory"
    return f"byte {regions.offset(address)} of {place}"


def launches_from_file(path: str) -> Callable[[int], Sequence[GivenLaunch]]:
    """The inputs that a Python file defines. Raises `OSError`, and `LaunchError` for an unusable file."""
    try:
        names = runpy.run_path(path)
    except OSError:
        raise
    except Exception as error:
        raise _failed(path, error) from error
    function: Any = names.get("launches")
    if not callable(function):
        raise LaunchError(f"{path} defines no function 'launches'")
    make = cast("Callable[[int], Any]", function)

    def launches(seed: int) -> Sequence[GivenLaunch]:
        try:
            made: list[Any] = list(make(seed))
        except Exception as error:
            raise _failed(path, error) from error
        return [_launch(path, item) for item in made]

    return launches


def _failed(path: str, error: Exception) -> LaunchError:
    return LaunchError(f"{path} fails: {type(error).__name__}: {error}")


def _launch(path: str, item: Any) -> GivenLaunch:
    allowed = {"kernel", "grid", "block", "args", "shared"}
    if not isinstance(item, Mapping):
        raise LaunchError(f"{path}: launches returns a {type(item).__name__}, not a dictionary")
    keys = {str(key) for key in cast("Mapping[Any, Any]", item)}
    for what, names in (("lacks", allowed - {"shared"} - keys), ("has an unknown key", keys - allowed)):
        if names:
            raise LaunchError(f"{path}: a launch {what} '{min(names)}'")
    fields = cast("Mapping[str, Any]", item)
    args = list(fields["args"])
    return GivenLaunch(
        fields["kernel"],
        fields["grid"],
        fields["block"],
        int(fields.get("shared", 0)),
        lambda: [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args],
    )
