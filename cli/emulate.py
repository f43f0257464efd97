"""`ptxmotion emulate`: runs a kernel on the SIMT emulator, counts its instructions, and checks its accesses."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..spelling import did_you_mean
from .argument_types import positive
from .outcome import BAD_INPUT, DIFFERENT, FINE, USAGE, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..emulator import Counts, LaunchResult
    from ..emulator.launch import EmulatorModule
    from ..ptx.ir import Param

EPILOG = """\
An ARG is an array, a value or a structure. Arrays: f32[1000] (zeros), i32[64]:range (0, 1, 2, ...), f32[64]:normal
(random numbers), u32[64]:bits (random bits), i32[64]:5 (all 5), x.npy (from a file). Values: i32:7, f32:2.5.
Structures: 00ff:bytes (hexadecimal). =FILE.npy after an array saves its content after the launch; for an array from a
file, write x.npy:FILE.npy. Types: i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64.

examples:
  ptxmotion emulate scale.ptx --grid 4 --block 256 --arg f32:2 --arg 'f32[1000]:normal=out.npy' --arg i32:1000
  ptxmotion emulate scale.ptx --grid 4 --block 256 --arg f32:2 --arg 'f32[1000]' --arg i32:1000 --profile scale.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `emulate`."""
    parser.add_argument("file", metavar="FILE", help="PTX input; - is stdin")
    parser.add_argument("--kernel", metavar="NAME", help="the kernel to run (default: the only kernel of the file)")
    parser.add_argument(
        "--grid", type=_shape, default=(1, 1, 1), metavar="X[,Y[,Z]]", help="the number of blocks (default: 1)"
    )
    parser.add_argument(
        "--block",
        type=_shape,
        default=(1, 1, 1),
        metavar="X[,Y[,Z]]",
        help="the number of threads of a block (default: 1)",
    )
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory (default: 0)")
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="ARG",
        help="an argument of the kernel; one for each parameter, in order",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the seed of random arrays and schedules (default: 0)"
    )
    parser.add_argument(
        "--schedule",
        choices=("order", "random", "warps"),
        default="order",
        help="the order of threads: in order, random, or random by warps whose lanes reconverge (default: order)",
    )
    parser.add_argument(
        "--no-checks", action="store_true", help="do not check for races, reads of unwritten memory and similar errors"
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="skip invalid accesses instead of ending at the first one"
    )
    parser.add_argument(
        "--counts", choices=("table", "json", "none"), default="table", help="the counts on stdout (default: table)"
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="save the execution counts of blocks and branches, for analyze and opt"
    )
    parser.add_argument(
        "--trace", metavar="FILE.npy", help="save every access: thread, address, size, and whether it reads or writes"
    )
    parser.add_argument(
        "--budget", type=positive, metavar="N", help="the most instructions; a longer run counts as endless"
    )


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().lstrip("-").isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a shape such as 16 or 4,2")
    return tuple(int(part) for part in parts)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code: 1 if a check reports something."""
    from ..emulator import Emulator, LaunchError
    from ..emulator.launch import BUDGET
    from .files import read_module
    from .kernel_arguments import kernel_arguments

    parsed = read_module(arguments.file)
    try:
        module = Emulator(budget=arguments.budget or BUDGET).load(parsed)
        kernel = module.entry(_kernel_name(module.kernels, arguments.kernel))
        values, saves = kernel_arguments(arguments.arg, arguments.seed)
    except (LaunchError, ValueError, MemoryError) as error:
        usage_error(str(error))
    # Check the output folders before a run that can take long.
    for path in (*(path for _, path in saves), arguments.trace, arguments.profile):
        if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
            raise CommandError(BAD_INPUT, f"{path}: error: the folder does not exist")
    if len(values) != len(kernel.params or ()):
        listed = ", ".join(f"{param.name} ({_kind(param)})" for param in kernel.params or ()) or "none"
        usage_error(
            f"'{kernel.name}' takes {len(kernel.params or ())} arguments, not {len(values)}: "
            f"one --arg for each parameter, which are {listed}{_example(kernel.params or ())}"
        )
    result = _launched(module, kernel.name, values, arguments)
    return _finish(arguments, result, saves) if result is not None else DIFFERENT


def _example(params: Sequence[Param]) -> str:
    """Arguments of the types of these parameters, as an example; empty if there are no parameters. A parameter of 64
    bits is taken for an address, which is an array on the command line."""
    words: list[str] = []
    for param in params:
        kind = param.type.name.replace("b", "u").replace("s", "i")
        if param.dims:
            words.append("--arg " + "00" * min(param.bytes, 4) + ("…" if param.bytes > 4 else "") + ":bytes")
        elif kind == "u64":
            words.append("--arg 'f32[1000]:normal'")
        else:
            words.append(f"--arg {kind}:{2.5 if kind.startswith('f') else 1}")
    return f"; for example {' '.join(words)}" if words else ""


def _kind(param: Param) -> str:
    """The type of a parameter; for a structure, its number of bytes."""
    return f"{param.bytes} bytes" if param.dims else f".{param.type.name}"


def _kernel_name(kernels: list[str], chosen: str | None) -> str:
    if chosen is not None:
        if chosen not in kernels:
            usage_error(
                f"no kernel '{chosen}'{did_you_mean(chosen, kernels)}; there are {', '.join(kernels) or 'none'}"
            )
        return chosen
    if len(kernels) != 1:
        usage_error(f"choose a kernel with --kernel: {', '.join(kernels) or 'there is none'}")
    return kernels[0]


def _launched(
    module: EmulatorModule, kernel: str, values: list[Any], arguments: argparse.Namespace
) -> LaunchResult | None:
    """The result of the launch. If a fault ends it, the findings are printed, and the result is `None`."""
    from ..emulator import EmulatorFault, LaunchError, UnsupportedInstruction
    from .progress import Progress

    try:
        with Progress() as progress:
            progress.update(f"running {kernel}")

            def advance(done: int, total: int) -> None:
                progress.update(f"{kernel}: {done} of {total} blocks", done, total)

            return module.launch(
                kernel,
                arguments.grid,
                arguments.block,
                values,
                arguments.shared,
                checks=not arguments.no_checks,
                schedule=arguments.schedule,
                seed=arguments.seed,
                counts=arguments.counts != "none" or arguments.profile is not None,
                trace=arguments.trace is not None,
                keep_going=arguments.keep_going,
                progress=advance if progress.is_active else None,
            )
    except EmulatorFault as fault:
        sys.stdout.write(fault.output)
        for finding in fault.findings:
            say(str(finding))
        return None
    except LaunchError as error:
        raise CommandError(USAGE, f"ptxmotion: error: {error}") from error
    except (UnsupportedInstruction, MemoryError) as error:
        raise CommandError(BAD_INPUT, f"ptxmotion: error: {error}") from error


def _finish(arguments: argparse.Namespace, result: LaunchResult, saves: list[tuple[Any, str]]) -> int:
    """Print and save what the arguments select; the exit code."""
    import numpy as np

    sys.stdout.write(result.output)
    for array, path in saves:
        np.save(path, array)
    if arguments.profile is not None:
        with open(arguments.profile, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(json.dumps(result.counts.profile(), indent=1) + "\n")
    if arguments.trace is not None and result.trace is not None:
        np.save(arguments.trace, result.trace.accesses)
    if arguments.counts == "json":
        data = result.counts.as_dict()
        data["findings"] = [str(finding) for finding in result.findings]
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
    elif arguments.counts == "table":
        _show(result.counts)
    for finding in result.findings:
        say(str(finding))
    return DIFFERENT if any(finding.severity == "error" for finding in result.findings) else FINE


def _show(counts: Counts) -> None:
    data = counts.as_dict()
    for name, value in data.items():
        if isinstance(value, int | float):
            shown = f"{value:.4f}" if isinstance(value, float) else str(value)
            sys.stdout.write(f"{name.replace('_', ' '):24s} {shown:>14s}\n")
    sys.stdout.write(f"\n{'class':24s} {'warp':>14s} {'thread':>14s}\n")
    for name, entry in data["by_class"].items():
        sys.stdout.write(f"{name:24s} {entry['warp']:14d} {entry['thread']:14d}\n")
    if data["branches"]:
        sys.stdout.write(f"\n{'branch':40s} {'executed':>10s} {'diverged':>10s}\n")
        for branch in data["branches"]:
            place = f"{branch['kernel']}:{branch['line']}"
            sys.stdout.write(f"{place:40s} {branch['executed']:10d} {branch['diverged']:10d}\n")
