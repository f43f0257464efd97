"""What becomes of one kernel: an attempt to transform it, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from ..ptx import Kernel, Module, Variable, flatten_scopes
from .remarks import Remarks

__all__ = ["Attempt", "Outcome", "untouched_copy"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``kernel`` is what the given kernel became; ``said`` are its remarks and counts."""

    kernel: Kernel
    said: Remarks
    is_changed: bool


@dataclass
class Attempt:
    """One kernel and what the passes made of it.

    ``original`` is the kernel as it was given, ``kernel`` the one that stands in the module now. ``transformed`` has
    the remarks of the passes; ``final`` has those to report, once a kernel was reverted or kept in part.
    """

    kernel: Kernel
    original: Kernel
    transformed: Remarks
    changed: bool
    final: Remarks | None = None
    is_reverted: bool = False

    def revert(self, module: Module) -> None:
        """Put the original back. The refusals of the passes stay valid."""
        module.put(self.original)
        self.kernel = self.original
        self.is_reverted = True
        if self.final is None:
            self.final = Remarks(module)
            self.final.take_refusals(self.transformed)

    @property
    def outcome(self) -> Outcome:
        """The kernel and the remarks to report. The number of rewrites is that of all that were made."""
        remarks = self.final or self.transformed
        remarks.rewrites = self.transformed.rewrites
        return Outcome(self.kernel, remarks, self.changed and not self.is_reverted)


def untouched_copy(kernel: Kernel) -> Kernel:
    """A copy that later changes of the kernel do not touch.

    Variables of nested scopes are shared by copies and renamed in place, so such scopes are flattened first.
    """
    if any(isinstance(item, Variable) and item.space != "param" for item in kernel.scoped_names):
        flatten_scopes(kernel)
    return kernel.clone()
