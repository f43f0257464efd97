"""Modules that `contract tune` has made, for builds: with PTXMOTION_TUNED=DIR they take the place of optimized ones.

A file ``NAME-DIGEST.ptx`` of DIR was made of the PTX with this digest, and its contract lies beside it. If cicc writes
just this PTX, the module with all its versions becomes the result of the step, and the contract with what was measured
becomes data of the host object. All other PTX is optimized as without DIR.

Guarantees: the names of versions get the suffix of the build (`host_contracts`); nothing else changes.
Refuses: `StepFailed` for files that cannot be read, that do not belong together, or that have other kernels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .host_contracts import TUNED

if TYPE_CHECKING:
    from ..contract import Contract
    from ..contract.document import KernelContract
    from ..ptx import Module

__all__ = ["TunedFiles", "UnusableTuning", "tuned_files"]


class UnusableTuning(Exception):
    """The files of a tuned module cannot be used; the text says why."""


@dataclass(frozen=True)
class TunedFiles:
    """The two files of a tuned module, as bytes. ``name`` is for messages."""

    name: str
    ptx: bytes
    contract: bytes

    def read(self, given: Module, suffix: str) -> tuple[Module, Contract]:
        """The module and its contract; the names of versions end with ``suffix``. ``given``: the module that is
        compiled. Raises `UnusableTuning`."""
        from ..contract import ContractError, loads
        from ..contract.document import digest_of
        from ..ptx import PtxError, parse, print_module
        from ..ptx.verify import verify

        try:
            contract = loads(self.contract, self.name)
            module = parse(self.ptx.decode("utf-8", "surrogateescape"), self.name)
            verify(module)
        except (ContractError, PtxError) as error:
            raise UnusableTuning(str(error)) from error
        if not contract.matches(self.ptx):
            raise UnusableTuning(f"{self.name}: the contract is of another module")
        entries = {entry.name for entry in module.entries}
        names = {entry.name for entry in given.entries}
        wanted = names | {each.entry for kernel in contract.kernels.values() for each in kernel.versions}
        if entries != wanted or not contract.kernels.keys() <= names:
            raise UnusableTuning(f"{self.name}: the kernels are not those of the PTX that is compiled")
        kernels = {name: _renamed(module, kernel, suffix) for name, kernel in contract.kernels.items()}
        return module, replace(contract, sha256=digest_of(print_module(module)), kernels=kernels)


def tuned_files(given: bytes) -> TunedFiles | None:
    """The tuned module for PTX; ``None`` if there is none, or PTXMOTION_TUNED is not set. Raises `UnusableTuning`."""
    folder = os.environ.get(TUNED)
    if not folder:
        return None
    from ..contract.document import digest_of

    found = sorted(Path(folder).glob(f"*-{digest_of(given)[:16]}.ptx"))
    if not found:
        return None
    try:
        return TunedFiles(str(found[0]), found[0].read_bytes(), found[0].with_suffix(".contract.json").read_bytes())
    except OSError as error:
        raise UnusableTuning(f"{error.filename}: {error.strerror}") from error


def _renamed(module: Module, kernel: KernelContract, suffix: str) -> KernelContract:
    """The contract of a kernel after its versions have got other names, in the module as well."""
    names = {each.entry: f"{each.entry}{suffix}" for each in kernel.versions[:-1]}
    for entry, name in names.items():
        version = module.kernel(entry)
        version.name = name
        version.changed()
    versions = tuple(replace(each, entry=names.get(each.entry, each.entry)) for each in kernel.versions)
    tunings = tuple(
        replace(
            tuning,
            classes=tuple(
                replace(
                    each,
                    preferred=tuple(names[entry] for entry in each.preferred),
                    speedups={names[entry]: speedup for entry, speedup in each.speedups.items()},
                )
                for each in tuning.classes
            ),
        )
        for tuning in kernel.tunings
    )
    return replace(kernel, versions=versions, tunings=tunings)
