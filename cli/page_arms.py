"""The code of the variants of a result file, for its page: what was measured, out of the cache of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..harness.code_view import CodeView
from .page_code import views_of

if TYPE_CHECKING:
    from ..driver import Result
    from ..harness.results import ArmResult, BenchmarkResult, ResultFile
    from ..transforms.remarks import Remark

__all__ = ["codes_of"]

#: The name of the PTX in remarks.
_NAME = "<stdin>"


def codes_of(result: ResultFile) -> dict[tuple[str, str], list[CodeView]]:
    """The views of each candidate whose machine code differs from that of the baseline, by program and arm."""
    from concurrent.futures import ThreadPoolExecutor

    wanted = [
        (benchmark, benchmark.arm(each.candidate))
        for benchmark in result.benchmarks
        for each in benchmark.candidates
        if each.verdict not in ("IDENTICAL", "INVALID")
    ]
    # The threads wait for ptxas and nvdisasm.
    with ThreadPoolExecutor() as pool:
        views = list(pool.map(_arm, [each for each, _ in wanted], [arm for _, arm in wanted]))
    return {(benchmark.fullname, arm.id): found for (benchmark, arm), found in zip(wanted, views, strict=True)}


def _arm(benchmark: BenchmarkResult, arm: ArmResult) -> list[CodeView]:
    from ..harness.arm_code import arch_on
    from ..programs.arm_texts import recall_arm

    base = next(each for each in benchmark.arms if each.role == "baseline")
    first = next(each for each in benchmark.arms if each.ptx_sha256 == arm.ptx_sha256 and each.role != "control")
    if first is not arm:
        return [CodeView("not repeated", missing=f"The PTX is that of {first.id}.")]
    before, after = recall_arm(base.ptx_sha256), recall_arm(arm.ptx_sha256)
    if before is None or after is None:
        return [CodeView("not available", missing="The PTX of this run is not in the cache of this machine.")]
    sm = next((each["sm"] for each in base.static.values() if "sm" in each), None)
    found: list[CodeView] = []
    for module, text in before.items():
        other = after.get(module)
        if other is None or other == text:
            continue
        remarks = _remarks(arm.id, text)
        found += [
            view
            for view in views_of(text, other, remarks, _NAME, arch_on(text, sm))
            if any(not row.is_equal for row in view.ptx)
        ]
    return found


def _remarks(variant: str, text: str) -> Sequence[Remark]:
    """The remarks of the optimizer with the options of a variant; none if the variant is no list of options."""
    from ..programs.variants import VariantError, parse_variants

    try:
        (parsed,) = [each for each in parse_variants(variant) if each.id == variant]
    except (VariantError, ValueError):
        return []
    if parsed.options is None or parsed.revision:
        return []
    return optimized(parsed.options, text).remarks


def optimized(options: Sequence[str], text: str) -> Result:
    """The result of `opt` with these options on PTX, with all its remarks."""
    from ..ptx import parse
    from .arguments import build_parser
    from .opt import OneFile

    arguments = build_parser(["opt"]).parse_args(["opt", "--no-config", "--remarks=", *options])
    return OneFile(arguments).optimize(parse(text, _NAME))
