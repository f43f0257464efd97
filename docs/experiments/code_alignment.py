"""What it costs where the machine code of a kernel begins: times of kernels that are moved in memory.

    python docs/experiments/code_alignment.py loops
    python docs/experiments/code_alignment.py suites [NAME…] [--size small] [--seconds S]
    python docs/experiments/code_alignment.py make OUT FOLDER
    python docs/experiments/kernel_times.py run OUT RESULTS
    python docs/experiments/kernel_times_table.py OUT RESULTS > TABLE.csv

A kernel is moved by N times ``NOP`` in front of its code: all instructions are the same, and begin 16 N bytes later.
Branches and calls are relative to their own place, so they stay right. The places of instructions in relocations and in
``.nv.info`` are changed. A cache line has 8 instructions, so with 8 times ``NOP`` every line contains the same as
before: these times show the noise. `--shifts` chooses other numbers.

`loops` times loops of several lengths, with few and with many warps. `suites` times the programs of the suites, by the
protocol of `bench run`. Both need a GPU. `make` builds a public program as `kernel_times.py` does; its arms are nvcc's
machine code, moved.
"""

from __future__ import annotations

import argparse
import re
import statistics
import struct
import sys
import time
from functools import partial
from pathlib import Path

import kernel_times
import numpy as np
from ptxmotion.arch import H200_MULTIPROCESSORS
from ptxmotion.harness.cuda import CudaBackend, CudaModule
from ptxmotion.harness.cuda_stopwatch import CudaStopwatch
from ptxmotion.harness.protocol import Plan, time_arms
from ptxmotion.harness.workload import Arm
from ptxmotion.programs.tasks import SuiteWork, select
from ptxmotion.suites.runner import compiler, ptx_of
from ptxmotion.toolchain.tools import assemble

#: The size of an instruction, and the unit by which a section of code grows.
SIZE, LINE = 16, 128
_NOP = 0x118
#: The attributes of ``.nv.info`` whose values are places of instructions: EIATTR_EXIT_INSTR_OFFSETS,
#: EIATTR_S2RCTAID_INSTR_OFFSETS, EIATTR_COOP_GROUP_INSTR_OFFSETS, EIATTR_INT_WARP_WIDE_INSTR_OFFSETS.
_PLACES = (0x1C, 0x1D, 0x28, 0x31)
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")


def shifted(cubin: bytes, count: int) -> bytes:
    """The cubin with ``count`` times ``NOP`` in front of the code of each function with a section."""
    data = bytearray(cubin)
    for name in [name for name, _ in _sections(data) if name.startswith(".text.")]:
        data = _moved(data, name, count)
    return bytes(data)


def _sections(data: bytearray) -> list[tuple[str, int]]:
    """The name of each section and the place of its header."""
    (table,) = struct.unpack_from("<Q", data, 40)
    step, number, names = struct.unpack_from("<HHH", data, 58)
    strings = _HEADER.unpack_from(data, table + names * step)[4]
    found: list[tuple[str, int]] = []
    for index in range(number):
        place = table + index * step
        start = strings + _HEADER.unpack_from(data, place)[0]
        found.append((data[start : data.index(0, start)].decode(), place))
    return found


def _moved(data: bytearray, name: str, count: int) -> bytearray:
    """Move the code of one section."""
    headers = dict(_sections(data))
    offset, size = _HEADER.unpack_from(data, headers[name])[4:6]
    code = bytes(data[offset : offset + size])
    words = [code[place : place + SIZE] for place in range(0, size, SIZE)]
    padding = next((each for each in reversed(words) if struct.unpack_from("<H", each)[0] & 0x1FF == _NOP), None)
    if padding is None:
        padding = struct.pack("<QQ", 0x7918, 0xFC00000000000)
    while words and words[-1] == padding:
        words.pop()
    words = [padding] * count + words
    words += [padding] * (-len(words) % (LINE // SIZE))
    moved = b"".join(words)
    moved += padding * ((size - len(moved)) // SIZE)
    for prefix, step in ((".rela", 24), (".rel", 16)):
        if prefix + name in headers:
            start, length = _HEADER.unpack_from(data, headers[prefix + name])[4:6]
            for place in range(start, start + length, step):
                struct.pack_into("<Q", data, place, struct.unpack_from("<Q", data, place)[0] + SIZE * count)
    info = ".nv.info." + name.removeprefix(".text.")
    if info in headers:
        start, length = _HEADER.unpack_from(data, headers[info])[4:6]
        _move_places(data, start, start + length, count)
    data[offset : offset + size] = moved
    if len(moved) > size:
        _make_room(data, headers[name], offset + size, len(moved) - size)
    return data


def _move_places(data: bytearray, place: int, end: int, count: int) -> None:
    """Increase the places of instructions in a section of attributes."""
    while place + 4 <= end:
        kind, attribute, size = struct.unpack_from("<BBH", data, place)
        place += 4
        if kind != 4:
            continue
        if attribute in _PLACES:
            for each in range(place, place + size, 4):
                struct.pack_into("<I", data, each, struct.unpack_from("<I", data, each)[0] + SIZE * count)
        place += size


def _make_room(data: bytearray, own: int, end: int, more: int) -> None:
    """Correct the headers after the section whose header was at ``own`` has grown by ``more`` bytes; it ended at
    ``end``."""
    segments, table = struct.unpack_from("<QQ", data, 32)
    segment_step, segment_count, step, number = struct.unpack_from("<HHHH", data, 54)
    if table >= end:
        table, own = table + more, own + more
        struct.pack_into("<Q", data, 40, table)
    if segments >= end:
        segments += more
        struct.pack_into("<Q", data, 32, segments)
    for place in range(table, table + number * step, step):
        fields = list(_HEADER.unpack_from(data, place))
        if place == own:
            fields[5] += more
        elif fields[4] >= end:
            fields[4] += more
        _HEADER.pack_into(data, place, *fields)
    for place in range(segments, segments + segment_count * segment_step, segment_step):
        fields = list(_SEGMENT.unpack_from(data, place))
        if fields[2] >= end:
            fields[2] += more
        elif fields[2] + fields[5] >= end:
            fields[5] += more
            fields[6] += more
        _SEGMENT.pack_into(data, place, *fields)


class MovingBackend(CudaBackend):
    """A GPU that loads a module with the kernels moved, if its PTX ends with a mark of `marked`."""

    def load(self, ptx: str, /) -> CudaModule:
        found = _MARK.search(ptx)
        if found is None:
            return super().load(ptx)
        return self.load_cubin(shifted(assemble(ptx, f"sm_{self.sm}").cubin, int(found[1])))


_MARK = re.compile(r"// moved by (\d+)\n\Z")


def marked(ptx: str, count: int) -> str:
    """The PTX of a module whose kernels `MovingBackend` moves by ``count`` instructions."""
    return f"{ptx}\n// moved by {count}\n"


def time_suites(names: list[str], size: str, shifts: list[int], seconds: float) -> None:
    """Print a line for each program: the time of the code where it is, divided by that of each moved one."""
    backend, until = MovingBackend(), time.monotonic() + seconds
    nvcc = compiler(f"sm_{backend.sm}")
    plan = Plan(rounds=6, samples=5, seeds=(1,), doublings=0)
    print("program, seconds, again,", ", ".join(map(str, shifts)), flush=True)
    for benchmark, file in select(names, None):
        if time.monotonic() > until:
            print(f"{benchmark.fullname}: the time is over", flush=True)
            continue
        work, modules = SuiteWork(benchmark.fullname, size, file), ptx_of(benchmark, nvcc)
        arms = [Arm("given", modules), Arm("given (again)", modules)]
        arms += [Arm(f"{n}", {name: marked(ptx, n) for name, ptx in modules.items()}) for n in shifts]
        try:
            stopwatch = CudaStopwatch(backend, work, arms, 1)
            rounds, estimates = time_arms(stopwatch, len(arms), [(0, n) for n in range(1, len(arms))], plan)
            stopwatch.close()
        except Exception as error:  # the other programs are timed all the same
            print(f"{benchmark.fullname}: {type(error).__name__}: {error}", flush=True)
            continue
        one = statistics.median(each for of in rounds.seconds[0] for each in of)
        print(f"{benchmark.fullname}, {one:.4g},", ", ".join(f"{each.speedup:.4f}" for each in estimates), flush=True)


#: A loop of ``{body}``; ``%x0`` to ``%x7`` are independent of each other.
_LOOP = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 count)
{{
  .reg .u64 %o; .reg .u32 %i, %n; .reg .f32 %x<8>, %y; .reg .pred %p;
  ld.param.u64 %o, [out];
  ld.param.u32 %n, [count];
  ld.global.f32 %y, [%o];
  {start}
  mov.u32 %i, 0;
LOOP:
  .pragma "nounroll";
  {body}
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %n;
  @%p bra LOOP;
  {end}
  ret;
}}
"""


def loop_of(length: int, chains: int) -> str:
    """A module with a loop of ``length`` multiplications with additions, of which ``chains`` are independent."""
    start = " ".join(f"add.f32 %x{n}, %y, 0f3F{n}00000;" for n in range(8))
    body = " ".join(f"fma.rn.f32 %x{n % chains}, %x{n % chains}, %y, %y;" for n in range(length))
    end = " ".join(f"st.global.f32 [%o+{4 * n + 4}], %x{n};" for n in range(8))
    return _LOOP.format(start=start, body=body, end=end)


def time_loops(shifts: list[int]) -> None:
    """Print the time of an iteration of loops, in cycles of a scheduler per warp, for each shift."""
    backend = MovingBackend()
    out = backend.allocate(64)
    backend.write(out, np.zeros(16, np.float32))
    places = [0, *shifts]
    clock = backend.attribute("CLOCK_RATE") * 1e3
    print("FMAs, chains, warps of a scheduler, head and length in instructions; cycles by shift", places)
    for length in (4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 160):
        for chains in (1, 4, 8):
            ptx = loop_of(length, min(chains, length))
            head, size = loop_place(assemble(ptx, "sm_90").cubin)
            kernels = [backend.load(marked(ptx, n)).kernel("k") for n in places]
            for warps in (1, 2, 4, 8, 16):
                count = 1_000_000 // (size * warps)
                grid, block = (H200_MULTIPROCESSORS * max(1, warps // 4), 1, 1), (128 * min(warps, 4), 1, 1)
                launches = [partial(backend.launch, each, grid, block, 0, [out, np.uint32(count)]) for each in kernels]
                times = [[backend.seconds_of(launch) for launch in launches] for _ in range(4)]
                cycles = " ".join(f"{min(each) * clock / count / warps:7.2f}" for each in zip(*times, strict=True))
                print(f"{length:3} {chains} {warps:2}  {head:3} {size:3}  {cycles}", flush=True)


def loop_place(cubin: bytes) -> tuple[int, int]:
    """The number of the first instruction of the only loop of kernel ``k``, and the number of its instructions."""
    data = bytearray(cubin)
    offset, size = _HEADER.unpack_from(data, dict(_sections(data))[".text.k"])[4:6]
    for place in range(size // SIZE):
        low, high = struct.unpack_from("<QQ", data, offset + place * SIZE)
        if low & 0x1FF == 0x147 and high >> 17 & 1:  # a branch back
            ahead = ((high & 0x3FFFF) << 30 | low >> 34) << 8 | low >> 16 & 0xFF
            target = place + 1 + (ahead - (1 << 56)) * 4 // SIZE
            if target < place:
                return target, place + 1 - target
    return 0, 0


def make(out: Path, folder: Path, shifts: list[int]) -> None:
    """Write the executable and the fatbins of each arm to ``out``/NAME. Raises `kernel_times.LeftOut`."""
    arguments = kernel_times.arguments_of(folder)
    data = kernel_times.build(folder).read_bytes()
    containers = kernel_times.containers_of(data)
    arms = {kernel_times.PLAIN: [each.cubin for each in containers]}
    for count in shifts:
        arms[f"shift{count}"] = [shifted(each.cubin, count) for each in containers]
    kernel_times.write(out / folder.name.removesuffix("-cuda"), data, containers, arms, arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("loops", "suites", "make"))
    parser.add_argument("names", nargs="*", help="OUT and FOLDER, or programs of the suites")
    parser.add_argument("--shifts", type=lambda text: [int(each) for each in text.split(",")], default=[*range(1, 9)])
    parser.add_argument("--size", default="small")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further program after so many seconds")
    arguments = parser.parse_args()
    if arguments.verb == "loops":
        time_loops(arguments.shifts)
    elif arguments.verb == "suites":
        time_suites(arguments.names, arguments.size, arguments.shifts, arguments.seconds)
    else:
        out, folder = map(Path, arguments.names)
        try:
            make(out, folder, arguments.shifts)
        except kernel_times.LeftOut as reason:
            print(f"{folder.name}: {reason}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
