"""Runs the programs of the suites on a GPU with every version of their contracts that a launch allows.

    compute-sanitizer --tool memcheck --padding 64 --report-api-errors no \
        python docs/experiments/contract_memcheck.py [NAME…] [OPTIONS]

    --order ORDER   kernel: no versions; first: each launch takes the first version whose conditions hold; last: the
                    last such version (default: first)
    --size SIZE     the size of the programs (default: tiny)
    --gated         only versions that the gate keeps; otherwise all that the passes make
    --seconds S     begin no further program after so many seconds

Preferences are ignored. Each buffer is an allocation of its own that ends at its last byte, so the sanitizer sees
accesses behind it. Prints a line for each program: its versions with the number of launches, and the outputs that
differ from those of the kernels themselves. Exit code 1 if an output differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from ptxmotion import Policy, optimize
from ptxmotion.contract import Contract, Launch, Version
from ptxmotion.harness.contract_guard import ContractGuard, is_allowed
from ptxmotion.harness.cuda import CudaBackend, CudaBuffer
from ptxmotion.programs.tasks import SuiteWork, select
from ptxmotion.suites.runner import compiler, ptx_of


class ExactBackend(CudaBackend):
    """A GPU whose allocations have exactly the wanted size."""

    def allocate(self, nbytes: int, /) -> CudaBuffer:
        return CudaBuffer(int(self.call("cuMemAlloc", max(nbytes, 1))), nbytes, max(nbytes, 1))

    def free(self, buffer: CudaBuffer, /) -> None:
        self.synchronize()
        self.call("cuMemFree", buffer.pointer)


class Ordered(ContractGuard):
    """Takes the first or the last version whose conditions hold, whatever is preferred."""

    takes_last = False

    def choose(self, kernel: Any, launch: Launch) -> Version:
        contract = kernel.contract
        allowed = [each for each in contract.versions[:-1] if is_allowed(kernel, each, launch)]
        if not allowed:
            return contract.versions[-1]
        return allowed[-1] if self.takes_last else allowed[0]


def run(work: SuiteWork, modules: Mapping[str, str], order: str, gated: bool) -> tuple[dict[str, Any], Counter[Any]]:
    backend = ExactBackend()
    if order == "kernel":
        return dict(work.run(backend, modules, 1)), Counter()
    results = {
        name: optimize(ptx, "O3", Policy(gate=None if gated else "off", contract=True)) for name, ptx in modules.items()
    }
    contracts: dict[str, Contract] = {each.text: each.contract for each in results.values() if each.contract}
    guard = Ordered(backend, contracts)
    guard.takes_last = order == "last"
    outputs = dict(work.run(guard, {name: each.text for name, each in results.items()}, 1))
    return outputs, guard.taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--order", choices=("kernel", "first", "last"), default="first")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--gated", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    end, wrong = time.monotonic() + arguments.seconds, 0
    nvcc = compiler(f"sm_{ExactBackend().sm}")
    for benchmark, file in select(arguments.names, None):
        if time.monotonic() > end:
            print(f"{benchmark.fullname}: not run, the time is over", flush=True)
            continue
        work = SuiteWork(benchmark.fullname, arguments.size, file)
        modules = ptx_of(benchmark, nvcc)
        outputs, taken = run(work, modules, arguments.order, arguments.gated)
        found = "; ".join(f"{kernel} {what or 'itself'} {count}" for (kernel, what), count in sorted(taken.items()))
        differing: list[str] = []
        if arguments.order != "kernel":
            plain, _ = run(work, modules, "kernel", arguments.gated)
            differing = [
                name for name in plain if np.asarray(plain[name]).tobytes() != np.asarray(outputs[name]).tobytes()
            ]
        wrong += bool(differing)
        failed = f"; DIFFERENT {', '.join(differing)}" if differing else ""
        print(f"{benchmark.fullname}: {found or 'no contract'}{failed}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
