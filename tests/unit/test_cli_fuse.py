"""The verb `fuse` and its costs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.cli import main
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.transforms.kernel_fusion.benefit import MachineCosts

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def scaling(name: str, operation: str, index: str = "") -> str:
    """``y[i] = operation(x[index], k)`` for i below n."""
    return f"""{HEAD}.visible .entry {name}(.param .u64 x, .param .u64 y, .param .u32 n, .param .u32 k)
{{
  .reg .u32 %i, %j, %n, %k, %b, %s, %v, %w;
  .reg .u64 %x, %y, %o;
  .reg .pred %p;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  ld.param.u32 %n, [n];
  ld.param.u32 %k, [k];
  mov.u32 %b, %ctaid.x;
  mov.u32 %s, %ntid.x;
  mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %b, %s, %i;
  setp.ge.u32 %p, %i, %n;
  @%p bra DONE;
  mov.u32 %j, %i;
  {index}
  mul.wide.u32 %o, %j, 4;
  add.u64 %o, %x, %o;
  ld.global.u32 %v, [%o];
  {operation} %w, %v, %k;
  mul.wide.u32 %o, %i, 4;
  add.u64 %o, %y, %o;
  st.global.u32 [%o], %w;
DONE:
  ret;
}}
"""


PROGRAM = '''
from pathlib import Path
from ptxmotion.dsl import allocate, copy, host, i32, program, ptx_source

BLOCK = 32
scale = ptx_source(Path(__file__).with_name("scale.ptx"))
shift = ptx_source(Path(__file__).with_name("shift.ptx"))


@program
def work(data: host[i32], n: i32, k: i32) -> None:
    """Scale, then shift."""
    a, b, c = allocate(i32, n), allocate(i32, n), allocate(i32, n)
    copy(a, data)
    blocks = (n + BLOCK - 1) // BLOCK
    scale[blocks, BLOCK](a, b, n, k)
    if k > 2:
        shift[blocks, BLOCK](b, c, n, k)
    else:
        shift[blocks, BLOCK](b, c, n, 1)
    copy(data, c)
'''
TURN = "sub.u32 %j, %n, %i; sub.u32 %j, %j, 1;"


def written(folder: Path, turn: str = "", program: str = PROGRAM) -> Path:
    (folder / "scale.ptx").write_text(scaling("scale", "mul.lo.u32"))
    (folder / "shift.ptx").write_text(scaling("shift", "add.u32", turn))
    file = folder / "work_program.py"
    file.write_text(program)
    return file


def needs_ptxas() -> None:
    from ptxmotion.toolchain.tools import ToolMissing, find_tool

    try:
        find_tool("ptxas")
    except ToolMissing as why:
        pytest.skip(str(why))


def run_file(file: Path, k: int) -> tuple[Any, EmulatorBackend]:
    spec = importlib.util.spec_from_file_location("written", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    backend = EmulatorBackend(schedule="random", seed=k)
    found = module.work.run(backend, data=np.arange(100, dtype=np.int32), n=100, k=k)
    return found["data"], backend


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PTXMOTION_CACHE", str(folder))
    return folder


def fuse(*arguments: object) -> int:
    return main(["fuse", *map(str, arguments), "--no-config"])


def test_the_folder_holds_a_program_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, into = written(tmp_path), tmp_path / "fused"
    assert fuse(file, "-o", into, "--no-benefit", "--remarks") == 0
    names = sorted(path.name for path in into.iterdir())
    assert len(names) == 4 and names[2:] == ["remarks.yaml", "work.py"]
    assert all(name.startswith("fused_scale_shift") and name.endswith(".ptx") for name in names[:2])
    for k in (1, 5):
        wanted, before = run_file(file, k)
        found, after = run_file(into / "work.py", k)
        assert np.array_equal(found, wanted) and not after.findings
        assert after.counts.as_dict()["launches"] < before.counts.as_dict()["launches"]
    printed = capsys.readouterr().err
    assert "2 fusions" in printed and "remark: fuse: scale+shift: fused as fused_scale_shift" in printed
    assert (into / "remarks.yaml").read_text().count("Name:            Fused") == 2


def test_what_nobody_reads_is_not_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figure 5.1: the second kernel takes the value from the first one's register, and the store goes."""
    file, into = written(tmp_path), tmp_path / "fused"
    assert fuse(file, "-o", into, "--no-benefit", "--remarks") == 0
    assert "does not store to b, which nothing reads afterwards" in capsys.readouterr().err
    for text in (path.read_text() for path in into.glob("fused*.ptx")):
        assert text.count("st.global") == text.count("ld.global") == 1
    file.write_text(PROGRAM.replace("copy(data, c)", "copy(data, b)\n    copy(data, c)"))
    assert fuse(file, "-o", into, "--no-benefit", "--remarks") == 0
    assert "does not store" not in capsys.readouterr().err
    assert np.array_equal(run_file(into / "work.py", 5)[0], run_file(file, 5)[0])


def test_a_dependence_across_the_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks wait for each other where the launch is cooperative, if so many run at a time; else there are two."""
    file, into = written(tmp_path, TURN), tmp_path / "fused"
    assert fuse(file, "-o", into, "--no-cooperative", "--remarks=scale") == 0
    printed = capsys.readouterr().err
    assert "0 fusions" in printed and "[grid-wide]" in printed
    assert np.array_equal(run_file(into / "work.py", 5)[0], run_file(file, 5)[0])
    assert fuse(file, "--graph", "--remarks") == 0
    printed = capsys.readouterr().err
    assert "0 fusions" in printed and (
        "a grid barrier costs more than the fusion saves" in printed or "is not known" in printed
    )
    assert fuse(file, "--no-benefit", "--assume-independent", "scale,shift") == 0
    assert "2 fusions" in capsys.readouterr().err
    needs_ptxas()
    assert fuse(file, "-o", into, "--remarks=scale") == 0
    printed = capsys.readouterr().err
    assert "2 fusions" in printed and "a grid barrier costs 3.53 us" in printed
    text = (into / "work.py").read_text()
    assert "if blocks <= 1115:" in text or "if (n + 32 - 1) // 32 <= 1115:" in text
    assert 'BLOCK, "cooperative"](a, b, n, k, c' in text
    assert np.array_equal(run_file(into / "work.py", 5)[0], run_file(file, 5)[0])


MEET = (
    HEAD
    + """.visible .entry meet(.param .u64 count)
{
  .reg .u32 %t, %n, %v;
  .reg .u64 %c;
  .reg .pred %p;
  ld.param.u64 %c, [count];
  mov.u32 %t, %tid.x;
  mov.u32 %n, %nctaid.x;
  bar.sync 0;
  setp.ne.u32 %p, %t, 0;
  @%p bra GO;
  fence.acq_rel.gpu;
  red.relaxed.gpu.global.add.u32 [%c], 1;
WAIT:
  ld.acquire.gpu.global.u32 %v, [%c];
  setp.lt.u32 %p, %v, %n;
  @%p bra WAIT;
GO:
  bar.sync 0;
  ret;
}
"""
)


def test_a_kernel_that_waits_in_a_cooperative_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It meets its own blocks, also where the fused kernel has more; elsewhere it might wait for ever."""
    needs_ptxas()
    (tmp_path / "meet.ptx").write_text(MEET)
    text = PROGRAM.replace("shift =", 'meet = ptx_source(Path(__file__).with_name("meet.ptx"))\nshift =')
    text = text.replace(
        "    if k > 2:", "    d = allocate(i32, 1)\n    fill(d, 0)\n    meet[2, BLOCK](d)\n    if k > 2:"
    )
    text = text.replace("import allocate, copy", "import allocate, copy, fill")
    file, into = written(tmp_path, program=text), tmp_path / "fused"
    assert fuse(file, "--no-benefit", "--remarks") == 0
    assert "may wait for another block" in capsys.readouterr().err
    file.write_text(text.replace("meet[2, BLOCK]", 'meet[2, BLOCK, "cooperative"]'))
    assert fuse(file, "-o", into, "--no-benefit") == 0
    assert "fused_scale_meet_shift" in (into / "work.py").read_text()
    for k in (1, 5):
        assert np.array_equal(run_file(into / "work.py", k)[0], run_file(file, k)[0])
    assert fuse(file, "--no-benefit", "--no-cooperative", "--remarks") == 0
    assert "cooperative launches are not enabled [not-resident]" in capsys.readouterr().err


def test_what_is_always_right_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A barrier of the grid, for small grids only, does not take the place of a fusion that holds for all; where the
    grid is large, that one is launched."""
    needs_ptxas()
    text = PROGRAM.replace("    copy(data, c)", "    back[blocks, BLOCK](c, a, n, k)\n    copy(data, a)")
    text = text.replace("shift =", 'back = ptx_source(Path(__file__).with_name("back.ptx"))\nshift =')
    (tmp_path / "back.ptx").write_text(scaling("back", "add.u32"))
    file, into = written(tmp_path, TURN, text), tmp_path / "fused"
    assert fuse(file, "-o", into, "--remarks") == 0
    found = (into / "work.py").read_text()
    assert 'fused_scale_shift_back_3[blocks, BLOCK, "cooperative"](a, b, n, k' in found
    otherwise = (
        "            scale[blocks, BLOCK](a, b, n, k)\n            fused_shift_back_2[blocks, BLOCK](b, c, n, k, a)"
    )
    assert otherwise in found, found
    for k in (1, 5):
        assert np.array_equal(run_file(into / "work.py", k)[0], run_file(file, k)[0])
    # And once more what came out.
    capsys.readouterr()
    assert fuse(into / "work.py", "--remarks", "--no-benefit") == 0


def test_grids_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAM.replace("shift[blocks,", "shift[(n + 40) // BLOCK,")
    file, into = written(tmp_path, program=text), tmp_path / "fused"
    assert fuse(file, "--same-grids", "--remarks") == 0
    printed = capsys.readouterr().err
    assert "0 fusions" in printed and "the grids differ" in printed
    assert fuse(file, "-o", into, "--no-benefit") == 0 and "2 fusions" in capsys.readouterr().err
    assert "max((n + 32 - 1) // 32, (n + 40) // 32)" in (into / "work.py").read_text()
    for k in (1, 5):
        assert np.array_equal(run_file(into / "work.py", k)[0], run_file(file, k)[0])
    file = written(tmp_path, program=text.replace("n: i32, k: i32", "n: i32, k: i32, max: i32"))
    assert fuse(file, "--remarks") == 0
    printed = capsys.readouterr().err
    assert "0 fusions" in printed and "the program uses that name for something else" in printed


def test_options_decide_about_fusions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    for options, wanted in (
        (("--strategy", "kf_trad"), "0 fusions"),
        (("--order", "backward"), "0 fusions"),
        (("--order", "forward", "--graph"), "2 fusions"),
        (("--passes", "O1"), "2 fusions"),
        (("--keep-loops",), "2 fusions"),
    ):
        assert fuse(file, "--no-benefit", *options) == 0
        assert wanted in capsys.readouterr().err, options


def test_keep_loops_inverts_no_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = "    for i in range(k):\n        scale[blocks, BLOCK](a, b, n, k)\n        copy(c, b)\n"
    loop += "        shift[blocks, BLOCK](c, a, n, 1)\n"
    file, into = written(tmp_path), tmp_path / "fused"
    start, rest = PROGRAM.index("    scale["), PROGRAM.index("    copy(data, c)")
    file.write_text(PROGRAM[:start] + "    copy(c, a)\n" + loop + PROGRAM[rest:])
    assert fuse(file, "--no-benefit", "--keep-loops") == 0 and "0 fusions" in capsys.readouterr().err
    assert fuse(file, "--no-benefit", "-o", into) == 0 and "1 fusion;" in capsys.readouterr().err
    for k in (0, 1, 4):
        assert np.array_equal(run_file(into / "work.py", k)[0], run_file(file, k)[0])


def test_wrong_usage_of_fuse_has_a_message_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    (tmp_path / "folder.py").mkdir()
    for arguments, code, message in (
        ((file, "--assume-independent", "scale"), 2, "does not name two kernels; write K1,K2"),
        ((file, "--assume-independent", "scale,sift"), 2, "launches no sift"),
        ((file, "--strategy", "kf_trad", "--order", "forward"), 2, "kf_trad has no phases"),
        ((file, "--objective=total", "--no-benefit"), 2, "adds up estimates, and --benefit=none makes none"),
        ((file, "--program", "play"), 2, "there is no program 'play' in this file; there are work"),
        ((file, "--passes", "nothing"), 2, "there is no pass 'nothing'"),
        ((tmp_path / "none.py",), 3, "No such file"),
        ((tmp_path / "scale.ptx",), 3, "a host program is a .py file"),
        ((tmp_path / "folder.py",), 3, "Is a directory"),
        (("rodinia/nw", "--program", "play"), 2, "rodinia/nw has one program, nw, and no 'play'"),
        ((file, "--emulate", "tiny"), 3, "--emulate needs a Benchmark of work"),
        (("no/such", "-o", tmp_path / "x"), 3, "no program is called 'no/such'; there are"),
    ):
        assert fuse(*arguments) == code
        assert message in capsys.readouterr().err, arguments
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert fuse(tmp_path / "empty.py") == 3 and "no @program" in capsys.readouterr().err
    (tmp_path / "broken.py").write_text("def\n")
    assert fuse(tmp_path / "broken.py") == 3
    recursive = PROGRAM.replace("    copy(data, c)", "    work(data, n, k)")
    (tmp_path / "again.py").write_text(recursive)
    assert fuse(tmp_path / "again.py") == 3 and "a program cannot call programs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("raise ValueError('no')", ":23:1: error: ValueError: no"),
        ("1 / 0", ":23:1: error: ZeroDivisionError"),
        ("import no_such_module", ":23:1: error: ModuleNotFoundError"),
        ("ptx_source(5)", ":23:1: error: AttributeError"),
        ("raise SystemExit('bye')", "error: the file calls sys.exit('bye')"),
        ("ptx_source(Path(__file__).with_name('broken.ptx'))", "broken.ptx:1:1: error: expected a module directive"),
        ("ptx_source(Path(__file__).with_name('none.ptx'))", "none.ptx: error: No such file"),
    ],
)
def test_errors_of_the_program_are_bad_input(
    added: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a user's file raises is bad input (3), not an internal error, and names the file and the line."""
    (tmp_path / "broken.ptx").write_text("hello\n")
    file = written(tmp_path, program=f"{PROGRAM}\n{added}\n")
    assert fuse(file.rename(tmp_path / "wrong_program.py"), "--no-benefit") == 3
    message_of = capsys.readouterr().err
    assert str(tmp_path) in message_of and message in message_of


def test_the_output_folder_must_be_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    (tmp_path / "taken").write_text("")
    assert fuse(file, "-o", tmp_path / "taken", "--no-benefit") == 3
    assert "taken: error: File exists" in capsys.readouterr().err


def test_passes_are_checked_before_anything_is_fused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    assert fuse(file, "--strategy", "kf_trad", "--passes", "nothing") == 2
    assert "there is no pass 'nothing'" in capsys.readouterr().err
    texts: list[set[str]] = []
    for number, level in enumerate((["--passes=O3"], ["--passes=-O3"], ["--passes", "-O3"])):
        assert fuse(file, "--no-benefit", "-o", tmp_path / str(number), *level) == 0
        texts.append({path.read_text() for path in (tmp_path / str(number)).glob("fused*.ptx")})
    assert texts[0] == texts[1] == texts[2]


# --- costs -------------------------------------------------------------------------------------------------------


def test_calibrated_costs_decide_about_a_fusion(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    assert fuse(file, "--remarks") == 0 and "saves 3.53 us of launch" in capsys.readouterr().err
    costs = {name: getattr(MachineCosts(), name) for name in MachineCosts.__slots__}
    (own_cache / "machine-costs.json").write_text(json.dumps({**costs, "launch": 7e-6}))
    assert fuse(file, "--remarks") == 0 and "saves 7.00 us of launch" in capsys.readouterr().err
    (own_cache / "machine-costs.json").write_text(json.dumps({**costs, "launch": -1}))
    assert fuse(file) == 3 and "launch is -1" in capsys.readouterr().err
    (own_cache / "machine-costs.json").write_text("{")
    assert fuse(file) == 3 and "no calibration" in capsys.readouterr().err


TIMED = """
from pathlib import Path
import numpy as np
from ptxmotion.dsl import allocate, copy, host, i32, program, ptx_source, read
from ptxmotion.suites.registry import Benchmark

scale = ptx_source(Path(__file__).with_name("scale.ptx"))
shift = ptx_source(Path(__file__).with_name("shift.ptx"))
twice = ptx_source(Path(__file__).with_name("twice.ptx"))


@program
def work(data: host[i32], n: i32) -> None:
    a, b, c = allocate(i32, n), allocate(i32, n), allocate(i32, n)
    copy(a, data)
    scale[(n + 31) // 32, 32](a, b, n, 3)
    shift[(n + 31) // 32, 32](b, c, n, 4)
    v = read(c, 0)
    shift[(n + 31) // 32, 32](c, a, n, v)
    twice[(n + 31) // 32, 32](a, b, n, 2)
    copy(data, b)


def reference(data):
    values = data["data"] * np.int32(3) + np.int32(4)
    return {"data": (values + values[0]) * np.int32(2)}


def make_data(size, seed):
    return {"data": np.random.default_rng(seed).integers(0, 999, 100).astype(np.int32), "n": 100}


benchmark = Benchmark("mine", "work", work, make_data, reference, ("data",), "", sizes={"tiny": "", "small": ""})
"""


def timed_program(folder: Path) -> Path:
    (folder / "twice.ptx").write_text(scaling("twice", "mul.lo.u32"))
    return written(folder, program=TIMED)


def test_benefit_by_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The fusion that costs time is left out, the other one is made."""
    import timed_launches
    from ptxmotion.harness import machine

    needs_ptxas()

    def choose(wanted: str) -> tuple[machine.Machine, int, str]:
        return timed_launches.MACHINE, 1, f"{wanted}, or so"

    monkeypatch.setattr(machine, "choose", choose)
    file = timed_program(tmp_path)
    assert fuse(file, "--benefit=timing", "--size=tiny", "--remarks") == 0
    printed = capsys.readouterr().err
    assert "1 fusion;" in printed and "fused as fused_shift_twice" in printed
    assert "as fast without, 0.95" in printed and "by timing, the fused program is 1.17" in printed
    # Where nothing gains, nothing is fused.
    other = TIMED.replace("    twice[", "    shift[")
    file.write_text(other.replace("* np.int32(2)", "+ np.int32(2)"))
    assert fuse(file, "--benefit=timing", "--size=tiny", "--remarks") == 0
    printed = capsys.readouterr().err
    assert "0 fusions" in printed and "by timing, the fused program is SAME, 1.0" in printed
    file.write_text(other)  # and not its reference
    assert fuse(file, "--benefit=timing", "--size=tiny") == 3
    assert "as written: seed 1: data: 100 of 100 elements differ" in capsys.readouterr().err


def test_launches_are_counted_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PROGRAM.replace(
        "    copy(data, c)",
        "    for _ in range(n):\n        scale[blocks, BLOCK](c, b, n, k)\n"
        "        shift[blocks, BLOCK](b, a, n, k)\n    copy(data, a)",
    )
    assert fuse(written(tmp_path, program=text), "--no-benefit", "--no-cooperative") == 0
    printed = capsys.readouterr().err
    assert "work: 3 fusions; launches in one call: 2·n + 2 → n + 1\n" in printed and "estimates" not in printed
    assert fuse(timed_program(tmp_path), "--no-benefit", "--emulate=tiny") == 0
    printed = capsys.readouterr().err
    assert "launches in one call: 4 → 2\n" in printed
    assert "on the emulator, size tiny: 4 → 2 launches, equal outputs\n" in printed
    assert fuse(timed_program(tmp_path), "--emulate=huge") == 2
    assert "mine/work has no size 'huge'; there are tiny, small" in capsys.readouterr().err


def test_other_outputs_on_the_emulator_end_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fused modules are changed behind the back of `fuse`."""
    from ptxmotion.programs import fusing

    monkeypatch.setattr(fusing, "_optimized", lambda ptx, passes: ptx.replace("add.u32 %w", "sub.u32 %w"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportUnknownMemberType]
    assert fuse(timed_program(tmp_path), "--no-benefit", "--passes=O1", "--emulate=tiny") == 1
    assert "but the outputs differ: data: " in capsys.readouterr().err


def test_the_machine_of_the_estimates_is_named(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    assert fuse(file) == 0
    printed = capsys.readouterr().err
    assert "estimates: built-in costs of one NVIDIA H200 (a launch 3.53 us, 4.10 TB/s, 132 multiprocessors)" in printed
    assert "no machine was calibrated here" in printed and "ptxmotion doctor --calibrate" in printed
    assert fuse(file, "--graph") == 0 and "a graph node 0.51 us" in capsys.readouterr().err
    costs = {name: getattr(MachineCosts(), name) for name in MachineCosts.__slots__}
    (own_cache / "machine-costs.json").write_text(json.dumps({**costs, "machine": "GPU X", "multiprocessors": 80}))
    assert fuse(file) == 0
    printed = capsys.readouterr().err
    assert "estimates: costs of GPU X, measured by doctor --calibrate" in printed and "80 multiprocessors" in printed
    assert fuse(file, "--no-benefit") == 0
    assert "costs of" not in capsys.readouterr().err
    needs_ptxas()
    assert fuse(written(tmp_path, TURN), "--no-benefit") == 0
    assert "limits of grid barriers: costs of GPU X, measured by doctor" in capsys.readouterr().err


def test_timing_needs_a_gpu_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ptxmotion.harness import machine

    monkeypatch.setattr(machine, "gpu_count", lambda: (0, "the driver sees no device"))
    file = timed_program(tmp_path)
    for options, code, message in (
        (("--size", "tiny"), 4, "--benefit=timing needs a GPU: no GPU: the driver sees no device"),
        (("--size", "huge"), 2, "has no size 'huge'; there are tiny, small"),
        (("--no-benefit",), 2, "--no-benefit contradicts --benefit=timing"),
    ):
        assert fuse(file, "--benefit=timing", *options) == code
        assert message in capsys.readouterr().err
    file.write_text(TIMED.partition("benchmark =")[0])
    assert fuse(file, "--benefit=timing") == 3 and "needs a Benchmark of work" in capsys.readouterr().err
    assert fuse(file, "--size=tiny") == 2 and "--size is an option of --benefit=timing" in capsys.readouterr().err


# --- variants of a benchmark -------------------------------------------------------------------------------------


def test_variants_are_read() -> None:
    from ptxmotion.programs.variants import VariantError, parse_variant

    assert [parse_variant(text).fusion for text in ("kf_trad", "kfcm+graph", "O3", "x=kfcm")] == [
        "kf_trad",
        "kfcm",
        "",
        "kfcm",
    ]
    assert parse_variant("kfcm+graph").launch == parse_variant("graph").launch == "graph"
    assert parse_variant("graph").options is None
    with pytest.raises(VariantError, match="not of a revision"):
        parse_variant("HEAD@kfcm")


def test_an_arm_carries_its_host_program(tmp_path: Path) -> None:
    from ptxmotion.dsl.run import Loaded
    from ptxmotion.harness.arm_code import assemble_arm
    from ptxmotion.programs.fused_variants import HOST, fused_modules, host_of
    from ptxmotion.suites.registry import from_file
    from ptxmotion.toolchain.tools import ToolMissing

    file = written(tmp_path)
    file.write_text(
        PROGRAM
        + "\n\nfrom ptxmotion.suites.registry import Benchmark\n\n"
        + "benchmark = Benchmark('mine', 'work', work, lambda size, seed: {}, lambda data: {}, (), '', "
        + "sizes={'tiny': ''})"
    )
    (benchmark,) = from_file(file)
    plain = {kernel.name: kernel.ptx() for kernel in benchmark.program.kernels.values()}
    try:
        modules = fused_modules(benchmark, plain, "kfcm")
        code = assemble_arm(modules)
    except ToolMissing as why:
        pytest.skip(str(why))
    assert HOST in modules and any(name.startswith("fused_scale_shift") for name in modules)
    assert {name.partition("_shift")[0] for _, name in code.kernels} == {"fused_scale"}
    host, ptx = host_of(benchmark, modules)
    data = {"data": np.arange(100, dtype=np.int32), "n": 100, "k": 3}
    found = Loaded(host, EmulatorBackend(), ptx).run(data)["data"]
    assert found.tolist() == [3 * value + 3 for value in range(100)]
    assert fused_modules(benchmark, plain, "kf_trad") == plain
    same, of_plain = host_of(benchmark, plain)
    assert same is benchmark.program.host and of_plain(next(iter(same.kernels.values()))) == plain["scale"]
