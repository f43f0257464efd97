"""Reasons not to join two kernel bodies that do not depend on which memory both access.

Computes: for one kernel, why its body cannot become a part of another kernel; for two launches, why their
configurations do not fit together. `fusibility` handles the memory that both access.
Guarantees: if there is no reason, the body behaves the same in a larger kernel. It reads nothing that belongs to its
launch and would change (grid identity, sizes of shared memory, clusters). It waits for no block that might not be
resident. Its barriers are reached by the same threads. Nothing that it started is still running when its last
instruction has completed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...analysis.divergence.block_uniform import partial_barriers
from ...analysis.divergence.sources import specials_in
from ...analysis.effects import memory_space
from ...analysis.manager import Facts
from ...analysis.memory.points_to import is_within
from ...analysis.memory.thread_accesses import access_set
from ...ptx import Effect, Imm, Instr, Kernel, Module, Param, Sym, Variable
from ...ptx.operands import Args, Vec
from ...ptx.operations import BARRIERS, BRANCHES, EXITS, PLAIN_ACCESSES, Operation
from .buffer_use import is_module_variable
from .launch_site import LaunchSite

__all__ = ["configuration_obstacles", "described", "obstacles"]

_LAUNCH_SPECIALS = ("%gridid", "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size", "%current_graph_exec")
_FORBIDDEN_DIRECTIVES = ("explicitcluster", "reqnctapercluster", "maxclusterrank", "maxnreg", "blocksareclusters")
#: Operations that no fused kernel may have, and why.
_OBSTACLES = {
    Operation.TEXTURE: "reaches memory through a texture or surface",
    **dict.fromkeys(
        (
            Operation.GRID_DEPENDENCY,
            Operation.REGISTER_BUDGET,
            Operation.CLUSTER_MAP,
            Operation.ELECTION,
            Operation.BARRIER_OBJECT,
            Operation.CLUSTER_LAUNCH,
        ),
        "belongs to the launch, a cluster or a barrier object",
    ),
}
#: Operations with effects that a fused kernel may have, as far as `_instruction` and `access_set` find nothing wrong.
_FOLLOWED = (
    PLAIN_ACCESSES
    | BRANCHES
    | EXITS
    | {
        Operation.BULK_STORE,
        Operation.PREFETCH,
        Operation.MONITORING,
        Operation.WARP_BARRIER,
        Operation.FENCE,
        Operation.VOTE,
        Operation.SHUFFLE,
        Operation.MATRIX,
        Operation.MATRIX_LOAD,
        Operation.MATRIX_STORE,
    }
)
#: Effects of rows that only compute values.
_OF_VALUES = Effect.CARRY_IN | Effect.CARRY_OUT


def described(instr: Instr) -> str:
    """The instruction's text for messages, with its source line if that is known."""
    if instr.loc is None:
        return f"'{instr.text}'"
    return f"'{instr.text}' (source line {instr.loc.file_line_column[1]})"


def obstacles(facts: Facts, site: LaunchSite, *, is_second: bool) -> list[str]:
    """Why the body of the launch's kernel cannot be a part of a fused kernel; empty if it can.

    A cooperative launch may contain loops that wait for another block, because the fused kernel is then launched
    cooperatively, too.
    """
    kernel, module = facts.kernel, site.module
    reasons: list[str] = []
    if not kernel.is_entry:
        return [f"'{kernel.name}' is a function, not a kernel"]
    reasons += [f"'{kernel.name}' has .{name}" for name in _FORBIDDEN_DIRECTIVES if kernel.directive(name) is not None]
    if facts.cfg.unmodelled:
        reasons.append(f"{described(facts.cfg.unmodelled[0])} may branch to any label of the body")
    if facts.cfg.endless:
        reasons.append(f"'{kernel.name}' has an endless loop")
    for instr in kernel.instructions():
        reason = _instruction(instr, module, is_second=is_second)
        if reason:
            reasons.append(f"{described(instr)} {reason}")
    partial = partial_barriers(facts)
    reasons += [f"{described(instr)} may not be reached by all threads of a block" for instr in partial]
    reasons += [] if site.cooperative else _waiting_loops(facts)
    reasons += _module_variables(kernel, module, site.counters)
    return list(dict.fromkeys(reasons))


def _instruction(instr: Instr, module: Module, *, is_second: bool) -> str:
    form = instr.form
    operation = form.operation
    if form.is_opaque:
        return "is an unknown instruction"
    if form.is_call:
        return _call(instr, module, {})
    if form.effects & (Effect.ASYNC | Effect.REGISTERS_LATER):
        return "completes later"
    if _leaves_parameter(instr):
        return "reads beyond its parameter"
    if operation in _OBSTACLES:
        return _OBSTACLES[operation]
    if operation in BARRIERS:
        return _barrier(instr)
    if form.effects & ~_OF_VALUES and operation not in _FOLLOWED:
        return "is not followed here"
    if is_second and operation in (Operation.VOTE, Operation.SHUFFLE) and "sync" not in form.flags:
        return "depends on which lanes arrive together"
    for special in specials_in(instr):
        name = special.name
        if (
            name.startswith(("%envreg", "%cluster", "%ncluster", "%is_explicit", "%reserved"))
            or name in _LAUNCH_SPECIALS
        ):
            return "reads a property of the launch"
    return ""


def _leaves_parameter(instr: Instr) -> bool:
    """Whether the instruction reads a parameter and bytes that do not belong to it. ptxas accepts that. In a fused
    kernel, another parameter may follow."""
    address, scalar = instr.address, instr.form.type
    if address is None or scalar is None or not isinstance(address.base, Sym):
        return False
    param = address.base.declaration
    offset = address.offset + address.base.offset
    return isinstance(param, Param) and not is_within(param, offset, scalar.bytes * instr.form.lanes)


def _barrier(instr: Instr) -> str:
    if "cluster" in instr.form.flags or "cluster" in instr.form.text:
        return "is a barrier of a cluster"
    if instr.form.mods.get("mode") == "arrive":
        return "arrives at a barrier without waiting"
    sources = [operand for operand in instr.srcs if not isinstance(operand, Vec | Args)]
    number = sources[0] if sources else None
    if not isinstance(number, Imm) or number.text != "0":
        return "uses another barrier than number 0"
    counted = 3 if ".red" in instr.form.text else 2
    return "" if len(sources) < counted else "is a barrier for a part of the block"


def _call(instr: Instr, module: Module, seen: dict[str, bool]) -> str:
    """Why a call cannot be part of a fused kernel. Only calls of functions that just compute are allowed."""
    target = instr.operands[1] if len(instr.operands) > 1 else None
    if not isinstance(target, Sym):
        return "calls an unknown function"
    callee = next((kernel for kernel in module.kernels if kernel.name == target.name and not kernel.is_entry), None)
    if callee is None:
        return f"calls '{target.name}', whose body is not known"
    if not _is_pure(callee, module, seen):
        return f"calls '{target.name}', which accesses memory or affects other threads"
    return ""


def _is_pure(callee: Kernel, module: Module, seen: dict[str, bool]) -> bool:
    """Whether a function only computes: it accesses no memory but its own and constants, and has no barriers and no
    ``exit``."""
    if callee.name in seen:
        return seen[callee.name]
    seen[callee.name] = False  # recursive functions count as not pure
    if callee.has_scopes:
        return False
    for instr in callee.instructions():
        form = instr.form
        if form.is_opaque or form.operation in (Operation.EXIT, Operation.TRAP):
            return False
        if form.space == "shared" or any(_is_shared_symbol(symbol) for symbol in instr.symbols()):
            return False
        if not all(_is_of_thread(special.name) for special in specials_in(instr)):
            return False
        if form.is_call:
            if _call(instr, module, seen):
                return False
        elif form.effects & (Effect.BARRIER | Effect.CROSS_LANE | Effect.ORDERED | Effect.ASYNC | Effect.STATE):
            return False
    found = access_set(Facts(callee, module))
    if any(not instr.form.is_call for instr in found.unknown) or any(_module_variables(callee, module)):
        return False
    seen[callee.name] = all(not access.writes and is_module_variable(access) for access in found.accesses)
    return seen[callee.name]


def _is_shared_symbol(symbol: Sym) -> bool:
    return isinstance(symbol.declaration, Variable) and symbol.declaration.space == "shared"


def _is_of_thread(name: str) -> bool:
    """Whether the special register has the same value in a fused kernel, whatever the grid is."""
    return name.startswith(("%tid.", "%ctaid.", "%ntid.", "%laneid", "%lanemask", "%clock", "%globaltimer"))


def _waiting_loops(facts: Facts) -> Iterator[str]:
    """Loops that run until another thread changes memory. That thread's block might not run before this block ends."""
    cfg, ssa = facts.cfg, facts.ssa
    observed = _observed(facts)
    if not observed:
        return
    for loop in facts.loops.loops:
        for block in loop.blocks:
            last = cfg.blocks[block].terminator
            if last is not None and any(ssa.read(last, reg) in observed for reg in last.uses()):
                yield f"a loop of '{facts.kernel.name}' may wait for another block: {described(last)}"
                break


def _observed(facts: Facts) -> set[int]:
    """SSA values that depend on results of atomics and ordered loads of global memory."""
    cfg, ssa = facts.cfg, facts.ssa
    observed: set[int] = set()
    is_stored = False  # whether such a value may be in memory
    while True:
        before = len(observed), is_stored
        for block in cfg.rpo:
            for phi in ssa.phis[block]:
                if any(value in observed for _, value in ssa.phi_args.get(phi, ())):
                    observed.add(phi)
            for instr in cfg.blocks[block].instrs:
                if instr.is_directive:
                    continue
                effects = instr.form.effects
                reads = effects & Effect.READ != 0
                depends = any(ssa.read(instr, reg) in observed for reg in instr.uses())
                if reads and not _is_shared(instr) and effects & Effect.ORDERED and not instr.form.is_call:
                    depends = True
                if reads and is_stored and memory_space(instr) not in ("param", "const"):
                    depends = True
                if depends:
                    is_stored = is_stored or effects & Effect.WRITE != 0
                    observed.update(ssa.defined(instr, reg) for reg in instr.defs())
        if (len(observed), is_stored) == before:
            return observed


def _is_shared(instr: Instr) -> bool:
    return memory_space(instr) == "shared"


def _module_variables(kernel: Kernel, module: Module, counters: frozenset[str] = frozenset()) -> Iterator[str]:
    """Variables of the module that the kernel shares with others. A copy in another module would not share them."""
    mentioned = {
        symbol.declaration
        for instr in kernel.instructions()
        for symbol in instr.symbols()
        if isinstance(symbol.declaration, Variable)
    }
    own = set(map(id, kernel.variables))
    for variable in sorted(mentioned, key=lambda each: each.name):
        if variable.space in ("param", "shared", "local", "reg"):
            continue
        if id(variable) in own:
            if variable.space == "global":  # it has one place in memory, which all launches of the kernel share
                yield f"variable '{variable.name}' of '{kernel.name}' is shared with its other launches"
            continue
        if variable.name in counters:  # each fused kernel gets its own counter
            continue
        if variable.linkage or variable.initializer is None or variable.space not in ("const", "global"):
            yield f"variable '{variable.name}' of the module is shared with other kernels or the host"
        elif "generic" in variable.initializer or _is_written(variable, module):
            yield f"variable '{variable.name}' of the module may be written"


def _is_written(variable: Variable, module: Module) -> bool:
    """Whether a kernel of the module may write the variable or let its address escape."""
    if variable.space == "const":
        return False
    name = re.compile(rf"(?<![\w$%]){re.escape(variable.name)}(?![\w$])")
    if any(name.search(each.initializer or "") for each in module.variables):
        return True  # the initial value of a variable is its address
    return any(_writes(kernel, variable, module) for kernel in module.kernels)


def _writes(kernel: Kernel, variable: Variable, module: Module) -> bool:
    """Whether a store, an atomic or a call of the kernel may get the address of the variable. A kernel that does not
    mention the variable has no address of it, unless another one gives it to it."""
    if not any(symbol.declaration is variable for instr in kernel.instructions() for symbol in instr.symbols()):
        return False
    if kernel.has_scopes:
        return True
    facts = Facts(kernel, module)
    pointees = facts.memory.pointees
    for block in facts.cfg.rpo:
        for instr in facts.cfg.blocks[block].instrs:
            if instr.is_directive or not (instr.form.effects & Effect.WRITE or instr.form.is_opaque):
                continue
            if any(symbol.declaration is variable for symbol in instr.symbols()):
                return True
            for reg in instr.uses():
                found = pointees.of_register(instr, reg) if reg.type.kind != "p" else frozenset[Variable]()
                # A word of 64 bits that may point anywhere may be the address.
                if variable in found if found is not None else reg.type.bits >= 64:
                    return True
    return False


def configuration_obstacles(first: LaunchSite, second: LaunchSite) -> list[str]:
    """Why the two launch configurations cannot be joined."""
    reasons: list[str] = []
    if first.block != second.block:
        reasons.append(f"the blocks have different shapes: {_shape(first.block)} and {_shape(second.block)}")
    if any(site.module.address_size != 64 for site in (first, second)):
        reasons.append("addresses do not have 64 bits")
    for name, site in (("first", first), ("second", second)):
        required = site.kernel.directive("reqntid")
        if required is not None and not _matches(required, site):
            reasons.append(
                f"the {name} kernel requires blocks of {required}, but it is launched with {_shape(site.block)}"
            )
    return reasons


def _matches(required: str, site: LaunchSite) -> bool:
    extents = [int(part, 0) for part in required.replace(",", " ").split()]
    return tuple((*extents, 1, 1, 1)[:3]) == tuple(site.block)


def _shape(extents: tuple[object, ...]) -> str:
    return "(" + ", ".join(map(str, extents)) + ")"
