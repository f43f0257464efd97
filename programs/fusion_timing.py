"""`fuse --benefit=timing`: which of the legal fusions are made, found by running the program with and without them.

Computes: the program as written, with all fusions that are legal, and with all but one, timed beside each other by the
harness, which checks the outputs of each first. While the program is faster without one of them, that one is left out,
and the rest is timed again. What is left is made if the program is `FASTER` for it than as written.

Requires: a GPU, and a Benchmark with data for the program. Guarantees: what came out wrong is never chosen, and ends
the command with exit code 1. Refuses: no GPU, no data, a size that the Benchmark does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..cli.outcome import BAD_INPUT, DIFFERENT, MISSING, CommandError, say, usage_error

if TYPE_CHECKING:
    from ..harness.machine import Machine
    from ..harness.results import BenchmarkResult, ComparisonResult
    from ..suites.registry import Benchmark
    from ..transforms.kernel_fusion.kernel_code import KernelCode
    from ..transforms.kernel_fusion.launch_site import Fusibility
    from ..transforms.kernel_fusion.pairs import Benefit, Estimate, Sites3
    from ..transforms.kernel_fusion.plan import FusedProgram

__all__ = ["Chosen", "timed_benefit"]

#: Programs beside the one as written in one session, and sessions.
_MOST_ARMS, _MOST_TURNS = 12, 6
#: Sessions more where there was no verdict.
_MOST_TRIES = 2


@dataclass(frozen=True)
class Chosen:
    """A benefit by pairs of kernels: ``denied`` says why for those that lose, ``why`` is said of all others, which
    gain if ``others``."""

    denied: Mapping[str, str] = field(default_factory=dict[str, str])
    why: str = "to be timed"
    others: bool = True

    def __call__(
        self, first: KernelCode, second: KernelCode, fused: KernelCode, sites: Sites3, fusibility: Fusibility
    ) -> Estimate:
        """No seconds, but a decision."""
        from ..transforms.kernel_fusion.pairs import Estimate

        reason = self.denied.get(f"{first.kernel.name}+{second.kernel.name}")
        if reason is not None:
            return Estimate(0.0, 1.0, reason)
        return Estimate(1.0, 0.0, self.why) if self.others else Estimate(0.0, 1.0, self.why)


def timed_benefit(
    benchmark: Benchmark,
    file: str,
    plain: Mapping[str, str],
    fused: Callable[[Benefit], FusedProgram],
    *,
    size: str,
    as_graph: bool,
) -> Benefit:
    """The benefit to fuse by. ``fused`` fuses the program by one. Raises `CommandError`."""
    from ..harness.machine import MachineMissing, choose

    size = size or ("small" if "small" in benchmark.sizes else next(iter(benchmark.sizes)))
    if size not in benchmark.sizes:
        usage_error(f"{benchmark.fullname} has no size '{size}'; there are {', '.join(benchmark.sizes)}")
    try:
        machine, _, _ = choose("cuda")
    except MachineMissing as error:
        raise CommandError(MISSING, f"ptxmotion: error: --benefit=timing needs a GPU: {error.reason}") from error
    return _Search(benchmark, file, plain, fused, size, "graph" if as_graph else "stream", machine).benefit()


@dataclass
class _Search:
    benchmark: Benchmark
    file: str
    plain: Mapping[str, str]
    fused: Callable[[Benefit], FusedProgram]
    size: str
    launch: str
    machine: Machine

    def benefit(self) -> Benefit:
        denied: dict[str, str] = {}
        for _ in range(_MOST_TURNS):
            every, pairs = self._modules(denied)
            if every == dict(self.plain):
                return Chosen(denied)
            arms = {"all": every}
            for pair in pairs[: _MOST_ARMS - 1]:
                without, _ = self._modules({**denied, pair: ""})
                if without not in arms.values() and without != dict(self.plain):
                    arms[pair] = without
            found = self._timed(arms)
            whole = found.get("all")
            better = self._better(found)
            if better is None:
                return self._final(denied, whole)
            denied[better] = (
                f"by timing, the program is {_times(found[better])} as fast without, {_times(whole)} with it"
            )
            say(f"without {better}: {denied[better]}")
        return self._final(denied, None)

    def _better(self, found: Mapping[str, ComparisonResult]) -> str | None:
        """The fusion without which the program is surely faster than with all; the one that costs most."""
        whole = found.get("all")
        ends = whole.ci[1] if whole is not None and whole.ci is not None else 0.0
        gains = {pair: each.ci[0] for pair, each in found.items() if pair != "all" and each.ci is not None}
        best = max(gains, key=lambda pair: gains[pair], default=None)
        return best if best is not None and gains[best] > ends else None

    def _final(self, denied: Mapping[str, str], whole: ComparisonResult | None) -> Benefit:
        every, _ = self._modules(denied)
        for _ in range(_MOST_TRIES):
            if every != dict(self.plain) and (whole is None or whole.verdict in ("INVALID", "INCONCLUSIVE")):
                whole = self._timed({"all": every}).get("all")
        if whole is None or whole.verdict != "FASTER":
            said = "not timed" if whole is None else f"{whole.verdict}, {_times(whole)} as fast"
            return Chosen(denied, f"by timing, the fused program is {said}", others=False)
        return Chosen(denied, f"by timing, the fused program is {_times(whole)} as fast")

    def _modules(self, denied: Collection[str]) -> tuple[dict[str, str], list[str]]:
        """The fused program without some fusions, as an arm holds it, and the fusions that were made."""
        from .fused_variants import modules_of

        found = self.fused(Chosen(dict.fromkeys(denied, "not in this try")))
        made = [each.kernel for each in found.remarks if each.kind == "Passed" and each.name == "Fused"]
        return modules_of(found, self.plain), list(dict.fromkeys(made))

    def _timed(self, arms: Mapping[str, Mapping[str, str]]) -> dict[str, ComparisonResult]:
        """Each against the program as written. Raises `CommandError` where one computes something else."""
        from ..harness.session import Task
        from ..harness.workload import Arm
        from .tasks import SuiteWork

        written = Arm("as written", dict(self.plain), role="baseline", launch=self.launch)
        others = [Arm(name, dict(made), launch=self.launch, same_program=False) for name, made in arms.items()]
        work = SuiteWork(self.benchmark.fullname, self.size, self.file)
        result = self._run(Task(self.benchmark.fullname, lambda: (work, [written, *others])))
        if result.error:
            raise CommandError(BAD_INPUT, f"ptxmotion: error: {self.benchmark.fullname}: {result.error}")
        for arm in result.arms:
            if arm.correctness.status == "mismatch":
                told = "; ".join(arm.correctness.details[:2])
                if arm.id == written.id:
                    raise CommandError(BAD_INPUT, f"ptxmotion: error: {self.benchmark.fullname}, as written: {told}")
                what = "fused" if arm.id == "all" else f"fused, without {arm.id}"
                raise CommandError(DIFFERENT, f"ptxmotion: error: {what}: {told}; please report it")
        return {each.candidate: each for each in result.comparisons if each.candidate in arms}

    @cached_property
    def _described(self) -> dict[str, Any]:
        from ..harness.worker import Worker

        with Worker(self.machine) as worker:
            return worker.describe(120.0)

    def _run(self, task: Any) -> BenchmarkResult:
        import datetime
        from functools import partial

        from .. import __version__
        from ..harness.arm_code import assemble_arm
        from ..harness.protocol import Plan
        from ..harness.results import ResultFile
        from ..harness.session import Session

        told, plan = self._described, Plan()
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        result = ResultFile(now, __version__, self.machine.name, told, {}, plan.options())
        assembler = partial(assemble_arm, sm=told.get("compute_capability"))
        return Session(self.machine, plan, result, assembler=assembler).run([task]).benchmarks[0]


def _times(found: ComparisonResult | None) -> str:
    if found is None or found.speedup is None or found.ci is None:
        return "unknown times"
    return f"{found.speedup:.3f} times ({found.ci[0]:.3f} to {found.ci[1]:.3f})"
