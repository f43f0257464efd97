"""Launch contracts: which version of a kernel may be launched when. Imports nothing of the project."""

from .conditions import (
    Condition,
    Disjoint,
    Extent,
    Holds,
    Inside,
    Launch,
    Range,
    decide,
    holds,
)
from .document import Contract, KernelContract, LaunchChange, Parameter, Version, load, loads
from .errors import ContractError, Undecidable
from .expressions import Expression, Number, Operation, Symbol, evaluate
from .parsing import parse
from .tuning import LaunchClass, TunedMachine, Tuning

__all__ = [
    "Condition",
    "Contract",
    "ContractError",
    "Disjoint",
    "Expression",
    "Extent",
    "Holds",
    "Inside",
    "KernelContract",
    "Launch",
    "LaunchChange",
    "LaunchClass",
    "Number",
    "Operation",
    "Parameter",
    "Range",
    "Symbol",
    "TunedMachine",
    "Tuning",
    "Undecidable",
    "Version",
    "decide",
    "evaluate",
    "holds",
    "load",
    "loads",
    "parse",
]
