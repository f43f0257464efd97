"""`ptxmotion opt`: read, verify, transform, verify, write.

Requires: PTX that the verifier accepts. Guarantees: what is written has been verified after the last pass; nothing is
written where anything fails. Unknown opcodes are kept, nothing moves across them, and each spelling has one remark.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from .alias_promise import ALIAS_HELP, alias_promise, warn_of_unknown_names
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
        "files", nargs="*", metavar="FILE", help="PTX to read; - (default) is stdin; with -o DIR several, or folders"
    )
    parser.add_argument(
        "-o", dest="output", default="-", metavar="FILE", help="where to write, a folder for several files; - is stdout"
    )
    what = parser.add_argument_group("what to do")
    passes = what.add_mutually_exclusive_group()
    passes.add_argument(
        "-O",
        dest="level",
        choices=("0", "1", "2", "3"),
        help="none, lazy, or speculative code motion, or that and scalar replacement (default: 2)",
    )
    passes.add_argument(
        "--passes", metavar="LIST", help="these passes, as name or name:option=value, with commas; or none"
    )
    what.add_argument("--print-passes", action="store_true", help="list passes, their options and the levels; then end")
    what.add_argument("--kernel", type=regex, metavar="REGEX", help="transform only kernels whose name matches")
    what.add_argument(
        "--gate",
        choices=("ptxas", "static", "off"),
        help="keep a kernel changed only where ptxas, or without it a count of memory accesses, finds it better "
        "(default: with -O2 and -O3 ptxas, or static where there is none; else off)",
    )
    what.add_argument(
        "--gate-timeout",
        type=_seconds,
        metavar="S",
        help="leave the module as it is where ptxas takes longer than this for the gate (default: 300)",
    )
    what.add_argument(
        "--ptxas-options",
        type=_ptxas_options,
        metavar="OPTIONS",
        help="options that the gate and --emit=cubin, sass give to ptxas, as in --ptxas-options=-maxrregcount=32,-O2",
    )
    what.add_argument("--profile", metavar="FILE", help=PROFILE_HELP + ": for costs, never for correctness")
    what.add_argument("--alias", type=alias_promise, metavar="LEVEL", help=ALIAS_HELP)
    what.add_argument("--emit", choices=EMITS, help="what to write (default: ptx)")
    what.add_argument(
        "--arch", metavar="SM", help="what the gate and --emit=cubin, sass assemble for (default: the module's target)"
    )
    what.add_argument("--bisect-limit", type=_count, metavar="N", help="make the first N rewrites and no more")
    what.add_argument(
        "--verify-each", action="store_true", default=None, help="verify after each pass, not only at the end"
    )
    told = parser.add_argument_group("what to tell, on stderr")
    told.add_argument(
        "--remarks",
        type=regex,
        metavar="REGEX",
        help="what was done and what was refused, and why; =REGEX: of passes whose name matches",
    )
    told.add_argument("--remarks-output", metavar="FILE", help="write all remarks as LLVM optimization records (YAML)")
    told.add_argument("--print-changed", choices=("diff",), help="what each pass changed, as a diff of the kernel")
    told.add_argument("--time-passes", action="store_true", default=None, help="seconds of each step")
    told.add_argument("--stats-json", metavar="FILE", help="counts by kernel and pass; =FILE: there, not on stderr")
    told.add_argument("--dump", metavar="DIR", help="write the module after each pass that changed it, numbered")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    if arguments.print_passes:
        print(_describe_passes(), end="")
        return FINE
    _check(arguments)
    if len(arguments.files) > 1 or any(map(os.path.isdir, arguments.files)):
        from .opt_files import run_files

        return run_files(arguments, OneFile)
    arguments.file = arguments.files[0] if arguments.files else "-"
    return OneFile(arguments).run()


def regex(text: str) -> re.Pattern[str]:
    """The type of an argument that is a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number of rewrites")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds")
    return float(text)


#: What may stand in `--ptxas-options`: options that change the code and neither files nor the target.
_PTXAS_OPTION = re.compile(
    r"(-O|-{1,2}(opt-level|maxrregcount|fmad|allow-expensive-optimizations|def-load-cache|dlcm|def-store-cache|dscm"
    r"|force-load-cache|flcm|force-store-cache|fscm|register-usage-level|regUsageLevel|minnctapersm|Ofast-compile|Ofc)=)"
    r"\w+|-{1,2}(disable-optimizer-constants|disable-optimizer-consts|dont-merge-basicblocks|no-bb-merge|return-at-end"
    r"|ret-end|optimize-float-atomics|opt-fp-atomics|override-directive-values)"
)


def _ptxas_options(text: str) -> tuple[str, ...]:
    options = tuple(text.split(","))
    for option in options:
        if _PTXAS_OPTION.fullmatch(option) is None:
            raise argparse.ArgumentTypeError(f"'{option}' is no option=value of ptxas that changes only the code")
    return options


def _check(arguments: argparse.Namespace) -> None:
    emit = arguments.emit or "ptx"
    if arguments.arch and emit not in ("cubin", "sass") and not _has_gate(arguments):
        usage_error("--arch says what to assemble for, and nothing is: neither for --emit nor for a gate")
    uses_ptxas = emit in ("cubin", "sass") or (_has_gate(arguments) and arguments.gate != "static")
    if arguments.ptxas_options and not uses_ptxas:
        usage_error("--ptxas-options are for ptxas, which neither --emit nor a gate starts")
    if arguments.gate_timeout is not None and (not _has_gate(arguments) or arguments.gate == "static"):
        usage_error("--gate-timeout limits ptxas, and no gate asks it")
    if emit == "cubin" and arguments.output == "-" and sys.stdout.isatty():
        usage_error("a cubin is no text: name a file with -o, or send stdout elsewhere")


def _has_gate(arguments: argparse.Namespace) -> bool:
    if arguments.gate is not None:
        return arguments.gate != "off"
    return arguments.passes is None and arguments.level in (None, "2", "3")


def _passes(arguments: argparse.Namespace) -> list[Pass]:
    from ..transforms.passes import UnknownPass, passes_of

    try:
        return passes_of(arguments.passes if arguments.passes is not None else f"O{arguments.level or 2}")
    except UnknownPass as error:
        usage_error(str(error))


class OneFile:
    """One run of the verb. ``seconds`` maps each step to its time, in order."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.emit: str = arguments.emit or "ptx"
        self.passes = _passes(arguments)
        self.is_changed = False
        self.seconds: dict[str, float] = {}
        self.started = self.last = time.perf_counter()

    @property
    def wants_remarks(self) -> bool:
        """Whether the remarks are printed or written."""
        return self.arguments.remarks is not None or bool(self.arguments.remarks_output)

    def step(self, name: str) -> None:
        """Add the seconds since the last step to those of ``name``."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now

    def run(self) -> int:
        from .files import Outputs

        module = self.read()
        wants_stats = self.arguments.stats_json is not None
        found: dict[str, Any] = {}
        if wants_stats and self.passes:
            found = self.opportunities(module)
        unknown = unknown_opcode_remarks(module)
        result = self.optimize(module)
        self.is_changed = bool(result.changed)
        for warning in result.warnings:
            warn(warning)
        result.log.items[:0] = unknown
        outputs = Outputs()
        outputs.add(self.arguments.output, self.emitted(module))
        self.step(f"emit {self.emit}")
        if wants_stats and not self.passes:
            found = self.opportunities(module)
        if self.arguments.remarks_output:
            outputs.add(self.arguments.remarks_output, result.log.yaml())
        if self.arguments.stats_json:
            outputs.add(self.arguments.stats_json, self.stats(result, found))
        outputs.commit()
        self.step("write")
        self.report(result)
        if self.arguments.stats_json == "":
            print(self.stats(result, found), file=sys.stderr, end="")
        return FINE

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
        """Optimize ``module`` in place."""
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
        )

    def opportunities(self, module: Module) -> dict[str, Any]:
        from ..transforms.opportunities import opportunities

        found = {kernel.name: opportunities(kernel, module).to_json() for kernel in module.kernels}
        self.step("count opportunities")
        return found

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
        """Print the remarks and times that the user wants."""
        pattern, remarks = self.arguments.remarks, result.log
        # Where the gate cannot judge, nothing is optimized at all. The user has to know that.
        refused = [remark for remark in remarks.items if remark.reason == "gate-refused"]
        if refused and (pattern is None or not pattern.search("gate")):
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            warn(f"{refused[0].kernel}{others}: {refused[0].message}")
        for remark in dict.fromkeys(remarks.items):  # a pass that runs twice refuses twice
            # An unknown opcode may prevent all optimization. The user has to know that, too.
            if remark.name == "UnknownOpcode" or (pattern is not None and pattern.search(remark.pass_name)):
                say(remark.text)
        if self.arguments.time_passes:
            print(self.times(result), file=sys.stderr, end="")

    def times(self, result: Result) -> str:
        lines = ["   seconds  changed  step"]
        for name, seconds in self.seconds.items():
            lines.append(f"{seconds:10.4f}           {name}")
            if name == "passes":
                for each, timing in result.timings.items():
                    lines.append(f"{timing.seconds:10.4f} {timing.changed:8}    {each}")
        lines.append(f"{time.perf_counter() - self.started:10.4f}           in all")
        return "\n".join(lines) + "\n"

    def stats(self, result: Result, found: dict[str, Any]) -> str:
        """The statistics as JSON: by kernel the candidates and the counts of each pass; seconds."""
        import json

        remarks = result.log

        kernels: dict[str, dict[str, Any]] = {name: {"candidates": each, "passes": {}} for name, each in found.items()}
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
            "seconds": {**self.seconds, **{f"pass {name}": t.seconds for name, t in result.timings.items()}},
        }
        return json.dumps(document, indent=2) + "\n"


def unknown_opcode_remarks(module: Module) -> list[Remark]:
    """One remark for each spelling of an opcode that is not in the table, at its first place."""
    from ..ptx.errors import shortened
    from ..transforms.remarks import Remarks

    first: dict[str, tuple[Kernel, Instr]] = {}
    times: dict[str, int] = {}
    for kernel in module.kernels:
        for instr in kernel.instructions():
            if instr.form.is_opaque:
                text = instr.form.text
                first.setdefault(text, (kernel, instr))
                times[text] = times.get(text, 0) + 1
    remarks = Remarks(module)
    for text, (kernel, instr) in first.items():
        often = f" ({times[text]} times)" if times[text] > 1 else ""
        message = f"opcode '{text}' is unknown{often}: it is kept, and nothing moves across it"
        remarks.add("Missed", "parse", "UnknownOpcode", kernel, shortened(message), instr=instr, reason="opaque")
    return remarks.items


def _describe_passes() -> str:
    from dataclasses import fields

    from ..transforms.passes import LEVELS, create_pass, pass_names

    lines: list[str] = []
    for name in pass_names():
        each: Any = create_pass(name)
        own = str(type(each).__doc__)
        # Some classes say only what their options are; then what `run` does is the better line.
        text = str(each.run.__doc__) if own.startswith(("Options", "Without")) else own
        what = " ".join(re.split(r"[;.]\s", text + " ")[0].replace("``", "").split())
        lines.append(f"{name:12} {what}")
        lines += [f"{'':12}   {option.name}={_value(option.default)}" for option in fields(each)]
    lines.append("")
    lines += [f"-{level:11} {','.join(names) or 'none'}" for level, names in LEVELS.items()]
    return "\n".join(lines) + "\n"


def _value(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
