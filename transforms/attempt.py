"""The attempt to transform one kernel, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from ..ptx import Kernel, Module, Variable, flatten_scopes
from .remarks import Remarks

__all__ = ["Attempt", "Outcome", "untouched_copy"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The resulting ``kernel``, with its remarks and counts."""

    kernel: Kernel
    remarks: Remarks
    is_changed: bool


@dataclass
class Attempt:
    """One kernel and its transformed version.

    ``original`` is the kernel as it was given, ``kernel`` the one that is in the module now. ``transformed`` are the
    remarks of the passes. ``final`` are the remarks to report instead, where the kernel was reverted or kept in part.
    ``is_clean_up``: it is not kept, because only clean-up has changed it (`KernelTransform.only_cleaned_up`).
    """

    kernel: Kernel
    original: Kernel
    transformed: Remarks
    changed: bool
    is_clean_up: bool = False
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
        """The kernel and the remarks to report. Reverted rewrites are counted as well."""
        remarks = self.final or self.transformed
        remarks.rewrites = self.transformed.rewrites
        return Outcome(self.kernel, remarks, self.changed and not self.is_reverted)


def untouched_copy(kernel: Kernel) -> Kernel:
    """A copy that later changes of the kernel do not change.

    Copies share the variables of nested scopes, which are renamed in place. So such scopes are flattened first.
    """
    if any(isinstance(item, Variable) and item.space != "param" for item in kernel.scoped_names):
        flatten_scopes(kernel)
    return kernel.clone()
