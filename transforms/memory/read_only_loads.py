"""Turns loads of global memory that nothing writes during the kernel into ``ld.global.nc``.

Such loads use the read-only path. What `Facts.memory` knows about the buffers of parameters mostly needs a promise
(``--alias=restrict``), unless the kernel writes through no pointer at all, or only to shared and local memory.

Requires: `Facts.memory`. Guarantees: no instruction of this kernel may write the bytes that the load reads. Assumes
what every ``.nc`` load assumes and PTX cannot express: that nothing else (another grid, the host) writes them while the
kernel runs. A kernel that may wait for something else, by ``griddepcontrol``, fences, acquiring or volatile loads, may
break this assumption, so it is not changed (`Memory.outside`).
Refuses: kernels that wait for the outside or call; loads that are volatile, generic, or have a cache operator that
``.nc`` does not accept.
Reference: PTX ISA 9.0, §9.7.9.9 (ld.global.nc).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from ...analysis.manager import Facts
from ...ptx import Effect, Instr, Kernel
from ...ptx.operations import Operation
from ..remarks import Remarks

__all__ = ["ReadOnlyLoads"]

#: The cache operators that ``.nc`` accepts.
_OPERATORS = frozenset(["", "ca", "cg", "cs"])
#: The first architecture with ``ld.global.nc``, as the number in ``sm_…``.
_OLDEST = 35
#: Modifiers that exclude ``.nc``.
_EXCLUDING = frozenset(["nc", "mmio", "unified"])


@dataclass(frozen=True)
class ReadOnlyLoads:
    """Turns loads of memory that nothing writes during the kernel into read-only loads (ld.global.nc)."""

    name: ClassVar[str] = "readonly"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Turn loads into read-only loads; whether there were any."""
        if not kernel.is_entry or _sm(facts) < _OLDEST:
            return False
        loads = [instr for instr in kernel.instructions() if _is_candidate(instr) and remarks.allows(self.name, instr)]
        if not loads:
            return False
        memory = facts.memory
        outside = memory.outside
        if outside is not None:
            what = outside.form.text
            message = f"'{what}' may wait for another grid or the host, which may write, so no load becomes read-only"
            remarks.add("Missed", self.name, "Refused", kernel, message, instr=outside, reason="outside")
            return False
        reachable = {instr for block in facts.cfg.rpo for instr in facts.cfg.blocks[block].instrs}
        chosen = [load for load in loads if load in reachable and memory.is_unwritten(load)]
        changed = 0
        for load in chosen:
            if remarks.may_rewrite(self.name, load):
                message = f"'{load.form.text}' reads memory that nothing writes during the kernel"
                remarks.add("Passed", self.name, "ReadOnly", kernel, message, instr=load)
                kernel.replace_form(load, _read_only(load.form.text))
                changed += 1
        remarks.count(kernel, self.name, "read-only", changed)
        return changed > 0


def _is_candidate(instr: Instr) -> bool:
    form = instr.form
    if form.operation is not Operation.LOAD or form.mods.get("space") != "global" or form.effects & Effect.ORDERED:
        return False
    if form.type is None or form.type.bits > 64 or form.lanes * form.type.bytes > 16:
        return False
    return form.flags.isdisjoint(_EXCLUDING) and form.mods.get("cop", "") in _OPERATORS


def _sm(facts: Facts) -> int:
    """The number of the target's architecture; 0 where the module names none."""
    match = re.match(r"sm_(\d+)", facts.module.arch) if facts.module is not None else None
    return int(match[1]) if match else 0


def _read_only(mnemonic: str) -> str:
    """The mnemonic with ``.nc`` in its place, after the cache operator.

    >>> _read_only("ld.global.ca.v2.f32"), _read_only("ld.weak.global.u32")
    ('ld.global.ca.nc.v2.f32', 'ld.global.nc.u32')
    """
    words = [word for word in mnemonic.split(".") if word != "weak"]  # .weak is the default, and .nc does not accept it
    at = words.index("global") + 1
    if at < len(words) and words[at] in _OPERATORS:
        at += 1
    return ".".join([*words[:at], "nc", *words[at:]])
