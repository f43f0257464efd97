"""The tables that compare results with the thesis: every number is in the result file, and results without a verdict
are not part of a mean.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_runs import arm, session, task
from ptxmotion.cli import main
from ptxmotion.harness.results import ResultFile, settle, write
from ptxmotion.programs.fused_variants import FUSIONS
from ptxmotion.programs.variants import METHODS
from ptxmotion.suites.registry import benchmarks
from ptxmotion.suites.thesis_figures import FIGURES, FUSION
from ptxmotion.suites.thesis_report import thesis_report


@pytest.fixture(scope="module")
def result() -> ResultFile:
    arms = [arm("O3", "honest 1e-4"), arm("lcm", "honest 1e-4"), arm("sscm", "honest 0.8e-4"), arm("-O1", "nan 1e-4")]
    names = ["treelogy/barneshut", "rodinia/cfd", "cuda_samples/SobelFilter", "cuda_samples/SobelFilter-consecutive"]
    made = session().run([task(name, *arms) for name in names])
    made.benchmarks[1].comparisons[-2].verdict = "INVALID"
    settle(made)
    return made


def test_programs_and_methods_are_those_that_there_are() -> None:
    known = {each.fullname for each in benchmarks()}
    assert FUSION.methods == FUSIONS
    for experiment in (*FIGURES, FUSION):
        assert set(experiment.programs) <= known and set(experiment.methods) <= {*METHODS, *FUSIONS}
        for ratios in experiment.stated.values():
            assert set(ratios) <= set(experiment.programs)
            assert all(set(each) <= {*experiment.methods, "O3"} for each in ratios.values())
        assert set(experiment.means) <= set(experiment.stated)


def test_a_row_has_ours_and_theirs(result: ResultFile) -> None:
    lines = thesis_report(result).splitlines()
    motion = lines[lines.index("## Code motion (figure 4.7, environment 1)") :]
    assert motion[2] == "| program | lcm (here / 4.7) | sscm (here / 4.7) | -O1 |"
    ours = result.benchmarks[0].candidates[1].speedup
    assert motion[4] == f"| treelogy/barneshut | = / no change | {ours:.3f} FASTER / gain | MISMATCH |"
    doubtful = result.benchmarks[1].candidates[1].speedup
    assert motion[5] == f"| rodinia/cfd | = / 1.08 | ({doubtful:.3f}) / 1.08 | MISMATCH |"
    assert motion[6] == f"| geometric mean | 1.000 / — | {ours:.3f} of 1 / — | — |"
    every = lines[lines.index("## All programs") :]
    assert every[2] == "| program | time of -O3 | -O3 again | lcm | sscm | -O1 |"
    again = result.benchmarks[0].control
    assert again is not None
    assert every[4].startswith("| treelogy/barneshut | ")
    assert every[4].endswith(f" µs | {again.speedup:.3f} SAME | = | {ours:.3f} FASTER | MISMATCH |")
    assert every[-1] == "Verdicts. lcm: 4 IDENTICAL; sscm: 3 FASTER, 1 INVALID; -O1: 4 MISMATCH."
    text = "\n".join(lines)
    assert "Not in this run: treelogy/knearestneighbor, cuda_samples/FDTD3d" in text
    assert "Variants that this run lacks: scm, spre." in text
    assert "-O3 of cuda_samples/SobelFilter-consecutive over -O3 of cuda_samples/SobelFilter: 1.000 here" in text
    assert "without a verdict; in the thesis 0.98 / none." in text


def test_fusion_has_a_table_of_its_own_where_it_was_run() -> None:
    arms = [
        arm(id, f"honest {time}e-4") for id, time in (("O3", 1), ("kfcm", 0.9), ("graph", 0.8), ("kfcm+graph", 0.7))
    ]
    made = session().run([task("rodinia/cfd", *arms)])
    made.options["launch"] = "stream"
    lines = thesis_report(made).splitlines()
    assert lines[0].endswith("Launched by stream, except variants whose name says otherwise.")
    assert [line for line in lines if line.startswith("## ")] == ["## Kernel fusion (table 5.1)", "## All programs"]
    table = lines[lines.index("## Kernel fusion (table 5.1)") :]
    assert table[2] == "| program | kfcm (here / 5.1) | graph | kfcm+graph |"
    ours = [each.speedup for each in made.benchmarks[0].candidates]
    assert table[4] == f"| rodinia/cfd | {ours[0]:.3f} FASTER / 1.48 | {ours[1]:.3f} FASTER | {ours[2]:.3f} FASTER |"


def test_the_command_writes_it(result: ResultFile, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "r.json", result)
    assert main(["bench", "report", str(tmp_path / "r.json"), "--format=thesis", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "thesis.md").read_text() == thesis_report(result)
    assert main(["bench", "report", str(tmp_path / "r.json"), "--format=thesis,pdf"]) == 2
    assert "there are png, svg, markdown, html, thesis" in capfd.readouterr().err
