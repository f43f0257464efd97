"""Tunes the contract of a module with a host program that is a Python function.

    >>> import numpy as np
    >>> from ptxmotion.programs.tuning_hosts import tune
    >>> ptx = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry one(.param .u64 x) {\\n" \\
    ...     ".reg .b64 %a; ld.param.b64 %a, [x]; st.global.b32 [%a], 1; ret; }"
    >>> def host(backend, ptx):
    ...     x = backend.allocate(4)
    ...     backend.launch(backend.load(ptx).kernel("one"), (1, 1, 1), (1, 1, 1), 0, [x])
    >>> tune(ptx, host, backend="emulator").contract.kernels["one"].tunings     # nothing is timed without a GPU
    ()

Requires: a function that makes the same launches in each call. It gets a backend (`dsl.backend.Backend`) and the PTX.
Guarantees: the function runs in this process, twice; what is timed runs in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..contract import Contract
from ..harness.launch_work import observe, snapshots
from ..harness.machine import Machine, choose
from ..harness.protocol import Plan
from ..harness.workload import Arm
from .bench_session import assembler_for, describe_computer, describe_machine, new_result
from .tuning import TunedModule, Tuner, digest_of, recorded_works, wanted_launches

__all__ = ["Host", "tune", "tuner_on"]

#: A host program: it gets a backend and the PTX of the module.
Host = Callable[[Any, str], object]


@dataclass(frozen=True)
class _HostWork:
    """A host program as a work. It does not leave this process."""

    host: Host
    fullname: str
    group: str = "host"
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def get_ready(self, seed: int, reference: bool, /) -> None:
        """Do nothing: the host program makes its data."""

    def run(self, backend: Any, modules: Mapping[str, str], seed: int, /) -> dict[str, Any]:
        """Call the host program. It has no outputs that are compared."""
        self.host(backend, modules["module"])
        return {}

    def check(self, seed: int, outputs: Mapping[str, Any], /) -> list[str]:
        """There is no reference."""
        return []


def tuner_on(
    machine: Machine, plan: Plan, report: Callable[[str], None] = lambda line: None, arch: str | None = None
) -> Tuner:
    """A tuner for a machine. Raises `MachineMissing`, `WorkerError`."""
    info = {**describe_computer(), **(describe_machine(machine) if machine.stopwatch else {})}
    return Tuner(machine, plan, info, assembler_for(info), lambda: new_result(machine, info, plan), report, arch=arch)


def tune(
    ptx: str,
    host: Host,
    *,
    name: str = "host",
    backend: str = "auto",
    plan: Plan | None = None,
    report: Callable[[str], None] = lambda line: None,
    machine: Machine | None = None,
    former: Contract | None = None,
) -> TunedModule:
    """Tune the contract of a module in the launches that a host program makes.

    ``backend``: `auto`, `cuda` or `emulator`; without a GPU, nothing is timed, and the gate decides. ``machine``: a
    machine in place of that. ``former``: the contract of an earlier result, whose tunings for other machines are kept.
    Raises `MachineMissing`, `WorkerError`, and what the host program raises.
    """
    found = machine or choose(backend)[0]
    chosen = plan or Plan(seeds=(1,))
    tuner = tuner_on(found, chosen, report)
    tuner.former = {} if former is None else {digest_of(ptx): former}
    if not found.stopwatch:
        return tuner.tune(_HostWork(host, name), {"module": ptx})[0]
    opened, work, arm = found.open(), _HostWork(host, name), Arm("given", {"module": ptx})
    seen = observe(opened, work, arm, chosen.seeds[0])
    wanted = wanted_launches(seen)
    kept = snapshots(opened, work, arm, chosen.seeds[0], [each for group in wanted.values() for each in group])
    works = recorded_works(name, seen, wanted, kept)
    return tuner.tune_recorded(works)[0] if works else tuner.tune_nothing({"module": ptx})[0]
