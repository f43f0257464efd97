"""The judge that `opt` hands to the gate: ptxas where there is one, the static model otherwise."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .outcome import warn

if TYPE_CHECKING:
    from ..ptx import Module
    from ..toolchain.cubin import KernelCode
    from ..toolchain.ptxas_judge import PtxasJudge
    from ..transforms.gate.figures import Figures, Judge

__all__ = ["Assembled", "judge_for", "judged"]


def judged(before: KernelCode, after: KernelCode) -> tuple[str, bool]:
    """In what a kernel is worse than before, by the gate's rule, and whether it is better."""
    from ..toolchain.ptxas_judge import figures_of
    from ..transforms.gate.figures import Figures, is_better, worse

    one, two = Figures(**figures_of(before)), Figures(**figures_of(after))
    return worse(one, two), is_better(one, two)


class Assembled:
    """Prints a module for `PtxasJudge`."""

    name = "ptxas"

    def __init__(self, judge: PtxasJudge) -> None:
        self._judge = judge

    def figures(self, module: Module) -> dict[str, Figures]:
        from ..ptx import print_module
        from ..toolchain.tools import ToolchainError
        from ..transforms.gate.figures import Figures, Refused

        try:
            found = self._judge.figures(print_module(module))
        except ToolchainError as error:
            raise Refused(" ".join(str(error).split())[:200]) from error
        if missing := [kernel.name for kernel in module.entries if kernel.name not in found]:
            raise Refused(f"ptxas made no code of {', '.join(missing)}")
        return {name: Figures(**figures) for name, figures in found.items()}

    def recall(self, key: str) -> Any:
        """What a kernel or a search came to in an earlier run."""
        from ..toolchain.tools import ToolchainError

        try:
            return self._judge.recall(key)
        except (ToolchainError, OSError):  # ptxas cannot tell its version: the next figures say so
            return None

    def remember(self, key: str, value: Any) -> None:
        """Keep what a kernel or a search came to."""
        from ..toolchain.tools import ToolchainError

        with suppress(ToolchainError, OSError):
            self._judge.remember(key, value)


def judge_for(choice: str | None, arch: str | None, seconds: float | None = None) -> Judge | None:
    """The judge for ``--gate=CHOICE``: ``ptxas``, ``static``, ``off``, or ``None`` for what there is, with a warning
    where that is no ptxas. ``seconds`` is how long ptxas may take.

    Raises `ToolMissing` for ``ptxas`` where it is not found.
    """
    from ..toolchain.tools import ToolMissing
    from ..transforms.gate.static_judge import StaticJudge

    if choice == "off":
        return None
    if choice == "static":
        return StaticJudge()
    from ..toolchain.ptxas_judge import SECONDS, PtxasJudge

    try:
        return Assembled(PtxasJudge(arch, seconds=SECONDS if seconds is None else seconds))
    except ToolMissing as error:
        if choice == "ptxas":
            raise
        warn(f"ptxas is not found ({error.reason}), so the gate goes by accesses to memory and long operations")
        return StaticJudge()
