"""Tables of the counters that `image_schedule_counters.py` printed.

    python docs/experiments/image_schedule_counted.py FILE

Counts are those of warps, divided by the pixels of a result and multiplied by 32: instructions, loads and stores of a
thread for one pixel. The second table has the counts of the model and what was counted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from image_schedule_programs import PROGRAMS

#: By title: the counter, per pixel.
PER_PIXEL = {
    "instructions": "instructions",
    "ALU pipe": "alu",
    "FMA pipe": "fma",
    "global loads": "global loads",
    "shared loads": "shared loads",
    "shared stores": "shared stores",
    "L1 wavefronts": "l1 waves",
}
#: By title: the counter.
OTHERS = {
    "occupancy %": "occupancy %",
    "issue %": "issue %",
    "waits: memory": "wait memory",
    "L1 queue": "wait lsu",
    "shared": "wait mio",
    "barrier": "wait barrier",
    "registers": "registers",
}
#: By title: a count of the model.
MODEL = {
    "instructions": "instructions",
    "FP operations": "alu",
    "SFU": "sfu",
    "global loads": "loads",
    "shared loads": "reads",
    "shared stores": "filled",
    "shuffles": "shuffles",
    "passes": "accesses",
    "MB between L1 and L2": "moved",
    "MB of DRAM": "dram",
    "occupancy %": "occupancy",
    "registers": "registers",
    "µs": "us",
}


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def counters(rows: list[dict[str, Any]], size: int) -> list[str]:
    """The table of counters."""
    titles = ["kernels", "MB of DRAM", *PER_PIXEL, "FP operations", *OTHERS]
    lines = [f"| program | schedule | {' | '.join(titles)} |", f"| --- {'| --- ' * (len(titles) + 1)}|"]
    for row in rows:
        pixels = size * size
        cells = [row["kernels"], row["dram"] / 1e6, *(row[each] * 32 / pixels for each in PER_PIXEL.values())]
        cells += [(row["fadd"] + row["fmul"] + row["ffma"]) / pixels, *(row[each] for each in OTHERS.values())]
        lines.append(f"| {row['program']} | {row['arm']} | {' | '.join(map(number, cells))} |")
    return lines


def model(rows: list[dict[str, Any]]) -> list[str]:
    """The table of the counts of the model."""
    columns = {title: word for title, word in MODEL.items() if all(word in row.get("model", [word]) for row in rows)}
    lines = [f"| program | schedule | {' | '.join(columns)} |", f"| --- {'| --- ' * (len(columns) + 1)}|"]
    for row in rows:
        if "model" in row:
            pairs = [(word, row["model"][word]) for word in columns.values()]
            scaled = [(a / 1e6, b / 1e6) if word in ("moved", "dram") else (a, b) for word, (a, b) in pairs]
            cells = " | ".join(f"{number(a)} / {number(b)}" for a, b in scaled)
            lines.append(f"| {row['program']} | {row['arm']} | {cells} |")
    return lines


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=int, default=2048, help="width and height of the images")
    chosen = parser.parse_args()
    lines = [line for line in chosen.file.read_text().splitlines() if line.startswith("{")]
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    rows.sort(key=lambda row: list(PROGRAMS).index(row["program"]))
    print("\n".join([*counters(rows, chosen.size), "", *model(rows)]))


if __name__ == "__main__":
    main()
