"""The driver: optimizes a module. This is the public API; `opt`, `bench`, `fuse` and the pytest plugin call it.

    select → transform → judge → search → commit

1. *select*: the kernels that the policy names, without those for which an earlier run has recorded an outcome. Of
   kernels that are equal except for names, only the first is selected.
2. *transform*: the passes run over each selected kernel (`transforms.pipeline`). No pass looks at another kernel, so
   the order does not matter.
3. *judge* and *search*: where there is a gate, a kernel stays changed only where it is better (`transforms.gate`).
4. *commit*: each outcome is put into the module, recorded for later runs, and its remarks are reported in the order of
   the text.

With ``contract``, versions for launches with known facts are added at last (`versions`).

Requires: PTX that the verifier accepts. Guarantees: PTX that the verifier accepts, with the same results. `optimize`
does not change the code of its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .cost import SCHEDULERS
from .ptx import Kernel, Module, parse, print_module
from .ptx.verify import verify
from .transforms.attempt import Attempt, untouched_copy
from .transforms.equal_kernels import EqualKernels
from .transforms.gate.judge import JudgesSmallLaunches, ReadsFloatCode, TimesItsWork
from .transforms.passes import passes_of
from .transforms.pipeline import KernelTransform
from .transforms.remarks import Remark, Remarks
from .work_times import WorkTimes

if TYPE_CHECKING:
    from .analysis.memory.alias import Promise, RecordingPromise
    from .analysis.profile import Profile
    from .contract import Contract
    from .transforms.gate.judge import Judge
    from .transforms.passes import Pass
    from .transforms.pipeline import Observer, Timing

__all__ = ["GATED_LEVELS", "Policy", "Result", "optimize", "optimize_in_place", "optimize_module"]

#: The levels that the gate judges by default.
GATED_LEVELS = ("O2", "O3")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What `optimize` may assume, and how it decides.

    - ``gate``: ``ptxas``; ``static`` (a model of PTX); ``auto``, which is ptxas, or the static model where there is no
      ptxas; ``off``; or `None`, which is ``auto`` for the levels O2 and O3 and ``off`` otherwise.
    - ``judge``: a custom judge, instead of ``gate``.
    - ``arch``: what the gate assembles for (default: the module's target). ``gate_timeout``: seconds for ptxas.
      ``ptxas_options``: further options that the gate gives to ptxas, such as ``-maxrregcount=32``.
    - ``promise``: what the caller promises about pointer parameters (`Promise.parse("restrict")`); not checked here.
    - ``profile``: measured counts of blocks and branches; used for costs only.
    - ``kernels``: selects kernels by name (default: all).
    - ``limit``: the most rewrites in all. ``explain``: report also refusals that take time to find.
    - ``verify_each``: verify after each pass. ``observer``: is called after each pass.
    - ``contract``: add versions of kernels that assume facts of the launch, and make the contract that states them.
      Neither a ``promise`` nor a ``limit`` goes with it. ``version_suffix``: the end of the names of versions.
    """

    gate: str | None = None
    judge: Judge | None = None
    arch: str | None = None
    gate_timeout: float | None = None
    ptxas_options: tuple[str, ...] = ()
    promise: Promise | None = None
    profile: Profile | None = None
    kernels: Callable[[str], bool] | None = None
    limit: int | None = None
    explain: bool = False
    verify_each: bool = False
    observer: Observer | None = None
    contract: bool = False
    version_suffix: str = ""


_DEFAULT = Policy()

#: How the options of ptxas begin that choose another level of optimization than its default.
_OTHER_LEVELS = ("-O", "--opt-level", "-opt-level", "-g", "--device-debug", "-device-debug")


@dataclass(frozen=True)
class Result:
    """The optimized ``module``. ``changed`` are the names of the kernels that differ from the given ones.

    ``log`` has the remarks, the counts and the number of rewrites. ``timings`` are the seconds of each pass,
    ``judge_times`` those of the judge. ``warnings`` are sentences for the user. ``contract``
    is that of ``text``, if the policy wanted one.
    """

    module: Module
    changed: tuple[str, ...]
    log: Remarks
    timings: Mapping[str, Timing]
    warnings: tuple[str, ...] = ()
    judge_times: WorkTimes = field(default_factory=WorkTimes)
    contract: Contract | None = None

    @cached_property
    def text(self) -> str:
        """The module as PTX."""
        return print_module(self.module)

    @property
    def remarks(self) -> Sequence[Remark]:
        """What the passes did and what they refused, in the order of the text."""
        return self.log.items


def optimize(source: str | Module, passes: str | Sequence[Pass | str] = "O2", policy: Policy = _DEFAULT) -> Result:
    """Optimize PTX text or a module. A given module keeps its code; only nested scopes may be flattened.

    ``passes`` is a level (``O0`` to ``O3``), a list of names separated by commas, or a sequence of passes and names.
    Raises `TypeError` for what is neither text nor a module, `PtxError` for PTX that the parser or the verifier
    refuses, `UnknownPass`, `PassFailed`, `ToolMissing` for ``gate="ptxas"`` without ptxas, and `ValueError` for a
    policy that contradicts itself.

    >>> header = ".version 9.0\\n.target sm_90\\n.address_size 64\\n"
    >>> optimize(header + ".entry k() { .reg .b32 %r; mov.u32 %r, 1; ret; }", "dce").changed
    ('k',)
    """
    if not isinstance(source, str | Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"PTX is text, as of Path.read_text(), or a Module, and not a {type(source).__name__}")
    module = parse(source) if isinstance(source, str) else _copy(source)
    verify(module)
    return optimize_in_place(module, passes, policy)


def optimize_in_place(module: Module, passes: str | Sequence[Pass | str] = "O2", policy: Policy = _DEFAULT) -> Result:
    """As `optimize`, but changes ``module``, which the caller has verified. Raises `ValueError` for a contract
    with a promise or a limit of rewrites."""
    if policy.contract and (policy.promise is not None or policy.limit is not None):
        raise ValueError("a contract needs neither a promise nor a limit of rewrites")
    chosen = _chosen(passes)
    judge, warnings = _judge(policy, passes, module.version)
    recording = _recording_promise() if policy.contract else None
    transform = KernelTransform(
        chosen,
        recording or policy.promise,
        policy.profile,
        policy.verify_each,
        policy.observer,
        judge if isinstance(judge, ReadsFloatCode) else None,
        drops_clean_up=judge is not None and _is_optimized(module, policy),
    )
    log = Remarks(module, policy.limit, explains=policy.explain)
    kernels = [kernel for kernel in module.kernels if policy.kernels is None or policy.kernels(kernel.name)]
    given = {kernel.name: untouched_copy(kernel) for kernel in kernels if kernel.is_entry} if policy.contract else {}
    changed = optimize_module(module, kernels, transform, judge, log) if chosen else []
    times = judge.times if isinstance(judge, TimesItsWork) else WorkTimes()
    contract = None
    if recording is not None:
        contract = _add_versions(module, given, recording, transform, judge, log, policy)
    return Result(module, tuple(changed), log, transform.timings, tuple(warnings), times, contract)


def _recording_promise() -> RecordingPromise:
    from .analysis.memory.alias import RecordingPromise
    from .versions.alignment import assumed_alignments

    return RecordingPromise(assumes=assumed_alignments)


def _add_versions(
    module: Module,
    given: Mapping[str, Kernel],
    recording: RecordingPromise,
    transform: KernelTransform,
    judge: Judge | None,
    log: Remarks,
    policy: Policy,
) -> Contract:
    """Add versions of the entries, which were ``given`` in this form, to the optimized module; its contract.
    ``recording``: the promise under which ``transform`` has run."""
    from .versions.module import contract_of, put_versions
    from .versions.search import FEW_WARPS, HOISTING, VersionSearch

    few = judge.for_small_launches(FEW_WARPS * SCHEDULERS) if isinstance(judge, JudgesSmallLaunches) else judge

    def optimized(scratch: Module, kernels: Sequence[Kernel], promise: Promise, passes: Sequence[Pass]) -> None:
        restricted = replace(transform, passes=passes, promise=promise, timings={}, observer=None)
        assumed = promise.inside
        if assumed is None:
            optimize_module(scratch, kernels, restricted, judge, Remarks(scratch))
            return

        def is_wanted() -> bool:
            return bool(assumed.limits) if promise.limits else not assumed.is_empty

        # Loads are hoisted, which is for small launches only. Without an assumption there is no version, and none with
        # clamped indices without a limit. The first pass tries the most loads, so the others do not run if it assumes
        # nothing.
        restricted.is_wanted = is_wanted
        optimize_module(scratch, kernels, restricted, few, Remarks(scratch), is_wanted)

    hoisting = passes_of(HOISTING) if transform.passes else []
    independent = transform.called_for - {kernel for kernel, _, _ in recording.asked}
    merges = {name: recording.merges.get(name, frozenset[tuple[str, str, int]]()) for name in transform.called_for}
    outcomes = VersionSearch(module, given, independent, merges, transform, judge, optimized, hoisting).find()
    return contract_of(module, put_versions(module, outcomes, log, policy.version_suffix))


def _copy(module: Module) -> Module:
    copies = {kernel.name: untouched_copy(kernel) for kernel in module.kernels}
    copy = replace(module, items=list(module.items))
    for kernel in copies.values():
        copy.put(kernel)
    return copy


def _chosen(passes: str | Sequence[Pass | str]) -> list[Pass]:
    """The passes to run. Raises `UnknownPass`."""
    given = [passes] if isinstance(passes, str) else passes
    return [each for item in given for each in (passes_of(item) if isinstance(item, str) else [item])]


def _judge(policy: Policy, passes: str | Sequence[Pass | str], version: str) -> tuple[Judge | None, list[str]]:
    if policy.judge is not None:
        return policy.judge, []
    from .judges import judge_of

    choice = policy.gate or ("auto" if passes in GATED_LEVELS else "off")
    return judge_of(choice, policy.arch, policy.gate_timeout, options=policy.ptxas_options, version=version)


def _is_optimized(module: Module, policy: Policy) -> bool:
    """Whether ptxas optimizes the module. Then it propagates copies and removes dead code itself."""
    options = [word.strip() for word in module.target.split(",")]
    return "debug" not in options and not any(option.startswith(_OTHER_LEVELS) for option in policy.ptxas_options)


def optimize_module(
    module: Module,
    kernels: Sequence[Kernel],
    transform: KernelTransform,
    judge: Judge | None,
    log: Remarks,
    is_wanted: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Optimize ``kernels`` of ``module`` in place, without verifying them first. Returns the names of those that
    changed. ``is_wanted`` is called after the passes. If it is false, the gate does not run, and the result is not to
    be used."""
    cache = None
    if judge is not None:
        from .transforms.gate.outcome_cache import OutcomeCache

        cache = OutcomeCache.of(judge, module, kernels, transform.identity, log)
    recorded = cache.recall() if cache is not None else {}
    selected = [kernel for kernel in kernels if kernel.name not in recorded]
    equal = {} if transform.depends_on_names else EqualKernels.among(module, selected, log)
    attempts = _transform(module, [each for each in selected if each.name not in equal], transform, judge, log)
    if not is_wanted():
        return []
    complete = True
    if judge is not None:
        from .transforms.gate.gate import judge_attempts

        complete = judge_attempts(judge, module, attempts, transform, searches=log.limit is None)
    outcomes = recorded | {attempt.original.name: attempt.outcome for attempt in attempts}
    outcomes |= {name: each.outcome(outcomes[each.first]) for name, each in equal.items()}
    for kernel in kernels:
        module.put(outcomes[kernel.name].kernel)
        log.take(outcomes[kernel.name].remarks)
    if cache is not None and complete and not transform.was_refused:
        cache.record(outcomes)
    return [kernel.name for kernel in kernels if outcomes[kernel.name].is_changed]


def _transform(
    module: Module, kernels: Sequence[Kernel], transform: KernelTransform, judge: Judge | None, log: Remarks
) -> list[Attempt]:
    """Run the passes over each kernel, with at most as many rewrites in all as ``log`` allows."""
    attempts: list[Attempt] = []
    left = log.limit
    for kernel in kernels:
        remarks = Remarks(module, left, explains=log.explains)
        original = untouched_copy(kernel) if judge is not None else kernel
        changed = transform(module, kernel, remarks)
        if left is not None:
            left = max(left - remarks.rewrites, 0)
        is_clean_up = changed and transform.drops_clean_up and transform.only_cleaned_up(remarks)
        attempts.append(Attempt(kernel, original, remarks, changed, is_clean_up))
    return attempts
