"""Comparing, auditing and exporting result files; each export is read by its consumer or checked by its schema."""

import copy
import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_runs import arm, machine, session, task
from ptxmotion.harness.audit import audit
from ptxmotion.harness.compare import Change, compare_results, slimmed
from ptxmotion.harness.exporters import FORMATS, export
from ptxmotion.harness.figures import parse_threshold
from ptxmotion.harness.machine import Machine
from ptxmotion.harness.results import ResultFile, from_json, read, schema, settle, to_json

COMMITTED = sorted((Path(__file__).parents[1] / "results").glob("*.json"))


@pytest.fixture(scope="module")
def made() -> ResultFile:
    tasks = [
        task("suite/a", arm("O3", "honest 1e-4"), arm("lcm", "honest 0.9e-4"), arm("bad", "nan 1e-4")),
        task("suite/b", arm("O3", "honest 1e-3"), arm("lcm", "honest 1e-3")),
        task("suite/c", arm("O3", "honest 1e-3"), arm("lcm", "honest 1.001e-3")),
    ]
    done = session().run(tasks)
    done.options = session().conditions.plan.options()
    return done


@pytest.fixture
def result(made: ResultFile) -> ResultFile:
    return copy.deepcopy(made)


def changes(before: ResultFile, after: ResultFile, *thresholds: str) -> list[tuple[str, str]]:
    found = compare_results(before, after, [parse_threshold(each) for each in thresholds])
    return [(each.kind, each.subject) for each in found]


def test_a_run_bears_out_what_it_says(result: ResultFile) -> None:
    assert audit(result) == []
    assert audit(from_json(json.loads(json.dumps(to_json(result))))) == []
    assert audit(slimmed(result)) == []
    jsonschema.validate(to_json(slimmed(result)), schema())


def test_results_of_other_sizes_are_not_compared(result: ResultFile) -> None:
    after = copy.deepcopy(result)
    after.benchmarks[1].params = {"size": "full", "n": 3}
    found = [each for each in compare_results(result, after) if each.subject.startswith("suite/b")]
    assert [(each.kind, each.subject) for each in found] == [("missing", "suite/b")]
    assert "it ran with size=full n=3, and before with " in str(found[0])


def _set(path: str, value: Any) -> Callable[[ResultFile], None]:
    def change(result: ResultFile) -> None:
        target: Any = result
        *way, last = path.split(".")
        for each in way:
            target = target[int(each)] if each.isdecimal() else getattr(target, each)
        if last.isdecimal():
            target[int(last)] = value
        else:
            setattr(target, last, value)

    return change


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (_set("benchmarks.0.comparisons.1.verdict", "SAME"), "SAME, but the samples give FASTER"),
        (_set("benchmarks.0.comparisons.1.speedup", 1.5), "speedup 1.5"),
        (_set("benchmarks.0.comparisons.1.rounds", 99), "the number of rounds differs"),
        (_set("benchmarks.0.comparisons.1.candidate", "ghost"), "no such arms"),
        (_set("benchmarks.0.arms.2.samples.3", [1.0] * 10), "stats differ from those"),
        (_set("benchmarks.0.arms.2.samples.3", [1.0]), "the samples are invalid"),
        (_set("benchmarks.0.timing.dropped_rounds", [0]), "dropped_rounds"),
        (_set("benchmarks.0.timing.clocks_hz.0.1", 1e9), "dropped_rounds"),
        (_set("benchmarks.0.arms.2.correctness.status", "mismatch"), "but its correctness is mismatch"),
        (_set("benchmarks.0.arms.0.role", "candidate"), "0 arms have the role baseline"),
        (_set("control.aa_verdict", "INVALID"), "control"),
        (_set("summary.geomean_speedup", 2.0), "summary"),
        (_set("benchmarks.1.fullname", "suite/a"), "occurs twice"),
    ],
)
def test_forgeries_are_reported(result: ResultFile, forge: Callable[[ResultFile], None], message: str) -> None:
    forge(result)
    assert any(message in line for line in audit(result)), audit(result)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_committed_results_are_valid_and_bear_out_what_they_say(path: Path) -> None:
    assert audit(read(path)) == []  # `read` validates


def test_there_are_committed_results() -> None:
    assert COMMITTED


def test_equal_results_have_no_difference_but_what_is_wrong_in_them(result: ResultFile) -> None:
    assert changes(result, result) == [("mismatch", "suite/a:bad:time")]


def test_noise_free_figures_are_compared_exactly(result: ResultFile) -> None:
    worse, better = copy.deepcopy(result), copy.deepcopy(result)
    figure = result.benchmarks[1].arms[1].static["scale"]["registers"]
    for changed, by in ((worse, 1), (better, -1)):
        changed.benchmarks[1].arms[1].static["scale"]["registers"] = figure + by
    assert ("worse", "suite/b:lcm:scale:registers") in changes(result, worse)
    assert ("better", "suite/b:lcm:scale:registers") in changes(result, better)
    assert ("worse", "suite/b:lcm:scale:registers") not in changes(result, worse, "registers=50%")
    assert ("worse", "suite/b:lcm:scale:registers") in changes(result, worse, "suite/a=50%")


def test_less_occupancy_is_worse_and_the_emulators_counts_count(result: ResultFile) -> None:
    result.benchmarks[0].arms[0].static["scale"]["occupancy"] = 0.5
    result.benchmarks[0].arms[0].emulated = {"warp_instructions": 100, "thread_instructions": 9, "by_class": {}}
    after = copy.deepcopy(result)
    after.benchmarks[0].arms[0].static["scale"]["occupancy"] = 0.25
    after.benchmarks[0].arms[0].emulated = {"warp_instructions": 101, "thread_instructions": 99, "by_class": {}}
    found = changes(result, after)
    assert ("worse", "suite/a:O3:scale:occupancy") in found
    assert ("worse", "suite/a:O3:emulated:warp_instructions") in found
    assert len(found) == 3


def test_times_are_compared_by_verdict(result: ResultFile) -> None:
    after = copy.deepcopy(result)
    lost = after.benchmarks[0].comparisons[1]
    lost.speedup, lost.ci, lost.verdict = 1.02, (1.015, 1.025), "FASTER"
    slow = after.benchmarks[2].comparisons[1]
    slow.speedup, slow.ci, slow.verdict = 0.9, (0.89, 0.91), "SLOWER"
    assert ("slower", "suite/a:lcm:time") in changes(result, after)
    assert ("slower", "suite/c:lcm:time") in changes(result, after)
    assert ("slower", "suite/c:lcm:time") not in changes(result, after, "suite/c=20%")
    assert ("faster", "suite/a:lcm:time") in changes(after, result)
    after.benchmarks[0].comparisons[0].verdict = "INCONCLUSIVE"
    found = changes(result, after)
    assert ("invalid", "suite/a:control") in found
    assert [each for each in found if each[0] == "slower"] == [("slower", "suite/c:lcm:time")]


def test_what_is_missing_or_failed_is_said(result: ResultFile) -> None:
    after = copy.deepcopy(result)
    del after.benchmarks[2]
    after.benchmarks[1].error = "it broke\nbadly"
    del after.benchmarks[0].arms[2]
    found = [str(each) for each in compare_results(result, after)]
    assert "missing: suite/c" in found
    assert "missing: suite/b (it failed: it broke)" in found
    assert "missing: suite/a:lcm" in found
    assert str(Change("worse", "x", 1.0, 2.0)) == "worse: x 1 → 2 (+100.0 %)"


@pytest.mark.parametrize("text", ["2%", "a=2", "a=-1%", "(=2%"])
def test_thresholds_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"threshold|regular expression"):
        parse_threshold(text)


#: The schema in the README of github-action-benchmark: name, unit and value are required, range and extra are strings.
GHA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "unit", "value"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
        "additionalProperties": False,
    },
}

#: The schema at https://bencher.dev/bmf.json, and its limit for the length of names.
BMF = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "propertyNames": {"maxLength": 64},
            "patternProperties": {
                ".+": {
                    "type": "object",
                    "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
                    "required": ["value"],
                }
            },
        }
    },
}


def test_github_action_benchmark(result: ResultFile) -> None:
    entries = json.loads(export(result, "gha"))
    jsonschema.validate(entries, GHA)
    by_name = {each["name"]: each for each in entries}
    assert len(by_name) == len(entries)
    assert abs(by_name["suite/a [lcm] time"]["value"] - 90) < 1
    assert abs(by_name["suite/a [lcm] time relative to O3"]["value"] - 0.9) < 0.01
    assert by_name["suite/b [lcm] time relative to O3"]["value"] == 1.0
    assert by_name["suite/a [O3] scale:registers"]["value"] > 0
    assert not any("bad] time" in name for name in by_name)


def test_a_result_is_exported_for_bencher(result: ResultFile) -> None:
    document = json.loads(export(result, "bmf"))
    jsonschema.validate(document, BMF)
    latency = document["suite/a[O3]"]["latency"]
    assert abs(latency["value"] - 1e5) < 1e3
    assert latency["lower_value"] <= latency["value"] <= latency["upper_value"]
    assert document["suite/a[lcm]"]["registers"]["value"] > 0


def test_pytest_benchmarks_own_tool_reads_it(result: ResultFile, tmp_path: Path) -> None:
    path = tmp_path / "0001_run.json"
    path.write_text(export(result, "pytest-benchmark"))
    command = [sys.executable, "-m", "pytest_benchmark", "compare", str(path), "--csv", str(tmp_path / "out.csv")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "a[lcm]" in done.stdout and "a[O3]" in done.stdout and "c[lcm]" in done.stdout
    assert "bad" not in done.stdout
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert {float(row["median"]) for row in rows} >= {result.benchmarks[0].arm("lcm").stats.median}  # pyright: ignore[reportOptionalMemberAccess]


def test_what_was_timed_for_several_is_audited_and_exported() -> None:
    arms = [arm("O3", "honest 1e-4"), arm("x", "honest 0.9e-4"), arm("y", "honest 0.9e-4")]
    running = session()
    done = running.run([task("suite/a", *arms)])
    done.options = running.conditions.plan.options()
    assert audit(done) == [] and audit(slimmed(done)) == []
    by_name = {each["name"]: each for each in json.loads(export(done, "pytest-benchmark"))["benchmarks"]}
    assert by_name["a[y]"]["stats"] == by_name["a[x]"]["stats"] and by_name["a[y]"]["stats"]["data"]
    for path, value, message in (
        ("benchmarks.0.comparisons.2.verdict", "SAME", "O3 and y: SAME, but the samples give FASTER"),
        ("benchmarks.0.comparisons.2.speedup", 2.0, "speedup 2.0"),
        ("benchmarks.0.arms.3.same_code_as", "O3 (again)", "does not have the machine code of O3 (again)"),
        ("benchmarks.0.arms.3.same_code_as", "ghost", "no arm 'ghost'"),
        ("benchmarks.0.arms.3.samples", [[1.0]], "has samples, but shares those of x"),
    ):
        forged = copy.deepcopy(done)
        for each in forged.benchmarks[0].arms:
            each.static = {"scale": {"code_sha256": "b" if each.id.startswith("O3") else "c"}}
        _set(path, value)(forged)
        assert any(message in line for line in audit(forged)), (path, audit(forged))


def test_a_verdict_is_reported_where_the_baseline_differs_from_itself() -> None:
    running = session(Machine("fake", "fake_backend:fake_backend", "fake_runs:biased_stopwatch"))
    done = running.run([task("suite/a", arm("O3", "honest 1e-4"), arm("x", "honest 0.9e-4"))])
    done.options = running.conditions.plan.options()
    assert audit(done) == []
    done.benchmarks[0].candidates[0].verdict = "FASTER"
    settle(done)
    assert audit(done) == ["suite/a: O3 and x: FASTER, but the samples give INVALID"]
    assert ("invalid", "suite/a:control") in changes(done, done)


def test_csv_and_markdown(result: ResultFile) -> None:
    rows = list(csv.DictReader(io.StringIO(export(result, "csv"))))
    assert [(row["benchmark"], row["arm"], row["verdict"]) for row in rows][:3] == [
        ("suite/a", "O3", ""),
        ("suite/a", "lcm", "FASTER"),
        ("suite/a", "bad", "MISMATCH"),
    ]
    assert float(rows[1]["speedup"]) > 1.09 and rows[2]["median_s"] == ""
    text = export(result, "markdown")
    assert "| suite/a | lcm | FASTER | 1.1" in text
    assert "Geometric means" in text


def test_every_form_takes_a_run_without_times() -> None:
    done = session(machine("")).run([task("suite/a", arm("O3"), arm("lcm", "honest 1"))])
    for form in FORMATS:
        assert export(done, form)
    settle(done)
    jsonschema.validate(json.loads(export(done, "gha")), GHA)
    jsonschema.validate(json.loads(export(done, "bmf")), BMF)
