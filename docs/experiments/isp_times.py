"""Times kernels that `isp` has split against the kernels as they were.

    python docs/experiments/isp_times.py build FOLDER        needs nvcc
    python docs/experiments/isp_times.py run FOLDER          needs a GPU of the architecture (sm_90) and the extra `gpu`

`build` compiles `isp_kernels.cu`, splits its kernels without a gate, and then lets the gate judge which of them it
would keep. It also splits them with copies for blocks at one edge (`isp:edges=20000`). `run` compares the results of
all at several sizes, bit for bit, and times them in turn. It prints one line for each kernel, size and block:
microseconds of the original, of the split kernel and of the one with copies for edges (medians), the ratios of the
first one to the others, and whether the gate keeps the split kernel.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("isp_kernels.cu")
ARCH = "sm_90"
PASSES = "isp,copyprop,dce"
EDGES = "isp:edges=20000,copyprop,dce"
#: (width, height) for which only the results are compared.
ODD = ((1, 1), (3, 2), (37, 61), (129, 65), (1000, 700))
SIZES = (512, 1024, 2048, 4096)
BLOCKS = ((32, 4), (32, 8))
ROUNDS = 15
#: Seconds between two events.
SAMPLE = 300e-6


def build(folder: Path) -> None:
    """Write the cubins of both versions and `kernels.json`: by kernel, whether it is split and what the gate says."""
    from ptxmotion import Policy, optimize
    from ptxmotion.toolchain.tools import assemble, find_tool

    folder.mkdir(parents=True, exist_ok=True)
    before = folder / "before.ptx"
    command = [str(find_tool("nvcc").path), "-ptx", f"-arch={ARCH}", str(SOURCE), "-o", str(before)]
    subprocess.run(command, check=True)
    text = before.read_text(encoding="utf-8")
    # Without the gate, kernels in which PTX does not show what ptxas contracts are not changed. So the gate runs, too.
    free, judged = optimize(text, PASSES), optimize(text, PASSES, Policy(gate="ptxas"))
    edges = optimize(text, EDGES)
    gate = {each.kernel: each.message for each in judged.remarks if each.pass_name == "gate"}
    chosen = {each.kernel for each in free.remarks if each.pass_name == "isp" and each.kind == "Passed"}
    kept = {each.kernel for each in judged.remarks if each.pass_name == "isp" and each.kind == "Passed"}
    for name, ptx in (("before", text), ("free", free.text), ("kept", judged.text), ("edges", edges.text)):
        (folder / f"{name}.cubin").write_bytes(assemble(ptx, ARCH).cubin)
    kernels = {
        name: {"file": "kept" if name in kept else "free", "is_kept": name in kept, "gate": gate.get(name, "")}
        for name in sorted(chosen | kept)
    }
    (folder / "kernels.json").write_text(json.dumps(kernels, indent=1), encoding="utf-8")
    print(f"{len(kernels)} kernels are split, {len(kept)} of them kept by the gate")


def run(folder: Path, seconds: float) -> None:
    """Compare and time all kernels, for at most ``seconds``."""
    from ptxmotion.harness.cuda import open_backend

    started = time.monotonic()
    backend = open_backend()
    names = ("before", "free", "kept", "edges")
    modules = {name: backend.load_cubin((folder / f"{name}.cubin").read_bytes()) for name in names}
    kernels = json.loads((folder / "kernels.json").read_text(encoding="utf-8"))
    largest = max(*(w * h for w, h in ODD), *(size * size for size in SIZES))
    source = backend.allocate(4 * largest)
    backend.write(source, np.random.default_rng(1).random(largest, np.float32))
    targets = [backend.allocate(4 * largest) for _ in range(3)]
    ratios: dict[str, list[tuple[float, float]]] = {}
    for name, about in kernels.items():
        versions = [modules[file].kernel(name) for file in ("before", about["file"], "edges")]
        for width, height in (*ODD, *((size, size) for size in SIZES)):
            for block in BLOCKS:
                if time.monotonic() - started > seconds:
                    print("the time has ended")
                    return
                arms = [
                    _arm(backend, kernel, source, target, width, height, block)
                    for kernel, target in zip(versions, targets, strict=True)
                ]
                _compare(backend, arms, targets, width * height, f"{name} {width}x{height} {block}")
                if width not in SIZES:
                    continue
                before, *after = _times(backend, arms)
                gains = before / after[0], before / after[1]
                ratios.setdefault(name, []).append(gains)
                mark = "kept" if about["is_kept"] else "not kept"
                times = ";".join(f"{each * 1e6:.2f}" for each in (before, *after))
                shown = ";".join(f"{each:.3f}" for each in gains)
                print(f"{name};{width};{block[0]}x{block[1]};{times};{shown};{mark}", flush=True)
    for name, found in ratios.items():
        about = kernels[name]
        text = ", edges: ".join(
            f"{statistics.geometric_mean(each):.3f} ({min(each):.3f} to {max(each):.3f})"
            for each in zip(*found, strict=True)
        )
        print(f"{name}: {text}; kept: {about['is_kept']}; {about['gate']}")


def _arm(backend: Any, kernel: Any, source: Any, target: Any, width: int, height: int, block: tuple[int, int]) -> Any:
    grid = (-(-width // block[0]), -(-height // block[1]), 1)
    packed = backend.pack(kernel, [source, target, np.int32(width), np.int32(height)])
    return backend.launch_call(kernel, grid, (*block, 1), 0, packed)


def _compare(backend: Any, arms: list[Any], targets: list[Any], count: int, what: str) -> None:
    found: list[Any] = []
    for arm, target in zip(arms, targets, strict=True):
        backend.fill(target, 0xFF)
        arm()
        backend.synchronize()
        found.append(backend.read(target, np.uint32, count))
    for other in found[1:]:
        wrong = np.flatnonzero(found[0] != other)
        if wrong.size:
            sys.exit(f"{what}: {wrong.size} words differ, the first is number {wrong[0]}")
    if (found[0] == 0xFFFF_FFFF).any():
        sys.exit(f"{what}: the original leaves words unwritten")


def _times(backend: Any, arms: list[Any]) -> list[float]:
    """The medians of the arms, in seconds. Samples of the arms alternate."""
    counts: list[int] = []
    for arm in arms:
        probe = _repeated(backend, arm, 10)
        once = min(backend.seconds_of_graph(probe) / 10 for _ in range(3))
        counts.append(max(1, min(200, int(SAMPLE / once))))
        backend.destroy_graph(probe)
    count = max(counts)
    graphs = [_repeated(backend, arm, count) for arm in arms]
    for graph in graphs:
        backend.seconds_of_graph(graph)
    found: list[list[float]] = [[] for _ in arms]
    for number in range(ROUNDS):
        for which in sorted(range(len(arms)), reverse=number % 2 == 0):
            found[which].append(backend.seconds_of_graph(graphs[which]) / count)
    for graph in graphs:
        backend.destroy_graph(graph)
    return [statistics.median(each) for each in found]


def _repeated(backend: Any, arm: Any, count: int) -> Any:
    def body() -> None:
        for _ in range(count):
            arm()

    return backend.graph(body)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("build", "run"):
        sys.exit(__doc__)
    place = Path(sys.argv[2])
    if sys.argv[1] == "build":
        build(place)
    else:
        run(place, float(sys.argv[3]) if len(sys.argv) == 4 else 3600)
