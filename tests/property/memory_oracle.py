"""Compares the memory analysis of a kernel with every access that the emulator sees.

    faults(ptx, launch, seed)     the wrong claims of the analysis; empty if there are none

- References that `Memory.may_ever_alias` separates never access the same byte, in any threads (of a block, for shared
  memory; in one thread, for local memory).
- References of one block without guards that run equally often are compared iteration by iteration. Those that
  `may_alias` separates access no common byte in one iteration. Those that `must_alias` calls equal access the same
  bytes. If the registers of both bases are never defined again, this holds over all iterations.
- No byte that a load called unwritten reads is ever written.
- Every byte of a parameter's buffer that is read, or written, is accessed through a buffer that `Memory.buffers` names.
- Loads may be speculated if the analysis says so: a copy of each load is added at the end of blocks where its operands
  are available. Proven loads are copied without a guard, guarded loads with their guard. No copy is out of bounds or
  misaligned.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from ladder import Launch
from ptxmotion.analysis import Facts
from ptxmotion.analysis.memory.address_inputs import AddressLeaves
from ptxmotion.analysis.memory.alias import Promise, Reference
from ptxmotion.analysis.memory.alias_bitsets import ReferenceSet
from ptxmotion.analysis.memory.speculation import may_speculate
from ptxmotion.emulator import EmulatorError
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.emulator.trace import SPACES
from ptxmotion.ptx import Block, Instr, Kernel, Module, Reg, Vec, parse, print_module

__all__ = ["Tally", "check_accesses", "faults", "speculated"]

Array: TypeAlias = npt.NDArray[Any]
RESTRICT = Promise(everything=True)

#: Faults that a speculated load must not have. It may read memory that was never written.
_FAULTS = ("out-of-bounds", "misaligned", "read-only")
_MOST_SPECULATED = 40


@dataclass
class Tally:
    """The number of claims, so that a test can check that there are some."""

    programs: int = 0
    apart_ever: int = 0
    apart: int = 0
    same: int = 0
    unwritten: int = 0
    proven: int = 0
    guarded: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class _TracedRun:
    """A launch with its accesses by line, as rows of the trace."""

    accesses: Array
    ranges: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    fault: str = ""


def _run(ptx: str, launch: Launch, seed: int, params: list[str]) -> _TracedRun:
    """Run on the emulator. Arrays that are one object are one buffer."""
    backend = EmulatorBackend(trace=True, counts=False)
    known: dict[int, Any] = {}
    args: list[Any] = []
    ranges: list[tuple[str, int, int]] = []
    for name, value in zip(params, launch.arguments(seed), strict=True):
        if not isinstance(value, np.ndarray):
            args.append(value)
            continue
        array = cast("Array", value)
        buffer = known.get(id(array))
        if buffer is None:
            buffer = known[id(array)] = backend.allocate(array.nbytes)
            backend.write(buffer, array)
        ranges.append((name, buffer.address, buffer.address + array.nbytes))
        args.append(buffer)
    try:
        backend.launch(backend.load(ptx).kernel(launch.kernel), launch.grid, launch.block, launch.shared, args)
    except EmulatorError as error:
        return _TracedRun(np.zeros(0), ranges, f"{type(error).__name__}: {error}")
    return _TracedRun(backend.traces[0].accesses, ranges)


def faults(ptx: str, launch: Launch, seed: int, tally: Tally) -> list[str]:
    """The wrong claims about the kernel."""
    module = parse(ptx)
    kernel = module.kernel(launch.kernel)
    params = [param.name for param in kernel.params or ()]
    done = _run(ptx, launch, seed, params)
    if done.fault:
        return [f"the kernel itself: {done.fault}"]
    tally.programs += 1
    starts = [start for _, start, _ in done.ranges]
    levels = [None, RESTRICT] if len(set(starts)) == len(starts) else [None]
    found: list[str] = []
    for promise in levels:
        facts = Facts(kernel, module, promise=promise)
        found += check_accesses(module, facts, done.accesses, tally)
        found += _check_buffers(facts, done)
    copied = speculated(module, kernel, seed, tally)
    again = _run(copied, launch, seed, params)
    if again.fault:
        found.append(f"speculated: {again.fault}\n{copied}")
    return found


# --- accesses --------------------------------------------------------------------------------------------------------


def check_accesses(module: Module, facts: Facts, accesses: Array, tally: Tally) -> list[str]:
    """Compares claims about references and loads with the rows of a trace of one launch."""
    memory, cfg = facts.memory, facts.cfg
    rows = _by_line(accesses)
    places: list[tuple[Instr, Reference, int]] = []  # with the number of the block
    for block in cfg.rpo:
        for instr in cfg.blocks[block].instrs:
            reference = memory.reference(instr) if not instr.is_directive else None
            if reference is not None and reference.space != "param":
                places.append((instr, reference, block))

    def of(instr: Instr) -> Array:
        return rows.get(module.source.line_column(instr.pos)[0], accesses[:0])

    found = list(_ever(memory, places, of, tally))
    found += _in_sets(memory, [reference for _, reference, _ in places[:60]])
    found += _in_turns(facts, places, of, tally)
    written = accesses[accesses["write"]]
    everything = _bytes_of(written) if written.size else np.zeros(0, np.int64)
    for instr, _, _ in places:
        if instr.form.op.base == "ld" and memory.is_unwritten(instr):
            tally.unwritten += 1
            if np.intersect1d(_bytes_of(of(instr)), everything).size:
                found.append(f"called unwritten, and written: {instr.text}")
    return found


def _by_line(accesses: Array) -> dict[int, Array]:
    if not accesses.size:
        return {}
    order = np.argsort(accesses["instruction"], kind="stable")
    ordered = accesses[order]
    lines, starts = np.unique(ordered["instruction"], return_index=True)
    return {int(line): part for line, part in zip(lines, np.split(ordered, starts[1:]), strict=True)}


def _owners(rows: Array, *, by_thread: bool = False) -> Array:
    """The owner of the memory that each row accesses, in the bits above the address: none for global memory, a block,
    or a thread."""
    space = rows["space"].astype(np.int64)
    block, thread = rows["block"].astype(np.int64) + 1, rows["thread"].astype(np.int64) + 1
    is_shared, is_local = space == SPACES.index("shared"), space == SPACES.index("local")
    owner = np.where(is_shared, block, 0)
    owner = np.where(is_local | by_thread, block * 1024 + thread, owner)
    return space * (1 << 20) + owner


def _bytes_of(rows: Array, *, by_thread: bool = False) -> Array:
    """A number for each byte that the rows touch, equal for equal bytes."""
    if not rows.size:
        return np.zeros(0, np.int64)
    owners = _owners(rows, by_thread=by_thread)
    addresses = rows["address"].astype(np.int64) & ((1 << 38) - 1)
    keys = (owners << 38) ^ addresses
    wide = int(rows["bytes"].max())
    parts = [keys[rows["bytes"] > number] + number for number in range(wide)]
    return np.unique(np.concatenate(parts))


def _in_sets(memory: Any, references: list[Reference]) -> Iterator[str]:
    """A set must contain every reference that may alias the queried one."""
    among = ReferenceSet(memory, references)
    for one in references:
        named = among.overlapping(one)
        for number, two in enumerate(references):
            if memory.may_alias(one, two) and not named >> number & 1:
                yield f"left out of a set: {two} for {one}"


def _ever(memory: Any, places: list[tuple[Instr, Reference, int]], of: Any, tally: Tally) -> Iterator[str]:
    """References that never alias, in groups of equal space and objects."""
    groups: dict[Any, tuple[Reference, list[Instr]]] = {}
    for instr, reference, _ in places:
        groups.setdefault((reference.space, reference.objects), (reference, []))[1].append(instr)
    touched = {key: _bytes_of(np.concatenate([of(instr) for instr in group[1]])) for key, group in groups.items()}
    for one, two in combinations(groups, 2):
        if not memory.may_ever_alias(groups[one][0], groups[two][0]):
            tally.apart_ever += 1
            if np.intersect1d(touched[one], touched[two], assume_unique=True).size:
                yield f"apart for ever, and not: {groups[one][1][0].text} {groups[two][1][0].text}"


def _in_turns(facts: Facts, places: list[tuple[Instr, Reference, int]], of: Any, tally: Tally) -> Iterator[str]:
    """References during one evaluation of the registers of their bases."""
    memory = facts.memory
    leaves = facts.get(AddressLeaves.of).of_instr
    fixed = [place for place in places if leaves(place[0]) == frozenset()]
    groups: dict[Reference, list[Instr]] = {}
    for instr, reference, _ in fixed:
        groups.setdefault(reference, []).append(instr)
    some = list(groups)[:40]
    touched = {key: _bytes_of(np.concatenate([of(each) for each in groups[key]]), by_thread=True) for key in some}
    for one, two in combinations(some, 2):
        if not memory.may_alias(one, two):
            tally.apart += 1
            instr, other = groups[one][0], groups[two][0]
            if np.intersect1d(touched[one], touched[two], assume_unique=True).size:
                yield f"apart in a thread, and not: {instr.text} {other.text}"
    blocks: dict[int, list[tuple[Instr, Reference, Array]]] = {}
    for instr, reference, block in places:
        rows = of(instr)
        if instr.guard is None and rows.size:
            order = np.argsort(rows["block"].astype(np.int64) * 1024 + rows["thread"], kind="stable")
            blocks.setdefault(block, []).append((instr, reference, rows[order]))
    for members in blocks.values():
        for (instr, one, rows), (other, two, others) in combinations(members[:40], 2):
            if rows.size != others.size:
                continue  # instructions such as atom have two accesses
            apart, same = not memory.may_alias(one, two), memory.must_alias(one, two)
            if not (apart or same):
                continue
            tally.apart += apart
            tally.same += same
            distance = rows["address"].astype(np.int64) - others["address"].astype(np.int64)
            common = (rows["space"] == others["space"]) & (distance < others["bytes"]) & (-distance < rows["bytes"])
            if apart and common.any():
                yield f"apart in a turn, and not: {instr.text} {other.text}"
            if same and (distance.any() or (rows["space"] != others["space"]).any()):
                yield f"the same in a turn, and not: {instr.text} {other.text}"


def _check_buffers(facts: Facts, done: _TracedRun) -> Iterator[str]:
    buffers = facts.memory.buffers
    is_global = done.accesses["space"] == SPACES.index("global")
    for _, start, end in {(start, start, end) for _, start, end in done.ranges}:
        names = {name for name, first, _ in done.ranges if first == start}
        inside = is_global & (done.accesses["address"] >= start) & (done.accesses["address"] < end)
        for what, named, unknown, rows in (
            ("read", buffers.reads, buffers.unknown_reads, done.accesses[inside & ~done.accesses["write"]]),
            ("written", buffers.writes, buffers.unknown_writes, done.accesses[inside & done.accesses["write"]]),
        ):
            if rows.size and not unknown and names.isdisjoint(named):
                yield f"the buffer of {sorted(names)} is {what}, and only {sorted(named)} are said to be"


# --- speculation -----------------------------------------------------------------------------------------------------


def speculated(module: Module, kernel: Kernel, seed: int, tally: Tally) -> str:
    """The module with copies of loads wherever they may be speculated."""
    rng = random.Random(seed)
    facts = Facts(kernel, module)
    chosen: list[tuple[Instr, Block]] = []
    for block in facts.cfg.rpo:
        for instr in facts.cfg.blocks[block].instrs:
            if instr.form.op.base == "ld" and instr.form.space != "param" and _is_readable_elsewhere(facts, instr):
                chosen += [(instr, facts.cfg.blocks[at]) for at in facts.cfg.rpo if _is_available(facts, instr, at)]
    rng.shuffle(chosen)
    wanted: list[tuple[Block, Instr]] = []
    for load, block in chosen:
        answer = may_speculate(facts, load, block)
        tally.proven += answer.kind == "proven"
        tally.guarded += answer.kind == "guarded"
        tally.refused += answer.kind == "refused"
        assert bool(answer.reason) == (answer.kind == "refused")
        if answer and len(wanted) < _MOST_SPECULATED:
            copy = load.clone()
            copy.guard = answer.guard
            copy.operands = (_fresh(kernel, load), *load.operands[1:])
            copy.forget()
            wanted.append((block, copy))
    for block, copy in wanted:
        end = block.terminator
        at = block.instrs.index(end) if end is not None else len(block.instrs)
        block.instrs.insert(at, copy)
    kernel.changed()
    return print_module(module)


def _fresh(kernel: Kernel, load: Instr) -> Any:
    result = load.operands[0]
    if isinstance(result, Vec):
        return Vec(tuple(kernel.new_reg(each.type) if isinstance(each, Reg) else each for each in result.elements))
    assert isinstance(result, Reg)
    return kernel.new_reg(result.type)


def _is_readable_elsewhere(facts: Facts, load: Instr) -> bool:
    """Whether the address register has only one value, so that it can be read wherever that is defined."""
    address = load.address
    return address is not None and (not isinstance(address.base, Reg) or facts.ssa.is_single(address.base))


def _is_available(facts: Facts, load: Instr, block: int) -> bool:
    address = load.address
    if address is None or not isinstance(address.base, Reg):
        return True
    value = facts.ssa.read(load, address.base)
    return facts.ssa.instr[value] is not None and facts.dominance.dominates(facts.ssa.block[value], block)
