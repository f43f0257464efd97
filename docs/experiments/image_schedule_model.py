"""Fits the weights of the cost functions of schedules to measured times.

    python docs/experiments/image_schedule_model.py FILE.jsonl ... [--programs NAME ...] [--keep MACHINE]

The files were written by image_tiles.py, image_schedule_ranks.py or image_lanes.py. Prints for each file, program and
size how well each model predicts it that was fitted to the other programs, and the weights for all of them. Each file,
program and size has the same weight. ``--keep`` writes the weights to the cache, as those of MACHINE: searches of
schedules on this computer then use them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from image_schedule_programs import PROGRAMS
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.fusion.machine import H200
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.groups import plan_from_json
from ptxmotion.dsl.image.schedule.costs import TimeModel, paper_model, weights_path
from ptxmotion.dsl.image.schedule.fitting import Measured, fitted, leave_one_out, save
from ptxmotion.dsl.image.schedule.work import Members, work_of


def measured_of(path: Path, programs: list[str]) -> list[Measured]:
    """The measured schedules of some programs, or of all."""
    graphs: dict[tuple[str, int], Graph] = {}
    found: list[Measured] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record: dict[str, Any] = json.loads(line)
        name, size = record["program"], record["size"]
        if not record.get("plan") or record["us"] != record["us"] or (programs and name not in programs):
            continue
        if (name, size) not in graphs:
            graphs[name, size] = PROGRAMS[name].graph(size)
        plan = plan_from_json(graphs[name, size], json.dumps(record["plan"]), Options())
        works = tuple(work_of(Members(plan.graph, group.nodes, Options()), group) for group in plan.groups)
        found.append(Measured(name, size, works, record["us"], str(path)))
    return found


def main() -> None:
    """Print predictions and weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--programs", nargs="*", default=[], help="the programs to fit to (default: all)")
    parser.add_argument("--keep", metavar="MACHINE", help="write the weights to the cache")
    chosen = parser.parse_args()
    measured = [each for path in chosen.files for each in measured_of(path, chosen.programs)]
    print(f"{len(measured)} schedules")
    time, paper = TimeModel(H200), paper_model(Path("none"))
    for name, found in (("time", leave_one_out(time, measured)), ("paper", leave_one_out(paper, measured))):
        for prediction in found:
            print(f"{name}: {prediction}", flush=True)
    machine = chosen.keep or "this machine"
    time, paper = fitted(time, measured, machine), fitted(paper, measured, machine)
    print(time)
    print(f"{paper}\n  {', '.join(f'{weight:.4g}' for weight in paper.weights)}")
    path = weights_path()
    if chosen.keep and path is not None:
        save(path, time, paper)
        print(f"{path} written")


if __name__ == "__main__":
    main()
