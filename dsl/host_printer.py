"""A host program as a Python file that needs only its ``.ptx`` files beside it.

The file holds imports, the kernels, captured constants, and the program's function (`host_text`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .errors import DslError
from .host_program import HostProgram
from .kernel import Kernel
from .types import SCALARS, Scalar

__all__ = ["module"]


def module(program: HostProgram, kernels: Mapping[str, str]) -> str:
    """A file that contains the program. ``kernels`` maps each kernel's name to its ``.ptx`` file in the folder of the
    new file.

    Raises `DslError` for a captured object that cannot be written as Python.
    """
    definitions = [
        f"{name} = ptx_source(Path(__file__).with_name({file!r}), {program.kernels[name].name!r})"
        for name, file in kernels.items()
    ]
    imports: set[str] = set()
    words: set[str] = {"program", "ptx_source"} if kernels else {"program"}
    for name in sorted(_used(program)):
        value = program.namespace[name]
        if isinstance(value, Kernel):
            if name not in kernels:
                raise DslError(f"kernel {name} has no .ptx file")
        elif word := _dsl_word(name, value):
            words.add(word)
        elif line := _import(name, value):
            imports.add(line)
        elif not _is_builtin(name, value):
            definitions.insert(0, f"{name} = {_constant(name, value)}")
    head = ["from pathlib import Path", *sorted(imports), f"from ptxmotion.dsl import {', '.join(sorted(words))}"]
    head = head if kernels else head[1:]
    return "\n".join([*head, "", *definitions, "", "", program.to_python()])


def _used(program: HostProgram) -> set[str]:
    used: set[str] = set()
    for node in program.nodes():
        used |= node.uses
        text = getattr(node, "kernel_text", "") or getattr(node, "type_text", "")
        used.add(text.partition(".")[0])
        used |= {word for word in ("allocate", "free", "copy", "fill", "read", "write") if f"{word}(" in str(node)}
    used |= {part for param in program.params for part in ("host", param.type_text.removeprefix("host[").rstrip("]"))}
    return used & set(program.namespace)


def _dsl_word(name: str, value: Any) -> str:
    from .host_language import HostArrayWord
    from .language import Word

    real = value.name if isinstance(value, Word | Scalar) else "host" if isinstance(value, HostArrayWord) else ""
    if isinstance(value, Scalar) and value.name not in SCALARS:
        return ""
    return real if real == name or not real else f"{real} as {name}"


def _import(name: str, value: Any) -> str:
    import types

    if isinstance(value, types.ModuleType):
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    home, known_as = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not callable(value) or home in (None, "builtins"):
        return ""
    if home == "__main__" or not known_as.isidentifier():
        raise DslError(f"{name} cannot be imported: define it at the top level of a module")
    return f"from {home} import {known_as}" + (f" as {name}" if name != known_as else "")


def _is_builtin(name: str, value: Any) -> bool:
    import builtins

    return getattr(builtins, name, None) is value


def _constant(name: str, value: Any) -> str:
    # A NumPy scalar becomes the Python number with its value.
    plain: Any = value.item() if hasattr(value, "dtype") and not value.shape else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return f"float({str(plain)!r})"
    if isinstance(plain, bool | int | float | str):
        return repr(plain)
    raise DslError(f"{name} is a {type(value).__name__}, which cannot be written into a file: make it a parameter")
