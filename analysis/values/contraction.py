"""Which unrounded products ptxas may contract with the sums that read them.

A product (``mul``, ``div.approx``) and a sum (``add``, ``sub``) without a rounding modifier may become one fused
multiply-add, which rounds once. So the bits of a sum depend on what else reads its product.

Computes: for each product that is read, one of four kinds.

``rounded``     ptxas rounds it: no sum may read it, or other instructions read it, all in its block, without a guard.
``contracted``  ptxas contracts it with all of its readers, which are sums in the block of the product.
``paired``      the same, but one of the sums adds it to another such product, and ptxas contracts one of the two.
``open``        all other products. The answer depends on how ptxas unrolls loops, removes branches, sinks instructions
                into blocks and promotes memory, which other instructions of the kernel may influence.

A rounded product may get ``.rn``, which changes no bit; then it is never contracted. Contracted and paired products
must keep their sums, in their blocks. `Contraction.fixed` contains these products and their sums. A kernel with an open
product is not transformed (`Contraction.is_fragile`).

Behaviour of ptxas 13.0 at ``-O3``, measured for f32 on sm_75, 80, 90, 100 and 120, for f64, f16 and f16x2 on sm_75 and
100, for bf16 on sm_90, 100 and 120, and for f32x2 on sm_100. All agree, except where a type is named; bf16x2 is assumed
to behave like f16x2. `tests/unit/test_contraction.py` repeats the measurement for f32 and f64 on sm_80:

1. A product is contracted with all sums that read it, or with none. Several sums get one FMA each.
2. One reader that is no contractible sum keeps the product rounded for all readers: a store, a comparison, another
   product, ``abs``, a sum with ``.rn``, a sum with another ``.ftz``. A reader that ptxas removes or folds does not
   count (`folding.py`): behind ``mul p, -1`` or ``max p, p``, sums are contracted with ``p``; a comparison for a
   branch around nothing is removed. A reader with a guard, or in another block, usually counts. But where a branch on
   the same predicate followed the guarded store, ptxas stored one product and contracted another one, even if a
   further instruction in the block of the product read it. So such a reader makes the product open.
3. A sum in another block than its product keeps the product rounded. Blocks are those that ptxas has after it removed
   branches: after unrolling, a φ is gone, a guarded store in a loop may be gone from most copies of the body, and the
   products of these copies are contracted. A guarded instruction that touches memory, waits or ends the thread is a
   block of its own, and so is what becomes a call or a loop: ``call``, most integer ``div`` and ``rem``, ``div``,
   ``rcp`` and ``sqrt`` with a rounding modifier, ``rsqrt.f64``, ``bfind`` of 64 bits, ``fence``, ``membar``,
   ``brkpt`` and ``pmevent``. What follows it is in another block. Guarded arithmetic is not. Of 110 other spellings
   none was.
4. ``mov``, ``neg``, ``cvt`` without effect, packing and unpacking, and a guard on the sum hide no product. ``selp`` and
   φ do, unless ptxas folds them.
   ptxas may also sink a product into the block of its only reader: a kernel in which it did that had one load less.
5. Of a sum of two contractible products one is contracted. ptxas chooses it. ``add p, p`` is not contracted, nor is the
   sum of two products of the same operands, in either order, also if one of them is stored and so is rounded. Two loads
   of one address may become the same operand. A constant is the same in every spelling, and in a register.
6. Equal products are not merged before contraction: of two ``mul`` of the same operands, one that is stored and one
   that is summed, the second is contracted.
7. A store and a load of global or shared memory round. Local memory that ptxas promotes to registers does not, nor do
   parameters of functions that it inlines.
8. ``mul.sat`` is not contracted. ``add.sat`` is. ``.rn`` on the product or on the sum forbids contraction.
9. ``div.approx.f32`` and ``div.full.f32`` end in a product that is contracted. They have no ``.rn`` of the same value;
   the sum can get it. The other approximations are not contracted.
10. A reader in another block than its product may read another product of the same operands. In kernels with nested
    loops ptxas gave readers in blocks that the second product dominates to the second one, stores and sums alike. A
    first one that was left with its sums was contracted. The second product may have its operands in the other order,
    or loaded again from the same address. Without readers in other blocks than their products this did not happen.
11. ``.f32x2`` is contracted even where product or sum has ``.rn``: only its readers keep such a product rounded.

12. On sm_75 to sm_89, ``shfl``, ``vote``, ``match``, ``redux``, ``bar.warp.sync`` and ``barrier`` without ``.aligned``
    are blocks of their own to some degree: a product before them is contracted with the only sum behind them, but not
    with two sums behind them or on both sides. On sm_90 and sm_100 it is contracted.

Requires: the SSA view and loops of the current version. Guarantees: if the kind is *rounded* or
*contracted*, ptxas does that for every execution of the product. Refuses nothing. A kernel without products or without
sums takes one scan.
Reference: PTX ISA 9.0, §9.7.3 (``add``, ``mul``: "may be optimized aggressively"); experiments with ptxas 13.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...ptx import TYPES, Form, Instr, Kernel, Reg
from ...ptx.operations import COPIES, Operation
from ..effects import is_call_parameter, may_remove, memory_space
from ..fact_marks import for_any_promise
from .folding import Folding, literal_number, operand_numbers

if TYPE_CHECKING:
    from ..manager import Facts
    from .ssa import Ssa

__all__ = ["Contraction", "Product", "may_contract", "pinned"]


def role(form: Form) -> str:
    """``product``, ``sum`` or ``through`` (see `Op.contraction`); empty if the form is none of these."""
    kind = form.op.contraction
    if not kind:
        return ""
    mods = form.mods
    if kind == "through":
        return "" if form.operation is Operation.CONVERSION and not _keeps_value(form) else kind
    if ("rnd" in mods and not _ignores_rounding(form)) or (kind == "product" and "sat" in form.flags):
        return ""
    return kind


def _ignores_rounding(form: Form) -> bool:
    """Whether ptxas contracts the form in spite of ``.rn``: item 11 above."""
    return form.type is TYPES["f32x2"] and form.mods["rnd"] == "rn"


def _keeps_value(form: Form) -> bool:
    return form.mods.get("dtype") == form.mods.get("atype") and "sat" not in form.flags


def pinned(form: Form) -> str | None:
    """The mnemonic of the same product or sum with ``.rn``; ``None`` if there is none with the same value."""
    if not any(piece.name == "rnd" for piece in form.op.pieces) or form.type is TYPES["f32x2"]:
        return None
    base, _, rest = form.text.partition(".")
    return f"{base}.rn.{rest}"


@dataclass(frozen=True, slots=True)
class Product:
    """``sums`` are the sums that may read the product, directly or through copies, φs and selections. ``readers``:
    (reader, whether it reads the value in the product's block without a guard, by how much its loop is deeper)."""

    kind: str
    sums: frozenset[Instr] = frozenset()
    readers: frozenset[tuple[Instr, bool, int]] = frozenset()


@dataclass(slots=True)
class Contraction:
    """``products`` maps a product to its kind and readers. ``sources`` maps a sum to the products that it may read.
    ``live``: the instructions with an effect or a used result. ``fixed``: instructions that must not move or change."""

    products: dict[Instr, Product] = field(default_factory=dict[Instr, Product])
    sources: dict[Instr, set[Instr]] = field(default_factory=dict[Instr, "set[Instr]"])
    live: set[Instr] = field(default_factory=set[Instr])
    fixed: frozenset[Instr] = frozenset()
    #: Whether any change of the kernel may change which products are contracted.
    is_fragile: bool = False

    @classmethod
    @for_any_promise
    def of(cls, facts: Facts) -> Contraction:
        """The products of the kernel; a fact for `Facts.get`."""
        return _Classes(facts).classify() if may_contract(facts.kernel) else cls()

    def with_copies(self, copies: Mapping[Instr, Instr]) -> Contraction:
        """This with the copies of its instructions, which are to be contracted as their originals. ``copies``: by copy
        its original. A reader without a copy was left out of the copied code."""
        copy_of = {original: copy for copy, original in copies.items()}
        found = Contraction(dict(self.products), dict(self.sources), self.live, is_fragile=self.is_fragile)
        for copy, original in copies.items():
            product = self.products.get(original)
            if product is not None:
                sums = frozenset([copy_of[each] for each in product.sums if each in copy_of])
                readers = [(copy_of[each], here, depth) for each, here, depth in product.readers if each in copy_of]
                found.products[copy] = Product(product.kind, sums, frozenset(readers))
            if original in self.sources:
                found.sources[copy] = {copy_of[each] for each in self.sources[original] if each in copy_of}
        found.fixed = self.fixed | {copy for copy, original in copies.items() if original in self.fixed}
        return found

    def add(self, other: Contraction, copies: Mapping[Instr, Instr]) -> None:
        """Add the products of another kernel. ``copies``: by instruction of that kernel its copy in this one."""
        for instr, product in other.products.items():
            sums = frozenset(copies[each] for each in product.sums)
            readers = frozenset((copies[each], is_here, depth) for each, is_here, depth in product.readers)
            self.products[copies[instr]] = Product(product.kind, sums, readers)


def may_contract(kernel: Kernel) -> bool:
    """Whether the kernel has a product and a sum, or one of them and calls, parameters or results of a function."""
    roles = {role(instr.form) for block in kernel.blocks for instr in block.instrs if instr.form.op.contraction}
    if "product" in roles and "sum" in roles:
        return True
    if "product" not in roles and "sum" not in roles:
        return False
    return not kernel.is_entry or any(instr.form.is_call for instr in kernel.instructions())


@dataclass(slots=True)
class _Reach:
    """The readers of one value, and whether it leaves the code that is analyzed."""

    sums: dict[Instr, bool] = field(default_factory=dict[Instr, bool])  #: By sum: whether it is certainly contracted.
    others: set[Instr] = field(default_factory=set[Instr])
    is_rounded: bool = False  #: read by an instruction that keeps it rounded
    is_doubtful: bool = False  #: read by an instruction, no contractible sum, that has a guard or is in another block
    escapes: bool = False
    is_in_local: bool = False  #: stored to local memory
    readers: set[tuple[Instr, bool, int]] = field(default_factory=set["tuple[Instr, bool, int]"])


class _Classes:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.ssa = facts.ssa
        cfg = facts.cfg
        self.block_of = {instr: block for block in cfg.rpo for instr in cfg.blocks[block].instrs}
        #: By instruction: the number of the basic block that ptxas has it in: blocks of the kernel are split (item 3).
        self.part_of = _parts(cfg.blocks[block].instrs for block in cfg.rpo)
        kernel = facts.kernel
        self.results = {param.name for param in kernel.results or ()}
        self.has_local = _has_local(facts)
        self.live = self._live()
        self.numbers = operand_numbers(self.block_of, self.ssa)
        self.folding = Folding(facts, self.numbers, lambda store: not self._is_promotable(store))
        self.products = [instr for instr in self.live if role(instr.form) == "product"]
        #: By value: the live instructions that read it, and the φs and may-definitions it goes into.
        self.reads: dict[int, list[Instr]] = {}
        self.joins: dict[int, list[int]] = {}
        self._find_reads()

    def _live(self) -> set[Instr]:
        """The instructions with an effect, and those on whose results they depend."""
        ssa = self.ssa
        live = {instr for instr in self.block_of if not instr.is_directive and not may_remove(instr)}
        work = list(live)
        seen: set[int] = set()
        values = [value for value, reg in enumerate(ssa.reg) if reg.text in self.results] if self.results else []
        while work or values:
            if work:
                instr = work.pop()
                values += [ssa.read(instr, reg) for reg in instr.uses()]
            while values:
                value = values.pop()
                if value in seen:
                    continue
                seen.add(value)
                values += [before for _, before in ssa.phi_args.get(value, ())]
                if value in ssa.old:
                    values.append(ssa.old[value])
                definition = ssa.instr[value]
                if definition is not None and definition not in live:
                    live.add(definition)
                    work.append(definition)
        return live

    def _find_reads(self) -> None:
        ssa = self.ssa
        for instr in self.block_of:
            if instr in self.live:
                for reg in set(instr.uses()):
                    self.reads.setdefault(ssa.read(instr, reg), []).append(instr)
        for phi, arguments in ssa.phi_args.items():
            for value in {value for _, value in arguments}:
                self.joins.setdefault(value, []).append(phi)
        for new, old in ssa.old.items():
            self.joins.setdefault(old, []).append(new)

    def classify(self) -> Contraction:
        """The kinds of all live products."""
        reached = {instr: self._reach(instr) for instr in self.products}
        spaces = self._spaces(reached.values())
        incoming = {each for instr in self._incoming(spaces) for each in self._reach(instr).sums}
        for reach in reached.values():
            reach.escapes |= reach.is_in_local and bool(incoming)
        kinds = {instr: _kind(instr, reach) for instr, reach in reached.items()}
        kinds.update((instr, "open") for instr, reach in reached.items() if reach.sums and self._may_fold(instr))
        equal = [group for group in _equal_products(reached, self.numbers, self.ssa) if len(group) > 1]
        for group in equal:
            is_spread = len({self.block_of[instr] for instr in group}) > 1
            if is_spread and not all(is_here for instr in group for _, is_here, _ in reached[instr].readers):
                kinds.update((instr, "open") for instr in group if reached[instr].sums)
        sources: dict[Instr, set[Instr]] = {}
        for instr, reach in reached.items():
            for each in reach.sums:
                sources.setdefault(each, set()).add(instr)
        for each, products in sources.items():
            unsure = [product for product in products if kinds[product] != "rounded"]
            if each in incoming:
                kinds.update((product, "open") for product in unsure)
            elif unsure:
                if len(unsure) > 1:
                    kinds.update((product, "paired") for product in unsure if kinds[product] == "contracted")
                # Also of equal products of which one is rounded, none is contracted.
                same = [product for group in equal if len(products & set(group)) > 1 for product in group]
                kinds.update((product, "open") for product in unsure if product in same)
        found = {
            instr: Product(kinds[instr], frozenset(reach.sums), frozenset(reach.readers))
            for instr, reach in reached.items()
        }
        fixed = {instr for instr, product in found.items() if product.kind != "rounded"}
        fixed |= {each for instr in list(fixed) for each in found[instr].sums} | incoming
        is_fragile = bool(incoming) or "open" in kinds.values()
        return Contraction(found, sources, self.live, frozenset(fixed), is_fragile=is_fragile)

    def _may_fold(self, product: Instr) -> bool:
        """Whether ptxas may fold the product, or a factor to a constant that PTX does not show."""
        factors = product.operands[1:]
        return self.folding.may_fold(product) or any(self.folding.is_constant(product, each) for each in factors)

    def _spaces(self, reached: Iterable[_Reach]) -> set[str]:
        """The state spaces through which a product may pass without being rounded: ``local`` if this kernel stores one
        there, ``param`` if another function of the module has one."""
        found = {"local"} if any(reach.is_in_local for reach in reached) else set[str]()
        module, kernel = self.facts.module, self.facts.kernel
        others = [] if module is None else [each for each in module.kernels if each is not kernel]
        if module is None or any(role(instr.form) == "product" for each in others for instr in each.instructions()):
            found.add("param")
        return found

    def _incoming(self, spaces: set[str]) -> Iterable[Instr]:
        """The instructions whose results may be an unrounded product from memory or another function."""
        for instr in self.live:
            if instr.form.is_call:
                if "param" in spaces:
                    yield instr
            elif instr.form.operation is Operation.LOAD and self._is_promotable(instr):
                space = memory_space(instr)
                if ("local" if space == "generic" else space) in spaces:
                    yield instr

    def _is_promotable(self, access: Instr) -> bool:
        """Whether ptxas may turn the memory into registers, so that a store does not round."""
        space = memory_space(access)
        if space == "param":
            return not self.facts.kernel.is_entry or is_call_parameter(access) or "call" in access.form.text
        return space == "local" or (space == "generic" and self.has_local)

    def _reach(self, start: Instr) -> _Reach:
        """The readers of the results of ``start``."""
        ssa, found = self.ssa, _Reach()
        home = self.part_of[start]
        work = deque((ssa.defined(start, reg), start.guard is None) for reg in start.defs())
        seen = {value for value, _ in work}
        while work:
            value, is_direct = work.popleft()
            if ssa.reg[value].text in self.results:
                found.escapes = True
            after = [(join, False) for join in self.joins.get(value, ())]
            for reader in self.reads.get(value, ()):
                is_here = is_direct and reader.guard is None and self.part_of[reader] == home
                if role(reader.form) == "through":
                    keeps = is_here and _is_transparent(reader)
                    after += [(ssa.defined(reader, reg), keeps) for reg in reader.defs()]
                elif self.folding.may_fold(reader):
                    after += [(ssa.defined(reader, reg), False) for reg in reader.defs()]
                    self._read_and_fold(start, reader, found)
                else:
                    self._read(start, reader, found, is_direct=is_direct, is_here=is_here)
            for each in after:
                if each[0] not in seen:
                    seen.add(each[0])
                    work.append(each)
        return found

    def _read(self, start: Instr, reader: Instr, found: _Reach, *, is_direct: bool, is_here: bool) -> None:
        found.readers.add((reader, is_here, self._depth_between(start, reader)))
        form = reader.form
        if role(form) == "sum" and len({operand.text for operand in reader.operands[1:3]}) == 2:
            found.sums[reader] = is_here and _agrees(start.form, form)
        elif form.is_call or (form.operation is Operation.STORE and self._is_promotable(reader)):
            found.escapes |= form.is_call or memory_space(reader) == "param"
            found.is_in_local |= not found.escapes
        else:
            found.others.add(reader)
            is_certain = self._is_certain(start, reader)
            found.is_rounded |= is_direct and is_certain and reader in self.folding.needed
            found.is_doubtful |= not is_certain

    def _read_and_fold(self, start: Instr, reader: Instr, found: _Reach) -> None:
        """``reader`` may be folded: then its readers read the product, or it is no reader."""
        found.readers.add((reader, False, self._depth_between(start, reader)))
        if role(reader.form) == "sum":
            found.sums[reader] = False
        else:
            found.others.add(reader)

    def _depth_between(self, start: Instr, reader: Instr) -> int:
        depth = self.facts.loops.depth
        return depth[self.block_of[reader]] - depth[self.block_of[start]]

    def _is_certain(self, start: Instr, reader: Instr) -> bool:
        """Whether ptxas executes ``reader`` with every copy of ``start`` that it may make. It may copy a product into
        the arms of a branch, and leave a reader with a guard, or in another block, in one of them."""
        return reader.guard is None and self.block_of[start] == self.block_of[reader]


def _kind(instr: Instr, reach: _Reach) -> str:
    if (reach.is_rounded and not reach.is_doubtful) or not (reach.sums or reach.escapes):
        return "rounded"
    is_certain = not reach.escapes and not reach.others and instr.guard is None and all(reach.sums.values())
    return "contracted" if is_certain else "open"


def _equal_products(
    products: Collection[Instr], number_of: Mapping[int, object], ssa: Ssa
) -> Iterable[Collection[Instr]]:
    """Groups of products that may have equal operands, in either order."""
    groups: dict[object, list[Instr]] = {}
    for instr in products:
        groups.setdefault((instr.form.text, frozenset(_factors(instr, ssa, number_of))), []).append(instr)
    yield from groups.values()


def _factors(product: Instr, ssa: Ssa, number_of: Mapping[int, object]) -> Iterable[object]:
    for operand in product.operands[1:]:
        if isinstance(operand, Reg):
            value = ssa.read(product, operand)
            yield number_of.get(value, value)
        else:
            yield literal_number(operand, product.form.type)


_TRANSPARENT = COPIES | {Operation.FLOAT_NEGATION}


def _parts(blocks: Iterable[Iterable[Instr]]) -> dict[Instr, int]:
    """By instruction: the number of the stretch of code in which it is. Stretches end with a block, and before and
    after an instruction that ptxas may make a block of its own."""
    part_of: dict[Instr, int] = {}
    number = 0
    for instrs in blocks:
        number += 1
        for instr in instrs:
            is_apart = _is_block_of_its_own(instr)
            number += is_apart
            part_of[instr] = number
            number += is_apart
    return part_of


def _is_block_of_its_own(instr: Instr) -> bool:
    form = instr.form
    if instr.is_directive:
        return False
    if (instr.guard is not None and form.effects) or form.is_opaque or form.op.splits == "always":
        return True
    if form.op.splits == "unless aligned":
        return "aligned" not in form.flags
    return form.op.splits == "64 bits" and form.type is not None and form.type.bits == 64


def _is_transparent(instr: Instr) -> bool:
    """Whether ptxas sees a product through the instruction, as if it were absent: a ``mov`` of a register, or
    ``neg``."""
    operation, operands = instr.form.operation, instr.operands
    return operation in _TRANSPARENT and len(operands) == 2 and all(type(operand) is Reg for operand in operands)


def _agrees(product: Form, total: Form) -> bool:
    """Whether sum and product have the same type and the same treatment of subnormal numbers."""
    return product.type is total.type and ("ftz" in product.flags) == ("ftz" in total.flags)


def _has_local(facts: Facts) -> bool:
    variables = [*facts.kernel.variables, *(facts.module.variables if facts.module is not None else ())]
    return any(each.space == "local" for each in variables) or any(
        instr.form.operation is Operation.ALLOCATION for instr in facts.kernel.instructions()
    )
