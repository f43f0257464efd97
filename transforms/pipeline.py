"""The passes, in the order in which they run, and the loop that runs them.

After each pass the kernel is verified where asked for, and always at the end. Everything that happens is in one place
to read: what changed, how often, how long it took; ``dump`` writes the kernel before and after a pass as files that
are inputs again.

Requires: a module that the verifier accepts. Guarantees: a module that it accepts, or `PassFailed` with the pass that
broke it; kernels that a pass refuses are left as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

from ..analysis.manager import Facts
from ..analysis.values.contraction import contraction_of, may_contract
from ..ptx import Kernel, Module, PtxError, print_module
from ..ptx.collector import is_large, paused
from ..ptx.verify import falls_off_end
from .equal_kernels import Outcome, Twins
from .remarks import Remarks

if TYPE_CHECKING:
    from pathlib import Path

    from ..analysis.memory.alias import Promise
    from ..analysis.profile import Profile
    from .gate.figures import Judge

__all__ = ["LEVELS", "Pass", "PassFailed", "Pipeline", "UnknownPass", "create_pass", "pass_names", "pipeline_of"]


class Pass(Protocol):
    """A transform of one kernel. Its dataclass fields are its options."""

    name: ClassVar[str]

    def run(self, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Transform ``kernel``; whether anything changed."""
        ...


class UnknownPass(ValueError):
    """There is no pass, level or option of that name."""


class PassFailed(Exception):
    """A pass left a kernel that the verifier refuses: a fault of ours."""

    def __init__(self, pass_name: str, kernel: Kernel, cause: Exception) -> None:
        super().__init__(f"pass '{pass_name}' broke '{kernel.name}': {cause}")
        self.pass_name = pass_name
        self.kernel = kernel


#: Module and class of each pass, in the order of the default pipeline. Only what is asked for is imported: `opt` is
#: started for every file of a build.
_CLASSES: dict[str, tuple[str, str]] = {
    "cse": ("total_redundancy", "TotalRedundancy"),
    "lcm": ("lazy_code_motion", "LazyCodeMotion"),
    "scm": ("sparse_code_motion", "SparseCodeMotion"),
    "spre": ("sparse_code_motion", "SpeculativePartialRedundancyElimination"),
    "sscm": ("sparse_code_motion", "SpeculativeSparseCodeMotion"),
    "srqp": ("scalar_replacement", "ScalarReplacement"),
    "esrqp": ("scalar_replacement", "ExtendedScalarReplacement"),
    "ssrqp_s": ("scalar_replacement", "SpeculativeScalarReplacementEverywhere"),
    "ssrqp": ("scalar_replacement", "SpeculativeScalarReplacement"),
    "motion": ("motion_fixpoint", "MotionFixpoint"),
    "vectormerge": ("vector_merge", "VectorMerge"),
    "readonly": ("read_only_loads", "ReadOnlyLoads"),
    "deadstores": ("dead_stores", "DeadStores"),
    "copyprop": ("copy_propagation", "CopyPropagation"),
    "dce": ("dead_code", "DeadCodeElimination"),
    "emptyblocks": ("dead_code", "EmptyBlocks"),
}


#: The ordered lists of passes.
LEVELS: dict[str, tuple[str, ...]] = {
    "O0": (),
    # lcm removes total redundancies itself and cleans up between its rounds; dce takes what was dead before.
    "O1": ("lcm", "dce", "emptyblocks"),
    # sscm runs lcm first, and keeps it out of the arms of divergent branches.
    "O2": ("sscm", "dce", "emptyblocks"),
    # motion is sscm and ssrqp in turn. Loads are merged after it, since it replaces them one by one; what is only read
    # is said of those that are left; a store is dead only once nothing reads it.
    "O3": ("motion", "vectormerge", "readonly", "deadstores", "copyprop", "dce", "emptyblocks"),
}


def pass_names() -> list[str]:
    """The names of all passes."""
    return list(_CLASSES)


def create_pass(text: str) -> Pass:
    """The pass that ``name`` or ``name:option=value:option=value`` describes.

    Raises `UnknownPass`.
    """
    name, *settings = text.split(":")
    if name not in _CLASSES:
        raise UnknownPass(f"there is no pass '{name}'; there are {', '.join(_CLASSES)}")
    module, class_name = _CLASSES[name]
    pass_class: Callable[..., Pass] = getattr(import_module(f".{module}", __package__), class_name)
    types = {option.name: str(option.type) for option in fields(pass_class)}  # pyright: ignore[reportArgumentType]
    options: dict[str, object] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        if option not in types or not equals:
            offered = ", ".join(types) or "none"
            raise UnknownPass(f"pass '{name}' has no option '{setting}'; its options: {offered}")
        options[option] = _converted(name, option, types[option], value)
    try:
        return pass_class(**options)
    except ValueError as error:
        raise UnknownPass(str(error)) from None


def _is_ours(each: Pass) -> bool:
    """Whether the pass is one of `_CLASSES`, whose ``repr`` says all of its options."""
    module, class_name = _CLASSES.get(each.name, ("", ""))
    return (type(each).__module__, type(each).__qualname__) == (f"{__package__}.{module}", class_name)


def _converted(name: str, option: str, kind: str, value: str) -> object:
    try:
        if kind == "int":
            return int(value)
        if kind == "bool":
            return {"true": True, "false": False}[value]
    except (KeyError, ValueError):
        raise UnknownPass(f"option '{option}' of pass '{name}' takes a value of type {kind}, not '{value}'") from None
    return value


def pipeline_of(text: str) -> list[Pass]:
    """The passes of a level (``O1``), of ``none``, or of a list of passes with commas between them."""
    if text in ("none", ""):
        return []
    names = LEVELS[text] if text in LEVELS else tuple(text.split(","))
    return [create_pass(name) for name in names]


@dataclass
class Timing:
    """Seconds spent in a pass over all kernels, and in how many it changed something."""

    seconds: float = 0.0
    changed: int = 0


@dataclass
class Pipeline:
    """Runs ``passes`` over every kernel of a module.

    ``verify`` is the verifier of one kernel (it raises), called after each pass if ``verify_each``; ``dump`` is a
    folder for numbered ``.ptx`` files of every pass that changed something; ``only`` selects kernels by name; with a
    ``judge``, a kernel stays changed only where the judge finds it better (`ptxas_judge.py`); ``profile`` says what was
    measured, ``promise`` what is promised of pointer parameters.
    """

    passes: Sequence[Pass]
    verify: Callable[[Kernel, Module], None]
    verify_each: bool = False
    dump: Path | None = None
    only: Callable[[str], bool] | None = None
    judge: Judge | None = None
    profile: Profile | None = None
    promise: Promise | None = None
    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])

    def run(self, module: Module, remarks: Remarks) -> bool:
        """Transform ``module`` in place; whether anything changed."""
        if not self.passes:
            return False
        kernels = [kernel for kernel in module.kernels if self.only is None or self.only(kernel.name)]
        if self.judge is not None:
            from .gate.gate import Gate

            gate = Gate(self.judge, self.run_kernel, self.identity(), goes_by_names=self.goes_by_names)
            return gate.run(module, kernels, remarks)
        with paused(promotes=is_large(module.source.text)):
            twins = None if self.goes_by_names else Twins.of(module, kernels, remarks)
            if twins is not None:
                return self._run_with_twins(module, kernels, remarks, twins)
            changed = False
            for kernel in kernels:
                changed |= self.run_kernel(module, kernel, remarks)
            return changed

    @property
    def goes_by_names(self) -> bool:
        """Whether kernels of other names would become something else, or each is to be seen at work."""
        named = self.promise is not None and (self.promise.kernels or self.promise.parameters)
        return bool(named) or self.profile is not None or self.identity() is None

    def _run_with_twins(self, module: Module, kernels: Sequence[Kernel], remarks: Remarks, twins: Twins) -> bool:
        """Transform the kernels, and of those that differ in names only the first."""
        outcomes: dict[str, Outcome] = {}
        for kernel in kernels:
            twin = twins.find(kernel)
            if twin is None:
                said = Remarks(module)
                is_changed = self.run_kernel(module, kernel, said)
                outcome = Outcome(kernel, said, is_changed)
            else:
                outcome = twin.outcome(outcomes[twin.elder])
                module.put(outcome.kernel)
                if outcome.is_changed:
                    self._verify(module, outcome.kernel, "pipeline", fell_off=True)
            outcomes[kernel.name] = outcome
            remarks.take(outcome.said)
        return any(outcome.is_changed for outcome in outcomes.values())

    def identity(self) -> str | None:
        """All that `run_kernel` goes by besides the kernel, its module and our own code; `None` where passes are not
        ours, or each step of them is to be seen or verified."""
        if self.dump is not None or self.verify_each or any(not _is_ours(each) for each in self.passes):
            return None
        promise, profile = self.promise, self.profile
        promised = None
        if promise is not None:
            promised = (promise.everything, sorted(promise.kernels), sorted(promise.parameters))
        return repr((list(self.passes), promised, profile.by_name if profile is not None else None))

    def run_kernel(self, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
        """Transform one kernel in place; whether anything changed."""
        with paused(promotes=False):
            kernel.flatten_scopes()
            facts = Facts(kernel, module, profile=self.profile, promise=self.promise)
            try:
                if not may_contract(kernel) or facts.cfg.unmodelled:
                    return self._run_over(module, kernel, facts, remarks)
                return self._run_and_audit(module, kernel, facts, remarks)
            finally:
                facts.drop()

    def _run_and_audit(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Transform a kernel with products and sums that ptxas may contract; revert it where that would change."""
        from .contraction_audit import keep_contraction

        before = contraction_of(facts)
        if before.is_fragile:
            message = "left as it is, since ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Refused", kernel, message, reason="contraction")
            remarks.count(kernel, "contraction", "refused")
            return False
        original, checkpoint = kernel.clone(), remarks.checkpoint()
        if not self._run_over(module, kernel, facts, remarks):
            return False
        pins = keep_contraction(kernel, facts, before)
        if pins < 0:
            kernel.restore(original)
            remarks.restore(checkpoint)
            remarks.count(kernel, "contraction", "reverted")
            message = "reverted, since ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Reverted", kernel, message, reason="contraction")
            return False
        remarks.count(kernel, "contraction", "pinned", pins)
        if pins:
            self._verify(module, kernel, "contraction", fell_off=True)
        return True

    def _run_over(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        if facts.cfg.unmodelled:
            text = facts.cfg.unmodelled[0].form.text
            message = f"'{text}' is unknown and may branch, so the kernel is left as it is"
            remarks.add("Missed", "pipeline", "Refused", kernel, message, reason="opaque")
            return False
        changed = False
        fell_off = falls_off_end(kernel)
        for number, each in enumerate(self.passes):
            started = time.perf_counter()
            did = each.run(kernel, facts, remarks)
            timing = self.timings.setdefault(each.name, Timing())
            timing.seconds += time.perf_counter() - started
            if did:
                changed = True
                timing.changed += 1
                if self.dump is not None:
                    self._write_dump(module, kernel, number, each)
                if self.verify_each:
                    self._verify(module, kernel, each.name, fell_off=fell_off)
        if changed and not self.verify_each:
            self._verify(module, kernel, "pipeline", fell_off=fell_off)
        return changed

    def _verify(self, module: Module, kernel: Kernel, pass_name: str, *, fell_off: bool) -> None:
        started = time.perf_counter()
        try:
            self.verify(kernel, module)
        except PtxError as error:
            raise PassFailed(pass_name, kernel, error) from error
        if falls_off_end(kernel) and not fell_off:
            raise PassFailed(pass_name, kernel, ValueError("control falls off its end, which it did not before"))
        self.timings.setdefault("verify", Timing()).seconds += time.perf_counter() - started

    def _write_dump(self, module: Module, kernel: Kernel, number: int, each: Pass) -> None:
        assert self.dump is not None
        self.dump.mkdir(parents=True, exist_ok=True)
        path = self.dump / f"{number:02}-{each.name}-{_file_name(kernel.name)}.ptx"
        path.write_text(print_module(module), encoding="utf-8", errors="surrogateescape")


#: The most of a kernel's name that stands in the name of a dump: file systems take 255 bytes.
_LONGEST_NAME = 80


def _file_name(kernel: str) -> str:
    """The kernel's name as a part of a file's. Where it is shortened, a part of its hash follows, so that different
    kernels have different files."""
    if len(kernel) <= _LONGEST_NAME:
        return kernel
    import hashlib

    return f"{kernel[:_LONGEST_NAME]}-{hashlib.sha256(kernel.encode()).hexdigest()[:12]}"
