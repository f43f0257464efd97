"""`emulate` and the comparison of two files, as functions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.cli import main, progress
from ptxmotion.harness.verification.equivalence import DIFFERENT, INCONCLUSIVE, SAME, compare, verdict
from ptxmotion.harness.verification.generated_inputs import param_uses
from ptxmotion.ptx import parse
from scale_kernel import HEAD, scale_kernel

BODY = scale_kernel()


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    path = tmp_path / "scale.ptx"
    path.write_text(HEAD + BODY)
    return path


def emulate(*words: object) -> int:
    return main(["emulate", *map(str, words), "--no-config"])


def verify(*words: object) -> int:
    return main(["verify", *map(str, words), "--no-config"])


@pytest.fixture
def reworded(scale: Path) -> Path:
    """The kernel of `scale` with another text, so that both must be run to compare them."""
    path = scale.with_name("reworded.ptx")
    path.write_text(scale.read_text().replace("DONE", "END"))
    return path


def test_arrays_from_and_to_files(scale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(source, np.arange(100, dtype=np.float32))
    code = emulate(
        scale, "--grid", 4, "--block", "32", "--arg", f"{source}:{target}", "--arg", "f32:2", "--arg", "u32:100",
        "--counts", "json", "--trace", tmp_path / "t.npy",
    )  # fmt: skip
    assert code == 0
    assert np.array_equal(np.load(target), np.arange(100, dtype=np.float32) * 2)
    assert len(np.load(tmp_path / "t.npy")) == 200
    assert json.loads(capsys.readouterr().out)["global_load_requests"] == 4


def test_table_and_generated_arrays(scale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "out.npy"
    code = emulate(scale, "--block", 8, "--arg", f"f32[8]:range={saved}", "--arg", "f32:3", "--arg", "u32:8")
    assert code == 0
    assert np.load(saved).tolist() == [0, 3, 6, 9, 12, 15, 18, 21]
    assert "warp instructions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "takes 3 arguments, not 0"),
        (["--arg", "what"], 2, "neither an array, a value nor a .npy file"),
        (["--arg", "f32[8]", "--arg", "f32:x"], 2, "'x' is not a value of type f32"),
        (["--arg", "f32[8]:odd"], 2, "neither zeros, range"),
        (["--kernel", "other"], 2, "no kernel 'other'; there are scale"),
        (["--kernel", "scal"], 2, "no kernel 'scal' (did you mean 'scale'?)"),
        (["--arg", "f32[8]"], 2, "one --arg for each parameter, which are x (.u64), a (.f32), n (.u32)"),
        (["--arg", "f3[8]"], 2, "'f3' of argument 'f3[8]' is no type (did you mean 'f32'?); there are i8 i16"),
        (["--arg", "single:2"], 2, "'single' of argument 'single:2' is no type; there are i8 i16"),
        (["--arg", "f32[8]"], 2, "; for example --arg 'f32[1000]:normal' --arg f32:2.5 --arg u32:1\n"),
        (["--block", "2000", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"], 2, "larger than"),
        (["--block", "16", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:9"], 1, "out-of-bounds"),
        (
            ["--block", "32,33", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"],
            2,
            "1056 threads, more than 1024",
        ),
        (["--grid", "0", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"], 2, "grid (0, 1, 1) is empty"),
        (["--grid", "3,0", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"], 2, "grid (3, 0, 1) is empty"),
        (["--shared", "300000", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"], 2, "300000 bytes of shared"),
        (["--arg", "f32[8]", "--arg", "i32:1", "--arg", "u32:8"], 2, "'a' is .f32, the argument is int32"),
        (["--arg", "f32[8]", "--arg", "f64:1", "--arg", "u32:8"], 2, "'a' has 4 bytes, the argument has 8"),
        (["--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32[8]"], 2, "'n' (.u32) cannot take a ndarray"),
        (["--arg", "f32[8]", "--arg", "0:bytes"], 2, "not an even number of hexadecimal digits"),
        (["--arg", "f32[8]=/no/such/folder/x.npy", "--arg", "f32:1", "--arg", "u32:8"], 3, "the folder does not exist"),
        (
            ["--trace", "/no/such/t.npy", "--arg", "f32[8]", "--arg", "f32:1", "--arg", "u32:8"],
            3,
            "the folder does not exist",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    scale: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    assert emulate(scale, *words) == code
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("budget", ["0", "-3", "x"])
def test_a_budget_is_positive(scale: Path, budget: str) -> None:
    assert emulate(scale, "--budget", budget) == 2


def test_files_that_hold_no_array(scale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty, text, several = (tmp_path / f"{name}.npy" for name in ("empty", "text", "several"))
    empty.write_bytes(b"")
    text.write_text("hello")
    with several.open("wb") as file:
        np.savez(file, np.zeros(1), np.zeros(2))
    for path in (empty, text, several):
        assert emulate(scale, "--arg", path, "--arg", "f32:1", "--arg", "u32:0") == 2
        said = capsys.readouterr().err
        assert path.name in said
        assert said.count("\n") == 1


def test_what_was_printed_before_a_fault_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "printing.ptx"
    path.write_text(
        HEAD
        + """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 text[7] = {104, 101, 108, 108, 111, 10, 0};
.visible .entry k()
{
    .reg .b64 %d<3>; .reg .b32 %r;
    mov.u64 %d0, text;
    cvta.global.u64 %d1, %d0;
    { .param .b64 f; .param .b64 v; .param .b32 r;
      st.param.b64 [f], %d1; st.param.b64 [v], 0; call.uni (r), vprintf, (f, v); ld.param.b32 %r, [r]; }
    trap;
}
"""
    )
    assert emulate(path) == 1
    said = capsys.readouterr()
    assert said.out == "hello\n"
    assert "trap" in said.err


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulate(tmp_path / "none.ptx") == 3
    bad = tmp_path / "bad.ptx"
    bad.write_text("what")
    assert emulate(bad) == 3
    assert "error" in capsys.readouterr().err


def outcome(first: str, second: str) -> str:
    return verdict("k", list(compare(parse(HEAD + first), parse(HEAD + second)))).outcome


def test_a_kernel_equals_itself() -> None:
    assert outcome(BODY, BODY) == SAME


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mul.rn.f32 %f3, %f2, %f1", "add.rn.f32 %f3, %f2, %f1"),
        ("st.global.f32 [%d3], %f3;", ""),
        ("ld.global.f32 %f2, [%d3];", "ld.global.f32 %f2, [%d3+4];"),
        (".entry scale", ".entry other"),
        (".param .u32 n", ".param .u32 n, .param .u32 m"),
        ("@%p bra DONE;", "ld.global.f32 %f2, [%d1+1000000]; @%p bra DONE;"),
        ("ret;", "trap;"),
    ],
)
def test_changes_are_seen(old: str, new: str) -> None:
    assert outcome(BODY, BODY.replace(old, new)) == DIFFERENT


def test_a_first_that_does_not_end_says_nothing() -> None:
    endless = ".visible .entry k() { L: bra L; }"
    found = compare(parse(HEAD + endless), parse(HEAD + ".visible .entry k() { ret; }"), seconds=1)
    assert verdict("k", list(found)).outcome == INCONCLUSIVE


def test_uses_of_parameters() -> None:
    uses = param_uses(parse(HEAD + BODY).kernel("scale"))
    assert [(use.is_pointer, use.is_float) for use in uses] == [(True, True), (False, False), (False, False)]


def test_inputs_from_a_file(tmp_path: Path, scale: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tmp_path / "inputs.py"
    inputs.write_text(
        "import numpy as np\n"
        "def launches(seed):\n"
        "    x = np.arange(64, dtype='f4') + seed\n"
        "    yield dict(kernel='scale', grid=1, block=64, args=[x, np.float32(2), np.uint32(64)])\n"
    )
    other = tmp_path / "other.ptx"
    other.write_text((HEAD + BODY).replace("mul.rn.f32 %f3, %f2, %f1", "add.rn.f32 %f3, %f2, %f2"))
    # For these inputs a sum and a product give the same result.
    assert verify(scale, other, "--inputs", inputs, "--seeds", 2) == 0
    assert verify(scale, other) == 1
    said = capsys.readouterr().out
    assert "memory differs in" in said
    assert "of parameter 'x'" in said


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("x = 1 / 0", 3, "fails: ZeroDivisionError: division by zero"),
        ("launches = 5", 3, "defines no function 'launches'"),
        ("what are these", 3, "fails: SyntaxError"),
        ("def launches(seed): return 5", 3, "fails: TypeError"),
        ("def launches(seed): return [5]", 3, "returns a int, not a dictionary"),
        ("def launches(seed): return [dict(kernel='scale', grid=1, block=1)]", 3, "a launch lacks 'args'"),
        ("def launches(seed): return [dict(kernel='scale', grid=1, block=1, args=[], x=2)]", 3, "unknown key 'x'"),
        ("def launches(seed): return []", 5, "there is no input for this kernel"),
        ("def launches(seed): return [dict(kernel='scale', grid=1, block=1, args=[])]", 5, "takes 3 arguments, not 0"),
    ],
)
def test_files_of_inputs_that_say_nothing(
    scale: Path,
    reworded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    code: int,
    words: str,
) -> None:
    inputs = tmp_path / "inputs.py"
    inputs.write_text(text)
    assert verify(scale, reworded, "--inputs", inputs, "--seeds", 1) == code
    said = capsys.readouterr()
    assert words in (said.err if code == 3 else said.out)
    assert said.err.count("\n") == 1


def test_nothing_to_compare_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "functions.ptx"
    path.write_text(HEAD + ".func f() { ret; }\n")
    assert verify(path, path) == 5
    assert "no kernel to compare" in capsys.readouterr().err
    assert verify(path, path, "--seeds", 0) == 2


def test_a_variable_that_others_see_may_not_go() -> None:
    body = ".visible .entry k() { st.global.b32 [v], 1; ret; }"
    assert outcome(".visible .global .b32 v;\n" + body, ".visible .global .b32 v;\n" + body) == SAME
    gone = ".visible .entry k() { ret; }"
    assert outcome(".visible .global .b32 v;\n" + body, gone) == DIFFERENT
    # The variable is not visible outside of the module, so it may be removed. Then there is nothing to compare.
    assert outcome(".global .b32 v;\n" + body, gone) == INCONCLUSIVE


def test_the_verdict_says_how_many_inputs_decided(
    scale: Path, reworded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(scale, reworded, "--seeds", 8) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert re.fullmatch(r"scale: same \(7 of 8 inputs, \d+ changed bytes compared\)", lines[0])
    assert lines[1:] == ["  1 undecided: the first run changes nothing that is compared"]
    assert said.err == ""


def test_an_equal_text_is_not_run(scale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(scale, scale) == 0
    assert capsys.readouterr().out == "scale: same (equal text)\n"
    function = ".func (.param .b32 r) f() { .reg .b32 %r; mov.b32 %r, VALUE; st.param.b32 [r], %r; ret; }\n"
    caller = """.visible .entry k(.param .u64 p) { .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [p];
    { .param .b32 r; call (r), f, (); ld.param.b32 %r, [r]; } st.global.b32 [%d], %r; ret; }\n"""
    one, two = tmp_path / "one.ptx", tmp_path / "two.ptx"
    one.write_text(HEAD + function.replace("VALUE", "1") + caller)
    two.write_text(HEAD + function.replace("VALUE", "2") + caller)
    assert verify(one, one) == 0
    assert verify(one, two) == 1, "a function that the kernel calls has another text"


def test_an_inconclusive_kernel_has_its_own_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "silent.ptx", tmp_path / "other.ptx"
    text = HEAD + BODY.replace("st.global.f32 [%d3], %f3;", "")
    path.write_text(text)
    other.write_text(text.replace("DONE", "END"))
    assert verify(path, other) == 5
    said = capsys.readouterr()
    assert re.match(r"scale: inconclusive \(none of \d+ inputs decides\)\n", said.out)
    assert said.err == (
        "ptxmotion: warning: nothing is known about scale: no input decided: name inputs with --inputs\n"
    )


def test_several_kernels_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one.ptx", tmp_path / "two.ptx"
    one.write_text(HEAD + BODY + BODY.replace("entry scale", "entry other"))
    two.write_text(HEAD + BODY + BODY.replace("entry scale", "entry other").replace("mul.rn", "add.rn"))
    assert verify(one, two) == 1
    said = capsys.readouterr()
    assert said.out.startswith("scale: same (equal text)\nother: different")
    assert said.err == "kernels: 1 same, 1 different\n"
    assert verify(one, two, "--kernel", "othr") == 2
    assert "has no kernel 'othr' (did you mean 'other'?)" in capsys.readouterr().err


def test_the_budget_ends_the_comparison(scale: Path, reworded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(scale, reworded, "--budget", "1e-9") == 5
    said = capsys.readouterr()
    assert re.search(r"^  \d+ not compared: the time for this kernel ended$", said.out, re.MULTILINE)
    assert said.out.startswith("scale: inconclusive (none of 0 inputs decides)\n")
    assert "name inputs with --inputs or allow more time with --budget" in said.err


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "x"])
def test_the_budget_is_a_time(scale: Path, text: str) -> None:
    assert verify(scale, scale, f"--budget={text}") == 2


def test_a_terminal_shows_the_kernel(
    scale: Path, reworded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    assert verify(scale, reworded, "--seeds", 2) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert verify(scale, reworded, "--seeds", 2) == 0
    said = capsys.readouterr()
    assert "kernel 1 of 1: scale" in said.err
    assert said.out.startswith("scale: same"), "verdicts go to stdout, also while progress is shown"
