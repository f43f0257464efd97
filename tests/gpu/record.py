"""Run every case of `tests/run` on the GPU and record hashes of its results: `python tests/gpu/record.py [FILE]`.

Needs a GPU, a driver and NumPy. With the record, a machine without a GPU can compare the emulator with a GPU. Every
case runs twice. If its two results differ, they depend on the order of threads, so the case is reported and not
recorded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_driver import Gpu, GpuError
from ptx_run import RUN, cases, digest


def main(target: Path) -> int:
    gpu = Gpu()
    record: dict[str, Any] = {"device": gpu.name, "cases": {}}
    failed = 0
    for case in cases():
        try:
            results: list[list[str]] = []
            for _ in range(2):
                args = case.args()
                gpu.launch(gpu.load(case.file.read_text()), case.kernel, case.grid, case.block, args, case.shared)
                results.append(digest(args))
        except GpuError as error:
            print(f"{case.name}: {error}")
            failed += 1
            continue
        if results[0] != results[1]:
            print(f"{case.name}: two runs differ")
            failed += 1
            continue
        record["cases"][case.name] = results[0]
    target.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{len(record['cases'])} cases recorded on {gpu.name}, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else RUN / "silicon.json"))
