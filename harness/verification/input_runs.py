"""Runs a module on the emulator with generated memory or given arguments, and records the result of each run.

Guarantees: each run begins with new memory and with the initial values of all variables. `OutOfTime` ends a run at its
deadline. Errors of the emulator are raised; faults are part of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...emulator import Emulator, EmulatorFault, EmulatorModule, Finding
from ...emulator.sparse import SparseMemory
from ...ptx import Instr, Module, Variable
from .input_regions import GeneratedMemory

__all__ = ["Device", "EmulatedRun", "OutOfTime"]

Array: TypeAlias = npt.NDArray[Any]


class OutOfTime(Exception):
    """A run did not end before its deadline."""


@dataclass(slots=True)
class EmulatedRun:
    """The result of a run.

    ``arguments`` are the arguments after the launch, ``original`` copies from before it. ``variables`` maps the name of
    a module variable to its bytes after the run, ``first`` to those before. ``memory`` is the sparse memory, or None;
    ``skipped`` is as in `LaunchResult`.
    """

    arguments: list[Any]
    original: list[Any]
    variables: dict[str, bytes]
    first: dict[str, bytes]
    memory: SparseMemory | None = None
    findings: list[Finding] = field(default_factory=list[Finding])
    skipped: dict[tuple[str, str, str], set[int]] = field(default_factory=dict[tuple[str, str, str], set[int]])
    output: list[str] = field(default_factory=list[str])
    fault: Finding | None = None

    @property
    def touched(self) -> dict[Instr, set[int]]:
        """The numbers of the pages of sparse memory that each instruction accessed."""
        return {} if self.memory is None else self.memory.touched


class Device:
    """``module`` on its own emulated device. The code is prepared once for all runs."""

    def __init__(self, module: Module, schedule: str = "order") -> None:
        self.module = module
        self.schedule = schedule
        self._loaded: EmulatorModule = Emulator().load(module)
        #: Variables that a host can have set before the launch: constants and visible variables without initializer.
        self._open = {each.name for each in module.variables if each.initializer is None and _is_open(each)}

    def run(
        self,
        kernel: str,
        grid: Any,
        block: Any,
        shared: int,
        arguments: Sequence[Any],
        *,
        seed: int,
        budget: int,
        memory: GeneratedMemory | None = None,
        numbers: dict[str, int] | None = None,
        deadline: float | None = None,
    ) -> EmulatedRun:
        """Launch a kernel. ``numbers`` maps the variables that ``memory`` initializes to their numbers."""
        loaded = self._loaded
        loaded.reset()
        loaded.device.budget = budget
        space = loaded.loaded.space
        space.sparse = None if memory is None else SparseMemory(memory.page)
        if memory is not None:
            for name, number in (numbers or {}).items():
                if name in self._open and name in loaded.loaded.variables:
                    target = loaded.loaded.variables[name]
                    target.bytes[: target.nbytes] = memory.variable(number, target.nbytes)
        copies: list[Any] = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        run = EmulatedRun(list(arguments), copies, {}, self._variables(), space.sparse)
        try:
            result = loaded.launch(
                kernel,
                grid,
                block,
                run.arguments,
                shared,
                counts=False,
                keep_going=True,
                schedule=self.schedule,
                seed=seed,
                progress=None if deadline is None else _stop_at(deadline),
            )
            run.findings, run.output, run.skipped = result.findings, sorted(result.output.splitlines()), result.skipped
        except EmulatorFault as error:
            run.fault, run.findings = error.finding, error.findings
        run.variables = self._variables()
        return run

    def open_variables(self) -> list[str]:
        """The names of the variables that a host can have written before the launch."""
        return sorted(self._open)

    def _variables(self) -> dict[str, bytes]:
        return {
            name: target.bytes[: target.nbytes].tobytes()
            for name, target in self._loaded.loaded.variables.items()
            if not target.is_read_only
        }


def _is_open(variable: Variable) -> bool:
    if variable.space == "const":
        return True
    is_visible = any(word in variable.linkage for word in (".visible", ".weak", ".common"))
    return variable.space == "global" and is_visible


def _stop_at(deadline: float) -> Callable[[int, int], None]:
    def check(done: int, total: int) -> None:
        if done < total and time.monotonic() > deadline:
            raise OutOfTime

    return check
