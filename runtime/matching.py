"""Whether a contract fits a PTX module, and the parameters of kernels in the terms of contracts."""

from __future__ import annotations

from collections.abc import Iterator

from ..contract import Contract, KernelContract, Parameter, Version
from ..ptx import Kernel, Module

__all__ = ["mismatches", "parameters_of"]

_TYPES = frozenset("u8 s8 b8 u16 s16 b16 f16 u32 s32 b32 f32 f16x2 u64 s64 b64 f64 b128".split())


def parameters_of(kernel: Kernel) -> tuple[Parameter, ...] | None:
    """The parameters; None if there is one that contracts do not know, such as a texture.

    ``pointer`` is set where the kernel declares it by `.ptr`.
    """
    found: list[Parameter] = []
    end = 0
    for param in kernel.params or []:
        if param.type.name not in _TYPES or not param.bytes:
            return None
        align = max(param.align or 1, param.type.bytes * param.lanes)
        offset = -(-end // align) * align
        end = offset + param.bytes
        is_pointer = ".ptr" in param.attributes and param.bytes == 8 and param.type.name in ("u64", "b64", "s64")
        found.append(Parameter(param.name, offset, param.bytes, param.type.name, is_pointer))
    return tuple(found)


def mismatches(contract: Contract, module: Module) -> Iterator[str]:
    """The statements of the contract that are false for the module: one sentence for each."""
    entries = {entry.name: entry for entry in module.entries}
    for name, kernel in contract.kernels.items():
        entry = entries.get(name)
        if entry is None:
            yield f"{name}: the module has no such entry"
            continue
        found = _signature(parameters_of(entry))
        if found != _signature(kernel.parameters):
            yield f"{name}: its parameters are not those of the contract"
            continue
        for version in kernel.versions[:-1]:
            yield from _version_mismatches(kernel, version, entry, entries.get(version.entry))


def _version_mismatches(
    kernel: KernelContract, version: Version, original: Kernel, entry: Kernel | None
) -> Iterator[str]:
    place = f"{kernel.name}, version {version.entry}"
    if entry is None:
        yield f"{place}: the module has no such entry"
        return
    if entry is original:
        yield f"{place}: this is the kernel itself"
        return
    found, expected = _signature(parameters_of(entry)), _signature(kernel.parameters)
    extra = len(version.launch.arguments) if version.launch is not None else 0
    if found is None or expected is None or found[: len(expected)] != expected:
        yield f"{place}: its first parameters are not those of the kernel"
    elif len(found) - len(expected) != extra:
        yield f"{place}: it has {len(found) - len(expected)} further parameters, and the contract has {extra}"
    elif any(size not in (1, 2, 4, 8) for _, size, _ in found[len(expected) :]):
        yield f"{place}: a further parameter is a structure"
    for directive in ("reqntid", "maxntid", "reqnctapercluster", "explicitcluster", "maxclusterrank"):
        if entry.directive(directive) != original.directive(directive) and not (
            version.launch and version.launch.block
        ):
            yield f"{place}: its .{directive} is not that of the kernel"


def _signature(parameters: tuple[Parameter, ...] | None) -> list[tuple[int, int, str]] | None:
    """Offset, size and type of each parameter. Types of equal size and sign are equal, but names do not matter."""
    if parameters is None:
        return None
    return [(each.offset, each.size, each.type) for each in parameters]
