"""A version of a kernel as an entry of its own, and the parameters of a kernel as a contract describes them.

Requires: an entry whose nested scopes are flattened. Guarantees: the name of the new entry is used by nothing else in
the module; directives such as ``.reqntid``, ``.maxntid`` and ``.minnctapersm``, linkage, parameters and lines are those
of the kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set

from ..contract import Parameter
from ..ptx import Kernel, Module, Param, Variable, print_kernel

__all__ = ["entry_name", "parameters_of", "renamed"]

_MARK = "__ptxmotion_"


def entry_name(module: Module, kernel: Kernel, version: Kernel, suffix: str = "") -> str:
    """The name of the entry for ``version`` of ``kernel``, such as ``axpy__ptxmotion_1``, with ``suffix`` at its end.

    A linker keeps one of several ``.weak`` definitions of a name. So the name of a weak version contains a digest of
    its code: different versions in different modules have different names.
    """
    names = {item.name for item in module.items if isinstance(item, Kernel | Variable)}
    digest = suffix
    if ".weak" in kernel.linkage.split():
        digest += f"_{hashlib.sha256(print_kernel(version).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    number = 1
    while f"{kernel.name}{_MARK}{number}{digest}" in names:
        number += 1
    return f"{kernel.name}{_MARK}{number}{digest}"


def renamed(version: Kernel, name: str) -> Kernel:
    """A copy of an entry with another name."""
    copy = version.clone()
    copy.name = name
    return copy


def parameters_of(kernel: Kernel, pointers: Set[str]) -> tuple[Parameter, ...]:
    """The parameters in order. ``pointers``: the names of those that are addresses of global memory."""
    found: list[Parameter] = []
    end = 0
    for param in kernel.params or ():
        align = _alignment(param)
        offset = -(-end // align) * align
        found.append(Parameter(param.name, offset, param.bytes, param.type.name, param.name in pointers))
        end = offset + param.bytes
    return tuple(found)


def _alignment(param: Param) -> int:
    return param.align or max(param.type.bytes * param.lanes, 1)
