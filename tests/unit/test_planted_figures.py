"""A regression that is planted in a user's own kernel is found without a GPU; an improvement never fails."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from own_kernels import COALESCED, STRIDED, write_program, write_ptx
from ptxmotion.cli import main
from ptxmotion.harness.audit import audit
from ptxmotion.harness.results import read

ROOT = Path(__file__).parents[2]
RUN = ["--backend=emulator", "--seeds=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mine.py`, whose kernel is the good one; and the PTX of the good and of the bad kernel."""
    path = tmp_path_factory.mktemp("own")
    write_ptx(path / "good.ptx", COALESCED)
    write_ptx(path / "bad.ptx", STRIDED)
    write_program(path / "mine.py", COALESCED)
    return path


def test_bench_run_finds_it(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "r.json"
    command = ["bench", "run", str(folder / "mine.py"), *RUN, f"--json={path}"]
    bad = [f"--variant=bad={folder / 'bad.ptx'}"]
    assert main([*command, *bad]) == 0
    assert main([*command, *bad, "--fail-on=slower,worse"]) == 1
    err = capfd.readouterr().err
    assert re.search(
        r"^mine/scale +bad +WORSE .*worse: global load sectors 512 → 4096 \(\+700\.0 %\)", err, re.MULTILINE
    )
    assert re.search(
        r"^mine/scale +bad +global store sectors +512 +4096 +sectors of 32 bytes +\+700\.0 % +WORSE$", err, re.M
    )
    assert "An estimated time is not measured" in err
    result = read(path)
    (candidate,) = result.benchmarks[0].candidates
    assert candidate.regressed and candidate.estimate is not None and candidate.speedup is None
    assert audit(result) == []
    assert main([*command, *bad, "--fail-on=worse", "--threshold=sectors=800%"]) == 0
    assert read(path).benchmarks[0].candidates[0].verdict == "EQUAL"


def test_settings_of_one_action_have_their_own_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--fail-on` and `--json` of `bench run` mean other things than those of the actions that compare results."""
    config, results, changes = folder / "s.toml", folder / "settings.json", folder / "changes.json"
    # `--config` may stand behind the action.
    bad = f"--variant=bad={folder / 'bad.ptx'}"
    run = ["bench", "run", str(folder / "mine.py"), *RUN, bad, f"--config={config}"]
    compare = ["bench", "compare", f"--config={config}", str(results), str(results)]
    config.write_text(f'[bench]\nfail-on = "slower,worse"\njson = "{results}"\n')
    assert main(run) == 0 and "WORSE" in capfd.readouterr().err
    before = results.read_text()
    assert main(compare) == 0 and results.read_text() == before
    tables = ('[bench]\nfail-on = "none"', '[bench.run]\nfail-on = "worse"', f'[bench.compare]\njson = "{changes}"')
    config.write_text("\n".join(tables))
    assert main(run) == 1 and results.read_text() == before
    assert main(compare) == 0 and json.loads(changes.read_text()) == []
    for text, message in (
        ("[bench.runs]\n", "unknown table 'bench.runs' (did you mean 'run'?)"),
        ("[bench.compare]\nrounds = 3\n", "unknown key 'rounds' in table 'bench.compare'"),
        ('[bench.run]\nlaunch = "tree"\n', "'launch' takes one of auto, stream, graph"),
    ):
        config.write_text(text)
        assert main(run) == 2
        assert message in capfd.readouterr().err


def test_an_improvement_does_not_fail_bench_run(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder / "r.json"
    bad, good = folder / "bad.ptx", folder / "good.ptx"
    command = ["bench", "run", str(folder / "mine.py"), *RUN, f"--json={path}", f"--baseline=bad={bad}"]
    assert main([*command, f"--variant=good={good}", "--fail-on=slower,worse,invalid,inconclusive"]) == 0
    assert re.search(
        r"^mine/scale +good +BETTER .*better: global load sectors 4096 → 512 \(-87\.5 %\)",
        capfd.readouterr().err,
        re.MULTILINE,
    )
    (candidate,) = read(path).benchmarks[0].candidates
    assert (candidate.verdict, candidate.regressed) == ("BETTER", False)


def test_track_finds_it_and_prints_what_all_variants_share_once(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, baseline = tmp_path / "mine.py", tmp_path / "baseline.json"
    results: dict[str, Path] = {}
    for name, index in (("good", COALESCED), ("bad", STRIDED)):
        write_program(program, index)
        results[name] = tmp_path / f"{name}.json"
        assert main(["bench", "run", str(program), *RUN, "--variant=-O1", f"--json={results[name]}"]) == 0
    assert main(["bench", "track", str(results["good"]), f"--baseline={baseline}", "--update"]) == 0
    capfd.readouterr()
    assert main(["bench", "track", str(results["bad"]), f"--baseline={baseline}"]) == 1
    lines = capfd.readouterr().err.splitlines()
    shared = "worse: mine/scale:(all 2 variants):emulated:global_load_sectors"
    assert f"{shared} 512 → 4096 sectors of 32 bytes (+700.0 %)" in lines
    assert sum("global_load_sectors" in line for line in lines) == 1
    assert main(["bench", "track", str(results["bad"]), f"--baseline={baseline}", "--threshold=.=900%"]) == 0
    changes = tmp_path / "changes.json"
    main(["bench", "compare", str(results["good"]), str(results["bad"]), f"--json={changes}"])
    first = next(each for each in json.loads(changes.read_text()) if each["subject"].endswith("load_sectors"))
    assert (first["percent"], first["unit"], first["regressed"]) == (700.0, "sectors of 32 bytes", True)
    # The same change the other way round is an improvement, which never fails.
    assert main(["bench", "compare", str(results["bad"]), str(results["good"])]) == 0
    assert "better: mine/scale:(all 2 variants):emulated:global_load_sectors" in capfd.readouterr().err


#: The example of docs/benchmarking.md, for this program.
_TEST = """
def test_scale(kernel_benchmark):
    found = kernel_benchmark("mine.py", variants=["VARIANT.ptx"], baseline="BASELINE.ptx")
    for each in found.candidates:
        assert not each.regressed, each.reason
"""


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    plugins = ["pytest_benchmark.plugin", "ptxmotion.cli.pytest_plugin", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *(word for each in plugins for word in ("-p", each))]
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**outer, "PYTHONPATH": str(ROOT / "typings"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    arguments = [*command, "--kernel-backend=emulator", *options, "test_it.py"]
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_the_documented_assertion_finds_it_in_pytest(folder: Path) -> None:
    path = folder / "test_it.py"
    path.write_text(_TEST.replace("VARIANT", "bad").replace("BASELINE", "good"))
    for option in ("--benchmark-disable", "--benchmark-columns=median"):
        failed = run_pytest(folder, option)
        assert failed.returncode == 1, failed.stdout
        assert "worse: global load sectors 512 → 4096 (+700.0 %)" in failed.stdout
    accepted = run_pytest(folder, "--benchmark-disable", "--kernel-threshold=sectors=800%")
    assert accepted.returncode == 0, accepted.stdout
    path.write_text(_TEST.replace("VARIANT", "good").replace("BASELINE", "bad"))
    assert run_pytest(folder, "--benchmark-disable").returncode == 0


@pytest.mark.slow
def test_a_regression_since_the_baseline_fails_in_pytest(tmp_path: Path) -> None:
    """The source of the kernel changes, so each variant gets worse alike, and the assertion alone cannot see it."""
    program, baseline = tmp_path / "mine.py", tmp_path / "baseline.json"
    (tmp_path / "test_it.py").write_text(
        _TEST.replace('["VARIANT.ptx"], baseline="BASELINE.ptx"', '["-O2", "cse,lcm"]')
    )
    options = ("--benchmark-disable", f"--kernel-baseline={baseline}")
    write_program(program, STRIDED)
    assert main(["bench", "run", str(program), *RUN, f"--json={baseline}"]) == 0
    write_program(program, COALESCED)
    better = run_pytest(tmp_path, *options)
    assert better.returncode == 0, better.stdout
    assert main(["bench", "run", str(program), *RUN, f"--json={baseline}"]) == 0
    assert run_pytest(tmp_path, *options).returncode == 0
    write_program(program, STRIDED)
    assert run_pytest(tmp_path, "--benchmark-disable").returncode == 0
    worse = run_pytest(tmp_path, *options)
    assert worse.returncode == 1, worse.stdout
    line = "worse: mine/scale:(all 2 variants):emulated:global_load_sectors 512 → 4096 sectors of 32 bytes (+700.0 %)"
    assert f"compared with {baseline}:" in worse.stdout and line in worse.stdout
    accepted = run_pytest(tmp_path, *options, "--kernel-threshold=.=900%")
    assert accepted.returncode == 0, accepted.stdout
    missing = run_pytest(tmp_path, "--benchmark-disable", f"--kernel-baseline={tmp_path / 'none.json'}")
    assert missing.returncode == 1 and "--kernel-baseline: " in missing.stdout and "none.json" in missing.stdout
    assert "another exception" not in missing.stdout
    baseline.write_text(baseline.read_text().replace("mine/scale", "mine/else"))
    unknown = run_pytest(tmp_path, *options)
    assert unknown.returncode == 0 and "does not have mine/scale" in unknown.stdout


def test_the_pages_have_the_assertion_that_is_tested() -> None:
    assertion = _TEST.splitlines()[-1].strip()
    for path in ("docs/benchmarking.md", "cli/pytest_plugin.py"):
        assert assertion in (ROOT / path).read_text(), path
