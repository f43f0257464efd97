"""`ptxmotion diff` and the gate of `opt` agree, since both use the rule of `cost`."""

import json
import re
from pathlib import Path

import pytest
from ptxmotion.cli import main
from ptxmotion.toolchain.tools import compile_cuda

ROOT = Path(__file__).resolve().parents[2]

#: Files of which the gate keeps, reverts and searches kernels.
FILES = (
    *(ROOT / "demo").glob("*.cu"),
    *(ROOT / "tests" / "ptx" / f"{name}.ptx" for name in ("lcm_diamond", "adversarial/function_register_parameters")),
)


def verdicts(before: Path, after: Path, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """By name of a kernel: the verdict of `diff`."""
    assert main(["diff", str(before), str(after), "--json", "--no-config", *options]) == 0
    return {each["name"]: each["verdict"] for each in json.loads(capfd.readouterr().out)["kernels"]}


def kept(before: Path, after: Path, capfd: pytest.CaptureFixture[str], *options: str) -> dict[str, bool]:
    """The kernels that the gate decided about → whether it kept them changed."""
    command = ["opt", str(before), "-o", str(after), "--remarks=gate", "--no-config", *options]
    assert main(command) == 0
    found: dict[str, bool] = {}
    for line in capfd.readouterr().err.splitlines():
        if match := re.search(r"remark: gate: (\S+): (.*)", line):
            found[match[1]] = not re.search(r"reverted|machine code is the same", match[2])
    return found


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.name)
def test_diff_and_gate_agree(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.ptx", tmp_path / "after.ptx"
    before.write_text(compile_cuda(source, "sm_90") if source.suffix == ".cu" else source.read_text())
    decided = kept(before, after, capfd, "-O3")
    for name, verdict in verdicts(before, after, capfd).items():
        # A kernel without a decision is unchanged, but a function that it calls may have got better.
        allowed = {True: {"better"}, False: {"identical"}, None: {"identical", "better"}}
        assert verdict in allowed[decided.get(name)], (name, decided)


def test_diff_sees_what_the_gate_saw_with_options_of_ptxas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.ptx", tmp_path / "after.ptx"
    before.write_text(compile_cuda(ROOT / "demo" / "particles.cu", "sm_80"))
    options = ("--ptxas-options=-maxrregcount=24", "--arch=sm_90")
    decided = kept(before, after, capfd, *options)
    assert decided
    found = verdicts(before, after, capfd, *options)
    assert {name: found[name] == "better" for name in decided} == decided
    assert main(["diff", str(before), str(before), "--json", "--no-config", options[0]]) == 0
    (limited,) = json.loads(capfd.readouterr().out)["kernels"]
    assert limited["before"]["figures"]["registers"] <= 24


def test_a_kernel_that_isp_has_split_is_judged_as_by_the_gate(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its machine code has the body twice. Most blocks run the copy without border checks."""
    reads = "".join(
        f"""
        add.s32 %r6, %r4, {offset};
        setp.lt.s32 %p1, %r6, 0; add.s32 %r7, %r6, %r5; selp.b32 %r6, %r7, %r6, %p1;
        setp.ge.s32 %p2, %r6, %r5; sub.s32 %r7, %r6, %r5; selp.b32 %r6, %r7, %r6, %p2;
        mul.wide.s32 %d3, %r6, 4; add.s64 %d3, %d1, %d3; ld.global.u32 %r8, [%d3]; add.s32 %r9, %r9, %r8;"""
        for offset in range(-4, 5)
    )
    before, after = tmp_path / "before.ptx", tmp_path / "after.ptx"
    before.write_text(f"""
    .version 8.0
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 a, .param .u64 o, .param .u32 n)
    {{
        .reg .b32 %r<10>; .reg .b64 %d<4>; .reg .pred %p<4>;
        ld.param.u64 %d1, [a];
        ld.param.u64 %d2, [o];
        ld.param.u32 %r5, [n];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %ntid.x;
        mov.u32 %r3, %tid.x;
        mad.lo.s32 %r4, %r1, %r2, %r3;
        setp.ge.s32 %p3, %r4, %r5;
        @%p3 bra E;
        mov.u32 %r9, 0;
        {reads}
        mul.wide.s32 %d3, %r4, 4; add.s64 %d3, %d2, %d3; st.global.u32 [%d3], %r9;
        E: ret;
    }}
    """)
    isp = ["--passes=isp,copyprop,dce", "--gate=ptxas", "--no-config"]
    assert main(["opt", *isp, str(before), "-o", str(after)]) == 0
    assert "$L_isp_border" in after.read_text()
    assert main(["diff", str(before), str(after), "--json", "--no-config"]) == 0
    (kernel,) = json.loads(capfd.readouterr().out)["kernels"]
    assert kernel["verdict"] == "better"
    sides = [kernel[side]["figures"] for side in ("before", "after")]
    assert sides[0]["weighted instructions"] > sides[1]["weighted instructions"]
    assert sides[0]["instructions"] < sides[1]["instructions"]
