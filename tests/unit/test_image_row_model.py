"""What the model of time counts for rows of a thread that read the same row of a coarser image."""

from fractions import Fraction
from typing import Any

from ptxmotion.dsl import f32, types
from ptxmotion.dsl.image import Accessor, Boundary, Options, graph_of, operator_from_text
from ptxmotion.dsl.image.fusion.row_operations import operations_of_rows
from ptxmotion.dsl.image.groups import Group
from ptxmotion.dsl.image.operators import InputImage, Node
from ptxmotion.dsl.image.schedule.known import KnownMembers
from ptxmotion.dsl.image.tiling.rows import sharing_nodes

CLAMP = Boundary.CLAMP


def up(name: str) -> Any:
    return operator_from_text(f"def {name}(a: f32, c: f32) -> f32:\n    return a + c * 2.0\n", {"f32": f32})


def loads(*nodes: Node[Any]) -> float:
    """The pixels that a thread with 8 rows loads."""
    inputs = {access.image: None for node in nodes for access in node.accesses if isinstance(access.image, InputImage)}
    graph = graph_of("rows", list(nodes), list(inputs))
    group = Group(graph, nodes, pixels=(1, 8))
    members = KnownMembers(graph, Options()).of(nodes)
    return members.counts(group.stored, frozenset(), group.pixels, fill=False, rows=sharing_nodes(group)).loads


def images() -> tuple[InputImage[Any], Accessor[Any]]:
    coarse: InputImage[Any] = InputImage("coarse", types.F32, 8, 8)
    return InputImage("src", types.F32, 64, 64), Accessor(coarse, CLAMP, scale=Fraction(1, 8))


def test_a_thread_loads_a_row_that_its_rows_share_once() -> None:
    src, coarse = images()
    one = up("one")(Accessor(src, CLAMP), coarse)
    assert loads(one) == 8 + 1
    other = up("other")(Accessor(src, CLAMP), coarse)
    assert loads(one, other) == 8 + 1


def test_pixels_that_are_far_share_nothing() -> None:
    """`one` is computed again at a fraction of the place of each pixel. There, its reads are other ones."""
    src, coarse = images()
    one, other = (up(name)(Accessor(src, CLAMP), coarse) for name in ("one", "other"))
    last = up("last")(Accessor(other, CLAMP), Accessor(one, CLAMP, scale=Fraction(1, 3)))
    assert loads(one, other, last) == (8 + 1) + 8 * 2
    # Two rows of `last` read the same row of `one`.
    last = up("last")(Accessor(other, CLAMP), Accessor(one, CLAMP, scale=Fraction(1, 2)))
    assert loads(one, other, last) == (8 + 1) + 4 * 2


def test_operations_that_depend_on_the_row_are_not_shared() -> None:
    text = """def mixed(a: f32, c: f32) -> f32:
    twice = c * 2.0 + 1.0
    own = a * twice
    if a > 0.0:
        twice = twice + a
    return own + c * c
"""
    operator = operator_from_text(text, {"f32": f32})
    assert operations_of_rows(operator, frozenset({"c"})).alu == 3
    assert operations_of_rows(operator, frozenset[str]()).alu == 0
