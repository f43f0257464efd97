"""``--alias``: what the user promises of pointer parameters, and what the harness has to know to check it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from .outcome import warn

if TYPE_CHECKING:
    from ..analysis.memory.alias import Promise
    from ..harness.alias_check import Promised, Touched
    from ..ptx import Module

__all__ = ["ALIAS_HELP", "alias_promise", "promised_modules", "warn_of_unknown_names"]

ALIAS_HELP = (
    "conservative (default): pointer parameters may point to the same memory; restrict: each to a buffer of its own, "
    "which nobody checks here; restrict:KERNEL or restrict:KERNEL.PARAM, with commas: only of these"
)


def alias_promise(text: str) -> Promise:
    """The type of the argument."""
    from ..analysis.memory.alias import Promise

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


def promised_modules(
    options: Sequence[str], plain: Mapping[str, str], modules: Mapping[str, str]
) -> dict[str, Promised]:
    """What ``modules`` were optimized under, by their PTX, where ``options`` of `opt` promise anything; ``plain`` is
    what they were before. Raises `ValueError`, `PtxError`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--alias", default="conservative")
    text = parser.parse_known_args(list(options))[0].alias
    if text == "conservative":
        return {}
    return {modules[name]: _promised(before, text) for name, before in plain.items() if modules.get(name) != before}


@lru_cache(maxsize=256)
def _promised(before: str, promise: str) -> Promised:
    from ..analysis.manager import Facts
    from ..analysis.memory.alias import Promise
    from ..analysis.memory.points_to import is_pointer_parameter
    from ..harness.alias_check import Promised
    from ..ptx import flatten_scopes, parse

    module, promised = parse(before), Promise.parse(promise)
    bits = module.address_size or 64
    covered: dict[str, frozenset[str]] = {}
    touched: dict[str, Touched] = {}
    for kernel in module.entries:
        flatten_scopes(kernel)
        pointers = [param.name for param in kernel.params or () if is_pointer_parameter(param, bits)]
        covered[kernel.name] = frozenset(name for name in pointers if promised.covers(kernel.name, name))
        touched[kernel.name] = Facts(kernel, module).memory.buffers
    return Promised(before, covered, touched)
