"""The mutants of `docs/experiments/mutation_score.py`, and that `verify` notices them."""

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.ptx import parse, print_module

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "experiments"))
tool: Any = importlib.import_module("mutation_score")

RUN = Path(__file__).parents[1] / "run"
ELEMENTWISE = (RUN / "elementwise.ptx").read_text()
KERNELS = [entry.name for entry in parse(ELEMENTWISE).entries]


def test_mutants_are_of_all_kinds_and_can_be_undone() -> None:
    seen: set[str] = set()
    for path in sorted(RUN.glob("*.ptx")):
        text = path.read_text()
        module = parse(text)
        whole = print_module(module)
        for kernel in module.entries:
            for mutant in tool.mutants(kernel, 12, random.Random(kernel.name)):
                seen.add(mutant.kind)
                mutant.apply()
                changed = print_module(module)
                mutant.undo()
                assert changed != whole, mutant
                assert print_module(module) == whole, mutant
    assert seen == (set(tool.KINDS) - {"guard"}) | {"guard negated", "guard dropped"}


@pytest.mark.parametrize("part", range(3))
def test_nearly_all_that_differ_are_noticed(part: int) -> None:
    score = tool.Score()
    for name in KERNELS[part::3]:
        tool.score_kernel(ELEMENTWISE, name, 4, tool.Limits(5.0, 10.0, 60), random.Random(name), score)
    assert score.noticed.total() > 10
    assert score.share >= 0.95, list(score.lines())


def test_halves_of_a_folder_share_no_file(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.ptx").write_text(ELEMENTWISE)
    fit, report = tool.files_of(tmp_path, "fit"), tool.files_of(tmp_path, "report")
    assert fit and report
    assert not {*fit} & {*report}
    assert {*fit, *report} == {*tool.files_of(tmp_path, "all")}
