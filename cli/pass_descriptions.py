"""`opt --print-passes`: the passes, their options with default values, and the levels.

A pass of another distribution is described by the first sentence of its docstring. A test checks that every pass and
option of this package has a row here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..transforms.passes import LEVELS, create_pass, pass_names

__all__ = ["OPTIONS", "PASSES", "describe_passes"]

#: What each pass does.
PASSES = {
    "cse": "remove an instruction if a dominating one computes the same value",
    "lcm": "lazy code motion: partial redundancy elimination; no path evaluates an expression more often",
    "scm": "sparse code motion: as lcm, with the fewest evaluations in the code",
    "spre": "speculative PRE: as scm; expressions may also move above every branch",
    "sscm": "speculative sparse code motion: as scm; expressions may also move above divergent branches",
    "srqp": "scalar replacement: keep loaded and stored values in registers; insert loads on other paths",
    "esrqp": "as srqp, but insert no load in an arm of a divergent branch",
    "ssrqp_s": "as esrqp; loads may also move above every branch",
    "ssrqp": "as esrqp; loads may also move above divergent branches",
    "motion": "repeat sscm and ssrqp until nothing changes",
    "vectormerge": "merge adjacent loads into vector loads (v2, v4) where the alignment is proven",
    "readonly": "turn loads of memory that is not written during the kernel into ld.global.nc",
    "deadstores": "remove stores whose bytes no load can read",
    "copyprop": "replace reads of a copy by reads of its source",
    "dce": "remove instructions whose results are not used",
    "emptyblocks": "remove empty blocks that other passes inserted",
}

#: What each option does, by pass (empty: every pass that has no row of its own) and option.
OPTIONS = {
    ("", "naming"): "when two expressions are equal: lexical (same operands), value (same value number), or both",
    ("", "min_cost"): "move only expressions with at least this cost in the opcode table",
    ("", "rounds"): "the most repetitions",
    ("", "cdrnd_insertion"): "insert nothing in an arm of a divergent branch",
    ("", "weights"): "the cost of a block: loop (by loop depth, or by the profile if there is one) or uniform",
    ("", "lazy"): "run lcm first",
    ("", "threshold"): "keep a value in registers over at most this many loop iterations",
    ("", "forwarding"): "let a load take its value from a store",
    ("", "guarded"): "issue a remaining load in the block above, predicated by the condition of its branch",
    ("", "registers"): "the limit of estimated register pressure; 0: from the directives of the kernel",
    ("", "budget"): "the most states that the analysis visits for one load",
    ("", "readable"): "assume that every address which the kernel computes for a load is readable at any time",
    ("", "paper"): "behave as the paper describes, for comparison (docs/scalar-replacement.md)",
    ("vectormerge", "aligned"): "assume that pointer parameters are multiples of this power of two (bytes)",
}


def describe_passes() -> str:
    """The text of ``--print-passes``."""
    lines: list[str] = []
    for name in pass_names():
        each: Any = create_pass(name)
        lines.append(f"{name:12} {PASSES.get(name) or _first_sentence(str(type(each).__doc__ or ''))}")
        for option in fields(each):
            text = OPTIONS.get((name, option.name)) or OPTIONS.get(("", option.name), "")
            lines.append(f"{'':4}{option.name}={_value(option.default):<{26 - len(option.name)}} {text}".rstrip())
    lines.append("")
    lines += [f"-{level:11} {','.join(names) or 'none'}" for level, names in LEVELS.items()]
    return "\n".join(lines) + "\n"


def _first_sentence(docstring: str) -> str:
    text = " ".join(docstring.replace("``", "").split())
    return (text + " ").partition(". ")[0].removesuffix(".")


def _value(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)
