"""`ptxmotion analyze`: reports about each kernel of a PTX file. It changes nothing and does not run ptxas.

`--divergence` reports divergent branches (`divergence_report.py`), `--memory` reports aliasing (`memory_report.py`);
without these it prints an overview. `--picture` draws one kernel (`cfg_picture.py`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from .alias_promise import ALIAS_HELP, alias_promise, warn_of_unknown_names
from .argument_types import regex
from .outcome import BAD_INPUT, FINE, MISSING, CommandError, say, usage_error, warn
from .profiles import PROFILE_HELP, load_profile

if TYPE_CHECKING:
    from ..analysis.manager import Facts
    from ..analysis.memory.alias import Promise
    from ..analysis.profile import Profile
    from ..ptx import Kernel, Module

EPILOG = """\
examples:
  ptxmotion analyze kernel.ptx
  ptxmotion analyze kernel.ptx --divergence --memory --kernel '^matmul'
  ptxmotion analyze kernel.ptx --kernel '^matmul' --picture graph.svg
  ptxmotion analyze kernel.ptx --graph cfg --format graphml > cfg.graphml
  ptxmotion analyze program.py --graph launches --format graphml > launches.graphml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `analyze`."""
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="PTX input (default: -, stdin)")
    parser.add_argument("--kernel", type=regex, metavar="REGEX", help="only kernels whose name matches")
    parser.add_argument(
        "--expressions", action="store_true", default=None, help="add the number of redundant expressions"
    )
    parser.add_argument(
        "--divergence",
        action="store_true",
        default=None,
        help="report which branches can be divergent and why, and the blocks that only uniform branches decide (CDRND)",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        default=None,
        help="report which references can alias, what is never written, which loads can be speculated, and barriers",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        help="draw the control-flow graph of one kernel with its divergence, as FILE.svg or FILE.png",
    )
    parser.add_argument(
        "--graph",
        choices=("cfg", "calls", "launches"),
        help="print a graph for another program: cfg: the control-flow graphs with facts about their blocks; calls: "
        "which function calls which; launches: the host program of FILE, a Python file or the name of a program of "
        "the suites",
    )
    parser.add_argument(
        "--format", choices=("dot", "graphml", "json"), help="the format of --graph (default: dot, for Graphviz)"
    )
    parser.add_argument(
        "--program", metavar="NAME", help="with --graph launches: the @program of FILE, if it has several of them"
    )
    given = parser.add_argument_group("facts for the analysis")
    given.add_argument(
        "--block",
        type=_block_shape,
        metavar="X[,Y[,Z]]",
        help="the shape of a block in threads; .reqntid in the PTX has precedence",
    )
    given.add_argument("--profile", metavar="FILE", help=PROFILE_HELP)
    given.add_argument("--alias", type=alias_promise, metavar="LEVEL", help=ALIAS_HELP)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--emit",
        choices=("table", "json", "cfg-dot"),
        help="tables, the same as JSON, or control-flow graphs for Graphviz (default: table)",
    )
    form.add_argument("--json", action="store_true", default=None, help="the same as --emit=json")


def _block_shape(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"'{text}' is not a block shape such as 256 or 16,16")
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    from .files import read_module

    if arguments.json:
        arguments.emit = "json"
    _check_graph_options(arguments)
    if arguments.graph == "launches":
        return _print_launch_graph(arguments.file, arguments.program or "", arguments.format)
    module = read_module(arguments.file)
    if arguments.emit == "cfg-dot":
        from .graph import cfg_dot

        print(cfg_dot(module, arguments.kernel), end="")
        return FINE
    if arguments.alias is not None:
        warn_of_unknown_names(arguments.alias, module)
    only = arguments.kernel
    kernels = [kernel for kernel in module.kernels if only is None or only.search(kernel.name)]
    profile = load_profile(arguments.profile, module.kernels) if arguments.profile else None
    if arguments.graph:
        return _print_graph(arguments, kernels, module, profile)
    if arguments.picture:
        _draw(arguments.picture, module, kernels, arguments.block, profile)
        if arguments.emit is None and not (arguments.divergence or arguments.memory or arguments.expressions):
            return FINE
    reports = [_described(arguments, kernel, module, profile) for kernel in kernels]
    if arguments.emit == "json":
        import json

        document = {"schema_version": 1, "file": module.source.name, "target": module.target, "kernels": reports}
        print(json.dumps(document, indent=2))
    else:
        _print_reports(reports, expressions=bool(arguments.expressions))
    return FINE


def _check_graph_options(arguments: argparse.Namespace) -> None:
    reports = [name for name in ("divergence", "memory", "expressions", "picture", "emit") if getattr(arguments, name)]
    if arguments.graph and reports:
        usage_error(f"--graph prints a graph and no report: leave out --{reports[0]}")
    unused = [name for name in ("kernel", "block", "profile", "alias") if getattr(arguments, name) is not None]
    if arguments.graph == "launches" and unused:
        usage_error(f"--graph=launches shows a host program: leave out --{unused[0]}")
    if arguments.format and not arguments.graph:
        usage_error("--format is an option of --graph")
    if arguments.program and arguments.graph != "launches":
        usage_error("--program is an option of --graph=launches")


def _print_graph(arguments: argparse.Namespace, kernels: list[Kernel], module: Module, profile: Profile | None) -> int:
    from ..programs.graph_exports import call_graph, flow_graph, graph_text
    from ..transforms.remarks import Remarks

    if arguments.graph == "calls":
        graphs = [call_graph(module, [kernel.name for kernel in kernels] if arguments.kernel else None)]
    else:
        place = Remarks(module).place
        facts = [facts_of(kernel, module, arguments.block, profile, arguments.alias) for kernel in kernels]
        graphs = [flow_graph(each, place) for each in facts]
    print(graph_text(graphs, arguments.format or "dot"), end="")
    return FINE


def _print_launch_graph(file: str, name: str, form: str | None) -> int:
    from ..programs.fusing import program_graph
    from ..programs.graph_exports import graph_text

    print(graph_text([program_graph(file, name)], form or "dot"), end="")
    return FINE


def _described(
    arguments: argparse.Namespace, kernel: Kernel, module: Module, profile: Profile | None
) -> dict[str, Any]:
    """The reports on one kernel that the arguments select, by name."""
    wants_report = bool(arguments.divergence or arguments.memory)
    facts = facts_of(kernel, module, arguments.block, profile, arguments.alias)
    reports: dict[str, Any] = {"name": kernel.name}
    if not wants_report or arguments.expressions or arguments.emit == "json":
        reports = describe(kernel, module, facts)
    if wants_report:
        from ..transforms.remarks import Remarks

        place = Remarks(module).place
        if arguments.divergence:
            from .divergence_report import describe_divergence

            reports["divergence"] = describe_divergence(facts, place)
        if arguments.memory:
            from .memory_report import describe_memory

            reports["memory"] = describe_memory(facts, place)
    return reports


def facts_of(
    kernel: Kernel,
    module: Module,
    shape: tuple[int, int, int] | None = None,
    profile: Profile | None = None,
    promise: Promise | None = None,
) -> Facts:
    """The facts of a kernel. Flattens its nested scopes."""
    from ..analysis.manager import Facts
    from ..ptx import flatten_scopes

    flatten_scopes(kernel)
    return Facts(kernel, module, shape=shape, profile=profile, promise=promise)


def _draw(
    path: str, module: Module, kernels: list[Kernel], shape: tuple[int, int, int] | None, profile: Profile | None
) -> None:
    """Draw the only kernel of ``kernels`` to the file ``path``."""
    from ..transforms.remarks import Remarks
    from .cfg_picture import FORMS, PictureError, draw_cfg
    from .files import Outputs

    form = path.rpartition(".")[2].lower() if "." in path else ""
    if form not in FORMS:
        usage_error(f"--picture writes {' or '.join('FILE.' + each for each in FORMS)}, not '{path}'")
    if len(kernels) != 1:
        names = ", ".join(kernel.name for kernel in kernels[:9]) or "none"
        usage_error(f"--picture draws one kernel: choose it with --kernel; there are {names}")
    facts = facts_of(kernels[0], module, shape, profile)
    try:
        data = draw_cfg(facts, form, Remarks(module).place)
    except PictureError as error:
        raise CommandError(MISSING if error.is_missing else BAD_INPUT, f"ptxmotion: error: {error}") from None
    outputs = Outputs()
    outputs.add(path, data)
    outputs.commit()


def describe(kernel: Kernel, module: Module, facts: Facts) -> dict[str, Any]:
    """The overview of one kernel: counts, and register pressure in units of 32 bits."""
    from ..analysis.values.pressure import Pressure
    from ..transforms.opportunities import opportunities

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
    from ..ptx.operations import BRANCHES

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
        counts["calls"] += form.is_call
        counts["branches"] += form.operation in BRANCHES
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
    """The number of declared registers by type. nvcc declares one register of each range that it does not use."""
    from ..ptx import RegisterDeclaration

    registers: Counter[str] = Counter()
    for declaration in kernel.declarations:
        if isinstance(declaration, RegisterDeclaration):
            for _, count in ((declaration.name, declaration.count), *declaration.group):
                registers[declaration.type.name] += 1 if count is None else count
    return dict(sorted(registers.items()))


def _print_reports(kernels: list[dict[str, Any]], *, expressions: bool) -> None:
    if not kernels:
        warn("there is no kernel to report on: the file has none, or --kernel matches none")
        return
    separate = False
    if "blocks" in kernels[0]:
        _print_tables(kernels, expressions=expressions)
        separate = True
    for kernel in kernels:
        for name in ("divergence", "memory"):
            if name in kernel:
                if separate:
                    print()
                separate = True
                if name == "divergence":
                    from .divergence_report import print_divergence

                    print_divergence(kernel["name"], kernel[name])
                else:
                    from .memory_report import print_memory

                    print_memory(kernel["name"], kernel[name])


def _print_tables(kernels: list[dict[str, Any]], *, expressions: bool) -> None:
    from .tables import print_table

    headings = ("kernel", "blocks", "loops", "depth", "instr", "ld", "st", "rmw", "bar", "call", "names", "values")
    print_table(headings, [_row(kernel) for kernel in kernels])
    print("ld, st, rmw: loads, stores, atomics; bar: barriers and fences; names, values: expressions that are fully or")
    print("partially redundant, compared by the names of their operands and by value number")
    print()
    print_table(("kernel", "words", "predicates", "declared"), [_registers(kernel) for kernel in kernels])
    print("words, predicates: the most 32-bit registers and predicates that are live at one point, in program order")
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
