"""`ptxmotion contract`: what is printed, and the exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from contract_modules import SUM_PTX, sum_contract
from contract_versions import HEAD
from ptxmotion.cli import main
from ptxmotion.contract import Contract, Holds, KernelContract, LaunchChange, Parameter, Version, parse
from ptxmotion.contract.wording import kernel_words
from ptxmotion.toolchain.demangle import demangled

SHOWN = """\
contract of the module with SHA-256 {digest}, written by test

sum(y: pointer, x: pointer, n: u32, mark: pointer)
  1. sum_1: buffers disjoint
     if the allocation of y and the allocation of x are disjoint
     if the allocation of mark and the allocation of x are disjoint
     if bytes 0 to 4 * (block_x * grid_x + n - 1) if n > 0 else 0 of x are inside the allocation of x
     faster if warps_per_scheduler < 4
  2. sum_2: ranges disjoint
     if bytes 0 to 4 * block_x * grid_x of y and bytes 0 to t1 of x are disjoint
     if bytes 0 to 4 of mark and bytes 0 to t1 of x are disjoint
     if n > 0 and y % 4 == 0
     faster if warps_per_scheduler < 4
     with the further arguments n + 1
     where t1 = 4 * (block_x * grid_x + n - 1) if n > 0 else 0
  3. sum (the kernel itself, otherwise)
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    contract, module = tmp_path / "a.json", tmp_path / "a.ptx"
    contract.write_text(sum_contract(prefer_when=parse("warps_per_scheduler < 4")).dumps())
    module.write_text(SUM_PTX)
    return str(contract), str(module)


def test_contract_show_prints_the_contract(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", "show", files[0]]) == 0
    assert capsys.readouterr().out == SHOWN.format(digest=sum_contract().sha256)
    assert main(["contract", "show", files[0], "--kernel", "sum"]) == 0
    assert main(["contract", "show", files[0], "--kernel", "other"]) == 3
    assert capsys.readouterr().err == "ptxmotion: error: the contract has no kernel 'other'; there are sum\n"


def test_names_of_a_compiler_are_shown_as_in_the_source() -> None:
    name = "_Z3addPfi"
    parameters = (Parameter(f"{name}_param_0", 0, 8, "u64", pointer=True), Parameter(f"{name}_param_1", 8, 4, "u32"))
    repeated = "4 * (block_x * grid_x + arg1)"
    conditions = [Holds(parse(f"{repeated} < {number}")) for number in (7, 8)]
    conditions.append(Holds(parse(" or ".join(f"block_x == {number} * grid_y" for number in range(10, 30)))))
    kernel = KernelContract(name, parameters, (Version("v", requires=tuple(conditions)), Version(name)))
    lines = kernel_words(kernel, {name: "add(float*, int)"}.__getitem__).splitlines()
    assert lines[:5] == [
        "add(float*, int)",
        "  _Z3addPfi(param_0: pointer, param_1: u32)",
        "  1. v",
        "     if t1 < 7",
        "     if t1 < 8",
    ]
    assert "     where t1 = 4 * (block_x * grid_x + param_1)" in lines
    assert max(map(len, lines)) <= 110 and sum(line.startswith("         ") for line in lines) >= 2


def test_a_kernel_is_selected_by_its_name_in_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if demangled("_Z3addPfi") == "_Z3addPfi":
        pytest.skip("this machine has no C++ library")
    path = tmp_path / "c.json"
    names = ("_Z3addPfi", "_Z3subPfi")
    path.write_text(Contract("0" * 64, {name: KernelContract(name, (), (Version(name),)) for name in names}).dumps())
    for given in ("_Z3addPfi", "add(float*, int)", "add"):
        assert main(["contract", "show", str(path), "--kernel", given]) == 0
        out = capsys.readouterr().out
        assert "add(float*, int)" in out and "sub" not in out
    assert main(["contract", "show", str(path), "--kernel", "ad"]) == 3
    assert "did you mean 'add'?" in capsys.readouterr().err
    path.write_text(Contract("0" * 64, {}).dumps())
    assert main(["contract", "show", str(path)]) == 0


def test_a_contract_that_fits(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, module = files
    assert main(["contract", "check", contract]) == 0
    assert capsys.readouterr().out == "the contract is valid: number of kernels 1, of their versions 2\n"
    assert main(["contract", "check", contract, "--module", module]) == 0
    assert (
        capsys.readouterr().out
        == "the contract is valid and fits the module: number of kernels 1, of their versions 2\n"
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(contract).read_bytes())))
    assert main(["contract", "check", "-", "--module", module]) == 0


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "// more\n", "the contract is of another module: the SHA-256 of the PTX differs"),
        (".entry sum_1(", ".entry sum_3(", "sum, version sum_1: the module has no such entry"),
        (".entry sum(", ".entry sum_3(", "sum: the module has no such entry"),
        (
            ".entry sum_1(.param .u64 y, .param .u64 x",
            ".entry sum_1(.param .u64 y, .param .u32 x",
            "sum, version sum_1: its first parameters are not those of the kernel",
        ),
        (", .param .u32 extra", "", "sum, version sum_2: it has 0 further parameters, and the contract has 1"),
        (", .param .u32 extra", ", .param .b8 extra[3]", "sum, version sum_2: a further parameter is a structure"),
        (".param .u64 mark)\n{", ".param .u64 mark)\n.maxntid 32\n{", "sum, version sum_1: its .maxntid is not that"),
    ],
)
def test_a_contract_that_does_not_fit(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], old: str, new: str, fault: str
) -> None:
    contract, module = files
    text = SUM_PTX.replace(old, new, 1) if old else SUM_PTX + new
    Path(module).write_text(text)
    assert main(["contract", "check", contract, "--module", module]) == 1
    out = capsys.readouterr().out
    assert fault in out
    assert out.splitlines()[-1] == "so the kernels themselves would be launched"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.json: error: the contract is no JSON"),
        ("{}", "a.json: error: 'contract_version' is a required property"),
        (sum_contract().dumps().replace("arg2 > 0 and", "arg7 > 0 and"), "sum, version sum_2: error: there is no"),
    ],
)
@pytest.mark.parametrize("action", ["show", "check"])
def test_a_damaged_contract(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str], text: str, message: str, action: str
) -> None:
    Path(files[0]).write_text(text)
    assert main(["contract", action, files[0]]) == 3
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out


def test_a_module_that_is_no_ptx(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[1]).write_text("no PTX")
    assert main(["contract", "check", files[0], "--module", files[1]]) == 3
    assert main(["contract", "check", files[0], "--module", files[1] + ".missing"]) == 3
    assert "No such file" in capsys.readouterr().err


def test_a_changed_launch_in_words() -> None:
    one = parse("1")
    change = LaunchChange((parse("2 * grid_x"), one, one), (parse("block_x // 2"), one, one), parse("4 * arg2"))
    kernel = sum_contract().kernels["sum"]
    words = kernel_words(KernelContract("sum", kernel.parameters, (Version("sum_1", launch=change), Version("sum"))))
    assert words.splitlines()[2:5] == [
        "     with grid (2 * grid_x, 1, 1)",
        "     with block (block_x // 2, 1, 1)",
        "     with 4 * n bytes of shared memory",
    ]
    assert Contract("0" * 64, {"sum": kernel}).producer == ""


#: ``c[i * m + j] += a[i * m + k] * b[k * n + j]``. The ranges of the accesses need several conditions.
PRODUCT = (
    HEAD
    + """
.visible .entry two(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .u32 m)
{
    .reg .pred %p, %q;
    .reg .b32 %r<16>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r9, [m];
    mov.u32 %r2, %tid.x;
    mov.u32 %r8, %ctaid.x;
    setp.ge.s32 %p, %r2, %r1;
    @%p bra END;
    mad.lo.s32 %r3, %r8, %r9, %r2;
    mul.wide.s32 %rd4, %r3, 4;
    add.s64 %rd5, %rd3, %rd4;
    mov.u32 %r4, 0;
    setp.ge.s32 %p, %r4, %r9;
    @%p bra END;
LOOP:
    mad.lo.s32 %r5, %r8, %r9, %r4;
    mul.wide.s32 %rd6, %r5, 4;
    add.s64 %rd7, %rd1, %rd6;
    mad.lo.s32 %r6, %r4, %r1, %r2;
    mul.wide.s32 %rd8, %r6, 4;
    add.s64 %rd9, %rd2, %rd8;
    ld.global.f32 %f1, [%rd7];
    ld.global.f32 %f2, [%rd9];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f3;
    add.s32 %r4, %r4, 1;
    setp.lt.s32 %q, %r4, %r9;
    @%q bra LOOP;
END:
    ret;
}
"""
)


def test_the_order_of_conditions_does_not_depend_on_hashes(tmp_path: Path) -> None:
    source, contract = tmp_path / "product.ptx", tmp_path / "contract.json"
    source.write_text(PRODUCT)
    command = [sys.executable, "-m", "ptxmotion", "opt", "--no-config", "-O3", "--gate=off", f"--contract={contract}"]
    texts: set[str] = set()
    for seed in ("1", "2", "4"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, str(source), "-o", str(tmp_path / "out.ptx")], env=environment, check=True)
        texts.add(contract.read_text())
    assert len(texts) == 1 and "holds" in texts.pop()
