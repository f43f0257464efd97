"""A kernel prepared for execution: each of its instructions is bound to a function of a cohort.

Computes: for the kernel and all functions that it may call, the segments with their steps, the facts about registers,
and the addresses of all symbols.
Requires: a loaded module (its variables have addresses). Guarantees: an instruction that cannot be executed is refused
    here, by name and line, before anything runs. An indirect call may reach every function whose address is named in
    reachable code or in the initializer of a module variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..ptx.instructions import Instr
from ..ptx.ir import Kernel, Param, Variable
from ..ptx.operands import Args, Sym
from ..ptx.operations import Operation
from . import (
    address_ops,
    atomic_ops,
    calls,
    control_ops,
    lane_ops,
    matrix_ops,
    mbarrier_ops,
    memory_ops,
    sync_ops,
    texture_ops,
    transfers,
    video_ops,
)
from .checks import LaunchError, UnsupportedInstruction
from .layout import Frame, ParamLayout, SharedLayout, local_frame, param_layout, shared_layout
from .liveness import StepFacts, solve
from .memory import MemoryObject, wrapped
from .options import Options
from .profile import starts
from .registers import Binder, Getter, Refused, Registers
from .segments import Segment, called_names, cut, semantics, waits_for_lanes

if TYPE_CHECKING:
    from .cohort import Cohort
    from .loading import Loaded

__all__ = ["Code", "Function", "Image"]

Array: TypeAlias = npt.NDArray[Any]
Step: TypeAlias = "Callable[[Cohort], None]"


@dataclass(eq=False, slots=True)
class Code:
    """A segment with its steps, each with the registers that are dead after it."""

    segment: Segment
    function: Function
    index: int
    steps: list[tuple[Step, tuple[int, ...]]] = field(default_factory=list["tuple[Step, tuple[int, ...]]"])
    needs: tuple[int, ...] = ()
    live_in: frozenset[int] = frozenset()
    live_out: frozenset[int] = frozenset()
    finish: control_ops.Finish | None = None
    membermask: Getter | None = None
    instructions: list[Instr] = field(default_factory=list[Instr])


@dataclass(eq=False, slots=True)
class Function:
    """A function of the image: the entry, or a function that it may call."""

    kernel: Kernel
    number: int
    first: int  #: its first segment
    frame: Frame
    binder: Binder


class Image:
    """One entry of a loaded module, compiled under ``options``."""

    def __init__(self, loaded: Loaded, kernel: Kernel, options: Options) -> None:
        self.loaded = loaded
        self.kernel = kernel
        self.options = options
        self.registers = Registers()
        self.codes: list[Code] = []
        self.functions: dict[str, Function] = {}
        self.params: ParamLayout = param_layout(kernel.params or ())
        self.param_object: MemoryObject = loaded.space.allocate(
            f"the parameters of '{kernel.name}'", "param", max(self.params.nbytes, 1)
        )
        self.param_object.is_read_only = True
        bodies = self._reachable()
        named = {symbol.name for body in bodies for instr in body.instructions() for symbol in instr.symbols()}
        self.shared: SharedLayout = shared_layout(loaded.module, bodies, named)
        self._refused: list[tuple[str, int]] = []
        self._refuse_clusters()
        for body in bodies:
            self._add(body)
        for function in self.functions.values():
            self._compile(function)
        if self._refused:
            raise UnsupportedInstruction(kernel.name, self._refused)
        self.by_address = {
            address: self.functions[name] for name, address in loaded.code.items() if name in self.functions
        }
        #: Registers that pass arguments and results. Another frame may read them.
        self.pinned: set[int] = set()
        for function in self.functions.values():
            for params in (function.kernel.params, function.kernel.results):
                for keys in calls.register_parameters(self.registers, function.kernel, params):
                    self.pinned.update(keys)
        self.starts = starts(self.codes)
        self.ranks = np.array([code.segment.rank for code in self.codes], np.int64)

    def _refuse_clusters(self) -> None:
        """Refuses a kernel with clusters of several blocks: in the emulator, every block is a cluster of its own."""
        text = self.kernel.directive("reqnctapercluster")
        if text is not None and math.prod(int(part) for part in text.replace(",", " ").split()) > 1:
            text_of_directive = f".reqnctapercluster {text} (a cluster of several blocks)"
            self._refused.append((text_of_directive, self.loaded.line(self.kernel.pos)))

    def _reachable(self) -> list[Kernel]:
        loaded = self.loaded
        reachable: dict[str, Kernel] = {self.kernel.name: self.kernel}
        todo = [self.kernel]
        while todo:
            for name in sorted(called_names(todo.pop())):
                body = loaded.functions.get(loaded.aliases.get(name, name))
                # Code in a kernel cannot call an entry. It passes the address of an entry to the runtime, which
                # launches it.
                if body is not None and not body.is_entry and body.name not in reachable:
                    reachable[body.name] = body
                    todo.append(body)
            if not todo and _has_indirect_calls(reachable.values()):
                for name in loaded.addressed:
                    body = loaded.functions.get(name)
                    if body is not None and not body.is_entry and name not in reachable:
                        reachable[name] = body
                        todo.append(body)
        return list(reachable.values())

    def _add(self, body: Kernel) -> None:
        try:
            segments = cut(body, fine=self.options.fine, by_block=self.options.by_block)
        except Refused as refusal:
            raise UnsupportedInstruction(self.kernel.name, [(str(refusal), self.loaded.line(body.pos))]) from None
        frame = local_frame(body)
        binder = Binder(
            self.registers, body, lambda s: self.symbol(s, body, frame), self.loaded.module.address_size or 64
        )
        function = Function(body, len(self.functions), len(self.codes), frame, binder)
        self.functions[body.name] = function
        for segment in segments:
            segment.index = len(self.codes)
            self.codes.append(Code(segment, function, segment.index))

    # --- symbols ---------------------------------------------------------------------------------------------------

    def symbol(self, operand: Sym, body: Kernel, frame: Frame) -> int | Getter:
        """The address of ``operand`` in its own state space."""
        declaration = operand.declaration
        offset = operand.offset
        local = frame.offsets.get((declaration, operand.name))
        if local is not None:
            return self._frame_address(body, local + offset)
        if isinstance(declaration, Kernel):
            return self.loaded.address(operand.name)
        if isinstance(declaration, Param):
            return self.param_object.base + self.params.offsets[operand.name] + offset
        if isinstance(declaration, Variable):
            shared = self.shared.offsets.get((declaration, operand.name))
            if shared is None and declaration.space.startswith("shared"):
                same = [at for (_, name), at in self.shared.offsets.items() if name == operand.name]
                shared = same[0] if same else None
            if shared is not None:
                return shared + offset
            return self.loaded.address_of(declaration, operand.name) + offset
        raise Refused(f"symbol '{operand.name}'")

    def _frame_address(self, body: Kernel, offset: int) -> int | Getter:
        if body.is_entry:
            return offset
        distance = np.int64(wrapped(offset))
        return lambda c: c.batch.frame_base(c) + distance

    # --- steps -----------------------------------------------------------------------------------------------------

    def _compile(self, function: Function) -> None:
        codes = [code for code in self.codes if code.function is function]
        facts = [self._facts(code) for code in codes]
        successors = [[t.index - function.first for t in code.segment.targets] for code in codes]
        solved = solve(facts, successors)
        if self.options.checks:
            unset = {key for key in solved[0].live_in if key not in self._parameters(function)}
            if unset:
                self._watch(function, codes, unset)
                facts = [self._facts(code) for code in codes]
                solved = solve(facts, successors)
        for code, fact in zip(codes, solved, strict=True):
            code.needs, code.live_in, code.live_out = fact.needs, fact.live_in, fact.live_out
            self._bind(code, fact.dies)

    def _parameters(self, function: Function) -> set[int]:
        """Keys of the ``.reg`` parameters of ``function``, which the caller writes."""
        binder = function.binder
        keys: set[int] = set()
        for code in self.codes:
            if code.function is function:
                keys.update(control_ops.parameter_registers(binder, function.kernel))
                break
        return keys

    def _watch(self, function: Function, codes: list[Code], unset: set[int]) -> None:
        """Make a shadow for each register that may be unset, and for those that it is copied to.

        A shadow is a predicate register: whether the register has been written.
        """
        registers = self.registers
        copies: list[tuple[int, int]] = []
        for code in codes:
            for instr in code.segment.body:
                if semantics(instr) == "move_mov":
                    try:
                        pair = (registers.keys(instr.operands[0]), registers.keys(instr.operands[1]))
                    except Refused:
                        continue
                    if len(pair[0]) == 1 and len(pair[1]) == 1:
                        copies.append((pair[0][0], pair[1][0]))
        grown = True
        while grown:
            grown = False
            for target, source in copies:
                if source in unset and target not in unset:
                    unset.add(target)
                    grown = True
        carry = control_ops.carry_key(registers, function.kernel)
        for key in unset - {carry}:
            registers.shadows[key] = registers.new(_PRED, f"whether {registers.names[key]} is set")

    def _facts(self, code: Code) -> list[StepFacts]:
        """Facts about registers for each step: the results that the segment takes first, the body, the end."""
        registers = self.registers
        facts: list[StepFacts] = []
        segment = code.segment
        try:
            if segment.receives is not None:
                written = _received(registers, segment.receives)
                facts.append(StepFacts([], lane_ops.with_shadows(registers, written)))
            for instr in segment.body:
                guarded = instr.guard is not None and not lane_ops.is_warp_operation(instr)
                facts.append(lane_ops.facts(registers, instr, code.function.kernel, guarded=guarded))
            facts.append(control_ops.facts(registers, segment))
        except Refused as refusal:
            self._refuse(segment.body[0] if segment.body else segment.end, str(refusal))
            return [StepFacts([], [])] * (len(segment.body) + 1 + (segment.receives is not None))
        return facts

    def _bind(self, code: Code, dies: list[tuple[int, ...]]) -> None:
        segment = code.segment
        binder = code.function.binder
        steps: list[Step] = []
        if segment.receives is not None:
            steps.append(self._guarded_bind(segment.receives, lambda i: self._receive(i, binder)))
        for instr in segment.body:
            steps.append(self._guarded_bind(instr, lambda i: self._step(i, code)))
            code.instructions.append(instr)
        if segment.is_warp_sync and waits_for_lanes(segment.body[0]):
            first = segment.body[0]
            try:
                code.membermask = sync_ops.membermask(binder, first)
            except Refused as refusal:
                self._refuse(first, str(refusal))
        code.steps = list(zip(steps, dies, strict=False))
        try:
            code.finish = control_ops.bind(self, code)
        except Refused as refusal:
            self._refuse(segment.end, str(refusal))
        end = segment.end
        if end is not None and not self._is_behind_guard(code):
            code.instructions.append(end)

    def _is_behind_guard(self, code: Code) -> bool:
        """Whether the end was counted in the segment before, which evaluated its guard."""
        return (
            code.segment.end is not None
            and code.segment.kind != "bra"
            and code.segment.kind != "guard"
            and (code.segment.end.guard is not None)
        )

    def _guarded_bind(self, instr: Instr, bind: Callable[[Instr], Step]) -> Step:
        try:
            return bind(instr)
        except Refused as refusal:
            self._refuse(instr, str(refusal))
            return _nothing

    def _step(self, instr: Instr, code: Code) -> Step:
        name = semantics(instr)
        if not name:
            raise Refused(_WHY_NOT.get(instr.form.operation, ""))
        binder = code.function.binder
        family = name.partition("_")[0]
        if name in ("memory_atom", "memory_atom_cas", "memory_red"):
            step = atomic_ops.bind(self, binder, instr)
        elif family == "memory":
            step = memory_ops.bind(self, code, instr)
        elif family == "address":
            step = address_ops.bind(binder, instr, self.loaded.space.windows)
        elif family == "sync":
            step = sync_ops.bind(self, binder, instr)
        elif family == "mbarrier":
            step = mbarrier_ops.bind(self, binder, instr)
        elif family == "bulk":
            step = transfers.bind(self, binder, instr)
        elif family == "matrix":
            step = matrix_ops.bind(self, binder, instr)
        elif family == "video":
            step = video_ops.bind(binder, instr)
        elif family in ("texture", "surface"):
            step = texture_ops.bind(binder, self.options, instr)
        elif name == "control_nop":
            return _nothing
        else:
            step = lane_ops.bind(binder, instr)
        return self._checked(step, instr, binder)

    def _checked(self, step: Step, instr: Instr, binder: Binder) -> Step:
        """``step``, after a check that the registers it reads have been written."""
        shadows = self.registers.shadows
        if not shadows:
            return step
        keys = lane_ops.uses(self.registers, instr)
        if semantics(instr) == "move_mov":
            step = self._copying(step, instr, binder)
            keys = self.registers.keys(instr.guard.reg) if instr.guard is not None else []
        if semantics(instr) == "memory_st":
            # A register that is stored may be unset; `memory_ops` then marks the bytes as never written.
            data = set(self.registers.keys(instr.operands[1]))
            keys = [key for key in keys if key not in data]
        watched = [(key, shadows[key]) for key in dict.fromkeys(keys) if key in shadows]
        if not watched:
            return step
        guard = binder.guard(instr)
        names = self.registers.names

        def checked(c: Cohort) -> None:
            for key, flag in watched:
                is_set = c.env.get(flag, _FALSE)
                if not bool(is_set.all()):
                    bad = ~np.broadcast_to(is_set, (c.n,))
                    if guard is not None and key not in guard_keys:
                        bad = bad & guard(c)
                    if bool(bad.any()):
                        message = f"reads register {names[key]}, which was never written"
                        c.batch.report("uninitialised-register", instr, c, np.flatnonzero(bad), message)
            step(c)

        guard_keys = set(self.registers.keys(instr.guard.reg)) if instr.guard is not None else set[int]()
        return checked

    def _copying(self, step: Step, instr: Instr, binder: Binder) -> Step:
        """A ``mov`` that copies whether its source has been written. It counts as no use of the source."""
        shadows = self.registers.shadows
        target, source = self.registers.keys(instr.operands[0]), self.registers.keys(instr.operands[1])
        if len(target) != 1 or len(source) != 1 or target[0] not in shadows or source[0] not in shadows:
            return step
        to_flag, from_flag = shadows[target[0]], shadows[source[0]]
        guard = binder.guard(instr)

        def copy(c: Cohort) -> None:
            is_set = c.env.get(from_flag, _FALSE)
            before = c.env.get(to_flag, _FALSE)
            step(c)
            c.env[to_flag] = is_set if guard is None else np.where(guard(c), is_set, before)

        return copy

    def _receive(self, instr: Instr, binder: Binder) -> Step:
        """The step that takes the results of a reduction barrier or a call."""
        if semantics(instr) != "control_call":
            return sync_ops.receive(binder, instr)
        call = next(code for code in self.codes if code.segment.end is instr and code.segment.kind == "call")
        return calls.receive(self, call) or _nothing

    def barrier_before(self, index: int) -> Instr:
        """The barrier after which segment ``index`` begins."""
        for code in self.codes:
            end = code.segment.end
            if code.segment.kind == "bar" and end is not None and code.segment.targets[0].index == index:
                return end
        raise AssertionError(f"segment {index} follows no barrier")

    def _refuse(self, instr: Instr | None, why: str) -> None:
        text = instr.text.rstrip(";") if instr is not None else "(end)"
        self._refused.append((f"{text} ({why})" if why else text, self.loaded.line(instr.pos if instr else -1)))


#: Why instructions without a function of the emulator are refused, where the name of the opcode does not say it.
_WHY_NOT = {
    Operation.TEXTURE: "a texture or surface, which the emulator only loads and stores",
    Operation.TENSOR_MAP: "a tensor map, which the host makes",
    Operation.ASYNC_MATRIX: "an asynchronous product of matrices",
    Operation.CLUSTER_MAP: "a cluster of several blocks",
    Operation.CLUSTER_BARRIER: "a cluster of several blocks",
    Operation.MULTIMEM: "memory of several devices",
}
_PRED = control_ops.PRED
_FALSE = np.zeros(1, bool)


def _nothing(c: Cohort) -> None:
    """``nanosleep``, ``brkpt`` and similar instructions: they have no effect that a program can see."""


def _received(registers: Registers, instr: Instr) -> list[int]:
    """Keys that a reduction barrier or a call writes when it has ended."""
    if semantics(instr) == "control_call":
        results = instr.operands[0]
        return registers.keys(results) if isinstance(results, Args) else []
    return lane_ops.defs(registers, instr)


def _has_indirect_calls(bodies: Any) -> bool:
    return any(
        instr.form.is_call and not isinstance(instr.operands[1], Sym)
        for body in bodies
        for instr in body.instructions()
    )


def require_kernel(loaded: Loaded, name: str) -> Kernel:
    """The entry called ``name``. The `LaunchError` for an unknown name lists the entries."""
    kernel = loaded.functions.get(name)
    if kernel is None or not kernel.is_entry:
        entry_names = ", ".join(entry.name for entry in loaded.module.entries) or "none"
        raise LaunchError(f"no kernel '{name}'; the module has: {entry_names}")
    return kernel
