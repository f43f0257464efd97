"""Plans in which kernels compute a point operator again, instead of reading its image.

An image that several kernels read is written once and read by each of them. A point operator costs few instructions, so
where its kernel waits for memory, each reader may as well compute it from its inputs. `with_points_copied` tries that
for each such operator of a plan, in the order of the graph, and keeps what is faster by the model.

Source: Mullapudi et al., and the greedy search of `greedy`, inline such operators before they search.
"""

from __future__ import annotations

from collections.abc import Callable

from ..fusion.point_copies import name_of_copy, with_copies
from ..groups import Plan
from ..lowered import Options
from .counted import Work
from .dynamic import Chooser
from .members import Members
from .work import work_of

__all__ = ["with_points_copied"]


def with_points_copied(plan: Plan, options: Options, cost: Callable[[Work], float]) -> Plan:
    """The plan with copies of point operators, where these are expected to make it faster."""
    best, least = plan, _total(plan, options, cost)
    for name in [node.name for node in plan.graph.nodes if node.operator.kind == "point"]:
        changed = _copied(best, name, options, cost)
        taken = _total(changed, options, cost) if changed is not None else least
        if changed is not None and taken < least:
            best, least = changed, taken
    return best


def _total(plan: Plan, options: Options, cost: Callable[[Work], float]) -> float:
    return sum(cost(work_of(Members(plan.graph, group.nodes, options), group)) for group in plan.groups)


def _copied(plan: Plan, name: str, options: Options, cost: Callable[[Work], float]) -> Plan | None:
    """The plan in which the readers of a point operator compute it. None if it has no image, one reader, or cannot be
    copied."""
    node = next(each for each in plan.graph.nodes if each.name == name)
    readers = plan.graph.consumers(node)
    if len(readers) < 2 or not any(node in group.stored for group in plan.groups):
        return None
    graph = with_copies(plan.graph, name)
    if graph is plan.graph:
        return None
    number = {each.name: at for at, each in enumerate(graph.nodes)}
    partition: list[frozenset[int]] = []
    for group in plan.groups:
        names = {each.name for each in group.nodes if each is not node}
        names |= {name_of_copy(node, reader) for reader in readers if reader in group.nodes}
        partition += [frozenset(number[each] for each in names)] if names else []
    chooser = Chooser(graph, options, cost)
    if any(chooser.best(block) is None for block in partition):
        return None
    return chooser.plan(tuple(partition))[0]
