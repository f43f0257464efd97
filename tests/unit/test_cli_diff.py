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
    """What `diff` says about each kernel."""
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


@pytest.mark.parametrize("level", ["-O2", "-O3"])
@pytest.mark.parametrize("source", FILES, ids=lambda path: path.name)
def test_diff_and_gate_agree(source: Path, level: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "before.ptx", tmp_path / "after.ptx"
    before.write_text(compile_cuda(source, "sm_90") if source.suffix == ".cu" else source.read_text())
    decided = kept(before, after, capfd, level)
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
