"""How many kernels get versions for launches with known facts, and why the others get none.

    python docs/experiments/versions.py FILE.ptx ... [--list FILE] [--seconds S] [--jobs N]     --list: a file of paths
    python docs/experiments/versions.py --suites                                                the suites' programs

Each module is optimized as `opt -O3 --contract` does it, with ptxas as the judge. A table counts the kernels: those
with a version of each kind, and the reasons of the others. A module that takes longer than S seconds of processor time
is left out and counted. N modules are optimized at the same time, in processes of their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ptxmotion import Policy, optimize
from ptxmotion.ptx import PtxError


class TooLong(Exception):
    """The module took longer than allowed."""


def modules_of(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The name and the PTX of each module."""
    if arguments.suites:
        from ptxmotion.suites.registry import benchmarks
        from ptxmotion.suites.runner import compiler, ptx_of

        nvcc = compiler()
        for benchmark in benchmarks():
            # A module with several kernels has the name of each of them.
            texts = {text: name for name, text in ptx_of(benchmark, nvcc).items()}
            for text, name in texts.items():
                yield f"{benchmark.fullname}/{name}", text
    paths = list(arguments.files)
    for listed in arguments.list or ():
        paths += Path(listed).read_text().split()
    for path in paths:
        yield path, Path(path).read_bytes().decode("utf-8-sig", errors="surrogateescape")


def outcomes(text: str, counts: Counter[str]) -> str:
    """Count the kernels of one module; what was found, for the log."""
    result = optimize(text, "O3", Policy(contract=True))
    assert result.contract is not None
    remarks = {each.kernel: each for each in result.remarks if each.pass_name == "versions" and each.reason}
    found: list[str] = []
    for name, kernel in result.contract.kernels.items():
        kinds = [version.description for version in kernel.versions[:-1]]
        counts["kernels"] += 1
        counts["with a version"] += bool(kinds)
        for kind in kinds:
            counts[f"version: {kind}"] += 1
        if not kinds:
            _, _, stay = remarks[name].message.partition("; ")
            counts[f"none: {remarks[name].reason}"] += 1
            counts[f"without a version, loads: {stay or 'not examined'}"] += 1
        else:
            found.append(f"{name[:40]} ({'; '.join(dict.fromkeys(kinds))})")
    return f"{len(found)} of {len(result.contract.kernels)} kernels {' '.join(found)}"


def _stop(*_: Any) -> None:
    raise TooLong


def counted(module: tuple[str, str], seconds: int) -> Counter[str]:
    """The counts of one module, of which nothing is counted if it takes longer."""
    name, text = module
    counts = Counter[str]()
    started = time.monotonic()
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        said = outcomes(text, counts)
    except (PtxError, TooLong) as error:
        counts = Counter({f"modules left out: {type(error).__name__}": 1})
        said = f"left out: {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"{time.monotonic() - started:7.1f} s  {name}: {said}", file=sys.stderr, flush=True)
    return counts + Counter({"modules": 1})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="PTX files")
    parser.add_argument("--list", action="append", metavar="FILE", help="a file with paths of PTX files")
    parser.add_argument("--suites", action="store_true", help="the programs of the suites")
    parser.add_argument("--seconds", type=int, default=120, metavar="S", help="limit for a module (default: 120)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default: 1)")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    count_one = partial(counted, seconds=arguments.seconds)
    with multiprocessing.Pool(arguments.jobs) as pool:
        for each in pool.imap_unordered(count_one, modules_of(arguments)):
            counts += each
    for what, count in sorted(counts.items(), key=lambda item: (item[0].split(":")[0], -item[1])):
        print(f"| {what} | {count} |")
    print(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of processor time", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
