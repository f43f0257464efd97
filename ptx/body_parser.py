"""The parser of the body of an entry or function.

Computes: the blocks of the body, from its statements. One regular expression matches a whole statement. A statement
that it does not match takes a slower path, which also reports errors. Labels are resolved at the end of the body,
because a branch may stand before its target, and its target may be in a sibling scope.

Requires: the cursor is at the opening brace. Guarantees: blocks in text order, each entered at its start only.
Reference: PTX ISA 9.0, §4.3 (statements), §11 (directives).
"""

from __future__ import annotations

import re

from . import declarations
from .decoding import decode, form_of, may_skip_elements, opaque_form
from .errors import PtxError
from .instructions import Directive, Guard, Instr, Loc, Return
from .ir import Block, Kernel, RegisterDeclaration, Variable
from .lexer import Cursor
from .notation import Effect, Form
from .offset_operands import OffsetOperands
from .operand_parser import OffsetOperand, OperandError, Scope, closing_parenthesis, raw_operand, split_operands
from .operands import Args, Label, Operand, Reg
from .operations import BRANCHES, Operation

__all__ = ["parse_body"]

# All quantifiers are possessive (`*+`), so the pattern never backtracks.
_STATEMENT = re.compile(
    r"""\s*+(?:
        (?:@\s*+(!?+)\s*+([\w$%]++)\s++)?([a-z]\w*+(?:\.[\w:]++)*+)  # 1 ! 2 guard 3 opcode
          (?=[\s;{\[%~!+-])\s*+(?!:)([^;"()]*+);                          # 4 operands
      | ([A-Za-z_$%][\w$]*+)\s*+:(?!:)                               # 5 label
      | ([{}])                                                       # 6 scope
      | (\.[A-Za-z_]\w*+)                                            # 7 directive
    )""",
    re.VERBOSE | re.ASCII,
)
#: An instruction with parentheses among its operands; the groups are those of `_STATEMENT`.
_PARENTHESIZED = re.compile(
    r"\s*+(?:@\s*+(!?+)\s*+([\w$%]++)\s++)?([a-z]\w*+(?:\.[\w:]++)*+)(?=[\s{\[(%~!+-])\s*+((?:[^;\"{}]++|\{[^;\"{}]*+\})*+);",
    re.ASCII,
)
_CALL = re.compile(r"\s*(?:@\s*(!?)\s*([\w$%]+)\s+)?(call(?:\.[\w:]+)*)(?=[\s(;{\[])")
#: The characters at which the search for a missing semicolon stops.
_STATEMENT_END = re.compile(r"[;{}\n]")
_LOC = re.compile(
    r"\.loc\s+(\d+\s+\d+(?:[ \t]+\d+)?(?:[ \t]+(?:is_stmt\s+\d|prologue_end|epilogue_begin|basic_block))*"
    r"(?:\s*,\s*function_name\s+[\w$.]+(?:\s*\+\s*\d+)?(?:\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?)?)"
)
_LABELLED = frozenset([".branchtargets", ".calltargets", ".callprototype"])
#: Directives that may stand in a module or in the head of a function, but not in a body.
_NOT_IN_BODY = frozenset(
    ".version .target .address_size .entry .func .alias .maxntid .reqntid .minnctapersm .maxnctapersm .maxnreg "
    ".noreturn .maxclusterrank .reqnctapercluster .explicitcluster .blocksareclusters .abi_preserve "
    ".abi_preserve_control".split()
)
#: The greatest depth of nested scopes. All open scopes are in memory.
_DEEPEST = 200_000
_SPACES = frozenset([".param", ".shared", ".local", ".global", ".const", ".tex"])

# How an instruction is parsed, beside splitting its operands at commas. `_SHAPED`: its form depends on its operands.
_PLAIN, _TERMINATOR, _SHAPED, _BRANCH, _CALL_KIND = range(5)


def _kind(form: Form) -> int:
    if form.operation in BRANCHES:
        return _BRANCH
    if form.is_call:
        return _CALL_KIND
    if form.effects & Effect.CONTROL and not form.is_opaque:
        return _TERMINATOR
    return _SHAPED if (form.op.wildcard and form.dst_count) or may_skip_elements(form) else _PLAIN


def parse_body(cursor: Cursor, kernel: Kernel, module_scope: Scope) -> None:
    """Read ``{ … }`` into ``kernel``."""
    _BodyParser(cursor, kernel, module_scope).statements()


class _BodyParser:
    def __init__(self, cursor: Cursor, kernel: Kernel, module_scope: Scope) -> None:
        self.cursor = cursor
        self.source = cursor.source
        self.kernel = kernel
        self.scope = Scope(module_scope)
        self.scopes = [self.scope]
        self.depth = 0
        self.block = Block()
        self.loc: Loc | None = None
        #: locs["file line column"] is the last ``.loc`` with these numbers.
        self.locs: dict[str, Loc] = {}
        #: Branches whose target is not resolved yet: the instruction without its last operand, its scope, the name of
        #: the label.
        self.branches: list[tuple[Instr, Scope, str]] = []
        #: Makes the additions for operands of the form register plus constant. `None` before the first one.
        self.offsets: OffsetOperands | None = None
        #: The same for ``.branchtargets``: the directive, its scope, the names of the labels.
        self.tables: list[tuple[Directive, Scope, list[str]]] = []
        for param in [*(kernel.results or ()), *(kernel.params or ())]:
            declarations.declare_param(param, self.scope, cursor, kernel)

    # --- statements ----------------------------------------------------------------------------------------------

    def statements(self) -> None:
        cursor = self.cursor
        opening = cursor.skip_space()
        cursor.expect("{", "before a body")
        text = cursor.text
        match = _STATEMENT.match
        #: forms[mnemonic] = (number of operands, form, kind), as it was decoded last.
        forms: dict[str, tuple[int, Form, int]] = {}
        self.kernel.blocks.append(self.block)
        pos = cursor.pos
        # The loop runs once for each instruction of a file, so the common case calls few functions.
        while True:
            found = match(text, pos)
            if found is None:
                cursor.pos = pos
                self.unusual_statement(opening)
                pos = cursor.pos
                continue
            if found.lastindex != 4:
                if found[6] == "}" and self.depth == 0:
                    break
                self.other_statement(found)
                pos = cursor.pos
                continue
            pos = found.end()
            negation, predicate, mnemonic, listed, _, _, _ = found.groups()
            scope = self.scope
            try:
                if not listed:
                    parts: list[str] = []
                elif "{" in listed:
                    parts = self.split(listed)
                else:
                    parts = listed.replace(", ", ",").split(",")
                known = forms.get(mnemonic)
                if known is None or known[0] != len(parts):
                    form = decode(mnemonic, len(parts))
                    known = forms[mnemonic] = (len(parts), form, _kind(form))
                _, form, kind = known
                guard = None if predicate is None else scope.guard(predicate, negation)
                if kind >= _BRANCH:
                    self.transfer(found, form, parts, guard)
                    pos = cursor.pos
                    continue
                operands = tuple(map(scope.__getitem__, parts))
            except OperandError as error:
                self.careful_instruction(found, error)
                continue
            if kind == _SHAPED:
                form = form_of(mnemonic, operands)
            self.block.instrs.append(Instr(form, operands, guard, self.loc, found.start(3)))
            if kind == _TERMINATOR:
                self.start_block()
        cursor.pos = found.end()
        self.finish()

    def other_statement(self, found: re.Match[str]) -> None:
        """Read a label, a brace or a directive that `_STATEMENT` matched, and leave the cursor behind it."""
        label, brace, directive = found.group(5, 6, 7)
        self.cursor.pos = found.end()
        if label is not None:
            self.label(label, found.start(5))
        elif brace == "{":
            self.open_scope(found.start(6))
        elif brace == "}":
            self.close_scope(found.start(6))
        else:
            self.cursor.pos = found.start(7)
            self.directive(directive)

    def split(self, listed: str) -> list[str]:
        parts = split_operands(listed)
        if parts is None:
            raise OperandError("malformed operands", listed)
        return parts

    def careful_instruction(self, found: re.Match[str], error: OperandError) -> None:
        """An instruction with unusual operands. It is parsed again, kept as opaque, or refused with its position."""
        mnemonic, listed = found[3], found[4]
        parts = split_operands(listed.strip())
        form = decode(mnemonic, len(parts) if parts is not None else -1)
        try:
            guard = None if found[2] is None else self.scope.guard(found[2], found[1])
        except OperandError as bad:
            raise PtxError(bad.message, self.source, found.start(2)) from None
        try:
            if parts is None or _kind(form) >= _BRANCH:
                raise error
            operands = self.operands_with_sums(form, parts, found.start(3))
            form = form_of(mnemonic, operands)
        except OperandError as second:
            if "\n" in second.text:
                at = found.start(4) + listed.find(second.text) + second.text.index("\n")
                raise PtxError("expected ';' after the instruction", self.source, at) from None
            if second.is_unmodelled and _kind(form) < _BRANCH:
                form = opaque_form(mnemonic)
            elif not form.is_opaque:
                at = max(listed.find(second.text), 0)
                raise PtxError(second.message, self.source, found.start(4) + at) from None
            operands = (raw_operand(listed.strip(), self.scope),)
        self.block.instrs.append(Instr(form, operands, guard, self.loc, found.start(3)))
        if _kind(form) == _TERMINATOR:
            self.start_block()

    def operands_with_sums(self, form: Form, parts: list[str], pos: int) -> tuple[Operand, ...]:
        """The operands, with additions in front where one is a register plus a constant."""
        try:
            return tuple([self.scope[part] for part in parts])
        except OffsetOperand:
            if form.is_opaque or form.lanes > 1:
                raise
            if self.offsets is None:
                self.offsets = OffsetOperands(self.cursor.text, self.kernel, self.scopes[0])
            parsed = self.offsets.parse(form, parts, self.scope.__getitem__, self.loc, pos)
            if parsed is None:
                raise
        self.block.instrs += parsed[1]
        return parsed[0]

    def transfer(self, found: re.Match[str], form: Form, parts: list[str], guard: Guard | None) -> None:
        """A branch, or a call without parentheses."""
        if form.is_call:
            self.cursor.pos = found.start()
            self.call()
        else:
            self.branch(form, parts, guard, found.start(3))
            self.cursor.pos = found.end()

    def branch(self, form: Form, parts: list[str], guard: Guard | None, pos: int) -> None:
        """``bra L`` and ``brx.idx r, table``: the last operand is a label."""
        wanted = 2 if form.operation is Operation.INDEXED_BRANCH else 1
        if len(parts) != wanted:
            raise PtxError(
                f"'{form.text}' takes {wanted} operand{'s'[: wanted - 1]}, not {len(parts)}", self.source, pos
            )
        scope = self.scope
        instr = Instr(form, (scope[parts[0]],) if wanted == 2 else (), guard, self.loc, pos)
        self.branches.append((instr, scope, parts[-1].strip()))
        self.block.instrs.append(instr)
        self.start_block()

    def call(self) -> None:
        """``call (results), function, (arguments), prototype;``, where all but the function may be missing."""
        cursor = self.cursor
        match = _CALL.match(cursor.text, cursor.pos)
        assert match is not None
        negation, predicate, mnemonic = match.groups()
        pos = match.start(3)
        try:
            guard = None if predicate is None else self.scope.guard(predicate, negation)
        except OperandError as error:
            raise PtxError(error.message, self.source, match.start(2)) from None
        cursor.pos = match.end()
        results = self.arguments() if cursor.peek() == "(" else Args(())
        if results.elements or cursor.peek() == ",":
            cursor.expect(",", "after the results of a call")
        start = cursor.skip_space()
        target = self.operand(cursor.name("a function"), start)
        operands: list[Operand] = [results, target]
        if cursor.accept(","):
            if cursor.peek() == "(":
                operands.append(self.arguments())
                if cursor.accept(","):
                    operands.append(self.prototype())
            else:
                operands.append(Args(()))
                operands.append(self.prototype())
        else:
            operands.append(Args(()))
        cursor.expect(";", "after a call")
        form = decode(mnemonic, len(operands))
        self.block.instrs.append(Instr(form, tuple(operands), guard, self.loc, pos))

    def arguments(self) -> Args:
        cursor = self.cursor
        cursor.expect("(", "before arguments")
        start = cursor.skip_space()
        end = closing_parenthesis(cursor.text, start)
        if end < 0:
            raise cursor.error("'(' is not closed in a call", start)
        parts = split_operands(cursor.text[start:end])
        if parts is None:
            raise cursor.error("malformed arguments", start)
        cursor.pos = end + 1
        return Args(tuple([self.operand(part, start) for part in parts]))

    def operand(self, text: str, start: int) -> Operand:
        """The operand ``text``. An error is reported at its first position from ``start`` on."""
        try:
            return self.scope[text]
        except OperandError as error:
            at = self.cursor.text.find(error.text, start)
            raise PtxError(error.message, self.source, max(at, start)) from None

    def prototype(self) -> Label:
        start = self.cursor.skip_space()
        name = self.cursor.name("the label of a prototype")
        label = self.scope.find_label(name)
        if label is None:
            raise PtxError(f"prototype '{name}' is not declared", self.source, start)
        return label

    # --- blocks and labels ---------------------------------------------------------------------------------------

    def start_block(self) -> None:
        self.block = Block()
        self.kernel.blocks.append(self.block)

    def label(self, name: str, pos: int) -> None:
        cursor = self.cursor
        label = Label(name)
        if name in self.scope.labels:
            raise PtxError(f"label '{name}' is defined twice", self.source, pos)
        self.scope.labels[name] = label
        self.note_name(name, label)
        if cursor.peek() in _LABELLED:
            self.labelled_directive(label)
            return
        if self.block.instrs or self.block.label is not None or len(self.kernel.blocks) == 1:
            self.start_block()
        self.block.label = label

    def labelled_directive(self, label: Label) -> None:
        cursor = self.cursor
        start = cursor.skip_space()
        word = cursor.next()
        body = " ".join(cursor.until(";", word).split())
        directive = Directive(word[1:], f"{word} {body}".rstrip(), start, label=label)
        if word == ".branchtargets":
            self.tables.append((directive, self.scope, [part.strip() for part in body.split(",")]))
        self.block.instrs.append(directive)

    # --- scopes and directives -----------------------------------------------------------------------------------

    def open_scope(self, pos: int) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise PtxError(f"scopes are nested more than {_DEEPEST} deep", self.source, pos)
        self.kernel.has_scopes = True
        self.scope = Scope(self.scope)
        self.scopes.append(self.scope)
        self.block.instrs.append(Directive("{", "", pos))

    def close_scope(self, pos: int) -> None:
        self.depth -= 1
        assert self.scope.parent is not None
        self.scope = self.scope.parent
        self.block.instrs.append(Directive("}", "", pos))

    def note_name(self, name: str, thing: Reg | Label | Variable) -> None:
        self.kernel.names.add(name)
        if self.depth:
            self.kernel.scoped_names.append(thing)

    def location(self, text: str) -> Loc:
        """The ``.loc`` with these operands. Its `caller` is the ``.loc`` that ``inlined_at`` names."""
        here, comma, more = text.partition(",")
        _, _, place = more.partition("inlined_at ")
        loc = Loc(text, self.locs.get(place) if place else None)
        words = here.split(" ", 3) if not comma else text.replace(",", " ").split()
        self.locs[" ".join(words[:3])] = loc
        return loc

    def directive(self, word: str) -> None:
        cursor = self.cursor
        start = cursor.pos
        if word == ".loc":
            match = _LOC.match(cursor.text, start)
            if match is None:
                raise cursor.error("malformed '.loc'", start)
            self.loc = self.location(" ".join(match.group(1).split()))
            cursor.pos = match.end()
        elif word == ".reg":
            cursor.next()
            self.declare(declarations.register_declaration(cursor, self.scope, self.kernel, is_nested=self.depth > 0))
        elif word in _SPACES or word in (".extern", ".visible"):
            for variable in declarations.local_variables(cursor, self.scope, start):
                self.note_name(variable.name, variable)
                self.declare(variable)
        elif word == ".pragma":
            cursor.next()
            self.block.instrs.append(Directive("pragma", f".pragma {cursor.until(';', '.pragma')}", start))
        elif word in _LABELLED:
            raise cursor.error(f"'{word}' needs a label", start)
        elif word in _NOT_IN_BODY:
            raise cursor.error(f"'{word}' cannot stand in the body of a function", start)
        elif word == ".file":
            self.block.instrs.append(Directive("other", cursor.file_directive().rstrip(";"), start))
        else:
            cursor.next()
            rest = cursor.until(";", word).strip()
            operands = (raw_operand(rest, self.scope),) if rest else ()
            self.block.instrs.append(Instr(opaque_form(word), operands, None, self.loc, start))

    def declare(self, declaration: RegisterDeclaration | Variable) -> None:
        if self.depth == 0:
            self.kernel.declarations.append(declaration)
        else:
            self.block.instrs.append(Directive("declaration", "", declaration=declaration))

    # --- the careful path ----------------------------------------------------------------------------------------

    def unusual_statement(self, opening: int) -> None:
        """A statement that the pattern does not match: a call, an empty statement, or an error."""
        cursor = self.cursor
        if _CALL.match(cursor.text, cursor.pos):
            self.call()
            return
        start = cursor.skip_space()
        token = cursor.peek()
        if not token:
            raise PtxError(f"'{{' of '{self.kernel.name}' is not closed", self.source, opening)
        if token == ";":
            cursor.next()
            return
        end = _STATEMENT_END.search(cursor.text, start)
        if token == "@" or token[0].isalpha():
            match = _PARENTHESIZED.match(cursor.text, start)
            if match is not None:
                self.careful_instruction(match, OperandError("malformed operands", match[4].strip()))
                cursor.pos = match.end()
                return
            if end is None or end.group() != ";":
                at = end.start() if end else len(cursor.text)
                raise PtxError("expected ';' after the instruction", self.source, at)
        raise PtxError(f"expected a statement, found '{token}'", self.source, start)

    # --- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        kernel = self.kernel
        last = kernel.blocks[-1]
        if not last.instrs and last.label is None and len(kernel.blocks) > 1:
            kernel.blocks.pop()
        for instr, scope, name in self.branches:
            instr.operands = (*instr.operands, self.resolve(name, scope, instr.pos))
        for table, scope, names in self.tables:
            table.targets = tuple(self.resolve(name, scope, table.pos) for name in names)
        self.give_results()
        for scope in self.scopes[1:]:
            kernel.scoped_names.extend(scope.registers)
            kernel.names.update(reg.text for reg in scope.registers)

    def give_results(self) -> None:
        """In a function that returns registers, make each ``ret`` a `Return`. Append one where control may reach the
        end of the text."""
        kernel = self.kernel
        names = self.scopes[0].names
        declared = [names[param.name] for param in kernel.results or () if param.name in names]
        results = tuple([each for each in declared if isinstance(each, Reg)])
        if not results:
            return
        for block in kernel.blocks:
            for at, instr in enumerate(block.instrs):
                if instr.form.operation is Operation.RETURN:
                    block.instrs[at] = Return(instr.form, results, instr.guard, instr.loc, instr.pos)
        if kernel.blocks[-1].falls_through:
            if kernel.blocks[-1].terminator is not None:
                kernel.blocks.append(Block())
            kernel.blocks[-1].instrs.append(Return(decode("ret", 0), results))

    def resolve(self, name: str, scope: Scope, pos: int) -> Label:
        label = scope.find_label(name)
        if label is not None:
            return label
        # ptxas also accepts a label of another scope of the same body if only one label has the name.
        elsewhere = [other.labels[name] for other in self.scopes if name in other.labels]
        if len(elsewhere) == 1:
            return elsewhere[0]
        what = "is ambiguous" if elsewhere else "is not defined"
        raise PtxError(f"label '{name}' {what}", self.source, pos)
