"""The language: PTX text ⇄ IR, and what each opcode means."""

from .decoding import decode
from .errors import PtxError, SourceText
from .ir import (
    Block,
    Directive,
    Guard,
    Instr,
    Kernel,
    Loc,
    Module,
    Param,
    RawDirective,
    RegisterDeclaration,
    Return,
    Variable,
)
from .notation import Effect, Form, Op
from .operands import (
    Args,
    Element,
    Imm,
    Label,
    Mem,
    Not,
    Operand,
    Pair,
    Raw,
    Reg,
    Sink,
    Special,
    Sym,
    Vec,
    registers,
    substitute,
)
from .operations import Operation, Pointers, Touches
from .ops import ROWS
from .parser import load, parse
from .printer import print_kernel, print_module
from .types import TYPES, ScalarType

__all__ = [
    "ROWS",
    "TYPES",
    "Args",
    "Block",
    "Directive",
    "Effect",
    "Element",
    "Form",
    "Guard",
    "Imm",
    "Instr",
    "Kernel",
    "Label",
    "Loc",
    "Mem",
    "Module",
    "Not",
    "Op",
    "Operation",
    "Operand",
    "Pair",
    "Param",
    "Pointers",
    "PtxError",
    "Raw",
    "RawDirective",
    "Reg",
    "RegisterDeclaration",
    "Return",
    "ScalarType",
    "Sink",
    "SourceText",
    "Special",
    "Sym",
    "Touches",
    "Variable",
    "Vec",
    "decode",
    "load",
    "parse",
    "print_kernel",
    "print_module",
    "registers",
    "substitute",
]
