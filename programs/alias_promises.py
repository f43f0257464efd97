"""Which launches of an optimized variant the harness must check: those of modules that `--alias` made a promise for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..harness.alias_check import Promised, Touched

__all__ = ["promised_modules"]


def promised_modules(
    options: Sequence[str], plain: Mapping[str, str], modules: Mapping[str, str]
) -> dict[str, Promised]:
    """The promise for each optimized module, by its PTX. Empty where the ``options`` of `opt` promise nothing.

    ``modules`` and ``plain`` are the modules after and before the optimizer, by name. Raises `ValueError`, `PtxError`.
    """
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
        covered[kernel.name] = frozenset(name for name in pointers if promised.names(kernel.name, name))
        touched[kernel.name] = Facts(kernel, module).memory.buffers
    return Promised(before, covered, touched)
