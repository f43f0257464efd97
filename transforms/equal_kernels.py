"""Entries of a module that are equal except for names: the passes run over the first of them only.

A template is compiled for each of its types, and types of the same size often have the same code.

Requires: passes that depend on the code of a kernel and on the rest of its module, not on names. Guarantees: the
outcome of an equal kernel is the one that the passes would have had, including remarks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ptx import Kernel, Module, flatten_scopes
from ..ptx.correspondence import Correspondence
from .attempt import Outcome, untouched_copy
from .code_motion.edges import SYNTHETIC
from .pipeline import verify_result
from .remarks import Remark, Remarks

__all__ = ["EqualKernel", "EqualKernels"]

#: The most other entries with the same opcodes that an entry is compared with.
_MOST_COMPARED = 8


class EqualKernels:
    """Finds entries that are equal except for names. All kernels are compared before any of them is transformed."""

    def __init__(self, module: Module) -> None:
        self._module = module
        #: Opcodes of a kernel → name → flat copy, for each kernel with these opcodes that equals no earlier one.
        self._seen: dict[object, dict[str, Kernel]] = {}

    @classmethod
    def among(cls, module: Module, kernels: Sequence[Kernel], log: Remarks) -> dict[str, EqualKernel]:
        """The kernels that equal an earlier one of ``kernels``, by name.

        Empty where the number of rewrites is limited, or where messages may name lines of the PTX text, which differ
        between the kernels.
        """
        is_listing = module.source.name in module.files.values()
        if log.explains or is_listing or log.limit is not None or log.allowed is not None:
            return {}
        by_opcodes: dict[object, list[Kernel]] = {}
        for kernel in kernels:
            if kernel.is_entry and not any(name.startswith(SYNTHETIC) for name in kernel.names):
                by_opcodes.setdefault(_opcodes(kernel), []).append(kernel)
        finder = cls(module)
        groups = [(opcodes, group) for opcodes, group in by_opcodes.items() if len(group) > 1]
        equal = [finder.find(opcodes, kernel) for opcodes, group in groups for kernel in group]
        return {each.kernel.name: each for each in equal if each is not None}

    def find(self, opcodes: object, kernel: Kernel) -> EqualKernel | None:
        """``kernel``, with the name of an earlier kernel that it equals; `None` where it equals none."""
        flat = untouched_copy(kernel)
        flatten_scopes(flat)
        earlier = self._seen.setdefault(opcodes, {})
        for name, other in earlier.items():
            correspondence = Correspondence.of(other, flat)
            if correspondence is not None:
                return EqualKernel(self._module, name, kernel, correspondence)
        if len(earlier) < _MOST_COMPARED:
            earlier[kernel.name] = flat
        return None


def _opcodes(kernel: Kernel) -> object:
    return tuple([tuple([instr.form.text for instr in block.instrs]) for block in kernel.blocks])


class EqualKernel:
    """An entry that is not transformed, because it equals the kernel named ``first``."""

    def __init__(self, module: Module, first: str, kernel: Kernel, correspondence: Correspondence) -> None:
        self.first = first
        self.kernel = kernel
        self._module = module
        self._correspondence = correspondence

    def outcome(self, first: Outcome) -> Outcome:
        """The outcome of this entry. ``first`` is that of the kernel that it equals. A changed kernel is verified."""
        kernel = self.kernel
        if not first.kernel.has_scopes:
            flatten_scopes(kernel)
        if first.is_changed:
            kernel = self._correspondence.carried(first.kernel, kernel)
            verify_result(self._module, kernel, "equal kernels", fell_off=True)
        remarks = Remarks(self._module)
        remarks.rewrites = first.remarks.rewrites
        for remark in first.remarks.items:
            remarks.put(self._carried(remark))
        for (_, pass_name, what), number in first.remarks.counts.items():
            remarks.counts[kernel.name, pass_name, what] = number
        return Outcome(kernel, remarks, first.is_changed)

    def _carried(self, remark: Remark) -> Remark:
        renamed, source = self._correspondence.renamed, self._module.source
        place = remark.line, remark.column
        if remark.line and remark.file == source.name:
            place = source.line_column(self._correspondence.places[source.offset(*place)])
        return replace(
            remark,
            kernel=self.kernel.name,
            message=renamed(remark.message),
            line=place[0],
            column=place[1],
            sources=tuple(map(renamed, remark.sources)),
            targets=tuple(map(renamed, remark.targets)),
        )
