"""Reports: the values in plots come from the file, and results without a verdict are not drawn as speedups."""

import importlib
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_runs import arm, machine, session, task
from ptxmotion.cli import main
from ptxmotion.harness.report import PlotsMissing, report
from ptxmotion.harness.results import ResultFile


@pytest.fixture(scope="module")
def result() -> ResultFile:
    tasks = [
        task("suite/a", arm("O3", "honest 1e-4"), arm("lcm", "honest 0.9e-4"), arm("bad", "nan 1e-4")),
        task("suite/b", arm("O3", "honest 1e-3"), arm("lcm", "honest 1e-3")),
    ]
    return session().run(tasks)


def test_every_form_is_written(result: ResultFile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = {each.name: each for each in report(result, tmp_path / "new", ["png", "svg", "markdown"])}
    assert set(files) == {"speedups.png", "speedups.svg", "figures.png", "figures.svg", "report.md"}
    assert files["speedups.png"].read_bytes().startswith(b"\x89PNG")
    assert ET.parse(files["speedups.svg"]).getroot().tag.endswith("svg")
    text = files["report.md"].read_text()
    assert "![speedups](speedups.png)" in text
    assert "| suite/a | lcm | FASTER |" in text and "| registers | registers per thread | suite/a  bad |" in text


def test_svgs_do_not_change_from_run_to_run(result: ResultFile, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = (report(result, tmp_path / name, ["svg"])[0].read_bytes() for name in "ab")
    assert first == second


def test_doubtful_times_are_not_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    throttled = session(machine("throttled_stopwatch")).run([task("suite/a", arm("O3"), arm("x", "honest 2e-4"))])
    names = [each.name for each in report(throttled, tmp_path, ["png", "markdown"])]
    assert "speedups.png" not in names
    assert "compared with itself, the baseline is INVALID" in (tmp_path / "report.md").read_text()


def test_without_matplotlib_the_way_to_get_it_is_named(
    result: ResultFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PlotsMissing, match=r"ptxmotion\[plots\]"):
        report(result, tmp_path / "new", ["markdown", "png"])
    assert not (tmp_path / "new").exists()
    assert report(result, tmp_path, ["markdown"])[0].name == "report.md"


@pytest.mark.parametrize("formats", ["html", "markdown,html", "thesis,html", "png"])
def test_without_matplotlib_bench_report_writes_nothing(
    formats: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    planted = Path(__file__).parents[1] / "results" / "h200_planted.json"
    assert main(["bench", "report", str(planted), f"--format={formats}", "-o", str(tmp_path / "new")]) == 4
    assert "plots need matplotlib" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()


def test_unknown_forms_are_refused(result: ResultFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pdf"):
        report(result, tmp_path, ["pdf"])


def test_without_times_the_plot_has_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    tasks = [task("suite/a", arm("O3"), arm("x", "honest 1"), arm("same"))]
    files = {each.name for each in report(session(machine("")).run(tasks), tmp_path, ["png", "markdown"])}
    assert files == {"figures.png", "report.md"}
    assert "| registers | registers per thread | suite/a  x | " in (tmp_path / "report.md").read_text()
