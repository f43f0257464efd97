"""The parts of a host program: expressions, nodes, and the tree that orders them.

A `Node` is one action: launch, copy, memset, assignment, branch and so on. It names the host variables that it uses and
defines. Buffers are host variables, too: their variables are handles, and ``a, b = b, a`` swaps two buffers. Which
device memory a node accesses depends on where handles point; `host_cfg` computes it.

A body is a list of items: nodes, `If`, `While`, `For`, and `Jump` (``break``, ``continue``, ``return``). The test of an
``if`` or ``while`` is a `Branch` node, so every decision is a node of the graph.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from . import types as t
from .errors import DslError, Place

if TYPE_CHECKING:
    from .kernel import Kernel

__all__ = [
    "Allocate",
    "Assign",
    "Body",
    "Branch",
    "CopyDevice",
    "CopyIn",
    "CopyOut",
    "Entry",
    "Exit",
    "Expression",
    "For",
    "Free",
    "HostCall",
    "If",
    "Item",
    "Jump",
    "Launch",
    "LoopInit",
    "LoopNext",
    "Memset",
    "Node",
    "Read",
    "Region",
    "While",
    "Write",
    "clone_body",
    "jumps",
    "walk_nodes",
]


@dataclass(frozen=True)
class Expression:
    """A Python expression of host code, as `ast.unparse` writes it. Equal texts are equal expressions.

    >>> Expression("n+1") == Expression("n + 1"), sorted(Expression("n * m").names)
    (True, ['m', 'n'])
    """

    text: str

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "text", ast.unparse(ast.parse(self.text, mode="eval")))
        except SyntaxError:
            raise DslError(f"{self.text!r} is not an expression") from None

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that it mentions: variables of the program and captured names."""
        tree = ast.parse(self.text, mode="eval")
        return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))

    @cached_property
    def code(self) -> CodeType:
        """The code object for `eval`."""
        return compile(self.text, "<host program>", "eval")

    @cached_property
    def is_name(self) -> bool:
        """Whether it is only a name."""
        return self.text.isidentifier() and self.text not in ("None", "True", "False")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Region:
    """Elements ``start`` to ``stop`` of a device buffer, without ``stop``. Both are None for the whole buffer."""

    buffer: str
    start: Expression | None = None
    stop: Expression | None = None

    @property
    def names(self) -> frozenset[str]:
        mentioned = {self.buffer}
        for bound in (self.start, self.stop):
            mentioned |= bound.names if bound is not None else frozenset[str]()
        return frozenset(mentioned)

    @property
    def is_whole(self) -> bool:
        return self.start is None and self.stop is None

    def __str__(self) -> str:
        return self.buffer if self.is_whole else f"{self.buffer}[{self.start or ''}:{self.stop or ''}]"


@dataclass(eq=False, kw_only=True)
class Node:
    """One action. Nodes compare by identity. ``place`` is the position in the Python file; it is None if a transform
    made the node."""

    place: Place | None = None

    @property
    def uses(self) -> frozenset[str]:
        """Names that it reads: host variables and captured names."""
        return frozenset()

    @property
    def defines(self) -> frozenset[str]:
        """Host variables that it writes. A host array counts as written if any element is written."""
        return frozenset()

    @property
    def python(self) -> str:
        """The statement as Python text."""
        return ""

    def __str__(self) -> str:
        return self.python or type(self).__name__.lower()


class Entry(Node):
    """The start of the program."""


class Exit(Node):
    """The end of the program."""


@dataclass(eq=False)
class Allocate(Node):
    """``target = allocate(type, count)``. ``target`` also names the allocation site in points-to sets."""

    target: str
    type_text: str
    type: t.Type
    count: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.count.names

    @property
    def defines(self) -> frozenset[str]:
        return frozenset({self.target})

    @property
    def python(self) -> str:
        return f"{self.target} = allocate({self.type_text}, {self.count})"


@dataclass(eq=False)
class Free(Node):
    """``free(buffer)``."""

    buffer: str

    @property
    def uses(self) -> frozenset[str]:
        return frozenset({self.buffer})

    @property
    def python(self) -> str:
        return f"free({self.buffer})"


@dataclass(eq=False)
class CopyIn(Node):
    """``copy(target, source)`` from host to device. ``source`` is a host array or a slice of one."""

    target: Region
    source: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.target.names | self.source.names

    @property
    def python(self) -> str:
        return f"copy({self.target}, {self.source})"


@dataclass(eq=False)
class CopyOut(Node):
    """``copy(target, source)`` from device to host; ``array`` is the host array of ``target``."""

    target: Expression
    array: str
    source: Region

    @property
    def uses(self) -> frozenset[str]:
        return self.target.names | self.source.names

    @property
    def defines(self) -> frozenset[str]:
        return frozenset({self.array})

    @property
    def python(self) -> str:
        return f"copy({self.target}, {self.source})"


@dataclass(eq=False)
class CopyDevice(Node):
    """``copy(target, source)`` on the device."""

    target: Region
    source: Region

    @property
    def uses(self) -> frozenset[str]:
        return self.target.names | self.source.names

    @property
    def python(self) -> str:
        return f"copy({self.target}, {self.source})"


@dataclass(eq=False)
class Memset(Node):
    """``fill(target, byte)``: every byte of the whole buffer."""

    target: Region
    byte: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.target.names | self.byte.names

    @property
    def python(self) -> str:
        return f"fill({self.target}, {self.byte})"


@dataclass(eq=False)
class Read(Node):
    """``target = read(buffer, index)``: one element, so that the host can decide by it."""

    target: str
    buffer: str
    index: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.index.names | {self.buffer}

    @property
    def defines(self) -> frozenset[str]:
        return frozenset({self.target})

    @property
    def python(self) -> str:
        return f"{self.target} = read({self.buffer}, {self.index})"


@dataclass(eq=False)
class Write(Node):
    """``write(buffer, index, value)``: one element."""

    buffer: str
    index: Expression
    value: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.index.names | self.value.names | {self.buffer}

    @property
    def python(self) -> str:
        return f"write({self.buffer}, {self.index}, {self.value})"


@dataclass(eq=False)
class Assign(Node):
    """``targets = values``; all values are evaluated first. ``targets`` are names or elements of host arrays."""

    targets: tuple[Expression, ...]
    values: tuple[Expression, ...]

    @property
    def uses(self) -> frozenset[str]:
        names = [value.names for value in self.values]
        names += [target.names for target in self.targets if not target.is_name]
        return frozenset[str]().union(*names)

    @property
    def defines(self) -> frozenset[str]:
        return frozenset(target.text.partition("[")[0] for target in self.targets)

    @property
    def python(self) -> str:
        values = ", ".join(str(value) for value in self.values)
        return f"{', '.join(str(target) for target in self.targets)} = {values}" if self.targets else values


@dataclass(eq=False)
class HostCall(Assign):
    """An assignment or statement that calls a Python function. It may change every host array in ``changed``."""

    changed: frozenset[str] = frozenset()

    @property
    def defines(self) -> frozenset[str]:
        return super().defines | self.changed


@dataclass(eq=False)
class Launch(Node):
    """``kernel[grid, block, shared](args)``. ``kernel_text`` is the kernel's name in the program. ``cooperative``: all
    blocks run at the same time, or the launch fails; then ``"cooperative"`` is the last element in the brackets."""

    kernel: Kernel[...]
    kernel_text: str
    grid: Expression
    block: Expression
    args: tuple[Expression, ...]
    shared: Expression | None = None
    cooperative: bool = False

    @property
    def uses(self) -> frozenset[str]:
        parts = [self.grid, self.block, *self.args, *([self.shared] if self.shared is not None else [])]
        return frozenset[str]().union(*(part.names for part in parts))

    @property
    def python(self) -> str:
        configuration = [self.grid, self.block, *([self.shared] if self.shared is not None else [])]
        inside = ", ".join([*map(str, configuration), *(['"cooperative"'] if self.cooperative else [])])
        return f"{self.kernel_text}[{inside}]({', '.join(str(arg) for arg in self.args)})"


@dataclass(eq=False)
class Branch(Node):
    """The test of an ``if`` or a ``while``."""

    test: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.test.names

    def __str__(self) -> str:
        return f"{self.test}?"


@dataclass(eq=False)
class LoopInit(Node):
    """Evaluates the bounds of ``for target in range(start, stop, step)`` once."""

    target: str
    start: Expression
    stop: Expression
    step: Expression

    @property
    def uses(self) -> frozenset[str]:
        return self.start.names | self.stop.names | self.step.names

    def __str__(self) -> str:
        return f"range({self.start}, {self.stop}, {self.step})"


@dataclass(eq=False)
class LoopNext(Node):
    """Gives the variable of a ``for`` loop its next value, or leaves the loop."""

    target: str

    @property
    def defines(self) -> frozenset[str]:
        return frozenset({self.target})

    def __str__(self) -> str:
        return f"next {self.target}?"


@dataclass(eq=False)
class Jump:
    """``break``, ``continue`` or ``return``. In the graph it is an edge, not a node."""

    word: str
    place: Place | None = None


@dataclass(eq=False)
class If:
    """``if branch: body else: orelse``."""

    branch: Branch
    body: Body
    orelse: Body


@dataclass(eq=False)
class While:
    """``while branch: body``. ``orelse`` runs after the test fails, and not after ``break``."""

    branch: Branch
    body: Body
    orelse: Body = field(default_factory=list["Item"])


@dataclass(eq=False)
class For:
    """``for next.target in range(...): body``; ``orelse`` as in `While`."""

    init: LoopInit
    next: LoopNext
    body: Body
    orelse: Body = field(default_factory=list["Item"])


Item: TypeAlias = "Node | If | While | For | Jump"
Body: TypeAlias = "list[Item]"


def jumps(body: Body, word: str) -> bool:
    """Whether ``body``, which belongs to a loop, contains ``word``, ``break`` or ``continue``, for this loop."""
    for item in body:
        if isinstance(item, Jump) and item.word == word:
            return True
        if isinstance(item, If) and (jumps(item.body, word) or jumps(item.orelse, word)):
            return True
        if isinstance(item, While | For) and jumps(item.orelse, word):
            return True
    return False


def walk_nodes(body: Body) -> Iterator[Node]:
    """Every node of a body in the order of the program text."""
    for item in body:
        match item:
            case Node():
                yield item
            case If() | While():
                yield item.branch
                yield from walk_nodes(item.body)
                yield from walk_nodes(item.orelse)
            case For():
                yield item.init
                yield item.next
                yield from walk_nodes(item.body)
                yield from walk_nodes(item.orelse)
            case Jump():
                pass


def clone_body(body: Body, copies: dict[Node, Node]) -> Body:
    """A copy in which every node is new. ``copies`` receives a map from old to new nodes. Kernels are shared."""
    out: Body = []
    for item in body:
        match item:
            case Node():
                out.append(_clone(item, copies))
            case If() | While() | For():
                changes: dict[str, Any] = {
                    "body": clone_body(item.body, copies),
                    "orelse": clone_body(item.orelse, copies),
                }
                for name in ("branch", "init", "next"):
                    if hasattr(item, name):
                        changes[name] = _clone(getattr(item, name), copies)
                out.append(dataclasses.replace(item, **changes))
            case Jump():
                out.append(copy.copy(item))
    return out


def _clone(node: Node, copies: dict[Node, Node]) -> Node:
    made = copy.copy(node)
    copies[node] = made
    return made
