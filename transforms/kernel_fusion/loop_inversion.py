"""Loop inversion: loops that test at their end, so that a launch can move across the loop's back edge.

    for i in range(a, b, s):        if a < b:                       while c:        if c:
        body                            i = a                           body            while True:
                                        while True:                                         body
                                            body                                            if not c:
                                            if i + s >= b:                                      break
                                                break
                                            i = i + s

A loop that tests at its head has a path around its body, so nothing in the body is down-safe at the end of the body.
Then the last launch of an iteration never becomes adjacent to the first launch of the next one. The thesis works on
compiled code, whose loops are already inverted. Tests are evaluated as often as before, in the same order and on the
same values.

Refuses: loops with ``else`` or ``continue``, steps that are not positive numbers, bounds that the body changes, a body
that assigns the loop variable or ends with a jump.
Reference: thesis §5.2.3 and table 5.2 (srad_v1); Muchnick, *Advanced Compiler Design*, §18.5 (loop inversion).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.host_nodes import (
    Assign,
    Body,
    Branch,
    Expression,
    For,
    If,
    Item,
    Jump,
    Launch,
    Node,
    While,
    jumps,
    walk_nodes,
)
from ...dsl.host_program import HostProgram

__all__ = ["ALWAYS", "invertible", "inverted"]

#: The test of a loop that only ``break`` leaves.
ALWAYS = Expression("True")


def invertible(program: HostProgram) -> list[int]:
    """The numbers of the invertible loops that contain launches, counted in the order of the program text."""
    return [number for number, (_, item) in enumerate(_loops(program.body)) if _can_invert(item)]


def inverted(program: HostProgram, chosen: frozenset[int]) -> HostProgram:
    """A copy of the program in which the loops ``chosen`` are inverted."""
    made, _ = program.clone()
    # Inner loops come later in the text. Inverting the last loop first leaves the positions of the others valid.
    for number, (body, item) in reversed(list(enumerate(_loops(made.body)))):
        if number in chosen:
            at = next(at for at, each in enumerate(body) if each is item)
            body[at] = _of_for(item) if isinstance(item, For) else _of_while(item)
    return made


def _loops(body: Body) -> Iterator[tuple[Body, While | For]]:
    for item in body:
        if isinstance(item, While | For):
            yield body, item
        if isinstance(item, If | While | For):
            yield from _loops(item.body)
            yield from _loops(item.orelse)


def _can_invert(loop: While | For) -> bool:
    nodes = list(walk_nodes(loop.body))
    if loop.orelse or jumps(loop.body, "continue") or not any(isinstance(node, Launch) for node in nodes):
        return False
    if isinstance(loop.body[-1], Jump):
        return False
    if isinstance(loop, While):
        return loop.branch.test != ALWAYS
    changed = frozenset[str]().union(*(node.defines for node in nodes))
    step = loop.init.step.text
    fixed = not changed & (loop.init.uses | {loop.next.target}) and loop.next.target not in loop.init.uses
    return fixed and step.isdigit() and int(step) > 0


def _of_while(loop: While) -> Item:
    leaves = If(Branch(Expression(f"not ({loop.branch.test})"), place=loop.branch.place), [Jump("break")], [])
    return If(loop.branch, [While(Branch(ALWAYS), [*loop.body, leaves])], [])


def _of_for(loop: For) -> Item:
    name, init, place = loop.next.target, loop.init, loop.init.place

    def assign(value: str) -> Node:
        return Assign((Expression(name),), (Expression(value),), place=place)

    leaves = If(Branch(Expression(f"{name} + {init.step} >= ({init.stop})"), place=place), [Jump("break")], [])
    turns = While(Branch(ALWAYS), [*loop.body, leaves, assign(f"{name} + {init.step}")])
    return If(Branch(Expression(f"({init.start}) < ({init.stop})"), place=place), [assign(str(init.start)), turns], [])
