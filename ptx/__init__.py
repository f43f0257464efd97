"""The language: PTX text ⇄ IR, and what each opcode means."""

from .decoding import decode
from .errors import PtxError, SourceText
from .instructions import Directive, Guard, Instr, Loc, Return
from .ir import Block, Kernel, Module, Param, RawDirective, RegisterDeclaration, Variable
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
    map_parts,
    registers,
    substitute,
    walk,
)
from .operations import Operation, Pointers, Touches
from .ops import ROWS
from .parser import load, parse
from .printer import print_kernel, print_module
from .scopes import flatten_scopes
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
    "flatten_scopes",
    "load",
    "map_parts",
    "parse",
    "print_kernel",
    "print_module",
    "registers",
    "substitute",
    "walk",
]
