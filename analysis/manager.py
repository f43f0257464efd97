"""The facts of a kernel, computed when asked for and kept until the kernel changes.

Requires: that every change of the kernel bumps its version, as the methods of `Kernel` do.
Guarantees: a fact is never older than the kernel: each access compares versions, and all that is stale is dropped.
Facts of the graph alone survive a change of instructions. What depends on what stands in the code of the analyses,
which ask `Facts` for what they need; no pass declares what it preserves.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, TypeVar

from ..ptx import Kernel, Module, Reg

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

__all__ = ["Facts"]

T = TypeVar("T")


class Facts:
    """Facts of one kernel.

    ``module``, where it is known, is what the kernel's symbols are declared in; ``shape`` is the block shape (x, y, z)
    with which it is launched; ``profile`` is what was measured, of this kernel among others: it is matched now, since
    a kernel that has been changed matches no more; ``promise`` is what the user promises of pointer parameters.
    """

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
        self._version = kernel.version
        self._cfg_version = kernel.cfg_version
        self._of_graph: dict[Callable[[Facts], Any], Any] = {}
        self._of_code: dict[Callable[[Facts], Any], Any] = {}
        #: What whoever found it answers for, whatever transforms do to the kernel.
        self.lasting: dict[object, Any] = {}

    def get(self, compute: Callable[[Facts], T], *, graph_only: bool = False) -> T:
        """What ``compute(self)`` returns, computed once for each version of the kernel.

        ``graph_only`` says that it reads nothing but `cfg` and what follows from it, so that it outlives a change of
        instructions. ``compute`` is the key: pass a function or a class method, not a fresh lambda.
        """
        kernel = self.kernel
        if kernel.version != self._version:
            self._version = kernel.version
            self._of_code.clear()
        if kernel.cfg_version != self._cfg_version:
            self._cfg_version = kernel.cfg_version
            self._of_graph.clear()
            self._of_code.clear()
        cache = self._of_graph if graph_only else self._of_code
        try:
            return cache[compute]
        except KeyError:
            found = compute(self)
        cache[compute] = found
        return found

    def keep(self, compute: Callable[[Facts], T], value: T) -> None:
        """Let ``value``, found before the last change of the kernel, be what ``compute`` gives for it as it is now."""
        self.get(_cfg, graph_only=True)  # which drops what is stale
        self._of_code[compute] = value

    def drop(self) -> None:
        """Forget everything: facts refer to each other through this, and would wait for the collector otherwise."""
        self._of_graph.clear()
        self._of_code.clear()

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
        """What is promised of pointer parameters; nothing, where nothing was said."""
        if self._promise is None:
            from .memory.alias import CONSERVATIVE

            self._promise = CONSERVATIVE
        return self._promise

    @property
    def memory(self) -> Memory:
        """Memory references: which may alias, what changes them, which buffers the kernel touches."""
        return self.get(_memory)

    @property
    def divergence(self) -> Divergence:
        """What differs between the lanes of a warp."""
        return self.get(_divergence)

    @property
    def branch_divergence(self) -> Divergence:
        """Which branches diverge: `divergence` where it has been found, else without what no branch depends on."""
        return self.divergence if _divergence in self._of_code else self.get(_branch_divergence)

    @property
    def expected_divergence(self) -> ExpectedDivergence:
        """Which branches are expected to part warps, by the profile where there is one; for profitability only."""
        return self.get(_expected_divergence)

    @property
    def block_weights(self) -> list[float]:
        """How often each block runs for each time that the kernel is entered: measured, or estimated by loop depth."""
        return self.get(_block_weights, graph_only=True)

    def block_weight(self, block: int) -> float:
        """That of one block."""
        return self.block_weights[block]

    @property
    def ssa(self) -> Ssa:
        """The static single assignment view."""
        return self.get(_ssa)

    def single_definitions(self, among: Set[Reg]) -> Ssa:
        """Which of these registers have one definition: `ssa` where it has been found, else a view of them alone."""
        from .values.ssa import single_definitions

        self.get(_cfg, graph_only=True)  # which drops what is stale
        return self.ssa if _ssa in self._of_code else single_definitions(self.cfg, self.dominance, among)

    @property
    def values(self) -> Values:
        """Value numbers."""
        return self.get(_values)

    def are_values(self, values: Values) -> bool:
        """Whether ``values`` is what `values` gives for the kernel as it is now; does not compute it."""
        self.get(_cfg, graph_only=True)  # which drops what is stale
        return self._of_code.get(_values) is values


# Imported when asked for, so that `opt` loads what its passes use and no more.


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


def _liveness(facts: Facts) -> Liveness:
    from .values.liveness import Liveness

    return Liveness(facts.cfg)


def _pressure(facts: Facts) -> Pressure:
    from .values.pressure import Pressure

    return Pressure(facts.liveness)


def _control_dependence(facts: Facts) -> ControlDependence:
    from .graph.control_dependence import ControlDependence

    return ControlDependence(facts.cfg, facts.post_dominance)


def _ssa(facts: Facts) -> Ssa:
    from .values.ssa import build_ssa

    return build_ssa(facts.cfg, facts.dominance)


def _values(facts: Facts) -> Values:
    from .effects import late_registers
    from .values.value_numbering import number_values

    return number_values(facts.cfg, facts.ssa, late_registers(facts.kernel))


def _memory(facts: Facts) -> Memory:
    from .memory.alias import Memory

    return Memory.of(facts)


def _divergence(facts: Facts) -> Divergence:
    from .divergence.divergence import Divergence

    return Divergence.of(facts)


def _branch_divergence(facts: Facts) -> Divergence:
    from .divergence.divergence import Divergence

    return Divergence.of(facts, branches_only=True)


def _expected_divergence(facts: Facts) -> ExpectedDivergence:
    from .divergence.expected import ExpectedDivergence

    return ExpectedDivergence.of(facts)


def _block_weights(facts: Facts) -> list[float]:
    from .graph.block_weights import block_weights

    return block_weights(facts)
