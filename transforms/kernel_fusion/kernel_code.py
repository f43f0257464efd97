"""The kernels of a host program as PTX: each is parsed once, together with the memory that it accesses.

The memory that a kernel accesses is read from its PTX. If the PTX does not show it, because an address may come from
anywhere, other sources are used. A kernel written in Python accesses only the memory that its pointer parameters point
to, because the DSL has no other pointers unless they are stored in memory. A fused kernel accesses the memory of its
parts. Otherwise the memory is unknown: such a launch is not moved, and nothing that accesses device memory moves past
it.
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
    """A kernel's module and entry. ``memory.is_unknown`` is true where neither the PTX nor the declaration of the
    kernel shows which memory it accesses. ``counters`` are those of `LaunchSite`."""

    kernel: AnyKernel
    text: str
    module: Module
    entry: PtxKernel
    memory: KernelMemory
    counters: frozenset[str] = frozenset()

    @property
    def effects(self) -> Effects:
        """The memory accesses, for the host program's graph."""
        return Effects(self.memory.reads, self.memory.writes)


class KernelCodes:
    """Codes by kernel. ``ptx`` returns the text of a kernel's module."""

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
        """Add a kernel. ``otherwise`` is the memory that it accesses at most; it is used if the PTX does not show the
        memory."""
        module = parse(text, f"{kernel.name}.ptx")
        entry = module.kernel(kernel.entry(text))
        memory = kernel_memory(entry, module)
        if memory.is_unknown and otherwise is not None:
            memory = otherwise
        made = self._codes[kernel] = KernelCode(kernel, text, module, entry, memory, counters)
        return made


def _declared(kernel: AnyKernel) -> KernelMemory | None:
    """The memory that the source of a kernel allows it to access."""
    declared = kernel.reads_and_writes()
    if declared is None or any(_holds_pointer(param.type) for param in kernel.params or ()):
        return None
    return KernelMemory(*declared, is_unknown=False)


def _holds_pointer(type: t.Type) -> bool:
    """Whether memory that a parameter of this type points to may contain pointers."""

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
