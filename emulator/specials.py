"""The values of special registers in a cohort. PTX ISA 9.0, chapter 10.

Guarantees: `%clock` and `%globaltimer` increase with the segments that have run; `%smid` distributes blocks over the
multiprocessors of an H200; every block is a cluster of its own. Refuses: `%pm…`, `%envreg…` and registers that have no
meaning without a driver, with ``None``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arch import H200_MULTIPROCESSORS

if TYPE_CHECKING:
    from .cohort import Cohort

__all__ = ["special"]

Array: TypeAlias = npt.NDArray[Any]

_AXES = {"x": 0, "y": 1, "z": 2}


def _one(value: int, dtype: Any = np.uint32) -> Array:
    return np.array([value], dtype)


def _dimension(base: str, axis: int) -> Callable[[Cohort], Array] | None:
    if base == "%tid":
        return lambda c: c.column(f"tid{axis}")
    if base == "%ctaid" or base == "%clusterid":
        return lambda c: c.column(f"ctaid{axis}")
    if base == "%ntid":
        return lambda c: _one(c.batch.block_shape[axis])
    if base == "%nctaid" or base == "%nclusterid":
        return lambda c: _one(c.batch.grid_shape[axis])
    if base == "%cluster_ctaid":
        return lambda c: _one(0)
    if base == "%cluster_nctaid":
        return lambda c: _one(1)
    return None


_PLAIN: dict[str, Callable[[Cohort], Array]] = {
    "%laneid": lambda c: c.column("lane"),
    "%warpid": lambda c: c.column("warpid"),
    "%nwarpid": lambda c: _one(64),
    "%smid": lambda c: c.block_number() % np.uint32(H200_MULTIPROCESSORS),
    "%nsmid": lambda c: _one(H200_MULTIPROCESSORS),
    "%gridid": lambda c: _one(c.batch.launch_number, np.uint64),
    "%cluster_ctarank": lambda c: _one(0),
    "%cluster_nctarank": lambda c: _one(1),
    "%is_explicit_cluster": lambda c: np.zeros(1, bool),
    "%lanemask_eq": lambda c: _bit(c),
    "%lanemask_lt": lambda c: _bit(c) - np.uint32(1),
    "%lanemask_le": lambda c: (_bit(c) - np.uint32(1)) | _bit(c),
    "%lanemask_gt": lambda c: ~((_bit(c) - np.uint32(1)) | _bit(c)),
    "%lanemask_ge": lambda c: ~(_bit(c) - np.uint32(1)),
    "%clock": lambda c: _one(c.batch.clock() & 0xFFFFFFFF),
    "%clock_hi": lambda c: _one(c.batch.clock() >> 32),
    "%clock64": lambda c: _one(c.batch.clock(), np.uint64),
    "%globaltimer": lambda c: _one(c.batch.clock(), np.uint64),
    "%globaltimer_lo": lambda c: _one(c.batch.clock() & 0xFFFFFFFF),
    "%globaltimer_hi": lambda c: _one(c.batch.clock() >> 32),
    "%dynamic_smem_size": lambda c: _one(c.batch.dynamic_shared),
    "%total_smem_size": lambda c: _one(c.batch.total_shared),
    "%aggr_smem_size": lambda c: _one(c.batch.total_shared),
    "WARP_SZ": lambda c: _one(32),
}


def _bit(c: Cohort) -> Array:
    return np.uint32(1) << c.column("lane")


def special(name: str) -> Callable[[Cohort], Array] | None:
    """A function that gives the special register ``name`` in a cohort; ``None`` if it is not emulated."""
    base, _, component = name.partition(".")
    if component == "w":
        return lambda c: _one(0)
    if component:
        return _dimension(base, _AXES[component])
    return _PLAIN.get(base)
