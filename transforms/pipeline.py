"""Run passes over one kernel.

`KernelTransform` is called with a kernel; it runs the passes in order and verifies what they made. Equal kernels,
outcomes of earlier runs and the gate are not its business: the driver combines them.

Requires: a module that the verifier accepts. Guarantees: a kernel that the verifier accepts, or `PassFailed` with the
pass that broke it; a kernel that contains an unknown branch instruction stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..analysis.manager import Facts
from ..analysis.values.contraction import Contraction, may_contract
from ..ptx import Instr, Kernel, Module, PtxError, flatten_scopes
from ..ptx.verify import falls_off_end, verify_kernel
from .code_motion.branch_divergence import divergent_blocks
from .passes import is_built_in, passes_of
from .remarks import Remarks

if TYPE_CHECKING:
    from ..analysis.memory.alias import Promise
    from ..analysis.profile import Profile
    from .gate.judge import ReadsFloatCode
    from .passes import Pass

__all__ = ["KernelTransform", "Observer", "PassFailed", "Timing", "run_passes", "verify_result"]


class PassFailed(Exception):
    """A pass left a kernel that the verifier refuses. This is a fault of the pass."""

    def __init__(self, pass_name: str, kernel: Kernel, cause: Exception) -> None:
        super().__init__(f"pass '{pass_name}' broke '{kernel.name}': {cause}")
        self.pass_name = pass_name
        self.kernel = kernel


class Observer(Protocol):
    """Is told what the passes do, for printing and dumping."""

    def started(self, module: Module, kernel: Kernel) -> None:
        """The passes begin with ``kernel``."""
        ...

    def changed(self, module: Module, kernel: Kernel, number: int, each: Pass) -> None:
        """Pass ``each``, the one with this number in the list, has changed ``kernel``."""
        ...


@dataclass
class Timing:
    """Seconds spent in a pass over all kernels, and in how many kernels it changed something."""

    seconds: float = 0.0
    changed: int = 0


@dataclass
class KernelTransform:
    """The passes and what they may use besides the kernel.

    ``promise`` is what the user promises of pointer parameters; ``profile`` is what was measured; ``verify_each``
    verifies after each pass instead of once at the end. ``float_code`` reads machine code; without it, a kernel of
    which PTX does not show what ptxas contracts is left as it is. ``timings`` are collected by pass name over all
    calls.
    """

    passes: Sequence[Pass]
    promise: Promise | None = None
    profile: Profile | None = None
    verify_each: bool = False
    observer: Observer | None = None
    float_code: ReadsFloatCode | None = None
    timings: dict[str, Timing] = field(default_factory=dict[str, Timing])
    #: Whether ``float_code`` has refused to read some machine code, so that another run may come to another result.
    was_refused: bool = field(default=False, init=False)

    def __call__(self, module: Module, kernel: Kernel, remarks: Remarks) -> bool:
        """Transform ``kernel`` of ``module`` in place; whether anything changed. Raises `PassFailed`."""
        flatten_scopes(kernel)
        facts = Facts(kernel, module, profile=self.profile, promise=self.promise)
        if not may_contract(kernel):
            facts.fixed = frozenset()
            return self._run(module, kernel, facts, remarks)
        if facts.cfg.unmodelled:
            return self._run(module, kernel, facts, remarks)
        return self._run_and_audit(module, kernel, facts, remarks)

    @property
    def identity(self) -> str | None:
        """Everything that decides the result besides the kernel, its module and the code of this package.

        ``None`` where the result must not be reused: a pass is not of this package, or each step is to be seen.
        """
        if self.observer is not None or self.verify_each or not all(map(is_built_in, self.passes)):
            return None
        promise, profile = self.promise, self.profile
        promised = None
        if promise is not None:
            promised = (promise.everything, sorted(promise.kernels), sorted(promise.parameters))
        reads_code = self.float_code is not None
        return repr((list(self.passes), promised, profile.by_name if profile is not None else None, reads_code))

    @property
    def depends_on_names(self) -> bool:
        """Whether kernels that differ in their names only may be transformed differently."""
        named = self.promise is not None and (self.promise.kernels or self.promise.parameters)
        return bool(named) or self.profile is not None or self.identity is None

    def _run_and_audit(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        """Transform a kernel with products and sums that ptxas may contract; revert it where that would change."""
        from .contraction_audit import keep_contraction
        from .machine_contraction import can_compare

        before = facts.get(Contraction.of)
        facts.fixed = before.fixed
        is_compared = before.is_fragile and self.float_code is not None and can_compare(kernel)
        if before.is_fragile and not is_compared:
            message = "left as it is, since ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Refused", kernel, message, reason="contraction")
            remarks.count(kernel, "contraction", "refused")
            return False
        original, checkpoint = kernel.clone(), remarks.checkpoint()
        instrs = list(kernel.instructions())
        if not self._run(module, kernel, facts, remarks):
            return False
        pins = keep_contraction(kernel, facts, before, is_compared=is_compared)
        is_same = pins >= 0
        if is_same and is_compared:
            live = facts.get(Contraction.of).live
            is_same = self._contracts_the_same(module, kernel, before, live, original, instrs)
        if not is_same:
            kernel.restore(original)
            remarks.restore(checkpoint)
            remarks.count(kernel, "contraction", "reverted")
            message = "reverted, since ptxas might contract other products than before"
            remarks.add("Missed", "contraction", "Reverted", kernel, message, reason="contraction")
            return False
        remarks.count(kernel, "contraction", "compared", int(is_compared))
        remarks.count(kernel, "contraction", "pinned", pins)
        if pins:
            self._verify(module, kernel, "contraction", fell_off=True)
        return True

    def _contracts_the_same(
        self,
        module: Module,
        kernel: Kernel,
        contraction: Contraction,
        live: set[Instr],
        original: Kernel,
        instrs: list[Instr],
    ) -> bool:
        """Whether ptxas contracts the same sums of ``original`` and ``kernel``.

        ``contraction`` and ``instrs`` are those of ``kernel`` before the passes, ``instrs`` in the order of
        ``original``. ``live`` are its instructions after the passes whose effect or result is needed.
        """
        from .gate.judge import Refused
        from .machine_contraction import float_code, is_same

        assert self.float_code is not None
        try:
            before = float_code(self.float_code, module, original)
            after = float_code(self.float_code, module, kernel)
        except Refused:
            self.was_refused = True
            return False
        return is_same(
            contraction,
            live,
            dict(zip(instrs, before, strict=True)),
            dict(zip(kernel.instructions(), after, strict=True)),
        )

    def _run(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        if facts.cfg.unmodelled:
            text = facts.cfg.unmodelled[0].form.text
            message = f"'{text}' is unknown and may branch, so the kernel is left as it is"
            remarks.add("Missed", "pipeline", "Refused", kernel, message, reason="opaque")
            return False
        if self.observer is not None:
            self.observer.started(module, kernel)
        if not all(map(is_built_in, self.passes)):
            return self._run_passes(module, kernel, facts, remarks)
        because = "the passes of this package keep the conditional branches, and the conditions keep their values"
        with facts.preserve(divergent_blocks, because=because):
            return self._run_passes(module, kernel, facts, remarks)

    def _run_passes(self, module: Module, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        changed = False
        fell_off = falls_off_end(kernel)
        for number, each in enumerate(self.passes):
            if not self._run_pass(each, kernel, facts, remarks):
                continue
            changed = True
            if self.observer is not None:
                self.observer.changed(module, kernel, number, each)
            if self.verify_each:
                self._verify(module, kernel, each.name, fell_off=fell_off)
        if changed and not self.verify_each:
            self._verify(module, kernel, "pipeline", fell_off=fell_off)
        return changed

    def _run_pass(self, each: Pass, kernel: Kernel, facts: Facts, remarks: Remarks) -> bool:
        started = time.perf_counter()
        changed = each.run(kernel, facts, remarks)
        timing = self.timings.setdefault(each.name, Timing())
        timing.seconds += time.perf_counter() - started
        timing.changed += changed
        return changed

    def _verify(self, module: Module, kernel: Kernel, pass_name: str, *, fell_off: bool) -> None:
        started = time.perf_counter()
        verify_result(module, kernel, pass_name, fell_off=fell_off)
        self.timings.setdefault("verify", Timing()).seconds += time.perf_counter() - started


def verify_result(module: Module, kernel: Kernel, pass_name: str, *, fell_off: bool) -> None:
    """Verify what ``pass_name`` made; ``fell_off`` is whether control fell off the end before. Raises `PassFailed`."""
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
    """Run passes over each kernel of ``module`` in place, one after the other, without a gate; whether any changed.

    ``passes`` as in `passes_of`. For tests and tools that look at the passes themselves; `ptxmotion.optimize` is the
    way to optimize. Raises `UnknownPass`, `PassFailed`.
    """
    chosen = passes_of(passes) if isinstance(passes, str) else passes
    transform = KernelTransform(chosen, promise, profile, verify_each, float_code=float_code)
    remarks = remarks if remarks is not None else Remarks(module)
    changed = [transform(module, kernel, remarks) for kernel in module.kernels] if chosen else []
    return any(changed)
