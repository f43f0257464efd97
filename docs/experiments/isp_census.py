"""Counts stencils with border handling in public PTX, and how many of them `isp` splits.

    python docs/experiments/isp_census.py LIST --half 0 --json FILE        counts; --half 1: the other files
    python docs/experiments/isp_census.py LIST --all --json FILE           all files, of any size

LIST has one PTX file per line. A file belongs to half 0 or 1 by the SHA-256 of its last two path components. The pass
was developed on half 0 only.

A kernel counts as a *stencil with border handling* if

- it has at least three loads from global memory whose addresses depend on ``%tid`` and on ``%ctaid``;
- it has at least two *checks*: an integer ``min``, ``max``, ``abs`` or ``rem``, or a comparison, of a value that
  depends on both, whose result goes into the address of such a load, or decides whether one is executed. A comparison
  whose branch leads straight to the end of the thread is no check: that is the domain of the kernel.

Values are followed through registers, not through memory. Equal kernels of one file count once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ptxmotion import Policy, optimize
from ptxmotion.analysis.manager import Facts
from ptxmotion.ptx import Instr, Kernel, Module, PtxError, Reg, Special, flatten_scopes, parse
from ptxmotion.ptx.operations import EXITS, LOADS, Operation
from ptxmotion.ptx.verify import problems

#: Larger files, in bytes, are left out: instances of templates for matrices and sorting.
LARGEST = 600_000
CLAMPS = frozenset([Operation.MINIMUM, Operation.MAXIMUM, Operation.MAGNITUDE, Operation.REMAINDER])
LOADS_AT_LEAST, CHECKS_AT_LEAST = 3, 2
TID, CTAID = 1, 2


def half_of(path: Path) -> int:
    """0 or 1."""
    return hashlib.sha256("/".join(path.parts[-2:]).encode()).digest()[0] & 1


class Rule:
    """The rule above for one kernel."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.ssa = facts.ssa
        self.blocks = {block: facts.cfg.blocks[block].instrs for block in facts.cfg.rpo}
        self.instrs = [instr for instrs in self.blocks.values() for instr in instrs if not instr.is_directive]
        #: By SSA value: on which of `TID` and `CTAID` it depends.
        self.depends: dict[int, int] = {}
        self._find_dependences()
        self.loads = [instr for instr in self.instrs if self._is_load(instr)]

    def is_stencil(self) -> bool:
        return len(self.loads) >= LOADS_AT_LEAST and len(self.checks()) >= CHECKS_AT_LEAST

    def _find_dependences(self) -> None:
        changed = True
        while changed:
            changed = False
            for block, instrs in self.blocks.items():
                for phi in self.ssa.phis[block]:
                    changed |= self._add(phi, self._of_values(value for _, value in self.ssa.phi_args.get(phi, ())))
                for instr in instrs:
                    if instr.is_directive or instr.form.operation in LOADS:
                        continue
                    found = self._of(instr)
                    for reg in instr.defs():
                        changed |= self._add(self.ssa.defined(instr, reg), found)

    def _add(self, value: int, found: int) -> bool:
        before = self.depends.get(value, 0)
        self.depends[value] = before | found
        return before | found != before

    def _of_values(self, values: Iterable[int]) -> int:
        total = 0
        for value in values:
            total |= self.depends.get(value, 0)
        return total

    def _of(self, instr: Instr) -> int:
        total = self._of_values(self.ssa.read(instr, reg) for reg in instr.uses())
        for operand in instr.operands:
            if isinstance(operand, Special):
                name = operand.name
                total |= TID if name.startswith("%tid") else CTAID if name.startswith("%ctaid") else 0
        return total

    def _is_load(self, instr: Instr) -> bool:
        if instr.form.operation not in LOADS or instr.form.space not in ("global", "generic"):
            return False
        address = instr.address
        return address is not None and isinstance(address.base, Reg) and self._reads_both(instr, [address.base])

    def _reads_both(self, instr: Instr, regs: Iterable[Reg]) -> bool:
        return self._of_values(self.ssa.read(instr, reg) for reg in regs) == TID | CTAID

    def checks(self) -> set[Instr]:
        """The checks of the kernel."""
        into = self._slice([(load, load.address.base) for load in self.loads if load.address is not None])
        found = {i for i in into if i.form.operation in CLAMPS and _is_integer(i) and self._reads_both(i, i.uses())}
        chosen = [(i, reg) for i in into if i.form.operation is Operation.SELECTION for reg in i.uses()]
        deciding = [(instr, instr.guard.reg) for instr in self._deciding() if instr.guard is not None]
        for instr in self._slice([*chosen, *deciding]):
            is_compared = instr.form.operation is Operation.COMPARISON and _is_integer(instr)
            if is_compared and self._reads_both(instr, instr.uses()):
                found.add(instr)
        return found

    def _slice(self, work: Iterable[tuple[Instr, Any]]) -> set[Instr]:
        """The instructions on which these operands depend, through registers."""
        values = [self.ssa.read(instr, reg) for instr, reg in work if isinstance(reg, Reg)]
        seen: set[int] = set()
        found: set[Instr] = set()
        while values:
            value = values.pop()
            if value in seen:
                continue
            seen.add(value)
            values += [before for _, before in self.ssa.phi_args.get(value, ())]
            if value in self.ssa.old:
                values.append(self.ssa.old[value])
            definition = self.ssa.instr[value]
            if definition is not None and definition.form.operation not in LOADS and definition not in found:
                found.add(definition)
                values += [self.ssa.read(definition, reg) for reg in definition.uses()]
        return found

    def _deciding(self) -> Iterable[Instr]:
        """The guarded loads, and the branches that decide about loads and do not lead to the end of the thread."""
        controllers = self.facts.control_dependence.controllers
        loads = set(self.loads)
        blocks = {block for block, instrs in self.blocks.items() if not loads.isdisjoint(instrs)}
        yield from (load for load in self.loads if load.guard is not None)
        for branch in {each for block in blocks for each in controllers[block] if each >= 0}:
            last = self.facts.cfg.blocks[branch].terminator
            if last is not None and last.guard is not None and not any(map(self._ends, self.facts.cfg.succ[branch])):
                yield last

    def _ends(self, block: int) -> bool:
        instrs = [instr for instr in self.blocks.get(block, ()) if not instr.is_directive]
        return len(instrs) == 1 and instrs[0].form.operation in EXITS


def _is_integer(instr: Instr) -> bool:
    scalar = instr.form.scalar("type")
    return scalar is not None and scalar.is_integer and scalar.bits in (32, 64) and scalar.lanes == 1


def stencils_of(module: Module) -> list[str]:
    """The names of the stencils of a module."""
    found: list[str] = []
    for kernel in module.entries:
        copy: Kernel = kernel.clone()
        flatten_scopes(copy)
        facts = Facts(copy, module)
        if not facts.cfg.unmodelled and Rule(facts).is_stencil():
            found.append(kernel.name)
    return found


def outcome_of(name: str, free: Any, judged: Any) -> dict[str, Any]:
    """What became of a stencil: without a gate, and with one."""
    own = [each for each in free.remarks if each.kernel == name]
    after = [each for each in judged.remarks if each.kernel == name]
    passed = next((each for each in [*own, *after] if each.pass_name == "isp" and each.kind == "Passed"), None)
    gate = next((each for each in after if each.pass_name == "gate"), None)
    refusal = next((each for each in own if each.pass_name in ("isp", "contraction") and each.name != "Kept"), None)
    is_split = passed is not None or gate is not None
    kept = Counter(each.reason for each in own if each.pass_name == "isp" and each.name == "Kept")
    return {
        "split": is_split,
        "without gate": any(each.pass_name == "isp" and each.kind == "Passed" for each in own),
        "gate": "" if gate is None else gate.reason or "kept",
        "about": passed.message if passed is not None else "",
        "gain": gate.message if gate is not None else "",
        "refused": "" if is_split or refusal is None else refusal.reason,
        "checks that stay": dict(kept),
    }


def count(path: Path) -> dict[str, Any]:
    """The stencils of a file and their outcomes."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    module = parse(text)
    if problems(module):
        return {}
    names = stencils_of(module)
    if not names:
        return {}
    free = optimize(text, "isp")
    judged = optimize(text, "isp", Policy(gate="ptxas"))
    return {name: outcome_of(name, free, judged) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("list", type=Path)
    parser.add_argument("--half", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    found: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    for line in arguments.list.read_text(encoding="utf-8").split():
        path = Path(line)
        is_left_out = half_of(path) != arguments.half or path.stat().st_size > LARGEST
        if line in found or (is_left_out and not arguments.all):
            continue
        started = time.perf_counter()
        try:
            found[line] = count(path)
        except PtxError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for name, each in found[line].items():
            what = each["gate"] or each["refused"] or "split"
            print(f"{path.parent.name}/{path.stem}: {name}: {what} {time.perf_counter() - started:.1f} s", flush=True)
        arguments.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    summary(found)


def summary(found: dict[str, Any]) -> None:
    """Print the totals."""
    all_of = [each for kernels in found.values() for each in kernels.values()]
    split = [each for each in all_of if each["split"]]
    print(f"{len(found)} files, {len(all_of)} stencils, {len(split)} split")
    print("by the gate:", dict(Counter(each["gate"] or "without code" for each in split)))
    print("refused:", dict(Counter(each["refused"] for each in all_of if not each["split"])))


if __name__ == "__main__":
    main()
