"""What `-O2` costs next to ptxas, over PTX files: without the gate, with an empty cache, with a full one.

    python bench/cost.py DIR [--every 15] [--most 100000] [--large 4] [--list]

Of the files up to ``--most`` bytes every ``--every``-th is taken, in the order of their paths, and of the others
``--large`` evenly by size. All figures are CPU seconds, ours and those of the ptxas processes that the gate starts,
from the file's text to the text of the result: reading, verifying, passes, gate, printing. What starting Python and
importing takes is not in them (`make bench` measures that). Files that ptxas or the verifier refuses are left out.
Ratios are of the sums. The exit code is 1 where a limit is not kept.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ptxmotion.cli.gate import Assembled
from ptxmotion.harness.gate import PtxasJudge
from ptxmotion.harness.toolchain import PtxasError, ToolTimeout, assemble
from ptxmotion.ptx import PtxError, load, print_module
from ptxmotion.ptx.verify import verify, verify_kernel
from ptxmotion.transforms.gate import Judge
from ptxmotion.transforms.pipeline import Pipeline, pipeline_of
from ptxmotion.transforms.remarks import Remarks

#: What is measured, and how many times ptxas's own time it may take over a whole corpus.
LIMITS = {"without the gate": 1.0, "cold gate": 3.5, "warm gate": 0.3}


def main() -> int:
    """Measure, print, and return the exit code: 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--every", type=int, default=15, metavar="N")
    parser.add_argument("--most", type=int, default=100_000, metavar="BYTES")
    parser.add_argument("--large", type=int, default=4, metavar="N")
    parser.add_argument("--list", action="store_true", help="print each file's figures as well")
    arguments = parser.parse_args()
    rows: list[tuple[float, float, float, float]] = []
    _import_passes()
    for path in _sample(arguments.folder, arguments.every, arguments.most, arguments.large):
        row = _measure(path)
        if row is None:
            continue
        rows.append(row)
        if arguments.list:
            shown = " ".join(f"{seconds:8.3f}" for seconds in row)
            print(f"{shown} {path.relative_to(arguments.folder)}", flush=True)
    if not rows:
        print("no file that ptxas accepts", file=sys.stderr)
        return 1
    ptxas, without, cold, warm = (sum(column) for column in zip(*rows, strict=True))
    print(f"{len(rows)} files, ptxas {ptxas:.2f} s")
    found = {"without the gate": without, "cold gate": cold, "warm gate": warm - without}
    for what, seconds in found.items():
        more = " more than without" if what == "warm gate" else ""
        print(f"{what:17} {seconds:8.2f} s  {seconds / ptxas:5.2f} of ptxas{more} (limit {LIMITS[what]})")
    return 1 if any(seconds > LIMITS[what] * ptxas for what, seconds in found.items()) else 0


def _import_passes() -> None:
    """Once through everything, so that the first file does not pay for what is imported when it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loop.ptx"
        path.write_text(_LOOP, encoding="ascii")
        _optimize(path, None)


_LOOP = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p){
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
ld.param.u64 %rd1, [p];
mov.u32 %r1, %tid.x;
L: ld.global.u32 %r2, [%rd1];
mul.lo.u32 %r3, %r1, %r1;
add.u32 %r4, %r3, %r2;
setp.lt.u32 %p1, %r4, %r1;
@%p1 bra M;
mul.lo.u32 %r5, %r1, 7;
st.global.u32 [%rd1+4], %r5;
M: mul.lo.u32 %r6, %r1, 7;
st.global.u32 [%rd1+8], %r6;
setp.lt.u32 %p2, %r6, %r2;
@%p2 bra L;
ret;
}
"""


def _sample(folder: Path, every: int, most: int, large: int) -> Iterator[Path]:
    files = sorted(folder.rglob("*.ptx"))
    sizes = {path: path.stat().st_size for path in files}
    yield from [path for path in files if sizes[path] <= most][::every]
    rest = sorted((path for path in files if sizes[path] > most), key=lambda path: sizes[path])
    if rest and large:
        yield from rest[len(rest) // (2 * large) :: max(1, len(rest) // large)]


def _measure(path: Path) -> tuple[float, float, float, float] | None:
    """Seconds of ptxas, of -O2 without the gate, with a cold one and a warm one; `None` where the file is refused."""
    try:
        verify(load(str(path)))
        ptxas = _seconds(lambda: assemble(path))
        with tempfile.TemporaryDirectory() as folder:
            judge = Assembled(PtxasJudge(folder=Path(folder)))
            without, cold, warm = (_seconds(lambda by=by: _optimize(path, by)) for by in (None, judge, judge))
    except (PtxError, PtxasError, ToolTimeout):
        return None
    return ptxas, without, cold, warm


def _optimize(path: Path, judge: Judge | None) -> None:
    module = load(str(path))
    verify(module)
    Pipeline(pipeline_of("O2"), lambda kernel, of: verify_kernel(kernel, of.source), judge=judge).run(module, Remarks())
    print_module(module)


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of ours and of the processes that ``work`` starts."""
    gc.collect()
    started, children = time.process_time(), _children()
    work()
    return time.process_time() - started + _children() - children


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
