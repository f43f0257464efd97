"""Launches and executed warp instructions of fused programs, beside tables 5.1 and 5.2 of the thesis.

    python docs/experiments/fusion.py [--size tiny] [--json FILE] [PROGRAM ...]

Each program runs on the emulator as written, fused by KF_trad and fused by KFCM. Outputs are compared bit for bit. A
finding of the emulator that the program as written does not have is an error. Every legal fusion is made, beneficial or
not (``--benefit``: only those that are beneficial by the costs of an H200). The figures of the thesis for its program
of that name are printed beside them; its inputs are different, so reductions can be compared and counts cannot.
`together` are the launches that KFCM leaves if blocks may wait for each other in cooperative launches
(``--multiprocessors``, by default those of an H200). Refused pairs are listed with the reason.

With ``--races`` each pair that is refused as grid-wide is fused nevertheless, alone, and run; the findings of the
emulator and the outputs that differ are printed. If a pair cannot be built, because its blocks have different shapes,
two accesses of the run as written are printed that touch the same bytes from different blocks, if there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxmotion.arch import H200_MULTIPROCESSORS

#: Table 5.2: launches for O3, KF_trad, KFCM; table 5.1: speedups of KF_trad and KFCM over O3.
THESIS: dict[str, tuple[int, int, int, float, float]] = {
    "bfs": (24, 15, 15, 0.99, 0.99),
    "cfd": (14003, 8003, 6003, 1.35, 1.48),
    "gaussian": (30, 15, 15, 1.02, 1.02),
    "huffman": (46, 46, 44, 1.00, 1.00),
    "hybridsort": (68, 64, 64, 1.02, 1.02),
    "lud": (46, 31, 30, 1.03, 1.04),
    "particlefilter": (396, 99, 99, 1.03, 1.03),
    "srad_v1": (502, 402, 301, 1.06, 1.11),
    "srad_v2": (4, 2, 2, 1.22, 1.22),
    "eigenvalues": (300, 300, 201, 1.00, 1.25),
    "lineOfSight": (403, 403, 304, 1.00, 1.22),
    "mergeSort": (49, 37, 37, 1.01, 1.01),
    "newdelete": (6, 5, 5, 1.02, 1.02),
    "barneshut": (93, 78, 66, 1.16, 1.21),
    "bspline": (96, 72, 72, 1.02, 1.02),
    "IFS": (1275, 1275, 1200, 1.00, 1.05),
    "pathReg": (10026, 7512, 6420, 1.18, 1.60),
    "rna_folding_gpu": (75774, 75774, 75771, 1.00, 1.00),
}


def counted(host: Any, ptx: Callable[[Any], str], data: Any) -> tuple[dict[str, Any], Any, set[str]]:
    """Outputs, counts, kinds of findings of one run."""
    from ptxmotion.dsl.run import Loaded
    from ptxmotion.emulator.backend import EmulatorBackend

    backend = EmulatorBackend(schedule="random", seed=1)
    outputs = Loaded(host, backend, ptx).run(data)
    return outputs, backend.counts.as_dict(), {finding.kind for finding in backend.findings}


class Watching:
    """Finds conflicts of two consecutive launches: bytes that different blocks of the two access, one of them with a
    write.

    ``found`` describes one conflict for each pair of kernel names; empty if there is none.
    """

    def __init__(self) -> None:
        from ptxmotion.emulator.backend import EmulatorBackend

        watching = self

        class Backend(EmulatorBackend):
            def launch(self, kernel: Any, grid: Any, block: Any, shared: int, args: Any) -> None:
                super().launch(kernel, grid, block, shared, args)
                watching.look(kernel.name, self.traces.pop().accesses)

        self.backend = Backend(trace=True)
        self.found: dict[str, str] = {}
        self._last: tuple[str, Any] | None = None

    def look(self, name: str, accesses: Any) -> None:
        """Compare the accesses of a launch with those of the launch before."""
        import numpy as np

        rows = np.unique(accesses[accesses["space"] == 0][["address", "block", "write"]])
        if self._last is not None:
            before, first = self._last
            key = f"{before}+{name}"
            if not self.found.get(key):
                self.found[key] = self._conflict(first, rows)
        self._last = name, rows

    @staticmethod
    def _conflict(first: Any, second: Any) -> str:
        import numpy as np

        for one, other, words in (
            (first[first["write"]], second, ("writes", "touches")),
            (first, second[second["write"]], ("touches", "writes")),
        ):
            _, ours, _ = np.intersect1d(one["address"], other["address"], return_indices=True)
            for mine in ours:
                address = one["address"][mine]
                blocks = other["block"][other["address"] == address]
                apart = blocks[blocks != one["block"][mine]]
                if apart.size:
                    return f"block {one['block'][mine]} {words[0]} what block {apart[0]} then {words[1]}"
        return ""


def consequence(benchmark: Any, nvcc: Any, size: str, kernels: str) -> str:
    """What happens if a pair that is refused as grid-wide is fused with a barrier of the block all the same."""
    import numpy as np
    from ptxmotion.suites.runner import ptx_of
    from ptxmotion.transforms.kernel_fusion.launch_site import Fusibility
    from ptxmotion.transforms.kernel_fusion.plan import FusionOptions, PtxFuser, fuse_program

    class OnlyThis(PtxFuser):
        def decide(self, first: Any, second: Any, *, assume_independent: bool, may_check: bool) -> Fusibility:
            found = super().decide(first, second, assume_independent=assume_independent, may_check=False)
            wanted = found.kind == "grid" and f"{first.kernel.name}+{second.kernel.name}" == kernels
            return Fusibility("block", found.reasons) if wanted else Fusibility("none", ("not asked for",))

    texts = ptx_of(benchmark, nvcc)
    data = benchmark.make_data(size, 0)
    wanted, _, known = counted(benchmark.program.host, lambda kernel: texts[kernel.name], data)
    made = fuse_program(benchmark.program.host, lambda kernel: texts[kernel.name], FusionOptions(), OnlyThis())
    if not made.result.fusions:
        return "cannot be fused alone"
    outputs, _, findings = counted(made.host, made.ptx, data)
    differ = [name for name in wanted if not np.array_equal(outputs[name].view(np.uint8), wanted[name].view(np.uint8))]
    problem = f"the emulator finds {', '.join(sorted(findings - known)) or 'nothing new'}"
    return f"{problem}; {', '.join(differ) or 'no output'} differs"


def across_blocks(benchmark: Any, nvcc: Any, size: str) -> dict[str, str]:
    """Why adjacent launches cannot be fused, in the run of the program as written."""
    from ptxmotion.dsl.run import Loaded
    from ptxmotion.suites.runner import ptx_of

    texts = ptx_of(benchmark, nvcc)
    watching = Watching()
    Loaded(benchmark.program.host, watching.backend, lambda kernel: texts[kernel.name]).run(
        benchmark.make_data(size, 0)
    )
    return watching.found


def measured(benchmark: Any, nvcc: Any, size: str, benefit: Any, multiprocessors: int) -> dict[str, Any]:
    """The row of one program in the table."""
    from dataclasses import replace

    import numpy as np
    from ptxmotion.programs.fusing import residency
    from ptxmotion.suites.runner import ptx_of
    from ptxmotion.transforms.kernel_fusion.plan import FusionOptions, fuse_program

    texts = ptx_of(benchmark, nvcc)
    data = benchmark.make_data(size, 0)
    wanted, base, known = counted(benchmark.program.host, lambda kernel: texts[kernel.name], data)
    row: dict[str, Any] = {"program": benchmark.fullname, "O3": base["launches"], "warp O3": base["warp_instructions"]}
    for strategy in ("kf_trad", "kfcm", "together"):
        started = time.process_time()
        options = FusionOptions("kfcm" if strategy == "together" else strategy, benefit=benefit)
        if strategy == "together":
            options = replace(options, resident=residency(multiprocessors))
        made = fuse_program(benchmark.program.host, lambda kernel: texts[kernel.name], options)
        row[f"seconds {strategy}"] = time.process_time() - started
        outputs, counts, findings = counted(made.host, made.ptx, data)
        row[strategy], row[f"warp {strategy}"] = counts["launches"], counts["warp_instructions"]
        row[f"fused {strategy}"] = sorted(pair.kernel.name for pair in made.fused.values())
        row[f"refused {strategy}"] = sorted(
            {(r.kernel, r.reason, r.message) for r in made.remarks if r.kind == "Missed"}
        )
        for name, array in wanted.items():
            if not np.array_equal(outputs[name].view(np.uint8), array.view(np.uint8)):
                raise SystemExit(f"{benchmark.fullname}: {strategy}: {name} differs")
        if not findings <= known:
            raise SystemExit(f"{benchmark.fullname}: {strategy}: new findings: {findings - known}")
    return row


def share(before: int, after: int) -> str:
    """The reduction, or a dash where there is none."""
    return f"{(before - after) / before:.1%}" if after < before else "-"


def show(row: dict[str, Any]) -> None:
    """A line of the table."""
    name = row["program"].rpartition("/")[2]
    ours = f"{row['O3']:6d} {row['kf_trad']:8d} {row['kfcm']:6d} {row['together']:8d}  "
    ours += " ".join(f"{share(row['O3'], row[each]):>7s}" for each in ("kf_trad", "kfcm", "together"))
    warps = f"{row['warp kf_trad'] / row['warp O3']:8.3f} {row['warp kfcm'] / row['warp O3']:8.3f}"
    theirs = ""
    if found := THESIS.get(name):
        o3, trad, kfcm, speed_trad, speed_kfcm = found
        theirs = f"{o3:6d} {trad:6d} {kfcm:6d}  {share(o3, trad):>7s} {share(o3, kfcm):>7s}"
        theirs += f"  {speed_trad:.2f}x {speed_kfcm:.2f}x"
    print(f"{row['program']:32s} {ours}  {warps} | {theirs}", flush=True)


def main() -> int:
    """Run all programs that launch more than one kernel, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--size", choices=("tiny", "small"), default="tiny")
    parser.add_argument("--benefit", action="store_true", help="make only fusions that an H200's costs call useful")
    parser.add_argument(
        "--multiprocessors", type=int, default=H200_MULTIPROCESSORS, help="of the GPU that the fused programs are for"
    )
    parser.add_argument("--races", action="store_true", help="fuse what is refused as grid-wide, and see")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()

    from ptxmotion.dsl.host_nodes import Launch
    from ptxmotion.suites.registry import benchmarks, find
    from ptxmotion.suites.runner import compiler
    from ptxmotion.transforms.kernel_fusion.benefit import BenefitModel

    nvcc = compiler()
    chosen = [find(name) for name in options.programs] or [
        each for each in benchmarks() if sum(isinstance(node, Launch) for node in each.program.host.nodes()) > 1
    ]
    print(
        f"{'':32s} {'O3':>6s} {'KF_trad':>8s} {'KFCM':>6s} {'together':>8s}  {'reductions':>23s}  "
        f"{'warp instructions':>17s} | the thesis"
    )
    rows: list[dict[str, Any]] = []
    for benchmark in chosen:
        benefit = BenefitModel() if options.benefit else None
        rows.append(measured(benchmark, nvcc, options.size, benefit, options.multiprocessors))
        show(rows[-1])
    print("\nrefused:")
    for benchmark, row in zip(chosen, rows, strict=True):
        apart = across_blocks(benchmark, nvcc, options.size) if options.races and row["refused kfcm"] else {}
        for kernels, reason, message in row["refused kfcm"]:
            print(f"  {row['program']}: {kernels} [{reason}]: {message[:160]}")
            if options.races and reason == "grid-wide" and "fused_" not in kernels:
                print(f"    fused all the same: {consequence(benchmark, nvcc, options.size, kernels)}", flush=True)
            elif options.races and reason == "not-fusible" and (found := apart.get(kernels)):
                print(f"    as written: {found}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
