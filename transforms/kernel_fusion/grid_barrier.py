"""A grid barrier in PTX: a barrier of all blocks of a cooperative launch.

Computes: blocks of code that wait until every block of the grid has arrived, with one counter in global memory. The
first block adds 2^31 - (blocks - 1) and each other block adds 1. When all have arrived, the highest bit has flipped and
the other bits are 0 again. So the counter needs no reset before the next barrier or the next launch. Cooperative groups
use the same method.

Requires: all blocks are resident (a cooperative launch), all threads of a block reach the barrier, and launches of the
module's kernel do not overlap in time.
Guarantees: what any thread did before the barrier is visible to every thread after it. The sequence is: ``bar.sync``, a
fence, a release by one thread, an acquire by one thread of each block, ``bar.sync``.
Reference: PTX ISA 9.0, chapter 8 (memory consistency model); §9.7.13.4 (fences).
"""

from __future__ import annotations

from ...ptx import TYPES, Block, Guard, Imm, Kernel, Mem, Reg, Special, Sym, Variable
from ...ptx.builder import Builder

__all__ = ["barrier_blocks", "barrier_counter"]


def barrier_counter(name: str) -> Variable:
    """The counter. It is zero when the module is loaded."""
    return Variable(name, "global", TYPES["u32"], align=4, initializer="0")


def barrier_blocks(kernel: Kernel, first: Block, counter: Variable) -> list[Block]:
    """``first`` with the beginning of the barrier appended, and the blocks that follow it."""
    builder = Builder(kernel, first, hint="%g")
    builder.emit("bar.sync", 0)
    parts = [builder.mov("u32", _special(f"%tid.{axis}")) for axis in "xyz"]
    together = _reg(builder.or_("b32", _reg(builder.or_("b32", _reg(parts[0]), _reg(parts[1]))), _reg(parts[2])))
    is_other = _reg(builder.setp("ne.u32", together, 0))
    done = Block(kernel.new_label("$fused_grid_done_"))
    builder.guard = Guard(is_other, negated=False)
    builder.emit("bra", _label(done))
    builder.guard = None
    arrive, spin = Block(), Block(kernel.new_label("$fused_grid_wait_"))
    builder.block = arrive
    extents = [_reg(builder.mov("u32", _special(f"%nctaid.{axis}"))) for axis in "xyz"]
    places = [_reg(builder.mov("u32", _special(f"%ctaid.{axis}"))) for axis in "xyz"]
    blocks = _reg(builder.mul("lo.u32", _reg(builder.mul("lo.u32", extents[0], extents[1])), extents[2]))
    place = _reg(builder.or_("b32", _reg(builder.or_("b32", places[0], places[1])), places[2]))
    is_first = _reg(builder.setp("eq.u32", place, 0))
    rest = _reg(builder.sub("u32", Imm("0x80000001"), blocks))
    amount = _reg(builder.selp("b32", rest, 1, is_first))
    address = _reg(builder.mov("u64", Sym(counter.name, counter)))
    builder.emit("fence.acq_rel.gpu")
    before = _reg(builder.atom("relaxed.gpu.global.add.u32", Mem(address), amount))
    builder.block = spin
    now = _reg(builder.ld("acquire.gpu.global.u32", Mem(address)))
    flipped = _reg(builder.xor("b32", before, now))
    is_waiting = _reg(builder.setp("ge.s32", flipped, 0))
    builder.guard = Guard(is_waiting, negated=False)
    builder.emit("bra", _label(spin))
    builder.guard = None
    fence = Block()
    builder.block = fence
    builder.emit("fence.acq_rel.gpu")
    builder.block = done
    builder.emit("bar.sync", 0)
    return [first, arrive, spin, fence, done]


def _special(name: str) -> Special:
    return Special(name, TYPES["u32"])


def _reg(value: Reg | None) -> Reg:
    assert value is not None
    return value


def _label(block: Block) -> Block:
    assert block.label is not None
    return block
