"""The special registers and their types. Reference: PTX ISA 9.0, §10."""

from __future__ import annotations

__all__ = ["special_type"]

#: Types by the name without component. All other special registers are ``u32``.
_SPECIAL_TYPES: dict[str, str] = {
    "%clock64": "u64",
    "%globaltimer": "u64",
    "%gridid": "u64",
    "%current_graph_exec": "u64",
    "%total_smem_size": "u32",
    "%is_explicit_cluster": "pred",
}
_SPECIAL_NAMES = frozenset(
    "%tid %ntid %laneid %warpid %nwarpid %ctaid %nctaid %smid %nsmid %gridid %is_explicit_cluster %clusterid "
    "%nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank %lanemask_eq %lanemask_le "
    "%lanemask_lt %lanemask_ge %lanemask_gt %clock %clock_hi %clock64 %globaltimer %globaltimer_lo %globaltimer_hi "
    "%reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %reserved_smem_offset_0 "
    "%reserved_smem_offset_1 %total_smem_size %aggr_smem_size %dynamic_smem_size %current_graph_exec WARP_SZ".split()
)


def special_type(name: str) -> str | None:
    """The type of special register ``name``, such as ``%tid.x``; ``None`` if there is no such register."""
    base, _, component = name.partition(".")
    if component and component not in ("x", "y", "z", "w"):
        return None
    if base in _SPECIAL_NAMES:
        return _SPECIAL_TYPES.get(base, "u32")
    for prefix in ("%envreg", "%pm"):
        digits = base[len(prefix) :]
        if base.startswith(prefix) and digits.removesuffix("_64").isdigit():
            return "u64" if digits.endswith("_64") else "u32"
    return None
