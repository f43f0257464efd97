"""`fuse --benefit=timing`: chooses among the legal fusions by running the program with and without them.

Computes: the harness times the program as written, with all legal fusions, and with all but one, in one session, and
checks the outputs of each variant first. A fusion is left out if the program is faster without it; then the others are
timed again. The remaining fusions are made if the verdict on the fused program is `FASTER`.

Requires: a GPU, and a Benchmark that has data for the program.
Guarantees: a variant with wrong outputs is never chosen; it raises `WrongOutputs`.
Refuses: no GPU (`RequirementMissing`), a size that the Benchmark does not have (`BadRequest`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..harness.protocol import Plan
from ..harness.session import Session, Task
from ..harness.workload import Arm
from .bench_session import assembler_for, describe_machine, new_result
from .errors import BadInput, BadRequest, RequirementMissing, WrongOutputs
from .fused_variants import modules_of
from .tasks import SuiteWork

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.results import BenchmarkResult, ComparisonResult
    from ..suites.registry import Benchmark
    from ..transforms.kernel_fusion.kernel_code import KernelCode
    from ..transforms.kernel_fusion.launch_site import Fusibility
    from ..transforms.kernel_fusion.pairs import Benefit, Estimate, SiteTriple
    from ..transforms.kernel_fusion.plan import FusedProgram

__all__ = ["PairDecisions", "TimedProgram", "timed_benefit"]

#: The most variants that one session times beside the program as written, and the most sessions of a search.
_MOST_ARMS, _MOST_SESSIONS = 12, 6
#: How often the final program is timed again where there was no verdict.
_MOST_REPEATS = 2


@dataclass(frozen=True)
class PairDecisions:
    """A benefit that is a list of decisions. ``rejected`` maps ``first+second``, the names of two kernels, to the
    reason why they are not fused. ``others`` says whether all other pairs are fused, and ``reason`` why."""

    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    reason: str = "to be timed"
    others: bool = True

    def __call__(
        self, first: KernelCode, second: KernelCode, fused: KernelCode, sites: SiteTriple, fusibility: Fusibility
    ) -> Estimate:
        """The decision for a pair. Its seconds are 0 and 1: only their order counts."""
        from ..transforms.kernel_fusion.pairs import Estimate

        reason = self.rejected.get(f"{first.kernel.name}+{second.kernel.name}")
        if reason is not None:
            return Estimate(0.0, 1.0, reason)
        return Estimate(1.0, 0.0, self.reason) if self.others else Estimate(0.0, 1.0, self.reason)


@dataclass(frozen=True)
class TimedProgram:
    """What is timed. ``file`` is the Python file of the Benchmark, or empty for one of the suites. ``plain`` maps the
    name of each kernel to its PTX; ``fuse`` fuses the program by a benefit."""

    benchmark: Benchmark
    file: str
    plain: Mapping[str, str]
    fuse: Callable[[Benefit], FusedProgram]


def timed_benefit(
    program: TimedProgram, *, size: str, as_graph: bool, report: Callable[[str], None] = lambda line: None
) -> Benefit:
    """The decisions to fuse by. ``size`` may be empty; ``report`` receives lines of progress. Raises `ProgramError`."""
    from ..harness.machine import MachineMissing, choose

    sizes = program.benchmark.sizes
    size = size or ("small" if "small" in sizes else next(iter(sizes)))
    if size not in sizes:
        raise BadRequest(f"{program.benchmark.fullname} has no size '{size}'; there are {', '.join(sizes)}")
    try:
        machine, _, _ = choose("cuda")
    except MachineMissing as error:
        raise RequirementMissing(f"--benefit=timing needs a GPU: {error.reason}") from error
    return _Search(program, size, "graph" if as_graph else "stream", machine, report).benefit()


@dataclass
class _Search:
    program: TimedProgram
    size: str
    launch: str
    machine: Machine
    report: Callable[[str], None]

    def benefit(self) -> Benefit:
        """Reject fusions one by one while the program is faster without one; then decide about the others."""
        rejected: dict[str, str] = {}
        for _ in range(_MOST_SESSIONS):
            modules, pairs = self._modules(rejected)
            if modules == dict(self.program.plain):
                return PairDecisions(rejected)
            arms = {"all": modules}
            for pair in pairs[: _MOST_ARMS - 1]:
                without, _ = self._modules({**rejected, pair: ""})
                if without not in arms.values() and without != dict(self.program.plain):
                    arms[pair] = without
            comparisons = self._timed(arms)
            with_all = comparisons.get("all")
            worst = self._worst(comparisons)
            if worst is None:
                return self._final(rejected, with_all)
            rejected[worst] = (
                f"by timing, the program is {_times(comparisons[worst])} as fast without, {_times(with_all)} with it"
            )
            self.report(f"without {worst}: {rejected[worst]}")
        return self._final(rejected, None)

    def _worst(self, comparisons: Mapping[str, ComparisonResult]) -> str | None:
        """The fusion without which the program is fastest, if its interval lies above that of all fusions."""
        with_all = comparisons.get("all")
        limit = with_all.ci[1] if with_all is not None and with_all.ci is not None else 0.0
        lower = {pair: each.ci[0] for pair, each in comparisons.items() if pair != "all" and each.ci is not None}
        best = max(lower, key=lambda pair: lower[pair], default=None)
        return best if best is not None and lower[best] > limit else None

    def _final(self, rejected: Mapping[str, str], timing: ComparisonResult | None) -> Benefit:
        modules, _ = self._modules(rejected)
        for _ in range(_MOST_REPEATS):
            has_verdict = timing is not None and timing.verdict not in ("INVALID", "INCONCLUSIVE")
            if modules != dict(self.program.plain) and not has_verdict:
                timing = self._timed({"all": modules}).get("all")
        if timing is None or timing.verdict != "FASTER":
            outcome = "not timed" if timing is None else f"{timing.verdict}, {_times(timing)} as fast"
            return PairDecisions(rejected, f"by timing, the fused program is {outcome}", others=False)
        return PairDecisions(rejected, f"by timing, the fused program is {_times(timing)} as fast")

    def _modules(self, rejected: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """The program without the rejected fusions, as the modules of an arm, and the fusions that were made."""
        fused = self.program.fuse(PairDecisions(dict.fromkeys(rejected, "not in this session")))
        made = [each.kernel for each in fused.remarks if each.kind == "Passed" and each.name == "Fused"]
        return modules_of(fused, self.program.plain), list(dict.fromkeys(made))

    def _timed(self, arms: Mapping[str, Mapping[str, str]]) -> dict[str, ComparisonResult]:
        """Each arm compared with the program as written. Raises `BadInput`, `WrongOutputs`."""
        name = self.program.benchmark.fullname
        written = Arm("as written", dict(self.program.plain), role="baseline", launch=self.launch)
        others = [Arm(each, dict(modules), launch=self.launch, same_program=False) for each, modules in arms.items()]
        work = SuiteWork(name, self.size, self.program.file)
        result = self._run(Task(name, lambda: (work, [written, *others])))
        if result.error:
            raise BadInput(f"{name}: {result.error}")
        for arm in result.arms:
            if arm.correctness.status == "mismatch":
                details = "; ".join(arm.correctness.details[:2])
                if arm.id == written.id:
                    raise BadInput(f"{name}, as written: {details}")
                variant = "fused" if arm.id == "all" else f"fused, without {arm.id}"
                raise WrongOutputs(f"{variant}: {details}; please report it")
        return {each.candidate: each for each in result.comparisons if each.candidate in arms}

    @cached_property
    def _gpu(self) -> dict[str, Any]:
        """The description of the GPU, read once."""
        return describe_machine(self.machine)

    def _run(self, task: Task) -> BenchmarkResult:
        plan = Plan()
        result = new_result(self.machine, self._gpu, plan)
        session = Session(self.machine, plan, result, assembler=assembler_for(self._gpu))
        return session.run([task]).benchmarks[0]


def _times(comparison: ComparisonResult | None) -> str:
    if comparison is None or comparison.speedup is None or comparison.ci is None:
        return "unknown times"
    return f"{comparison.speedup:.3f} times ({comparison.ci[0]:.3f} to {comparison.ci[1]:.3f})"
