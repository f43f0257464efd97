"""Run passes over one kernel.

`KernelTransform` is called with a kernel. It runs the passes in order and verifies the result. The driver combines it
with equal kernels, outcomes of earlier runs and the gate.

Requires: a module that the verifier accepts. Guarantees: a kernel that the verifier accepts, or `PassFailed` with the
pass that broke it; a kernel with an unknown branch instruction is not changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..analysis.manager import Facts
from ..analysis.values.contraction import Contraction, may_contract, pinned
from ..ptx import Kernel, Module, PtxError, flatten_scopes
from ..ptx.verify import falls_off_end, verify_kernel
from .attempt import untouched_copy
from .code_motion.branch_divergence import agree, divergent_blocks
from .passes import is_built_in, passes_of
from .remarks import Remarks

if TYPE_CHECKING:
    from ..analysis.memory.alias import Promise
    from ..analysis.profile import Profile
    from .gate.judge import ReadsFloatCode
    from .machine_contraction import Snapshot
    from .passes import Pass

__all__ = ["KernelTransform", "Observer", "PassFailed", "Timing", "run_passes", "verify_result"]


#: Stands for all passes, as the name of a pass.
_ALL = "pipeline"


class PassFailed(Exception):
    """The verifier refuses the result of a pass, or a pass of another distribution has raised an exception. This is a
    fault of the pass. ``pass_name`` is ``pipeline`` if one of several passes was at fault."""

    def __init__(self, pass_name: str, kernel: Kernel, cause: Exception | str) -> None:
        culprit = f"pass '{pass_name}'"
        if pass_name == _ALL:
            culprit = "one of the passes (--verify-each finds it)"
        super().__init__(f"{culprit} broke '{kernel.name}': {cause}")
        self.pass_name = pass_name
        self.kernel = kernel


class Observer(Protocol):
    """Is called while the passes run, for printing and dumping."""

    def started(self, module: Module, kernel: Kernel) -> None:
        """The passes start on ``kernel``."""
        ...

    def changed(self, module: Module, kernel: Kernel, number: int, each: Pass) -> None:
        """Pass ``each``, which has this number in the list, has changed ``kernel``."""
        ...


@dataclass
class Timing:
    """The seconds that a pass took for all kernels, and the number of kernels that it changed."""

    seconds: float = 0.0
    changed: int = 0


@dataclass
class KernelTransform:
    """The passes and what they may use besides the kernel.

    ``promise`` is what the user promises about pointer parameters, ``profile`` has measured counts. ``verify_each``
    verifies after each pass instead of once at the end. ``float_code`` reads machine code; without it, a kernel is not
    changed where PTX does not show what ptxas contracts. ``drops_clean_up``: the caller keeps no kernel that was
    `only_cleaned_up`, and its machine code is not compared. ``is_wanted`` is called after the first pass. If it is
    false, the others do not run, and the kernel is not to be used. ``timings`` are by the name of the pass, over all
    calls.
    """

    passes: Sequence[Pass]
    promise: Promise | None = None
    profile: Profile | None = None
    verify_each: bool = False
    observer: Observer | None = None
    float_code: ReadsFloatCode | None = None
    drops_clean_up: bool = False
    is_wanted: Callable[[], bool] | None = None
    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    #: By name of a kernel what is known of it, under any promise. It is used for this very kernel only.
    known: dict[str, Facts] = field(default_factory=dict[str, Facts])
    #: Whether ``float_code`` has refused to read some machine code, so that another run may have another result.
    was_refused: bool = field(default=False, init=False)
    #: The names of the kernels for which the transform was called.
    called_for: set[str] = field(default_factory=set[str], init=False)

    def __call__(self, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
        """Transform ``kernel`` of ``module`` in place; whether anything changed. Raises `PassFailed`."""
        self.called_for.add(kernel.name)
        reads_code = self.float_code is not None and kernel.has_scopes and may_contract(kernel)
        with_scopes = untouched_copy(kernel) if reads_code else None
        flatten_scopes(kernel)
        facts = self._facts(module, kernel)
        if not may_contract(kernel):
            facts.fixed = frozenset()
            return self._run(module, kernel, facts, remarks)
        if facts.cfg.unmodelled:
            return self._run(module, kernel, facts, remarks)
        return self._run_and_audit(module, kernel, facts, remarks, with_scopes)

    def _facts(self, module: Module, kernel: Kernel) -> Facts:
        known = self.known.get(kernel.name)
        if known is not None and known.kernel is kernel and self.profile is None:
            return known.under(self.promise)
        return Facts(kernel, module, profile=self.profile, promise=self.promise)

    @property
    def identity(self) -> str | None:
        """Everything that decides the result besides the kernel, its module and the code of this package.

        ``None`` where the result must not be reused: because a pass is not of this package, because the user wants to
        see each step, or because the passes record assumptions.
        """
        if self.promise is not None and (self.promise.inside is not None or self.promise.limits):
            return None
        if self.observer is not None or self.verify_each or not all(map(is_built_in, self.passes)):
            return None
        promise, profile = self.promise, self.profile
        promised = None
        if promise is not None and not promise.is_empty:
            promised = (
                promise.everything,
                sorted(promise.kernels),
                sorted(promise.parameters),
                sorted(promise.pairs),
                sorted(promise.aligned),
            )
        reads_code = self.float_code is not None
        return repr((list(self.passes), promised, profile.by_name if profile is not None else None, reads_code))

    def only_cleaned_up(self, remarks: Remarks) -> bool:
        """Whether the passes, which have written ``remarks`` and changed a kernel, have only propagated copies and
        removed dead code in it."""
        return not remarks.keys and all(map(is_built_in, self.passes))

    @property
    def depends_on_names(self) -> bool:
        """Whether kernels that differ only in their names may be transformed differently."""
        promise = self.promise
        named = promise is not None and (promise.kernels or promise.parameters or promise.pairs or promise.aligned)
        return bool(named) or self.profile is not None or self.identity is None

    def _run_and_audit(
        self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks, with_scopes: Kernel | None
    ) -> bool:
        """Transform a kernel with products and sums that ptxas may contract; revert it where that would change.
        ``with_scopes``: see `Snapshot.of`."""
        from .contraction_audit import keep_contraction
        from .machine_contraction import Snapshot, can_compare

        before = facts.get(Contraction.of)
        facts.fixed = before.fixed
        is_compared = before.is_fragile and self.float_code is not None and can_compare(kernel)
        if before.is_fragile and not is_compared:
            message = "not changed, because ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Refused", kernel, message, reason="contraction")
            remarks.count(kernel, "contraction", "refused")
            return False
        snapshot, checkpoint = Snapshot.of(kernel, before, with_scopes), remarks.checkpoint()
        if not self._run(module, kernel, facts, remarks):
            return False
        before = before.with_copies(facts.copies) if facts.copies else before
        if self.drops_clean_up and self.only_cleaned_up(remarks):
            return True
        pins = keep_contraction(kernel, facts, before, is_compared=is_compared)
        if is_compared and facts.copies and pins >= 0:
            pins += self._pin_copies(snapshot, module, kernel, facts)
        if pins < 0 or (is_compared and not self._contracts_the_same(snapshot, module, kernel, facts)):
            kernel.restore(snapshot.copy)
            remarks.restore(checkpoint)
            remarks.count(kernel, "contraction", "reverted")
            message = "reverted, because ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Reverted", kernel, message, reason="contraction")
            return False
        remarks.count(kernel, "contraction", "compared", int(is_compared))
        remarks.count(kernel, "contraction", "pinned", pins)
        if pins:
            self._verify(module, kernel, "contraction", fell_off=True)
        return True

    def _pin_copies(self, before: Snapshot, module: Module, kernel: Kernel, facts: Facts) -> int:
        """Give ``.rn`` to copies of products that ptxas rounds in the original; their number."""
        from .gate.judge import Refused

        assert self.float_code is not None
        live = facts.get(Contraction.of).live
        pins = 0
        try:
            rounded = before.rounded_copies(self.float_code, module, facts.copies)
        except Refused:
            self.was_refused = True
            return 0
        for instr in rounded:
            mnemonic = pinned(instr.form)
            if instr in live and mnemonic is not None and not instr.form.mods.get("rnd"):
                kernel.replace_form(instr, mnemonic)
                pins += 1
        return pins

    def _contracts_the_same(self, before: Snapshot, module: Module, kernel: Kernel, facts: Facts) -> bool:
        from .gate.judge import Refused

        assert self.float_code is not None
        live = facts.get(Contraction.of).live
        try:
            return before.contracts_the_same(self.float_code, module, kernel, live, facts.copies)
        except Refused:
            self.was_refused = True
            return False

    def _run(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        if facts.cfg.unmodelled:
            text = facts.cfg.unmodelled[0].form.text
            message = f"'{text}' is unknown and may branch, so the kernel is not changed"
            remarks.add("Missed", "pipeline", "Refused", kernel, message, reason="opaque")
            return False
        if self.observer is not None:
            self.observer.started(module, kernel)
        if not all(map(is_built_in, self.passes)):
            return self._run_passes(module, kernel, facts, remarks)
        because = "the passes of this package keep the conditional branches, and the conditions keep their values"
        with facts.preserve(divergent_blocks, because=because, agrees=agree):
            return self._run_passes(module, kernel, facts, remarks)

    def _run_passes(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        changed = False
        fell_off = falls_off_end(kernel)
        for number, each in enumerate(self.passes):
            if number == 1 and self.is_wanted is not None and not self.is_wanted():
                return False
            if not self._run_pass(each, kernel, facts, remarks):
                continue
            changed = True
            if self.observer is not None:
                self.observer.changed(module, kernel, number, each)
            if self.verify_each:
                self._verify(module, kernel, each.name, fell_off=fell_off)
        kernel.drop_unused_new_registers()
        if changed and not self.verify_each:
            name = self.passes[0].name if len(self.passes) == 1 else _ALL
            self._verify(module, kernel, name, fell_off=fell_off)
        return changed

    def _run_pass(self, each: Pass, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        started = time.perf_counter()
        changed = each.run(kernel, facts, remarks) if is_built_in(each) else _foreign(each, kernel, facts, remarks)
        timing = self.timings.setdefault(each.name, Timing())
        timing.seconds += time.perf_counter() - started
        timing.changed += changed
        return changed

    def _verify(self, module: Module, kernel: Kernel, pass_name: str, *, fell_off: bool) -> None:
        started = time.perf_counter()
        verify_result(module, kernel, pass_name, fell_off=fell_off)
        self.timings.setdefault("verify", Timing()).seconds += time.perf_counter() - started


def _foreign(each: Any, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
    """Run a pass of another distribution. Raises `PassFailed` for whatever it raises."""
    try:
        changed = each.run(kernel, facts, remarks)
    except Exception as error:
        raise PassFailed(each.name, kernel, f"{type(error).__name__}: {error}") from error
    if not isinstance(changed, bool):
        raise PassFailed(each.name, kernel, f"'run' returned {changed!r}, but must return True or False")
    return changed


def verify_result(module: Module, kernel: Kernel, pass_name: str, *, fell_off: bool) -> None:
    """Verify the result of ``pass_name``. ``fell_off``: whether control fell off the kernel's end before. Raises
    `PassFailed`."""
    try:
        verify_kernel(kernel, module.source)
    except PtxError as error:
        raise PassFailed(pass_name, kernel, error) from error
    if falls_off_end(kernel) and not fell_off:
        raise PassFailed(pass_name, kernel, ValueError("control falls off its end, which it did not before"))


def run_passes(
    module: Module,
    passes: str | Sequence[Pass],
    remarks: Remarks | None = None,
    *,
    promise: Promise | None = None,
    profile: Profile | None = None,
    verify_each: bool = False,
    float_code: ReadsFloatCode | None = None,
) -> bool:
    """Run passes over each kernel of ``module`` in place, without a gate; whether any kernel changed.

    ``passes`` as in `passes_of`. This is for tests and tools that examine the passes. To optimize, use
    `ptxmotion.optimize`. Raises `UnknownPass`, `PassFailed`.
    """
    chosen = passes_of(passes) if isinstance(passes, str) else passes
    transform = KernelTransform(chosen, promise, profile, verify_each, float_code=float_code)
    remarks = remarks if remarks is not None else Remarks(module)
    changed = [transform(module, kernel, remarks) for kernel in module.kernels] if chosen else []
    return any(changed)
