"""`ptxmotion analyze`, `diff`, `verify`, `doctor`, `completion`."""

import json
import re
from pathlib import Path

import pytest
from bad_inputs import kernel
from ptxmotion.cli import main

LOOP = kernel(
    ".reg .pred %p<2>;\n.reg .b32 %r<6>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, 0;\n"
    "L:\nld.global.u32 %r2, [%rd1];\ndiv.u32 %r3, %r2, 7;\ndiv.u32 %r4, %r2, 7;\nst.global.u32 [%rd1+4], %r3;\n"
    "atom.global.add.u32 %r5, [%rd1+8], %r4;\nbar.sync 0;\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %p1, %r1, %r2;\n"
    "@%p1 bra L;\nret;"
)


@pytest.fixture
def loop(tmp_path: Path) -> Path:
    path = tmp_path / "loop.ptx"
    path.write_text(LOOP)
    return path


def test_analyze_counts_blocks_loops_and_instructions(loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(loop), "--emit=json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)["kernels"]
    assert found["name"] == "k"
    assert found["blocks"] == 3
    assert (found["loops"], found["loop_depth"], found["irreducible_loops"]) == (1, 1, 0)
    assert found["instructions"] == 12
    assert found["memory_accesses"] == {"load global": 1, "load param": 1, "store global": 1, "update global": 1}
    assert (found["barriers"], found["branches"], found["calls"]) == (1, 1, 0)
    assert found["declared_registers"] == {"b32": 6, "b64": 2, "pred": 2}
    assert found["pressure_words"] >= 4
    assert found["candidates"]["by value"]["occurrences"] == 1


def test_analyze_prints_tables(loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(loop), "--expressions"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^k +3 +1 +1 +12 +2 +1 +1 +1 +0 ", out, re.MULTILINE)
    assert re.search(r"^k +by value +\d+ +1 ", out, re.MULTILINE)
    assert "\x1b" not in out
    assert main(["analyze", str(loop), "--color=always"]) == 0
    assert "\x1b" in capfd.readouterr().out


def test_analyze_selects_kernels_and_draws_them(loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(loop), "--kernel=nothing", "--emit=json"]) == 0
    assert json.loads(capfd.readouterr().out)["kernels"] == []
    assert main(["analyze", str(loop), "--emit=cfg-dot"]) == 0
    dot = capfd.readouterr().out
    assert re.search(r"n0_1 -> n0_1;", dot)
    assert re.search(r"n0_1 -> n0_2 \[style=dashed\];", dot)


def test_analyze_counts_whole_chains_by_value(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In the PTX of nvcc, equal addresses have different registers.

    The second part of the chain shares no operand name.
    """
    path = tmp_path / "chain.ptx"
    path.write_text(
        kernel(
            ".reg .b32 %r<4>;\n.reg .b64 %rd<9>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\n"
            "mul.wide.s32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], 1;\n"
            "mul.wide.s32 %rd4, %r1, 4;\nadd.s64 %rd5, %rd1, %rd4;\nst.global.u32 [%rd5+4], 2;\nret;"
        )
    )
    assert main(["analyze", str(path), "--emit=json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)["kernels"]
    assert found["candidates"]["lexically"]["occurrences"] == 1
    assert found["candidates"]["by value"]["occurrences"] == 2


def test_diff_of_the_same_file(loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(loop), str(loop), "--fail-on=different"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^k +identical", out, re.MULTILINE)
    assert "1 of 1 kernels are identical" in out


def test_diff_finds_what_is_worse(loop: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    more = tmp_path / "more.ptx"
    more.write_text(LOOP.replace("bar.sync 0;", "bar.sync 0;\natom.global.add.u32 %r5, [%rd1+16], %r5;"))
    assert main(["diff", str(loop), str(more)]) == 0
    assert main(["diff", str(loop), str(more), "--fail-on=worse", "--json"]) == 1
    out = capfd.readouterr().out
    (found,) = json.loads(out[out.index("{") :])["kernels"]
    assert found["verdict"] == "worse"
    assert "weighted instructions" in found["grown"]
    assert found["after"]["figures"]["instructions in loops"] > found["before"]["figures"]["instructions in loops"]
    assert main(["diff", str(more), str(loop), "--fail-on=worse"]) == 0
    assert main(["diff", str(more), str(loop), "--fail-on=different"]) == 1


def test_diff_notices_a_kernel_that_is_gone(loop: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.ptx"
    other.write_text(LOOP.replace(".entry k(", ".entry other("))
    assert main(["diff", str(loop), str(other), "--fail-on=worse"]) == 1
    out = capfd.readouterr().out
    assert re.search(r"^k +worse", out, re.MULTILINE)
    assert re.search(r"^other +added", out, re.MULTILINE)


def test_diff_of_what_ptxas_refuses(loop: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.ptx"
    bad.write_text(LOOP.replace("bar.sync 0;", "frobnicate 0;"))
    assert main(["diff", str(loop), str(bad)]) == 3
    first, shown, caret, *_ = capfd.readouterr().err.splitlines()
    assert first.startswith(f"{bad}:16:1: error: ptxas: ")
    assert (shown, caret) == ("  frobnicate 0;", "  ^")


def test_verify_reports_every_fault(tmp_path: Path, loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.ptx"
    bad.write_text(kernel(".reg .b32 r;\nadd.s32 r, r;\nadd.s32 1, r, r;\nret;"))
    assert main(["verify", str(loop)]) == 0
    assert main(["verify", str(bad)]) == 3
    lines = [line for line in capfd.readouterr().err.splitlines() if ": error: " in line]
    assert [line.split(": ")[0] for line in lines] == [f"{bad}:6:1", f"{bad}:7:9"]
    assert main(["verify", str(loop), str(bad)]) == 3


STORE = kernel(
    ".reg .b32 %r<3>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\n"
    "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;\nret;"
)


def test_verify_compares_what_two_files_compute(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, same, other = (tmp_path / name for name in ("first.ptx", "same.ptx", "other.ptx"))
    first.write_text(STORE)
    same.write_text(STORE.replace("mul.wide.u32 %rd2, %r1, 4;", "shl.b32 %r2, %r1, 2;\ncvt.u64.u32 %rd2, %r2;"))
    other.write_text(STORE.replace("[%rd3], %r1", "[%rd3], 77"))
    assert main(["verify", str(first), str(same)]) == 0
    assert "k: same" in capfd.readouterr().out
    assert main(["verify", str(first), str(other), "--seeds=1"]) == 1
    assert "k: different" in capfd.readouterr().out


def test_emulate_runs_a_kernel_and_saves_what_comes_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    path, saved = tmp_path / "store.ptx", tmp_path / "out.npy"
    path.write_text(STORE)
    assert main(["emulate", str(path), "--block", "64", "--arg", f"u32[64]={saved}", "--counts=json"]) == 0
    assert json.loads(capfd.readouterr().out)["findings"] == []
    assert np.array_equal(np.load(saved), np.arange(64, dtype=np.uint32))
    assert main(["emulate", str(path), "--block", "64", "--arg", "u32[63]"]) == 1
    assert "out-of-bounds" in capfd.readouterr().err


def test_verify_round_trip(tmp_path: Path, loop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--round-trip", str(tmp_path)]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^all +1 +1 +1 +1 +1$", out, re.MULTILINE)
    (tmp_path / "bad.ptx").write_text("junk")
    assert (
        main(["verify", "--round-trip", str(tmp_path)]) == 0
    )  # ptxas refuses the file, too, so the round trip is not at fault
    assert re.search(r"^all +2 +1 +1 +1 +1$", capfd.readouterr().out, re.MULTILINE)
    assert main(["verify", "--round-trip", str(loop)]) == 3
    assert "is no folder" in capfd.readouterr().err


def test_doctor_reports_every_tool(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["doctor", "--json"]) == 0
    names = [check["name"] for check in json.loads(capfd.readouterr().out)["checks"]]
    assert {"python", "nvcc", "ptxas"} <= set(names)
    monkeypatch.setenv("PTXMOTION_PTXAS", "/nowhere")
    assert main(["doctor"]) == 4
    assert re.search(r"^FAIL  ptxas", capfd.readouterr().out, re.MULTILINE)


def test_version_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    import ptxmotion

    assert main(["--version"]) == 0
    assert capfd.readouterr().out == f"ptxmotion {ptxmotion.__version__}\n"
