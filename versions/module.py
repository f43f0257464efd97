"""Puts the versions of its kernels into a module, and writes the contract.

Requires: an optimized module, and its entries as they were before. Guarantees: each entry keeps its name and its code;
its versions precede it; the module passes the verifier. The contract describes every entry of ``given``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import Contract, KernelContract, LaunchChange, Version
from ..contract.document import digest_of
from ..ptx import Kernel, Module, print_module
from ..ptx.verify import verify
from ..transforms.remarks import Remarks
from .entries import entry_name, parameters_of, renamed
from .search import REASONS, REASONS_TO_STAY, Versioned

__all__ = ["contract_of", "put_versions"]


def put_versions(
    module: Module, outcomes: Mapping[str, Versioned], log: Remarks, suffix: str = ""
) -> dict[str, KernelContract]:
    """Put the versions in front of their kernels, in place; the contract of each entry. Reports each outcome. The names
    of versions end with ``suffix``."""
    contracts: dict[str, KernelContract] = {}
    for name, outcome in outcomes.items():
        kernel = module.kernel(name)
        versions = _put(module, kernel, outcome, suffix)
        named = {param for candidate in outcome.candidates for pair in candidate.pairs for param in pair}
        parameters = parameters_of(kernel, outcome.pointers | named)
        contracts[name] = KernelContract(name, parameters, (*versions, Version(name)))
        contracts[name].check()
        _report(log, kernel, outcome, versions)
    if any(outcome.candidates for outcome in outcomes.values()):
        verify(module)
    return contracts


def _put(module: Module, kernel: Kernel, outcome: Versioned, suffix: str) -> list[Version]:
    """Put the versions of one kernel in front of it; their part of the contract."""
    versions: list[Version] = []
    for candidate in outcome.candidates:
        name = entry_name(module, kernel, candidate.kernel, suffix)
        position = next(number for number, item in enumerate(module.items) if item is kernel)
        module.items.insert(position, renamed(candidate.kernel, name))
        launch = LaunchChange(arguments=candidate.arguments) if candidate.arguments else None
        versions += [
            Version(name, requires, candidate.prefer_when, launch, what)
            for what, requires in candidate.requires.items()
        ]
    return versions


def _report(log: Remarks, kernel: Kernel, outcome: Versioned, versions: list[Version]) -> None:
    if not versions:
        message = f"no version for launches with known facts: {REASONS[outcome.reason]}"
        if outcome.not_inside:
            message += f"; {REASONS_TO_STAY[outcome.not_inside]}"
        log.add("Missed", "versions", "NoVersion", kernel, message, reason=outcome.reason)
    entries = list(dict.fromkeys(version.entry for version in versions))
    for candidate, entry in zip(outcome.candidates, entries, strict=True):
        gained = f": {candidate.gain}" if candidate.gain else ""
        message = f"version '{entry}' for {' or '.join(candidate.requires)}{gained}"
        log.add("Passed", "versions", "Version", kernel, message)


def contract_of(module: Module, kernels: Mapping[str, KernelContract]) -> Contract:
    """The contract of a module that will not change any more."""
    return Contract(digest_of(print_module(module)), kernels, "ptxmotion")
