"""What vector loads do to a loop that reads constants: times by the bytes of constants that are read in turn.

    python docs/experiments/constant_loops.py [--emulate]

Needs a GPU. A thread adds up 4,096 terms. Each reads three constants and an element of two arrays in global memory;
four terms are one iteration of the loop. The constants are read again from the start after N bytes. The elements of an
iteration are adjacent and aligned, so that `vectormerge` makes two vector loads of eight loads. There are three kinds
of addresses:

    one      all threads read the same elements, which are other ones in each iteration
    again    the same, and after N bytes of constants the same elements are read again
    own      each thread reads elements of its own, of 64 MiB; with 1056 blocks, most of them are read again by
             other blocks, one or two iterations later

and two kinds of terms: `short` has multiplications only, `long` has a sine and a cosine in addition. A line has the
bytes of constants and, for each kind, the microseconds of the loop as it is written and the ratio to the loop with
vector loads: above 1, vector loads are faster. Median of `ROUNDS` launches of each, which take turns.

Guarantees: both loops compute the same, bit for bit (an error otherwise). ``--emulate`` runs the kernels with few
threads on the emulator, and times nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from typing import Any

import numpy as np
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.ptx import parse, print_module
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import run_passes
from ptxmotion.transforms.remarks import Remarks

TERMS, TABLE = 4096, 12288
ROUNDS = 7
BYTES = (384, 768, 1536, 1920, 2304, 3072, 4608, 6144, 12288, 24576, 49152)
#: Blocks of 256 threads: as `cmpfhd` is launched, and a number that fills the GPU.
GRIDS = (391, 1056)
THREADS = 256
#: Elements of an array that threads read with addresses of their own.
OWN = 1 << 24

_KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.const .align 16 .f32 table[{table}] = {{{values}}};
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 groups, .param .u32 passes)
{{
  .reg .u64 %a, %b, %o, %x, %y, %w, %k, %c;
  .reg .u32 %n, %g, %m, %p, %t, %i, %s, %z;
  .reg .f32 %e<8>, %k<16>, %u<8>, %r, %q, %v;
  .reg .pred %more, %again;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u64 %o, [out];
  ld.param.u32 %n, [groups];
  ld.param.u32 %m, [passes];
  mov.u32 %t, %ctaid.x;
  mov.u32 %i, %ntid.x;
  mov.u32 %s, %tid.x;
  mad.lo.u32 %t, %t, %i, %s;
  mul.wide.u32 %w, %t, 4;
  add.u64 %o, %o, %w;
  cvt.rn.f32.u32 %v, %t;
  mul.rn.f32 %v, %v, 0f38000000;
  mov.f32 %r, 0f00000000;
  mov.f32 %q, 0f00000000;
  mov.u64 %k, table;
  mov.u32 %p, 0;
  mov.u32 %z, 0;
PASS:
  mov.u32 %g, 0;
GROUP:
  .pragma "nounroll";
  {address}
  add.u64 %x, %a, %w;
  add.u64 %y, %b, %w;
  mul.wide.u32 %c, %g, 48;
  add.u64 %c, %k, %c;
  {body}
  add.u32 %z, %z, 1;
  add.u32 %g, %g, 1;
  setp.lt.u32 %more, %g, %n;
  @%more bra GROUP;
  add.u32 %p, %p, 1;
  setp.lt.u32 %again, %p, %m;
  @%again bra PASS;
  add.rn.f32 %r, %r, %q;
  st.global.f32 [%o], %r;
  ret;
}}
"""
_ADDRESSES = {
    "one": "mul.wide.u32 %w, %z, 16;",
    "again": "mul.wide.u32 %w, %g, 16;",
    "own": f"mad.lo.u32 %i, %z, 100096, %t; and.b32 %i, %i, {OWN // 4 - 1}; mul.wide.u32 %w, %i, 16;",
}
_TERMS = {
    "short": "add.rn.f32 %e0, %e0, %v; fma.rn.f32 %r, %e0, %u{n}, %r; fma.rn.f32 %q, %e0, %u{m}, %q;",
    "long": (
        "sin.approx.f32 %e1, %e0; cos.approx.f32 %e2, %e0; fma.rn.f32 %r, %e1, %u{n}, %r;"
        " fma.rn.f32 %q, %e2, %u{m}, %q;"
    ),
}


def loop(address: str, term: str) -> str:
    """The PTX of a kernel with the loop."""
    loads = [f"ld.global.f32 %u{n}, [%x+{4 * n}]; ld.global.f32 %u{n + 4}, [%y+{4 * n}];" for n in range(4)]
    code: list[str] = []
    for n in range(4):
        constants = " ".join(f"ld.const.f32 %k{each}, [%c+{12 * n + 4 * each}];" for each in range(3))
        product = "mul.rn.f32 %e0, %k0, %v; fma.rn.f32 %e0, %k1, %v, %e0; fma.rn.f32 %e0, %k2, %v, %e0;"
        code += [loads[n], constants, product, _TERMS[term].format(n=n, m=n + 4)]
    numbers = np.random.default_rng(3).random(TABLE, np.float32).view(np.uint32)
    values = ", ".join(f"0f{each:08X}" for each in numbers)
    return _KERNEL.format(table=TABLE, values=values, address=_ADDRESSES[address], body="\n  ".join(code))


def merged(ptx: str) -> str:
    """The module with vector loads."""
    module = parse(ptx)
    run_passes(module, passes_of(f"vectormerge:aligned=16:constants={4 * TABLE}"), Remarks())
    text = print_module(module)
    if text.count("ld.global.v4.f32") != 2:
        raise SystemExit("the loads were not merged")
    return text


class Inputs:
    """The buffers of all launches on a backend. ``elements``: of each array."""

    def __init__(self, backend: Any, elements: int, grids: tuple[int, ...], threads: int) -> None:
        self.backend, self.threads = backend, threads
        numbers = np.random.default_rng(4).random(elements, np.float32)
        self.arrays = [backend.allocate(numbers.nbytes) for _ in range(2)]
        for array in self.arrays:
            backend.write(array, numbers)
        self.count = max(grids) * threads
        self.out = backend.allocate(4 * self.count)

    def launch(self, kernel: Any, grid: int, size: int) -> None:
        """One launch that reads ``size`` bytes of constants again and again."""
        groups = size // 48
        arguments = [*self.arrays, self.out, np.uint32(groups), np.uint32(max(1, TERMS // 4 // groups))]
        self.backend.launch(kernel, (grid, 1, 1), (self.threads, 1, 1), 0, arguments)

    def results(self, kernel: Any, grid: int, size: int) -> bytes:
        """The bytes that a launch writes."""
        self.backend.fill(self.out, 0xFF)
        self.launch(kernel, grid, size)
        self.backend.synchronize()
        return self.backend.read(self.out, np.dtype(np.uint32), self.count).tobytes()


def report(inputs: Inputs, grids: tuple[int, ...], sizes: tuple[int, ...], *, times: bool) -> None:
    """Compare the loops, and print their times."""
    kinds = {
        f"{address} {term}": [inputs.backend.load(each).kernel("k") for each in (ptx, merged(ptx))]
        for address in _ADDRESSES
        for term in _TERMS
        for ptx in [loop(address, term)]
    }
    for grid in grids:
        print(f"{grid} blocks; bytes, then for", ", ".join(kinds), flush=True)
        for size in sizes:
            cells: list[str] = []
            for name, kernels in kinds.items():
                one, other = (inputs.results(each, grid, size) for each in kernels)
                if one != other:
                    raise SystemExit(f"{name}, {size} bytes: the loops compute different results")
                if times:
                    launches = [partial(inputs.launch, each, grid, size) for each in kernels]
                    rounds = [[inputs.backend.seconds_of(each) for each in launches] for _ in range(ROUNDS)]
                    plain, vector = (statistics.median(each) for each in zip(*rounds, strict=True))
                    cells.append(f"{plain * 1e6:7.1f} {plain / vector:.3f}")
                else:
                    cells.append("equal")
            print(f"{size:6}  " + "  ".join(cells), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulate", action="store_true", help="only compare, on the emulator")
    if parser.parse_args().emulate:
        report(Inputs(EmulatorBackend(), OWN, (1,), 32), (1,), (384, 3072), times=False)
        return 0
    from ptxmotion.harness.cuda import CudaBackend

    report(Inputs(CudaBackend(), OWN, GRIDS, THREADS), GRIDS, BYTES, times=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
