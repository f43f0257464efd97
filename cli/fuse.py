"""`ptxmotion fuse`: fuse the kernel launches of a host program. `programs.fusing` does the work."""

from __future__ import annotations

import argparse

from ..arch import DEFAULT_TARGET
from .argument_types import pass_list, regex, target
from .outcome import FINE, say, usage_error, warn

EPILOG = """\
PROGRAM is a Python file with a @program or a Benchmark, or the name of a program of the suites. The output folder gets
a .ptx file for each kernel, the new host program as Python, and remarks.yaml, which says for each pair of launches
whether it was fused, and why or why not.

examples:
  ptxmotion fuse program.py -o fused/
  ptxmotion fuse rodinia/cfd -o fused/ --remarks
  ptxmotion fuse program.py -o fused/ --strategy kf_trad --assume-independent scale,add --no-benefit
  ptxmotion fuse rodinia/cfd -o fused/ --benefit=timing --size small    (on a machine with a GPU)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fuse`."""
    parser.add_argument("program", metavar="PROGRAM", help="a Python file, or the name of a program of the suites")
    parser.add_argument("-o", dest="output", metavar="DIR", help="output folder; without it no file is written")
    parser.add_argument(
        "--program", dest="name", metavar="NAME", help="the @program to fuse, if the file has several of them"
    )
    how = parser.add_argument_group("how to fuse")
    _add_search(how)
    _add_programs(how)
    reports = parser.add_argument_group("reports, on stderr")
    reports.add_argument(
        "--remarks",
        type=regex,
        nargs="?",
        metavar="=REGEX",
        help="print which launches were fused, which were not, and why; =REGEX: only for kernels whose name matches",
    )


def _add_search(how: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    how.add_argument(
        "--strategy",
        choices=("kf_trad", "kfcm"),
        help="kf_trad fuses consecutive launches only; kfcm also moves launches next to each other (default: kfcm)",
    )
    how.add_argument(
        "--order",
        choices=("backward-first", "forward-first", "backward", "forward"),
        help="the first phase of kfcm, or its only phase (default: backward-first)",
    )
    how.add_argument(
        "--keep-loops",
        action="store_true",
        default=None,
        help="do not move loop tests to the end of loops, which can allow more fusions",
    )
    how.add_argument(
        "--assume-independent",
        action="append",
        metavar="K1,K2",
        help="assume that no thread of kernel K1 reads or overwrites what another thread of K2 writes, and vice versa; "
        "not checked; may be repeated",
    )
    how.add_argument(
        "--benefit",
        choices=("costs", "timing", "none"),
        help="which legal fusions to make: costs: those that save time by the measured costs of this machine; timing: "
        "those that make the program faster when it runs, which needs a GPU and a Benchmark; none: all of them "
        "(default: costs)",
    )
    how.add_argument(
        "--objective",
        choices=("pairs", "total"),
        help="with --benefit=costs: pairs makes each fusion that saves time; total searches for those that save most "
        "together (default: pairs)",
    )
    how.add_argument("--no-benefit", action="store_true", default=None, help="the same as --benefit=none")
    how.add_argument(
        "--size", metavar="NAME", help="the input size of the Benchmark for --benefit=timing (default: small)"
    )


def _add_programs(how: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    """What the programs that are compared and written are like."""
    how.add_argument(
        "--graph",
        action="store_true",
        default=None,
        help="the program runs as a CUDA graph: a launch costs as much as a graph node",
    )
    how.add_argument(
        "--no-cooperative",
        action="store_true",
        default=None,
        help="make no cooperative launches, so no fused kernel has a barrier of the whole grid",
    )
    how.add_argument(
        "--same-grids", action="store_true", default=None, help="fuse two launches only if their grids are equal"
    )
    how.add_argument(
        "--passes",
        type=pass_list,
        metavar="PASSES",
        help="the level (-O3) or list of passes that optimizes the fused kernels (default: none)",
    )
    how.add_argument(
        "--emulate",
        metavar="SIZE",
        help="also run the program of a Benchmark before and after in the emulator on data of this size: compare "
        "the outputs and count the launches",
    )
    how.add_argument(
        "--arch", type=target, metavar="SM", help="the target that nvcc compiles CUDA kernels for (default: sm_90a)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    from ..programs.fusing import FuseRequest, fuse

    independent = _independent_pairs(arguments.assume_independent or [])
    if arguments.strategy == "kf_trad" and arguments.order:
        usage_error("--order is an option of kfcm: kf_trad has no phases")
    if arguments.no_benefit and arguments.benefit not in (None, "none"):
        usage_error(f"--no-benefit contradicts --benefit={arguments.benefit}")
    benefit = "none" if arguments.no_benefit else arguments.benefit or "costs"
    if arguments.size and benefit != "timing":
        usage_error("--size is an option of --benefit=timing: only that runs the program")
    if arguments.objective == "total" and benefit != "costs":
        usage_error(f"--objective=total adds up estimates, and --benefit={benefit} makes none")
    request = FuseRequest(
        program=arguments.program,
        name=arguments.name or "",
        strategy=arguments.strategy or "kfcm",
        objective=arguments.objective or "pairs",
        order=arguments.order or "backward-first",
        independent=independent,
        benefit=benefit,
        size=arguments.size or "",
        invert_loops=not arguments.keep_loops,
        as_graph=bool(arguments.graph),
        cooperative=not arguments.no_cooperative,
        may_pad=not arguments.same_grids,
        passes="none" if arguments.passes is None else arguments.passes,
        arch=arguments.arch or DEFAULT_TARGET,
        emulate=arguments.emulate or "",
    )
    result = fuse(request, say)
    for warning in result.warnings:
        warn(warning)
    if arguments.remarks is not None:
        for remark in result.remarks:
            if arguments.remarks.search(remark.kernel):
                say(remark.text)
    if arguments.output:
        _write(result.files(), arguments.output)
    for line in result.summary:
        say(line)
    if not arguments.output and result.fused.result.fusions:
        say("no files were written: -o DIR writes the fused program")
    if result.remarks and not result.fused.result.fusions and arguments.remarks is None:
        say("  (--remarks prints for each pair of launches why it was not fused)")
    return FINE


def _independent_pairs(texts: list[str]) -> frozenset[frozenset[str]]:
    """The pairs of kernel names of ``--assume-independent``."""
    pairs: set[frozenset[str]] = set()
    for text in texts:
        names = [name.strip() for name in text.split(",")]
        if len(names) != 2 or not all(names):
            usage_error(f"--assume-independent: '{text}' does not name two kernels; write K1,K2")
        pairs.add(frozenset(names))
    return frozenset(pairs)


def _write(files: dict[str, str], folder: str) -> None:
    """Write all files, or none."""
    import os

    from .files import Outputs

    os.makedirs(folder, exist_ok=True)
    outputs = Outputs()
    for name, text in files.items():
        outputs.add(os.path.join(folder, name), text)
    outputs.commit()
