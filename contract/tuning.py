"""Measured preferences of a contract: which versions were faster than the kernel, on which machine, in which launches.

A *tuning* belongs to one kernel and one kind of machine, which is named by its GPU and its number of multiprocessors.
It has a list of classes of launches, by the number of their threads. For each class it names the entries that are
preferred, and the speedups that were measured.

Guarantees: on the machine of a tuning, a version is preferred in a class exactly if the class names its entry. In all
other launches, on all other machines, and for versions that are launched with another grid, block or shared memory,
`prefer_when` of the version decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .errors import ContractError
from .expressions import Expression, Number, Operation, Symbol

if TYPE_CHECKING:
    from .document import KernelContract, Version

__all__ = ["TUNING_VERSION", "LaunchClass", "TunedMachine", "Tuning", "tuned_kernel", "tuned_preference"]

TUNING_VERSION = 1


@dataclass(frozen=True, slots=True)
class TunedMachine:
    """A kind of machine: the name of the GPU as the driver gives it, and its multiprocessors."""

    gpu: str
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class LaunchClass:
    """The launches of ``least`` to ``most`` threads. ``preferred``: the entries that may be taken. ``speedups``: by
    entry, how many times faster than the kernel it was."""

    least: int
    most: int
    preferred: tuple[str, ...] = ()
    speedups: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was measured on one machine. ``driver`` and ``date`` (ISO 8601) are for the reader only."""

    machine: TunedMachine
    driver: str
    date: str
    classes: tuple[LaunchClass, ...]

    def check(self, entries: Sequence[str]) -> None:
        """Check what the JSON Schema cannot express. ``entries``: those of the versions. Raises `ContractError`."""
        end = 0
        for each in self.classes:
            if each.least <= end or each.most < each.least:
                raise ContractError(f"the class of {each.least} to {each.most} threads is empty, or overlaps another")
            end = each.most
            for entry in (*each.preferred, *each.speedups):
                if entry not in entries:
                    raise ContractError(f"the tuning for {self.machine.gpu} names '{entry}', which is no version")

    def to_json(self) -> dict[str, Any]:
        """The tuning as dictionaries and lists."""
        return {
            "tuning_version": TUNING_VERSION,
            "gpu": self.machine.gpu,
            "multiprocessors": self.machine.multiprocessors,
            "driver": self.driver,
            "date": self.date,
            "classes": [
                {
                    "threads": [each.least, each.most],
                    "preferred": list(each.preferred),
                    "speedups": dict(each.speedups),
                }
                for each in self.classes
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Tuning:
        """Read what `to_json` writes. The document agrees with the JSON Schema."""
        classes = tuple(
            LaunchClass(int(least), int(most), tuple(each["preferred"]), {k: float(v) for k, v in speedups.items()})
            for each in document["classes"]
            for (least, most), speedups in [(each["threads"], each["speedups"])]
        )
        machine = TunedMachine(document["gpu"], int(document["multiprocessors"]))
        return cls(machine, document["driver"], document["date"], classes)


def _threads() -> Expression:
    sizes = [Symbol(f"{of}_{axis}") for of in ("grid", "block") for axis in "xyz"]
    product: Expression = sizes[0]
    for each in sizes[1:]:
        product = Operation("*", (product, each))
    return product


def tuned_preference(version: Version, tuning: Tuning) -> Expression:
    """``prefer_when`` of a version on the machine of a tuning. A version that is launched with another grid, block or
    shared memory was not timed, so its own one decides."""
    change = version.launch
    if change is not None and (change.grid or change.block or change.shared is not None):
        return version.prefer_when if version.prefer_when is not None else Number(1)
    result: Expression = version.prefer_when if version.prefer_when is not None else Number(1)
    for each in reversed(tuning.classes):
        threads = _threads()
        above = Operation(">=", (threads, Number(each.least)))
        below = Operation("<=", (threads, Number(each.most)))
        is_preferred = Number(int(version.entry in each.preferred))
        result = Operation("if", (Operation("and", (above, below)), is_preferred, result))
    return result


def tuned_kernel(kernel: KernelContract, machine: TunedMachine | None) -> KernelContract:
    """The contract of a kernel on a machine: without tunings, and with the preferences of the one for this machine, if
    there is one."""
    if not kernel.tunings:
        return kernel
    found = next((each for each in kernel.tunings if each.machine == machine), None)
    if found is None:
        return replace(kernel, tunings=())
    versions = [replace(each, prefer_when=tuned_preference(each, found)) for each in kernel.versions[:-1]]
    return replace(kernel, versions=(*versions, kernel.versions[-1]), tunings=())
