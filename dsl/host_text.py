"""The Python text of a host program's function.

Guarantees: the text parses to a program with the same graph. The ``else`` of a loop is printed as ``else`` only if a
``break`` can leave the loop; otherwise its statements follow the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from .host_nodes import Body, For, If, Jump, Node, While, jumps

__all__ = ["function_text"]


def function_text(name: str, params: str, doc: str, body: Body) -> str:
    """A function under ``@program``; ``params`` is the text between its parentheses."""
    lines = ["@program", f"def {name}({params}) -> None:"]
    if doc:
        lines.append(f'    """{_escaped(doc)}"""')
    lines += _block(body, 1)
    return "\n".join(lines) + "\n"


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
            if item.orelse and not jumps(item.body, "break"):
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


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
