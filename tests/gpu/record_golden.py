"""Records the results of a Hopper GPU for every form: `tests/golden/sm_90*.npz`. CI checks them without a GPU.

    PYTHONPATH=typings python tests/gpu/record_golden.py [--output FOLDER] [--only lanes|launched|video] [--no-gpu]

A form is recorded if the opcode table has it, the emulator executes it, and ptxas accepts it for sm_90. Its kernel has
this instruction between loads and stores. `golden/forms.py` writes the kernels for arithmetic (`sm_90.npz`),
`golden/launched.py` those for memory and exchanges (`sm_90_launched.npz`), `golden/video.py` those for video
instructions (`sm_90_video.npz`), and `golden/operands.py` the operands. The emulator runs the same forms. Lanes that
differ are written, with operands and both results, to `differences.json` in the same folder. ``--no-gpu`` stops after
everything is assembled.
"""

from __future__ import annotations

import argparse
import bisect
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from golden.forms import Case, Frame, cases, module_text, rows
from golden.launch import bytes_of_cells, emulated, trimmed
from golden.launched import Launched, columns_of, launched_cases
from golden.operands import width_of
from golden.replay import GOLDEN, LAUNCHED, VIDEO, Golden, approximate_lanes, digests, emulate, operands_of, save
from golden.video import video_cases, video_columns
from ptxmotion.toolchain.tools import PtxasError, assemble

Lanes = npt.NDArray[Any]
_BATCH = 400
_SHOWN = 40

AnyFrame = TypeVar("AnyFrame", bound=Frame)


def accepted(
    batch: list[AnyFrame], cells: int = 0, level: int | None = None
) -> tuple[list[AnyFrame], bytes, dict[str, str]]:
    """The cases of ``batch`` that ptxas accepts, their cubin, and the error message for each of the others. ``level``
    is that of the optimization."""
    refused: dict[str, str] = {}
    while batch:
        text, starts = module_text(batch, cells)
        try:
            return batch, assemble(text, "sm_90", opt_level=level).cubin, refused
        except PtxasError as error:
            wrong = {
                bisect.bisect_right(starts, diagnostic.line) - 1: diagnostic.message
                for diagnostic in error.diagnostics
                if diagnostic.line is not None and diagnostic.severity == "error"
            }
            if not wrong:
                raise
            refused |= {batch[index].key: message for index, message in wrong.items()}
            batch = [case for index, case in enumerate(batch) if index not in wrong]
    return [], b"", refused


def assembled(level: int | None = None) -> Iterator[tuple[list[Case], bytes, dict[str, str]]]:
    """All cases, in modules of some hundred kernels that are assembled in parallel."""
    every = [case for row in rows() for case in cases(row)]
    batches = [every[start : start + _BATCH] for start in range(0, len(every), _BATCH)]
    with ThreadPoolExecutor() as pool:
        yield from pool.map(partial(accepted, level=level), batches)


def assembled_launched(every: list[Launched], cells: int) -> Iterator[tuple[list[Launched], bytes, dict[str, str]]]:
    """The same for the forms ``every``, which are tested by whole launches and share ``cells`` bytes."""
    batches = [every[start : start + _BATCH] for start in range(0, len(every), _BATCH)]
    with ThreadPoolExecutor() as pool:
        yield from pool.map(partial(accepted, cells=cells), batches)


class Gpu:
    """The first GPU, through the CUDA driver. Operands remain on it for the next form with the same kinds."""

    def __init__(self) -> None:
        self._driver: Any = importlib.import_module("cuda.bindings.driver")
        self._call("cuInit", 0)
        self._device = self._call("cuDeviceGet", 0)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", self._device))
        self._inputs: dict[tuple[str, int], Any] = {}
        self._output = self._call("cuMemAlloc", 4 << 20)

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._driver, name)(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{name}: {status.name}")
        return values[0] if values else None

    @property
    def name(self) -> str:
        return bytes(self._call("cuDeviceGetName", 64, self._device)).split(b"\0")[0].decode()

    @property
    def driver_version(self) -> str:
        return str(self._call("cuDriverGetVersion"))

    def load(self, cubin: bytes) -> Any:
        return self._call("cuModuleLoadData", cubin)

    def _operands(self, columns: tuple[Lanes, ...], key: tuple[str, int]) -> Any:
        if key not in self._inputs:
            words = np.ascontiguousarray(np.stack(columns))
            memory = self._call("cuMemAlloc", words.nbytes)
            self._call("cuMemcpyHtoD", memory, words.ctypes.data, words.nbytes)
            self._inputs[key] = memory
        return self._inputs[key]

    def run(self, module: Any, name: str, case: Frame, columns: tuple[Lanes, ...]) -> tuple[Lanes, ...]:
        """The results of kernel ``name`` of ``module``, one column for each stored result."""
        lanes, count = columns[0].size, len(case.results)
        inputs = self._operands(columns, ("|".join(case.kinds), lanes))
        function = self._call("cuModuleGetFunction", module, name.encode())
        values: list[Lanes] = [np.array([int(inputs)], np.uint64), np.array([int(self._output)], np.uint64)]
        values.append(np.array([lanes], np.uint32))
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        self._call("cuMemsetD8", self._output, 0xA5, 8 * lanes * count)
        self._call("cuLaunchKernel", function, -(-lanes // 256), 1, 1, 256, 1, 1, 0, 0, pointers.ctypes.data, 0)
        words = np.empty((count, lanes), np.uint64)
        self._call("cuMemcpyDtoH", words.ctypes.data, self._output, words.nbytes)
        return trimmed(case, words)


def differences(
    case: Frame, columns: tuple[Lanes, ...], seen: tuple[Lanes, ...], ours: tuple[Lanes, ...]
) -> dict[str, Any] | None:
    """The lanes on which the emulator and the GPU differ, some of them in hexadecimal."""
    wrong = np.zeros(columns[0].size, bool)
    for left, right in zip(ours, seen, strict=True):
        wrong |= left != right
    if not wrong.any():
        return None
    places = np.flatnonzero(wrong)
    # These are distributed over all lanes, since the first lanes have similar operands.
    chosen = places[np.unique(np.linspace(0, places.size - 1, _SHOWN).astype(int))]
    lanes = [
        [int(lane), *([f"{int(column[lane]):x}" for column in group] for group in (columns, seen, ours))]
        for lane in chosen.tolist()
    ]
    return {"case": case.key, "lanes": int(wrong.sum()), "of": int(wrong.size), "lane, operands, gpu, emulator": lanes}


class Recording:
    """The recorded results, and where the emulator differs. Without a GPU, it counts only what ptxas accepts."""

    def __init__(self, gpu: Gpu | None) -> None:
        self.gpu = gpu
        self.exact: dict[str, Lanes] = {}
        self.approximate: dict[str, Lanes] = {}
        self.found: list[dict[str, Any]] = []
        self.count = self.refused = 0

    def _note(self, case: Frame, columns: tuple[Lanes, ...], seen: tuple[Lanes, ...], ours: tuple[Lanes, ...]) -> None:
        self.exact[case.key] = digests(seen)
        difference = differences(case, columns, seen, ours)
        if difference is not None:
            self.found.append(difference)

    def _takes(self, batch: Sequence[Frame], refused: dict[str, str]) -> bool:
        self.count += len(batch)
        self.refused += len(refused)
        return self.gpu is not None and bool(batch)

    def lanes(self) -> None:
        """Record every form of arithmetic."""
        for batch, cubin, refused in assembled():
            if not self._takes(batch, refused):
                continue
            assert self.gpu is not None
            module = self.gpu.load(cubin)
            for index, case in enumerate(batch):
                columns = operands_of(case)
                results = self.gpu.run(module, f"k{index}", case, columns)
                if case.form.op.approximate:
                    kept = results[0][approximate_lanes(columns[0].size)]
                    self.approximate[case.key] = kept.astype(f"u{width_of(case.results[0]) // 8}")
                else:
                    self._note(case, columns, results, emulate(case, columns))

    def launched(self) -> None:
        """Record every form that is tested by whole launches."""
        every = list(launched_cases().values())
        self._launches(every, columns_of, bytes_of_cells(every))

    def video(self) -> None:
        """Record the video instructions."""
        self._launches(list(video_cases().values()), lambda _: video_columns(), 0)

    def _launches(
        self, every: list[Launched], columns_for: Callable[[Launched], tuple[Lanes, ...]], cells: int
    ) -> None:
        for batch, cubin, refused in assembled_launched(every, cells):
            for key, message in refused.items():
                print(f"{key}: {message}")
            if not self._takes(batch, refused):
                continue
            assert self.gpu is not None
            module = self.gpu.load(cubin)
            for index, (case, ours) in enumerate(zip(batch, emulated(batch, columns_for, cells), strict=True)):
                columns = columns_for(case)
                self._note(case, columns, self.gpu.run(module, f"k{index}", case, columns), ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=GOLDEN.parent, metavar="FOLDER")
    parser.add_argument("--only", choices=("lanes", "launched", "video"))
    parser.add_argument("--no-gpu", action="store_true")
    options = parser.parse_args()
    gpu = None if options.no_gpu else Gpu()
    found: list[dict[str, Any]] = []
    for name, file in (("lanes", GOLDEN.name), ("launched", LAUNCHED.name), ("video", VIDEO.name)):
        if options.only not in (None, name):
            continue
        started = time.perf_counter()
        recording = Recording(gpu)
        {"lanes": recording.lanes, "launched": recording.launched, "video": recording.video}[name]()
        seconds = time.perf_counter() - started
        print(f"{name}: {recording.count} forms assembled, {recording.refused} refused by ptxas, {seconds:.1f} s")
        if gpu is None:
            continue
        machine = {"gpu": gpu.name, "driver": gpu.driver_version}
        target = options.output / file
        save(target, Golden(machine, recording.exact, recording.approximate))
        print(f"{machine}: {len(recording.exact)} exact and {len(recording.approximate)} approximate forms recorded")
        print(f"{len(recording.found)} exact forms differ from the emulator; {target.stat().st_size} bytes written")
        for difference in recording.found:
            print(difference["case"], difference["lanes"], "of", difference["of"], flush=True)
        found += recording.found
    if not options.no_gpu:
        (options.output / "differences.json").write_text(json.dumps(found, indent=0))


if __name__ == "__main__":
    main()
