"""The arguments and the output of `ptxmotion emulate` and of `ptxmotion verify A.ptx B.ptx`.

`add_arguments` and `run` belong to `emulate`, `add_pair_arguments` and `run_pair` to `verify`. Data goes to stdout,
messages and progress to stderr. The exit code is 0, or 1 for a finding or a difference, 2 for wrong usage, 3 for bad
input, 5 for an inconclusive comparison.

An argument of the kernel is one of

    x.npy            an array, copied to the device     x.npy:y.npy     the same; its final content is saved to y.npy
    f32[1000]        an array of zeros                  i32[64]:range   0, 1, 2 …
    f32[64]:normal   random numbers, by --seed          i32[64]:5       all elements are 5
    i32:7 f32:2.5    a value                            0x00ff…:bytes   the bytes of a structure, in hexadecimal

with the types i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64. `=FILE.npy` after an array saves its final content.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ..emulator import Counts, LaunchResult
    from ..ptx import Module
    from .verification.equivalence import Verdict

__all__ = ["add_arguments", "add_pair_arguments", "run", "run_pair"]

_KINDS = "i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split()
_ARRAY = re.compile(rf"({'|'.join(_KINDS)})\[(\d+)\](?::([\w.+-]+))?(?:=(.+))?")
_VALUE = re.compile(rf"({'|'.join(_KINDS)}):(\S+)")
#: Seconds before a run shows its progress.
_PROGRESS_DELAY = 0.5
_FINE, _FOUND, _USAGE, _BAD_INPUT, _INCONCLUSIVE = 0, 1, 2, 3, 5


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
    parser.add_argument("--seed", type=int, default=0, help="the seed of random arrays and schedules (default: 0)")
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
        "--budget", type=_count, metavar="N", help="the most instructions; a longer run counts as endless"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number greater than 0")
    return int(text)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().lstrip("-").isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a shape such as 16 or 4,2")
    return tuple(int(part) for part in parts)


def run(arguments: argparse.Namespace) -> int:
    """Run `emulate`; the exit code."""
    from ..emulator import Emulator, EmulatorFault, LaunchError, UnsupportedInstruction
    from ..emulator.launch import BUDGET
    from ..ptx import PtxError

    try:
        module = Emulator(budget=arguments.budget or BUDGET).load(_load(arguments.file))
        kernel = _kernel_name(module.kernels, arguments.kernel)
        values, saves = _arguments(arguments.arg, arguments.seed)
    except PtxError as error:
        return _say(str(error), _BAD_INPUT)
    except OSError as error:
        return _say(f"{error.filename}: error: {error.strerror}", _BAD_INPUT)
    except LaunchError as error:
        return _say(f"ptxmotion: error: {error}", _USAGE)
    except (ValueError, MemoryError) as error:
        return _say(f"ptxmotion: error: {error}", _USAGE)
    # Check the output folders before a run that can take long.
    for path in (*(path for _, path in saves), arguments.trace, arguments.profile):
        if path is not None and not os.path.isdir(os.path.dirname(path) or "."):
            return _say(f"{path}: error: the folder does not exist", _BAD_INPUT)
    try:
        with _Progress() as progress:
            result = module.launch(
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
                progress=progress,
            )
    except EmulatorFault as fault:
        sys.stdout.write(fault.output)
        for finding in fault.findings:
            _say(str(finding), _FOUND)
        return _FOUND
    except LaunchError as error:
        return _say(f"ptxmotion: error: {error}", _USAGE)
    except (UnsupportedInstruction, MemoryError) as error:
        return _say(f"ptxmotion: error: {error}", _BAD_INPUT)
    return _finish(arguments, result, saves)


def _finish(arguments: argparse.Namespace, result: LaunchResult, saves: list[tuple[Any, str]]) -> int:
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
        _say(str(finding), 0)
    return _FOUND if any(finding.severity == "error" for finding in result.findings) else _FINE


def _load(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        return file.read()


def _kernel_name(kernels: list[str], chosen: str | None) -> str:
    if chosen is not None:
        return chosen
    if len(kernels) != 1:
        raise ValueError(f"choose a kernel with --kernel: {', '.join(kernels) or 'there is none'}")
    return kernels[0]


def _arguments(texts: list[str], seed: int) -> tuple[list[Any], list[tuple[Any, str]]]:
    """The arguments of the kernel, and the arrays to save with their paths."""
    import numpy as np

    values: list[Any] = []
    saves: list[tuple[Any, str]] = []
    for number, text in enumerate(texts):
        if match := _ARRAY.fullmatch(text):
            kind, count, filling, save = match.groups()
            value: Any = _filled(f"{kind[0]}{int(kind[1:]) // 8}", int(count), filling, (seed, number))
            if save:
                saves.append((value, save))
        elif match := _VALUE.fullmatch(text):
            kind, literal = match.groups()
            dtype = np.dtype(f"{kind[0]}{int(kind[1:]) // 8}")
            try:
                value = dtype.type(float(literal) if kind[0] == "f" else int(literal, 0))
            except (ValueError, OverflowError):
                raise ValueError(f"'{literal}' is not a value of type {kind}") from None
        elif text.endswith(":bytes"):
            digits = text.removesuffix(":bytes").removeprefix("0x")
            try:
                value = bytes.fromhex(digits)
            except ValueError:
                raise ValueError(f"'{digits}' is not an even number of hexadecimal digits") from None
        elif ".npy" in text:
            path, _, save = text.partition(":")
            value = _loaded(path)
            if save:
                saves.append((value, save))
        else:
            raise ValueError(f"argument '{text}' is neither an array, a value nor a .npy file")
        values.append(value)
    return values, saves


def _loaded(path: str) -> Any:
    """The array in an `.npy` file. Raises `OSError`, `ValueError`."""
    import zipfile

    import numpy as np

    try:
        value = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} has no array: {str(error).splitlines()[0]}") from None
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{path} has several arrays")
    return cast("Any", value)


def _filled(dtype: str, count: int, filling: str | None, seed: tuple[int, int]) -> Any:
    import numpy as np

    if filling is None or filling == "zeros":
        return np.zeros(count, dtype)
    if filling == "range":
        return np.arange(count).astype(dtype)
    if filling == "normal":
        return np.random.default_rng(seed).standard_normal(count).astype(dtype)
    if filling == "bits":
        return np.frombuffer(np.random.default_rng(seed).bytes(count * np.dtype(dtype).itemsize), dtype).copy()
    try:
        return np.full(count, float(filling) if dtype[0] == "f" else int(filling, 0), dtype)
    except (ValueError, OverflowError):
        raise ValueError(f"'{filling}' is neither zeros, range, normal, bits nor a number") from None


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


def _say(message: str, code: int) -> int:
    sys.stderr.write(message + "\n")
    return code


class _Progress:
    """A progress bar on stderr, if that is a terminal and the run is not short."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._start = time.monotonic()

    def __enter__(self) -> Callable[[int, int], None] | None:
        return self.update if sys.stderr.isatty() else None

    def update(self, done: int, total: int) -> None:
        if self._bar is None:
            if done >= total or time.monotonic() - self._start < _PROGRESS_DELAY:
                return
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("blocks", total=total)
        self._bar.update(self._task, completed=done)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


# --- two files ---------------------------------------------------------------------------------------------------


def add_pair_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `verify A.ptx B.ptx` besides the two files."""
    parser.add_argument(
        "--inputs", metavar="FILE.py", help="a Python file whose function launches(seed) returns the inputs"
    )
    parser.add_argument(
        "--seeds",
        type=_count,
        metavar="N",
        help="the number of inputs for each kernel (default: 48, or 3 with --inputs)",
    )
    parser.add_argument(
        "--budget",
        type=_seconds,
        metavar="SECONDS",
        help="the time for each kernel; small launches come first (default: 10)",
    )
    parser.add_argument(
        "--restrict",
        action="store_true",
        default=None,
        help="use no inputs in which two pointers point to the same buffer",
    )
    parser.add_argument("--kernel", action="append", metavar="NAME", help="compare only this kernel; may be repeated")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds greater than 0")
    return value


def run_pair(before: str, after: str, arguments: argparse.Namespace) -> int:
    """Compare the files ``before`` and ``after``; the exit code: 1 if they differ, 5 if a kernel is inconclusive."""
    from ..emulator import LaunchError
    from ..ptx import PtxError, load
    from .verification.equivalence import launches_from_file

    try:
        first, second = load(before), load(after)
        launches = launches_from_file(arguments.inputs) if arguments.inputs else None
    except PtxError as error:
        return _say(str(error), _BAD_INPUT)
    except OSError as error:
        return _say(f"{error.filename}: error: {error.strerror}", _BAD_INPUT)
    except LaunchError as error:
        return _say(f"ptxmotion: error: {error}", _BAD_INPUT)
    names = list(dict.fromkeys(entry.name for entry in first.entries))
    unknown = set(arguments.kernel or ()) - set(names)
    if unknown:
        return _say(f"ptxmotion: error: {before} has no kernel '{sorted(unknown)[0]}'", _USAGE)
    names = [name for name in names if arguments.kernel is None or name in arguments.kernel]
    if not names:
        return _say(f"ptxmotion: error: {before} has no kernel to compare", _INCONCLUSIVE)
    try:
        return _compare_kernels(first, second, names, launches, arguments)
    except LaunchError as error:
        return _say(f"ptxmotion: error: {error}", _BAD_INPUT)


def _compare_kernels(
    first: Module, second: Module, names: list[str], launches: Any, arguments: argparse.Namespace
) -> int:
    """Print the verdict on each kernel; the exit code."""
    from .verification.equivalence import DIFFERENT, SAME, SECONDS, Comparison, compare, verdict

    seconds = SECONDS if arguments.budget is None else arguments.budget
    seeds = None if arguments.seeds is None else range(arguments.seeds)
    restrict = bool(arguments.restrict)
    results: dict[str, list[Comparison]] = {}
    outcomes: set[str] = set()
    with _PairProgress(len(names)) as progress:
        for name in names:
            progress.start(name)
            for each in compare(
                first, second, seeds=seeds, kernels=[name], launches=launches, seconds=seconds, restrict=restrict
            ):
                results.setdefault(name, []).append(each)
                progress.update(len(results[name]))
            found = verdict(name, results.get(name, ()))
            outcomes.add(found.outcome)
            progress.print("".join(f"{line}\n" for line in _lines_of(found)))
    if DIFFERENT in outcomes:
        return 1
    return _FINE if outcomes == {SAME} else _INCONCLUSIVE


def _lines_of(found: Verdict) -> list[str]:
    """The lines for a kernel: its verdict, the differences with their inputs, and the undecided inputs."""
    lines = [f"{found.kernel}: {found.summary}"]
    for each in found.comparisons:
        if each.outcome == "different":
            place = f"input {each.seed} ({each.name}): " if each.name else ""
            lines += [f"  {place}{line}" for line in each.details]
    return lines + [f"  {line}" for line in found.undecided]


class _PairProgress:
    """A status line on stderr, if that is a terminal and the comparison is not short."""

    def __init__(self, kernels: int) -> None:
        self._kernels = kernels
        self._number = 0
        self._name = ""
        self._status: Any = None
        self._begin = time.monotonic()

    def __enter__(self) -> _PairProgress:
        return self

    def start(self, name: str) -> None:
        """Begin the next kernel."""
        self._number += 1
        self._name = name
        self.update(0)

    def update(self, inputs: int) -> None:
        """Show the number of inputs of this kernel that were compared."""
        if not sys.stderr.isatty() or (self._status is None and time.monotonic() - self._begin < _PROGRESS_DELAY):
            return
        text = f"kernel {self._number} of {self._kernels}: {self._name}, {inputs} inputs compared"
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True, markup=False).status(text)
            self._status.start()
        else:
            self._status.update(text)

    def print(self, text: str) -> None:
        """Write to stdout and flush, because a run can take long."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
