"""Run every level over a folder of PTX files, and compare on the emulator what changed.

    python docs/experiments/corpus_levels.py FOLDER [--levels -O1,-O2,-O3,-O3:restrict] [--jobs 1] [--shard 0/1]
        [--inputs 4] [--budget 1.0] [--seconds inf] [--rows FILE] [--keep FOLDER]

For each file that ptxas and our verifier accept, and each level without a gate:

- whether ptxas accepts what the passes make of it;
- for each kernel whose text changed, whether it computes the same as before on the emulator, in the way of `verify`:
  *same*, *different*, *inconclusive* or *unsupported*. ``:restrict`` means ``--alias=restrict``; then inputs in which
  pointers share a buffer are left out. A text that another level had before is not compared again.

Every fault (a refused output, a difference, an exception) is printed; ``--keep`` writes its files to a folder.
``--rows FILE`` appends a line of JSON for each file when it is done, and a later run leaves these files out. The last
line is the sum.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path

from ptxmotion.analysis.memory.alias import CONSERVATIVE, Promise
from ptxmotion.harness.verification.equivalence import DIFFERENT, SAME, compare, verdict
from ptxmotion.judges import Assembled
from ptxmotion.ptx import Module, parse, print_module
from ptxmotion.ptx.errors import PtxError
from ptxmotion.ptx.printer import print_kernel
from ptxmotion.ptx.verify import verify
from ptxmotion.python_child import process_pool
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import PtxasError, ToolTimeout, assemble
from ptxmotion.transforms.pipeline import run_passes

LEVELS = "-O1,-O2,-O3,-O3:restrict"
#: Seconds for one run of ptxas. Files that take longer are left out.
ASSEMBLY = 60


@dataclass
class Outcome:
    """What became of one file: numbers by level and outcome, and descriptions of faults."""

    path: str
    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])


def outcome(path: Path, options: argparse.Namespace, until: float) -> Outcome:
    """Examine one file, unless the time `until` (of `time.monotonic`) is over."""
    found = Outcome(str(path))
    if time.monotonic() > until:
        found.counts["files not begun"] += 1
        return found
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    try:
        verify(parse(text))
        assemble(text, opt_level=1, timeout=ASSEMBLY)
    except (PtxError, PtxasError, ToolTimeout) as error:
        found.counts[f"files left out: {type(error).__name__}"] += 1
        if isinstance(error, PtxError):
            found.faults.append(f"refused by the verifier: {str(error).splitlines()[0]}")
        return found
    found.counts["files"] += 1
    compared: dict[tuple[str, str], str] = {}
    for level in options.levels.split(","):
        try:
            output = optimized(text, level)
            examine(text, output, level, options, found, compared)
        except Exception:  # an exception of a pass or of the emulator is a result of this script, not its end
            fault(f"{level}: {traceback.format_exc(limit=-3)}", text, "", options, found)
    return found


def optimized(text: str, level: str) -> str:
    """The module after the passes of a level."""
    name, _, promised = level.partition(":")
    module = parse(text)
    promise = Promise.parse(promised) if promised else CONSERVATIVE
    run_passes(module, name.removeprefix("-"), promise=promise, float_code=Assembled(PtxasJudge()))
    return print_module(module)


def examine(
    text: str,
    output: str,
    level: str,
    options: argparse.Namespace,
    found: Outcome,
    compared: dict[tuple[str, str], str],
) -> None:
    """Assemble the output of a level, and run the kernels that changed. ``compared``: kernel and text → outcome."""
    before, after = parse(text), parse(output)
    changed = changed_entries(before, after)
    found.counts[f"{level} kernels"] += len(before.entries)
    found.counts[f"{level} changed"] += len(changed)
    if output == text:
        return
    try:
        assemble(output, opt_level=1, timeout=ASSEMBLY * 3)
    except (PtxasError, ToolTimeout) as error:
        fault(f"{level}: ptxas: {error}", text, output, options, found)
        return
    restrict = level.endswith(":restrict")
    for name in changed:
        key = name, hashlib.sha256(output.encode("utf-8", "surrogateescape")).hexdigest()
        if key not in compared:
            results = compare(
                before, after, kernels=[name], seeds=range(options.inputs), seconds=options.budget, restrict=restrict
            )
            result = verdict(name, list(results))
            compared[key] = result.outcome
            if result.outcome == DIFFERENT:
                seen = next(each for each in result.comparisons if each.outcome == DIFFERENT)
                fault(f"{level}: {name}: {seen.name}: {seen.details[:2]}", text, output, options, found)
            elif result.outcome != SAME:
                found.counts[f"reason: {(result.undecided or ['?'])[0].partition(': ')[2][:60]}"] += 1
        found.counts[f"{level} {compared[key]}"] += 1


def changed_entries(before: Module, after: Module) -> list[str]:
    """The entries that the passes changed, or that may call a function that they changed."""
    texts = {kernel.name: print_kernel(kernel) for kernel in before.kernels}
    changed = {kernel.name for kernel in after.kernels if print_kernel(kernel) != texts[kernel.name]}
    if any(kernel.name in changed and not kernel.is_entry for kernel in after.kernels):
        return [entry.name for entry in after.entries]
    return [entry.name for entry in after.entries if entry.name in changed]


def fault(message: str, text: str, output: str, options: argparse.Namespace, found: Outcome) -> None:
    found.faults.append(message[:800])
    if options.keep is not None:
        name = hashlib.sha256(f"{message}{output}".encode("utf-8", "surrogateescape")).hexdigest()[:12]
        for part, content in (("before", text), ("after", output)):
            path = options.keep / f"{Path(found.path).stem[-60:]}.{name}.{part}.ptx"
            path.write_text(content, encoding="utf-8", errors="surrogateescape")


def files(options: argparse.Namespace) -> list[Path]:
    """The files of the shard, in an order that is by chance and always the same, without those of ``--rows``."""
    number, shards = map(int, options.shard.split("/"))
    known: set[str] = set()
    if options.rows is not None and options.rows.exists():
        lines, end, _ = options.rows.read_text(encoding="utf-8").rpartition("\n")
        options.rows.write_text(lines + end, encoding="utf-8")  # without a last line that was cut off
        known = {json.loads(line)["path"] for line in lines.splitlines()}
    found = sorted(options.folder.rglob("*.ptx"), key=lambda path: hashlib.sha256(path.name.encode()).hexdigest())
    return [path for path in found[number::shards] if str(path) not in known]


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """The outcome of each file, as soon as it is known."""
    until = time.monotonic() + options.seconds
    with process_pool(options.jobs) as pool:
        for each in as_completed([pool.submit(outcome, path, options, until) for path in files(options)]):
            found = each.result()
            if options.rows is not None and not found.counts["files not begun"]:
                with options.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(vars(found)) + "\n")
            yield found


def main() -> None:
    """Print faults and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--levels", default=LEVELS, help=f"default: {LEVELS}")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--shard", default="0/1", help="the part of the files: number/of")
    parser.add_argument("--inputs", type=int, default=4, help="of each kernel and level")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for the inputs of a kernel and level")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file after so many")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="a line for each file; files in it are not repeated")
    parser.add_argument("--keep", type=Path, help="the folder for files with faults")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for found in outcomes(options):
        total.update(found.counts)
        total["faults"] += len(found.faults)
        for each in found.faults:
            print(f"FAULT {found.path}: {each}", flush=True)
    print(json.dumps(dict(sorted(total.items()))))


if __name__ == "__main__":
    main()
