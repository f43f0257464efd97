"""``--alias``: what the user promises of pointer parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .outcome import warn

if TYPE_CHECKING:
    from ..analysis.alias import Promise
    from ..ptx import Module

__all__ = ["ALIAS_HELP", "alias_promise", "warn_of_unknown_names"]

ALIAS_HELP = (
    "conservative (default): pointer parameters may point to the same memory; restrict: each to a buffer of its own, "
    "which nobody checks here; restrict:KERNEL or restrict:KERNEL.PARAM, with commas: only of these"
)


def alias_promise(text: str) -> Promise:
    """The type of the argument."""
    from ..analysis.alias import Promise

    try:
        return Promise.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def warn_of_unknown_names(promise: Promise, module: Module) -> None:
    """Say which kernels and parameters of the promise the module does not have."""
    params = {kernel.name: {param.name for param in kernel.params or ()} for kernel in module.kernels}
    for name in sorted(promise.kernels - params.keys()):
        warn(f"--alias: there is no kernel '{name}'")
    for kernel, param in sorted(promise.parameters):
        if param not in params.get(kernel, ()):
            warn(f"--alias: there is no parameter '{param}' of a kernel '{kernel}'")
