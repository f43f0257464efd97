"""The option ``--alias``: what the user promises about pointer parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..spelling import did_you_mean
from .outcome import warn

if TYPE_CHECKING:
    from ..analysis.memory.alias import Promise
    from ..ptx import Module

__all__ = ["ALIAS_HELP", "alias_promise", "warn_of_unknown_names"]

ALIAS_HELP = (
    "what pointer parameters may point to. conservative (default): any of them may point to the same memory; "
    "restrict: no two of them point to the same buffer, which this command does not check; restrict:KERNEL, "
    "restrict:KERNEL.PARAM or restrict:KERNEL.PARAM+PARAM (this pair), separated by commas: restrict for these only"
)


def alias_promise(text: str) -> Promise:
    """The argparse type of the option."""
    from ..analysis.memory.alias import Promise

    try:
        return Promise.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def warn_of_unknown_names(promise: Promise, module: Module) -> None:
    """Warn about kernels and parameters that the promise names and the module does not have."""
    params = {kernel.name: {param.name for param in kernel.params or ()} for kernel in module.kernels}
    for name in sorted(promise.kernels - params.keys()):
        warn(f"--alias: there is no kernel '{name}'{did_you_mean(name, params)}")
    of_pairs = {(kernel, param) for kernel, *names in promise.pairs for param in names}
    for kernel, param in sorted(promise.parameters | of_pairs):
        if param not in params.get(kernel, ()):
            similar = did_you_mean(param, params.get(kernel, ()))
            warn(f"--alias: there is no parameter '{param}' of a kernel '{kernel}'{similar}")
