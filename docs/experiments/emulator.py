"""Thread instructions per second: the emulator beside Numba's CUDA simulator, over grid sizes.

    NUMBA_ENABLE_CUDASIM=1 python docs/experiments/emulator.py [--json FILE] [--most N]

Three kernels: element-wise, tiled matrix product with barriers, divergent traversal. The emulator counts the
instructions of a launch. Numba gets the same grid, block and inputs, and the same number is divided by its time. Both
results are compared with NumPy. Time is processor time of this process, so other processes do not count. Numba's
simulator starts one thread of the operating system for each thread of a block, so its time grows with the grid: it runs
up to `--numba-most` threads, and larger grids use its best rate. Without Numba (`pip install numba`) only the emulator
is measured. Rates are medians of `--repeats` launches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")

HERE = Path(__file__).resolve().parent


class Problem:
    """One launch: ``args`` makes fresh arguments, ``check`` says whether they hold the right results."""

    def __init__(self, kernel: str, grid: Any, block: Any, args: list[Any], check: Callable[[list[Any]], bool]) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self._args = args
        self.check = check

    def args(self) -> list[Any]:
        return [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in self._args]


def elementwise(threads: int) -> Problem:
    random = np.random.default_rng(1)
    x, y = (random.standard_normal(threads).astype(np.float32) for _ in range(2))
    v = np.float32(1.5) * x + y
    want = np.where(v > 0, v, v * v - 1)
    args = [x, y, np.zeros(threads, np.float32), np.float32(1.5), np.int32(threads)]
    return Problem("elementwise", (threads + 127) // 128, 128, args, lambda a: np.allclose(a[2], want, atol=1e-4))


def matmul(threads: int) -> Problem:
    side = max(int(threads**0.5) // 8 * 8, 8)
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(side * side).astype(np.float32) for _ in range(2))
    want = (a.reshape(side, side).astype(np.float64) @ b.reshape(side, side)).reshape(-1)
    args = [a, b, np.zeros(side * side, np.float32), np.int32(side)]
    return Problem("matmul", (side // 8, side // 8), (8, 8), args, lambda a: np.allclose(a[2], want, atol=1e-2))


def traversal(threads: int) -> Problem:
    nodes = 4095
    random = np.random.default_rng(3)
    values = np.sort(random.choice(1 << 20, nodes, replace=False)).astype(np.int32)
    keys = np.zeros(nodes, np.int32)

    def fill(node: int, low: int, high: int) -> None:
        if node < nodes:
            middle = low + (high - low) // 2
            keys[node] = values[middle]
            fill(2 * node + 1, low, middle)
            fill(2 * node + 2, middle + 1, high)

    fill(0, 0, nodes)
    want = random.integers(0, 1 << 20, threads).astype(np.int32)
    want[::3] = values[random.integers(0, nodes, want[::3].size)]
    expected = np.array([_walk(keys, int(w), nodes) for w in want[:2000]], np.int32)
    args = [keys, want, np.zeros(threads, np.int32), np.int32(nodes)]
    return Problem("traversal", threads // 128, 128, args, lambda a: np.array_equal(a[2][:2000], expected))


def _walk(keys: Any, want: int, nodes: int) -> int:
    node = turns = 0
    while node < nodes and keys[node] != want:
        turns += want > keys[node]
        node = 2 * node + (1 if want < keys[node] else 2)
    return turns * 65536 + node


def timed(run: Callable[[list[Any]], Any], problem: Problem, repeats: int) -> float:
    """The median processor time of ``repeats`` launches, in seconds; raises where a result is wrong."""
    times: list[float] = []
    for _ in range(repeats):
        args = problem.args()
        start = time.process_time()
        run(args)
        times.append(time.process_time() - start)
        if not problem.check(args):
            raise SystemExit(f"{problem.kernel}: wrong result")
    return sorted(times)[len(times) // 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--most", type=int, default=1 << 20, help="threads of the largest grid")
    parser.add_argument("--numba-most", type=int, default=1 << 12, help="threads of the largest grid for Numba")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    from ptxmotion.emulator import Emulator

    try:
        sys.path.insert(0, str(HERE))
        import numba_kernels  # pyright: ignore
    except ImportError as error:
        print(f"without Numba ({error}): `pip install numba` to compare", file=sys.stderr)
        numba_kernels = None
    module = Emulator().load((HERE / "emulator_kernels.ptx").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = []
    for make in (elementwise, matmul, traversal):
        best_numba = 0.0
        threads = 1 << 8
        while threads <= (options.most if make is not matmul else min(options.most, 1 << 16)):
            problem = make(threads)
            counted = module.launch(problem.kernel, problem.grid, problem.block, problem.args())
            instructions = counted.counts.thread_instructions
            row: dict[str, Any] = {"kernel": problem.kernel, "threads": threads, "instructions": instructions}

            def with_checks(args: list[Any], p: Problem = problem) -> None:
                module.launch(p.kernel, p.grid, p.block, args)

            def without(args: list[Any], p: Problem = problem) -> None:
                module.launch(p.kernel, p.grid, p.block, args, checks=False, counts=False)

            row["checked"] = instructions / timed(with_checks, problem, options.repeats)
            row["unchecked"] = instructions / timed(without, problem, options.repeats)
            if numba_kernels is not None and threads <= options.numba_most:
                kernel = getattr(numba_kernels, problem.kernel)

                def simulated(args: list[Any], p: Problem = problem, k: Any = kernel) -> None:
                    k[p.grid, p.block](*args)

                row["numba"] = instructions / timed(simulated, problem, 1 if threads > 1024 else options.repeats)
                best_numba = max(best_numba, row["numba"])
            if best_numba:
                row["ratio"] = row["checked"] / best_numba
                row["ratio_unchecked"] = row["unchecked"] / best_numba
            rows.append(row)
            _show(row)
            threads *= 4
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def _show(row: dict[str, Any]) -> None:
    numba = f"{row['numba'] / 1e6:9.3f}" if "numba" in row else " " * 9
    ratio = f"{row['ratio']:8.0f}x {row['ratio_unchecked']:8.0f}x" if "ratio" in row else ""
    print(
        f"{row['kernel']:12s} {row['threads']:8d} threads  {row['checked'] / 1e6:9.2f} checked "
        f"{row['unchecked'] / 1e6:9.2f} unchecked {numba} numba  M thread instructions/s {ratio}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
