"""Several kernels as one translation unit: nvcc is started once, and reads its own headers once.

Requires: kernels with different names. Guarantees: a kernel has the PTX that it has in a unit of its own, except for
the numbers in labels. Its device functions are in a namespace of its own. Refuses: nothing; a kernel with tables in
constant memory gets a unit of its own, because the places of other tables change its machine code a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .kernel import PythonKernel

__all__ = ["joined_units"]

_INCLUDE = "#include "
_TABLE = "__constant__"


def joined_units(kernels: Sequence[PythonKernel[Any]], most: int) -> list[tuple[str, list[PythonKernel[Any]]]]:
    """Units with their kernels, each as CUDA C++ with lines for nvcc. Kernels without tables are in at most ``most``
    units, whose texts are about equally long."""
    alone = [kernel for kernel in kernels if _TABLE in kernel.cuda_with_lines]
    others = sorted((kernel for kernel in kernels if kernel not in alone), key=_length, reverse=True)
    parts: list[list[PythonKernel[Any]]] = [[] for _ in range(min(most, len(others)))]
    for kernel in others:
        min(parts, key=lambda part: sum(map(_length, part))).append(kernel)
    return [(_joined(part), part) for part in [*([kernel] for kernel in alone), *parts]]


def _length(kernel: PythonKernel[Any]) -> int:
    return len(kernel.cuda_with_lines)


def _joined(kernels: Sequence[PythonKernel[Any]]) -> str:
    if len(kernels) == 1:
        return kernels[0].cuda_with_lines
    headers: dict[str, None] = {}
    parts: list[str] = []
    for number, kernel in enumerate(kernels):
        lines = kernel.cuda_with_lines.splitlines()
        headers |= dict.fromkeys(line for line in lines if line.startswith(_INCLUDE))
        body = [line for line in lines if not line.startswith(_INCLUDE)]
        parts += [f"namespace unit{number} {{", *body, "}"]
    return "\n".join([*sorted(headers), *parts]) + "\n"
