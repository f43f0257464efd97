"""The report of `analyze --divergence`: branches, loops and blocks, and why a branch can be divergent.

Guarantees: the tables and the JSON document have the same content. Source lines are those of ``.loc``, or of the PTX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .tables import print_table

if TYPE_CHECKING:
    from ..analysis.manager import Facts
    from ..ptx import Instr

__all__ = ["Place", "describe_divergence", "place_text", "print_divergence", "ranges"]

Place = Callable[["Instr"], tuple[str, int, int]]


def describe_divergence(facts: Facts, place: Place) -> dict[str, Any]:
    """Branches, loops and blocks of the kernel of ``facts`` as plain data."""
    found, expected = facts.divergence, facts.expected_divergence
    cfg, loops = facts.cfg, facts.loops
    parted = set(found.divergent_branches)
    branches = [_branch(facts, block, place) for block in sorted({*found.dependence.branches, *parted})]
    controllers: list[list[int]] = [[] for _ in range(len(cfg))]
    for branch in found.divergent_branches:
        for block in set(found.dependence.dependents(branch)):
            controllers[block].append(branch)
    blocks = [
        {
            "block": block,
            "label": _label(facts, block),
            "lines": _lines(cfg.blocks[block].instrs, place),
            "reachable": cfg.reachable[block],
            "loop_depth": loops.depth[block],
            "weight": facts.block_weight(block),
            "in_cdrnd": found.cdrnd[block],
            "in_expected_cdrnd": expected.cdrnd[block],
            "divergent_branches": sorted(controllers[block]),
        }
        for block in range(len(cfg))
    ]
    return {
        "block_shape": list(found.shape) if found.shape is not None else None,
        "measured": facts.profile is not None and facts.profile.of_kernel(facts.kernel) is not None,
        "branches": branches,
        "blocks": blocks,
        "loops": [
            {
                "header": loop.header,
                "label": _label(facts, loop.header),
                "depth": loop.depth,
                "blocks": loop.blocks,
                "irreducible": loop.is_irreducible,
                "divergent_exit": found.has_divergent_exit(loop.index),
            }
            for loop in loops.loops
        ],
    }


def _label(facts: Facts, block: int) -> str | None:
    label = facts.cfg.blocks[block].label
    return label.text if label is not None else None


def _branch(facts: Facts, block: int, place: Place) -> dict[str, Any]:
    terminator = facts.cfg.blocks[block].terminator
    file, line, _ = place(terminator) if terminator is not None else ("", 0, 0)
    is_divergent = facts.divergence.is_divergent(block)
    counts = facts.expected_divergence.measured(block)
    return {
        "block": block,
        "label": _label(facts, block),
        "text": terminator.text if terminator is not None else "",
        "file": file,
        "line": line,
        "divergent": is_divergent,
        "expected_divergent": facts.expected_divergence.is_divergent(block),
        "executed": counts[0] if counts is not None else None,
        "diverged": counts[1] if counts is not None else None,
        "why": [_step(step.text, step.instr, place) for step in facts.divergence.why(block)] if is_divergent else [],
    }


def _step(text: str, instr: Instr | None, place: Place) -> dict[str, Any]:
    file, line, _ = place(instr) if instr is not None else ("", 0, 0)
    return {"text": text, "instruction": instr.text if instr is not None else None, "file": file, "line": line}


def _lines(instrs: Iterable[Instr], place: Place) -> list[int] | None:
    lines = [line for instr in instrs if not instr.is_directive for _, line, _ in (place(instr),) if line]
    return [min(lines), max(lines)] if lines else None


# --- tables ----------------------------------------------------------------------------------------------------------


def print_divergence(kernel: str, found: dict[str, Any]) -> None:
    """Print the report as tables."""
    branches: list[dict[str, Any]] = found["branches"]
    blocks: list[dict[str, Any]] = found["blocks"]
    divergent = [branch for branch in branches if branch["divergent"]]
    inside = [block["block"] for block in blocks if block["in_cdrnd"]]
    shape = "x".join(map(str, found["block_shape"])) if found["block_shape"] else "unknown"
    print(f"divergence of {kernel}, block shape {shape}")
    print(f"{len(branches)} branches, {len(divergent)} of them may part a warp; {len(inside)} of {len(blocks)} blocks")
    print(f"lie in the control dependence region of non-divergence (CDRND): {ranges(inside) or 'none'}")
    print()
    if branches:
        _print_branches(branches, measured=bool(found["measured"]))
    outside = [block for block in blocks if not block["in_cdrnd"] and block["reachable"]]
    if outside:
        print()
        print_table(
            ("block", "label", "lines", "depth", "under the branches of"),
            [
                (block["block"], block["label"], _between(block), block["loop_depth"], _under(block))
                for block in outside
            ],
            title="blocks outside of the CDRND",
        )
    if found["loops"]:
        print()
        print_table(
            ("header", "label", "depth", "blocks", "lanes leave it"),
            [
                (loop["header"], loop["label"], loop["depth"], ranges(loop["blocks"]), _leaving(loop))
                for loop in found["loops"]
            ],
            title="loops",
        )
    explained: dict[tuple[str, str | None, int], int] = {}
    for branch in divergent:
        print()
        _print_why(branch, explained)


def _print_branches(branches: list[dict[str, Any]], *, measured: bool) -> None:
    headings = ["block", "where", "branch", "lanes"]
    if measured:
        headings += ["executed", "parted", "expected"]
    rows: list[tuple[str | int | None, ...]] = []
    for branch in branches:
        row: list[str | int | None] = [branch["block"], place_text(branch), branch["text"]]
        row.append("may part" if branch["divergent"] else "stay together")
        if measured:
            row += [branch["executed"], branch["diverged"], "part" if branch["expected_divergent"] else "together"]
        rows.append(tuple(row))
    print_table(headings, rows, title="branches")


def _print_why(branch: dict[str, Any], explained: dict[tuple[str, str | None, int], int]) -> None:
    """One chain, up to a step that an earlier chain has explained."""
    first, *rest = branch["why"]
    where = place_text(branch)
    print(f"block {branch['block']}: {first['text']}: {branch['text']}{f'  ({where})' if where else ''}")
    rows: list[tuple[str, str | None, str]] = []
    for at, step in enumerate(rest):
        key = (step["text"], step["instruction"], step["line"])
        rows.append((f"← {step['text']}", step["instruction"], place_text(step)))
        earlier = explained.setdefault(key, branch["block"])
        if earlier != branch["block"] and at + 1 < len(rest):
            rows.append((f"← … as for block {earlier}", None, ""))
            break
    print_table(("because of", "instruction", "where"), rows)


def _between(block: dict[str, Any]) -> str:
    lines: list[int] | None = block["lines"]
    if lines is None:
        return ""
    return str(lines[0]) if lines[0] == lines[1] else f"{lines[0]}–{lines[1]}"


def _under(block: dict[str, Any]) -> str:
    direct = ranges(block["divergent_branches"])
    return direct or "such a branch, further up"


def _leaving(loop: dict[str, Any]) -> str:
    kind = ", irreducible" if loop["irreducible"] else ""
    return ("one after another" if loop["divergent_exit"] else "together") + kind


def place_text(found: dict[str, Any]) -> str:
    """``file:line`` without the folders, or an empty string."""
    name = str(found["file"]).rsplit("/", 1)[-1]
    return f"{name}:{found['line']}" if found["line"] else ""


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers in short form: ``0–3, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in parts)
