"""What is timed to tune the contract of a module: for each kernel, all versions, and the results of further options.

A *trial* is code for a kernel, with the conditions under which it computes the same. Trials are the versions of the
contract that `-O3` writes, the kernel as it was given, and the kernel under each of `OPTIONS`.

Requires: PTX that the verifier accepts. Guarantees: no two trials of a kernel have the same text, and none has that of
the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..contract import Condition, Contract, KernelContract, Launch, LaunchChange, Tuning, Version, holds
from ..contract.parsing import parse as parse_expression
from ..driver import Policy, Result, optimize
from ..ptx import Kernel, print_kernel, print_module
from ..ptx.verify import verify
from ..transforms.gate.search import module_of
from ..versions.entries import entry_name, renamed
from ..versions.module import contract_of

if TYPE_CHECKING:
    from ..ptx import Module

__all__ = ["OPTIONS", "ModuleTrials", "Trial"]

_CLEAN_UP = "dce,emptyblocks"

#: The passes that are tried beside `-O3 --contract`, each without the gate, by the options that a user would give.
OPTIONS: dict[str, str] = {
    "-O0": "O0",
    "-O1": "O1",
    "-O2 --gate=off": "O2",
    "-O3 --gate=off": "O3",
    "--passes=lcm": f"lcm,{_CLEAN_UP}",
    "--passes=ssrqp": f"ssrqp,{_CLEAN_UP}",
}
#: The options whose versions for launches with known facts are tried, too.
_WITH_VERSIONS = "-O3 --gate=off"


@dataclass(frozen=True)
class Trial:
    """Code for a kernel. ``name`` tells it from the other trials of the kernel. ``requires`` maps descriptions to lists
    of conditions: it computes the same if those of one of the lists hold. ``entry``: its name in the module that `-O3`
    writes; empty for further options. ``launch``: the arguments that it has behind those of the kernel, or `None`."""

    name: str
    kernel: Kernel
    requires: Mapping[str, tuple[Condition, ...]]
    entry: str = ""
    launch: LaunchChange | None = None

    @property
    def is_always_valid(self) -> bool:
        """Whether it has no conditions."""
        return any(not each for each in self.requires.values())

    def is_valid(self, launch: Launch) -> bool:
        """Whether its conditions hold for a launch."""
        return any(all(holds(each, launch) for each in conditions) for conditions in self.requires.values())


@dataclass
class ModuleTrials:
    """The trials of one module. ``given`` is its PTX, ``base`` what `-O3` with a contract makes of it.

    ``trials`` maps the name of each entry to its trials.
    """

    given: str
    base: Result
    contract: Contract
    trials: dict[str, list[Trial]] = field(default_factory=dict[str, "list[Trial]"])

    @classmethod
    def of(cls, ptx: str, arch: str | None = None) -> ModuleTrials:
        """Optimize a module with all options. Raises what `optimize` raises."""
        base = optimize(ptx, "O3", Policy(contract=True, arch=arch))
        assert base.contract is not None
        found = cls(ptx, base, base.contract)
        others = {
            name: optimize(ptx, passes, Policy(gate="off", arch=arch, contract=name == _WITH_VERSIONS))
            for name, passes in OPTIONS.items()
        }
        for name, kernel in found.contract.kernels.items():
            found.trials[name] = list(_distinct(base.module.kernel(name), _trials(base, kernel, others)))
        return found

    def arm(self, name: str, trial: Trial | None = None) -> tuple[str, str]:
        """The module that is timed for a trial of a kernel, and its contract, which is empty if the launches are those
        of the kernel. Without a trial: the kernel itself.

        The code of a trial has the name of the kernel. If it has further arguments, it stands beside the kernel, and
        the contract says what they are.
        """
        kernel = self.base.module.kernel(name)
        if trial is None:
            return print_module(module_of(self.base.module, [kernel], {})), ""
        if trial.launch is None:
            return print_module(module_of(self.base.module, [kernel], {name: renamed(trial.kernel, name)})), ""
        module = module_of(self.base.module, [kernel], {})
        entry = _put(module, name, trial)
        versions = [Version(entry, each, None, trial.launch, what) for what, each in trial.requires.items()]
        own = replace(self.contract.kernels[name], versions=(*versions, Version(name)), tunings=())
        return print_module(module), contract_of(module, {name: own}).dumps()

    def earlier(self, former: Contract) -> dict[str, list[Tuning]]:
        """The tunings of a contract that an earlier run has made of this module, by kernel, with the names of trials in
        place of those of entries. A class that prefers code which is no trial any more is left out."""
        found: dict[str, list[Tuning]] = {}
        for name in self.contract.kernels.keys() & former.kernels.keys():
            names = self._trial_names(former.kernels[name])
            for tuning in former.kernels[name].tunings:
                classes = [each for each in tuning.classes if all(entry in names for entry in each.preferred)]
                own = replace(tuning, classes=tuple(classes))
                found.setdefault(name, []).append(_with_entries(own, names))
        return found

    def _trial_names(self, kernel: KernelContract) -> dict[str, str]:
        """By entry of a contract of an earlier run the name of the trial whose versions have these descriptions."""
        of: dict[tuple[str, ...], str] = {}
        for trial in self.trials[kernel.name]:
            own = list(trial.requires) if trial.entry else [each.description for each in _versions("", trial)]
            of[tuple(own)] = trial.name
        entries = dict.fromkeys(each.entry for each in kernel.versions[:-1])
        described = {
            entry: tuple(each.description for each in kernel.versions[:-1] if each.entry == entry) for entry in entries
        }
        return {entry: of[descriptions] for entry, descriptions in described.items() if descriptions in of}

    def tuned(
        self,
        kept: Mapping[str, Sequence[Trial]],
        tunings: Mapping[str, Sequence[Tuning]],
        refused: Mapping[str, Sequence[Trial]],
    ) -> tuple[str, Contract]:
        """The module with the trials that are kept, and the contract with the tunings.

        ``kept``: by kernel the trials of further options that have to be in the module. ``tunings`` name versions by
        the names of trials. ``refused``: by kernel trials that computed something else; their versions are left out.
        """
        module = replace(self.base.module, items=list(self.base.module.items))
        kernels: dict[str, KernelContract] = {}
        for name, kernel in self.contract.kernels.items():
            wrong = {each.entry for each in refused.get(name, ()) if each.entry}
            module.items = [each for each in module.items if not (isinstance(each, Kernel) and each.name in wrong)]
            versions = [each for each in kernel.versions[:-1] if each.entry not in wrong]
            entries = {each.name: each.entry for each in self.trials[name] if each.entry and each.entry not in wrong}
            front: list[Version] = []
            back: list[Version] = []
            for trial in kept.get(name, ()):
                entries[trial.name] = _put(module, name, trial)
                (back if trial.is_always_valid else front).extend(_versions(entries[trial.name], trial))
            own = tuple(_with_entries(each, entries) for each in tunings.get(name, ()))
            every = (*front, *versions, *back, kernel.versions[-1])
            kernels[name] = replace(kernel, versions=every, tunings=own)
        verify(module)
        contract = contract_of(module, kernels)
        contract.check()
        return print_module(module), contract


def _trials(base: Result, kernel: KernelContract, others: Mapping[str, Result]) -> Iterator[Trial]:
    yield from _of_versions(base, kernel, "")
    for option, result in others.items():
        yield Trial(option, result.module.kernel(kernel.name), {"": ()})
        if result.contract is not None:
            yield from _of_versions(result, result.contract.kernels[kernel.name], option)


def _of_versions(result: Result, kernel: KernelContract, option: str) -> Iterator[Trial]:
    """The trials of the versions of a kernel. Versions with the same entry are alternatives of one trial."""
    for entry in dict.fromkeys(each.entry for each in kernel.versions[:-1]):
        own = [each for each in kernel.versions if each.entry == entry]
        requires = {each.description: each.requires for each in own}
        name = f"{option or '-O3'}: {own[0].description}"
        yield Trial(name, result.module.kernel(entry), requires, "" if option else entry, own[0].launch)


def _distinct(kernel: Kernel, trials: Iterator[Trial]) -> Iterator[Trial]:
    """The trials whose text differs from the kernel and from that of earlier trials. A trial with the code of an
    earlier one and without conditions takes the place of a trial of further options that has some."""
    found: dict[str, Trial | None] = {_text(kernel, kernel.name): None}
    for each in trials:
        text = _text(each.kernel, kernel.name)
        former = found.get(text)
        if text not in found or (former and not former.entry and each.is_always_valid):
            found[text] = each
    yield from (each for each in found.values() if each is not None)


def _text(kernel: Kernel, name: str) -> str:
    return print_kernel(renamed(kernel, name))


def _put(module: Module, name: str, trial: Trial) -> str:
    """Put the code of a trial in front of its kernel; the name of the entry."""
    kernel = module.kernel(name)
    entry = entry_name(module, kernel, trial.kernel)
    position = next(number for number, item in enumerate(module.items) if item is kernel)
    module.items.insert(position, renamed(trial.kernel, entry))
    return entry


def _versions(entry: str, trial: Trial) -> list[Version]:
    """The versions of a trial of further options. They are taken only where a measurement prefers them."""
    never = parse_expression("0")
    option = trial.name.partition(":")[0]
    described = {what: f"{option}, {what}" if what else option for what in trial.requires}
    return [
        Version(entry, each, never, launch=trial.launch, description=described[what])
        for what, each in trial.requires.items()
    ]


def _with_entries(tuning: Tuning, entries: Mapping[str, str]) -> Tuning:
    """The tuning with its names replaced by those in ``entries``. A name that is not there is left out."""
    classes = tuple(
        replace(
            each,
            preferred=tuple(entries[name] for name in each.preferred if name in entries),
            speedups={entries[name]: speedup for name, speedup in each.speedups.items() if name in entries},
        )
        for each in tuning.classes
    )
    return replace(tuning, classes=classes)
