"""Entries of a module that are the same but for names: what became of one becomes of the others.

A template is compiled for each of its types, and types of one size often make the same code. The passes run over the
first of such entries only.

Requires: that passes go by the code of a kernel and by what else is in its module, not by names. Guarantees: the
outcome of a twin is what the passes would have made of it, and have said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ptx import Kernel, Module, Variable
from ..ptx.correspondence import Correspondence
from .code_motion.edges import SYNTHETIC
from .remarks import Remark, Remarks

__all__ = ["Outcome", "Twin", "Twins", "untouched_copy"]

#: An entry is compared with so many others that have the same opcodes.
_MOST_COMPARED = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """``kernel`` is what it became; ``said`` is what is said of it."""

    kernel: Kernel
    said: Remarks
    is_changed: bool


def untouched_copy(kernel: Kernel) -> Kernel:
    """A copy that later changes of the kernel do not touch."""
    if any(isinstance(item, Variable) and item.space != "param" for item in kernel.scoped_names):
        kernel.flatten_scopes()  # which may rename variables in place
    return kernel.clone()


class Twins:
    """The twins among the entries of ``kernels``. Each is asked about once, before it is transformed."""

    def __init__(self, module: Module, kernels: Sequence[Kernel]) -> None:
        self._module = module
        #: By opcodes, those that were asked about and have no elder twin: names, and flat copies of what was given.
        self._first: dict[object, dict[str, Kernel]] = {}
        alike: dict[object, list[str]] = {}
        for kernel in kernels:
            if kernel.is_entry and not any(name.startswith(SYNTHETIC) for name in kernel.names):
                alike.setdefault(_opcodes(kernel), []).append(kernel.name)
        self._opcodes = {name: opcodes for opcodes, names in alike.items() if len(names) > 1 for name in names}

    @classmethod
    def of(cls, module: Module, kernels: Sequence[Kernel], remarks: Remarks) -> Twins | None:
        """The twins, if there may be any: where all rewrites are made, and what is said names no lines of the PTX text
        that cannot be told from others."""
        is_listing = module.source.name in module.files.values()
        if remarks.explains or is_listing or remarks.limit is not None or remarks.allowed is not None:
            return None
        found = cls(module, kernels)
        return found if found._opcodes else None

    def find(self, kernel: Kernel) -> Twin | None:
        """The kernel as the twin of one that was asked about before, if there is one."""
        opcodes = self._opcodes.get(kernel.name)
        if opcodes is None:
            return None
        flat = untouched_copy(kernel)
        flat.flatten_scopes()
        first = self._first.setdefault(opcodes, {})
        for name, given in first.items():
            correspondence = Correspondence.of(given, flat)
            if correspondence is not None:
                return Twin(self._module, name, kernel, correspondence)
        if len(first) < _MOST_COMPARED:
            first[kernel.name] = flat
        return None


def _opcodes(kernel: Kernel) -> object:
    return tuple([tuple([instr.form.text for instr in block.instrs]) for block in kernel.blocks])


class Twin:
    """An entry that is left as it was given, and ``elder``, the name of the one that it is like."""

    def __init__(self, module: Module, elder: str, kernel: Kernel, correspondence: Correspondence) -> None:
        self.elder = elder
        self.kernel = kernel
        self._module = module
        self._correspondence = correspondence

    def outcome(self, elder: Outcome) -> Outcome:
        """What becomes of the entry where this became of its elder."""
        kernel = self.kernel
        if not elder.kernel.has_scopes:
            kernel.flatten_scopes()
        if elder.is_changed:
            kernel = self._correspondence.carried(elder.kernel, kernel)
        said = Remarks(self._module)
        said.rewrites = elder.said.rewrites
        for remark in elder.said.items:
            said.put(self._carried(remark))
        for (_, pass_name, what), number in elder.said.counts.items():
            said.counts[kernel.name, pass_name, what] = number
        return Outcome(kernel, said, elder.is_changed)

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
