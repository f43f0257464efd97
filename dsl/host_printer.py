"""Host programs as Python.

Guarantees: what is printed parses to a program with the same graph; ``else`` of a loop is written only where a
``break`` makes a difference. `module` writes a file that stands alone beside its ``.ptx`` files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .errors import DslError
from .host_nodes import Body, For, If, Jump, Node, While
from .host_program import HostProgram
from .kernel import Kernel
from .types import SCALARS, Scalar

__all__ = ["function", "module"]


def function(program: HostProgram) -> str:
    """The program as a function under ``@program``."""
    params = ", ".join(f"{param.name}: {param.type_text}" for param in program.params)
    lines = ["@program", f"def {program.name}({params}) -> None:"]
    if program.doc:
        lines.append(f'    """{_escaped(program.doc)}"""')
    lines += _block(program.body, 1)
    return "\n".join(lines) + "\n"


def module(program: HostProgram, kernels: Mapping[str, str]) -> str:
    """A file that holds the program; ``kernels`` gives for each kernel's name its ``.ptx`` file beside it.

    Raises `DslError` for a captured object that cannot be written down.
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
                raise DslError(f"no .ptx file is given for kernel {name}")
        elif found := _dsl_word(name, value):
            words.add(found)
        elif line := _import(name, value):
            imports.add(line)
        elif not _is_builtin(name, value):
            definitions.insert(0, f"{name} = {_constant(name, value)}")
    head = ["from pathlib import Path", *sorted(imports), f"from ptxmotion.dsl import {', '.join(sorted(words))}"]
    head = head if kernels else head[1:]
    return "\n".join([*head, "", *definitions, "", "", function(program)])


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
        raise DslError(f"{name} cannot be imported from a module: move it to one")
    return f"from {home} import {known_as}" + (f" as {name}" if name != known_as else "")


def _is_builtin(name: str, value: Any) -> bool:
    import builtins

    return getattr(builtins, name, None) is value


def _constant(name: str, value: Any) -> str:
    # A NumPy scalar prints as the Python number of its value.
    plain: Any = value.item() if hasattr(value, "dtype") and not value.shape else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return f"float({str(plain)!r})"
    if isinstance(plain, bool | int | float | str):
        return repr(plain)
    raise DslError(f"{name} is a {type(value).__name__}, which cannot be written into a file: make it a parameter")


def _block(body: Body, depth: int) -> list[str]:
    lines = [line for item in body for line in _item(item, depth)]
    return lines or ["    " * depth + "pass"]


def _item(item: Node | If | While | For | Jump, depth: int) -> Iterator[str]:
    indent = "    " * depth
    match item:
        case Node():
            yield indent + item.python
        case Jump():
            yield indent + item.word
        case If():
            yield f"{indent}if {item.branch.test}:"
            yield from _block(item.body, depth + 1)
            yield from _otherwise(item.orelse, depth)
        case While() | For():
            if isinstance(item, While):
                yield f"{indent}while {item.branch.test}:"
            else:
                yield f"{indent}for {item.next.target} in range({_bounds(item)}):"
            yield from _block(item.body, depth + 1)
            if item.orelse and not _breaks(item.body):
                for part in item.orelse:
                    yield from _item(part, depth)
            elif item.orelse:
                yield f"{indent}else:"
                yield from _block(item.orelse, depth + 1)


def _otherwise(body: Body, depth: int) -> Iterator[str]:
    indent = "    " * depth
    if len(body) == 1 and isinstance(body[0], If):
        first, *rest = _item(body[0], depth)
        yield f"{indent}el{first.strip()}"
        yield from rest
    elif body:
        yield f"{indent}else:"
        yield from _block(body, depth + 1)


def _bounds(item: For) -> str:
    init = item.init
    if init.step.text != "1":
        return f"{init.start}, {init.stop}, {init.step}"
    return str(init.stop) if init.start.text == "0" else f"{init.start}, {init.stop}"


def _breaks(body: Body) -> bool:
    """Whether a ``break`` in ``body`` leaves the loop that ``body`` belongs to."""
    for item in body:
        if isinstance(item, Jump) and item.word == "break":
            return True
        if isinstance(item, If) and (_breaks(item.body) or _breaks(item.orelse)):
            return True
        if isinstance(item, While | For) and _breaks(item.orelse):
            return True
    return False


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
