"""`ptxmotion opt`: read, verify, transform, verify, write.

Requires: PTX that the verifier accepts. Guarantees: the output was verified after the last pass; if anything fails, no
file is written. Unknown opcodes are kept, nothing moves across them, and there is one remark for each spelling.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from .alias_promise import ALIAS_HELP, alias_promise, warn_of_unknown_names
from .argument_types import pass_list, regex, target
from .observers import Observers, observer_of
from .outcome import FINE, say, usage_error, warn
from .profiles import PROFILE_HELP, load_profile

if TYPE_CHECKING:
    from ..driver import Policy, Result
    from ..ptx import Instr, Kernel, Module
    from ..transforms.passes import Pass
    from ..transforms.remarks import Remark

EPILOG = """\
examples:
  ptxmotion opt kernel.ptx -o faster.ptx --remarks
  ptxmotion opt kernel.ptx --passes=lcm:naming=lexical,dce --print-changed=diff
  ptxmotion opt -O3 a.ptx b.ptx -o build/
  nvcc -ptx -arch=sm_90 kernel.cu -o - | ptxmotion opt --emit=cubin -o kernel.cubin
"""

EMITS = ("ptx", "cubin", "sass", "cfg-dot", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `opt`."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="PTX input (default: -, stdin); with -o DIR/ several files, or folders"
    )
    parser.add_argument(
        "-o",
        dest="output",
        default="-",
        metavar="FILE",
        help="output file, or a folder, which is made if it does not exist: DIR/ (default: -, stdout)",
    )
    parser.add_argument(
        "-j",
        "--jobs",
        type=_jobs,
        metavar="N",
        help="with several files, the number of parallel processes (default: one for each core)",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="with several files: optimize them on this computer, or on the nodes of a Ray cluster (default: local)",
    )
    what = parser.add_argument_group("optimization")
    _add_passes(what)
    _add_gate(what)
    _add_promises_and_output(what)
    _add_reports(parser)


def _add_passes(what: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    passes = what.add_mutually_exclusive_group()
    passes.add_argument(
        "-O",
        dest="level",
        choices=("0", "1", "2", "3"),
        help="0: no pass; 1: lazy code motion; 2: speculative code motion; 3: also scalar replacement and passes on "
        "memory accesses (default: 2)",
    )
    passes.add_argument(
        "--passes",
        type=pass_list,
        metavar="PASSES",
        help="run these passes: name or name:option=value, separated by commas; or a level (-O3); or none",
    )
    what.add_argument("--print-passes", action="store_true", help="list the passes, their options and the levels")
    what.add_argument("--kernel", type=regex, metavar="REGEX", help="transform only kernels whose name matches")


def _add_gate(what: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    what.add_argument(
        "--gate",
        choices=("ptxas", "static", "off"),
        help="revert a kernel unless it got better. ptxas: by the machine code of ptxas; static: by counts of memory "
        "accesses and long operations, without ptxas; off: keep every change (default: with -O2 and -O3 ptxas, or "
        "static if ptxas is not installed; otherwise off)",
    )
    what.add_argument(
        "--gate-timeout",
        type=_seconds,
        metavar="S",
        help="seconds for ptxas in the gate; after them the module stays unchanged (default: 300)",
    )
    what.add_argument(
        "--profile", metavar="FILE", help=f"{PROFILE_HELP}; affects the estimated costs, never the correctness"
    )
    what.add_argument(
        "--ptxas-options",
        type=ptxas_options,
        metavar="OPTIONS",
        help="options of ptxas for the gate and for --emit=cubin,sass, as in --ptxas-options=-maxrregcount=32,-O2",
    )


def _add_promises_and_output(what: argparse._ArgumentGroup) -> None:  # pyright: ignore[reportPrivateUsage]
    what.add_argument(
        "--contract",
        metavar="FILE",
        help="add versions of kernels that assume facts of the launch, and write to FILE (JSON) which conditions each "
        "of them requires; kernels keep their names, and a program that ignores the contract runs them as before",
    )
    what.add_argument("--alias", type=alias_promise, metavar="LEVEL", help=ALIAS_HELP)
    what.add_argument(
        "--emit", choices=EMITS, help="output format; cubin and sass run ptxas, json is the control flow (default: ptx)"
    )
    what.add_argument(
        "--arch",
        type=target,
        metavar="SM",
        help="the target for which the gate and --emit=cubin,sass assemble (default: that of the module)",
    )
    what.add_argument(
        "--bisect-limit", type=_count, metavar="N", help="make only the first N rewrites, to find a wrong one"
    )
    what.add_argument(
        "--verify-each",
        action="store_true",
        default=None,
        help="verify the module after each pass, not only at the end",
    )


def _add_reports(parser: argparse.ArgumentParser) -> None:
    reports = parser.add_argument_group("reports, on stderr")
    reports.add_argument(
        "--remarks",
        type=regex,
        nargs="?",
        metavar="=REGEX",
        help="print which rewrites were made, which were not, and why; =REGEX: only of passes whose name matches",
    )
    reports.add_argument(
        "--remarks-output", metavar="FILE", help="write all remarks as LLVM optimization records (YAML)"
    )
    reports.add_argument("--print-changed", choices=("diff",), help="print a diff of the kernel after each pass")
    reports.add_argument(
        "--time-passes", action="store_true", default=None, help="print the seconds of each step, also of the gate"
    )
    reports.add_argument(
        "--stats-json",
        nargs="?",
        metavar="=FILE",
        help="print counts by kernel and pass as JSON; =FILE: write them to a file",
    )
    reports.add_argument(
        "--report",
        choices=("html",),
        help="write a page beside the output, with its name: each kernel before and after, with remarks at its lines",
    )
    reports.add_argument(
        "--dump", metavar="DIR", help="write the module after each pass that changed it, as numbered files"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    if arguments.print_passes:
        from .print_passes import describe_passes

        print(describe_passes(), end="")
        return FINE
    _check(arguments)
    if len(arguments.files) > 1 or any(map(os.path.isdir, arguments.files)):
        from .opt_files import run_files

        return run_files(arguments, OneFile)
    if arguments.engine != "local":
        usage_error("--engine distributes several files: name a folder, or more than one file")
    arguments.file = arguments.files[0] if arguments.files else "-"
    folder = _folder_of_output(arguments)
    _refuse_equal_files(arguments)
    return OneFile(arguments, folder).run()


def _refuse_equal_files(arguments: argparse.Namespace) -> None:
    """Reports and contracts replace neither the input nor the output, nor each other."""
    names = {os.path.realpath(path): what for what, path in (("input", arguments.file), ("output", arguments.output))}
    for option in ("remarks_output", "stats_json", "contract"):
        path = getattr(arguments, option)
        if not path or path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        what = "--" + option.replace("_", "-")
        other = names.setdefault(os.path.realpath(path), what)
        if other != what:
            usage_error(f"{what} and the {other} are the same file '{path}'".replace("the --", "--"))


def _folder_of_output(arguments: argparse.Namespace) -> str:
    """The folder that ``-o`` names for one input; the output is then a file in it, with the name of the input. Empty if
    ``-o`` names a file."""
    from .files import is_folder

    folder: str = arguments.output
    if not is_folder(folder):
        return ""
    from .opt_files import output_name

    if arguments.file == "-":
        usage_error(f"'{folder}' is a folder, and stdin has no name for a file in it: name the output file with -o")
    name = output_name(os.path.basename(arguments.file), arguments.emit or "ptx")
    arguments.output = os.path.join(folder, name)
    return folder


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of rewrites")
    return int(text)


def _jobs(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of processes")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return float(text)


#: What may stand in `--ptxas-options`: options that change the code and neither files nor the target.
_PTXAS_OPTION = re.compile(
    r"(-O|-{1,2}(opt-level|maxrregcount|fmad|allow-expensive-optimizations|def-load-cache|dlcm|def-store-cache|dscm"
    r"|force-load-cache|flcm|force-store-cache|fscm|register-usage-level|regUsageLevel|minnctapersm|Ofast-compile|Ofc)=)"
    r"\w+|-{1,2}(disable-optimizer-constants|disable-optimizer-consts|dont-merge-basicblocks|no-bb-merge|return-at-end"
    r"|ret-end|optimize-float-atomics|opt-fp-atomics|override-directive-values|compile-only|c)"
)


def ptxas_options(text: str) -> tuple[str, ...]:
    """The argparse type of ``--ptxas-options``."""
    options = tuple(text.split(","))
    for option in options:
        if _PTXAS_OPTION.fullmatch(option) is None:
            raise argparse.ArgumentTypeError(f"'{option}' is no option=value of ptxas that changes only the code")
    return options


def _check(arguments: argparse.Namespace) -> None:
    emit = arguments.emit or "ptx"
    if arguments.arch and emit not in ("cubin", "sass") and not _has_gate(arguments):
        usage_error("--arch is the target for ptxas, and neither --emit nor the gate runs ptxas here")
    uses_ptxas = emit in ("cubin", "sass") or (_has_gate(arguments) and arguments.gate != "static")
    if arguments.ptxas_options and not uses_ptxas:
        usage_error("--ptxas-options are for ptxas, and neither --emit nor the gate runs ptxas here")
    if arguments.gate_timeout is not None and (not _has_gate(arguments) or arguments.gate == "static"):
        usage_error("--gate-timeout limits ptxas, and no gate runs ptxas here")
    if arguments.contract and emit != "ptx":
        usage_error("--contract describes PTX text, so it goes with --emit=ptx only")
    if arguments.contract and (arguments.alias is not None or arguments.bisect_limit is not None):
        usage_error("--contract promises nothing and makes all rewrites: leave out --alias and --bisect-limit")
    if emit == "cubin" and arguments.output == "-" and sys.stdout.isatty():
        usage_error("a cubin is binary: name a file with -o, or redirect stdout")


def _has_gate(arguments: argparse.Namespace) -> bool:
    if arguments.gate is not None:
        return arguments.gate != "off"
    from ..driver import GATED_LEVELS

    return arguments.passes is None and f"O{arguments.level or 2}" in GATED_LEVELS


def _passes(arguments: argparse.Namespace) -> list[Pass]:
    from ..transforms.passes import UnknownPass, passes_of

    try:
        return passes_of(arguments.passes if arguments.passes is not None else f"O{arguments.level or 2}")
    except UnknownPass as error:
        usage_error(str(error))


class OneFile:
    """One run of the verb. ``folder`` is made for the output; empty if the folder of the output has to exist.

    After `run`, ``is_changed`` says whether a kernel changed, and ``versions`` how many versions of kernels were added.
    ``seconds`` maps the name of each step to its time, in order.
    """

    def __init__(self, arguments: argparse.Namespace, folder: str = "") -> None:
        self.arguments = arguments
        self.folder = folder
        self.emit: str = arguments.emit or "ptx"
        self.passes = _passes(arguments)
        self.is_changed = False
        self.versions = 0
        self.seconds: dict[str, float] = {}
        self.started = self.last = time.perf_counter()

    @property
    def wants_remarks(self) -> bool:
        """Whether remarks are printed or written."""
        arguments = self.arguments
        return arguments.remarks is not None or bool(arguments.remarks_output) or bool(arguments.report)

    def step(self, name: str) -> None:
        """Add the seconds since the last call to those of ``name``."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def run(self) -> int:
        from .files import Outputs

        module = self.read()
        wants_stats = self.arguments.stats_json is not None
        candidates: dict[str, Any] = {}
        if wants_stats and self.passes:
            candidates = self.opportunities(module)
        unknown = unknown_opcode_remarks(module)
        result = self.optimize(module)
        self.is_changed = bool(result.changed)
        for warning in result.warnings:
            warn(warning)
        result.log.items[:0] = unknown
        outputs = Outputs(self.folder)
        outputs.add(self.arguments.output, self.emitted(module))
        self.step(f"emit {self.emit}")
        if wants_stats and not self.passes:
            candidates = self.opportunities(module)
        if result.contract is not None:
            from dataclasses import replace

            from .. import __version__

            contract = replace(result.contract, producer=f"ptxmotion {__version__}")
            # The last version of each kernel is the kernel itself.
            self.versions = sum(len(each.versions) - 1 for each in contract.kernels.values())
            outputs.add(self.arguments.contract, contract.dumps())
        if self.arguments.remarks_output:
            outputs.add(self.arguments.remarks_output, result.log.yaml())
        if self.arguments.report:
            outputs.add(self.page_path, self.page(result))
            self.step("report")
        if self.arguments.stats_json:
            outputs.add(self.arguments.stats_json, self.stats(result, candidates))
        outputs.commit()
        self.step("write")
        if self.arguments.report:
            say(f"the report: {self.page_path}")
        self.report(result)
        if self.arguments.stats_json == "":
            print(self.stats(result, candidates), file=sys.stderr, end="")
        return FINE

    @property
    def page_path(self) -> str:
        """The file of ``--report``: beside the output, or named after the input where the output is stdout."""
        output, file = self.arguments.output, self.arguments.file
        if output != "-":
            return os.path.splitext(output)[0] + ".html"
        return "stdin.html" if file == "-" else os.path.splitext(os.path.basename(file))[0] + ".html"

    def page(self, result: Result) -> str:
        """The page of ``--report``. It shows the text of the input as it was read, whose lines the remarks name."""
        from ..harness.page import code_page
        from .page_code import views_of

        arguments, source = self.arguments, result.module.source
        options = arguments.ptxas_options or ()
        views = views_of(source.text, result.text, result.log.items, source.name, arguments.arch, options)
        title = f"ptxmotion opt {os.path.basename(source.name)}"
        passes = ", ".join(each.name for each in self.passes) or "no passes"
        return code_page(title, f"{len(result.changed)} of {len(views)} kernels changed; passes: {passes}", views)

    def read(self) -> Module:
        from ..ptx.verify import verify
        from .files import parse_bytes, read_bytes

        data = read_bytes(self.arguments.file)
        module = parse_bytes(data, self.arguments.file)
        self.step("read and parse")
        verify(module)
        self.step("verify input")
        return module

    def optimize(self, module: Module) -> Result:
        """Optimize ``module`` in place; warn about names on the command line that it does not have."""
        from ..driver import optimize_in_place

        only = self.arguments.kernel
        if only is not None and not any(only.search(kernel.name) for kernel in module.kernels):
            names = ", ".join(kernel.name for kernel in module.kernels) or "none"
            warn(f"no kernel's name matches '{only.pattern}'; there are {names}")
        if self.arguments.alias is not None:
            warn_of_unknown_names(self.arguments.alias, module)
        policy = self.policy(module)
        result = optimize_in_place(module, self.passes, policy)
        if isinstance(policy.observer, Observers):
            policy.observer.finished(module)
        self.step("passes")
        return result

    def policy(self, module: Module) -> Policy:
        from ..driver import Policy

        arguments, only = self.arguments, self.arguments.kernel
        return Policy(
            gate=(arguments.gate or "auto") if _has_gate(arguments) else "off",
            arch=arguments.arch,
            gate_timeout=arguments.gate_timeout,
            ptxas_options=arguments.ptxas_options or (),
            promise=arguments.alias,
            profile=load_profile(arguments.profile, module.kernels) if arguments.profile else None,
            kernels=(lambda name: only.search(name) is not None) if only is not None else None,
            limit=arguments.bisect_limit,
            explain=self.wants_remarks,
            verify_each=bool(arguments.verify_each),
            observer=observer_of(bool(arguments.print_changed), arguments.dump),
            contract=bool(arguments.contract),
        )

    def opportunities(self, module: Module) -> dict[str, Any]:
        from ..transforms.opportunities import opportunities

        candidates = {kernel.name: opportunities(kernel, module).to_json() for kernel in module.kernels}
        self.step("count opportunities")
        return candidates

    def emitted(self, module: Module) -> str | bytes:
        from ..ptx import print_module

        if self.emit == "cfg-dot":
            from .graph import cfg_dot

            return cfg_dot(module, self.arguments.kernel)
        if self.emit == "json":
            from .graph import module_json

            return module_json(module, self.arguments.kernel)
        text = print_module(module)
        if self.emit == "ptx":
            return text
        from .assembly import assembled

        options = self.arguments.ptxas_options or ()
        return assembled(text, "<output>", self.arguments.arch, sass=self.emit == "sass", options=options)

    def report(self, result: Result) -> None:
        """Print the remarks and times that the arguments select."""
        pattern, remarks = self.arguments.remarks, result.log
        # Where the gate fails, the kernel stays unchanged. The user must know that.
        refused = [remark for remark in remarks.items if remark.reason == "gate-refused"]
        if refused and (pattern is None or not pattern.search("gate")):
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            warn(f"{refused[0].kernel}{others}: {refused[0].message}")
        for remark in dict.fromkeys(remarks.items):  # a pass that runs twice reports twice
            # An unknown opcode can block all optimization. The user must know that, too.
            if remark.name == "UnknownOpcode" or (pattern is not None and pattern.search(remark.pass_name)):
                say(remark.text)
        if result.contract is not None and not self.versions and pattern is None:
            say("ptxmotion: no kernel has versions; --remarks=versions says why")
        if self.arguments.time_passes:
            print(self.times(result), file=sys.stderr, end="")

    def times(self, result: Result) -> str:
        """The seconds of each step, how many kernels each pass changed, and how often the gate did its work."""
        lines = ["   seconds   number  step"]
        for name, seconds in self.seconds.items():
            lines.append(f"{seconds:10.4f}           {name}")
            if name == "passes":
                for each, timing in result.timings.items():
                    lines.append(f"{timing.seconds:10.4f} {timing.changed:8}    {each}")
                judge = result.judge_times
                for each, taken in judge.seconds.items():
                    lines.append(f"{taken:10.4f} {judge.numbers[each]:8}    gate: {each}")
        lines.append(f"{time.perf_counter() - self.started:10.4f}           total")
        return "\n".join(lines) + "\n"

    def stats(self, result: Result, candidates: dict[str, Any]) -> str:
        """The statistics as JSON: candidates and counts of each pass by kernel, and seconds of each step."""
        import json

        remarks = result.log

        kernels: dict[str, dict[str, Any]] = {}
        for name, each in candidates.items():
            kernels[name] = {"candidates": each, "passes": {}}
        totals: dict[str, dict[str, int]] = {}
        for (kernel, each, what), number in remarks.counts.items():
            kernels[kernel]["passes"].setdefault(each, {})[what] = number
            sums = totals.setdefault(each, {})
            sums[what] = sums.get(what, 0) + number
        document = {
            "schema_version": 1,
            "file": self.arguments.file,
            "passes": [each.name for each in self.passes],
            "rewrites": remarks.rewrites,
            "kernels": kernels,
            "totals": totals,
            "seconds": {
                **self.seconds,
                **{f"pass {name}": timing.seconds for name, timing in result.timings.items()},
                **{f"gate {name}": seconds for name, seconds in result.judge_times.seconds.items()},
            },
        }
        return json.dumps(document, indent=2) + "\n"


def unknown_opcode_remarks(module: Module) -> list[Remark]:
    """One remark for each spelling of an opcode that is not in the opcode table, at its first occurrence."""
    from ..ptx.errors import shortened
    from ..transforms.remarks import Remarks

    first: dict[str, tuple[Kernel, Instr]] = {}
    counts: dict[str, int] = {}
    for kernel in module.kernels:
        for instr in kernel.instructions():
            if instr.form.is_opaque:
                text = instr.form.text
                first.setdefault(text, (kernel, instr))
                counts[text] = counts.get(text, 0) + 1
    remarks = Remarks(module)
    for text, (kernel, instr) in first.items():
        repeated = f" ({counts[text]} times)" if counts[text] > 1 else ""
        message = f"opcode '{text}' is unknown{repeated}: it is kept, and nothing moves across it"
        remarks.add("Missed", "parse", "UnknownOpcode", kernel, shortened(message), instr=instr, reason="opaque")
    return remarks.items
