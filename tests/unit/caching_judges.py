"""Judges of the gate with a cache of outcomes, as that of ptxas has one."""

from typing import Any

from ptxmotion.ptx import Module
from ptxmotion.transforms.gate.judge import Refused
from ptxmotion.transforms.gate.static_judge import StaticJudge

__all__ = ["RefusesOnce", "Remembers"]


class Remembers(StaticJudge):
    """The static judge with a cache of outcomes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}

    def recall(self, key: str) -> Any:
        return self.kept.get(key)

    def remember(self, key: str, value: Any) -> None:
        self.kept[key] = value


class RefusesOnce(Remembers):
    """Refuses its first question, so that the outcome of the kernel is not recorded."""

    def figures(self, module: Module) -> Any:
        if not self.has_refused:
            self.has_refused = True
            raise Refused("first")
        return super().figures(module)

    has_refused = False
