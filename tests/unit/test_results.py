"""The result document: it is read as it was written, is valid by its schema, and is kept if a write fails."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ptxmotion.harness.results import (
    ArmResult,
    BenchmarkResult,
    ComparisonResult,
    Correctness,
    ResultError,
    ResultFile,
    Stats,
    Timing,
    dumps,
    from_json,
    read,
    schema,
    settle,
    to_json,
    write,
)

SHA = "0" * 64


def comparison(candidate: str, verdict: str, speedup: float | None) -> ComparisonResult:
    ci = None if speedup is None else (speedup - 0.01, speedup + 0.01)
    return ComparisonResult("O3", candidate, speedup, ci, 0.01, 30, 1, verdict, "because")


def arm(id: str, role: str = "candidate") -> ArmResult:
    stats = Stats(1e-6, 1e-6, 1e-6, 1e-6, 0.0, 1e-6, 0.0, 1e-6, 4)
    static: dict[str, dict[str, object]] = {"k": {"registers": 32, "occupancy": 0.5}}
    samples = [[1e-6, 1e-6], [1e-6, 1e-6]]
    return ArmResult(id, role, SHA, SHA, Correctness("ok", [], [1, 2], [0xA5]), static, {}, stats, samples)


def benchmark(name: str, verdict: str, speedup: float | None, control: str = "SAME") -> BenchmarkResult:
    arms = [arm("O3", "baseline"), arm("O3 (again)", "control"), arm("lcm")]
    timing = Timing([each.id for each in arms], "stream", 1, 1, 0, [[2e9, 2e9, 2e9], [2e9, math.nan, 2e9]], [1])
    found = [comparison("O3 (again)", control, 1.0), comparison("lcm", verdict, speedup)]
    return BenchmarkResult(name, name, "suite", {"size": "tiny"}, arms, found, timing)


def document(*benchmarks: BenchmarkResult) -> ResultFile:
    made = ResultFile("2026-01-02T03:04:05+00:00", "0.1", "fake", {"gpu": "none"}, {"id": SHA}, {"rounds": 30})
    made.benchmarks = list(benchmarks)
    settle(made)
    return made


def test_reads_back_as_written(tmp_path: Path) -> None:
    made = document(benchmark("a", "FASTER", 1.1), benchmark("b", "INVALID", None))
    path = tmp_path / "result.json"
    write(path, made)
    found = read(path)
    assert to_json(found) == to_json(made)
    assert dumps(found) == path.read_text()
    assert found.benchmark("a") is not None and found.benchmark("c") is None


def test_the_schema_accepts_what_is_written_and_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(to_json(document(benchmark("a", "FASTER", 1.1))), schema())
    jsonschema.validate(to_json(document()), schema())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("benchmarks", 0, "comparisons", 0, "verdict"), "GREAT"),
        (("benchmarks", 0, "arms", 0, "ptx_sha256"), "short"),
        (("benchmarks", 0, "arms", 0, "samples"), [[0.0]]),
        (("benchmarks", 0, "arms", 0, "surplus"), 1),
        (("schema_version",), 3),
        (("benchmarks", 0, "comparisons", 0, "figures"), [{"name": "registers"}]),
        (("benchmarks", 0, "arms", 0, "static", "k", "registers"), "32"),
        (("benchmarks", 0, "arms", 0, "static", "k", "occupancy"), None),
        (("benchmarks", 0, "arms", 0, "static", "k", "occupancy"), -1),
        (("benchmarks", 0, "arms", 0, "static", "k", "cycles"), 10**400),
        (("benchmarks", 0, "arms", 0, "static", "k", "by_kind"), {"integer": []}),
        (("benchmarks", 0, "arms", 0, "emulated", "launches"), {}),
    ],
)
def test_the_schema_refuses(where: tuple[str | int, ...], value: object) -> None:
    data: Any = to_json(document(benchmark("a", "FASTER", 1.1)))
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("schema_version",), 7, "schema_version is 7"),
        (("datetime",), None, "datetime: str is expected"),
        (("extra",), 1, "unknown field 'extra'"),
        (("benchmarks", 0, "fullname"), 3, r"\$\.benchmarks\[0\]\.fullname: str is expected"),
        (("benchmarks", 0, "comparisons", 0, "ci"), [1.0], "2 values are expected"),
        (("benchmarks", 0, "comparisons", 0, "rounds"), True, "int is expected, not bool"),
        (
            ("benchmarks", 0, "comparisons", 0, "verdict"),
            "GREAT",
            r"\$\.benchmarks\[0\]\.comparisons\[0\]\.verdict: 'GREAT'",
        ),
        (("benchmarks", 0, "arms", 0, "ptx_sha256"), "short", r"ptx_sha256: 'short' does not match"),
        (("benchmarks", 0, "comparisons", 0, "speedup"), 10**400, r"speedup: the number is too large"),
    ],
)
def test_reading_refuses_with_the_place(where: tuple[str | int, ...], value: object, message: str) -> None:
    data: Any = json.loads(dumps(document(benchmark("a", "FASTER", 1.1))))
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(ResultError, match=message):
        from_json(data)


def test_a_file_of_version_1_reads_as_one_of_version_2() -> None:
    data: Any = json.loads(dumps(document(benchmark("a", "UNTIMED", None))))
    data["schema_version"] = 1
    for each in data["benchmarks"][0]["comparisons"]:
        del each["figures"], each["estimate"]
    found = from_json(data)
    assert found.schema_version == 2 and json.loads(dumps(found))["schema_version"] == 2
    (candidate,) = found.benchmarks[0].candidates
    assert (candidate.verdict, candidate.figures, candidate.estimate) == ("UNTIMED", [], None)
    assert not candidate.regressed


def test_what_got_slower_or_worse_has_regressed() -> None:
    verdicts = schema()["$defs"]["verdict"]["enum"]
    assert [each for each in verdicts if comparison("x", each, 1.0).regressed] == ["SLOWER", "WORSE"]


def test_a_missing_field_is_named() -> None:
    data = to_json(document())
    del data["datetime"]
    with pytest.raises(ResultError, match="'datetime' is missing"):
        from_json(data)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    for text in ("{", '{"schema_version": NaN}', "[" * 100_000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ResultError, match=r"x\.json: invalid JSON"):
            read(tmp_path / "x.json")
    with pytest.raises(ResultError, match="no schema_version"):
        from_json([])


def test_control_and_summary() -> None:
    made = document(
        benchmark("a", "FASTER", 2.0),
        benchmark("b", "IDENTICAL", 1.0),
        benchmark("c", "SLOWER", 0.5),
        benchmark("d", "INVALID", 7.0),
    )
    assert made.gates
    assert made.summary.geomean_speedup == 1.0
    assert made.summary.counts == {"FASTER": 1, "IDENTICAL": 1, "INVALID": 1, "SLOWER": 1}
    doubtful = document(benchmark("a", "FASTER", 2.0), benchmark("b", "SAME", 1.0, control="INCONCLUSIVE"))
    assert (doubtful.control.aa_verdict, doubtful.gates) == ("INCONCLUSIVE", False)
    assert not document().gates


def test_numbers_stand_in_one_line() -> None:
    text = dumps(document(benchmark("a", "FASTER", 1.1)))
    assert "[2000000000.0, null, 2000000000.0]" in text
    assert "[1e-06, 1e-06]" in text
    assert text.count("\n") < 250


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    path = tmp_path / "result.json"
    write(path, document())
    before = path.read_bytes()
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from ptxmotion.harness.results import read, write\n"
        "r = read(sys.argv[1]); r.options['filler'] = 'x' * 100000\n"
        "try: write(sys.argv[1], r)\n"
        "except OSError as e: print(e.filename == sys.argv[1])\n"
    )
    root = Path(__file__).resolve().parents[2] / "typings"
    # Python must not write byte code, since the limit would truncate it.
    environment = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
