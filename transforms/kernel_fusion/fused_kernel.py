"""Builds the kernel that does the work of two launches: its PTX, its parameters and its launch.

Computes: a module with one kernel, in which each thread runs the first body and then the second. Registers, labels, and
shared and local arrays of the second body get new names. Parameters to which the host passes the same argument become
one parameter. Where the first body ends a thread (``ret``, ``exit``), control goes to the join instead. At the join is
a ``bar.sync`` if the two bodies need one or reuse shared memory, or a grid barrier if that was requested. If the grids
differ, blocks that do not belong to a launch skip its body, and each body reads its own ``%nctaid``. Loads that promise
that nobody writes the memory (``.nc``) become plain loads if one of the bodies writes it. A value that the first body
stores and the same thread loads in the second body is taken from the register (`forwarding`). A product that was
rounded by memory before a sum read it gets ``.rn``, so that ptxas does not contract the two (`contraction_audit`).

Requires: two sites that `fusibility.decide` has found fusible, with that answer. The fused kernel is launched only
while the answer's ``checks`` are true.
Guarantees: each such launch of the fused kernel with ``grid``, ``block``, ``shared`` and the arguments that
``parameters`` name leaves the same memory as the two launches, except in ``dead_buffers``.
Refuses, with `CannotFuse`: a pair that is not fusible, a grid barrier that was not requested, modules of different
architectures, different grids if a body reads ``%nctaid`` as a vector or as 16 bits.
Reference: thesis §5.1, figure 5.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ...analysis.divergence.sources import operand_widths
from ...analysis.manager import Facts
from ...analysis.values.contraction import Contraction, may_contract
from ...arch import ALWAYS_FITS
from ...ptx import (
    TYPES,
    Block,
    Guard,
    Imm,
    Instr,
    Kernel,
    Mem,
    Module,
    Operand,
    Param,
    RawDirective,
    Reg,
    RegisterDeclaration,
    Special,
    Sym,
    Variable,
)
from ...ptx.builder import Builder
from ...ptx.errors import SourceText
from ...ptx.ir import Declaration
from ...ptx.operands import walk
from ...ptx.operations import Operation
from ...ptx.verify import verify
from ..contraction_audit import keep_contraction
from .body_copy import BodyCopy, Files, copy_body, free_tag, names_of
from .buffer_use import buffers_written, facts_of, may_read_buffers
from .forwarding import Forwarded, forward
from .fusibility import flat_site
from .grid_barrier import barrier_blocks, barrier_counter
from .launch_site import Argument, Buffer, Extent, Extents, Fusibility, LaunchSite, Scalar, text_of
from .module_merge import CannotFuse, merged_functions, merged_target, merged_version
from .shared_layout import SharedLayout, shared_layout
from .warp_waits import partial_waits

__all__ = ["CannotFuse", "FusedKernel", "build"]

#: Bytes of parameters that every machine and PTX version allows. Newer ones allow more.
MOST_PARAMETERS = 4096

_AXES = "xyz"
_HIDEABLE = frozenset(["%tid", "%ctaid", "%nctaid"])


@dataclass(frozen=True)
class FusedKernel:
    """``parameters`` has one entry for each parameter of the kernel: the launch (0 or 1), and the name of that launch's
    parameter whose argument is passed, or ``%nctaid.x`` and so on for an extent of that launch's grid. ``site`` is the
    launch that replaces both; it is cooperative if it must be. ``remarks`` describe what was done."""

    module: Module
    name: str
    parameters: list[tuple[int, str]]
    site: LaunchSite
    remarks: tuple[str, ...]

    @property
    def kernel(self) -> Kernel:
        """The fused kernel in its module."""
        return self.module.kernel(self.name)

    @property
    def grid(self) -> Extents:
        """The extents of its grid."""
        return self.site.grid

    @property
    def cooperative(self) -> bool:
        """Whether its launch must be cooperative."""
        return self.site.cooperative

    @property
    def shared_bytes(self) -> Extent:
        """Dynamic shared memory in bytes: the larger amount of the two parts."""
        return self.site.shared


def build(
    first: LaunchSite,
    second: LaunchSite,
    fusibility: Fusibility,
    *,
    name: str,
    dead_buffers: frozenset[str] = frozenset(),
    grid_barrier: bool = False,
) -> FusedKernel:
    """Fuse two launches.

    ``dead_buffers`` are allocations that nothing reads afterwards. With ``grid_barrier``, a pair with a dependence
    across blocks gets a grid barrier, and must then be launched cooperatively. Raises `CannotFuse`.
    """
    if fusibility.kind not in ("thread", "block", "grid"):
        raise CannotFuse("; ".join(fusibility.reasons) or "the two launches may not be fused")
    if fusibility.kind == "grid" and not grid_barrier:
        raise CannotFuse("the second kernel depends on other blocks of the first kernel")
    sites = flat_site(first), flat_site(second)
    is_ordered = fusibility.kind != "grid"
    forwarded = forward(*sites, dead_buffers, is_ordered=is_ordered, checks=fusibility.checks)
    fused = _Fusion(*sites, fusibility, name, forwarded).build()
    if fused is None:  # keep the memory accesses, because they round products
        fused = _Fusion(*sites, fusibility, name, Forwarded()).build()
    if fused is None:
        raise CannotFuse("ptxas might contract different products in the fused kernel (contraction)")
    return fused


class _Fusion:
    def __init__(
        self, first: LaunchSite, second: LaunchSite, fusibility: Fusibility, name: str, forwarded: Forwarded
    ) -> None:
        self.sites = (first, second)
        self.fusibility = fusibility
        self.name = name
        self.forwarded = forwarded
        self.kernel = Kernel(name, is_entry=True, linkage=".visible", params=[])
        self.files = Files()
        self.remarks: list[str] = []
        self.parameters: list[tuple[int, str]] = []
        self.arguments: dict[str, Argument] = {}
        #: For each side: by declaration of the original, its replacement and an offset in bytes.
        self.symbols: tuple[dict[Declaration, tuple[Declaration, int]], ...] = ({}, {})
        self.globals: list[Variable] = []
        self._counter = f"{name}_arrived"

    def build(self) -> FusedKernel | None:
        """The fused kernel. `None` if ptxas might contract other products in it than in the two kernels."""
        first, second = self.sites
        forwarded = self.forwarded
        # Names that the bodies declare would hide declarations of the module with the same name.
        taken = {self.name, self._counter, *(each.name for site in self.sites for each in site.kernel.declarations)}
        functions = merged_functions((first, second), self.symbols, self.globals, taken)
        self._parameters()
        self._check_size()
        layout = shared_layout(first, second, f"{self.name}_shared")
        self._shared(layout)
        extents = self._extents()
        tag = free_tag([*names_of(first.kernel), *names_of(second.kernel), self.name])
        # A register may be called like a special register that its body does not read. The fused code may read it.
        tags = (f"{tag}x" if _HIDEABLE & names_of(first.kernel) else "", tag)
        copies = [
            copy_body(site.kernel, tag, symbols, extents[side], site.module, self.files)
            for side, (site, tag, symbols) in enumerate(zip(self.sites, tags, self.symbols, strict=True))
        ]
        self._declare(copies)
        self._apply(forwarded, copies)
        self._plain_loads(copies, forwarded)
        self._join(copies, layout, extents)
        self.kernel.directives = _directives(first.kernel, second.kernel, first.block)
        self.kernel.cfg_changed()
        module = Module(
            SourceText("", self.name), merged_version(first.module, second.module), merged_target(first, second), 64
        )
        module.items = [
            *self.globals,
            *functions,
            self.kernel,
            *(RawDirective(f'.file {number} "{file}"') for number, file in enumerate(self.files.names, 1)),
        ]
        if not self._keeps_contraction(module, copies):
            return None
        verify(module)
        site = LaunchSite(
            self.kernel,
            module,
            self._grid(),
            first.block,
            layout.dynamic_bytes,
            self.arguments,
            self.fusibility.kind == "grid" or first.cooperative or second.cooperative,
            self._counters(),
        )
        return FusedKernel(module, self.name, self.parameters, site, tuple(self.remarks))

    def _counters(self) -> frozenset[str]:
        """The counters of all grid barriers: of this fusion and of the parts."""
        counters = {self._counter} if self.fusibility.kind == "grid" else set[str]()
        for site, symbols in zip(self.sites, self.symbols, strict=True):
            counters |= {new.name for old, (new, _) in symbols.items() if old.name in site.counters}
        return frozenset(counters)

    # --- declarations --------------------------------------------------------------------------------------------

    def _parameters(self) -> None:
        """Add one parameter for each different argument."""
        passed: dict[tuple[object, ...], Param] = {}
        params = self.kernel.params
        assert params is not None
        for side, site in enumerate(self.sites):
            for param in site.kernel.params or ():
                argument = site.arguments.get(param.name)
                key = _same_argument(param, argument)
                new = passed.get(key) if key is not None else None
                if new is None:
                    new = Param(
                        f"{self.name}_param_{len(params)}",
                        "param",
                        param.type,
                        param.align,
                        param.dims,
                        param.attributes,
                        param.lanes,
                        param.type_align,
                    )
                    params.append(new)
                    self.parameters.append((side, param.name))
                    if argument is not None:
                        self.arguments[new.name] = argument
                    if key is not None:
                        passed[key] = new
                elif new.attributes != param.attributes:
                    new.attributes = ""
                self.symbols[side][param] = (new, 0)

    def _check_size(self) -> None:
        """Raises `CannotFuse` if there are more bytes of parameters than a kernel may have."""
        end = 0
        for param in self.kernel.params or ():
            alignment = param.align or param.type.bytes * param.lanes
            end = -(-end // alignment) * alignment + param.bytes
        if end > MOST_PARAMETERS:
            raise CannotFuse(
                f"the fused kernel would have {end} bytes of parameters, but only {MOST_PARAMETERS} are allowed"
            )

    def _extents(self) -> tuple[dict[str, Operand], dict[str, Operand]]:
        """For each of the two kernels, by special register (`%nctaid.x`), the operand that replaces it in the body.

        Only axes along which the grids differ have one: a number, or a register that is loaded at the start of the
        kernel."""
        operands: tuple[dict[str, Operand], dict[str, Operand]] = ({}, {})
        params = self.kernel.params
        assert params is not None
        # A part may itself be a fused kernel with such registers.
        tag = free_tag(name for site in self.sites for name in names_of(site.kernel))
        for axis, one, other in zip(_AXES, self.sites[0].grid, self.sites[1].grid, strict=True):
            if one == other:
                continue
            for side, extent in enumerate((one, other)):
                if isinstance(extent, int):
                    operands[side][f"%nctaid.{axis}"] = Imm(extent)
                    continue
                param = Param(f"{self.name}_param_{len(params)}", "param", TYPES["u32"])
                params.append(param)
                self.parameters.append((side, f"%nctaid.{axis}"))
                self.arguments[param.name] = Scalar(extent, (1, 2**31 - 1))
                reg = Reg(f"%fused{tag}_nctaid_{axis}{side}", TYPES["u32"])
                self.kernel.declarations.append(RegisterDeclaration(reg.type, reg.text))
                operands[side][f"%nctaid.{axis}"] = reg
        for site, replaced in zip(self.sites, operands, strict=True):
            _check_extents(site.kernel, replaced)
        return operands

    def _grid(self) -> Extents:
        first, second = self.sites
        x, y, z = (_larger(one, other) for one, other in zip(first.grid, second.grid, strict=True))
        return x, y, z

    def _shared(self, layout: SharedLayout) -> None:
        for side in (0, 1):
            self.symbols[side].update(layout.symbols[side])
        self.kernel.declarations += layout.declarations
        self.globals += layout.module_variables
        self.remarks += layout.remarks
        if why := layout.too_much:
            raise CannotFuse(why)

    def _declare(self, copies: list[BodyCopy]) -> None:
        for copied in copies:
            self.kernel.declarations += copied.declarations
        names = self.kernel.names
        names.update(param.name for param in self.kernel.params or ())
        names.update(variable.name for variable in self.globals)
        for copied in copies:
            names.update(declaration.name for declaration in copied.declarations)
            names.update(block.label.text for block in copied.blocks if block.label is not None)
        for site in self.sites:
            names.update(names_of(site.kernel))

    # --- changes of the bodies -----------------------------------------------------------------------------------

    def _apply(self, forwarded: Forwarded, copies: list[BodyCopy]) -> None:
        """Replace loads of the second body by moves from registers of the first, and remove dead stores."""
        for load, value in forwarded.loads.items():
            copied = copies[1].instr[load]
            source = copies[0].registers[value] if isinstance(value, Reg) else value
            scalar = load.form.type
            assert scalar is not None
            made = Builder(self.kernel, Block()).make(f"mov.b{scalar.bits}", copied.operands[0], source)
            copied.form, copied.operands = made.form, made.operands
            copied.forget()
        for side, stores in enumerate(forwarded.stores):
            gone = {copies[side].instr[store] for store in stores}
            for block in copies[side].blocks:
                block.instrs = [instr for instr in block.instrs if instr not in gone]
        if forwarded.loads:
            number = len(forwarded.loads)
            self.remarks.append(f"loads replaced by the register that the same thread stored: {number}")
        removed = sum(map(len, forwarded.stores))
        if removed:
            self.remarks.append(f"stores removed, because nothing reads the result: {removed}")

    def _keeps_contraction(self, module: Module, copies: list[BodyCopy]) -> bool:
        """Add ``.rn`` to products that memory no longer rounds. Whether ptxas then contracts the same products as
        before."""
        if not may_contract(self.kernel):
            return True
        before = Contraction()
        for site, copied in zip(self.sites, copies, strict=True):
            before.add(facts_of(site).get(Contraction.of), copied.instr)
        pins = keep_contraction(self.kernel, Facts(self.kernel, module), before)
        if pins > 0:
            self.remarks.append(f"products with .rn now, because memory rounded them: {pins}")
        return pins >= 0

    def _plain_loads(self, copies: list[BodyCopy], forwarded: Forwarded) -> None:
        """Remove ``.nc``, which promises that nobody writes the memory while the kernel runs. That may be true for each
        part and false for the fused kernel."""
        written = buffers_written(self.sites)
        count = 0
        for site, copied in zip(self.sites, copies, strict=True):
            for instr in site.kernel.instructions():
                words = instr.form.text.split(".")
                if instr in forwarded.loads or (words[0] != "ldu" and "nc" not in words):
                    continue
                if not may_read_buffers(site, instr, written):
                    continue
                new = copied.instr[instr]
                mnemonic = ".".join(["ld", *(word for word in words[1:] if word != "nc")])
                self.kernel.replace_form(new, mnemonic)
                count += 1
        if count:
            self.remarks.append(f"{count} loads through the read-only cache become plain loads")

    def _join(
        self, copies: list[BodyCopy], layout: SharedLayout, extents: tuple[dict[str, Operand], dict[str, Operand]]
    ) -> None:
        """Concatenate the bodies."""
        kernel = self.kernel
        join, end = Block(kernel.new_label("$fused_join_")), Block(kernel.new_label("$fused_end_"))
        _redirect(copies[0].blocks, join)
        blocks: list[Block] = []
        start = self._load_extents(extents)
        if start.instrs:
            blocks.append(start)
        blocks += self._guard(0, join)
        blocks += copies[0].blocks
        blocks += self._barrier(join, layout)
        guards = self._guard(1, end)
        blocks += guards
        blocks += copies[1].blocks
        if guards:
            blocks.append(end)
            end.instrs.append(Builder(kernel, end).make("ret"))
        kernel.blocks = blocks

    def _barrier(self, join: Block, layout: SharedLayout) -> list[Block]:
        if self.fusibility.kind == "grid":
            if any(int(re.sub(r"\D", "", site.module.arch) or 0) < 70 for site in self.sites):
                raise CannotFuse("a grid barrier needs sm_70 or newer")
            counter = barrier_counter(self._counter)
            self.globals.append(counter)
            self.remarks.append("a grid barrier is between the bodies")
            return barrier_blocks(self.kernel, join, counter)
        if self.fusibility.kind == "block" or layout.needs_barrier:
            if partial_waits(self.sites[0]):
                raise CannotFuse("lanes of the first body may wait for others that wait for the shared memory")
            Builder(self.kernel, join).emit("bar.sync", 0)
            self.remarks.append("a bar.sync is between the bodies")
        return [join]

    def _load_extents(self, extents: tuple[dict[str, Operand], dict[str, Operand]]) -> Block:
        block = Block()
        builder = Builder(self.kernel, block)
        params = {param.name: param for param in self.kernel.params or ()}
        names = {key: param.name for key, param in zip(self.parameters, self.kernel.params or (), strict=True)}
        for side in (0, 1):
            for special, operand in extents[side].items():
                if isinstance(operand, Reg):
                    param = params[names[side, special]]
                    builder.emit("ld.param.u32", operand, Mem(Sym(param.name, param)))
        self._extent_operands = extents
        return block

    def _guard(self, side: int, target: Block) -> list[Block]:
        """Blocks that skip a body if the block index is outside that launch's grid."""
        guards: list[Block] = []
        for special, extent in self._extent_operands[side].items():
            axis = special[-1]
            other = self._extent_operands[1 - side][special]
            if isinstance(extent, Imm) and isinstance(other, Imm) and int(extent.text) > int(other.text):
                continue
            block = Block()
            builder = Builder(self.kernel, block, hint="%g")
            place = builder.mov("u32", Special(f"%ctaid.{axis}", TYPES["u32"]))
            assert place is not None
            outside = builder.setp("ge.u32", place, extent)
            assert outside is not None
            builder.guard = Guard(outside, negated=False)
            builder.emit("bra", target)
            guards.append(block)
        return guards


def _check_extents(kernel: Kernel, replaced: Mapping[str, Operand]) -> None:
    """Raises `CannotFuse` if the kernel reads an extent of ``replaced`` other than as a word: with the other extents as
    the vector ``%nctaid``, or as 16 bits."""
    for instr in kernel.instructions() if replaced else ():
        for place, operand in enumerate(instr.operands):
            for part in walk(operand):
                if not isinstance(part, Special) or part.name not in ("%nctaid", *replaced):
                    continue
                width = operand_widths(instr.form)[place] if place < len(instr.form.specs) else 0
                if part.name == "%nctaid" or part is not operand or width != 32:
                    raise CannotFuse(
                        f"the grids differ, and '{instr.text}' reads one extent in a way that is not replaced"
                    )


def _redirect(blocks: list[Block], join: Block) -> None:
    """Replace instructions that end a thread of the first body by branches to the join."""
    for block in blocks:
        last = block.terminator
        if last is None or last.form.operation not in (Operation.RETURN, Operation.EXIT):
            continue
        builder = Builder(Kernel("", is_entry=True), Block())
        assert join.label is not None
        made = builder.make("bra.uni" if last.guard is None else "bra", join.label)
        if last.guard is None and block is blocks[-1]:
            block.instrs = [instr for instr in block.instrs if instr is not last]
        else:
            at = block.instrs.index(last)
            block.instrs[at] = Instr(made.form, made.operands, last.guard, last.loc)


def _same_argument(param: Param, argument: Argument | None) -> tuple[object, ...] | None:
    """A key that is equal for two parameters only if the host passes the same bytes to both. ``None`` if that is not
    known."""
    if argument is None or param.dims or param.lanes != 1:
        return None
    if isinstance(argument, Buffer):
        return ("buffer", argument.name, argument.offset, param.bytes)
    value = argument.value
    if value is None or isinstance(value, float):
        return None
    return ("scalar", type(value), value, param.type.bits, param.type.is_float)


def _larger(one: Extent, other: Extent) -> Extent:
    if one == other:
        return one
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return f"max({text_of(one)}, {text_of(other)})"


def _directives(first: Kernel, second: Kernel, block: Extents) -> list[str]:
    """Launch bounds for the fused kernel. Each kernel is launched with blocks within its own bounds. Without them, the
    fused kernel gets those of its block, if a kernel with more registers could not be launched with it."""
    directives: list[str] = []
    for name in ("reqntid", "maxntid"):
        stated = [numbers for kernel in (first, second) if (numbers := kernel.directive_numbers(name))]
        if stated and not directives:  # ptxas rejects a kernel with both
            directives.append(f".{name} {', '.join(map(str, min(stated, key=prod)))}")
    least = [numbers[0] for kernel in (first, second) if (numbers := kernel.directive_numbers("minnctapersm"))]
    if len(least) == 2 and directives:  # without launch bounds, ptxas ignores it
        directives.append(f".minnctapersm {min(least)}")
    known = [extent for extent in block if isinstance(extent, int)]
    if not directives and len(known) == len(block) and prod(known) > ALWAYS_FITS:
        directives.append(f".maxntid {', '.join(map(str, known))}")
    return directives
