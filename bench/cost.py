"""What a level costs beside ptxas, over PTX files: without the gate, with an empty cache, with a full one.

    python bench/cost.py DIR [--level O2 --level O3] [--every 15] [--most 100000] [--large 4] [--list]
    python bench/cost.py DIR --whole [--ungated] [--save FILE] [--seconds 300]

Of the files up to ``--most`` bytes, every ``--every``-th is taken, in the order of their paths; of the larger ones
``--large``, evenly by size. ``--whole`` takes all files, or every ``--every``-th if that is given. All figures are CPU
seconds, our own and those of the ptxas processes that the gate starts, from the text of a file to the text of the
result: parsing, verifying, passes, gate, printing; the garbage collector runs as rarely as in `opt`. The start of
Python and imports are not included (`make bench` measures them). Files that ptxas or the verifier refuses are left out.
Ratios are of sums from one run: the time of a level is divided by the time of ptxas for the same files in the same
process. ``--repeat`` takes the fastest of several.

With ``--save`` the figures of each file are appended to a table as they are measured. A file that is in the table is
not measured again: a long run continues where it was stopped, or where ``--seconds`` of CPU time were used up. The
sums are of all files of the selection that are in the table. The exit code is 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from ptxmotion.cli import collect_garbage_rarely
from ptxmotion.driver import Policy, optimize_in_place
from ptxmotion.judges import Assembled
from ptxmotion.ptx import PtxError, load, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import PtxasError, ToolMissing, ToolTimeout, assemble, find_tool
from ptxmotion.transforms.gate.judge import Judge

#: By arm: the largest ratio of its time to that of ptxas, over a whole corpus.
LIMITS = {"without the gate": 1.0, "cold gate": 3.5, "warm gate": 0.3}


#: The arms of a level that are measured, in this order; ``--ungated`` measures the first alone.
ARMS = ("without", "cold", "warm")

#: Seconds by column: ``ptxas``, and ``O2 without`` and so on.
Row: TypeAlias = dict[str, float]


def main() -> int:
    """Measure, print, and return the exit code: 1 where a limit is not kept."""
    arguments = _arguments()
    find_tool("ptxas")
    collect_garbage_rarely()
    levels: list[str] = arguments.level or ["O2"]
    arms = ARMS[:1] if arguments.ungated else ARMS
    table = _Table(arguments.save, ["ptxas", *(f"{level} {arm}" for level in levels for arm in arms)])
    _import_passes(levels)
    started = time.process_time() + _children()
    for path in _sample(arguments):
        name = str(path.relative_to(arguments.folder))
        if name not in table.rows:
            if arguments.seconds and time.process_time() + _children() - started > arguments.seconds:
                print("stopped: the time is over", file=sys.stderr)
                break
            table.add(name, _measure(path, levels, arms, arguments.repeat))
        row = table.rows[name]
        table.selected.append(name)
        if arguments.list and row is not None:
            print(" ".join(f"{row[column]:8.3f}" for column in table.columns), name, flush=True)
    rows = [row for name in table.selected if (row := table.rows[name]) is not None]
    if not rows:
        print("no file that ptxas accepts", file=sys.stderr)
        return 1
    print(f"{len(rows)} files, {len(table.selected) - len(rows)} refused, ptxas {_sum(rows, 'ptxas'):.2f} s")
    kept = [_report(rows, level, arms) for level in levels]
    return 0 if all(kept) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--level", action="append", metavar="LEVEL", help="a level or list of passes; O2 by default")
    parser.add_argument("--every", type=int, metavar="N", help="15 by default, 1 with --whole")
    parser.add_argument("--most", type=int, default=100_000, metavar="BYTES")
    parser.add_argument("--large", type=int, default=4, metavar="N")
    parser.add_argument("--whole", action="store_true", help="files of all sizes alike")
    parser.add_argument("--ungated", action="store_true", help="without the gate only")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="take the fastest of N")
    parser.add_argument("--save", type=Path, metavar="FILE", help="a table to go on with")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after so much CPU time")
    parser.add_argument("--list", action="store_true", help="print each file's figures as well")
    return parser.parse_args()


class _Table:
    """The figures by file; `None` for a file that is refused.

    Each new row is also appended to the file ``path``, if there is one.
    """

    def __init__(self, path: Path | None, columns: list[str]) -> None:
        self.path = path
        self.columns = columns
        self.rows: dict[str, Row | None] = {}
        self.selected: list[str] = []
        if path is None:
            return
        if not path.exists():
            path.write_text("\t".join(["file", *columns]) + "\n", encoding="utf-8")
        lines = path.read_text(encoding="utf-8").splitlines()
        if lines[0].split("\t")[1:] != columns:
            raise SystemExit(f"{path} has the columns {lines[0]}, not {' '.join(columns)}")
        for line in lines[1:]:
            name, *seconds = line.split("\t")
            self.rows[name] = dict(zip(columns, map(float, seconds), strict=True)) if seconds else None

    def add(self, name: str, row: Row | None) -> None:
        """Add the measurements of the file ``name``; ``row`` is `None` if ptxas refuses it."""
        self.rows[name] = row
        if self.path is not None:
            figures = [f"{row[column]:.4f}" for column in self.columns] if row is not None else []
            with self.path.open("a", encoding="utf-8") as out:
                out.write("\t".join([name, *figures]) + "\n")


def _report(rows: Sequence[Row], level: str, arms: Sequence[str]) -> bool:
    """Print the sums of a level; whether it keeps the limits."""
    ptxas, without = _sum(rows, "ptxas"), _sum(rows, f"{level} without")
    seconds_of = {"without the gate": without}
    if len(arms) > 1:
        seconds_of |= {"cold gate": _sum(rows, f"{level} cold"), "warm gate": _sum(rows, f"{level} warm") - without}
    for what, seconds in seconds_of.items():
        more = " more than without" if what == "warm gate" else ""
        ratio = f"{seconds / ptxas:5.2f} of ptxas{more} (limit {LIMITS[what]})"
        print(f"{level} {what:17} {seconds:8.2f} s  {ratio}")
    return all(seconds <= LIMITS[what] * ptxas for what, seconds in seconds_of.items())


def _sum(rows: Sequence[Row], column: str) -> float:
    return sum(row[column] for row in rows)


def _import_passes(levels: Sequence[str]) -> None:
    """Once through everything, so that the time of the first file does not contain late imports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loop.ptx"
        path.write_text(_LOOP, encoding="ascii")
        for level in levels:
            _optimize(path, level, None)


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


def _sample(arguments: argparse.Namespace) -> Iterator[Path]:
    files = sorted(arguments.folder.rglob("*.ptx"))
    if arguments.whole:
        yield from files[:: arguments.every or 1]
        return
    large = arguments.large
    sizes = {path: path.stat().st_size for path in files}
    yield from [path for path in files if sizes[path] <= arguments.most][:: arguments.every or 15]
    rest = sorted((path for path in files if sizes[path] > arguments.most), key=lambda path: sizes[path])
    if rest and large:
        yield from rest[len(rest) // (2 * large) :: max(1, len(rest) // large)]


def _measure(path: Path, levels: Sequence[str], arms: Sequence[str], repeat: int) -> Row | None:
    """Seconds of ptxas, and of each level without the gate, with a cold one and a warm one; `None` where the file is
    refused."""
    try:
        verify(load(str(path)))
        row = {"ptxas": min(_seconds(lambda: assemble(path)) for _ in range(repeat))}
        for _ in range(repeat):
            for level in levels:
                with tempfile.TemporaryDirectory() as folder:
                    judge = Assembled(PtxasJudge(folder=Path(folder)))
                    for arm in arms:
                        by = None if arm == "without" else judge
                        seconds = _seconds(lambda level=level, by=by: _optimize(path, level, by))
                        column = f"{level} {arm}"
                        row[column] = min(row.get(column, seconds), seconds)
    except (PtxError, PtxasError, ToolMissing, ToolTimeout):  # no ptxas reads a PTX version as new as that of the file
        return None
    return row


def _optimize(path: Path, level: str, judge: Judge | None) -> None:
    module = load(str(path))
    verify(module)
    optimize_in_place(module, level, Policy(judge=judge, gate="off"))
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
