"""Loops that are proved to end.

Computes: for each loop whether every iteration executes a test that makes the loop end after finitely many iterations.
The test compares a counter, to which each iteration adds the same constant step, with a bound that the loop does not
change. If 2^k is the largest power of two that divides the step, the counter takes all values that are congruent to its
start modulo 2^k, even if it wraps around. So the loop ends if the test leaves it for one of these values:

- if the test leaves it when the counter equals the bound, and start and bound are congruent modulo 2^k, which is always
  true for k = 0;
- or if the bound is a constant and the test leaves it for at least 2^k consecutive values.

Requires: SSA view, value numbers and loops of the current version of the kernel. Guarantees: a thread leaves a loop
that is called finite, unless it stays forever in an inner loop or at an instruction that may not return.
Refuses: irreducible loops; tests that some iterations do not execute; conditions other than ``setp`` of integers.
Reference: Kroening, Sharygina, Tonetta, Tsitovich, Wintersteiger, "Loop summarization using abstract transformers",
ATVA 2008, for counters; the argument about residues is elementary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ptx import Instr, Label, Reg
from ...ptx.operations import Operation
from ..memory.speculation import Bounds
from ..values import affine
from ..values.affine import Affine
from .loops import Loop

if TYPE_CHECKING:
    from ..manager import Facts

__all__ = ["FiniteLoops"]

_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


class FiniteLoops:
    """The results for one kernel; a fact for `Facts.get`."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        #: By the number of a loop: whether it is proved to end.
        self._found: dict[int, bool] = {}
        #: By class of values: the blocks that define its values.
        self._defined_in: dict[int, list[int]] | None = None

    def is_finite(self, loop: Loop) -> bool:
        """Whether the loop is proved to end."""
        is_finite = self._found.get(loop.index)
        if is_finite is None:
            is_finite = self._found[loop.index] = self._find(loop)
        return is_finite

    def _find(self, loop: Loop) -> bool:
        if loop.is_irreducible:
            return False
        facts = self._facts
        dominates, loop_of = facts.dominance.dominates, facts.loops.loop_of
        for block, outside in loop.exits:
            comes_each_turn = loop_of[block] == loop.index and all(dominates(block, latch) for latch in loop.latches)
            if comes_each_turn and self._ends(loop, block, outside):
                return True
        return False

    def _ends(self, loop: Loop, block: int, outside: int) -> bool:
        """Whether the branch at the end of ``block`` takes the edge to ``outside`` in some iteration."""
        facts = self._facts
        branch = facts.cfg.blocks[block].terminator
        if branch is None or branch.form.operation is not Operation.BRANCH or branch.guard is None:
            return False
        guard, label = branch.guard.reg, branch.operands[-1]
        if not isinstance(guard, Reg) or not isinstance(label, Label) or len(facts.cfg.succ[block]) != 2:
            return False
        value = facts.ssa.read(branch, guard)
        compare = facts.ssa.instr[value]
        if compare is None or value in facts.ssa.old or facts.ssa.block[value] not in loop:
            return False
        # The test must be executed in this iteration, and not in an inner loop.
        if not facts.dominance.dominates(facts.ssa.block[value], block):
            return False
        if facts.loops.loop_of[facts.ssa.block[value]] != loop.index:
            return False
        leaves_if_taken = facts.cfg.blocks[outside].label is label
        return self._is_met(loop, compare, leaves_if=leaves_if_taken != branch.guard.negated)

    def _is_met(self, loop: Loop, compare: Instr, *, leaves_if: bool) -> bool:
        """Whether the result of ``compare`` is ``leaves_if`` in some iteration."""
        form, scalar = compare.form, compare.form.type
        if form.operation is not Operation.COMPARISON or compare.guard is not None or len(compare.operands) != 3:
            return False
        if not isinstance(compare.operands[0], Reg) or scalar is None or scalar.kind not in "usb":
            return False
        if scalar.bits not in (32, 64) or scalar.lanes != 1:
            return False
        word = form.mods.get("cmp", "")
        is_signed = scalar.kind == "s" and word not in _UNSIGNED
        word = _UNSIGNED.get(word, word)
        if word not in _NEGATED:
            return False
        word = word if leaves_if else _NEGATED[word]
        values = self._facts.values
        left, right = (values.of_operand(compare, operand, scalar) for operand in compare.operands[1:])
        for counter, bound, order in ((left, right, word), (right, left, _SWAPPED[word])):
            moved = self._moved(loop, counter, scalar.bits)
            if moved is not None and self._is_invariant(loop, bound):
                return self._is_reached(order, *moved, values.affine_of(bound, scalar.bits), is_signed=is_signed)
        return False

    def _moved(self, loop: Loop, number: int, width: int) -> tuple[int, Affine | None] | None:
        """(step of a counter in each iteration, its value in the first one or ``None`` if unknown); ``None`` if class
        ``number`` is not a counter."""
        facts = self._facts
        values, ssa = facts.values, facts.ssa
        form = values.affine_of(number, width)
        if len(form.terms) != 1 or form.terms[0][1] != 1:
            return None
        atom = form.terms[0][0]
        phi = next((each for each in ssa.phis[loop.header] if values.number[each] == atom), None)
        if phi is None or ssa.reg[phi].type.bits != width:
            return None
        steps: set[int] = set()
        starts: set[int] = set()
        for before, value in ssa.phi_args.get(phi, ()):
            own = values.number[value]
            if before not in loop:
                starts.add(own)
                continue
            moved = values.affine_of(own, width)
            if moved.terms != ((atom, 1),):
                return None
            steps.add(moved.constant)
        if len(steps) != 1:
            return None
        start = values.affine_of(starts.pop(), width) if len(starts) == 1 else None
        # The compared value may be the counter plus a constant.
        first = affine.add(start, affine.constant(width, form.constant)) if start is not None else None
        return steps.pop(), first

    def _is_invariant(self, loop: Loop, number: int) -> bool:
        """Whether the loop defines no value of the class."""
        facts = self._facts
        if self._defined_in is None:
            self._defined_in = {}
            for value, each in enumerate(facts.values.number):
                self._defined_in.setdefault(each, []).append(facts.ssa.block[value])
        key = facts.values.key_of(number)
        if key[0] in ("special", "symbol") or (key[0] == "affine" and not key[3]):
            return True  # constant in the whole kernel
        blocks = self._defined_in.get(number, ())
        return bool(blocks) and not any(block in loop for block in blocks)

    def _is_reached(self, order: str, moved: int, first: Affine | None, bound: Affine, *, is_signed: bool) -> bool:
        """Whether a counter with first value ``first`` and step ``moved`` takes a value with ``counter order
        bound``."""
        if not moved:
            return False
        if order == "ne":
            return True  # a counter with a nonzero step does not stay equal to the bound
        width = bound.width
        factor = moved & -moved
        # The counter takes the value of the bound itself.
        if order in ("eq", "ge", "le") and (factor == 1 or self._is_congruent(bound, first, factor)):
            return True
        if order == "eq" or not bound.is_constant:
            return False
        least = -(1 << (width - 1)) if is_signed else 0
        most = least + (1 << width) - 1
        limit = bound.signed_constant() if is_signed else bound.constant
        size = {"ge": most - limit + 1, "gt": most - limit, "le": limit - least + 1, "lt": limit - least}[order]
        return size >= factor

    def _is_congruent(self, bound: Affine, first: Affine | None, factor: int) -> bool:
        """Whether ``factor`` divides the difference of ``bound`` and ``first``."""
        difference = affine.add(bound, first, -1) if first is not None else None
        if difference is None or difference.constant % factor:
            return False
        divisor = self._facts.get(Bounds).divisor
        return all(part * divisor(number, bound.width) % factor == 0 for number, part in difference.terms)
