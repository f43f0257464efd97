"""Instructions that wait for other lanes of a warp, where some of these lanes may be in the second body already.

An instruction such as ``shfl.sync`` or ``bar.warp.sync`` waits for the lanes of its membermask that have not exited. In
the fused kernel, a lane that returns from the first body does not exit. It goes on to the second body. If it waits
there, at a barrier or at another such instruction, the lanes in the first body may wait for it forever, or meet it
there.

Guarantees: if the first body has no `partial_waits`, all lanes of a warp leave such an instruction before one of them
is in the second body. If the second body has no waits and there is no barrier between the bodies, a lane that is waited
for does not wait itself, so it exits.
Reference: PTX ISA 9.0, §9.7.9 (shfl.sync), §9.7.13 (bar.warp.sync, vote.sync).
"""

from __future__ import annotations

from ...analysis.divergence.divergence import Divergence
from ...analysis.manager import Facts
from ...ptx import Effect, Instr, Reg
from ...ptx.operations import BARRIERS, Operation
from .buffer_use import facts_of
from .launch_site import LaunchSite

__all__ = ["has_waits", "partial_waits"]


def has_waits(site: LaunchSite) -> bool:
    """Whether threads wait for each other somewhere in the kernel, in its block or in a warp."""
    return any(
        instr.form.operation in BARRIERS or _waits_for_lanes(instr)
        for instr in site.kernel.instructions()
        if not instr.is_directive
    )


def partial_waits(site: LaunchSite) -> list[Instr]:
    """The instructions that wait for lanes, and that some lanes of a warp may not reach."""
    facts = facts_of(site)
    if not any(_waits_for_lanes(instr) for instr in site.kernel.instructions() if not instr.is_directive):
        return []
    divergence = _divergence(facts, site)
    partial = _reached_by_some(facts, divergence)
    return [
        instr
        for block in facts.cfg.rpo
        for instr in facts.cfg.blocks[block].instrs
        if not instr.is_directive
        and _waits_for_lanes(instr)
        and (block in partial or _has_divergent_guard(instr, divergence))
    ]


def _waits_for_lanes(instr: Instr) -> bool:
    form = instr.form
    return form.operation is Operation.WARP_BARRIER or (
        form.effects & Effect.CROSS_LANE != 0 and form.operation not in BARRIERS and "sync" in form.flags
    )


def _has_divergent_guard(instr: Instr, divergence: Divergence) -> bool:
    guard = instr.guard.reg if instr.guard is not None else None
    return isinstance(guard, Reg) and divergence.varying_read(instr, guard) != 0


def _divergence(facts: Facts, site: LaunchSite) -> Divergence:
    """The divergence for the block of the launch, if its extents are numbers."""
    x, y, z = site.block
    if not (isinstance(x, int) and isinstance(y, int) and isinstance(z, int)):
        return facts.divergence
    shape = x, y, z
    return Divergence(facts.kernel, facts.cfg, facts.loops, facts.control_dependence, facts.ssa, shape=shape)


def _reached_by_some(facts: Facts, divergence: Divergence) -> set[int]:
    """The blocks on the paths from a divergent branch to the block where all these paths meet, without that block."""
    reached: set[int] = set()
    for branch in divergence.divergent_branches:
        end = facts.post_dominance.idom[branch]
        work, seen = list(facts.cfg.succ[branch]), set[int]()
        while work:
            block = work.pop()
            if block != end and block not in seen:
                seen.add(block)
                work += facts.cfg.succ[block]
        reached |= seen
    return reached
