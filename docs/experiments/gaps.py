"""Why a program gains more or less than in the thesis: what each method finds, and what ptxas makes of it.

    python docs/experiments/gaps.py [PROGRAM|FILE.ptx …] [--methods lcm,scm] [--json FILE]
    python docs/experiments/gaps.py [PROGRAM …] --time FILE [--low=less] [--uncached] [--size small]

The first form prints tables in Markdown and needs no GPU; the second writes a result file, on a GPU.

The programs are those of figures 4.7 and 4.14 to 4.20, with the methods of their experiments, each with its clean-up
and without a gate. There are three front ends: nvcc's own -O3; ``less``, which is -O3 without the passes `WITHOUT`; and
``-Xcicc -O0``, because the compilers of the thesis may have left more. For each: loads in the PTX, expressions that are
redundant by value, what the method moved or removed, and what ptxas made of both: machine instructions, those in loops,
loads, registers, the estimated cycles of a warp alone, and a class:

    nothing     the method found nothing that it may move
    undone      it moved something, and ptxas makes the same machine code of both
    same work   other machine code with as many instructions in loops, within one in a hundred
    less, more  fewer or more instructions in loops (of the whole kernel, if it has no loop)

Below each table, for nvcc's own -O3: the reasons of the refusals, and by how many instructions of each class the
machine code of each kernel changed.

With ``--time``, the code of the weaker front end is the baseline. The methods on it, and nvcc's own -O3 as one of the
variants, are checked and timed as `bench run` does. This shows what a method gains if the compiler has not done its
work, and that nvcc's -O3 does the same work. ``--uncached`` makes all loads of global memory bypass L1 (``.cg``), in
all variants and the baseline: on the first GPU of the thesis, L1 did not cache global memory.

``@restrict`` after a method promises disjoint buffers. `LETTER` is the method of the thesis without the proof that a
load cannot fault where it is inserted; ``readable=true`` is the promise that it does not need one. A program that
breaks the promise faults.

Guarantees: all figures come from the compilers and the GPU of this machine. Refuses: `ToolMissing` without nvcc and
ptxas; `MachineMissing` for times without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.arch import target_of_sm
from ptxmotion.ptx import parse, print_module
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import compiler, ptx_of
from ptxmotion.suites.thesis_figures import FIGURES
from ptxmotion.toolchain.machine_diff import MachineFigures, figures
from ptxmotion.transforms.opportunities import opportunities
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

CLEAN = "copyprop,dce,emptyblocks"
LETTER = "ssrqp:paper=true:readable=true"
LOADS = ("load_global", "load_shared", "load_local", "load_generic")
#: Passes of nvcc's front end that take loads out of loops, merge them, or unroll loops so that they can be merged.
WITHOUT = ("disable-LICMPass", "disable-GVNPass", "enable-load-pre=0", "disable-LoopUnrollPass")
#: Variants of the front end, with their flags.
FRONT_ENDS: dict[str, tuple[str, ...]] = {
    "-O3": (),
    "less": tuple(word for each in WITHOUT for word in ("-Xcicc", f"--Xopt=-{each}")),
    "-O0": ("-Xcicc", "-O0"),
}


@dataclass
class Made:
    """The results of a method for a program. Counts are sums over all its kernels; ``registers`` is the maximum."""

    loads: int = 0
    redundant: int = 0
    moved: int = 0
    instructions: int = 0
    in_loops: int = 0
    machine_loads: int = 0
    registers: int = 0
    cycles: int = 0
    refused: dict[str, int] = field(default_factory=dict[str, int])
    changed: dict[str, str] = field(default_factory=dict[str, str])
    verdict: str = ""


def methods_of(program: str) -> list[str]:
    """The methods that the thesis applies to it; scalar replacement also with a promise, and `LETTER`."""
    found = dict.fromkeys(m for each in FIGURES if program in each.programs or _is_file(program) for m in each.methods)
    more = ["ssrqp@restrict", LETTER, f"{LETTER}@restrict"] if "ssrqp" in found else []
    return [*found, *more]


def _is_file(program: str) -> bool:
    return program.endswith(".ptx")


def programs_of() -> list[str]:
    """Every program that the figures of the thesis contain."""
    return list(dict.fromkeys(name for each in FIGURES for name in each.programs))


def transformed(text: str, method: str, made: Made) -> str:
    """A module after a method. The counts of what was moved and what was refused are added to ``made``."""
    name, _, promise = method.partition("@")
    module = parse(text)
    remarks = Remarks(module, explains=True)
    chosen = passes_of(f"{name},{CLEAN}")
    promised = Promise.parse(promise) if promise else None
    run_passes(module, chosen, remarks, promise=promised)
    ours = [each for each in remarks.items if each.pass_name not in CLEAN.split(",")]
    made.moved += sum(each.kind == "Passed" for each in ours)
    refused = Counter(made.refused)
    refused.update(each.reason for each in ours if each.kind == "Missed")
    made.refused = dict(refused.most_common())
    return print_module(module)


def machine(modules: Mapping[str, str], made: Made) -> list[MachineFigures]:
    """What ptxas makes of the modules, added up in ``made``."""
    found = [each for text in dict.fromkeys(modules.values()) for each in figures(text).values()]
    for each in found:
        code, table = each.code, each.table()
        made.instructions += code.instructions
        made.in_loops += table["instructions in loops"]
        made.machine_loads += sum(number for kind, number in code.by_kind.items() if kind in LOADS)
        made.registers = max(made.registers, code.registers)
        made.cycles += table["cycles of one warp"]
    return found


def _in_ptx(modules: Mapping[str, str], made: Made) -> None:
    for text in dict.fromkeys(modules.values()):
        module = parse(text)
        for kernel in module.kernels:
            made.loads += sum(i.form.name == "ld" and i.form.space != "param" for i in kernel.instructions())
            found = opportunities(kernel, module).by_value
            made.redundant += found.classes if found else 0


def _verdict(base: Made, made: Made, is_same: bool) -> str:
    if not made.moved:
        return "nothing"
    if is_same:
        return "undone"
    before, after = (base.in_loops, made.in_loops) if base.in_loops else (base.instructions, made.instructions)
    if abs(after - before) <= 0.01 * before:
        return "same work"
    return "less" if after < before else "more"


def _changed(before: MachineFigures, after: MachineFigures) -> str:
    """What changed: the instructions of each class, registers and cycles. Empty where the machine code is the same."""
    one, other = before.code, after.code
    if one.is_same_code(other):
        return ""
    kinds = sorted({*one.by_kind, *other.by_kind})
    counts = {kind: other.by_kind.get(kind, 0) - one.by_kind.get(kind, 0) for kind in kinds}
    parts = [f"{kind.replace('_', ' ')} {number:+}" for kind, number in counts.items() if number]
    parts.append(f"registers {one.registers} to {other.registers}")
    parts.append(f"cycles {round(one.cycles)} to {round(other.cycles)}")
    return ", ".join(parts)


def study(plain: Mapping[str, str], methods: Sequence[str]) -> dict[str, Made]:
    """The results for the unchanged modules (`base`), and for each method."""
    base = Made()
    _in_ptx(plain, base)
    before = machine(plain, base)
    found = {"base": base}
    for method in methods:
        made = found[method] = Made()
        texts = {text: transformed(text, method, made) for text in dict.fromkeys(plain.values())}
        modules = {name: texts[text] for name, text in plain.items()}
        _in_ptx(modules, made)
        after = machine(modules, made)
        changes = {one.code.name: _changed(one, other) for one, other in zip(before, after, strict=True)}
        made.changed = {name: change for name, change in changes.items() if change}
        made.verdict = _verdict(base, made, not made.changed)
    return found


def rows(name: str, level: str, found: Mapping[str, Made]) -> Iterator[str]:
    """A line of the table for the base, and one for each method; equal ones are put together."""
    base = found["base"]
    yield _row([name, f"`{level}`", "", base.loads, base.redundant, "", *_machine(base), ""])
    groups: dict[tuple[Any, ...], list[str]] = {}
    for method, made in found.items():
        if method != "base":
            groups.setdefault((made.loads, made.moved, *_machine(made), made.verdict), []).append(method)
    for (loads, moved, *costs, verdict), methods in groups.items():
        shown = ["", "", "", "", ""] if verdict in ("nothing", "undone") else costs
        yield _row(["", "", ", ".join(f"`{each}`" for each in methods), loads, "", moved, *shown, verdict])


def _machine(made: Made) -> list[Any]:
    return [made.instructions, made.in_loops, made.machine_loads, made.registers, made.cycles]


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def print_tables(programs: Sequence[str], methods: Sequence[str], output: Path | None) -> None:
    """Examine the programs, and print the tables."""
    document: dict[str, Any] = {}
    heads = ("loads", "redundant", "moved", "instructions", "in loops", "loads in machine code", "registers", "cycles")
    print(_row(["program", "front end", "method", *heads, "class"]))
    print("| --- " * 3 + "| ---: " * len(heads) + "| --- |")
    for name in programs:
        chosen = methods or methods_of(name)
        levels = {"as given": ()} if _is_file(name) else FRONT_ENDS
        for level, flags in levels.items():
            found = study(_modules(name, flags), chosen)
            document.setdefault(name, {})[level] = {method: asdict(made) for method, made in found.items()}
            print("\n".join(rows("" if document[name].keys() - {level} else name, level, found)), flush=True)
            if output is not None:
                output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print()
    print("\n".join(_reasons(document)))


def _modules(name: str, flags: Sequence[str]) -> dict[str, str]:
    if _is_file(name):
        return {name: Path(name).read_text(encoding="utf-8", errors="surrogateescape")}
    return ptx_of(find(name), compiler(flags=flags))


def _reasons(document: Mapping[str, Any]) -> Iterator[str]:
    """What was left and why, and what changed, of the first front end of each program."""
    yield _row(["program", "method", "left", "changed in the machine code"])
    yield "| --- " * 4 + "|"
    for name, levels in document.items():
        groups: dict[tuple[str, str], list[str]] = {}
        for method, made in next(iter(levels.values())).items():
            if method != "base":
                left = ", ".join(f"{reason} {number}" for reason, number in made["refused"].items())
                changed = "; ".join(f"{kernel}: {change}" for kernel, change in made["changed"].items())
                groups.setdefault((left or "nothing", changed or "nothing"), []).append(method)
        for number, ((left, changed), methods) in enumerate(groups.items()):
            yield _row(["" if number else name, ", ".join(f"`{each}`" for each in methods), left, changed])


_GLOBAL_LOAD = re.compile(r"\bld\.global\.(?!c[agsv]\.|lu\.)")


def past_l1(text: str) -> str:
    """The module in which all plain loads of global memory bypass L1.

    >>> past_l1("ld.global.nc.f32 %f1, [%rd1]; ld.global.v2.f32 {%f2, %f3}, [%rd2]; ld.global.cs.u8 %r1, [%rd1];")
    'ld.global.cg.nc.f32 %f1, [%rd1]; ld.global.cg.v2.f32 {%f2, %f3}, [%rd2]; ld.global.cs.u8 %r1, [%rd1];'
    """
    return _GLOBAL_LOAD.sub("ld.global.cg.", text)


def task_for(name: str, methods: Sequence[str], arguments: argparse.Namespace, sm: int, maker: Any) -> Any:
    """The task (`harness.session.Task`) that times a program's methods. ``maker``: the `Variants` of the run."""
    from ptxmotion.harness.session import Task
    from ptxmotion.harness.workload import Arm
    from ptxmotion.programs.tasks import task_of
    from ptxmotion.programs.variants import Variant

    arch, flags = target_of_sm(sm), FRONT_ENDS[arguments.low]
    benchmark = find(name)
    variants = [Variant(f"front end {arguments.low}" if flags else "nvcc -O3")]
    for method in methods or methods_of(name):
        passes, _, promise = method.partition("@")
        promised = (f"--alias={promise}",) if promise else ()
        variants.append(Variant(method, (f"--passes={passes},{CLEAN}", "--gate=off", *promised)))
    of_low = task_of(benchmark, "", arguments.size, variants, maker, lambda: compiler(arch, flags))

    def make() -> Any:
        work, arms = of_low.make()
        arms = [*arms, Arm("nvcc -O3", ptx_of(benchmark, compiler(arch)))] if flags else list(arms)
        if arguments.uncached:
            arms = [replace(arm, modules={name: past_l1(text) for name, text in arm.modules.items()}) for arm in arms]
        return work, arms

    return Task(name, make)


def time_them(programs: Sequence[str], methods: Sequence[str], arguments: argparse.Namespace) -> int:
    """Check and time the methods on the lower front end's code, and nvcc's -O3 beside them; 1 for a mismatch."""
    from ptxmotion import __version__
    from ptxmotion.harness.arm_code import assemble_arm
    from ptxmotion.harness.machine import choose
    from ptxmotion.harness.protocol import Plan
    from ptxmotion.harness.results import ResultFile
    from ptxmotion.harness.session import Limits, Session
    from ptxmotion.harness.worker import Worker
    from ptxmotion.programs.variants import Variants

    chosen, count, _ = choose("emulator" if arguments.emulator else "cuda")
    with Worker(chosen) as worker:
        described: dict[str, Any] = worker.describe(120)
    sm = described.get("compute_capability", 90)
    plan = Plan(rounds=arguments.rounds, seeds=(1, 2))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    options = {**plan.options(), "front_end": list(FRONT_ENDS[arguments.low]), "uncached": arguments.uncached}
    commit = {"id": os.environ.get("PTXMOTION_COMMIT", ""), "time": None, "dirty": None}
    result = ResultFile(now, __version__, chosen.name, described, commit, options)
    tell = partial(print, file=sys.stderr)
    with Variants() as maker:
        session = Session(
            chosen,
            plan,
            result,
            assembler=partial(assemble_arm, sm=sm),
            path=Path(arguments.time),
            jobs=4 * count,
            machines=count,
            limits=Limits(check=90),
            report=lambda line: None if ": round " in line or ": prepared " in line else tell(line),
        )
        session.run([task_for(name, methods, arguments, sm, maker) for name in programs])
    return int(any(arm.correctness.status == "mismatch" for each in result.benchmarks for arm in each.arms))


def main() -> int:
    """Examine or time the programs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all of the thesis's figures")
    parser.add_argument("--methods", default="", metavar="LIST", help="default: those of the program's experiments")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here as well")
    parser.add_argument("--time", metavar="FILE", help="time on a GPU, and write a result file")
    parser.add_argument("--emulator", action="store_true", help="check all that --time would time, without a GPU")
    parser.add_argument("--low", choices=list(FRONT_ENDS), default="less", help="the front end of the baseline")
    parser.add_argument("--uncached", action="store_true", help="loads of global memory pass L1 by")
    parser.add_argument("--size", default="small", help="default: small")
    parser.add_argument("--rounds", type=int, default=20, help="default: 20")
    arguments = parser.parse_args()
    programs = arguments.programs or programs_of()
    methods = [each for each in arguments.methods.split(",") if each]
    if arguments.time:
        return time_them(programs, methods, arguments)
    print_tables(programs, methods, arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
