"""The kernels of a host program as PTX: parsed once, with what they touch.

What a kernel touches is what its PTX shows. Where the PTX does not show it (an address that may come from anywhere), a
kernel written in Python still touches only what its pointer parameters point to, since the DSL has no other pointers
unless they are stored in memory; a fused kernel touches what its parts touch. Otherwise it is unknown: such a launch
stands still, and nothing that touches device memory passes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...dsl import types as t
from ...dsl.host_cfg import Effects
from ...dsl.kernel import Kernel
from ...ptx import Kernel as PtxKernel
from ...ptx import Module, parse
from .launch_effects import KernelMemory, kernel_memory

__all__ = ["AnyKernel", "KernelCode", "KernelCodes"]

AnyKernel: TypeAlias = Kernel[Any]


@dataclass(frozen=True, eq=False)
class KernelCode:
    """A kernel's module and entry. ``memory.is_unknown`` is what is left of doubt after all that is known;
    ``counters`` are those of `LaunchSite`."""

    kernel: AnyKernel
    text: str
    module: Module
    entry: PtxKernel
    memory: KernelMemory
    counters: frozenset[str] = frozenset()

    @property
    def effects(self) -> Effects:
        """For the host program's graph."""
        return Effects(self.memory.reads, self.memory.writes)


class KernelCodes:
    """Codes by kernel; ``ptx`` gives the text of a kernel's module."""

    def __init__(self, ptx: Callable[[AnyKernel], str]) -> None:
        self._ptx = ptx
        self._codes: dict[AnyKernel, KernelCode] = {}

    def of(self, kernel: AnyKernel) -> KernelCode:
        """The code of ``kernel``. Raises `DslError`, `PtxError`."""
        if kernel not in self._codes:
            self.add(kernel, self._ptx(kernel), _declared(kernel))
        return self._codes[kernel]

    def add(
        self,
        kernel: AnyKernel,
        text: str,
        otherwise: KernelMemory | None,
        counters: frozenset[str] = frozenset(),
    ) -> KernelCode:
        """Take a kernel in; ``otherwise`` is what it touches at most, for where its PTX does not show it."""
        module = parse(text, f"{kernel.name}.ptx")
        entry = module.kernel(kernel.entry(text))
        memory = kernel_memory(entry, module)
        if memory.is_unknown and otherwise is not None:
            memory = otherwise
        made = self._codes[kernel] = KernelCode(kernel, text, module, entry, memory, counters)
        return made


def _declared(kernel: AnyKernel) -> KernelMemory | None:
    """What the source of a kernel lets it touch."""
    declared = kernel.reads_and_writes()
    if declared is None or any(_holds_pointer(param.type) for param in kernel.params or ()):
        return None
    return KernelMemory(*declared, is_unknown=False)


def _holds_pointer(type: t.Type) -> bool:
    """Whether memory that a parameter of this type leads to may hold pointers."""

    def is_or_has(inner: t.Type) -> bool:
        match inner:
            case t.Pointer():
                return True
            case t.Array():
                return is_or_has(inner.element)
            case t.Struct():
                return any(is_or_has(field) for _, field in inner.fields)
            case _:
                return False

    return is_or_has(type.target) if isinstance(type, t.Pointer) else is_or_has(type)
