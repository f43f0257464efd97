"""The number of machine instructions by class and by loop depth, from the bytes of the code.

nvdisasm needs half a second to start, several times as long as ptxas needs for a typical kernel. That is too long for
the gate, which reads two cubins for each file. This module decodes only the operation, the guard, and the target of a
branch.

    bits 0–8  operation    bits 12–15  guard: predicate, negation; 7 is "always"
    branch    offset from the next instruction, in units of 4 bytes: bits 34–81, on sm_90 and newer below them the
              eight bits 16–23

A loop is a strongly connected component of the control-flow graph, not the range between a branch and its target. ptxas
moves slow paths after the end of the kernel; these branch back without being loops. The depth is computed as in Havlak
(ACM TOPLAS 19(4), 1997): remove the edges to the header of a component, and search for components in the rest.
A called function has the depth of its deepest call.

Requires: code for sm_75 or newer, of whole 16-byte instructions. The caller gives the targets of indirect branches; a
branch without targets is taken as an exit.
Guarantees: the time is linear in the number of instructions, times the depth of loops. Padding after the last
instruction is not counted.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..cost import TRIPS
from ..graphs import strongly_connected_components
from .machine_ops import kinds, names
from .repeated_loads import repeated_loads
from .warp_schedule import alone, by_block, exposed, fetched, looped, pieces, quickest

#: The size of an instruction in bytes.
SIZE = 16

_BSYNC, _CALL_ABS, _CALL, _BSSY, _BRA, _WARPSYNC = 0x141, 0x143, 0x144, 0x145, 0x147, 0x148
_BRX, _BRXU, _JMP, _JMX, _JMXU, _EXIT, _RET, _KILL, _NOP = 0x149, 0x158, 0x14A, 0x14C, 0x159, 0x14D, 0x150, 0x15B, 0x118
_LEAVE = frozenset((_BRX, _BRXU, _JMX, _JMXU, _JMP, _EXIT, _RET, _KILL))
_CONTROL = _LEAVE | {_BRA, _CALL, _CALL_ABS, _BSYNC, _BSSY, _WARPSYNC}

#: The classes of instructions that the load/store unit executes.
REQUESTS = (
    *("load_global", "store_global", "load_shared", "store_shared", "load_local", "store_local"),
    *("load_generic", "store_generic", "atomic"),
)

#: Bits 0–11 of a branch without a guard by a uniform predicate, and of a WARPSYNC with a target.
_PLAIN_BRA, _COLLECTIVE = 0x947, 0x348


@dataclass(frozen=True, slots=True)
class Code:
    """The bytes of one function, and facts that are in its cubin only.

    `indirect[offset]` are the targets of the indirect branch at an offset, and `calls[offset]` is the function that the
    call at an offset calls.
    """

    data: bytes
    indirect: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])
    calls: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class MachineCounts:
    """`by_depth[d]` counts the instructions inside exactly `d` loops, by class.

    `called` counts those of them that only a call reaches, such as the rare cases of divisions. `loops` is the number
    of loops, including nested ones, `unknown` that of instructions without a name in `machine_ops`, `instructions` that
    of all instructions without padding. `cycles` are those of one warp alone, `exposed` is the latency of global loads
    that it waits for, `cached` are the cycles if each load of the same address in all iterations of a loop misses the
    caches in the first one only, `looped` are the cycles in loops, and `quickest` those on the shortest ways through
    them; `fetched` are those in which it waits in loops for instructions; `pieces` are those of the code between
    barriers (`warp_schedule`).
    """

    instructions: int
    by_depth: tuple[Mapping[str, int], ...]
    loops: int
    unknown: int
    cycles: float
    exposed: float
    cached: float
    looped: float
    quickest: float
    fetched: float
    called: tuple[Mapping[str, int], ...]
    pieces: tuple[tuple[float, float, float], ...] = ()


def count(functions: Mapping[str, Code], entry: str, sm: int) -> MachineCounts:
    """Count the instructions of `entry` and of every function that it calls, each once.

    Raises `ValueError` if the code of one does not consist of whole instructions.
    """
    program = _link(functions, entry, sm)
    graph = _graph(program, sm)
    depth, loops = _depths(graph.successors)
    _deepen_callees(graph, depth)
    table = kinds(sm)
    unknown = sum(op not in table for op in program.ops)
    classes = [table.get(op, "other") for op in program.ops]
    by_depth: list[Counter[str]] = [Counter() for _ in range(max(depth, default=0) + 1)]
    called: list[Counter[str]] = [Counter() for _ in by_depth]
    own = _reachable(graph.successors, 0) if graph.blocks else set[int]()
    bodies = {block for _, callee in graph.calls for block in _reachable(graph.successors, callee)} - own
    for block, (start, end) in enumerate(graph.blocks):
        by_depth[depth[block]].update(classes[start:end])
        if block in bodies:
            called[depth[block]].update(classes[start:end])
    of_blocks = by_block(program.words, classes, graph.blocks, graph.successors, depth)
    cycles = sum(of_blocks)
    waits = exposed(cycles, program.words, classes, graph.blocks, graph.successors, depth)
    cached = _cached(program, sm, classes, graph, depth, cycles)
    inside = looped(of_blocks, depth)
    least = quickest(of_blocks, graph.successors, depth)
    lines = fetched(graph.blocks, graph.successors, depth, program.starts)
    counted, in_calls = (tuple(dict(sorted(each.items())) for each in sums) for sums in (by_depth, called))
    apart = pieces(program.words, classes, graph.blocks, graph.successors, depth, REQUESTS)
    return MachineCounts(
        len(program.ops), counted, loops, unknown, cycles, waits, cached, inside, least, lines, in_calls, apart
    )


def _cached(
    program: _Program, sm: int, classes: Sequence[str], graph: _Graph, depth: Sequence[int], cycles: float
) -> float:
    """The cycles if loads of the same address in all iterations of a loop miss the caches in the first one only."""
    of_ops = names(sm)
    uniform = [_writes_uniform(of_ops.get(op, "")) for op in program.ops]
    hits = repeated_loads(program.words, classes, uniform, graph.blocks, graph.successors, depth)
    if not hits:
        return cycles
    of_hits = list(classes)
    for place in hits:
        of_hits[place] = "load_local"  # whose latency is that of the first-level cache
    hit = alone(program.words, of_hits, graph.blocks, graph.successors, depth)
    return hit + (cycles - hit) / TRIPS


def _writes_uniform(name: str) -> bool:
    return name.startswith("U") or name in ("R2UR", "S2UR", "CS2UR", "VOTEU", "LDCU")


@dataclass(slots=True)
class _Program:
    """All functions, one after the other. A *place* is the number of an instruction in this sequence."""

    words: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    ops: list[int] = field(default_factory=list[int])
    starts: list[int] = field(default_factory=list[int])
    indirect: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    calls: dict[int, int] = field(default_factory=dict[int, int])


def _link(functions: Mapping[str, Code], entry: str, sm: int) -> _Program:
    program = _Program()
    place: dict[str, int] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in place:
            continue
        base = place[name] = len(program.words)
        code = functions[name]
        words = _without_padding(list(struct.iter_unpack("<QQ", _whole(name, code.data))), sm)
        program.starts.append(base)
        program.words += words
        program.ops += [low & 0x1FF for low, _ in words]
        for offset, targets in code.indirect.items():
            program.indirect[base + offset // SIZE] = [base + target // SIZE for target in targets]
        waiting += [callee for callee in code.calls.values() if callee in functions]
    for name, base in place.items():
        for offset, callee in functions[name].calls.items():
            if callee in place:
                program.calls[base + offset // SIZE] = place[callee]
    return program


def _whole(name: str, data: bytes) -> bytes:
    if len(data) % SIZE:
        raise ValueError(f"the code of {name} is {len(data)} bytes, not a multiple of {SIZE}")
    return data


def _without_padding(words: list[tuple[int, int]], sm: int) -> list[tuple[int, int]]:
    """ptxas ends a function with a branch to itself, then NOPs up to the alignment, of which there may be none."""
    end = len(words)
    while end and words[end - 1][0] & 0x1FF == _NOP:
        end -= 1
    if end and _is_always(*words[end - 1]) and _target(end - 1, *words[end - 1], sm) == end - 1:
        end -= 1
    return words[:end]


def _is_always(low: int, high: int) -> bool:
    """Whether a plain branch is taken by all threads: guard and second predicate true, no .DIV, no .CONV."""
    return low >> 12 & 0xF == 7 and low & 0xFFF == _PLAIN_BRA and high >> 23 & 0x1F == 7 and low >> 32 & 3 == 0


def _target(place: int, low: int, high: int, sm: int) -> int:
    offset = ((high & 0x3FFFF) << 30) | (low >> 34)
    bits = 48
    if sm >= 90:
        offset, bits = offset << 8 | (low >> 16 & 0xFF), 56
    if offset >> (bits - 1):
        offset -= 1 << bits
    return place + 1 + offset * 4 // SIZE


def _reconvergence(place: int, low: int) -> int:
    """The place at which the threads of a BSSY reconverge. Its immediate is in bytes, in bits 32–63 on all
    architectures."""
    offset = low >> 32
    return place + 1 + (offset - (1 << 32) if offset >> 31 else offset) // SIZE


@dataclass(slots=True)
class _Graph:
    """Basic blocks as ranges of places, their successors by number, and pairs (calling block, called block)."""

    blocks: list[tuple[int, int]]
    successors: list[list[int]]
    calls: list[tuple[int, int]]


def _graph(program: _Program, sm: int) -> _Graph:
    size = len(program.ops)
    edges: dict[int, list[int]] = {}
    calls: dict[int, int] = dict(program.calls)
    meeting: dict[int, list[int]] = {}
    control = [place for place, op in enumerate(program.ops) if op in _CONTROL]
    for place in control:
        low, high = program.words[place]
        if program.ops[place] == _BSSY:
            meeting.setdefault(low >> 16 & 0xF, []).append(_reconvergence(place, low))
    for place in control:
        low, high = program.words[place]
        op = program.ops[place]
        after = [place + 1]
        if op == _BRA:
            target = _target(place, low, high, sm)
            edges[place] = [target] if _is_always(low, high) else [target, *after]
        elif op == _CALL and place not in calls:
            calls[place] = _target(place, low, high, sm)
            edges[place] = after
        elif op == _WARPSYNC and low & 0xFFF == _COLLECTIVE:
            edges[place] = [_target(place, low, high, sm), *after]
        elif op == _BSYNC:
            # Several regions may use one barrier register. If one of them ends right here, this is its end.
            places = meeting.get(low >> 16 & 0xF, [])
            edges[place] = after if place in places or place + 1 in places else after + places
        elif op in _LEAVE:
            edges[place] = program.indirect.get(place, []) + (after if low >> 12 & 0xF != 7 else [])
        elif op in (_CALL, _CALL_ABS):
            edges[place] = after
    leaders = {0, *program.starts, *(place + 1 for place in edges), *calls.values()}
    leaders.update(target for targets in edges.values() for target in targets)
    starts = sorted(leader for leader in leaders if 0 <= leader < size)
    number = {start: block for block, start in enumerate(starts)}
    blocks = list(zip(starts, [*starts[1:], size], strict=True))
    successors = [[number[t] for t in edges.get(end - 1, (end,)) if t in number] for _, end in blocks]
    block_of = {end - 1: block for block, (_, end) in enumerate(blocks)}
    pairs = [(block_of[place], number[target]) for place, target in calls.items() if target in number]
    return _Graph(blocks, successors, pairs)


def _depths(successors: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """The number of loops around each block, and the number of loops."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for block, after in enumerate(successors):
        for successor in after:
            predecessors[successor].append(block)
    depth = [0] * len(successors)
    loops = 0
    waiting: list[tuple[list[int], int]] = [(list(range(len(successors))), -1)]
    while waiting:
        inside, header = waiting.pop()
        within = set(inside)
        # Without the edges to the header of a loop, the cycles that remain in it are nested loops.
        graph = {b: [s for s in successors[b] if s in within and s != header] for b in inside}
        for part in strongly_connected_components(graph, inside):
            if len(part) == 1 and part[0] not in graph[part[0]]:
                continue
            loops += 1
            for block in part:
                depth[block] += 1
            waiting.append((part, _header(part, predecessors)))
    return depth, loops


def _header(part: Sequence[int], predecessors: Sequence[Sequence[int]]) -> int:
    """The first block of a loop that is entered from outside; if there is none, the first block of the loop."""
    within = set(part)
    entered = [block for block in part if any(before not in within for before in predecessors[block])]
    return min(entered or part)


def _deepen_callees(graph: _Graph, depth: list[int]) -> None:
    """Add to each called function the depth of its deepest call. With recursion, this ends after as many rounds as
    there are calls."""
    bodies = {callee: _reachable(graph.successors, callee) for _, callee in graph.calls}
    own = list(depth)
    added = dict.fromkeys(bodies, 0)
    for _ in graph.calls:
        before = dict(added)
        for caller, callee in graph.calls:
            added[callee] = max(added[callee], depth[caller])
        extra: dict[int, int] = {}
        for callee, body in bodies.items():
            for block in body:
                extra[block] = max(extra.get(block, 0), added[callee])
        for block, deeper in extra.items():
            depth[block] = own[block] + deeper
        if added == before:
            break


def _reachable(successors: Sequence[Sequence[int]], start: int) -> set[int]:
    reached = {start}
    waiting = [start]
    while waiting:
        for after in successors[waiting.pop()]:
            if after not in reached:
                reached.add(after)
                waiting.append(after)
    return reached
