"""Merges what a fused kernel needs from the modules of its parts: functions, constants, version and target.

Guarantees: only declarations that the bodies mention, directly or through functions, are copied. Equal texts are copied
once. A declaration whose name is already used for something else gets a new name.
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
    """The newer of the two PTX versions."""
    return max((first.version, second.version), key=lambda text: [int(part) for part in text.split(".")])


_ARCH = re.compile(r"sm_(\d+)([a-z]?)")


def merged_target(first: LaunchSite, second: LaunchSite) -> str:
    """The newer of the two architectures. Raises `CannotFuse` if code for one of them does not run on the other."""
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
    """Copies of the functions that the bodies call, callees first. Copies of variables are added to ``variables``, and
    the replacements of declarations to ``symbols``, for each body. ``taken`` are names that are in use."""
    merging = _Merging(variables, set(taken))
    for site, replacements in zip(sites, symbols, strict=True):
        merging.counters = site.counters
        merging.copy_mentioned(site.kernel, site.module, replacements)
    return merging.functions


class _Merging:
    def __init__(self, variables: list[Variable], names: set[str]) -> None:
        self.variables = variables
        self.names = names
        self.functions: list[Kernel] = []
        #: By PTX text of a declaration: its copy.
        self.texts: dict[str, Declaration] = {}
        #: By declaration: its copy.
        self.copies: dict[Declaration, Declaration] = {}
        self.counters: frozenset[str] = frozenset()

    def copy_mentioned(
        self, kernel: Kernel, module: Module, replacements: dict[Declaration, tuple[Declaration, int]]
    ) -> None:
        """Copy the declarations of ``module`` that ``kernel`` mentions, and add the copies to ``replacements``."""
        own = {id(declaration) for declaration in kernel.declarations}
        for instr in kernel.instructions():
            for symbol in instr.symbols():
                declaration = symbol.declaration
                if declaration is None or declaration in replacements or id(declaration) in own:
                    continue
                if isinstance(declaration, Kernel):
                    replacements[declaration] = (self._function(_definition(declaration, module), module), 0)
                elif isinstance(declaration, Variable) and declaration.space in ("global", "const"):
                    replacements[declaration] = (self._variable(declaration), 0)

    def _variable(self, variable: Variable) -> Declaration:
        # Two grid barriers must not share a counter, because not all blocks may reach both.
        is_shared = variable.name not in self.counters
        copied = self.copies.get(variable) or (self.texts.get(variable.text) if is_shared else None)
        if copied is None:
            new = dataclasses.replace(variable, name=self._name(variable.name))
            self.variables.append(new)
            copied = self.texts[variable.text] = new
        self.copies[variable] = copied
        return copied

    def _function(self, function: Kernel, module: Module) -> Declaration:
        text = print_kernel(function)
        copied = self.copies.get(function) or self.texts.get(text)
        if copied is None:
            replacements: dict[Declaration, tuple[Declaration, int]] = {}
            # This terminates because recursive functions are refused.
            self.copy_mentioned(function, module, replacements)
            body = copy_body(function, "", replacements, {}, Module(SourceText("", function.name)), Files())
            copied = dataclasses.replace(
                function,
                name=self._name(function.name),
                declarations=body.declarations,
                blocks=body.blocks,
                names=set(function.names),
                _fresh={},
                _new_registers={},
            )
            self.functions.append(copied)
            self.texts[text] = copied
        self.copies[function] = copied
        return copied

    def _name(self, name: str) -> str:
        fresh, number = name, 2
        while fresh in self.names:
            fresh, number = f"{name}_f{number}", number + 1
        self.names.add(fresh)
        return fresh


def _definition(function: Kernel, module: Module) -> Kernel:
    """The function with its body, which may follow a declaration in the text. Raises `CannotFuse` if there is no
    body."""
    if not function.is_declaration:
        return function
    found = next((each for each in module.kernels if each.name == function.name), None)
    if found is None:
        raise CannotFuse(f"function '{function.name}' has no body")
    return found
