"""Times of kernels in programs that are not changed, for the code that the optimizer makes of them.

    python docs/experiments/kernel_times.py make OUT FOLDER [--arms gated,O3]
    python docs/experiments/kernel_times.py run OUT RESULTS [--gpus N] [--seconds S] [--rounds N] [--longest S]
        [--host S] [--programs FILE] [--arms gated,O3] [--workers N]

`kernel_times_table.py` makes a table of the results.

`make` builds the program of a folder with its Makefile, as it is. nvcc puts the PTX and the machine code of each source
file into the executable. For each arm of `ARMS`, this PTX is optimized and assembled, and takes the place of the
machine code in the executable. So all arms have the same code on the host. An arm is left out if each kernel has the
same machine code as in another arm. A program is left out, with the reason on stderr and exit code 3, if its Makefile
has no command to run it without further files, if it needs libraries of CUDA or files that are not there, if nvcc
cannot build it, if ptxas does not give the machine code that is in the executable, or if no arm changes a kernel. The
number of repetitions, the last argument of most programs, is divided by ten.

`run` needs a GPU, Linux, libcupti, and only the standard library of Python. The launches of each execution are timed
by `injection/kernel_times.c`, whose library is OUT/libkernel_times.so. All arms of a program are executed in turn, in
another order in each round. An arm is left out if its exit code differs from that of the unchanged program. RESULTS
gets one file of JSON lines for each worker; each line is one execution: for each kernel and size of its launches, their
number, the mean and the median of their times.

A program is ended `--longest` seconds after it has initialized CUDA. It is left out if it needs more than `--host`
seconds besides. If the time that is left does not suffice for all rounds of a program, the next one is tried.
Each line of the file of `--programs` has the name of a program and its arguments. Only these programs are executed, in
this order. `--arms` selects arms besides that of nvcc.

With `--workers N`, N programs are executed on a GPU side by side: one executes kernels, while the others start up to
the creation of a context, end, or wait for their turn. Most of a short execution is start and end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The arms: passes and the gate. Of arms with equal machine code, the first is taken. With `CHECKED_FIRST`, each kernel
#: is replaced by its first version for launches with known facts, with `CHECKED` by the first that is always preferred.
#: Nothing checks what they require; the output of the program shows whether it holds.
CLEAN_UP = "dce,emptyblocks"
ARMS: dict[str, tuple[str, str | None]] = {
    "gated": ("O3", None),
    "O3": ("O3", "off"),
    "ssrqp": (f"ssrqp,{CLEAN_UP}", "off"),
    "lcm": (f"lcm,{CLEAN_UP}", "off"),
    "sscm": (f"sscm,{CLEAN_UP}", "off"),
    "isp": (f"isp,{CLEAN_UP}", "off"),
    "isp-gated": (f"isp,{CLEAN_UP}", "ptxas"),
    "hoisted": (f"ssrqp:paper=true:readable=true,{CLEAN_UP}", "off"),
}
PLAIN, CHECKED, CHECKED_FIRST = "nvcc", "contract", "contract_first"

_TARGET = "sm_90"
#: How many launches of a program that is ended early are compared.
FIRST = 20
#: The exit code of such a program.
STOPPED = 75

#: The exit code that stands for a program that was killed.
TIMED_OUT = 124

#: How many seconds a program may need before it initializes CUDA, and to start and to end.
HOST_SECONDS = 2

_MAGIC = struct.pack("<I", 0xBA55ED50)


class LeftOut(Exception):
    """The program is left out; the text says why."""


# --- make


@dataclass(frozen=True)
class Container:
    """A fatbin in an executable: its place, its PTX, and its machine code."""

    start: int
    end: int
    ptx: str
    cubin: bytes


def make(out: Path, folder: Path, chosen: Sequence[str]) -> None:
    """Write the executable, the fatbins of each arm and the figures of each kernel to ``out``/NAME."""
    name = folder.name.removesuffix("-cuda")
    arguments = arguments_of(folder)
    program = build(folder)
    data = program.read_bytes()
    containers = containers_of(data)
    plain = [assembled(each.ptx) for each in containers]
    for container, cubin in zip(containers, plain, strict=True):
        if codes(container.cubin) != codes(cubin):
            raise LeftOut("ptxas does not give the machine code of the executable")
    arms = {PLAIN: plain}
    known = [every_code(plain)]
    for arm in chosen:
        cubins = [code_of(arm, each.ptx, cubin) for each, cubin in zip(containers, plain, strict=True)]
        if every_code(cubins) not in known:
            known.append(every_code(cubins))
            arms[arm] = cubins
    if len(arms) == 1:
        raise LeftOut("no arm changes a kernel")
    write(out / name, data, containers, arms, arguments)


def arguments_of(folder: Path) -> list[str]:
    """The arguments of the first command of the target ``run``, with fewer repetitions. Raises `LeftOut`."""
    makefile = folder / "Makefile"
    if not makefile.exists():
        raise LeftOut("it has no Makefile")
    text = re.sub(r"#.*", "", makefile.read_text(errors="replace"))
    if re.search(r"\s-l(?!(?:pthread|m|rt)\b)\w+|rdc|-dc\b|\bmpi", text):
        raise LeftOut("it needs libraries or relocatable code")
    if any(not (folder / path).exists() for path in re.findall(r"\.\./[\w./+-]*", text)):
        raise LeftOut("it needs files of other folders")
    run = re.search(r"^run:.*\n((?:\t.*\n?)+)", text, re.M)
    lines = [line for line in (run[1] if run else "").splitlines() if "$(program)" in line or "./main" in line]
    if not lines:
        raise LeftOut("its Makefile has no command that runs it")
    arguments = lines[0].replace("$(LAUNCHER)", "").split()[1:]
    if any((folder / word).exists() or not re.fullmatch(r"[\w=,-]*|[\d.]+", word) for word in arguments):
        raise LeftOut("it needs files")
    if arguments and arguments[-1].isdigit() and int(arguments[-1]) >= 50:
        arguments[-1] = str(max(10, int(arguments[-1]) // 10))
    return arguments


def build(folder: Path) -> Path:
    """The executable, as the Makefile makes it, without symbols. PTX is not compressed: the place of an arm's code."""
    subprocess.run(["make", "-s", "clean"], cwd=folder, capture_output=True)
    command = ["make", "-s", "CC=nvcc --no-compress", f"ARCH={_TARGET}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, errors="replace")
    except subprocess.TimeoutExpired:
        raise LeftOut("nvcc takes longer than 60 s") from None
    named = re.search(r"^program\s*=\s*(\S+)", (folder / "Makefile").read_text(errors="replace"), re.M)
    program = folder / (named[1] if named else "main")
    if done.returncode or not program.exists():
        raise LeftOut(f"nvcc cannot build it: {' '.join(done.stderr.split())[:120]}")
    subprocess.run(["strip", program], check=True)
    return program


def containers_of(data: bytes) -> list[Container]:
    """The fatbins with PTX. Raises `LeftOut`."""
    from ptxmotion.toolchain.fatbin import device_images

    images = device_images(data)
    found: list[Container] = []
    at = data.find(_MAGIC)
    while at >= 0:
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        end = at + header + size
        if header != 16 or end > len(data):
            at = data.find(_MAGIC, at + 4)
            continue
        inside = {image.kind: image.content() for image in images if at < image.start < end}
        if "ptx" in inside and "cubin" in inside:
            found.append(Container(at, end, inside["ptx"].decode("utf-8", "surrogateescape"), inside["cubin"]))
        at = data.find(_MAGIC, end)
    if not found:
        raise LeftOut("there is no PTX in the executable")
    return found


def assembled(ptx: str) -> bytes:
    from ptxmotion.toolchain.tools import assemble

    return assemble(ptx, _TARGET).cubin


def optimized(ptx: str, plain: bytes, passes: str, gate: str | None) -> bytes:
    """The machine code of the optimized PTX; ``plain`` if no kernel changed."""
    from ptxmotion import Policy, optimize

    result = optimize(ptx, passes, Policy(gate=gate, arch=_TARGET))
    return assembled(result.text) if result.changed else plain


def code_of(arm: str, ptx: str, plain: bytes) -> bytes:
    """The machine code of an arm; ``plain`` if no kernel changed."""
    if arm in (CHECKED, CHECKED_FIRST):
        return with_versions(ptx, plain, is_always_preferred=arm == CHECKED)
    return optimized(ptx, plain, *ARMS[arm])


def with_versions(ptx: str, plain: bytes, *, is_always_preferred: bool) -> bytes:
    """The machine code of a module whose kernels are replaced by versions with the same arguments."""
    from ptxmotion import Policy, optimize
    from ptxmotion.ptx import Kernel, print_module
    from ptxmotion.versions.entries import renamed

    result = optimize(ptx, "O3", Policy(arch=_TARGET, contract=True))
    module, contract = result.module, result.contract
    if contract is None or (not result.changed and all(len(each.versions) == 1 for each in contract.kernels.values())):
        return plain
    for name, kernel in contract.kernels.items():
        others = {each.entry for each in kernel.versions[:-1]}
        usable = [each for each in kernel.versions[:-1] if each.launch is None]
        if is_always_preferred:
            usable = [each for each in usable if each.prefer_when is None]
        if usable:
            module.put(renamed(module.kernel(usable[0].entry), name))
        module.items = [each for each in module.items if not (isinstance(each, Kernel) and each.name in others)]
    return assembled(print_module(module))


def codes(cubin: bytes) -> dict[str, tuple[str, str]]:
    from ptxmotion.toolchain.cubin import read_cubin

    return {name: (code.code_sha256, code.data_sha256) for name, code in read_cubin(cubin).items()}


def every_code(cubins: list[bytes]) -> list[dict[str, tuple[str, str]]]:
    return [codes(each) for each in cubins]


def write(
    place: Path, data: bytes, containers: list[Container], arms: Mapping[str, list[bytes]], arguments: list[str]
) -> None:
    """The files of one program. In the executable the places of the fatbins are empty."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    files: dict[str, list[str]] = {arm: [] for arm in arms}
    written: dict[bytes, str] = {}
    for arm, cubins in arms.items():
        for number, (container, cubin) in enumerate(zip(containers, cubins, strict=True)):
            if cubin not in written:
                file = f"{arm}.{number}.fatbin"
                (place / file).write_bytes(fatbin_of(cubin, container.end - container.start))
                (place / file.replace(".fatbin", ".cubin")).write_bytes(cubin)
                written[cubin] = file
            files[arm].append(written[cubin])
    empty = bytearray(data)
    for each in containers:
        empty[each.start : each.end] = bytes(each.end - each.start)
    (place / "program").write_bytes(empty)
    offsets = [each.start for each in containers]
    description = {"arguments": arguments, "offsets": offsets, "arms": files}
    (place / "arms.json").write_text(json.dumps(description, indent=1))
    figures = {arm: [figures_of(cubin) for cubin in cubins] for arm, cubins in arms.items()}
    (place / "figures.json").write_text(json.dumps(figures))


def fatbin_of(cubin: bytes, most: int) -> bytes:
    """A fatbin with one cubin. Raises `LeftOut` if it is too large for its place."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "a.cubin"), Path(folder, "a.fatbin")
        given.write_bytes(cubin)
        command = ["fatbinary", "-64", "--compress=false", f"--create={made}"]
        command.append(f"--image3=kind=elf,sm={_TARGET.removeprefix('sm_')},file={given}")
        subprocess.run(command, check=True, capture_output=True)
        content = made.read_bytes()
    if len(content) > most:
        raise LeftOut("the machine code of an arm is too large for its place in the executable")
    return content


def figures_of(cubin: bytes) -> dict[str, dict[str, Any]]:
    """What describes each kernel: the figures of the gate, and what they are computed from."""
    from dataclasses import asdict

    from ptxmotion.toolchain.cubin import read_cubin
    from ptxmotion.toolchain.ptxas_judge import figures_of as of_code

    return {
        name: {
            **asdict(of_code(code)),
            "shared": code.shared_bytes,
            "frame": code.frame_bytes,
            "max_threads": code.required_threads or code.max_threads,
            "required_threads": code.required_threads,
            "by_depth": [dict(kinds) for kinds in code.by_depth],
        }
        for name, code in read_cubin(cubin).items()
    }


# --- run


@dataclass(frozen=True)
class Limits:
    """How much is executed: ``until`` is a time of `time.monotonic`; ``longest`` and ``host`` are seconds of one
    execution after and before CUDA is initialized. ``arms`` are those to execute, or None for all."""

    until: float
    rounds: int
    longest: float
    host: float
    arms: frozenset[str] | None
    workers: int = 1


def run(out: Path, results: Path, gpus: int, programs: Sequence[tuple[str, list[str] | None]], limits: Limits) -> None:
    """Execute programs on all GPUs until the time is over. Each program stays on one GPU."""
    results.mkdir(parents=True, exist_ok=True)
    threads: list[threading.Thread] = []
    for gpu in range(gpus):
        turn, waiting = threading.Lock(), iter(programs[gpu::gpus])
        for worker in range(limits.workers):
            queue = Queue(out, results / f"gpu{gpu}{f'.{worker}' if worker else ''}.jsonl", gpu, limits, turn)
            threads.append(threading.Thread(target=queue.run, args=(waiting,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def programs_of(out: Path, *, is_reversed: bool) -> list[tuple[str, list[str] | None]]:
    """All programs of ``out`` with the arguments of their Makefiles, which are given as None."""
    names = [path.parent.name for path in out.glob("*/arms.json")]
    names.sort(key=hashed, reverse=is_reversed)
    names.sort(key=lambda name: is_only_hoisted(out, name))
    return [(name, None) for name in names]


def listed_programs(out: Path, file: Path) -> list[tuple[str, list[str] | None]]:
    """The programs of a list with their arguments. Exits with a message if ``out`` lacks one."""
    listed = [line.split() for line in file.read_text().splitlines() if line.strip()]
    if missing := [name for name, *_ in listed if not (out / name / "arms.json").exists()]:
        sys.exit(f"{out} has no {', '.join(missing)}")
    return [(name, arguments) for name, *arguments in listed]


def hashed(name: str) -> str:
    """A place for a program in an order that no result can influence."""
    return hashlib.sha256(name.encode()).hexdigest()


def is_only_hoisted(out: Path, name: str) -> bool:
    """Whether no arm that is always correct changes a kernel. Such programs come last."""
    arms = json.loads((out / name / "arms.json").read_text())["arms"]
    return set(arms) <= {PLAIN, "hoisted"}


class Queue:
    """The executions of one worker on one GPU. ``turn`` is held while a program executes kernels."""

    def __init__(self, out: Path, results: Path, gpu: int, limits: Limits, turn: threading.Lock) -> None:
        self._out, self._gpu, self._limits, self._turn = out, gpu, limits, turn
        self._file = results.open("w")
        self._random = random.Random(gpu)
        self._cupti = cupti(out)
        self._work = Path(tempfile.mkdtemp(prefix="kernel_times_"))

    def run(self, programs: Iterator[tuple[str, list[str] | None]]) -> None:
        """Program after program, so that those that were executed at all have all rounds. The workers of a GPU share
        the iterator of a list, whose steps cannot be interrupted."""
        for name, arguments in programs:
            if time.monotonic() > self._limits.until:
                self._log(f"{name} left out: the time is over")
                continue
            started = time.monotonic()
            arms = self._first_round(name, arguments)
            for number in range(1, self._limits.rounds if len(arms) > 1 else 0):
                self._random.shuffle(arms)
                for arm in arms:
                    self._execute(name, arm, number)
            shutil.rmtree(self._work / name)
            self._log(f"{name}: {', '.join(arms)}; {time.monotonic() - started:.1f} s")
        self._file.close()
        shutil.rmtree(self._work)

    def _first_round(self, name: str, arguments: list[str] | None) -> list[str]:
        """Execute each arm whose launched kernels differ from those of the arms before. Those that can be compared. The
        first is `PLAIN`."""
        self._prepare(name, arguments)
        plain = self._execute(name, PLAIN, 0)
        if plain["seconds"] > self._limits.longest + self._limits.host or not plain["kernels"]:
            self._log(f"{name} left out: exit code {plain['exit']}, {plain['seconds']} s, {plain['message']}")
            return []
        different = self._different_arms(name, {row[0] for row in plain["kernels"]})
        rounds = len(different) * self._limits.rounds - 1
        each = max(plain["seconds"], self._limits.workers * plain["turn"])
        if time.monotonic() + rounds * each > self._limits.until:
            self._log(f"{name} left out: {rounds} more executions of {plain['seconds']} s do not fit")
            return []
        compared = [PLAIN]
        for arm in different[1:]:
            # Where the time of a program is close to the limit, some of its executions are ended early.
            if self._execute(name, arm, 0)["exit"] in (plain["exit"], STOPPED) or plain["exit"] == STOPPED:
                compared.append(arm)
            else:
                self._log(f"{name} {arm} left out: another exit code")
        return compared

    def _different_arms(self, name: str, launched: set[str]) -> list[str]:
        """Of arms whose launched kernels have equal machine code the first one, beginning with `PLAIN`."""
        by_arm = json.loads((self._out / name / "figures.json").read_text())
        found: dict[tuple[tuple[str, str], ...], str] = {}
        for arm, modules in by_arm.items():
            if arm == PLAIN or self._limits.arms is None or arm in self._limits.arms:
                code = ((kernel, each["code"]) for module in modules for kernel, each in module.items())
                found.setdefault(tuple(sorted(each for each in code if each[0] in launched)), arm)
        return list(found.values())

    def _prepare(self, name: str, arguments: list[str] | None) -> None:
        """Write the executables of all arms of a program. Without ``arguments`` it gets those of its Makefile."""
        place = self._out / name
        description = json.loads((place / "arms.json").read_text())
        program = bytearray((place / "program").read_bytes())
        for arm, files in description["arms"].items():
            for offset, file in zip(description["offsets"], files, strict=True):
                content = (place / file).read_bytes()
                program[offset : offset + len(content)] = content
            target = self._work / name / arm / "program"
            target.parent.mkdir(parents=True)
            target.write_bytes(program)
            target.chmod(0o755)
            words = description["arguments"] if arguments is None else arguments
            (target.parent / "arguments").write_text("\n".join(words))

    def _execute(self, name: str, arm: str, number: int) -> dict[str, Any]:
        folder = self._work / name / arm
        times = folder / "times.tsv"
        times.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": str(self._gpu),
            "CUDA_INJECTION64_PATH": str((self._out / "libkernel_times.so").resolve()),
            "KERNEL_TIMES_CUPTI": self._cupti,
            "KERNEL_TIMES_OUT": str(times),
            "KERNEL_TIMES_SECONDS": str(self._limits.longest),
        }
        command = ["./program", *filter(None, (folder / "arguments").read_text().split("\n"))]
        ended = Execution(command, folder, environment, self._limits.longest + self._limits.host + 1, self._turn)
        code = ended.code
        row = {
            "program": name,
            "arm": arm,
            "round": number,
            "gpu": self._gpu,
            "exit": code,
            "seconds": round(ended.seconds, 3),
            "turn": round(ended.turn, 3),
            "output": hashlib.sha256(without_times(ended.output)).hexdigest()[:12] if code != TIMED_OUT else "",
            "message": ended.message,
            "kernels": summary(times) if code != TIMED_OUT and times.exists() else [],
        }
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        return row

    def _log(self, text: str) -> None:
        print(f"gpu {self._gpu}: {text}", flush=True)


class Execution:
    """One execution of a program, which holds ``turn`` from its first context of CUDA to its last time. After ``most``
    seconds, besides those for which it waits for its turn, it is killed; then the exit code is `TIMED_OUT`."""

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str], most: float, turn: threading.Lock
    ) -> None:
        self.turn = self._waited = 0.0  # seconds for which it held its turn, and waited for it
        started = time.monotonic()
        here, there = socket.socketpair()
        with here, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as message:
            here.settimeout(most)
            with there:
                number = there.fileno()
                given = {**environment, "KERNEL_TIMES_TURN": str(number)}
                process = subprocess.Popen(
                    command, cwd=folder, env=given, stdout=output, stderr=message, pass_fds=[number]
                )
            try:
                if _hears(here):
                    self._in_turn(here, turn)
                self.code = process.wait(timeout=max(0.1, started + self._waited + most - time.monotonic()))
            except (subprocess.TimeoutExpired, TimeoutError):
                process.kill()
                process.wait()
                self.code = TIMED_OUT
            self.seconds = time.monotonic() - started - self._waited
            output.seek(0)
            message.seek(0)
            self.output, self.message = output.read(), message.read().decode(errors="replace")[-200:]

    def _in_turn(self, here: socket.socket, turn: threading.Lock) -> None:
        """Give the program its turn, until it writes again or ends. Raises `TimeoutError`."""
        ready = time.monotonic()
        with turn:
            began = time.monotonic()
            self._waited = began - ready
            try:
                here.send(b"t")
                _hears(here)
            except BrokenPipeError:
                pass  # it has ended while it waited
            finally:
                self.turn = time.monotonic() - began


def _hears(here: socket.socket) -> bool:
    """Wait for the program. False: it has ended. Raises `TimeoutError`."""
    try:
        return bool(here.recv(1))
    except ConnectionResetError:
        return False


def without_times(output: bytes) -> bytes:
    """The lines of a program's output that have no unit of time or rate in them."""
    unit = re.compile(rb"time|second|\b[num]?s\b|/s|flop|bandwidth|throughput|rate|perf", re.I)
    return b"\n".join(line for line in output.splitlines() if not unit.search(line))


def summary(times: Path) -> list[list[Any]]:
    """For each kernel and launch size: name, grid, block, registers, static, dynamic shared, local, number of launches,
    mean and median of their nanoseconds, and those of the first launches."""
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for line in times.read_text(errors="replace").splitlines():
        *key, nanoseconds = line.split("\t")
        if nanoseconds != "0":  # of a launch that had not ended, or failed
            groups[tuple(key)].append(int(nanoseconds))
    return [
        [*key, len(values), round(statistics.fmean(values)), round(statistics.median(values)), values[:FIRST]]
        for key, values in groups.items()
    ]


def cupti(out: Path) -> str:
    """The path of libcupti: that of a package of Python, of the toolkit, of ``out``, or the name for the loader."""
    toolkit = ("/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64")
    places = [Path(each).absolute() for each in (*sys.path, *toolkit, out)]
    for place in places:
        for pattern in ("nvidia/cu13/lib/libcupti.so.1?", "nvidia/cuda_cupti/lib/libcupti.so.1?", "libcupti.so.1?"):
            for found in sorted(place.glob(pattern), reverse=True) if place.is_dir() else ():
                return str(found)
    return "libcupti.so.13"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make")
    making.add_argument("out", type=Path)
    making.add_argument("folder", type=Path)
    making.add_argument(
        "--arms",
        type=lambda text: text.split(","),
        default=list(ARMS),
        metavar="NAME,…",
        help=f"of {', '.join((*ARMS, CHECKED, CHECKED_FIRST))} (default: the first {len(ARMS)})",
    )
    running = verbs.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("results", type=Path)
    running.add_argument("--gpus", type=int, default=1)
    running.add_argument("--seconds", type=float, default=500)
    running.add_argument("--rounds", type=int, default=5)
    running.add_argument("--longest", type=float, default=2)
    running.add_argument("--host", type=float, default=HOST_SECONDS)
    running.add_argument("--workers", type=int, default=1)
    running.add_argument("--arms", type=lambda text: frozenset(text.split(",")), metavar="NAME,…")
    order = running.add_mutually_exclusive_group()
    order.add_argument("--programs", type=Path, metavar="FILE")
    order.add_argument("--reverse", action="store_true", help="the programs in the opposite order")
    arguments = parser.parse_args()
    if arguments.verb == "make":
        try:
            make(arguments.out, arguments.folder, arguments.arms)
        except LeftOut as reason:
            print(f"{arguments.folder.name}: {reason}", file=sys.stderr)
            return 3
    else:
        until = time.monotonic() + arguments.seconds
        limits = Limits(until, arguments.rounds, arguments.longest, arguments.host, arguments.arms, arguments.workers)
        if arguments.programs:
            programs = listed_programs(arguments.out, arguments.programs)
        else:
            programs = programs_of(arguments.out, is_reversed=arguments.reverse)
        run(arguments.out, arguments.results, arguments.gpus, programs, limits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
