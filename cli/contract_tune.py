"""`ptxmotion contract tune`: times the versions of kernels in the launches of programs, and keeps what was faster.

Exit codes: 1 if a version computed something else, 3 for a file of launches that cannot be read, 4 if a GPU is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outcome import BAD_INPUT, DIFFERENT, FINE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..contract import Contract
    from ..harness.launch_work import LaunchWork
    from ..harness.machine import Machine
    from ..programs.tuning import TunedModule, Tuner

__all__ = ["EXAMPLES", "add_arguments", "run"]

EXAMPLES = """\
A program is one of `bench list`, or a Python file that declares one. It runs twice under observation. For each kernel
and each class of launches (by the number of threads), up to three launches are replayed by themselves with the memory
that they found. In these, all versions and the results of further options are timed. DIR gets, for each module, its
PTX with all versions that are taken, and the contract with what was measured, on which machine, and when. `bench run`
uses them with --variant=tuned:DIR. Without a GPU nothing is timed: the contract is that of `opt -O3 --contract`, in
which the gate decides.

examples:
  ptxmotion contract tune rodinia/gaussian --size small -o tuned
  ptxmotion contract tune gaussian --backend=emulator --size tiny --record launches
  ptxmotion contract tune --launches launches/*.npz -o tuned
"""

_ROUNDS = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, suites, shell patterns or .py files")
    parser.add_argument("-o", dest="output", metavar="DIR", default="tuned", help="output folder (default: tuned)")
    parser.add_argument(
        "--size", choices=("tiny", "small", "full"), default="small", help="input size (default: small)"
    )
    parser.add_argument(
        "--launches",
        nargs="+",
        metavar="FILE",
        default=[],
        help="files that --record has written, in place of programs",
    )
    parser.add_argument("--record", metavar="DIR", help="write the launches to files in DIR, and time nothing")
    parser.add_argument(
        "--backend", choices=("auto", "cuda", "emulator"), default="auto", help="where to run (default: auto)"
    )
    parser.add_argument("--require-gpu", action="store_true", help="fail with exit code 4 if there is no GPU")
    parser.add_argument(
        "--rounds", type=_positive, default=_ROUNDS, metavar="N", help=f"rounds of timing (default: {_ROUNDS})"
    )
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for a run (default: 300)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Tune; the exit code."""
    from ..harness.machine import choose
    from ..harness.protocol import Plan
    from ..programs.tuning_hosts import tuner_on

    if bool(arguments.names) == bool(arguments.launches):
        usage_error("contract tune needs either programs or --launches")
    if arguments.record and not arguments.names:
        usage_error("--record needs programs")
    machine, _, why = choose(arguments.backend, arguments.require_gpu)
    say(why)
    plan = Plan(rounds=arguments.rounds, seeds=(1,))
    recorded = [_load(path) for path in arguments.launches]
    tuner = tuner_on(machine, plan, say)
    tuner.limit = arguments.timeout
    folder = Path(arguments.record or arguments.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.record:
        tuner.former = _former(folder)
        tuner.path = folder / "results.json"
    if recorded:
        tuned = tuner.tune_recorded(recorded)
        _write(tuned, folder)
        return _finish(tuned, folder, machine)
    return _of_programs(arguments, tuner, folder)


def _of_programs(arguments: argparse.Namespace, tuner: Tuner, folder: Path) -> int:
    from ..arch import target_of_sm
    from ..programs.tasks import SuiteWork, select
    from ..suites.runner import compiler, ptx_of

    target = target_of_sm(tuner.info.get("compute_capability") or None)
    tuned: list[TunedModule] = []
    for benchmark, file in select(arguments.names, None):
        if arguments.size not in benchmark.sizes:
            usage_error(f"{benchmark.fullname} has no size '{arguments.size}'")
        work = SuiteWork(benchmark.fullname, arguments.size, file)
        modules = ptx_of(benchmark, compiler(target))
        if arguments.record:
            _write_launches(tuner.record(work, modules), folder)
        else:
            tuner.path = folder / f"{benchmark.fullname.replace('/', '_')}.results.json"
            made = tuner.tune(work, modules)
            # At once: whatever ends the next program, these are kept.
            _write(made, folder)
            tuned += made
    return FINE if arguments.record else _finish(tuned, folder, tuner.machine)


def _former(folder: Path) -> dict[str, Contract]:
    """The contracts that earlier runs have written to a folder, by the digests of their modules."""
    from ..contract import ContractError, load

    found: dict[str, Contract] = {}
    for path in sorted(folder.glob("*.contract.json")):
        try:
            found[path.name.removesuffix(".contract.json").rpartition("-")[2]] = load(str(path))
        except ContractError as error:
            raise CommandError(BAD_INPUT, f"{error.place or path}: error: {error}") from None
    return found


def _load(path: str) -> LaunchWork:
    from ..harness.launch_work import LaunchWork

    try:
        return LaunchWork.load(Path(path).read_bytes())
    except ValueError as error:
        raise CommandError(BAD_INPUT, f"{path}: error: {error}") from None


def _write_launches(works: list[LaunchWork], folder: Path) -> None:
    for work in works:
        path = folder / f"{work.fullname.replace('/', '_')}.npz"
        path.write_bytes(work.save())
        print(f"{path}: {len(work.launches)} launches of {work.launches[0].kernel}")


def _write(tuned: list[TunedModule], folder: Path) -> None:
    """Write the modules and their contracts."""
    for each in tuned:
        for path in folder.glob(f"*-{each.name.rpartition('-')[2]}.*"):
            path.unlink()  # of an earlier run, maybe under another name
        (folder / f"{each.name}.ptx").write_text(each.ptx, encoding="utf-8", errors="surrogateescape")
        (folder / f"{each.name}.contract.json").write_text(each.contract.dumps(), encoding="utf-8")


def _finish(tuned: list[TunedModule], folder: Path, machine: Machine) -> int:
    """Print what was measured; the exit code."""
    if not machine.stopwatch:
        print(f"no GPU: nothing was timed, and the gate decides; {len(tuned)} modules are in {folder}")
        return FINE
    _print(tuned)
    print(f"{len(tuned)} modules are in {folder}")
    wrong = [
        f"{result.kernel}: {name}"
        for each in tuned
        for result in each.results
        for name, (verdict, _) in result.verdicts.items()
        if verdict == "MISMATCH"
    ]
    for line in wrong:
        say(f"ptxmotion: error: {line} computed something else than the kernel, and is left out; please report it")
    return DIFFERENT if wrong else FINE


def _print(tuned: list[TunedModule]) -> None:
    from ..toolchain.demangle import demangled
    from .tables import print_table

    rows: list[list[Any]] = []
    for each in tuned:
        for result in each.results:
            for name, (verdict, speedup) in result.verdicts.items():
                words = "its conditions do not hold" if verdict == "CONDITIONS" else verdict
                place = "taken" if name in result.preferred else ""
                kernel = demangled(result.kernel).partition("(")[0]
                rows.append([kernel, f"{result.least} to {result.most}", name, words, speedup, place])
    print_table(["kernel", "threads", "version", "verdict", "speedup", ""], rows)
