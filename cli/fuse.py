"""`ptxmotion fuse`: fuse the launches of a host program; `fusing.py` does the work."""

from __future__ import annotations

import argparse

from ..arch import DEFAULT_TARGET
from .opt import regex
from .outcome import FINE, say, usage_error

EPILOG = """\
PROGRAM is a Python file with a @program or a Benchmark, or the name of a program of the suites. The folder gets one
.ptx file for each kernel, the new host program as Python, and remarks.yaml: what was fused, what was not and why.

examples:
  ptxmotion fuse program.py -o fused/
  ptxmotion fuse rodinia/cfd -o fused/ --remarks
  ptxmotion fuse program.py -o fused/ --strategy kf_trad --assume-independent scale,add --no-benefit
  ptxmotion fuse rodinia/cfd -o fused/ --benefit=timing --size small    (on a machine with a GPU)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fuse`."""
    parser.add_argument("program", metavar="PROGRAM", help="a Python file, or a program of the suites")
    parser.add_argument(
        "-o", dest="output", metavar="FOLDER", help="where the results go; without it nothing is written"
    )
    parser.add_argument(
        "--program", dest="name", metavar="NAME", help="which @program of the file, where it has several"
    )
    how = parser.add_argument_group("how to fuse")
    how.add_argument(
        "--strategy", choices=("kf_trad", "kfcm"), help="consecutive launches only, or by code motion (default)"
    )
    how.add_argument(
        "--order",
        choices=("backward-first", "forward-first", "backward", "forward"),
        help="which phase of kfcm comes first (default: backward-first), or the only one",
    )
    how.add_argument(
        "--keep-loops", action="store_true", default=None, help="let no loop test at its end where that fuses more"
    )
    how.add_argument(
        "--assume-independent",
        action="append",
        metavar="K1,K2",
        help="promise that no thread of one kernel needs what another thread of the other one does",
    )
    how.add_argument(
        "--benefit",
        choices=("costs", "timing", "none"),
        help="make the fusions that pay by the costs of this machine (default), or by timing the program, "
        "which takes a GPU and a Benchmark; or all",
    )
    how.add_argument("--no-benefit", action="store_true", default=None, help="as --benefit=none")
    how.add_argument("--size", help="with which of the Benchmark's data the program is timed (default: small)")
    how.add_argument("--graph", action="store_true", default=None, help="launches cost what nodes of a CUDA graph cost")
    how.add_argument(
        "--no-cooperative",
        action="store_true",
        default=None,
        help="launch nothing cooperatively, and so put no barriers of the whole grid into kernels",
    )
    how.add_argument("--same-grids", action="store_true", default=None, help="fuse only launches of equal grids")
    how.add_argument("--passes", metavar="LIST", help="passes or level to run over the fused kernels (default: none)")
    how.add_argument("--arch", metavar="ARCH", help="compile CUDA kernels for this target (default: sm_90a)")
    told = parser.add_argument_group("what is told")
    told.add_argument(
        "--remarks",
        nargs="?",
        const="",
        type=regex,
        metavar="REGEX",
        help="what was fused and what not, on stderr; with REGEX, of kernels whose names match",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    from ..programs.fusing import FuseRequest, fuse

    independent: set[frozenset[str]] = set()
    promised: list[str] = arguments.assume_independent or []
    for text in promised:
        names = [name.strip() for name in text.split(",")]
        if len(names) != 2 or not all(names):
            usage_error(f"--assume-independent: '{text}' does not name two kernels: K1,K2 is the form")
        independent.add(frozenset(names))
    if arguments.strategy == "kf_trad" and arguments.order:
        usage_error("--order is for kfcm: kf_trad has no phases")
    if arguments.no_benefit and arguments.benefit not in (None, "none"):
        usage_error(f"--no-benefit and --benefit={arguments.benefit} say two things")
    benefit = "none" if arguments.no_benefit else arguments.benefit or "costs"
    if arguments.size and benefit != "timing":
        usage_error("--size is for --benefit=timing: nothing else runs the program")
    done = fuse(
        FuseRequest(
            program=arguments.program,
            name=arguments.name or "",
            strategy=arguments.strategy or "kfcm",
            order=arguments.order or "backward-first",
            independent=frozenset(independent),
            benefit=benefit,
            size=arguments.size or "",
            invert_loops=not arguments.keep_loops,
            as_graph=bool(arguments.graph),
            cooperative=not arguments.no_cooperative,
            may_pad=not arguments.same_grids,
            passes=arguments.passes or "",
            arch=arguments.arch or DEFAULT_TARGET,
        )
    )
    if arguments.remarks is not None:
        for remark in done.remarks:
            if arguments.remarks.search(remark.kernel):
                say(remark.text)
    if arguments.output:
        done.write(arguments.output)
    say(done.summary)
    return FINE
