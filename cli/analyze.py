"""`ptxmotion analyze`: what is in a PTX file, kernel by kernel. Nothing is changed and ptxas is not asked."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from .opt import regex
from .outcome import FINE, say

if TYPE_CHECKING:
    from ..ptx import Kernel, Module

EPILOG = """\
examples:
  ptxmotion analyze kernel.ptx
  ptxmotion analyze kernel.ptx --kernel '^matmul' --emit=cfg-dot | dot -Tsvg -o graph.svg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `analyze`."""
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="PTX to read; - (default) is stdin")
    parser.add_argument("--kernel", type=regex, metavar="REGEX", help="only kernels whose name matches")
    parser.add_argument("--expressions", action="store_true", default=None, help="what is computed more than once")
    parser.add_argument(
        "--emit",
        choices=("table", "json", "cfg-dot"),
        help="tables (default), the same as JSON, or the flow graphs for Graphviz",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    from .files import read_module

    module = read_module(arguments.file)
    if arguments.emit == "cfg-dot":
        from .graph import cfg_dot

        print(cfg_dot(module, arguments.kernel), end="")
        return FINE
    only = arguments.kernel
    found = [describe(kernel, module) for kernel in module.kernels if only is None or only.search(kernel.name)]
    if arguments.emit == "json":
        import json

        document = {"schema_version": 1, "file": module.source.name, "target": module.target, "kernels": found}
        print(json.dumps(document, indent=2))
    else:
        _print_tables(found, expressions=bool(arguments.expressions))
    return FINE


def describe(kernel: Kernel, module: Module) -> dict[str, Any]:
    """The figures of one kernel: counts, and sizes of register files in units of 32 bits."""
    from ..analysis.manager import Facts
    from ..analysis.pressure import Pressure
    from ..transforms.opportunities import opportunities

    kernel.flatten_scopes()
    facts = Facts(kernel, module)
    loops = facts.loops.loops
    pressure = Pressure(facts.liveness).maximum
    return {
        "name": kernel.name,
        "is_entry": kernel.is_entry,
        "blocks": len(facts.cfg),
        "unreachable_blocks": len(facts.cfg) - len(facts.cfg.rpo),
        "loops": len(loops),
        "irreducible_loops": sum(loop.is_irreducible for loop in loops),
        "loop_depth": max((loop.depth for loop in loops), default=0),
        **_counts(kernel),
        "declared_registers": _declared(kernel),
        "pressure_words": pressure.words,
        "pressure_predicates": pressure.predicates,
        "candidates": opportunities(kernel, module).to_json(),
    }


def _counts(kernel: Kernel) -> dict[str, Any]:
    from ..analysis.effects import memory_space
    from ..ptx import Effect

    number = 0
    counts: Counter[str] = Counter()
    accesses: Counter[str] = Counter()
    opaque: Counter[str] = Counter()
    for instr in kernel.instructions():
        number += 1
        form = instr.form
        if form.is_opaque:
            opaque[form.text] += 1
            continue
        effects = form.effects
        counts["barriers"] += effects & Effect.BARRIER != 0
        counts["calls"] += form.op.base == "call"
        counts["branches"] += form.op.base in ("bra", "brx")
        if instr.address is not None and effects & (Effect.READ | Effect.WRITE):
            kinds = ("update", "store", "load")
            kind = kinds[0 if effects & Effect.READ and effects & Effect.WRITE else 1 if effects & Effect.WRITE else 2]
            accesses[f"{kind} {memory_space(instr)}"] += 1
    return {
        "instructions": number,
        **{name: counts[name] for name in ("branches", "barriers", "calls")},
        "memory_accesses": dict(sorted(accesses.items())),
        "unknown_opcodes": dict(sorted(opaque.items())),
    }


def _declared(kernel: Kernel) -> dict[str, int]:
    """Registers declared, by type. A range of nvcc's begins at 0, which it never uses."""
    from ..ptx import RegisterDeclaration

    found: Counter[str] = Counter()
    for declaration in kernel.declarations:
        if isinstance(declaration, RegisterDeclaration):
            for _, count in ((declaration.name, declaration.count), *declaration.group):
                found[declaration.type.name] += 1 if count is None else count
    return dict(sorted(found.items()))


def _print_tables(kernels: list[dict[str, Any]], *, expressions: bool) -> None:
    from .tables import print_table

    headings = ("kernel", "blocks", "loops", "depth", "instr", "ld", "st", "rmw", "bar", "call", "names", "values")
    print_table(headings, [_row(kernel) for kernel in kernels])
    print("ld st rmw: loads, stores, atomics; bar: barriers and fences; names, values: expressions that are computed")
    print("where they are known already, or could be, found by the names of their operands and by value")
    print()
    print_table(("kernel", "words", "predicates", "declared"), [_registers(kernel) for kernel in kernels])
    print("words, predicates: the most 32-bit registers and predicates that are live at once, in the order of the text")
    if expressions:
        print()
        print_table(
            ("kernel", "found", "expressions", "occurrences", "writable loads"),
            [
                (kernel["name"], how, *(counts.values() if counts is not None else (None, None, None)))
                for kernel in kernels
                for how, counts in kernel["candidates"].items()
            ],
        )
    for kernel in kernels:
        for text, number in kernel["unknown_opcodes"].items():
            say(f"remark: {kernel['name']}: opcode '{text}' is unknown ({number} times): nothing moves across it")


def _row(kernel: dict[str, Any]) -> tuple[str | int | None, ...]:
    accesses: dict[str, int] = kernel["memory_accesses"]

    def total(kind: str) -> int:
        return sum(number for name, number in accesses.items() if name.startswith(kind))

    candidates: dict[str, dict[str, int] | None] = kernel["candidates"]
    classes = [found["classes"] if found is not None else None for found in candidates.values()]
    counted = [kernel[name] for name in ("blocks", "loops", "loop_depth", "instructions")]
    accessed = [total(kind) for kind in ("load", "store", "update")]
    return (kernel["name"], *counted, *accessed, kernel["barriers"], kernel["calls"], *classes)


def _registers(kernel: dict[str, Any]) -> tuple[str | int, ...]:
    declared = ", ".join(f"{number} {type}" for type, number in kernel["declared_registers"].items())
    return kernel["name"], kernel["pressure_words"], kernel["pressure_predicates"], declared
