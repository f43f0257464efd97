"""The report of `analyze --memory`: references and their aliases, buffers, and what each synchronization kills.

Two references are in the same class if their bytes can overlap, in any two threads, directly or through other
references. For each load the report says whether its memory can be written while the kernel runs, and whether the load
could be executed above the branch that it depends on (`speculation.may_speculate`).

Guarantees: the tables and the JSON document have the same content. The time is near-linear in the number of
references, because aliasing is computed for kinds of references (state space and objects), not for pairs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .divergence_report import Place, place_text
from .tables import print_table

if TYPE_CHECKING:
    from ..analysis.manager import Facts
    from ..analysis.memory.alias import Memory, Reference
    from ..ptx import Instr

__all__ = ["describe_memory", "print_memory"]

#: A reason that only this report has: the address is not available at the branch.
_BELOW = "address-below"


def describe_memory(facts: Facts, place: Place) -> dict[str, Any]:
    """References, classes, buffers and synchronizations of the kernel of ``facts`` as plain data."""
    return _Description(facts, place).describe()


class _Description:
    def __init__(self, facts: Facts, place: Place) -> None:
        self.facts = facts
        self.memory: Memory = facts.memory
        self.place = place
        self.references: list[tuple[int, Instr, Reference]] = []
        for block in facts.cfg.rpo:
            for instr in facts.cfg.blocks[block].instrs:
                reference = self.memory.reference(instr) if not instr.is_directive else None
                if reference is not None:
                    self.references.append((block, instr, reference))
        self.class_of = self.classes()

    def describe(self) -> dict[str, Any]:
        buffers = self.memory.buffers
        return {
            "promise": self.memory.promise.text,
            "buffers": {
                "reads": sorted(buffers.reads),
                "writes": sorted(buffers.writes),
                "variables_read": sorted(buffers.variables_read),
                "variables_written": sorted(buffers.variables_written),
                "unknown_reads": buffers.unknown_reads,
                "unknown_writes": buffers.unknown_writes,
            },
            "classes": self.class_table(),
            "references": [self.reference(*each) for each in self.references],
            "synchronizations": self.synchronizations(),
        }

    # --- classes ---------------------------------------------------------------------------------------------------

    def classes(self) -> dict[tuple[str, Any], int]:
        """The number of the class of each kind of reference, in the order of the first references.

        -1 for parameters of the kernel, which are never written.
        """
        from ..ptx import Variable

        first: dict[tuple[str, Any], Reference] = {}
        for _, _, reference in self.references:
            first.setdefault((reference.space, reference.objects), reference)
        kinds = list(first)
        parent = list(range(len(kinds)))

        def find(number: int) -> int:
            while parent[number] != number:
                parent[number] = parent[parent[number]]
                number = parent[number]
            return number

        def join(one: int, two: int) -> None:
            low, high = sorted((find(one), find(two)))
            parent[high] = low

        # Declared objects with a size are disjoint: references to such objects alone overlap only in a common object.
        # Some kernels have thousands of them. All other kinds are compared with each kind.
        of_object: dict[Any, int] = {}
        others: list[int] = []
        for number, (_, objects) in enumerate(kinds):
            if objects is None or not all(isinstance(each, Variable) and each.bytes is not None for each in objects):
                others.append(number)
            else:
                for each in objects:
                    join(number, of_object.setdefault(each, number))
        for one in others:
            for two in range(len(kinds)):
                if one != two and self.memory.may_ever_alias(first[kinds[one]], first[kinds[two]]):
                    join(one, two)
        roots = dict.fromkeys(find(number) for number, (space, _) in enumerate(kinds) if space != "param")
        numbers = {root: number for number, root in enumerate(roots)}
        return {kind: numbers.get(find(number), -1) for number, kind in enumerate(kinds)}

    def name_of(self, reference: Reference) -> str:
        number = self.class_of[reference.space, reference.objects]
        return _letters(number) if number >= 0 else "param"

    def class_table(self) -> list[dict[str, Any]]:
        by_class: dict[str, dict[str, Any]] = {}
        for _, instr, reference in self.references:
            name = self.name_of(reference)
            entry = by_class.setdefault(
                name, {"name": name, "spaces": set(), "objects": set(), "unknown": False, "loads": 0, "stores": 0}
            )
            entry["spaces"].add(reference.space)
            entry["objects"].update(_names(reference) or ())
            entry["unknown"] |= reference.objects is None
            entry["stores" if _access(instr) != "load" else "loads"] += 1
        for entry in by_class.values():
            entry["spaces"], entry["objects"] = sorted(entry["spaces"]), sorted(entry["objects"])
        return list(by_class.values())

    # --- references ------------------------------------------------------------------------------------------------

    def reference(self, block: int, instr: Instr, reference: Reference) -> dict[str, Any]:
        file, line, _ = self.place(instr)
        access = _access(instr)
        return {
            "block": block,
            "text": instr.text,
            "reference": f"{instr.form.text} {instr.address.text}" if instr.address is not None else instr.text,
            "file": file,
            "line": line,
            "access": access,
            "space": reference.space,
            "bytes": reference.bytes,
            "objects": _names(reference),
            "class": self.name_of(reference),
            "divergent_address": self.facts.divergence.is_address_divergent(instr),
            "unwritten": self.memory.is_unwritten(instr) if access == "load" else None,
            "speculation": self.speculation(block, instr) if access == "load" else None,
        }

    def speculation(self, block: int, load: Instr) -> dict[str, Any] | None:
        """Whether ``load`` can move above the nearest branch that it depends on; ``None`` if there is none."""
        from ..analysis.effects import REASONS
        from ..analysis.memory.speculation import may_speculate

        facts = self.facts
        above = self.deciding_branch(block)
        if above is None:
            return None
        if not self.is_available(load, above):
            found = {
                "kind": "refused",
                "reason": _BELOW,
                "text": "its address is computed below the branch that decides about it",
            }
        else:
            answer = may_speculate(facts, load, facts.cfg.blocks[above])
            text = REASONS.get(answer.reason, answer.reason) if answer.reason else ""
            found = {"kind": answer.kind, "reason": answer.reason, "text": text}
            if answer.guard is not None:
                found["text"] = f"under {answer.guard.text}"
        return {"above": above, **found}

    def deciding_branch(self, block: int) -> int | None:
        """The nearest block whose branch decides whether ``block`` is executed."""
        idom, post = self.facts.dominance.idom, self.facts.post_dominance
        above = idom[block]
        while above >= 0:
            if self.facts.control_dependence.ways(above) > 1 and not post.dominates(block, above):
                return above
            above = idom[above]
        return None

    def is_available(self, load: Instr, block: int) -> bool:
        """Whether the operands of the address are available at the end of ``block``."""
        from ..ptx import registers

        address, ssa = load.address, self.facts.ssa
        if address is None:
            return False
        values = [ssa.read(load, reg) for reg in registers(address)]
        return all(self.facts.dominance.dominates(ssa.block[value], block) for value in values)

    # --- synchronization -------------------------------------------------------------------------------------------

    def synchronizations(self) -> list[dict[str, Any]]:
        """The barriers, fences, atomics and calls, with the loads whose values can change at them."""
        from ..analysis.memory.touched_memory import synchronization

        loads: dict[tuple[str, bool], tuple[Instr, int]] = {}
        for _, instr, reference in self.references:
            if _access(instr) == "load" and self.name_of(reference) != "param":
                key = (f"{reference.space} {self.name_of(reference)}", self.memory.is_unwritten(instr))
                first, number = loads.get(key, (instr, 0))
                loads[key] = first, number + 1
        rows: list[dict[str, Any]] = []
        for block in self.facts.cfg.rpo:
            for instr in self.facts.cfg.blocks[block].instrs:
                if instr.is_directive or not synchronization(instr.form):
                    continue
                killed: Counter[tuple[str, str]] = Counter()
                kept = 0
                for (kind, _), (load, number) in loads.items():
                    why = self.memory.kills(instr, load)
                    if why:
                        killed[kind.rsplit(" ", 1)[1], why] += number
                    else:
                        kept += number
                file, line, _ = self.place(instr)
                rows.append(
                    {
                        "block": block,
                        "text": instr.text,
                        "file": file,
                        "line": line,
                        "kills": [{"class": n, "reason": why, "loads": k} for (n, why), k in killed.items()],
                        "keeps": kept,
                    }
                )
        return rows


def _letters(number: int) -> str:
    """A, B, … Z, AA, AB …"""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


def _names(reference: Reference) -> list[str] | None:
    return sorted(each.name for each in reference.objects) if reference.objects is not None else None


def _access(instr: Instr) -> str:
    from ..ptx import Effect

    effects = instr.form.effects
    if effects & Effect.WRITE:
        return "update" if effects & Effect.READ else "store"
    return "load"


# --- tables ----------------------------------------------------------------------------------------------------------


def print_memory(kernel: str, found: dict[str, Any]) -> None:
    """Print the report as tables."""
    print(f"memory of {kernel}; pointers are taken as {found['promise']}")
    buffers = found["buffers"]
    for what in ("reads", "writes"):
        print(f"{what}: {', '.join(buffers[what]) or 'no buffer'}{_unknown(buffers, what)}")
    shown = [each for each in found["references"] if each["space"] != "param"]
    names = {each["class"] for each in shown}
    if shown:
        print()
        print_table(
            ("class", "space", "may be in", "loads", "stores"),
            [
                (each["name"], ", ".join(each["spaces"]), _objects(each), each["loads"], each["stores"])
                for each in found["classes"]
                if each["name"] in names
            ],
            title="classes of references: what may be the same bytes",
        )
        print()
        print_table(
            ("block", "where", "reference", "class", "lanes", "written", "above its branch"),
            [_reference_row(each) for each in shown],
            title="references, those to parameters left out",
        )
        print(
            "lanes: at one address, or each at its own; written: whether anybody may write what a load reads, while the"
        )
        print(
            "kernel runs; above its branch: the block at whose end the load faults no more than where it is, and under"
        )
        print("which predicate, or why there is none")
        reasons = {each["speculation"]["reason"]: each["speculation"]["text"] for each in shown if each["speculation"]}
        for reason, text in sorted(reasons.items()):
            if reason:
                print(f"{reason}: {text}")
    if found["synchronizations"]:
        print()
        print_table(
            ("block", "where", "instruction", "behind it may be other values in", "same"),
            [
                (each["block"], place_text(each), each["text"], _kills(each), each["keeps"])
                for each in found["synchronizations"]
            ],
            title="synchronization: what the loads of each class may find changed; loads that find the same",
        )


def _unknown(buffers: dict[str, Any], what: str) -> str:
    variables: list[str] = buffers["variables_read" if what == "reads" else "variables_written"]
    parts = [f"variable {name}" for name in variables]
    if buffers[f"unknown_{what}"] and not variables:
        parts.append("and memory to which no parameter is known to point")
    return f"; {', '.join(parts)}" if parts else ""


def _objects(entry: dict[str, Any]) -> str:
    return ", ".join([*entry["objects"], *(["anything"] if entry["unknown"] else [])])


def _reference_row(each: dict[str, Any]) -> tuple[str | int | None, ...]:
    written = {True: "no", False: "yes", None: ""}[each["unwritten"]]
    return (
        each["block"],
        place_text(each),
        each["reference"],
        each["class"],
        "own" if each["divergent_address"] else "one",
        written,
        _speculation(each["speculation"]),
    )


def _speculation(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    if found["kind"] == "refused":
        return f"no: {found['reason']}"
    return f"{found['above']} {found['text']}".rstrip()


def _kills(each: dict[str, Any]) -> str:
    return ", ".join(f"{kill['class']} ({kill['reason']})" for kill in each["kills"]) or "none"
