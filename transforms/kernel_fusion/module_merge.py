"""What a fused kernel needs of the two modules that its parts come from: functions, constants, version and target.

Guarantees: only what the bodies mention, directly or through functions, is copied; equal texts are copied once, and
what has the name of something else gets a new one.
"""

from __future__ import annotations

import dataclasses
import re

from ...ptx import Kernel, Module, SourceText, Variable, print_kernel
from ...ptx.ir import Declaration
from .body_copy import Files, copy_body
from .launch_site import LaunchSite

__all__ = ["CannotFuse", "merged_functions", "merged_target", "merged_version"]


class CannotFuse(ValueError):
    """The two launches cannot become one kernel."""


def merged_version(first: Module, second: Module) -> str:
    """The newer of the two versions of PTX."""
    return max((first.version, second.version), key=lambda text: [int(part) for part in text.split(".")])


_ARCH = re.compile(r"sm_(\d+)([a-z]?)")


def merged_target(first: LaunchSite, second: LaunchSite) -> str:
    """The newer of the two architectures. Raises `CannotFuse` where one is bound to a certain other one."""
    one, other = _ARCH.fullmatch(first.module.arch), _ARCH.fullmatch(second.module.arch)
    if one is None or other is None:
        raise CannotFuse(f"the targets are '{first.module.arch}' and '{second.module.arch}'")
    newer, older = (one, other) if int(one[1]) >= int(other[1]) else (other, one)
    if newer[1] == older[1]:
        return newer[0] if newer[2] else older[0]
    if older[2]:
        raise CannotFuse(f"code for {older[0]} does not run on {newer[0]}")
    return newer[0]


def merged_functions(
    sites: tuple[LaunchSite, LaunchSite],
    symbols: tuple[dict[Declaration, tuple[Declaration, int]], ...],
    variables: list[Variable],
    taken: set[str],
) -> list[Kernel]:
    """Copies of the functions that the bodies call, callees first; copies of variables are added to ``variables``.

    ``symbols`` learns for each body what stands for what.
    """
    merging = _Merging(variables, set(taken))
    for site, known in zip(sites, symbols, strict=True):
        merging.counters = site.counters
        merging.take(site.kernel, site.module, known)
    return merging.functions


class _Merging:
    def __init__(self, variables: list[Variable], names: set[str]) -> None:
        self.variables = variables
        self.names = names
        self.functions: list[Kernel] = []
        self.texts: dict[str, Declaration] = {}
        self.copies: dict[Declaration, Declaration] = {}
        self.counters: frozenset[str] = frozenset()

    def take(self, kernel: Kernel, module: Module, known: dict[Declaration, tuple[Declaration, int]]) -> None:
        """Copy what ``kernel`` mentions of its ``module``."""
        own = {id(declaration) for declaration in kernel.declarations}
        for instr in kernel.instructions():
            for symbol in instr.symbols():
                declaration = symbol.declaration
                if declaration is None or declaration in known or id(declaration) in own:
                    continue
                if isinstance(declaration, Kernel):
                    known[declaration] = (self._function(_definition(declaration, module), module), 0)
                elif isinstance(declaration, Variable) and declaration.space in ("global", "const"):
                    known[declaration] = (self._variable(declaration), 0)

    def _variable(self, variable: Variable) -> Declaration:
        # Two barriers of the grid do not share a counter: not all blocks may come to both.
        is_shared = variable.name not in self.counters
        found = self.copies.get(variable) or (self.texts.get(variable.text) if is_shared else None)
        if found is None:
            copied = dataclasses.replace(variable, name=self._name(variable.name))
            self.variables.append(copied)
            found = self.texts[variable.text] = copied
        self.copies[variable] = found
        return found

    def _function(self, function: Kernel, module: Module) -> Declaration:
        text = print_kernel(function)
        found = self.copies.get(function) or self.texts.get(text)
        if found is None:
            known: dict[Declaration, tuple[Declaration, int]] = {}
            # A call of itself is refused, so this ends.
            self.take(function, module, known)
            body = copy_body(function, "", known, {}, Module(SourceText("", function.name)), Files())
            found = dataclasses.replace(
                function,
                name=self._name(function.name),
                declarations=body.declarations,
                blocks=body.blocks,
                names=set(function.names),
                _fresh={},
                _new_registers={},
            )
            self.functions.append(found)
            self.texts[text] = found
        self.copies[function] = found
        return found

    def _name(self, name: str) -> str:
        fresh, number = name, 2
        while fresh in self.names:
            fresh, number = f"{name}_f{number}", number + 1
        self.names.add(fresh)
        return fresh


def _definition(function: Kernel, module: Module) -> Kernel:
    """The function with its body, where the text declares it before. Raises `CannotFuse` where there is none."""
    if not function.is_declaration:
        return function
    found = next((each for each in module.kernels if each.name == function.name), None)
    if found is None:
        raise CannotFuse(f"function '{function.name}' has no body")
    return found
