"""Sparse code motion and its speculative variants: SCM, SPRE, SSCM (thesis §4.2).

Lazy code motion minimizes the evaluations on each path. This pass minimizes the *number of evaluations in the code*.
Each block b has two program points, its entry part N(b) and its exit part X(b). They are divided at the last
instruction that changes the value (`expressions.py`) or that may end the thread. Critical edges have a point of their
own. With antloc for NComp, exit_comp for XComp and transp = ¬kill:

    NdSafe(b) = antloc(b) ∪ (transp(b) ∩ XdSafe(b))
    XdSafe(b) = exit_comp(b) ∪ meet over successors s of (NdSafe(s) \\ phi_kill(s))
    NuSafe(b) = ∩ over predecessors p of (exit_comp(p) ∪ XuSafe(p)) \\ phi_kill(b);  false at the entry
    XuSafe(b) = transp(b) ∩ (antloc(b) ∪ NuSafe(b))

(figures 4.3 and 4.5). The variants differ only in the meet: ∩ for ``scm``; ∪ where b ends in a divergent branch, else
∩, for ``sscm``; ∪ everywhere for ``spre``. A load that may fault is speculated only where `may_speculate` proves that
it cannot: for this load the meet is ∩ at all other blocks, in every variant. No other expression in PTX traps: a
division by zero has a result.

For each expression a minimum cut (`insertion_region.py`) finds the region R with the fewest R-Earliest points that is
between RelComp and DnSafe \\ UpSafe and closed under ρ. The paper's closure requires *all* successors of a point
without computation in ρ(n). With ∪ some of them are not down-safe, so this pass requires only those that are in
DnSafe \\ UpSafe. A point with a predecessor that can never be in the region is always earliest.

``weights=uniform`` counts evaluations as the thesis does. ``weights=loop`` weights a point by how often its block runs
(`Facts.block_weights`): 8 to the power of its loop depth, or measured. If the cost is equal, the code stays unchanged.

Guarantees: results stay bit-identical; ``scm`` evaluates no expression more often on any path; ``sscm`` adds an
evaluation only where the warp executes it anyway because of a divergent branch.
Reference: Rüthing, Knoop, Steffen, *Sparse Code Motion*, POPL 2000; thesis §4.2.1 and §4.2.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...analysis.effects import REASONS
from ...analysis.graph.dataflow import Solution, bits, solve
from ...analysis.manager import Facts
from ...analysis.memory.speculation import may_speculate, speculation_places
from ...ptx import Block, Instr, Kernel
from ..passes import option
from ..remarks import Remarks, block_names
from .branch_divergence import BranchDivergence
from .edges import EdgeInserter
from .endless_loops import endless_at_headers
from .expressions import ExpressionClass, LocalPredicates, candidates_by_value, rewritten_candidates
from .insertion_region import smallest_minimum_region
from .lazy_code_motion import LazyCodeMotion
from .motion_points import Point, RegionPoints, SplitGraph
from .replacement import end_round, evaluate_into, occurrences_of, replace_occurrences

__all__ = ["SparseCodeMotion", "SpeculativePartialRedundancyElimination", "SpeculativeSparseCodeMotion"]


_NO_INSERTION = "let lcm insert nothing in an arm of a divergent branch"


@dataclass(slots=True)
class Safety:
    """Sets of class numbers by node."""

    down_entry: list[int]
    down_exit: list[int]
    up_entry: list[int]
    up_exit: list[int]
    leaving: list[int]  #: available at the end of the node


@dataclass(slots=True)
class Local:
    """The local predicates of `expressions.py` by node of the split graph; ``kill`` includes ``pinch``."""

    antloc: list[int]
    exit_comp: list[int]
    kill: list[int]
    phi_kill: list[int]

    @classmethod
    def of(cls, local: LocalPredicates, graph: SplitGraph, endless: set[int], universe: int) -> Local:
        kill = [k | p for k, p in zip(local.kill, local.pinch, strict=True)]
        for block in endless:
            kill[block] = universe
        exit_comp = [comp & k for comp, k in zip(local.exit_comp, kill, strict=True)]
        extra = [0] * len(graph.edge)
        return cls(local.antloc + extra, exit_comp + extra, kill + extra, local.phi_kill + extra)


@dataclass(frozen=True)
class SparseCodeMotion:
    """Sparse code motion: as lcm, with the fewest evaluations in the code.

    ``min_cost`` also holds for lazy code motion, which runs first if ``lazy`` is set.
    """

    weights: str = option("loop", "the cost of a block: loop (by loop depth, or by the profile if given), or uniform")
    min_cost: int = option(2, "move only expressions with at least this cost in the opcode table")
    rounds: int = option(2, "the most repetitions")
    lazy: bool = option(True, "run lcm first")
    cdrnd_insertion: bool = option(False, _NO_INSERTION)

    name: ClassVar[str] = "scm"

    def __post_init__(self) -> None:
        if self.weights not in ("loop", "uniform"):
            raise ValueError(f"option 'weights' of pass '{self.name}' is loop or uniform, not '{self.weights}'")

    @property
    def speculates(self) -> str:
        """The branches at which the meet is ∪: ``no``, ``divergent`` or ``all``."""
        return "no"

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Move code in ``kernel``; whether anything changed."""
        changed = False
        if self.lazy:
            lazy = LazyCodeMotion(min_cost=self.min_cost, rounds=self.rounds + 1, cdrnd_insertion=self.cdrnd_insertion)
            changed = lazy.run(kernel, facts, remarks)
        for by_value in (True, False):
            for _ in range(self.rounds):
                if not self.round(kernel, facts, remarks, by_value=by_value):
                    break
                changed = True
        return changed

    def round(self, kernel: Kernel, facts: Facts, remarks: Remarks, *, by_value: bool) -> bool:
        """Solve the equations once, rewrite and clean up; whether anything changed."""
        if not remarks.allows(self.name):
            return False
        found = facts.get(candidates_by_value if by_value else rewritten_candidates)
        if not any(remarks.allows(self.name, item.instr) for item in found.classes):
            return False
        motion = _Motion(self, kernel, facts, remarks, found.classes, found.local)
        chosen = motion.choose()
        if not chosen:
            return False
        motion.rewrite(chosen)
        end_round(kernel, facts, remarks, self.name, len(chosen), by_value=by_value)
        return True


@dataclass(frozen=True)
class SpeculativePartialRedundancyElimination(SparseCodeMotion):
    """Speculative PRE: as scm; expressions may also move above every branch."""

    name: ClassVar[str] = "spre"

    @property
    def speculates(self) -> str:
        return "all"


@dataclass(frozen=True)
class SpeculativeSparseCodeMotion(SparseCodeMotion):
    """Speculative sparse code motion: as scm; expressions may also move above divergent branches."""

    cdrnd_insertion: bool = option(True, _NO_INSERTION)

    name: ClassVar[str] = "sscm"

    @property
    def speculates(self) -> str:
        return "divergent"


class _Motion:
    """One round: solves the equations, chooses the classes and rewrites."""

    def __init__(
        self,
        options: SparseCodeMotion,
        kernel: Kernel,
        facts: Facts,
        remarks: Remarks,
        classes: list[ExpressionClass],
        local: LocalPredicates,
    ) -> None:
        self.options = options
        self.kernel = kernel
        self.facts = facts
        self.remarks = remarks
        self.classes = classes
        self.transfer = local.transfer
        self.by_value = local.transfer.naming.by_value
        self.inserter = EdgeInserter(kernel, facts.cfg)
        self.graph = facts.get(SplitGraph, graph_only=True)
        weight = self.graph.weight
        self.weights = [1] * len(weight) if options.weights == "uniform" else weight  # by node
        #: All class numbers, as bits.
        self.universe = (1 << len(classes)) - 1
        self.local = Local.of(local, self.graph, facts.cfg.never_leaving, self.universe)
        #: By point: DnSafe \\ UpSafe, and the computations.
        self.endless = self.find_endless()
        self.may_hold: list[int] = []
        self.computed = _by_point(self.local.antloc, self.local.exit_comp)
        self.solve()

    # --- the sets ------------------------------------------------------------------------------------------------

    def find_endless(self) -> list[int]:
        """By node: the classes that are not anticipated at its start because a thread may stay in a loop forever."""
        extra = [0] * len(self.graph.edge)
        faulting = self.faulting()
        if not faulting:
            return [0] * len(self.local.antloc)
        antloc = self.local.antloc[: len(self.facts.cfg)]
        return endless_at_headers(self.facts, antloc, [faulting] * len(antloc)) + extra

    def solve(self) -> None:
        down = self.down_safety()
        strict = down.exit
        up = self.up_safety()
        self.settle_on(strict, up)
        if self.options.speculates != "no" and self.may_gain_by_speculation(strict, up):
            unions = self.union_meets()
            if unions:
                everywhere = [-(node in unions) for node in range(len(self.graph.cfg.blocks))]
                eager = self.down_safety(everywhere, down)
                strict = self.speculated(unions, down, eager.exit)
                self.settle_on(strict, up)

    def may_gain_by_speculation(self, strict: list[int], up: Solution) -> bool:
        """Whether ∪ at some branches might gain something. With ∪ at all branches the sets are largest, and computing
        them takes much less time than finding the divergent branches. Also true where a load that may fault is not
        speculated, so that a remark reports it."""
        if self.options.speculates == "all":
            return True
        eager = self.down_safety([-1] * len(self.graph.cfg.blocks)).exit
        differing = 0
        for more, less in zip(eager, strict, strict=True):
            differing |= more & ~less
        if not differing:
            return False
        if differing & self.faulting():
            return True
        self.settle_on(eager, up)
        gains = any(differing >> number & 1 for number in self.worthwhile(self.region_points()))
        self.settle_on(strict, up)
        return gains

    def settle_on(self, exits: list[int], up: Solution) -> None:
        """Recompute the sets with ``exits`` as the down-safe classes at the ends of the nodes."""
        cfg, local = self.graph.cfg, self.local
        nodes = range(len(cfg.blocks))
        down_exit = [local.exit_comp[n] | exits[n] for n in nodes]
        down_entry = [local.antloc[n] | (down_exit[n] & ~(local.kill[n] | self.endless[n])) for n in nodes]
        up_entry = [up.entry[n] & ~local.phi_kill[n] for n in nodes]
        up_exit = [(local.antloc[n] | up_entry[n]) & ~local.kill[n] for n in nodes]
        self.safety = Safety(down_entry, down_exit, up_entry, up_exit, up.exit)
        self.may_hold = _by_point(
            (d & ~u for d, u in zip(down_entry, up_entry, strict=True)),
            (d & ~u for d, u in zip(down_exit, up_exit, strict=True)),
        )

    def up_safety(self) -> Solution:
        cfg, local = self.graph.cfg, self.local
        nodes = range(len(cfg.blocks))
        return solve(
            cfg,
            direction="forward",
            meet="intersection",
            gen=[local.exit_comp[n] | (local.antloc[n] & ~local.kill[n]) for n in nodes],
            kill=[local.kill[n] | local.phi_kill[n] for n in nodes],
            boundary=0,
            universe=self.universe,
        )

    def faulting(self) -> int:
        """The classes whose evaluation may fault."""
        found = 0
        for item in self.classes:
            found |= item.may_fault << item.number
        return found

    def speculated(self, unions: set[int], down: Solution, eager: list[int]) -> list[int]:
        """The down-safe classes at the ends of the nodes if the meet is ∪ in ``unions``. For a class that may fault, it
        is ∪ only where `may_speculate` proves that it cannot fault. ``down`` is the solution without ∪; ``eager`` are
        the sets with ∪ everywhere."""
        strict = down.exit
        faulting = self.faulting()
        exits = [(s & faulting) | (e & ~faulting) for s, e in zip(strict, eager, strict=True)]
        cfg = self.facts.cfg
        exits_of_kernel = set(cfg.exits)
        asked: dict[int, list[int]] = {}
        for block in sorted(unions):
            if block < len(cfg.blocks) and len(cfg.succ[block]) + (block in exits_of_kernel) > 1:
                for number in bits(eager[block] & ~strict[block] & faulting):
                    asked.setdefault(number, []).append(block)
        proven = [0] * len(self.graph.cfg.blocks)
        for number in sorted(asked):
            for block in self.may_speculate(self.classes[number], asked[number]):
                proven[block] |= 1 << number
        if any(proven):
            chosen = 0
            for numbers in proven:
                chosen |= numbers
            solution = self.down_safety(proven, down).exit
            exits = [(e & ~chosen) | (s & chosen) for e, s in zip(exits, solution, strict=True)]
        return exits

    def may_speculate(self, item: ExpressionClass, blocks: list[int]) -> frozenset[int]:
        """Those of ``blocks`` at whose ends the class, a load, cannot fault. Adds a remark for the first one at which
        it may fault."""
        # A register with several definitions may hold another value there than at the load.
        proven: frozenset[int] = frozenset()
        if self.by_value:
            proven = frozenset(speculation_places(self.facts, item.instr, blocks))
        if len(proven) < len(blocks):
            self.refuse(item, next(block for block in blocks if block not in proven))
        return proven

    def refuse(self, item: ExpressionClass, block: int) -> None:
        """Add the remark why the class is not evaluated at the end of ``block``."""
        reason = "may-fault"
        if self.by_value:
            reason = may_speculate(self.facts, item.instr, self.facts.cfg.blocks[block]).reason or reason
        places = dict.fromkeys(occurrence.block for occurrence in item.occurrences)
        self.remarks.add(
            "Missed",
            self.options.name,
            "NotSpeculated",
            self.kernel,
            f"'{item.instr.form.text}' is not hoisted above a branch of which one side needs it: {REASONS[reason]}",
            instr=item.instr,
            reason=reason,
            sources=block_names(self.facts.cfg.blocks, places),
            targets=block_names(self.facts.cfg.blocks, [block]),
        )
        self.remarks.count(self.kernel, self.options.name, f"refused: {reason}")

    def union_meets(self) -> set[int]:
        """The nodes whose meet is ∪."""
        if self.options.speculates == "all":
            return set(range(len(self.graph.cfg.blocks)))
        if self.options.speculates == "divergent":
            return set(BranchDivergence(self.facts).blocks())
        return set()

    def down_safety(self, unions: Sequence[int] = (), strict: Solution | None = None) -> Solution:
        """``unions`` has for each node the classes for which the meet is ∪; ``strict``: the solution without any ∪."""
        cfg, local = self.graph.cfg, self.local
        nodes = range(len(cfg.blocks))
        return solve(
            cfg,
            direction="backward",
            meet="intersection",
            gen=[
                (local.antloc[n] | (local.exit_comp[n] & ~(local.kill[n] | self.endless[n]))) & ~local.phi_kill[n]
                for n in nodes
            ],
            kill=[local.kill[n] | local.phi_kill[n] | self.endless[n] for n in nodes],
            boundary=0,
            universe=self.universe,
            unions=unions or None,
            strict=strict,
        )

    # --- the choice ----------------------------------------------------------------------------------------------

    def choose(self) -> dict[int, list[Point]]:
        """By number of each class to rewrite: the points at which to evaluate it."""
        chosen: dict[int, list[Point]] = {}
        points = self.region_points()
        for number, required in self.worthwhile(points).items():
            item = self.classes[number]
            cost = sum([self.weights[point >> 1] for point in required])
            region = smallest_minimum_region(required, points.arcs(number), below=cost)
            if region is not None and self.remarks.may_rewrite(self.options.name, item.instr):
                chosen[number] = list(region.earliest)
                self.report(item, required, chosen[number])
        return chosen

    def region_points(self) -> RegionPoints:
        """How regions may extend, from the current sets."""
        local = self.local
        return RegionPoints(
            self.graph,
            self.weights,
            kill=local.kill,
            phi_kill=local.phi_kill,
            computed=self.computed,
            may_hold=self.may_hold,
            leaving=self.safety.leaving,
        )

    def worthwhile(self, points: RegionPoints) -> dict[int, list[Point]]:
        """By number of each class with a possible gain: its computations that are not up-safe."""
        rising = self.rising(points)
        if not rising:
            return {}
        feeding: set[Hashable] | None = None
        asked: dict[int, list[Point]] = {}
        relevant = self.relevant_points(rising)
        for number in bits(rising):
            item, required = self.classes[number], relevant[number]
            if len(required) < 2 and self.options.weights == "uniform":
                continue
            if item.cost < self.options.min_cost:
                if feeding is None:
                    feeding = self.feeding_names()
                if item.result not in feeding:
                    continue
            asked[number] = required
        return {number: asked[number] for number in bits(points.gaining(asked))}

    def feeding_names(self) -> set[Hashable]:
        """The names of the operands of classes that are worth moving. Cheap classes that compute them move, too."""
        return {name for item in self.classes if item.cost >= self.options.min_cost for name in item.names}

    def rising(self, points: RegionPoints) -> int:
        """The classes with a computation that is not up-safe and above which a region may extend. Other classes have no
        gain."""
        antloc, exit_comp, up_entry, rises = self.local.antloc, self.local.exit_comp, self.safety.up_entry, points.rises
        found = 0
        for node in self.facts.cfg.rpo:
            found |= antloc[node] & ~up_entry[node] & rises[2 * node]
            found |= exit_comp[node] & rises[2 * node + 1]
        return found

    def relevant_points(self, wanted: int) -> dict[int, list[Point]]:
        """By number of each class in ``wanted`` its RelComp: the computations that are not up-safe."""
        found: dict[int, list[Point]] = {}
        for node in self.facts.cfg.rpo:
            for number in bits(self.local.antloc[node] & ~self.safety.up_entry[node] & wanted):
                found.setdefault(number, []).append(2 * node)
            for number in bits(self.local.exit_comp[node] & wanted):
                found.setdefault(number, []).append(2 * node + 1)
        return found

    # --- the rewriting -------------------------------------------------------------------------------------------

    def rewrite(self, chosen: dict[int, list[Point]]) -> None:
        """Evaluate the chosen classes at their points, and replace the occurrences that this makes redundant."""
        temporaries = {number: self.kernel.new_reg(self.classes[number].type) for number in chosen}
        comp = [0] * len(self.graph.cfg.blocks)
        inserted: dict[Instr, int] = {}
        ends: dict[int, list[Instr]] = {}
        for number, points in chosen.items():
            bit = 1 << number
            for point in points:
                if self.computed[point] & bit:
                    continue  # the first occurrence there evaluates it
                node = point >> 1
                source = self.reached_occurrence(number, point)
                evaluation = evaluate_into(temporaries[number], source)
                comp[node] |= bit
                if node in self.graph.edge:
                    self.inserter.insert(*self.graph.edge[node], evaluation)
                else:
                    inserted[evaluation] = number
                    ends.setdefault(node, []).append(evaluation)
        available = self.availability(comp, self.mask(chosen))
        cfg = self.facts.cfg
        for node, code in ends.items():
            _append(self.kernel, cfg.blocks[node], code)
        number_of = occurrences_of(self.classes, chosen)
        for block in cfg.rpo:
            replace_occurrences(
                self.kernel, cfg.blocks[block], available[block], number_of, temporaries, self.transfer, inserted
            )
        self.inserter.commit()

    def mask(self, chosen: dict[int, list[Point]]) -> int:
        return sum(1 << number for number in chosen)

    def availability(self, comp: list[int], chosen: int) -> list[int]:
        """By node: the chosen classes that are available at its start after ``comp`` was inserted."""
        cfg, local = self.graph.cfg, self.local
        nodes = range(len(cfg.blocks))
        solution = solve(
            cfg,
            direction="forward",
            meet="intersection",
            gen=[(comp[n] | local.exit_comp[n] | (local.antloc[n] & ~local.kill[n])) & chosen for n in nodes],
            kill=[local.kill[n] | local.phi_kill[n] for n in nodes],
            boundary=0,
            universe=chosen,
        )
        return [solution.entry[n] & ~local.phi_kill[n] & chosen for n in nodes]

    def reached_occurrence(self, number: int, start: Point) -> Instr:
        """An occurrence reached from ``start`` through points without computation, so that its registers hold the
        operands at ``start``."""
        bit = 1 << number
        seen: set[Point] = {start}
        work = [start]
        while work:
            point = work.pop()
            if self.computed[point] & bit:
                found = [o.instr for o in self.classes[number].occurrences if o.block == point >> 1]
                return found[-1] if point & 1 else found[0]
            for other in self.implied_any(point, bit):
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        raise AssertionError("a down-safe expression has no occurrence")

    def implied_any(self, point: Point, bit: int) -> list[Point]:
        """The down-safe points that directly follow a point, without a change of the value in between."""
        node, safety = point >> 1, self.safety
        if not point & 1:
            return [point + 1] if safety.down_exit[node] & ~self.local.kill[node] & bit else []
        return [2 * s for s in self.graph.cfg.succ[node] if safety.down_entry[s] & ~self.local.phi_kill[s] & bit]

    def report(self, item: ExpressionClass, required: list[Point], points: list[Point]) -> None:
        gone = [self.place(point) for point in required if point not in points]
        where = [self.place(point) for point in points]
        message = f"'{item.instr.form.text}' evaluated at {', '.join(where)} instead of at {', '.join(gone)}"
        self.remarks.add(
            "Passed",
            self.options.name,
            "Moved",
            self.kernel,
            message,
            instr=item.instr,
            sources=dict.fromkeys(gone),
            targets=dict.fromkeys(where),
        )

    def place(self, point: Point) -> str:
        """The name of the point's block or edge."""
        node = point >> 1
        blocks = self.graph.edge.get(node, (node,))
        return "→".join(block_names(self.facts.cfg.blocks, blocks))


def _by_point(entries: Iterable[int], exits: Iterable[int]) -> list[int]:
    """The sets by point, from the sets at the entry parts and at the exit parts of the nodes."""
    return [facts for both in zip(entries, exits, strict=True) for facts in both]


def _append(kernel: Kernel, block: Block, code: list[Instr]) -> None:
    """Put ``code`` before the terminator of ``block``."""
    terminator = block.terminator
    at = block.instrs.index(terminator) if terminator is not None else len(block.instrs)
    kernel.set_instrs(block, [*block.instrs[:at], *code, *block.instrs[at:]])
