"""`diff`: kernels are identical only if everything that affects behaviour is equal, and the verdict follows the rule
of the gate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from motion import DIVISION_AGAIN
from ptxmotion.cli import main
from ptxmotion.toolchain.machine_diff import KernelDiff, figures

MODULE = """
.version 8.0
.target sm_90a
.address_size 64
.visible .global .align 4 .u32 g[2] = {1, 2};
.visible .global .align 4 .u32 h[2] = {3, 4};
.global .align 4 .b8 z[64];
.const .align 4 .u32 c[2] = {5, 6};
.visible .global .align 8 .u64 q = g;
.visible .entry k(.param .u64 a, .param .u32 n) .maxntid 128
{
    .reg .b64 %d<3>; .reg .b32 %r<6>;
    ld.param.u64 %d1, [a];
    ld.global.u32 %r1, [g];
    ld.global.u32 %r2, [h];
    ld.global.u32 %r3, [z];
    ld.const.u32 %r4, [c];
    add.u32 %r1, %r1, %r2;
    add.u32 %r1, %r1, %r3;
    add.u32 %r1, %r1, %r4;
    st.global.u32 [%d1], %r1;
    ret;
}
"""

CHANGES = [
    (".maxntid 128", ".maxntid 64, 2", "largest block (.maxntid)"),
    (".maxntid 128", ".maxntid 256", "largest block (.maxntid)"),
    (".maxntid 128", ".reqntid 128", "block (.reqntid)"),
    (".maxntid 128", ".maxntid 128 .reqnctapercluster 2", "blocks of a cluster"),
    (".maxntid 128", ".maxntid 128 .reqnctapercluster 2 .explicitcluster", "explicit cluster (.explicitcluster)"),
    ("z[64]", "z[32]", "variable z"),
    ("z[64]", "z[64]; .global .align 4 .b8 y[64]", "variable y"),
    ("g[2] = {1, 2}", "g[2] = {1, 7}", "variable g"),
    ("g[2] = {1, 2}", "g[2]", "variable g"),
    ("c[2] = {5, 6}", "c[2] = {5, 8}", "variable c"),
    ("q = g", "q = h", "variable q"),
    (".visible .global .align 4 .u32 g", ".weak .global .align 4 .u32 g", "variable g"),
    (".visible .global .align 4 .u32 g", ".visible .global .attribute(.managed) .align 4 .u32 g", "variable g"),
    (".visible .entry", ".weak .entry", "binding"),
    (".param .u32 n", ".param .u64 n", "parameters"),
]


def diff_of(before: str, after: str) -> KernelDiff:
    return KernelDiff("k", figures(before)["k"], figures(after)["k"])


@pytest.mark.parametrize(("old", "new", "what"), CHANGES, ids=[f"{old} {new}" for old, new, _ in CHANGES])
def test_all_that_affects_behaviour_is_compared(old: str, new: str, what: str) -> None:
    assert old in MODULE
    found = diff_of(MODULE, MODULE.replace(old, new))
    assert not found.is_identical
    assert found.verdict != "identical"
    assert what in [name for name, _, _ in found.changes]


def test_initialised_variables_that_change_places() -> None:
    one, other = "g[2] = {1, 2};", "h[2] = {3, 4};"
    swapped = MODULE.replace(one, "?").replace(other, one).replace("?", other)
    assert swapped != MODULE
    found = diff_of(MODULE, swapped)
    assert not found.is_identical
    assert {"variable g", "variable h"} <= {name for name, _, _ in found.changes}


def test_the_same_module_is_identical() -> None:
    found = diff_of(MODULE, MODULE.replace("%r", "%s"))
    assert found.is_identical
    assert found.changes == []


def test_what_differs_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "a.ptx", tmp_path / "b.ptx"
    before.write_text(MODULE)
    after.write_text(MODULE.replace(".maxntid 128", ".reqntid 128"))
    assert main(["diff", str(before), str(after), "--fail-on=different"]) == 1
    out = capfd.readouterr().out
    assert "block (.reqntid)" in out
    assert "0 of 1 kernels are identical" in out


@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_what_the_gate_keeps_is_better_by_diff(
    level: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    before, after = tmp_path / "a.ptx", tmp_path / "b.ptx"
    before.write_text(DIVISION_AGAIN)
    assert main(["opt", level, "--gate=ptxas", str(before), "-o", str(after)]) == 0
    assert after.read_text() != DIVISION_AGAIN
    capfd.readouterr()
    assert main(["diff", str(before), str(after), "--fail-on=worse", "--json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)["kernels"]
    assert found["verdict"] == "better"


def test_more_registers_alone_make_no_kernel_worse() -> None:
    """The gate keeps such a kernel, so that `diff` must not call it worse."""
    import dataclasses

    found = figures(MODULE)["k"]
    more = dataclasses.replace(found, code=dataclasses.replace(found.code, registers=found.code.registers + 1))
    diff = KernelDiff("k", found, more)
    assert diff.grown == ("registers",)
    assert (diff.worse, diff.verdict) == ("", "different")
    slower = dataclasses.replace(found, code=dataclasses.replace(found.code, cycles=2 * found.code.cycles))
    assert KernelDiff("k", found, slower).verdict == "worse"


def test_relocatable_modules_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that calls a function of another module."""
    text = """\
.version 9.0
.target sm_90
.address_size 64
.extern .func (.param .b32 result) other (.param .b32 value);
.visible .entry k(.param .u64 out) {
  .reg .b64 %rd<3>;
  .reg .b32 %r<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  ADD
  { .param .b32 value; .param .b32 result;
    st.param.b32 [value], %r2;
    call (result), other, (value);
    ld.param.b32 %r3, [result]; }
  st.global.u32 [%rd1], %r3;
  ret;
}
"""
    for name, what in (("a", "add.u32 %r2, %r1, 1;"), ("b", "add.u32 %r2, 1, %r1;"), ("c", "mul.lo.u32 %r2, %r1, 77;")):
        (tmp_path / f"{name}.ptx").write_text(text.replace("ADD", what))
    assert main(["diff", "--no-config", "--fail-on=different", str(tmp_path / "a.ptx"), str(tmp_path / "b.ptx")]) == 0
    assert main(["diff", "--no-config", "--fail-on=different", str(tmp_path / "a.ptx"), str(tmp_path / "c.ptx")]) == 1
    assert "1 of 1 kernels are identical" in capsys.readouterr().out
