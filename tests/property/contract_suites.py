"""Programs of the suites that run under their contracts on the emulator: every launch takes the first version whose
conditions hold. All versions that the passes can make are in the contract, also those that the gate would not keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from ptxmotion import Policy, optimize
from ptxmotion.contract import Contract, Extent, Launch, holds
from ptxmotion.contract.conditions import value_in
from ptxmotion.contract.expressions import evaluate
from ptxmotion.emulator.backend import Buffer, EmulatorBackend, EmulatorKernel
from ptxmotion.suites.registry import Benchmark
from ptxmotion.suites.runner import run

__all__ = ["ContractBackend", "differences_under_contract"]


class ContractBackend(EmulatorBackend):
    """``taken`` counts the launches by the description of the version, the empty text for the kernel itself."""

    def __init__(self) -> None:
        super().__init__(counts=False)
        self.taken: Counter[str] = Counter()
        self._contracts: dict[int, tuple[Any, Contract]] = {}

    def load(self, ptx: str) -> Any:
        result = optimize(ptx, "O3", Policy(gate="off", contract=True))
        assert result.contract is not None
        loaded = super().load(result.text)
        self._contracts[id(loaded.module)] = (loaded, result.contract)
        return loaded

    def launch(self, kernel: EmulatorKernel, grid: Any, block: Any, shared: int, args: Any) -> None:
        loaded, contract = self._contracts[id(kernel.module)]
        facts = launch_of(kernel, grid, block, shared, args)
        for version in contract.kernels[kernel.name].versions:
            if all(holds(each, facts) for each in version.requires):
                self.taken[version.description] += 1
                more = [
                    np.uint32(evaluate(each, lambda symbol: value_in(facts, symbol)))
                    for each in (version.launch.arguments if version.launch else ())
                ]
                super().launch(loaded.kernel(version.entry), grid, block, shared, [*args, *more])
                return


def launch_of(kernel: EmulatorKernel, grid: Any, block: Any, shared: int, args: Any) -> Launch:
    """The facts of a launch. The extent of a buffer is the buffer."""
    arguments: list[int | bytes | None] = []
    extents: dict[int, Extent | None] = {}
    for index, (param, value) in enumerate(zip(kernel.entry.params or (), args, strict=True)):
        if isinstance(value, Buffer):
            arguments.append(value.address)
            extents[index] = Extent(value.address, value.address + value.nbytes)
        elif param.dims:
            arguments.append(bytes(value))
        elif param.type.is_float:
            arguments.append(None)
        else:
            raw = np.asarray(value).tobytes()
            arguments.append(int.from_bytes(raw, "little", signed=param.type.kind == "s"))
    return Launch(tuple(arguments), _three(grid), _three(block), shared, extents)


def _three(value: Any) -> tuple[int, int, int]:
    parts = [value] if isinstance(value, int) else [int(each) for each in value]
    return tuple((*parts, 1, 1)[:3])  # type: ignore[return-value]


def differences_under_contract(benchmark: Benchmark, ptx: dict[str, str]) -> tuple[list[str], Counter[str]]:
    """The outputs that differ between a run without and one with contracts; the versions that were taken."""
    plain = run(benchmark, EmulatorBackend(counts=False), ptx, "tiny", 0)
    backend = ContractBackend()
    done = run(benchmark, backend, ptx, "tiny", 0)
    found = [
        name
        for name, wanted in plain.outputs.items()
        if not np.array_equal(done.outputs[name].view(np.uint8), wanted.view(np.uint8))
    ]
    return found, backend.taken
