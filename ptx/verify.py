"""The verifier. It checks rules that the parser does not check, and rules that a pass could break.

Checks: version and target, declarations, the operands of every instruction against the opcode table
(`operand_rules.py`), calls against the declaration of the function, and the invariants of the IR: labels are unique,
a branch goes to a block of its own function, control leaves a block only at its end, each register is declared and is
one object.

Requires: a parsed module, or one that passes have changed. Guarantees: a module that ptxas 13.0 accepts is accepted.
The time is linear in the size of the module. Instructions with unknown opcodes are not checked. Refuses: with
`PtxError` at the position of the instruction in the source. An instruction that a pass has made has no position; then
the error is at the name of the function, and the message contains the instruction. Reference: PTX ISA 9.0, chapters
5, 6, 9 and 11.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from ..arch import targets as arch_targets
from .errors import PtxError, SourceText
from .instructions import Directive, Guard, Instr
from .ir import Block, Kernel, Module, RegisterDeclaration, Variable
from .known_operands import KINDS, known_operands
from .notation import Form
from .operand_rules import REGISTER_TYPES, problem
from .operands import Args, Label, Operand, Reg, Sym, registers
from .operations import Operation
from .prototypes import Signature, argument_problem, signature_of_kernel, signature_of_prototype

__all__ = ["falls_off_end", "problems", "verify", "verify_kernel"]

Report = Callable[[PtxError], None]

#: The greatest minor version of each major version of PTX. All minor versions of 9 are accepted: newer versions only
#: add forms, and unknown forms are kept as opaque instructions.
_MINOR_VERSIONS = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8}
_NEWEST_MAJOR = 9

#: Targets that PTX has beside those of the architectures in `arch.py`.
_OTHER_TARGETS = "10 11 12 13 20 21 30 32 35 37 50 52 53 60 61 62 70 72 88 101 101a 101f"
_TARGETS = frozenset([*(f"sm_{number}" for number in _OTHER_TARGETS.split()), *arch_targets()])
_TARGET_OPTIONS = frozenset(["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"])

#: The size of a range of registers must be below this. With so many ptxas runs out of memory.
_MOST_REGISTERS = 1 << 31
_LARGEST_ARRAY = 1 << 63


#: (form, number of the kind of each operand) of instructions without an error. One set for the whole process.
_GOOD: set[tuple[object, ...]] = set()
#: The same for terminators. Their operands are not checked again, but their targets and positions are.
_GOOD_TERMINATORS: set[tuple[object, ...]] = set()


def verify(module: Module) -> None:
    """Raise `PtxError` for the first error in ``module``.

    >>> from .parser import parse
    >>> verify(parse(".version 9.0\\n.target sm_90\\n.address_size 64\\n"))
    """
    _Module(module, _raise).check()


def verify_kernel(kernel: Kernel, source: SourceText) -> None:
    """Raise `PtxError` for the first error in ``kernel``. ``source`` is the text of its module, for messages."""
    _KernelCheck(kernel, source, _raise).check()


def problems(module: Module) -> list[PtxError]:
    """All errors in ``module``, at most one for each instruction, in the order of the text."""
    errors: list[PtxError] = []
    _Module(module, errors.append).check()
    return errors


def falls_off_end(kernel: Kernel) -> bool:
    """Whether control may reach the end of the text. That is a ``ret`` in PTX."""
    for block in reversed(kernel.blocks):
        if any(not instr.is_directive for instr in block.instrs):
            last = block.terminator
            return last is None or last.guard is not None or not last.form.is_terminator
        if block.label is not None:
            return True
    return True


def _raise(error: PtxError) -> None:
    raise error


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class _Module:
    def __init__(self, module: Module, report: Report) -> None:
        self.module = module
        self.source = module.source
        self.report = report

    def check(self) -> None:
        self.header()
        declared: dict[str, Kernel] = {}
        for item in self.module.items:
            if isinstance(item, Variable):
                self.variable(item)
            elif isinstance(item, Kernel):
                self.signature(item, declared.setdefault(item.name, item))
                if not item.is_declaration:
                    _KernelCheck(item, self.source, self.report).check()

    def fail(self, message: str, pos: int) -> None:
        self.report(PtxError(message, self.source, max(pos, 0)))

    def directive_pos(self, word: str) -> int:
        match = re.search(rf"^[ \t]*(\.{word})\b", self.source.text, re.MULTILINE)
        return match.start(1) if match is not None else 0

    def header(self) -> None:
        module = self.module
        if not module.version:
            self.fail("the module has no '.version'; is this PTX?", 0)
        elif not _is_version(module.version):
            self.fail(f"unknown version {module.version}", self.directive_pos("version"))
        if not module.target:
            self.fail("the module has no '.target'", self.directive_pos("version"))
        for index, word in enumerate(module.target.split(", ") if module.target else ()):
            if word.replace("compute_", "sm_") not in _TARGETS and (index == 0 or word not in _TARGET_OPTIONS):
                self.fail(f"unknown target '{word}'", self.directive_pos("target"))
                break
        if module.address_size not in (None, 32, 64):
            self.fail(f"the address size is 32 or 64, not {module.address_size}", self.directive_pos("address_size"))

    def variable(self, variable: Variable) -> None:
        message = _variable_problem(variable)
        if variable.space == "param":
            message = f"'{variable.name}' is in state space .param, which is no space of a module"
        if message:
            self.fail(message, variable.pos)

    def signature(self, kernel: Kernel, first: Kernel) -> None:
        """Check that a function agrees with the first declaration of its name, and that parameters of entries are in
        memory."""
        for param in kernel.params or ():
            if kernel.is_entry and param.space != "param":
                self.fail(f"parameter '{param.name}' of an entry must be in state space .param", kernel.pos)
            message = _align_problem(param.align)
            if message:
                self.fail(f"parameter '{param.name}': {message}", kernel.pos)
        if kernel is first:
            return
        if kernel.is_entry != first.is_entry:
            self.fail(f"'{kernel.name}' is declared as an entry and as a function", kernel.pos)
            return
        own, other = signature_of_kernel(kernel), signature_of_kernel(first)
        for what, here, there in (
            ("parameter", own.params, other.params),
            ("result", own.results, other.results),
        ):
            if len(here) != len(there):
                counts = f"{_plural(len(here), what)} here and {len(there)}"
                self.fail(f"'{kernel.name}' has {counts} where it was declared first", kernel.pos)
                return


def _is_version(text: str) -> bool:
    if len(text) > 5:  # more digits than any version has
        return False
    major, minor = map(int, text.split("."))
    return major == _NEWEST_MAJOR or minor <= _MINOR_VERSIONS.get(major, -1)


def _align_problem(align: int | None) -> str:
    if align is not None and (align <= 0 or align & (align - 1)):
        return f"the alignment {align} is no power of two"
    return ""


def _variable_problem(variable: Variable) -> str:
    message = _align_problem(variable.align)
    if message:
        return f"'{variable.name}': {message}"
    if variable.type.kind == "p":
        return f"'{variable.name}' is a predicate, which only a register can be"
    if any(dim is not None and dim < 0 for dim in variable.dims):
        return f"'{variable.name}' has a negative size"
    if variable.count is not None and not 0 <= variable.count < _MOST_REGISTERS:
        return f"'{variable.name}' cannot be declared {variable.count} times"
    if variable.initializer is not None and variable.space not in ("global", "const", "tex"):
        return f"'{variable.name}' cannot be initialised: only variables in .global and .const can"
    if prod(dim or 1 for dim in variable.dims) >= _LARGEST_ARRAY:
        return f"'{variable.name}' has more than {_LARGEST_ARRAY - 1} elements"
    is_incomplete = None in variable.dims or 0 in variable.dims
    needs_size = variable.space in ("global", "const") and variable.initializer is None
    if is_incomplete and needs_size and ".extern" not in variable.linkage and ".common" not in variable.linkage:
        return f"'{variable.name}' has no size and is not '.extern'"
    return ""


class _KernelCheck:
    """The checks of one function. Instructions share operands, and each operand is checked once."""

    def __init__(self, kernel: Kernel, source: SourceText, report: Report) -> None:
        self.kernel = kernel
        self.source = source
        self.report = report
        self.known = known_operands(kernel)
        self.labels: set[Label] = set()
        self.directives: dict[Label, Directive] = {}
        self.waiting: list[tuple[Instr, Label, str]] = []

    def check(self) -> None:
        kernel = self.kernel
        for declaration in kernel.declarations:
            self.declare(declaration, kernel.pos)
        for param in [*(kernel.results or ()), *(kernel.params or ())]:
            if param.space == "reg":
                self.known.declare(param.name, param.type, param.lanes)
        self.block_labels()
        number = self.known.__getitem__
        guards = self.known.guards
        good = _GOOD
        for block in kernel.blocks:
            for instr in block.instrs:
                key = (instr.form, *map(number, instr.operands))
                if key not in good:
                    self.instruction(instr, block, key)
                if instr.guard not in guards:
                    self.guard(instr)
        for instr, label, kind in self.waiting:
            self.directive_use(instr, label, kind)
        self.register_names()

    # --- error messages ------------------------------------------------------------------------------------------

    def fail(self, message: str, instr: Instr | None = None, operand: Operand | None = None) -> None:
        if instr is None or instr.pos < 0:
            where = f" in '{instr.text}'" if instr is not None else ""
            name = f"'{self.kernel.name}': "
            self.report(PtxError(f"{name if instr is not None else ''}{message}{where}", self.source, self.kernel.pos))
            return
        pos = instr.pos
        if operand is not None:
            pos = self.operand_pos(instr, operand)
        self.report(PtxError(message, self.source, pos))

    def operand_pos(self, instr: Instr, operand: Operand) -> int:
        """The position of ``operand`` in the source, or of the instruction if the source spells the operand
        differently."""
        text = self.source.text
        end = text.find(";", instr.pos)
        start = instr.pos + len(instr.form.text)
        match = re.compile(rf"(?<![\w$%]){re.escape(operand.text)}(?![\w$])").search(text, start, max(end, start))
        return match.start() if match is not None else instr.pos

    # --- declarations --------------------------------------------------------------------------------------------

    def declare(self, declaration: RegisterDeclaration | Variable, pos: int, *, is_nested: bool = False) -> None:
        if isinstance(declaration, Variable):
            message = _variable_problem(declaration)
            if message:
                self.report(PtxError(message, self.source, max(declaration.pos, 0)))
            return
        scalar, lanes = declaration.type, declaration.lanes
        if scalar.name not in REGISTER_TYPES:
            self.declaration_fault(f"a register cannot have type .{scalar.name}", declaration.name, pos)
        for name, count in ((declaration.name, declaration.count), *declaration.group):
            if count is None and not is_nested and self.known.range_of(name):
                self.declaration_fault(f"register '{name}' is declared twice", name, pos)
            if count is not None and not 0 <= count < _MOST_REGISTERS:
                self.declaration_fault(f"a range of {count} registers cannot be declared", name, pos)
            self.known.declare(name, scalar, lanes, count)
        if declaration.registers:
            self.known.know_made(declaration.registers)

    def declaration_fault(self, message: str, name: str, pos: int) -> None:
        """Report an error in the declaration of ``name``. The IR does not keep its position, so it is searched for."""
        pattern = re.compile(rf"\.reg\b[^;]*?(?<![\w$%])({re.escape(name)})(?![\w$])")
        match = pattern.search(self.source.text, max(pos, 0))
        self.report(PtxError(message, self.source, match.start(1) if match is not None else max(pos, 0)))

    def undeclared(self, reg: Reg, instr: Instr) -> None:
        """Report that ``reg`` is not declared, or declared with another type."""
        name = reg.text
        declared = self.known.declared_as(name)
        if declared:
            self.fail(f"register '{name}' is declared as .{declared[0][0].name}, not .{reg.type.name}", instr, reg)
        else:
            self.fail(f"register '{name}' is not declared", instr, reg)

    def register_names(self) -> None:
        """Check that, without nested scopes, one name is one register object. Analyses compare registers by
        identity."""
        if self.kernel.has_scopes or not self.known.has_doubles:
            return
        first: dict[str, Reg] = {}
        for instr in self.kernel.instructions():
            for operand in instr.operands:
                for reg in registers(operand):
                    if first.setdefault(reg.text, reg) is not reg:
                        self.fail(f"two registers have the name '{reg.text}'", instr, reg)
                        return

    # --- labels --------------------------------------------------------------------------------------------------

    def block_labels(self) -> None:
        names: set[str] = set()
        for block in self.kernel.blocks:
            label = block.label
            if label is None:
                continue
            if label in self.labels or (label.text in names and not self.kernel.has_scopes):
                self.fail(f"label '{label.text}' is defined twice", block.instrs[0] if block.instrs else None)
            self.labels.add(label)
            names.add(label.text)

    def branch_target(self, instr: Instr, label: Operand) -> None:
        if not isinstance(label, Label):
            self.fail(f"'{label.text}' is no label", instr, label)
        elif label not in self.labels:
            self.fail(f"label '{label.text}' is not the start of a block of '{self.kernel.name}'", instr, label)

    def directive_use(self, instr: Instr, label: Label, kind: str) -> None:
        directive = self.directives.get(label)
        if directive is None or directive.kind != kind:
            self.fail(f"'{label.text}' is not the label of a '.{kind}'", instr, label)

    # --- instructions --------------------------------------------------------------------------------------------

    def instruction(self, instr: Instr, block: Block, key: tuple[Form, *tuple[int | None, ...]]) -> None:
        """Check an instruction whose ``key``, its form and the kinds of its operands, is not in `_GOOD`. Terminators
        and calls are never in it."""
        if isinstance(instr, Directive):
            self.directive(instr)
            return
        if None in key:
            self.undeclared(self.known.first_undeclared(instr.operands[key.index(None) - 1]), instr)
            return
        form = instr.form
        if form.is_call:
            self.call(instr)
            return
        if key not in _GOOD_TERMINATORS:
            refusal = problem(form, tuple([KINDS[number] for number in key[1:] if number is not None]))
            if refusal is not None:
                operand = instr.operands[refusal.operand] if refusal.operand >= 0 else None
                text = operand.text if operand is not None else ""
                self.fail(refusal.message.replace("{}", text), instr, operand)
                return
        if form.is_terminator:
            _GOOD_TERMINATORS.add(key)
            self.terminator(instr, block)
        else:
            _GOOD.add(key)

    def directive(self, directive: Directive) -> None:
        if directive.declaration is not None:
            self.declare(directive.declaration, max(directive.pos, self.kernel.pos), is_nested=True)
        if directive.label is not None:
            self.directives[directive.label] = directive
        for target in directive.targets:
            self.branch_target(directive, target)

    def guard(self, instr: Instr) -> None:
        guard = instr.guard
        assert isinstance(guard, Guard)
        reg = guard.reg
        if isinstance(reg, Reg):
            if self.known[reg] is None:
                self.undeclared(reg, instr)
                return
            if reg.type.kind != "p":
                self.fail(f"guard '{reg.text}' is not a predicate but a .{reg.type.name}", instr)
                return
        self.known.guards.add(guard)

    def terminator(self, instr: Instr, block: Block) -> None:
        if block.terminator is not instr:
            self.fail(f"'{instr.form.text}' does not end its block", instr)
        operation = instr.form.operation
        if operation is Operation.BRANCH:
            self.branch_target(instr, instr.operands[0])
        elif operation is Operation.INDEXED_BRANCH:
            table = instr.operands[1]
            if isinstance(table, Label):
                self.waiting.append((instr, table, "branchtargets"))
            else:
                self.fail(f"'{table.text}' is no label", instr, table)

    # --- calls ---------------------------------------------------------------------------------------------------

    def call(self, instr: Instr) -> None:
        """``call (results), target, (arguments), prototype``."""
        results, target, arguments, *rest = instr.operands
        if not isinstance(results, Args) or not isinstance(arguments, Args):
            self.fail("a call has its results and arguments in parentheses", instr)
            return
        signature: Signature | None = None
        name = target.text
        if isinstance(target, Sym) and isinstance(target.declaration, Kernel):
            if target.declaration.is_entry and not rest:
                self.fail(f"'{name}' is an entry, which cannot be called", instr, target)
                return
            signature = signature_of_kernel(target.declaration)
        elif not isinstance(target, Reg):
            self.fail(f"'{name}' is no function", instr, target)
            return
        elif not rest:
            self.fail(f"the call through register '{name}' has no prototype", instr, target)
            return
        elif target.type.bits < 32 or target.type.kind not in "bus":
            self.fail(f"'{name}' is a .{target.type.name}, which is no function's address", instr, target)
            return
        if rest:
            signature = self.prototype(instr, rest[0])
        if signature is not None:
            self.arguments(instr, name, "result", results, signature.results)
            self.arguments(instr, name, "argument", arguments, signature.params)

    def prototype(self, instr: Instr, label: Operand) -> Signature | None:
        directive = self.directives.get(label) if isinstance(label, Label) else None
        if directive is None or directive.kind not in ("callprototype", "calltargets"):
            self.fail(f"'{label.text}' is not the label of a '.callprototype'", instr, label)
            return None
        return signature_of_prototype(directive.payload) if directive.kind == "callprototype" else None

    def arguments(self, instr: Instr, name: str, what: str, given: Args, formal: tuple[int | None, ...]) -> None:
        """Check arguments or results. ``formal`` has the size in bytes of each; ``None`` for an array without a
        size."""
        if None in formal:
            return
        if len(given.elements) != len(formal):
            verb = "takes" if what == "argument" else "returns"
            count = _plural(len(formal), what) if formal else f"no {what}s"
            self.fail(f"'{name}' {verb} {count}, not {len(given.elements)}", instr)
            return
        for operand, size in zip(given.elements, formal, strict=True):
            message = argument_problem(operand, size, is_result=what == "result")
            if message:
                self.fail(f"{message} '{name}'", instr, operand)
                return
