"""The facts of a kernel: computed on first use and cached until the kernel changes.

Requires: every change of the kernel increments its version, as the methods of `Kernel` do.
Guarantees: a cached fact is never older than the kernel. Each access compares versions and drops what is out of date.
Facts that depend only on the control flow graph survive a change of instructions. Inside a `Facts.preserve` context the
named fact survives every change; with `Facts.checks_preserved` it is then recomputed and compared.
Facts that depend on no promise (`fact_marks`) are computed once for several promises: see `Facts.under`.
An analysis gets the facts that it needs from `Facts`, so dependencies between facts appear only in its code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..ptx import Instr, Kernel, Module, Reg
from .fact_marks import for_any_promise, is_for_any_promise

if TYPE_CHECKING:
    from .divergence.divergence import Divergence
    from .divergence.expected import ExpectedDivergence
    from .graph.cfg import Cfg
    from .graph.control_dependence import ControlDependence
    from .graph.dominance import Dominance
    from .graph.loops import Loops
    from .memory.alias import Memory, Promise
    from .profile import Profile
    from .values.liveness import Liveness
    from .values.pressure import Pressure
    from .values.ssa import Ssa
    from .values.value_numbering import Values

__all__ = ["Facts", "NotPreserved"]

T = TypeVar("T")


class NotPreserved(AssertionError):
    """A fact that `Facts.preserve` names is not valid after a change inside the context: a fault of the caller."""


class Facts:
    """The facts of one kernel.

    ``module`` declares the symbols that the kernel uses, if it is known. ``shape`` is the block shape (x, y, z) of the
    launch. ``profile`` holds measurements, of this kernel among others. It is matched with the kernel here, because a
    changed kernel no longer matches. ``promise`` is what the user promises about pointer parameters.
    """

    #: Whether `preserve` recomputes the facts that it preserved and raises `NotPreserved` if they differ. For tests.
    checks_preserved: ClassVar[bool] = False

    def __init__(
        self,
        kernel: Kernel,
        module: Module | None = None,
        *,
        shape: tuple[int, int, int] | None = None,
        profile: Profile | None = None,
        promise: Promise | None = None,
    ) -> None:
        self.kernel = kernel
        self.module = module
        self.shape = shape
        self.profile = profile
        if profile is not None:
            profile.match(kernel)
        self._promise = promise
        #: Input: the instructions that passes must leave as they are, if the caller knows them. The driver takes them
        #: from the `Contraction` of the kernel that it was given, with which it compares the result.
        self.fixed: frozenset[Instr] | None = None
        #: By instruction that a pass has copied, and that is to compute what its original computed: the original.
        self.copies: dict[Instr, Instr] = {}
        self._version = kernel.version
        self._cfg_version = kernel.cfg_version
        #: Facts by the function that computes them: of the graph alone, and of the code.
        self._of_graph: dict[Callable[[Facts], Any], Any] = {}
        self._of_code: dict[Callable[[Facts], Any], Any] = {}
        #: The functions whose facts survive changes now, once for each open `preserve` context.
        self._preserved: list[Callable[[Facts], Any]] = []
        #: The facts with which this shares what depends on no promise, as long as the kernel does not change.
        self._shared: Facts | None = None

    def under(self, promise: Promise | None) -> Facts:
        """The facts of the kernel under another promise, without a profile. What depends on no promise is computed once
        for both, until the kernel changes."""
        other = Facts(self.kernel, self.module, shape=self.shape, promise=promise)
        other._shared = self
        return other

    def get(self, compute: Callable[[Facts], T], *, graph_only: bool = False) -> T:
        """The value of ``compute(self)``, computed once for each version of the kernel.

        ``graph_only`` states that ``compute`` uses only `cfg` and facts that follow from it, so that its value survives
        a change of instructions. ``compute`` is the cache key: pass a function or a class method, not a new lambda.
        """
        kernel = self.kernel
        if kernel.version != self._version or kernel.cfg_version != self._cfg_version:
            self._drop_outdated()
        cache = self._of_graph if graph_only else self._of_code
        try:
            return cache[compute]
        except KeyError:
            shared = self._shared
            if shared is not None and shared.knows(compute, graph_only=graph_only):
                value = shared.get(compute, graph_only=graph_only)
            else:
                value = compute(self)
        cache[compute] = value
        return value

    def knows(self, compute: Callable[[Facts], Any], *, graph_only: bool) -> bool:
        """Whether the fact has the same value under every promise, and the kernel has not changed since the last
        access."""
        is_same = graph_only or is_for_any_promise(compute)
        return is_same and (self.kernel.version, self.kernel.cfg_version) == (self._version, self._cfg_version)

    def forget(self, compute: Callable[[Facts], Any]) -> None:
        """Drop a fact of the code although `preserve` keeps it: a change has made it incomplete."""
        self._of_code.pop(compute, None)

    def _drop_outdated(self) -> None:
        """Drop each cached fact that a change since the last access may have changed."""
        kernel = self.kernel
        self._version = kernel.version
        if kernel.cfg_version != self._cfg_version:
            self._cfg_version = kernel.cfg_version
            self._of_graph.clear()
        preserved = {compute: self._of_code[compute] for compute in self._preserved if compute in self._of_code}
        self._of_code.clear()
        self._of_code.update(preserved)

    def _cached(self, compute: Callable[[Facts], Any]) -> bool:
        """Whether the fact of the code that ``compute`` computes is in the cache and up to date."""
        if self.kernel.version != self._version or self.kernel.cfg_version != self._cfg_version:
            self._drop_outdated()
        return compute in self._of_code

    @contextmanager
    def preserve(
        self, compute: Callable[[Facts], T], *, because: str, agrees: Callable[[T, T], bool] = operator.eq
    ) -> Generator[None]:
        """Until the context ends, changes of the kernel do not drop the fact ``compute`` of the code.

        A fact that is not in the cache is not computed here: the first `get` computes it for the kernel at that time.
        ``because`` states why every change in the context leaves the fact valid. With `checks_preserved`, the fact is
        recomputed at the end, and ``agrees(preserved, recomputed)`` must hold.
        """
        self._cached(compute)  # drops it if it is out of date
        version = self.kernel.version
        self._preserved.append(compute)
        try:
            yield
            is_cached = self._cached(compute)  # keeps it for the version at the end
        except BaseException:
            self._of_code.pop(compute, None)  # the change may be incomplete
            raise
        finally:
            self._preserved.remove(compute)
        if self.checks_preserved and is_cached and self.kernel.version != version:
            self._check(compute, because, agrees)

    def _check(self, compute: Callable[[Facts], T], because: str, agrees: Callable[[T, T], bool]) -> None:
        """Compare the cached fact with the same fact of the kernel as it is now."""
        anew = Facts(self.kernel, self.module, shape=self.shape, promise=self._promise)
        anew.profile = self.profile  # it was matched with the kernel before the change
        anew.fixed = self.fixed
        preserved, recomputed = self._of_code[compute], compute(anew)
        if not agrees(preserved, recomputed):
            name = getattr(compute, "__qualname__", repr(compute))
            raise NotPreserved(
                f"'{name}' of '{self.kernel.name}' was preserved because {because}; "
                f"preserved: {preserved}; recomputed: {recomputed}"
            )

    @property
    def cfg(self) -> Cfg:
        """Blocks and edges."""
        return self.get(_cfg, graph_only=True)

    @property
    def dominance(self) -> Dominance:
        """The dominator tree."""
        return self.get(_dominance, graph_only=True)

    @property
    def post_dominance(self) -> Dominance:
        """The post-dominator tree, rooted at the virtual exit ``len(cfg)``."""
        return self.get(_post_dominance, graph_only=True)

    @property
    def loops(self) -> Loops:
        """The loop nest."""
        return self.get(_loops, graph_only=True)

    @property
    def liveness(self) -> Liveness:
        """Live registers at block boundaries."""
        return self.get(_liveness)

    @property
    def pressure(self) -> Pressure:
        """The estimate of register pressure."""
        return self.get(_pressure)

    @property
    def control_dependence(self) -> ControlDependence:
        """Which blocks depend on which branches."""
        return self.get(_control_dependence, graph_only=True)

    @property
    def promise(self) -> Promise:
        """What the user promises about pointer parameters; by default nothing."""
        if self._promise is None:
            from .memory.alias import CONSERVATIVE

            self._promise = CONSERVATIVE
        return self._promise

    @property
    def memory(self) -> Memory:
        """The memory references: which may alias, what changes them, and which buffers the kernel accesses."""
        return self.get(_memory)

    @property
    def divergence(self) -> Divergence:
        """Which values and branches may differ between the lanes of a warp."""
        return self.get(_divergence)

    @property
    def branch_divergence(self) -> Divergence:
        """Which branches diverge: `divergence` if it is cached, else the same without values that no branch uses."""
        return self.divergence if self._cached(_divergence) else self.get(_branch_divergence)

    @property
    def expected_divergence(self) -> ExpectedDivergence:
        """Which branches are expected to diverge, by the profile if there is one. For estimates of cost only."""
        return self.get(_expected_divergence)

    @property
    def block_weights(self) -> list[float]:
        """How often each block runs per execution of the kernel: measured, or estimated from the loop depth."""
        return self.get(_block_weights, graph_only=True)

    def block_weight(self, block: int) -> float:
        """The weight of one block; see `block_weights`."""
        return self.block_weights[block]

    @property
    def late_registers(self) -> frozenset[Reg]:
        """Registers that an instruction may read or write after it was issued; see `effects.late_registers`."""
        return self.get(_late_registers)

    @property
    def fixed_instructions(self) -> frozenset[Instr]:
        """The instructions that passes must leave as they are: `fixed`, by default `Contraction.fixed`."""
        return self.fixed if self.fixed is not None else self.get(_fixed_instructions)

    @property
    def ssa(self) -> Ssa:
        """The static single assignment view."""
        return self.get(_ssa)

    def single_definitions(self, among: Set[Reg]) -> Ssa:
        """A view with which of these registers have one definition: `ssa` if it is cached, else a partial view."""
        from .values.ssa import single_definitions

        return self.ssa if self._cached(_ssa) else single_definitions(self.cfg, self.dominance, among)

    @property
    def values(self) -> Values:
        """Value numbers."""
        return self.get(_values)


# Each function imports its analysis, so that `opt` loads only the analyses that its passes use.


def _cfg(facts: Facts) -> Cfg:
    from .graph.cfg import build_cfg

    return build_cfg(facts.kernel)


def _dominance(facts: Facts) -> Dominance:
    from .graph.dominance import dominators

    return dominators(facts.cfg)


def _post_dominance(facts: Facts) -> Dominance:
    from .graph.dominance import post_dominators

    return post_dominators(facts.cfg)


def _loops(facts: Facts) -> Loops:
    from .graph.loops import Loops

    return Loops(facts.cfg)


@for_any_promise
def _liveness(facts: Facts) -> Liveness:
    from .values.liveness import Liveness

    return Liveness(facts.cfg)


@for_any_promise
def _pressure(facts: Facts) -> Pressure:
    from .values.pressure import Pressure

    return Pressure(facts.liveness)


def _control_dependence(facts: Facts) -> ControlDependence:
    from .graph.control_dependence import ControlDependence

    return ControlDependence(facts.cfg, facts.post_dominance)


@for_any_promise
def _late_registers(facts: Facts) -> frozenset[Reg]:
    from .effects import late_registers

    return late_registers(facts.kernel)


def _fixed_instructions(facts: Facts) -> frozenset[Instr]:
    from .values.contraction import Contraction

    return facts.get(Contraction.of).fixed


@for_any_promise
def _ssa(facts: Facts) -> Ssa:
    from .values.ssa import build_ssa

    return build_ssa(facts.cfg, facts.dominance)


@for_any_promise
def _values(facts: Facts) -> Values:
    from .values.value_numbering import number_values

    return number_values(facts.cfg, facts.ssa, facts.late_registers)


def _memory(facts: Facts) -> Memory:
    from .memory.alias import Memory

    return Memory.of(facts)


@for_any_promise
def _divergence(facts: Facts) -> Divergence:
    from .divergence.divergence import Divergence

    return Divergence.of(facts)


@for_any_promise
def _branch_divergence(facts: Facts) -> Divergence:
    from .divergence.divergence import Divergence

    return Divergence.of(facts, branches_only=True)


def _expected_divergence(facts: Facts) -> ExpectedDivergence:
    from .divergence.expected import ExpectedDivergence

    return ExpectedDivergence.of(facts)


def _block_weights(facts: Facts) -> list[float]:
    from .graph.block_weights import block_weights

    return block_weights(facts)
