"""Options for ptxas, and modules that are newer than the ptxas found."""

import stat
from pathlib import Path

import pytest
from motion import DIVISION_AGAIN
from ptxmotion.cli import main
from ptxmotion.judges import judge_of
from ptxmotion.toolchain.cubin import read_cubin
from ptxmotion.toolchain.ptxas_judge import PtxasJudge
from ptxmotion.toolchain.tools import ToolMissing, find_ptxas, find_tool

NEWER = DIVISION_AGAIN.replace(".version 8.0", ".version 9.99")

#: Values that live at the same time, so that a limit on registers makes ptxas spill.
MANY = 80
WIDE = (
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd;\n"
    f".reg .f32 %f<{MANY}>;\nld.param.u64 %rd, [p];\n"
    + "".join(f"ld.volatile.global.f32 %f{n}, [%rd+{4 * n}];\n" for n in range(MANY))
    + "".join(f"st.volatile.global.f32 [%rd+{4 * n}], %f{MANY - 1 - n};\n" for n in range(MANY))
    + "ret;\n}\n"
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "in.ptx"
    path.write_text(DIVISION_AGAIN)
    return path


def opt(*arguments: object) -> int:
    return main(["opt", "--no-config", *map(str, arguments)])


def test_options_reach_the_emitted_code(source: Path, tmp_path: Path) -> None:
    source.write_text(WIDE)
    cubin = tmp_path / "out.cubin"
    found: dict[str, tuple[int, int]] = {}
    for options in ("-maxrregcount=32", "-maxrregcount=128"):
        assert opt(source, "-O0", "--emit=cubin", f"--ptxas-options={options},-O3", "-o", cubin) == 0
        code = read_cubin(cubin.read_bytes())["k"]
        found[options] = (code.registers, code.local_accesses)
    assert found["-maxrregcount=32"][0] <= 32 and found["-maxrregcount=32"][1] > 0
    assert found["-maxrregcount=128"][0] > 32 and found["-maxrregcount=128"][1] == 0


def test_options_reach_the_gate_and_its_cache(tmp_path: Path) -> None:
    spills = [
        PtxasJudge(folder=tmp_path, options=options).figures(WIDE)["k"].spills
        for options in (("-maxrregcount=32",), (), ("-maxrregcount=32",))
    ]
    assert spills[0] == spills[2] > spills[1] == 0


@pytest.mark.parametrize("options", ["-o=x", "--output-file=x", "-arch=sm_80", "-optf=x", "maxrregcount=32", "-g", ""])
def test_other_options_are_refused(source: Path, options: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert opt(source, f"--ptxas-options={options}") == 2
    assert "is no option=value of ptxas that changes only the code" in capfd.readouterr().err


def test_options_without_ptxas_are_refused(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for others in (["-O1"], ["--gate=static"], ["--gate=off"]):
        assert opt(source, "--ptxas-options=-O2", *others) == 2
        assert "neither --emit nor the gate runs ptxas here" in capfd.readouterr().err


def test_newer_ptx_falls_back_with_the_remedy(source: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source.write_text(NEWER)
    assert opt(source) == 0
    printed = capfd.readouterr().err
    assert "reads PTX up to" in printed and "the module is PTX 9.99" in printed
    assert "so the gate goes by accesses to memory" in printed and "pip install --upgrade nvidia-cuda-nvcc" in printed
    assert opt(source, "--gate=ptxas") == 4
    assert opt(source, "--emit=cubin", "-O0", "-o", source.with_suffix(".cubin")) == 4


def test_a_newer_ptxas_of_the_system_is_taken(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if find_tool("ptxas").source == "system":
        pytest.skip("ptxas is that of the system, which CUDA_HOME replaces")
    real = find_tool("ptxas").path
    newer = tmp_path / "cuda" / "bin" / "ptxas"
    newer.parent.mkdir(parents=True)
    newer.write_text(
        f'#!/bin/sh\ncase "$1" in --list-version) echo 9.0; echo 9.99; exit;; esac\n'
        f'test -f module.ptx && sed -i s/9.99/9.0/ module.ptx\nexec {real} "$@"\n'
    )
    newer.chmod(newer.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert find_ptxas(NEWER).path == newer
    assert find_ptxas(DIVISION_AGAIN).path == real
    source.write_text(NEWER)
    assert opt(source) == 0
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("PTXMOTION_PTXAS", str(real))  # a ptxas that the user has chosen is still used
    with pytest.raises(ToolMissing, match="unset PTXMOTION_PTXAS"):
        find_ptxas(NEWER)
    assert judge_of("auto", version="9.99")[1]
