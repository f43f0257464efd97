"""Puts the versions of its kernels into a module, and writes the contract.

Requires: an optimized module, and its entries as they were before. Guarantees: each entry keeps its name and its code;
its versions precede it; the module passes the verifier. The contract describes every entry of ``given``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import Contract, KernelContract, Version
from ..contract.document import digest_of
from ..ptx import Kernel, Module, print_module
from ..ptx.verify import verify
from ..transforms.remarks import Remarks
from .entries import entry_name, parameters_of, renamed
from .restrict import REASONS, Versioned

__all__ = ["contract_of", "put_versions"]


def put_versions(module: Module, outcomes: Mapping[str, Versioned], log: Remarks) -> dict[str, KernelContract]:
    """Put the versions in front of their kernels, in place; the contract of each entry. Reports each outcome."""
    contracts: dict[str, KernelContract] = {}
    for name, outcome in outcomes.items():
        kernel = module.kernel(name)
        versions = _put(module, kernel, outcome)
        parameters = parameters_of(kernel, outcome.pointers)
        contracts[name] = KernelContract(name, parameters, (*versions, Version(name, description="the kernel itself")))
        contracts[name].check()
        _report(log, kernel, outcome, versions)
    if any(outcome.candidate is not None for outcome in outcomes.values()):
        verify(module)
    return contracts


def _put(module: Module, kernel: Kernel, outcome: Versioned) -> list[Version]:
    candidate = outcome.candidate
    if candidate is None:
        return []
    name = entry_name(module, kernel, candidate.kernel)
    position = next(number for number, item in enumerate(module.items) if item is kernel)
    module.items.insert(position, renamed(candidate.kernel, name))
    return [Version(name, requires, description=what) for what, requires in candidate.requires.items()]


def _report(log: Remarks, kernel: Kernel, outcome: Versioned, versions: list[Version]) -> None:
    candidate = outcome.candidate
    if candidate is None:
        message = f"no version for launches with known facts: {REASONS[outcome.reason]}"
        log.add("Missed", "versions", "NoVersion", kernel, message, reason=outcome.reason)
        return
    gained = f": {candidate.gain}" if candidate.gain else ""
    what = " or ".join(candidate.requires)
    log.add("Passed", "versions", "Version", kernel, f"version '{versions[0].entry}' for {what}{gained}")


def contract_of(module: Module, kernels: Mapping[str, KernelContract], producer: str) -> Contract:
    """The contract of a module that will not change any more."""
    return Contract(digest_of(print_module(module)), kernels, producer)
