"""Costly functions of single pixels, computed once for each pixel instead of once for each read.

A local operator may apply the same function to every pixel of its window, as in ``total += log(src[dx, dy] + 0.5)``.
`with_pixel_images` gives a graph in which a new point operator makes the image of the function, and the local operator
reads that image. A group of both can keep it in tiles or registers, or compute it again at each read, as the graph
before does. Schedules with a kernel for each operator are made from the graph before.

Guarantees: the same bits. Each pixel of the new image is the result of the same operations on the same pixel, and an
index outside of the image is mapped to the same pixel. Graphs without such operators are returned as they are. The
result of a graph is always the same object, and is its own result.
Refuses: constant boundaries, whose value outside of the image would be another one; windows that are also read
otherwise, or whose reads are in different functions; functions of anything but the pixel, numbers, and names of the
module that are numbers; pixels that are not f32; windows of one pixel.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ... import types as t
from ...errors import FunctionSource
from ...intrinsics import INTRINSICS
from ...scope import Scope
from ..borders import Boundary
from ..graph import Graph, Retrace, graph_of
from ..operator_body import Centre
from ..operators import Access, Argument, Image, IterationSpace, Node, Operator
from ..windows import WindowExtent
from .benefit import instructions_of_function

__all__ = ["with_pixel_images"]

#: The least machine instructions of a function that is worth an image.
_COSTLY = 8

_PIXEL = "pixel"


@lru_cache(maxsize=64)
def with_pixel_images(graph: Graph) -> Graph:
    """The graph in which costly functions of single pixels have images of their own."""
    new: dict[Image[Any], Node[Any]] = {}
    images: dict[tuple[Image[Any], Operator[Any]], Node[Any]] = {}
    taken = {image.name for image in (*graph.inputs, *graph.scalars, *graph.nodes)}
    for node in graph.nodes:
        operator, points = _split(node)
        arguments = tuple(_argument(each, operator, points, node, new, images, taken) for each in node.arguments)
        if operator is not node.operator or arguments != node.arguments:
            made = copy.copy(node)
            made.operator, made.arguments = operator, arguments
            made.accesses = tuple(each for each in arguments if isinstance(each, Access))
            new[node] = made
    if not images:
        return graph
    retrace = graph.retrace
    outputs = [new.get(node, node) for node in graph.outputs]
    again: Retrace | None = (lambda shapes: with_pixel_images(retrace(shapes))) if retrace is not None else None
    return graph_of(graph.name, outputs, graph.inputs, graph.scalars, again)


def _argument(
    argument: Argument,
    operator: Operator[Any],
    points: Mapping[str, Operator[Any]],
    reader: Node[Any],
    new: Mapping[Image[Any], Node[Any]],
    images: dict[tuple[Image[Any], Operator[Any]], Node[Any]],
    taken: set[str],
) -> Argument:
    """The argument of the new node. ``new``: nodes that were made again. ``images``: by image and point operator, the
    image of the function. ``taken``: names of images, which are unique."""
    if not isinstance(argument, Access):
        return argument
    image = new.get(argument.image, argument.image)
    point = points.get(argument.param.name)
    if point is None:
        return replace(argument, image=image) if image is not argument.image else argument
    if (image, point) not in images:
        (param,) = point.body.params
        centre = Access(param, image, Boundary.UNDEFINED, (Centre(), Centre()), WindowExtent())
        made: Node[Any] = Node(point, (centre,), IterationSpace(image.width, image.height), reader.place)
        while made.name in taken:
            made.name += "_"
        taken.add(made.name)
        images[image, point] = made
    body = operator.body
    (param,) = (each for each in body.params if each.name == argument.param.name)
    return replace(argument, param=param, image=images[image, point])


def _split(node: Node[Any]) -> tuple[Operator[Any], dict[str, Operator[Any]]]:
    """The operator of a node without costly functions of single pixels, and these as point operators, by the window
    that they are applied to. Without such functions it is the operator itself."""
    if node.operator.kind != "local":
        return node.operator, {}
    operator, points = node.operator, dict[str, Operator[Any]]()
    for access in node.accesses:
        if _may_have_image(access):
            parts = _without(operator, access.param.name)
            if parts is not None:
                operator, points[access.param.name] = parts
    return operator, points


def _may_have_image(access: Access) -> bool:
    """Whether a function of the pixels that an access reads may be an image of the same size."""
    image = access.image
    if not access.param.is_window or access.param.pixel is not t.F32 or access.boundary.kind == "constant":
        return False
    if isinstance(image, Node) and (image.operator.kind == "global" or (image.space.x0, image.space.y0) != (0, 0)):
        return False
    width, height = access.extent.size
    return width * height > 1


@lru_cache(maxsize=1024)
def _without(operator: Operator[Any], window: str) -> tuple[Operator[Any], Operator[Any]] | None:
    """The operator that reads the image of a function, and the function as a point operator. None if the window is not
    read in one costly function everywhere."""
    source = operator.source
    tree = copy.deepcopy(source.tree)
    (argument,) = (each for each in (*tree.args.posonlyargs, *tree.args.args) if each.arg == window)
    if not isinstance(argument.annotation, ast.Subscript):
        return None
    calls = _calls(tree, window, operator.scope)
    if not calls or len({ast.unparse(_of_pixel(call, window)) for call in calls}) != 1:
        return None
    reads = {id(call): _read(call, window) for call in calls}
    body = _of_pixel(calls[0], window)
    tree = _Replace(reads).visit(tree)
    made = ast.parse(f"def {operator.name}_{window}({_PIXEL}): return 0").body[0]
    assert isinstance(made, ast.FunctionDef)
    for each in ast.walk(made):
        ast.copy_location(each, calls[0])
    made.args.args[0].annotation = copy.deepcopy(argument.annotation.slice)
    made.returns = copy.deepcopy(argument.annotation.slice)
    made.body = [ast.copy_location(ast.Return(body), body)]
    rest: Operator[Any] = _operator(operator, "local", tree)
    return rest, _operator(operator, "point", made)


def _operator(operator: Operator[Any], kind: str, tree: ast.FunctionDef) -> Operator[Any]:
    """The operator of another tree in the same file."""
    before = operator.source
    source = FunctionSource(before.file, before.first_line, before.lines, before.indent, tree)
    windows = operator.windows if kind == "local" else ()
    return Operator(kind, source, operator.scope, windows, operator.function, operator.names)


def _calls(tree: ast.FunctionDef, window: str, scope: Scope) -> list[ast.Call]:
    """The outermost costly function around each read of a window; none if there is a read without one."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {each.arg for each in (*tree.args.posonlyargs, *tree.args.args)}
    if _PIXEL in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        return []
    found: list[ast.Call] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == window:
            call = _costly_around(parents[node], parents, own, scope)
            if call is None:
                return []
            found.append(call)
    return found


def _costly_around(read: ast.AST, parents: Mapping[ast.AST, ast.AST], own: set[str], scope: Scope) -> ast.Call | None:
    """The outermost costly function of which a read is the only argument that is not constant."""
    if not isinstance(read, ast.Subscript):
        return None
    at: ast.expr = read
    found: ast.Call | None = None
    while True:
        parent = parents[at]
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub | ast.UAdd):
            at = parent
        elif isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            if not _is_constant(parent.right if parent.left is at else parent.left, own, scope):
                return found
            at = parent
        elif isinstance(parent, ast.Call) and at in parent.args and not parent.keywords:
            name = _function_of(parent, own, scope)
            others = [each for each in parent.args if each is not at]
            if not name or not all(_is_constant(each, own, scope) for each in others):
                return found
            found = parent if instructions_of_function(name) >= _COSTLY else found
            at = parent
        else:
            return found


def _function_of(call: ast.Call, own: set[str], scope: Scope) -> str:
    """The name of a function of the kernel language whose result has the type of its arguments. Empty for others."""
    found = scope.resolve(call.func, own)
    if found is min or found is max or found is abs:
        return found.__name__
    name = getattr(found, "name", "")
    row = INTRINSICS.get(name) if isinstance(name, str) else None
    return name if row is not None and row is found and row.rule == "math" else ""


def _is_constant(node: ast.expr, own: set[str], scope: Scope) -> bool:
    """Whether an expression is made of numbers, and of names of the module that are numbers."""
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Name | ast.Attribute):
        return type(scope.resolve(node, own)) in (int, float)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.UAdd) and _is_constant(node.operand, own, scope)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        return _is_constant(node.left, own, scope) and _is_constant(node.right, own, scope)
    return False


def _read(call: ast.Call, window: str) -> ast.Subscript:
    """The read of the window in a function of it."""
    (found,) = (
        node
        for node in ast.walk(call)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == window
    )
    return found


def _of_pixel(call: ast.Call, window: str) -> ast.expr:
    """A copy of a function of a read, as a function of the pixel."""
    made = copy.deepcopy(call)
    read = _read(made, window)
    return _Replace({id(read): ast.copy_location(ast.Name(_PIXEL, ast.Load()), read)}).visit(made)


class _Replace(ast.NodeTransformer):
    """Replaces nodes, which are given by their identity."""

    def __init__(self, by: Mapping[int, ast.expr]) -> None:
        self.by = by

    def visit(self, node: ast.AST) -> Any:
        found = self.by.get(id(node))
        return self.generic_visit(node) if found is None else found
