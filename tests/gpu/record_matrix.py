"""Records the results of a Hopper GPU for `mma`, `ldmatrix`, `stmatrix`, `mbarrier` and `cp.async.bulk`.

    PYTHONPATH=typings python tests/gpu/record_matrix.py [--output FOLDER] [--raw]

The kernels come from `golden/matrix.py` and `golden/collective.py`; the driver assembles their PTX. The digests are
written to `sm_90_matrix.npz` in the folder. With ``--raw``, all results are written to `raw_0.npz` and so on, for
fitting a model of the rounding of tensor cores. A form that the driver refuses or that faults is reported; the others
continue.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from golden.collective import UNDEFINED, collective_cases
from golden.forms import Frame, module_text
from golden.launch import trimmed
from golden.launched import BLOCK, CELL, columns_of
from golden.matrix import Matrix, matrix_cases
from golden.matrix import columns_of as matrix_columns
from golden.replay import GOLDEN, MATRIX, Golden, digests, save
from gpu_driver import Gpu, GpuError

Lanes = npt.NDArray[Any]

#: Bytes of results in one file, before compression.
_FILE = 12 << 20


def results_of(gpu: Gpu, case: Frame, columns: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
    """The words that the GPU stores, one column for each result."""
    lanes = columns[0].size
    text, _ = module_text([case], CELL * lanes)
    words = np.zeros((len(case.results), lanes), np.uint64)
    inputs = np.ascontiguousarray(np.stack(columns))
    module = gpu.load(text)
    gpu.launch(module, "k0", (-(-lanes // BLOCK),), (BLOCK,), [inputs, words, np.uint32(lanes)])
    gpu.unload(module)
    return trimmed(case, words)


class Raw:
    """Writes results to files of limited size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: dict[str, Lanes] = {}
        self.size = self.number = 0

    def add(self, case: Frame, results: tuple[Lanes, ...]) -> None:
        for index, (kind, column) in enumerate(zip(case.results, results, strict=True)):
            narrow = column.astype(np.uint64 if kind == "b64" else np.uint32)
            self.kept[f"{case.key}|{index}"] = narrow
            self.size += narrow.nbytes
        if self.size > _FILE:
            self.flush()

    def flush(self) -> None:
        if self.kept:
            arrays: dict[str, Any] = dict(self.kept)
            np.savez_compressed(self.folder / f"raw_{self.number}.npz", **arrays)
        self.kept, self.size, self.number = {}, 0, self.number + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=GOLDEN.parent, metavar="FOLDER")
    parser.add_argument("--raw", action="store_true", help="write all results, too")
    options = parser.parse_args()
    gpu = Gpu()
    options.output.mkdir(parents=True, exist_ok=True)
    raw = Raw(options.output) if options.raw else None
    exact: dict[str, Lanes] = {}
    failed: list[str] = []
    started = time.perf_counter()
    every: list[Frame] = [*matrix_cases().values(), *collective_cases().values()]
    for case in every:
        columns = matrix_columns(case) if isinstance(case, Matrix) else columns_of(collective_cases()[case.key])
        try:
            first = results_of(gpu, case, columns)
            again = results_of(gpu, case, columns)
        except GpuError as error:
            failed.append(case.key)
            print(f"{case.key}: {str(error)[:400]}", flush=True)
            if not str(error).startswith("cuModule"):
                break  # a fault ends the context
            continue
        if any(not np.array_equal(left, right) for left, right in zip(first, again, strict=True)):
            failed.append(case.key)
            print(f"{case.key}: two runs differ", flush=True)
        if raw is not None:
            raw.add(case, first)
        if not case.key.endswith(UNDEFINED):
            exact[case.key] = digests(first)
    if raw is not None:
        raw.flush()
    save(options.output / MATRIX.name, Golden({"gpu": gpu.name, "driver": gpu.driver_version}, exact, {}))
    seconds = time.perf_counter() - started
    print(f"{gpu.name}: {len(exact)} of {len(every)} forms recorded in {seconds:.1f} s, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
