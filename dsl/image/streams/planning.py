"""Plans of how a lowered pipeline runs, and the choice between them by the model.

- ``stream``: launches one after the other in a stream.
- ``chain``: a CUDA graph in which each launch waits for the one before it. Launches take less time than in a stream,
  and no launch waits for an event of another branch.
- ``branches``: a CUDA graph whose edges are the dependences.
- ``fine chain``: a CUDA graph with these edges, in which launches that fill all multiprocessors also follow each
  other. Fine levels of a pyramid run one after the other, coarse ones beside them.
- ``pipelined``: a CUDA graph in the order of kernel pipelining (`pipelining`), in which kernels with complementary use
  of resources run at a time. It only exists if there are such kernels.

Buffers of intermediate images share memory if that makes the estimate at most `MOST_SLOWER` longer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod
from typing import TYPE_CHECKING, TypeAlias

from ....arch import architecture
from ...errors import DslError
from ..fusion.cost import cost_of
from ..fusion.machine import Machine, machine_here
from ..groups import Group
from ..lowered import Launch, Lowered
from .cache import seconds_of_misses
from .dependences import Edge, Step, dependences, reduced, steps_of
from .memory import Sharing, bytes_of, problems, share, unshared
from .model import KernelTime, Timeline, graph_time, pipelined_time, serial_edges, stream_time
from .pipelining import Usage, pipelined, usage_of

if TYPE_CHECKING:
    from ....toolchain.cubin import KernelCode

__all__ = [
    "EXECUTIONS",
    "MODES",
    "PIPELINED",
    "ExecutionPlan",
    "Resident",
    "UsageOf",
    "by_resources",
    "by_threads",
    "plan_execution",
    "usage_by",
]

#: What a user chooses. ``graph`` is the best of the graphs, ``auto`` the best of all modes. ``pipelined`` is kernel
#: pipelining, if the pipeline has complementary kernels.
EXECUTIONS = ("stream", "graph", "auto", "pipelined")

#: What the model chooses from.
MODES = ("stream", "chain", "branches", "fine chain")

#: The mode of kernel pipelining, which only some pipelines have.
PIPELINED = "pipelined"

#: By what share the estimate may grow so that buffers share memory.
MOST_SLOWER = 0.005

#: How many blocks of a launch a multiprocessor holds.
Resident: TypeAlias = "Callable[[Launch], int]"

#: The shares of a multiprocessor that a block of a launch takes.
UsageOf: TypeAlias = "Callable[[Launch], Usage]"


@dataclass(frozen=True)
class ExecutionPlan:
    """How the steps of a pipeline run. ``mode`` is one of `MODES`. ``sharing`` has the edges and the buffers.
    ``estimates`` are the seconds of each mode that was considered."""

    lowered: Lowered
    steps: tuple[Step, ...]
    mode: str
    sharing: Sharing
    kernels: tuple[KernelTime, ...]
    estimates: Mapping[str, float]
    machine: Machine

    @property
    def edges(self) -> frozenset[Edge]:
        """All pairs of steps of which the second one waits for the first one."""
        return self.sharing.edges

    @property
    def is_graph(self) -> bool:
        """Whether it runs as a CUDA graph."""
        return self.mode != "stream"

    @property
    def timeline(self) -> Timeline:
        """When the steps run, if they run as a graph."""
        return graph_time(self.kernels, self.edges, self.machine)

    def order(self, seed: int | None = None) -> list[int]:
        """An order in which the steps can run: that of their numbers, or a random one."""
        if seed is None:
            return list(range(len(self.steps)))
        choose, order = random.Random(seed), list[int]()
        waiting = {number: {a for a, b in self.edges if b == number} for number in range(len(self.steps))}
        while waiting:
            ready = choose.choice(sorted(number for number, before in waiting.items() if not before))
            order.append(ready)
            del waiting[ready]
            for before in waiting.values():
                before.discard(ready)
        return order

    def check(self) -> None:
        """Raise `DslError` if two steps may use the same memory at a time although one of them writes it."""
        for problem in problems(self.steps, self.sharing):
            raise DslError(f"{self.lowered.graph.name}: {problem}")

    def __str__(self) -> str:
        times = ", ".join(f"{name} {seconds * 1e6:.2f} us" for name, seconds in self.estimates.items())
        whole = sum(bytes_of(image) for image in self.lowered.buffers)
        lines = [
            f"execution: {self.mode} (estimates: {times}; {self.machine.name})",
            f"  buffers: {len(self.sharing.slots)} for {len(self.sharing.slot_of)} images, "
            f"{self.sharing.bytes / 1e6:.3g} of {whole / 1e6:.3g} MB",
        ]
        timeline = self.timeline
        for number, (step, kernel) in enumerate(zip(self.steps, self.kernels, strict=True)):
            before = sorted(a for a, b in self.edges if b == number)
            extra = sorted(a for a, b in self.sharing.added if b == number)
            waits = f"after {', '.join(map(str, before))}" if before else "at once"
            waits += f" ({', '.join(map(str, extra))} for memory)" if extra else ""
            slots = [f"buffer {self.sharing.slot_of[im]}" for im in step.writes if im in self.sharing.slot_of]
            shares = f"{kernel.waves(self.machine)} waves, tail {kernel.tail(self.machine):.2f}"
            lines.append(
                f"  {number}: {step.name}, {waits}; {timeline.begins[number] * 1e6:.2f} to "
                f"{timeline.ends[number] * 1e6:.2f} us, {shares}{''.join(f', {slot}' for slot in slots)}"
            )
        return "\n".join(lines)


def by_threads(launch: Launch) -> int:
    """How many blocks fit on a multiprocessor if only threads limit them."""
    return max(1, 2048 // prod(launch.block))


def by_resources(ptx: Mapping[str, str]) -> Resident:
    """How many blocks fit by registers, shared memory and threads (equation 4.1), from the PTX of each kernel by its
    name. Raises what ptxas raises."""
    from ....toolchain.occupancy import occupancy

    def resident(launch: Launch) -> int:
        code = _machine_code(launch, ptx)
        found = occupancy(code.sm, prod(launch.block), code.registers, code.shared_bytes)
        return found.blocks if found is not None else by_threads(launch)

    return resident


def usage_by(ptx: Mapping[str, str]) -> UsageOf:
    """The shares of a multiprocessor that a block takes, from the PTX of each kernel by its name. Raises what ptxas
    raises, and `DslError` for an architecture whose limits are not known."""

    def usage(launch: Launch) -> Usage:
        code = _machine_code(launch, ptx)
        machine = architecture(code.sm)
        if machine is None:
            raise DslError(f"the limits of sm_{code.sm} are not known")
        return usage_of(prod(launch.block), code.registers, code.shared_bytes, machine)

    return usage


def _machine_code(launch: Launch, ptx: Mapping[str, str]) -> KernelCode:
    from ....toolchain.cubin import read_cubin
    from ....toolchain.cubin_cache import assemble_kept
    from ....toolchain.tools import arch_for

    text = ptx[launch.kernel.name]
    (code,) = read_cubin(assemble_kept(text, arch_for(text)).cubin).values()
    return code


def plan_execution(
    lowered: Lowered,
    execution: str = "auto",
    resident: Resident = by_threads,
    machine: Machine | None = None,
    usage: UsageOf | None = None,
) -> ExecutionPlan:
    """The plan with the least estimate among the modes that ``execution`` allows (`EXECUTIONS`, or one of `MODES`).
    Without ``usage``, no kernels are known to be complementary. Raises `DslError` if the mode does not exist."""
    machine = machine or machine_here()
    steps = steps_of(lowered)
    edges = dependences(steps)
    kernels = tuple(
        _time_of(lowered, step, resident, machine, missed)
        for step, missed in zip(steps, seconds_of_misses(steps, machine), strict=True)
    )
    serial = serial_edges(len(steps))
    full = [number for number, kernel in enumerate(kernels) if kernel.share(machine) >= 1]
    edges_of = {
        "stream": serial,
        "chain": serial,
        "branches": edges,
        "fine chain": reduced(len(steps), edges | set(pairwise(full))),
    }
    estimates = {name: graph_time(kernels, each, machine).seconds for name, each in edges_of.items()}
    estimates["stream"] = stream_time(kernels, machine)
    # On a tie, the mode with the fewest edges between branches.
    allowed = _allowed(execution)
    if PIPELINED in allowed and usage is not None:
        usages = [usage(step.launch) if step.launch is not None else Usage(0, 0, 0) for step in steps]
        made = pipelined(usages, edges)
        if made is None and execution == PIPELINED:
            raise DslError(_not_complementary(lowered, steps, usages))
        if made is not None:
            order, edges_of[PIPELINED] = made
            estimates[PIPELINED] = pipelined_time([kernels[at] for at in order], edges_of[PIPELINED], machine)
            if min(allowed, key=lambda name: estimates.get(name, inf)) == PIPELINED:
                steps, kernels = tuple(steps[at] for at in order), tuple(kernels[at] for at in order)
                edges_of = {PIPELINED: edges_of[PIPELINED]}
    elif execution == PIPELINED:
        raise DslError(f"{lowered.graph.name}: kernel pipelining needs the resources of kernels, from their PTX")
    allowed = tuple(name for name in allowed if name in edges_of)
    mode = min(allowed, key=lambda name: (round(estimates[name] * 1e9), list(edges_of).index(name)))
    return ExecutionPlan(
        lowered, steps, mode, _shared(lowered, steps, edges_of[mode], kernels, machine), kernels, estimates, machine
    )


def _not_complementary(lowered: Lowered, steps: tuple[Step, ...], usages: Sequence[Usage]) -> str:
    """Why there is no kernel pipelining."""
    _, name = max((usage.dominant, step.name) for step, usage in zip(steps, usages, strict=True))
    number = [step.name for step in steps].index(name)
    return (
        f"{lowered.graph.name} has no kernels with complementary resources: pipelining needs kernels that do not need "
        "each other, of which a block takes more than half of a multiprocessor, and whose blocks fit together. "
        f"The largest block is that of {name}, with {usages[number]}"
    )


def _allowed(execution: str) -> tuple[str, ...]:
    if execution == "auto":
        return (*MODES, PIPELINED)
    if execution == "graph":
        return (*MODES[1:], PIPELINED)
    if execution in (*MODES, PIPELINED):
        return (execution,)
    raise DslError(f"there is no execution {execution!r}; there are {', '.join(EXECUTIONS)}")


def _shared(
    lowered: Lowered, steps: tuple[Step, ...], edges: frozenset[Edge], kernels: tuple[KernelTime, ...], machine: Machine
) -> Sharing:
    """The buffers that share memory. An edge for it is added if the estimate hardly grows."""
    most = graph_time(kernels, edges, machine).seconds * (1 + MOST_SLOWER)

    def accept(before: frozenset[Edge], more: frozenset[Edge]) -> bool:
        return graph_time(kernels, reduced(len(steps), before | more), machine).seconds <= most

    made = share(lowered, steps, edges, accept)
    return made if made.bytes < unshared(lowered, edges).bytes else unshared(lowered, edges)


def _time_of(lowered: Lowered, step: Step, resident: Resident, machine: Machine, missed: float) -> KernelTime:
    """The time of a step. ``missed`` are the seconds that images take which are no longer in the cache."""
    launch = step.launch
    if launch is None:
        return KernelTime(0.0, 1, 1)
    group = Group(lowered.graph, launch.nodes, launch.tiled, launch.block, launch.pixels)
    blocks = int(launch.grid[0]) * int(launch.grid[1])
    seconds = cost_of(group, lowered.options, machine).seconds - machine.node + missed
    return KernelTime(seconds, blocks, max(1, resident(launch)))
