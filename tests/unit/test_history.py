"""Histories: entries, folders and branches, series, steps, and what `bench history` prints."""

import importlib.util
import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_kernels import COALESCED, STRIDED, write_program
from ptxmotion.cli import main
from ptxmotion.harness.history import Entry, entry_of, parse_entry, series_of, steps_of
from ptxmotion.harness.results import ResultError, read, settle, write
from ptxmotion.harness.steps import Step, StepsMissing, exact_steps, noisy_steps
from ptxmotion.programs.bench_session import commit_info
from ptxmotion.programs.errors import BadInput
from ptxmotion.programs.history_store import BranchStore, FolderStore

PLANTED = Path(__file__).parents[1] / "results" / "h200_planted.json"


def entry(day: int, figures: Mapping[str, float] = {}, environment: str = "emulator") -> Entry:
    """A result of a day of January, at a commit that is named after the day."""
    moment = f"2026-01-{day:02}T00:00:00+00:00"
    info = {"id": f"{day:040}", "time": moment, "dirty": False}
    results = {"s/b (tiny)": {"O3": dict(figures), "-O2": dict(figures)}}
    return Entry(moment, info, environment, results)


def test_an_entry_has_the_figures_of_its_result_file() -> None:
    result = read(PLANTED)
    found = entry_of(result)
    benchmark = result.benchmarks[0]
    (program,) = [name for name in found.results if name.startswith(benchmark.fullname)]
    arms = found.results[program]
    assert set(arms) == {each.id for each in benchmark.arms if each.role != "control"}
    assert arms["O3"]["time"] == benchmark.arm("O3").stats.median  # pyright: ignore[reportOptionalMemberAccess]
    assert "speedup" not in arms["O3"] and arms["2 % slower"]["speedup"] < 1
    assert parse_entry(found.dumps(), "x") == found
    # Identical code has the speedup 1: a variant that loses what it gained has a step.
    benchmark.comparisons[-1].verdict = "IDENTICAL"
    last = benchmark.comparisons[-1].candidate
    assert entry_of(result).results[program][last]["speedup"] == 1.0
    result.backend = "emulator"
    assert "speedup" not in entry_of(result).results[program][last]
    # The baseline is not the SAME as itself: neither times nor speedups.
    control = benchmark.control
    assert control is not None
    control.verdict = "INVALID"
    assert not {"time", "speedup"} & set(entry_of(result).results[program]["O3"])


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "ptxmotion history"}', "[" * 100_000], ids=len)
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ResultError, match=r"^here: (invalid JSON|not an entry of a history)"):
        parse_entry(text, "here")


def test_steps_of_noise_free_figures_are_exact_and_shared_once() -> None:
    days = [10, 10, 12, 12, 11]
    entries = [entry(1 + i, {"emulated:warp_instructions": value}) for i, value in enumerate(days)]
    random.Random(0).shuffle(entries)
    first, second = steps_of(series_of(entries))
    assert (first.step, first.first.order[0][:10], first.kind) == (Step(2, 10, 12), "2026-01-03", "worse")
    assert (second.step.before, second.step.after, second.kind) == (12, 11, "better")
    assert first.is_all and first.arms == ("O3", "-O2") and first.regressed and not second.regressed


def test_more_occupancy_and_more_speedup_are_better() -> None:
    up = [entry(1, {"k:occupancy": 0.5}), entry(2, {"k:occupancy": 0.75})]
    assert [each.kind for each in steps_of(series_of(up))] == ["better"]
    pytest.importorskip("ruptures")
    speedups = [entry(1 + i, {"speedup": 1.0 if i < 6 else 1.1}, "H200") for i in range(12)]
    (one, other) = steps_of(series_of(speedups))
    assert {one.kind, other.kind} == {"faster"} and one.step.index == 6
    times = [entry(1 + i, {"time": 1e-5 if i < 6 else 1.1e-5}, "H200") for i in range(12)]
    assert {each.kind for each in steps_of(series_of(times))} == {"slower"}


def test_results_of_several_machines_are_series_of_their_own() -> None:
    entries = [entry(1 + i, {"k:registers": 10 + i % 2}, f"GPU {i % 2}") for i in range(6)]
    assert steps_of(series_of(entries)) == []


def noisy(levels: list[float], sigma: float, seed: int) -> list[float]:
    generator = random.Random(seed)
    return [level * math.exp(generator.gauss(0, sigma)) for level in levels]


class TestNoisySteps:
    @pytest.fixture(autouse=True)
    def ruptures(self) -> None:
        pytest.importorskip("ruptures")

    def test_a_step_is_found_at_its_place(self) -> None:
        for seed in range(10):
            (step,) = noisy_steps(noisy([1.0] * 15 + [1.03] * 10, 0.003, seed))
            assert step.index == 15 and step.after / step.before == pytest.approx(1.03, abs=0.005)

    def test_noise_alone_has_no_step(self) -> None:
        assert not [seed for seed in range(40) if noisy_steps(noisy([1.0] * 40, 0.005, seed))]

    def test_an_outlier_is_no_step(self) -> None:
        values = noisy([1.0] * 30, 0.001, 1)
        values[12] *= 1.3
        assert noisy_steps(values) == []

    def test_a_step_below_the_least_effect_does_not_count(self) -> None:
        values = noisy([1.0] * 15 + [1.005] * 15, 0.0005, 1)
        assert noisy_steps(values) == [] and len(noisy_steps(values, 0.002)) == 1

    def test_short_and_constant_series_have_no_step(self) -> None:
        assert noisy_steps([1.0, 2.0, 2.0]) == [] and noisy_steps([1.0] * 20) == []
        with pytest.raises(ValueError, match="positive"):
            noisy_steps([1.0, 0.0])


def test_steps_of_exact_figures() -> None:
    assert exact_steps([]) == [] and exact_steps([1, 2, 2, 1]) == [Step(1, 1, 2), Step(3, 2, 1)]


def test_without_ruptures_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(StepsMissing, match=r"ptxmotion\[history\]"):
        noisy_steps([1.0] * 10)


# --- where a history is kept


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own repository with one commit on `main`."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "file").write_text("x")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one")
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_a_folder_and_a_branch_keep_the_same(repository: Path) -> None:
    stores = (FolderStore(repository / "kept"), BranchStore("results"))
    with pytest.raises(BadInput, match="there is no branch 'results'"):
        stores[1].read()
    first, again, second = entry(1, {"k:registers": 10}), entry(1, {"k:registers": 11}), entry(2)
    again = Entry("2026-01-05T00:00:00+00:00", again.commit, again.environment, again.results)
    on_gpu = entry(1, {"time": 1.0}, "H200")
    on_gpu_again = Entry("2026-01-06T00:00:00+00:00", on_gpu.commit, on_gpu.environment, on_gpu.results)
    for store in stores:
        for each in (first, second, again, on_gpu, on_gpu_again):
            store.add(each)
        kept = sorted(store.read(), key=lambda each: each.datetime)
        assert kept == sorted((second, again, on_gpu, on_gpu_again), key=lambda each: each.datetime)
    assert git(repository, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert git(repository, "status", "--porcelain", "--untracked-files=no") == ""
    assert len(git(repository, "rev-list", "results").splitlines()) == 5


def test_a_branch_keeps_other_files_and_is_never_the_one_that_is_checked_out(repository: Path) -> None:
    git(repository, "branch", "results")
    BranchStore("results").add(entry(1))
    assert git(repository, "show", "results:file") == "x"
    with pytest.raises(BadInput, match="is checked out"):
        BranchStore("main").add(entry(1))
    (repository / "bad").mkdir()
    (repository / "bad" / "x.json").write_text("{}")
    with pytest.raises(ResultError, match=r"x\.json: not an entry"):
        FolderStore(repository / "bad").read()


# --- the command


def test_a_planted_step_is_found_at_its_commit(
    repository: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = repository / "mine.py"
    run = ["bench", "run", str(program), "--backend=emulator", "--seeds=1", "--variant=cse", "--json=r.json"]
    commits: list[str] = []
    measured: dict[str, dict[str, Any]] = {}  # by the index of the program
    for day, index in enumerate([COALESCED, COALESCED, STRIDED, STRIDED, COALESCED]):
        write_program(program, index)
        (repository / "day").write_text(str(day))
        git(repository, "add", ".")
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"2026-01-0{day + 1}T00:00:00Z")
        git(repository, "commit", "-qm", f"day {day}")
        commits.append(git(repository, "rev-parse", "HEAD"))
        if index not in measured:
            assert main(run) == 0
            measured[index] = json.loads(Path("r.json").read_text())
        else:
            again = {**measured[index], "commit_info": commit_info()}
            Path("r.json").write_text(json.dumps(again))
        assert main(["bench", "history", "add", "r.json", "--branch=results"]) == 0
    capfd.readouterr()
    find = ["bench", "history", "find", "--branch=results"]
    assert main([*find, "-k", "load_sectors", "--json=-"]) == 0
    steps: list[dict[str, Any]] = json.loads(capfd.readouterr().out)
    shown = [(each["commit"]["id"], each["last_commit_before"]["id"], each["percent"], each["kind"]) for each in steps]
    assert shown == [(commits[2], commits[1], 700.0, "worse"), (commits[4], commits[3], -87.5, "better")]
    assert [each["variants"] for each in steps] == [["O3", "cse"]] * 2
    assert main([*find, "--fail-on=slower,worse"]) == 1
    out, err = capfd.readouterr()
    assert f"{commits[2][:12]}  {commits[1][:12]}  mine/scale (tiny)  (all 2 variants)" in out
    assert "512 → 4096 sectors of 32 bytes (+700.0 %)" in out and "worse" in err and "better" in err
    # After that commit there are improvements only, which never fail.
    assert main([*find, "--fail-on=slower,worse", f"--since={commits[2][:10]}"]) == 0
    assert main([*find, "--since=0123456"]) == 2
    assert main(["bench", "history", "show", "--branch=results", "-k", "load_sectors"]) == 0
    assert "512 512 4096 4096 512" in capfd.readouterr().out


def test_track_and_find_count_the_same_changes(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A change that some or all variants share is one, in both."""
    before, after = read(PLANTED), read(PLANTED)
    for result in (before, after):
        del result.benchmarks[3:]
        for benchmark in result.benchmarks:
            first = benchmark.arms[0]
            benchmark.comparisons.clear()
            roles = {"O3": "baseline", "b": "candidate", "c": "candidate", "d": "candidate"}
            untimed = replace(first, stats=None, samples=[])
            benchmark.arms = [replace(deepcopy(untimed), id=id, role=role) for id, role in roles.items()]
        settle(result)
    all_arms, some, one = (each.arms for each in after.benchmarks)
    for arm in (*all_arms, *some[:-1], one[0]):
        arm.static["chain"]["registers"] = 99
    for arm in some[1:]:
        arm.static["chain"]["code_bytes"] = 1
    before.commit_info, after.commit_info = {"id": "a" * 40}, {"id": "b" * 40}
    after.datetime = "2099-01-01T00:00:00Z"
    write(repository / "a.json", before)
    write(repository / "b.json", after)
    assert main(["bench", "compare", "a.json", "b.json", "--markdown=c.md", "--fail-on=none"]) == 0
    compared = capfd.readouterr().err.splitlines()
    assert compared[-1] == "3 worse, 1 better" and len(compared) == 5
    assert any(":(O3, b, c):" in line and line.startswith("worse: ") for line in compared)
    assert "**Passed**: 3 worse, 1 better." in (repository / "c.md").read_text()
    for path in ("a.json", "b.json"):
        assert main(["bench", "history", "add", path, "--folder=h"]) == 0
    capfd.readouterr()
    assert main(["bench", "history", "find", "--folder=h"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "3 worse, 1 better"


def test_settings_name_the_place(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (repository / "ptxmotion.toml").write_text('[bench]\nbranch = "kept"\nfail-on = "worse"\n')
    result = read(PLANTED)
    write(repository / "r.json", result)
    assert main(["bench", "history", "add", "r.json"]) == 0
    assert "kept:history/" in capfd.readouterr().err
    # An option on the command line has precedence, also over the setting of the other place.
    assert main(["bench", "history", "add", "r.json", "--folder=here"]) == 0
    assert "here/" in capfd.readouterr().err and list((repository / "here").iterdir())
    worse = entry_of(result)
    worse.commit["id"] = "f" * 40
    worse.results["chains/00"]["O3"]["chain:registers"] += 1
    (repository / "here" / "second.json").write_text(worse.dumps())
    assert main(["bench", "history", "find", "--folder=here", "-k", "registers"]) == 1


def test_wrong_usage_of_history_is_refused(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words, code, message in (
        (["find"], 3, "benchmarks/history: error: no results"),
        (["show", "--branch=nowhere"], 3, "there is no branch 'nowhere'"),
        (["add", "nowhere.json"], 3, "nowhere.json"),
        (["find", "--folder=x", "--branch=y"], 2, "not allowed with"),
        (["find", "-k", "("], 2, "is not a regular expression"),
    ):
        assert main(["bench", "history", *words]) == code
        assert message in capfd.readouterr().err
    (repository / "r.json").write_text(PLANTED.read_text().replace('"SLOWER"', '"FASTER"', 1))
    assert main(["bench", "history", "add", "r.json"]) == 3
    assert "r.json: error: " in capfd.readouterr().err


@pytest.mark.slow
def test_the_experiment_finds_every_step() -> None:
    """The claim of docs/experiments/history.md, for the noise of speedups and the settings that `find` has."""
    pytest.importorskip("ruptures")
    path = Path(__file__).parents[2] / "docs" / "experiments" / "history.py"
    spec = importlib.util.spec_from_file_location("history_experiment", path)
    assert spec is not None and spec.loader is not None
    experiment: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = experiment
    spec.loader.exec_module(experiment)
    noise = experiment.measured_noise()["speedups on an H200"]
    assert len(noise) > 30
    generator = random.Random(2)  # other histories than those of the page
    histories = [experiment.make_history(number, noise, generator) for number in range(experiment.HISTORIES)]
    totals = [sum(each) for each in zip(*(experiment.counts(h, noisy_steps(h.values)) for h in histories), strict=True)]
    planted = sum(len(each.planted) for each in histories)
    assert planted == 60 and totals[1] >= 59 and totals[2] <= 1, totals
    silent = [experiment.make_history(number, [], generator) for number in range(experiment.HISTORIES)]
    assert [sum(each) for each in zip(*(experiment.counts(h, exact_steps(h.values)) for h in silent), strict=True)] == [
        planted,
        planted,
        0,
    ]
