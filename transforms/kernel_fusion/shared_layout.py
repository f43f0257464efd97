"""Shared memory of two bodies in one kernel.

Arrays of fixed size get separate bytes if all of them fit into the memory that a kernel may have by default. Otherwise
the two bodies use the same bytes, one after the other. Arrays whose size the launch gives (``extern``) all begin where
the fixed arrays end. So if both bodies have such an array, they always share the bytes. Shared bytes need a
``bar.sync`` between the bodies: no thread may overwrite them while another thread still reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...ptx import TYPES, Kernel, Variable
from ...ptx.ir import Declaration
from .launch_site import Extent, LaunchSite, text_of

__all__ = ["MOST_STATIC", "SharedLayout", "shared_layout"]

#: Bytes of shared memory of fixed size that a kernel may have.
MOST_STATIC = 48 * 1024


@dataclass(slots=True)
class SharedLayout:
    """``symbols`` maps, for each body, an array to its replacement and an offset in bytes; other arrays are copied with
    the body. ``dynamic_bytes`` is the dynamic shared memory that the launch must provide. ``too_much`` says why a
    launch of the fused kernel might fail although launches of the parts do not; empty if it cannot."""

    symbols: tuple[dict[Declaration, tuple[Declaration, int]], dict[Declaration, tuple[Declaration, int]]]
    declarations: list[Variable] = field(default_factory=list[Variable])
    module_variables: list[Variable] = field(default_factory=list[Variable])
    dynamic_bytes: Extent = 0
    needs_barrier: bool = False
    remarks: list[str] = field(default_factory=list[str])
    too_much: str = ""


def shared_layout(first: LaunchSite, second: LaunchSite, name: str) -> SharedLayout:
    """The layout. ``name`` is the prefix for the names of new arrays. No other name may begin with it."""
    layout = SharedLayout(({}, {}))
    arrays = [_arrays(site.kernel) for site in (first, second)]
    _dynamic(layout, (first, second), arrays, name)
    fixed = [[each for each in found if _size(each) is not None] for found in arrays]
    sizes = [_laid_out(found)[1] for found in fixed]
    _check(layout, (first, second), sizes)
    if sizes[0] and sizes[1] and sum(sizes) > MOST_STATIC:
        _overlap(layout, fixed, name, max(sizes))
        return layout
    for side, found in enumerate(fixed):
        own = set(map(id, (first, second)[side].kernel.declarations))
        for number, array in enumerate(found):
            if id(array) not in own:
                copied = Variable(
                    f"{name}_{side}_{number}", "shared", array.type, "", array.align, array.lanes, array.dims
                )
                layout.declarations.append(copied)
                layout.symbols[side][array] = (copied, 0)
    return layout


def _check(layout: SharedLayout, sites: tuple[LaunchSite, LaunchSite], sizes: list[int]) -> None:
    """Sets ``too_much`` if fixed and dynamic shared memory together exceed `MOST_STATIC` although neither part requests
    more."""
    fixed = max(sizes) if sum(sizes) > MOST_STATIC else sum(sizes)
    dynamic = layout.dynamic_bytes
    # The same amounts that one part had by itself are allowed.
    if dynamic == 0 or all(fixed == size for size, site in zip(sizes, sites, strict=True) if site.shared != 0):
        return
    if not isinstance(dynamic, int):
        layout.too_much = f"{fixed} bytes of static and {dynamic} bytes of dynamic shared memory may be too much"
    elif fixed + dynamic > MOST_STATIC:
        layout.too_much = f"the fused kernel would need {fixed + dynamic} bytes of shared memory"


def _arrays(kernel: Kernel) -> list[Variable]:
    """The shared arrays that the kernel declares or mentions, in the order of their first mention."""
    arrays: dict[int, Variable] = {id(each): each for each in kernel.variables if each.space == "shared"}
    for instr in kernel.instructions():
        for symbol in instr.symbols():
            declaration = symbol.declaration
            if isinstance(declaration, Variable) and declaration.space == "shared":
                arrays.setdefault(id(declaration), declaration)
    return list(arrays.values())


def _size(array: Variable) -> int | None:
    return None if "extern" in array.linkage else array.bytes


def _alignment(array: Variable) -> int:
    return array.align or array.type.bytes * array.lanes


def _laid_out(arrays: Iterable[Variable]) -> tuple[list[int], int]:
    """The offsets of consecutive arrays, and the end of the last one."""
    offsets: list[int] = []
    end = 0
    for array in arrays:
        alignment = _alignment(array)
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + (_size(array) or 0)
    return offsets, end


def _overlap(layout: SharedLayout, fixed: Sequence[list[Variable]], name: str, size: int) -> None:
    alignment = max(_alignment(array) for found in fixed for array in found)
    region = Variable(name, "shared", TYPES["b8"], align=alignment, dims=(size,))
    layout.declarations.append(region)
    for side, found in enumerate(fixed):
        for array, offset in zip(found, _laid_out(found)[0], strict=True):
            layout.symbols[side][array] = (region, offset)
    layout.needs_barrier = True
    layout.remarks.append(f"the bodies use the same {size} bytes of shared memory")


def _dynamic(
    layout: SharedLayout, sites: tuple[LaunchSite, LaunchSite], arrays: Sequence[list[Variable]], name: str
) -> None:
    dynamic = [[each for each in found if _size(each) is None] for found in arrays]
    everything = [array for found in dynamic for array in found]
    if not everything:
        return
    alignment = max(_alignment(array) for array in everything)
    common = Variable(f"{name}_dynamic", "shared", TYPES["b8"], ".extern", alignment, dims=(None,))
    layout.module_variables.append(common)
    for side, found in enumerate(dynamic):
        for array in found:
            layout.symbols[side][array] = (common, 0)
    needed = [site.shared for site, found in zip(sites, dynamic, strict=True) if found]
    layout.dynamic_bytes = needed[0] if len(needed) == 1 or needed[0] == needed[1] else _larger(needed[0], needed[1])
    if len(needed) == 2:
        layout.needs_barrier = True
        layout.remarks.append("the bodies use the same dynamic shared memory")


def _larger(one: Extent, other: Extent) -> Extent:
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return f"max({text_of(one)}, {text_of(other)})"
