"""The kernels of operators by each lowering, compiled for the model `isp+m`, with their machine code and counts.

Requires: nvcc and ptxas. Guarantees: equal kernels of several operators are compiled once, and those that were compiled
last are found again. Kernels are compiled side by side, in as few units as there are cores (`joined_units`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..joined_units import joined_units
from ..kernel import PythonKernel
from .lowered import Launch, Options
from .lowering import LowerNode, naive_node
from .operators import Access, Image, Node, ScalarInput
from .partition_counts import Counts, counted_arguments, parts_of
from .partitioning import ROWS, isp_node, isp_rows_node, isp_warp_node

if TYPE_CHECKING:
    from ...toolchain.cubin import KernelCode
    from ..compilation import Nvcc

__all__ = ["NODE_LOWERINGS", "Compiled", "SameKernel", "compile_kernels", "has_body", "rows_of", "signature"]

NODE_LOWERINGS: dict[str, LowerNode] = {
    "naive": naive_node,
    "isp": isp_node,
    "isp_warp": isp_warp_node,
    "isp_rows": isp_rows_node,
}
#: By partitioned lowering: the kernel with its body only.
_BODIES: dict[str, LowerNode] = {
    "isp": partial(isp_node, body_only=True),
    "isp_warp": partial(isp_warp_node, body_only=True),
    "isp_rows": partial(isp_rows_node, body_only=True),
}
#: Kernels that are kept for later calls.
_KEPT = 32


def rows_of(lowering: str) -> int:
    """The pixels of a thread, one below the other."""
    return ROWS if lowering == "isp_rows" else 1


def has_body(node: Node[Any], options: Options, rows: int = 1) -> bool:
    """Whether some blocks check nothing."""
    return all(any(not part.name and part.size for part in parts) for parts in parts_of(node, options, rows))


class SameKernel:
    """A node that is lowered with options, which have a compiler. Two of them are equal if their kernels and arguments
    are."""

    def __init__(self, lowering: str, node: Node[Any], options: Options) -> None:
        self.lowering, self.node, self.options = lowering, node, options
        self.key = lowering, signature(node), options.block, options.loops, options.contract, options.nvcc

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameKernel) and self.key == other.key


def signature(node: Node[Any]) -> tuple[object, ...]:
    """What the kernels of a node and their arguments depend on: equal for nodes of several graphs that only differ in
    the pixels of their images."""
    images: dict[Image[Any], int] = {}
    arguments: list[object] = []
    for each in node.arguments:
        if isinstance(each, Access):
            image, number = each.image, images.setdefault(each.image, len(images))
            size = int(image.width), int(image.height)
            arguments.append(
                (each.param.name, number, str(image.pixel), size, each.boundary, each.centres, each.extent)
            )
        else:
            arguments.append((each.param.name, each.value if isinstance(each.value, ScalarInput) else repr(each.value)))
    space = node.space
    sizes = int(space.width), int(space.height), int(space.x0), int(space.y0)
    return node.operator, str(node.pixel), tuple(arguments), sizes


@dataclass(frozen=True)
class Compiled:
    """A kernel: its machine code, that of its body, and its counts."""

    code: KernelCode
    usual: KernelCode
    counts: Counts


#: The kernels that were compiled last.
_kept: dict[SameKernel, Compiled] = {}


def compile_kernels(wanted: Iterable[SameKernel]) -> dict[SameKernel, Compiled]:
    """The compiled kernels. All of them have the same compiler."""
    found = {same: _kept.pop(same, None) for same in wanted}
    missing = [same for same, kernel in found.items() if kernel is None]
    made = dict(zip(missing, _compiled(missing), strict=True))
    result = {same: kernel or made[same] for same, kernel in found.items()}
    _kept.update(result)
    for same in list(_kept)[:-_KEPT]:
        _kept.pop(same, None)
    return result


@dataclass(frozen=True, slots=True)
class _Unit:
    """The kernels of a translation unit: their PTX, and machine code by name."""

    ptx: str
    codes: Mapping[str, KernelCode]


def _compiled(wanted: list[SameKernel]) -> list[Compiled]:
    if not wanted:
        return []
    nvcc = wanted[0].options.nvcc
    assert nvcc is not None
    launches = [_launch(same, NODE_LOWERINGS, f"kernel{number}") for number, same in enumerate(wanted)]
    bodies = [
        _launch(same, _BODIES, f"body{number}")
        if same.lowering in _BODIES and has_body(same.node, same.options, rows_of(same.lowering))
        else launch
        for number, (same, launch) in enumerate(zip(wanted, launches, strict=True))
    ]
    # The emulator reads whole units, and needs no bodies.
    own = [launch.kernel for launch in launches]
    units = _units(own, nvcc) | _units([body.kernel for body in bodies if body.kernel not in own], nvcc)
    found: list[Compiled] = []
    for launch, body in zip(launches, bodies, strict=True):
        unit, usual = units[launch.kernel], units[body.kernel]
        counts = Counts(unit.ptx, launch.kernel.entry(unit.ptx), launch.block, counted_arguments(launch))
        found.append(Compiled(unit.codes[launch.kernel.name], usual.codes[body.kernel.name], counts))
    return found


def _launch(same: SameKernel, lowerings: Mapping[str, LowerNode], name: str) -> Launch:
    return lowerings[same.lowering](same.node, name, same.options)


def _units(kernels: list[PythonKernel[...]], nvcc: Nvcc) -> dict[PythonKernel[...], _Unit]:
    """The unit of each kernel."""
    cores = len(os.sched_getaffinity(0))
    units = joined_units(kernels, cores)
    with ThreadPoolExecutor(cores) as pool:
        made = list(pool.map(partial(_unit, nvcc), [text for text, _ in units]))
    return {kernel: unit for unit, (_, members) in zip(made, units, strict=True) for kernel in members}


def _unit(nvcc: Nvcc, text: str) -> _Unit:
    from ...toolchain.cubin import read_cubin
    from ...toolchain.cubin_cache import assemble_kept
    from ...toolchain.tools import arch_for

    ptx = nvcc.ptx(text)
    return _Unit(ptx, read_cubin(assemble_kept(ptx, arch_for(ptx)).cubin))
