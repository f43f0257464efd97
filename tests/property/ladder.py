"""Checks that every transform must pass: verifier, ptxas, emulator before and after, counts, branches.

    ladder = Ladder(ptx, launch)              the original kernel: run once for each seed of inputs
    ladder.faults("lcm:min_cost=0")       the faults after these passes; empty if there are none

The first check that fails is reported:

1. After each pass the verifier accepts the kernel, and printing, parsing and printing again changes nothing.

2. ptxas accepts the kernel (only if requested, because it takes longer than all other checks).

3. On the emulator, every array argument holds the same bytes, the same lines are printed, and there is no new finding:
out of bounds, unset registers or memory, races, barriers.

4. Effects run as often as before: writes of memory, atomics, fences, barriers. A thread with a false guard writes
nothing, so a pass may remove its store. If the passes promise it, no thread loads or
evaluates more (`KEEPS_PATHS`), or no warp (`KEEPS_WARPS`), or no thread or warp loads more (`KEEPS_LOADS`,
`KEEPS_WARP_LOADS`).

5. No branch that is reported as uniform diverged, before or after. (Not with a random schedule: it lets lanes run past
the point where they would reconverge, so a warp may be in two iterations of a loop at once.)

`reduced` removes lines of a program while it keeps failing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from ptxmotion.analysis.manager import Facts
from ptxmotion.analysis.memory.alias import Promise
from ptxmotion.emulator import Emulator, EmulatorError, InstanceJudge, Surface
from ptxmotion.emulator.counts import Counts
from ptxmotion.emulator.trace import SPACES
from ptxmotion.ptx import Instr, Kernel, Module, PtxError, parse, print_module
from ptxmotion.ptx.operations import EXITS
from ptxmotion.ptx.verify import problems
from ptxmotion.toolchain.tools import PtxasError, assemble
from ptxmotion.transforms.passes import passes_of
from ptxmotion.transforms.pipeline import PassFailed, run_passes
from random_programs import RandomProgram

__all__ = [
    "KEEPS_LOADS",
    "KEEPS_PATHS",
    "KEEPS_WARPS",
    "KEEPS_WARP_LOADS",
    "Ladder",
    "Launch",
    "Run",
    "launch_of",
    "reduced",
    "refused",
    "run",
    "shortest_failure",
    "transformed",
]

Array: TypeAlias = npt.NDArray[Any]

#: Passes after which no thread evaluates or loads more than before.
KEEPS_PATHS = frozenset(["cse", "copyprop", "dce", "emptyblocks", "lcm", "scm"])

#: Passes after which no warp evaluates more, if every divergent branch separated its lanes.
KEEPS_WARPS = KEEPS_PATHS | {"sscm"}

#: Passes after which no single thread loads more than before, unless an option allows it.
KEEPS_LOADS = KEEPS_PATHS | {"srqp", "esrqp", "vectormerge", "readonly", "deadstores", "earlyloads"}
_LAX = ("paper=true", "readable=true")

#: Passes after which no warp loads more in total, if every divergent branch separated its lanes.
#: A load that `earlyloads` has moved is issued by a warp of which no lane executes it.
KEEPS_WARP_LOADS = (KEEPS_LOADS - {"earlyloads"}) | {"ssrqp", "sscm"}

#: Passes that may remove stores.
DROPS_STORES = frozenset(["deadstores"])

#: Classes of the emulator's counts that are not evaluations: copies, jumps, and addresses of symbols.
_FREE = frozenset(["move", "control"])
_COUNTED = ("ld.global", "ld.generic", "ld.shared", "ld.local")
_MEMORY = ("ld.", "st.", "atom.", "red.", "ldu.")


@dataclass(frozen=True)
class Launch:
    """How to run a kernel; ``arguments(seed)`` makes new arguments."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    arguments: Callable[[int], list[Any]]


def launch_of(program: RandomProgram) -> Launch:
    return Launch(program.kernel, program.grid, program.block, program.shared, program.make_inputs)


@dataclass
class Run:
    """The result of one launch: the bytes of all arrays and images, printed lines, kinds of findings, counts, how often
    threads wrote each state space, the loads of global, shared and local memory by block and thread, and the lines and
    texts of the branches that separated lanes of one instance; or how it failed."""

    arrays: list[Array] = field(default_factory=list[Array])
    output: list[str] = field(default_factory=list[str])
    findings: list[str] = field(default_factory=list[str])
    details: list[str] = field(default_factory=list[str])
    counts: Counts = field(default_factory=Counts)
    writes: dict[str, int] = field(default_factory=dict[str, int])
    loads: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    parted: dict[int, str] = field(default_factory=dict[int, str])
    fault: str = ""


def run(ptx: str | Module, launch: Launch, seed: int, *, schedule: str = "order", budget: int = 200_000) -> Run:
    """Run the kernel on the emulator, with all checks. A module must be as it was parsed."""
    args = launch.arguments(seed)
    result = Run()
    module = parse(ptx) if isinstance(ptx, str) else ptx
    try:
        judge = InstanceJudge(loops_around)
        done = (
            Emulator(budget=budget)
            .load(module)
            .launch(
                launch.kernel,
                launch.grid,
                launch.block,
                args,
                launch.shared,
                schedule=schedule,
                seed=seed,
                judge=judge,
                trace=True,
            )
        )
    except EmulatorError as error:
        result.fault = f"{type(error).__name__}: {error}"
        return result
    written_to = [each.array if isinstance(each, Surface) else each for each in args]
    result.arrays = [cast("Array", each) for each in written_to if isinstance(each, np.ndarray)]
    result.output = sorted(done.output.splitlines())
    result.findings = sorted({finding.kind for finding in done.findings})
    result.details = [str(finding) for finding in done.findings]
    result.counts = done.counts
    assert done.trace is not None
    rows = done.trace.accesses
    written = np.bincount(rows["space"][rows["write"]], minlength=len(SPACES))
    result.writes = {space: int(count) for space, count in zip(SPACES, written, strict=True)}
    result.loads = _loads_by_thread(rows)
    own = frozenset(module.kernel(launch.kernel).instructions())
    result.parted = {module.source.line_column(each.pos)[0]: each.text for each in judge.parted if each in own}
    return result


def _loads_by_thread(rows: Array) -> dict[tuple[int, int], int]:
    """How many of the accesses ``rows`` each thread loads, by block and thread."""
    loads = rows[~rows["write"] & (rows["space"] <= SPACES.index("local"))]
    keys = loads["block"].astype(np.int64) << 16 | loads["thread"]
    counted = zip(*np.unique(keys, return_counts=True), strict=True)
    return {(int(key) >> 16, int(key) & 0xFFFF): int(count) for key, count in counted}


def loops_around(kernel: Kernel) -> list[list[int]]:
    """For each block, the headers of the loops around it, outermost first."""
    facts = Facts(kernel)
    return [[loop.header for loop in facts.loops.around(block)] for block in range(len(facts.cfg))]


def transformed(ptx: str, passes: str, promise: Promise | None = None) -> Module:
    """The module after ``passes``, verified after each. Raises `PassFailed`, and exceptions of a broken pass."""
    module = parse(ptx)
    run_passes(module, passes, verify_each=True, promise=promise)
    return module


class Ladder:
    """A kernel, and its behaviour before the passes. ``is_sound`` says whether it runs without a finding."""

    def __init__(self, ptx: str, launch: Launch, seeds: Sequence[int] = (0, 1), *, budget: int = 200_000) -> None:
        self.ptx = ptx
        self.launch = launch
        self.seeds = tuple(seeds)
        self.budget = budget
        self.module = parse(ptx)
        self.before = [run(self.module, launch, seed, budget=budget) for seed in self.seeds]

    @functools.cached_property
    def printed(self) -> str:
        """The original kernel as it is printed."""
        return print_module(self.module)

    @property
    def fault(self) -> str:
        """How the original kernel failed, if it did. Then there is nothing to compare."""
        return next((each.fault for each in self.before if each.fault), "")

    @property
    def is_sound(self) -> bool:
        return not any(each.fault or each.findings for each in self.before)

    def divergence_faults(self) -> list[str]:
        """Branches that are reported as uniform and diverged in the original kernel."""
        return [line for each in self.before for line in _wrongly_uniform(self.module, each)]

    def faults(
        self, passes: str, *, ptxas: bool = False, schedule: str = "order", promise: Promise | None = None
    ) -> list[str]:
        """The faults after the passes."""
        try:
            module = transformed(self.ptx, passes, promise)
        except PassFailed as error:
            return [f"verify: {error}"]
        names = frozenset(each.name for each in passes_of(passes))
        # a warp issues a guarded load even if no lane executes it
        if any(option in passes for option in (*_LAX, "guarded=true")):
            names |= {"lax"}
        keeps_loads = bool(names) and names - {"lax"} <= KEEPS_LOADS and not any(each in passes for each in _LAX)
        return self.judge(print_module(module), names, ptxas=ptxas, schedule=schedule, keeps_loads=keeps_loads)

    def judge(
        self,
        after: str,
        names: frozenset[str] = frozenset(),
        *,
        ptxas: bool = False,
        schedule: str = "order",
        keeps_loads: bool = False,
    ) -> list[str]:
        """The faults of ``after``, which the passes ``names`` made of the kernel. ``keeps_loads``: a thread that loads
        more often than before is a fault."""
        try:
            again = parse(after)
        except PtxError as error:
            return [f"parse: {error}"]
        if found := problems(again):
            return [f"verify what was printed: {found[0]}"]
        if print_module(again) != after:
            return ["print: what was printed prints differently once parsed"]
        if ptxas and (refusal := refused(after)):
            return [f"ptxas: {refusal}"]
        if after == self.printed:
            return []
        faults: list[str] = []
        for seed, before in zip(self.seeds, self.before, strict=True):
            ran = run(again, self.launch, seed, schedule=schedule, budget=2 * self.budget)
            found = list(self._compare(before, again, ran, schedule, names))
            if not found and keeps_loads:
                if schedule != "order":
                    ran = run(again, self.launch, seed, budget=2 * self.budget)
                found = [f"fault: {ran.fault}"] if ran.fault else list(_loads_more(before, ran))
            faults += [f"seed {seed}: {line}" for line in found]
        return faults

    def _always_diverged(self, counts: Counts) -> bool:
        """Whether each branch that is reported as divergent separated the lanes every time. Only then the warp takes
        both paths anyway. A guarded return is such a branch, too. The emulator does not count how often it separated
        lanes, so the answer is no for a program that has one."""
        if has_guarded_return(self.module):
            return False
        divergent = _branches(self.module, divergent=True)
        return all(
            branch.executed == branch.diverged for (_, line), branch in counts.branches.items() if line in divergent
        )

    def _compare(self, before: Run, module: Module, after: Run, schedule: str, names: frozenset[str]) -> Iterator[str]:
        if after.fault:
            yield f"fault: {after.fault}"
            return
        for number, (old, new) in enumerate(zip(before.arrays, after.arrays, strict=True)):
            places = np.flatnonzero(old.reshape(-1).view(np.uint8) != new.reshape(-1).view(np.uint8))
            if places.size:
                yield f"array {number}: {places.size} bytes differ, the first at byte {places[0]}"
        if before.output != after.output:
            yield "other lines are printed"
        if new_kinds := _of_one_kind(after.findings) - _of_one_kind(before.findings):
            yield f"new findings {sorted(new_kinds)}: {after.details[0]}"
        # Where lanes reconverge after a region with several exits depends on the order of the blocks. So one request of
        # a whole warp may be several requests of its parts before, after, or in neither version.
        whole = not any(branch.diverged for branch in before.counts.branches.values())
        by_warp = whole and schedule == "order"
        fewer = not names.isdisjoint(DROPS_STORES)
        yield from _effects_differ(before, after, by_warp=by_warp, may_drop_stores=fewer)
        if names and names <= KEEPS_PATHS:
            yield from _evaluates_more(before.counts, after.counts)
        elif names and names <= KEEPS_WARPS and schedule == "order" and self._always_diverged(before.counts):
            old, new = (evaluations(counts, by_warp=True) for counts in (before.counts, after.counts))
            if new > old:
                yield f"{new} evaluations by warps, not at most {old}, though every divergent branch diverged"
        if names and names <= KEEPS_WARP_LOADS and schedule == "order" and self._always_diverged(before.counts):
            old, new = (loads_of_warps(counts) for counts in (before.counts, after.counts))
            if new > old:
                yield f"{new} loads by warps, not at most {old}, though every divergent branch diverged"
        yield from _wrongly_uniform(module, after)


def loads_of_warps(counts: Counts) -> int:
    """Loads from global, shared and local memory that warps execute."""
    return sum(pair[0] for name, pair in counts.by_class.items() if name.startswith(_COUNTED))


def _of_one_kind(findings: Sequence[str]) -> set[str]:
    """The kinds of findings. Reads of memory that was never written are one kind, because a forwarded value is read
    from a register after the passes and from memory before."""
    return {"uninitialised" if kind.startswith("uninitialised") else kind for kind in findings}


def _branches(module: Module, *, divergent: bool) -> set[int]:
    """The lines of the branches with two targets, in kernels and functions, that are reported as divergent, or as
    uniform."""
    return {
        module.source.line_column(end.pos)[0]
        for kernel in module.kernels
        for end, is_divergent in _branches_of(Facts(kernel, module))
        if is_divergent == divergent
    }


def has_guarded_return(module: Module) -> bool:
    """Whether a kernel or function has a guarded ``ret`` or ``exit``."""
    return any(
        instr.guard is not None and instr.form.operation in EXITS
        for kernel in module.kernels
        for instr in kernel.instructions()
    )


def _branches_of(facts: Facts) -> Iterator[tuple[Instr, bool]]:
    """Each branch of the text with two targets, and whether it is reported as divergent."""
    for block in facts.cfg.rpo:
        end = facts.cfg.blocks[block].terminator
        # If both edges lead to one block, threads reconverge at once.
        if end is not None and end.pos >= 0 and len(set(facts.cfg.succ[block])) > 1:
            yield end, facts.divergence.is_divergent(block)


def refused(ptx: str, opt_level: int = 1) -> str:
    """The error message of ptxas for a module; the empty string if it accepts the module."""
    try:
        assemble(ptx, opt_level=opt_level)
    except PtxasError as error:
        return str(error)
    return ""


def _effects_differ(before: Run, after: Run, *, by_warp: bool, may_drop_stores: bool) -> Iterator[str]:
    """Counts of effects that must run exactly as often: by threads, and by warps if one schedule splits them in the
    same way."""
    for space, old in before.writes.items():
        new = after.writes[space]
        if old != new and not (may_drop_stores and new < old):
            yield f"{space} memory was written {new} times, not {old}"
    old, new = (each.counts.by_class.get("sync", [0, 0])[1] for each in (before, after))
    if old != new:
        yield f"sync ran {new} times, not {old}"
    for what in ("barriers", "atomics", *(("global_store_requests",) if by_warp else ())):
        old, new = getattr(before.counts, what), getattr(after.counts, what)
        if old != new and not (may_drop_stores and what == "global_store_requests" and new < old):
            yield f"{new} {what}, not {old}"


def evaluations(counts: Counts, *, by_warp: bool = False) -> int:
    """Instructions that compute a value from registers, without copies."""
    return sum(
        pair[0 if by_warp else 1]
        for name, pair in counts.by_class.items()
        if name not in _FREE and name != "sync" and not name.startswith(_MEMORY)
    )


def _loads_more(before: Run, after: Run) -> Iterator[str]:
    """The first thread that loads more often than before, and how many there are."""
    more = {thread: count for thread, count in after.loads.items() if count > before.loads.get(thread, 0)}
    for (block, thread), count in sorted(more.items())[:1]:
        which = f"{len(more)} threads, the first is {thread} of block {block}"
        yield f"{which}: {count} loads, not at most {before.loads.get((block, thread), 0)}"


def _evaluates_more(before: Counts, after: Counts) -> Iterator[str]:
    """What a thread did more often in total. Another opcode than before may compute a value, for example ``mad``
    instead of ``mul`` and ``add``, so evaluations are added up. Loads are counted for each state space."""
    old, new = evaluations(before), evaluations(after)
    if new > old:
        yield f"{new} evaluations by threads, not at most {old}"
    for name, (_, threads) in after.by_class.items():
        known = before.by_class.get(name, [0, 0])[1]
        if name.startswith(("ld.", "ldu.")) and threads > known:
            yield f"{name} ran {threads} times, not at most {known}"


def _wrongly_uniform(module: Module, ran: Run) -> Iterator[str]:
    """Branches reported as uniform that separated lanes of one instance. Lanes of different iterations of a loop that
    reconverged are not one instance, and may separate at any branch."""
    uniform = _branches(module, divergent=False) if ran.parted else set[int]()
    for line, text in ran.parted.items():
        if line in uniform:
            yield f"line {line}: '{text}' is called uniform and parted lanes"


def reduced(ptx: str, fails: Callable[[str], bool], most: int = 2000) -> str:
    """``ptx`` without some lines, as long as ``fails`` is true for it. ``most`` limits the number of trials."""
    lines = ptx.splitlines()
    trials = itertools.count()
    size = max(len(lines) // 2, 1)
    while size:
        start = 0
        dropped = False
        while start < len(lines):
            if next(trials) >= most:
                return "\n".join(lines) + "\n"
            shorter = [*lines[:start], *lines[start + size :]]
            if fails("\n".join(shorter) + "\n"):
                lines, dropped = shorter, True
            else:
                start += size
        if not dropped or size > 1:
            size = size // 2 if size > 1 else 0
    return "\n".join(lines) + "\n"


def is_well_formed(ptx: str) -> bool:
    """Whether a shortened program is still a valid input of the checks."""
    try:
        return not problems(parse(ptx))
    except PtxError:
        return False


def shortest_failure(ptx: str, launch: Launch, passes: str, seeds: Sequence[int], schedule: str = "order") -> str:
    """The program, shortened while it runs without a finding before ``passes`` and fails after them."""

    def fails(text: str) -> bool:
        if not is_well_formed(text):
            return False
        ladder = Ladder(text, launch, seeds, budget=20_000)
        if not ladder.is_sound:
            return False
        try:
            return bool(ladder.faults(passes, schedule=schedule))
        except Exception:  # the reducer accepts any failure of a pass
            return True

    return reduced(ptx, fails)
