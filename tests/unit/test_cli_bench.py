"""`ptxmotion bench` and the pytest plugin without a GPU: on the emulator, and on files."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest
from ptxmotion.cli import main
from ptxmotion.harness.results import read, schema, settle, write
from ptxmotion.programs.variants import (
    METHODS,
    Variant,
    VariantError,
    Variants,
    parse_variant,
    parse_variants,
    run_opt,
)
from ptxmotion.transforms.passes import pass_names

ROOT = Path(__file__).parents[2]
PLANTED = Path(__file__).parents[1] / "results" / "h200_planted.json"

_PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .u64 %a; .reg .u32 %r<4>;
  ld.param.u64 %a, [p];
  mov.u32 %r0, %tid.x;
  add.u32 %r1, %r0, 7;
  add.u32 %r2, %r0, 7;
  add.u32 %r3, %r1, %r2;
  st.global.u32 [%a], %r3;
  ret;
}
"""


def test_variants_are_read() -> None:
    assert parse_variant("O3") == Variant("O3")
    assert parse_variant("-O1 --gate=off").options == ("-O1", "--gate=off")
    assert parse_variant("lcm:naming=lexical").options == ("--passes=lcm:naming=lexical",)
    assert parse_variant("mine=dir/x.ptx") == Variant("mine", file="dir/x.ptx")
    assert parse_variant("HEAD~1@-O1") == Variant("HEAD~1@-O1", ("-O1",), revision="HEAD~1")
    assert parse_variant("O3+graph") == Variant("O3+graph", launch="graph")
    assert parse_variant("nvcc").options is None
    assert parse_variant("O2") == Variant("O2", ("-O2",))
    assert parse_variant("HEAD@O2") == Variant("HEAD@O2", ("-O2",), revision="HEAD")
    for wrong in ("", "no such thing!", "-O1 '"):
        with pytest.raises(VariantError, match="variant"):
            parse_variant(wrong)


def test_several_variants_have_one_name_and_unknown_passes_are_reported_at_once() -> None:
    assert parse_variants("-O1") == [parse_variant("-O1")]
    with pytest.raises(VariantError, match="variant 'x=lcm,nonsense': there is no pass 'nonsense'; "):
        parse_variants("x=lcm,nonsense")
    assert parse_variants("HEAD@nonsense")[0].revision == "HEAD"
    known = set(pass_names())
    if missing := [name for name in METHODS if name not in known]:
        with pytest.raises(VariantError, match=f"variant 'thesis': there is no pass '{missing[0]}'"):
            parse_variants("thesis")
        return
    found = {each.id: each.options for each in parse_variants("thesis")}
    assert list(found)[: len(METHODS)] == list(METHODS) and found["-O2"] == ("-O2",)
    assert found["sscm"] == ("--passes=sscm,dce,emptyblocks",)


def test_what_the_optimizer_made_is_kept_unless_files_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    calls: list[str] = []

    def counting(folder: str, options: Sequence[str], ptx: str) -> str:
        calls.append(ptx)
        return run_opt(folder, options, ptx)

    def count(spec: str, text: str) -> int:
        with Variants(counting) as maker:
            maker.modules(parse_variant(spec), {"m": text})
        return len(calls)

    assert [count("lcm,dce", _PTX) for _ in range(2)] == [1, 1]
    remarks = tmp_path / "remarks.yaml"
    remarks.write_text("")
    assert [count(f"-O1 --remarks-output={remarks}", _PTX) for _ in range(2)] == [2, 3]
    assert count("lcm,dce", _PTX.replace("7", "8")) == 4
    assert len([path for path in (tmp_path / "cache" / "opt").rglob("*") if path.is_file()]) == 2


def test_variants_are_made(tmp_path: Path) -> None:
    other = tmp_path / "other.ptx"
    other.write_text(_PTX.replace("7", "8"))
    with Variants() as maker:
        plain = {"m": _PTX}
        assert maker.modules(parse_variant("O3"), plain) == plain
        assert maker.modules(parse_variant(str(other)), plain) == {"m": other.read_text()}
        made = maker.modules(parse_variant("cse,dce"), plain)["m"]
        assert made.count("add.u32") == 2
        with pytest.raises(VariantError, match="there is no pass 'nonsense'"):
            maker.modules(parse_variant("nonsense"), plain)
        with pytest.raises(VariantError, match="has none of the kernels j"):
            maker.modules(parse_variant(str(other)), {"m": _PTX.replace("entry k", "entry j")})


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="no git checkout")
def test_an_earlier_optimizer_is_a_variant() -> None:
    with Variants() as maker:
        assert ".entry k" in maker.modules(parse_variant("HEAD@-O1"), {"m": _PTX})["m"]
        with pytest.raises(VariantError, match="revision no-such-revision"):
            maker.modules(parse_variant("no-such-revision@-O1"), {"m": _PTX})


def test_run_on_the_emulator_writes_a_result_and_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    command = ["bench", "run", "pathfinder", "--backend=emulator", "--variant=cse", "--seeds=1", f"--json={path}"]
    assert main(command) == 0
    jsonschema.validate(json.loads(path.read_text()), schema())
    found = read(path)
    (benchmark,) = found.benchmarks
    assert benchmark.fullname == "rodinia/pathfinder"
    assert [each.id for each in benchmark.arms] == ["O3", "cse"]
    assert benchmark.arm("O3").emulated["warp_instructions"] > 0
    assert benchmark.arm("O3").static["dynproc"]["registers"] > 0
    assert benchmark.candidates[0].verdict in ("IDENTICAL", "EQUAL", "BETTER")
    # Nothing was timed, so there is no ratio of times, also where the machine code is identical.
    assert benchmark.candidates[0].speedup is None and found.summary.geomean_speedup is None
    assert re.search(r"^rodinia/pathfinder: cse [A-Z]+$", capfd.readouterr().err, re.MULTILINE)
    assert main(["bench", "audit", str(path)]) == 0
    assert capfd.readouterr().out == f"{path}: 1 benchmarks; no contradictions\n"
    assert main([*command, "--resume"]) == 0
    assert "rodinia/pathfinder: kept from the result file" in capfd.readouterr().err
    assert main([*command, "--resume", "--rounds=7"]) == 3
    assert "cannot resume: the options of the file" in capfd.readouterr().err


def test_what_the_optimizer_cannot_do_costs_one_variant(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    command = ["bench", "run", "pathfinder", "--backend=emulator", "--seeds=1", f"--json={path}"]
    assert main([*command, "--variant=bad=-O1 --remarks-output=/nowhere/x", "--variant=cse"]) == 1
    assert read(path).benchmarks[0].candidates[0].verdict == "INVALID"
    assert "could not be made: variant bad: " in capfd.readouterr().err
    assert main([*command, "--variant=-O1 --no-such-option"]) == 3
    assert "--no-such-option" in capfd.readouterr().err


def test_launch_says_how_all_variants_are_timed_that_do_not_say_it_themselves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.json"
    command = ["bench", "run", "pathfinder", "--backend=emulator", "--seeds=1", "--variant=O3+graph", f"--json={path}"]
    assert main([*command, "--launch=stream"]) == 0
    result = read(path)
    assert result.options["launch"] == "stream"
    # Code that is equal to the baseline but launched in another way is not identical.
    assert [each.verdict for each in result.benchmarks[0].candidates] == ["EQUAL"]
    assert main([*command, "--launch=graph", "--resume"]) == 3
    assert "cannot resume: the options of the file" in capfd.readouterr().err
    path.unlink()
    assert main([*command, "--launch=graph"]) == 0
    assert [each.verdict for each in read(path).benchmarks[0].candidates] == ["IDENTICAL"]


def test_list_and_dry_run_run_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "list", "rodinia"]) == 0
    assert "rodinia/pathfinder" in capfd.readouterr().out
    assert main(["bench", "run", "--dry-run", "--backend=emulator", "pathfinder", "--variant=cse"]) == 0
    out, err = capfd.readouterr()
    assert out == "rodinia/pathfinder tiny: O3, cse\n"
    assert err == "emulator: chosen with --backend\n"
    options = ["--dry-run", "--backend=emulator", "--variant=thesis", "--variant=-O3"]
    assert main(["bench", "run", "pathfinder", *options]) == 0
    assert capfd.readouterr().out.count("-O3") == 1
    assert main(["bench", "run", "--dry-run", "--backend=emulator", "pathfinder"]) == 0
    assert capfd.readouterr().out == "rodinia/pathfinder tiny: O3, -O2\n"


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["run", "no/such"], 3, "no program is called 'no/such'"),
        (["run", "-k", "nothing like it"], 2, "no program's name matches"),
        (["run", "--resume"], 2, "--resume needs --json"),
        (["run", "--min-effect=2"], 2, "is not a percentage such as 1%"),
        (["run", "--variant=!!"], 2, "neither O3"),
        (["run", "--variant=lcm,nonsense"], 2, "variant 'lcm,nonsense': there is no pass 'nonsense'; there are"),
        (["run", "--variant=cse", "--variant=cse"], 2, "two variants are 'cse': give one of the two another name"),
        (["run", "--variant=O3"], 2, "'O3' is the baseline already; it is the output of nvcc, and the level is --var"),
        (["run", "--variant=cse", "--baseline=cse"], 2, "'cse' is the baseline already: give one of the two another"),
        (["run", "--rounds=0"], 2, "not a positive number"),
        (["compare", str(PLANTED), str(PLANTED), "--fail-on=better"], 2, "--fail-on: unknown: better"),
        (["compare", str(PLANTED), str(PLANTED), "--threshold=x"], 2, "is not a threshold such as REGEX=2%"),
        (["compare", str(ROOT / "pyproject.toml"), str(PLANTED)], 3, "invalid JSON"),
        (["compare", "nowhere.json", str(PLANTED)], 3, "nowhere.json"),
        (["export", str(PLANTED), "--format=xml"], 2, "--format: unknown: xml"),
        (["report", str(PLANTED), "--format=pdf"], 2, "--format: unknown: pdf"),
    ],
)
def test_wrong_usage_of_bench_has_a_message_and_an_exit_code(
    command: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *command]) == code
    assert message in capfd.readouterr().err


_FILE = """\
import numpy as np
from ptxmotion.dsl import allocate, copy, host, i32, kernel, program, ptr, threadIdx
from ptxmotion.suites.registry import Benchmark

@kernel
def count(x: ptr[i32]) -> None:
    x[threadIdx.x] = threadIdx.x

@program
def run(x: host[i32]) -> None:
    dx = allocate(i32, 32)
    count[1, 32](dx)
    copy(x, dx)

def make_data(size, seed):
    return {"x": np.zeros(32, np.int32)}

benchmark = Benchmark("mine", "count", run, make_data, lambda data: {"x": np.arange(32, dtype="i4")},
                      [], "", sizes={"tiny": "32"})
"""


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("@program", "@program(", 3, r"/mine\.py:9:\d+: error: SyntaxError"),
        (
            "import numpy",
            "import no_such_thing, numpy",
            3,
            r"/mine\.py:1:1: error: ModuleNotFoundError: No module named",
        ),
        ("benchmark = ", "benchmark = 1 / 0, ", 3, r"/mine\.py:18:1: error: ZeroDivisionError.*\n  benchmark = 1 / 0"),
        ("benchmark = ", "other = [", 3, r"mine\.py"),
        ('"tiny": "32"', '"full": "32"', 2, "mine/count has no size 'tiny'; there are full"),
        ("= threadIdx.x\n", "= [1][0]\n", 3, r"/mine\.py:7:22: error: .*\n +x\[threadIdx.x\] = \[1\]\[0\]\n"),
        (
            "return {",
            "return {}['no such name'] or {",
            3,
            r"KeyError: 'no such name' \(.*mine\.py, line 16, in make_data\)",
        ),
        ("np.arange(32,", "1 + np.arange(32,", 1, "the baseline is wrong: seed 1: x: 32 of 32 elements differ"),
    ],
)
def test_faults_of_a_benchmark_are_reported_at_their_line(
    old: str, new: str, code: int, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    assert old in _FILE
    path.write_text(_FILE.replace(old, new))
    assert main(["bench", "run", str(path), "--backend=emulator", "--seeds=1", "--variant=cse"]) == code
    assert re.search(message, capfd.readouterr().err)


def test_a_full_device_is_no_file_to_replace(capfd: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("there is no /dev/full")
    command = ["bench", "run", "pathfinder", "--backend=emulator", "--seeds=1", "--variant=cse", f"--json={full}"]
    assert main(command) == 4
    assert "/dev/full: error: cannot write: No space left on device" in capfd.readouterr().err
    assert full.is_char_device()


def test_no_gpu_is_exit_code_4(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for option in ("--backend=cuda", "--require-gpu"):
        assert main(["bench", "run", "pathfinder", option]) == 4
        assert "no GPU" in capfd.readouterr().err


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A run on a GPU with two benchmarks. To judge each of them again takes a noticeable time."""
    result = read(PLANTED)
    result.benchmarks = result.benchmarks[:2]
    settle(result)
    write(tmp_path / "planted.json", result)
    return tmp_path / "planted.json"


def test_compare_and_track(planted: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = json.loads(planted.read_text())
    worse, baseline = tmp_path / "worse.json", tmp_path / "baseline.json"
    data["benchmarks"][0]["arms"][0]["static"]["chain"]["registers"] += 1
    worse.write_text(json.dumps(data))
    assert main(["bench", "compare", str(planted), str(planted)]) == 0
    assert main(["bench", "compare", str(planted), str(worse)]) == 1
    assert "worse: chains/00:O3:chain:registers 10 → 11" in capfd.readouterr().err
    assert main(["bench", "compare", str(worse), str(planted)]) == 0
    assert main(["bench", "compare", str(planted), str(worse), "--fail-on=slower", "--json=-"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["kind"] == "worse"
    assert main(["bench", "compare", str(planted), str(worse), "--threshold=registers=10%"]) == 0
    assert main(["bench", "track", str(planted), f"--baseline={baseline}"]) == 3
    assert "No such file or directory; --update makes the result the baseline" in capfd.readouterr().err
    assert main(["bench", "track", str(planted), f"--baseline={baseline}", "--update"]) == 0
    assert baseline.stat().st_size < planted.stat().st_size / 3
    assert main(["bench", "track", str(worse), f"--baseline={baseline}", "--update"]) == 1
    assert "stays as it was; --fail-on=none --update accepts the changes" in capfd.readouterr().err
    assert main(["bench", "track", str(planted), f"--baseline={baseline}"]) == 0
    data["benchmarks"][0]["comparisons"][1]["verdict"] = "FASTER"
    worse.write_text(json.dumps(data))
    assert main(["bench", "track", str(worse), f"--baseline={baseline}"]) == 3
    assert main(["bench", "audit", str(worse)]) == 1
    assert "the samples give SLOWER" in capfd.readouterr().err


def test_settings_of_bench_are_defaults_of_its_actions(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "s.toml"
    bench = ["--config", str(config), "bench"]
    run = [*bench, "run", "pathfinder", "--seeds=1", f"--json={tmp_path / 'r.json'}"]
    config.write_text(
        '[bench]\nbackend = "emulator"\nvariant = ["cse", "dce"]\nthreshold = ["registers=5%"]\ntimeout = 99.5\n'
    )
    assert main(run) == 0
    found = read(tmp_path / "r.json")
    assert found.options["variants"] == ["O3", "cse", "dce"] and found.options["thresholds"] == ["registers=5%"]
    assert main([*run, "--variant=lcm", "--dry-run"]) == 0
    assert capfd.readouterr().out == "rodinia/pathfinder tiny: O3, lcm\n"
    # `timeout` is an option of another action.
    assert main([*bench, "compare", str(PLANTED), str(PLANTED)]) == 0
    for table, action in (("bench.run", ["run", "pathfinder"]), ("bench", ["compare", str(PLANTED), str(PLANTED)])):
        config.write_text(f'[{table}]\nfail-on = "everything"\n')
        assert main([*bench, *action]) == 2
        assert "--fail-on: unknown: everything" in capfd.readouterr().err
    for text, message in (
        ("no-such-option = 1", "unknown key 'no-such-option' in table 'bench'"),
        ('rounds = "many"', "'rounds': 'many' is not a positive number"),
        ('backend = "tpu"', "'backend' takes one of auto, cuda, emulator"),
        ("threshold = [true]", "'threshold' takes a string or a number"),
        ('threshold = ["x"]', "--threshold: 'x' is not a threshold such as REGEX=2%"),
    ):
        config.write_text(f"[bench]\n{text}\n")
        assert main(run) == 2
        assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "PATH", "PATH"],
        ["track", "PATH", "--baseline=PATH"],
        ["audit", "PATH"],
        ["report", "PATH", "-o", "FOLDER"],
        ["export", "PATH", "--format=csv"],
        ["run", "pathfinder", "--backend=emulator", "--seeds=1", "--resume", "--json=PATH"],
    ],
    ids=lambda command: command[0],
)
def test_a_bad_result_file_is_refused_with_its_place_by_every_action(
    command: list[str], tmp_path: Path, planted: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("PATH", str(planted)).replace("FOLDER", str(tmp_path)) for word in command]
    text = planted.read_text()
    for bad, message in (
        (text.replace('"role": "candidate"', '"role": "king"', 1), ".role: 'king' is not one of"),
        (text[: len(text) // 2], "invalid JSON"),
        ("[]", "not a result file: it has no schema_version"),
        ('{"schema_version": 99}', "schema_version is 99, but this version reads 1 and 2"),
    ):
        planted.write_text(bad)
        assert main(["bench", *words]) == 3
        err = capfd.readouterr().err
        assert f"{planted}: " in err and message in err, err


def test_an_inconclusive_verdict_is_exit_code_5_with_fail_on(planted: Path, tmp_path: Path) -> None:
    data = json.loads(planted.read_text())
    path = tmp_path / "r.json"
    data["benchmarks"][0]["comparisons"][2]["verdict"] = "INCONCLUSIVE"
    path.write_text(json.dumps(data))
    assert main(["bench", "compare", str(planted), str(path)]) == 0
    assert main(["bench", "compare", str(planted), str(path), "--fail-on=slower,inconclusive"]) == 5


def test_export_and_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "export", str(PLANTED), "--format=bmf"]) == 0
    assert "chains/00[O3]" in json.loads(capfd.readouterr().out)
    assert main(["bench", "export", str(PLANTED), "--format=csv", "-o", str(tmp_path / "x.csv")]) == 0
    assert (tmp_path / "x.csv").read_text().startswith("benchmark,")
    assert main(["bench", "report", str(PLANTED), "-o", str(tmp_path / "report")]) == 0
    assert "2 % slower | SLOWER" in (tmp_path / "report" / "report.md").read_text()


_TEST = """
def test_pathfinder(kernel_benchmark):
    found = kernel_benchmark("rodinia/pathfinder", variants=["cse"])
    assert found.fullname == "rodinia/pathfinder"
"""


def _pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    # The plugin is loaded by name, so that the test does not depend on an installation of ptxmotion.
    plugins = ["pytest_benchmark.plugin", "ptxmotion.cli.pytest_plugin", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *(word for each in plugins for word in ("-p", each))]
    # The inner pytest must not see that it runs in a worker: pytest-benchmark measures nothing in a worker.
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**outer, "PYTHONPATH": str(ROOT / "typings"), "COLUMNS": "200"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    arguments = [*command, "--kernel-backend=emulator", *options, "test_it.py"]
    return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_pytest_benchmark_saves_and_compares_variants(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TEST)
    done = _pytest(tmp_path, "--benchmark-json=out.json", "--benchmark-autosave")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    by_name = {each["name"]: each for each in document["benchmarks"]}
    assert set(by_name) == {"test_pathfinder[O3, estimated]", "test_pathfinder[cse, estimated]"}
    info = by_name["test_pathfinder[cse, estimated]"]["extra_info"]
    assert info["emulated:warp_instructions"]["unit"] == "instructions"
    assert info["emulated:warp_instructions"]["value"] > 0 and info["regressed"] is False
    assert by_name["test_pathfinder[cse, estimated]"]["stats"]["rounds"] == 1
    again = _pytest(tmp_path, "--benchmark-compare", "--benchmark-compare-fail=median:1%")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "test_pathfinder[cse, estimated] (0001" in again.stdout


@pytest.mark.slow
def test_pytest_fails_where_a_variant_computes_something_else(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TEST.replace('["cse"]', '["bad.ptx"]'))
    script = "from ptxmotion.suites.runner import *; from ptxmotion.suites.registry import find\n"
    script += "print(ptx_of(find('rodinia/pathfinder'), compiler())['dynproc'])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "typings")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "min.s32" in done.stdout
    (tmp_path / "bad.ptx").write_text(done.stdout.replace("min.s32", "max.s32"))
    failed = _pytest(tmp_path, "--benchmark-disable")
    assert failed.returncode == 1
    assert "KernelMismatch: rodinia/pathfinder: bad.ptx" in failed.stdout


def _script(job: str) -> str:
    """The script of the last step of a job in the example workflow that has several lines."""
    text = (ROOT / "docs" / "benchmarks.yml").read_text()
    body = text.partition(f"\n  {job}:\n")[2]
    body = re.split(r"\n  \w+:\n", body)[0]
    return re.sub(r"^ {10}", "", re.findall(r"^ {8}run: \|\n((?: {10}.*\n)+)", body, re.MULTILINE)[-1], flags=re.M)


def test_the_job_for_a_gpu_reports_a_missing_gpu(tmp_path: Path) -> None:
    """Its commands are valid, and it ends with the documented exit code."""
    from ptxmotion.cli.arguments import parse_arguments

    script = _script("times")
    commands = [line.removesuffix(" || code=$?") for line in script.splitlines() if line.startswith("ptxmotion ")]
    assert len(commands) == 2
    for command in commands:
        assert parse_arguments(shlex.split(command)[1:]).verb == "bench"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "typings"), "CUDA_VISIBLE_DEVICES": ""}
    function = f'ptxmotion() {{ {shlex.quote(sys.executable)} -m ptxmotion "$@"; }}\n'
    words = ["bash", "-eo", "pipefail", "-c", function + script]
    assert subprocess.run(words, cwd=tmp_path, env=environment, timeout=60).returncode == 4
