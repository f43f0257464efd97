"""The command line never shows a traceback: exit codes, messages, and old files left as they were."""

import io
import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import BAD_INPUTS, HEAD, BadInput, kernel
from ptxmotion import cli, settings
from ptxmotion.cli import main
from ptxmotion.toolchain.tools import ToolMissing

GOOD = kernel(".reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nst.global.u32 [%rd1], 1;\nret;")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.ptx"
    path.write_text(GOOD)
    return path


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("case", BAD_INPUTS, ids=[case.name for case in BAD_INPUTS])
def test_bad_input_ends_with_3_and_writes_nothing(
    case: BadInput, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, old = tmp_path / "bad.ptx", tmp_path / "old.ptx"
    path.write_bytes(case.data)
    old.write_text("old")
    assert main(["opt", str(path), "-o", str(old), f"--stats-json={tmp_path / 'stats'}", "--no-config"]) == 3
    out, err = capfd.readouterr()
    first, _, caret = err.rstrip("\n").split("\n")
    assert first.startswith(f"{path}:{case.place}")
    assert case.message in first
    assert caret.strip() == "^"
    assert out == ""
    assert old.read_text() == "old"
    assert entries(tmp_path) == ["bad.ptx", "old.ptx"]


@pytest.mark.parametrize("seed", range(8))
def test_mutants_end_with_0_or_3(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = (Path(__file__).parents[1] / "ptx" / "lcm_diamond.ptx").read_bytes()
    rng = random.Random(seed)
    path, out = tmp_path / "mutant.ptx", tmp_path / "out.ptx"
    codes: set[int] = set()
    for _ in range(40):
        path.write_bytes(mutant(source, rng))
        out.write_text("old")
        code = main(["opt", str(path), "-o", str(out), "--no-config"])
        codes.add(code)
        err = capfd.readouterr().err
        assert code in (0, 3), err
        assert "Traceback" not in err
        if code == 3:
            assert out.read_text() == "old"
            assert err.startswith(f"{path}:")
    assert codes == {0, 3}


def mutant(source: bytes, rng: random.Random) -> bytes:
    """``source`` with a few bytes replaced, removed or duplicated, or with its end removed."""
    data = bytearray(source)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 30)]
        elif kind == 3:
            data[at:at] = rng.choice([b"{", b"}", b";", b"[", b'"', b"/*", b"%r1", b".", b"@", b"0x", b"\xff", b"\0"])
        elif rng.random() < 0.2:
            del data[max(at, 1) :]
    return bytes(data)


@pytest.mark.parametrize("verb", ["opt", "analyze", "verify", "emulate"])
def test_cuda_is_not_ptx(verb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k() {}\n")
    assert main([verb, str(path)]) == 3
    assert capfd.readouterr().err == f"{path}: error: this is CUDA C++, not PTX: compile it with nvcc -ptx first\n"
    if verb == "verify":
        assert main(["diff", str(path), str(path)]) == 3
        assert "this is CUDA C++, not PTX" in capfd.readouterr().err


def test_python_is_not_ptx(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.py"
    path.write_text("import numpy\n")
    assert main(["emulate", str(path)]) == 3
    assert f"this is Python, not PTX: `ptxmotion bench run {path}`" in capfd.readouterr().err


def test_missing_and_unreadable_paths(tmp_path: Path, good: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path, message in (
        (tmp_path / "none.ptx", "No such file or directory"),
        (good / "x.ptx", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        assert main(["opt", str(path)]) == 3
        assert capfd.readouterr().err == f"{path}: error: {message}\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(good: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good.chmod(0)
    assert main(["opt", str(good)]) == 3
    assert capfd.readouterr().err == f"{good}: error: Permission denied\n"


def test_outputs_that_cannot_be_written(tmp_path: Path, good: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path, message in (
        (tmp_path / "none" / "out.ptx", "No such file or directory"),
        (good / "out.ptx", "Not a directory"),
        (Path("/dev/full"), "No space left on device"),
    ):
        assert main(["opt", str(good), "-o", str(path)]) == 3
        assert capfd.readouterr().err == f"{path}: error: cannot write: {message}\n"
        assert entries(tmp_path) == ["good.ptx"]


def test_one_output_that_cannot_be_written_keeps_the_others_back(tmp_path: Path, good: Path) -> None:
    out = tmp_path / "out.ptx"
    assert main(["opt", str(good), "-o", str(out), "--stats-json=/dev/full"]) == 3
    assert main(["opt", str(good), "-o", str(out), f"--stats-json={tmp_path / 'none' / 's'}"]) == 3
    assert entries(tmp_path) == ["good.ptx"]


def run(*arguments: str, limit: Callable[[], None] | None = None, stdout: int = subprocess.PIPE) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ptxmotion", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("option", ["--contract=", "--remarks-output=", "--stats-json="])
def test_a_report_replaces_neither_input_nor_output(
    option: str, tmp_path: Path, good: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link.ptx"
    link.symlink_to(good)
    out = tmp_path / "out.ptx"
    for report, others in ((good, ["-o", str(out)]), (link, ["-o", str(out)]), (out, ["-o", str(out)])):
        assert main(["opt", "-O1", str(good), f"{option}{report}", *others, "--no-config"]) == 2
        assert "the same file" in capfd.readouterr().err
    assert good.read_text() == GOOD and not out.exists()
    assert main(["opt", "-O1", str(good), f"{option}{os.devnull}", "-o", str(good), "--no-config"]) == 0


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, good: Path) -> None:
    """A limit on the size of files simulates a full disk: only a part of the file can be written."""
    good.write_text(GOOD.replace("ret;", "st.global.u32 [%rd1+8], 2;\n" * 2000 + "ret;"))
    out = tmp_path / "out.ptx"
    out.write_text("old")
    code, err = run(
        "opt", str(good), "-o", str(out), limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    )
    assert code == 3
    assert err == f"{out}: error: cannot write: File too large\n"
    assert out.read_text() == "old"
    assert entries(tmp_path) == ["good.ptx", "out.ptx"]


def test_a_full_stdout(good: Path) -> None:
    with open("/dev/full", "wb") as full:
        code, err = run("opt", str(good), stdout=full.fileno())
    assert code == 3
    assert err == "<stdout>: error: No space left on device\n"


def test_a_closed_pipe_is_no_matter_of_words(good: Path) -> None:
    good.write_text(GOOD.replace("ret;", "st.global.u32 [%rd1+8], 2;\n" * 20000 + "ret;"))
    reading, writing = os.pipe()
    os.close(reading)
    code, err = run("opt", str(good), stdout=writing)
    os.close(writing)
    assert (code, err) == (141, "")


def test_an_interrupt_is_no_matter_of_words(
    good: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("ptxmotion.driver.optimize_module", interrupt)
    assert main(["opt", str(good), "-o", str(good.parent / "out.ptx")]) == 130
    assert capfd.readouterr().err == ""
    assert entries(good.parent) == ["good.ptx"]


def test_an_error_of_ours_saves_a_reproducer(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(crashes))

    def fail(*_: object) -> bool:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("ptxmotion.driver.optimize_module", fail)
    assert main(["opt", str(good), "--verify-each", "-o", str(tmp_path / "out.ptx")]) == 70
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("ptxmotion: internal error: ZeroDivisionError: by design; the input and the traceback are ")
    assert err.count("\n") == 1
    (saved,) = crashes.iterdir()
    assert str(saved) in err
    text = saved.read_text()
    assert f"// command: ptxmotion opt {good} --verify-each -o {tmp_path / 'out.ptx'}\n" in text
    assert f"// again: ptxmotion opt {saved} --verify-each\n" in text
    assert "// ZeroDivisionError: by design\n" in text
    assert text.endswith(GOOD)
    assert main(["opt", str(saved), "--verify-each"]) == 70, "the command `again` shows the error again"
    monkeypatch.undo()
    assert main(["opt", str(saved), "-o", "/dev/null"]) == 0


def test_an_error_of_ours_saves_every_input(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = tmp_path / "crashes"
    crashes.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(crashes))

    def fail(*_: object, **__: object) -> bool:
        raise ZeroDivisionError("by design")

    other = tmp_path / "other.ptx"
    other.write_text(GOOD.replace("], 1;", "], 2;"))
    monkeypatch.setattr("ptxmotion.harness.verification.equivalence.compare", fail)
    assert main(["verify", str(good), str(other)]) == 70
    said = capfd.readouterr().err
    saved = {path.read_text().rpartition("// input: ")[2].split("\n")[0]: path for path in crashes.iterdir()}
    assert set(saved) == {str(good), str(other)}
    assert all(str(path) in said for path in saved.values())
    again = f"// again: ptxmotion verify {saved[str(good)]} {saved[str(other)]}\n"
    assert all(again in path.read_text() for path in saved.values())
    monkeypatch.setattr("ptxmotion.driver.optimize_module", fail)
    out = tmp_path / "out"
    assert main(["opt", "-O1", str(good), str(other), "-o", str(out)]) == 70
    said = capfd.readouterr().err
    new = sorted(set(crashes.iterdir()) - set(saved.values()))
    assert len(new) == 2 and all(str(path) in said for path in new)
    assert all(f"// again: ptxmotion opt -O1 {path}\n" in path.read_text() for path in new)
    # Without an input that can be saved there is only the traceback.
    monkeypatch.setattr("ptxmotion.harness.doctor.run", fail)
    assert main(["doctor"]) == 70
    (text,) = crashes.glob("*.txt")
    assert "// command: ptxmotion doctor\n" in text.read_text()


def test_a_missing_tool_is_named_with_what_brings_it(
    good: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXMOTION_PTXAS", "/nowhere/ptxas")
    assert main(["opt", "-O1", str(good), "--emit=cubin", "-o", str(good.parent / "out")]) == 4
    err = capfd.readouterr().err
    assert err.startswith("ptxmotion: error: ptxas not found: PTXMOTION_PTXAS=/nowhere/ptxas is no executable\n")
    assert "another one is searched after: unset PTXMOTION_PTXAS" in err
    assert ToolMissing.__name__ not in err
    assert entries(good.parent) == ["good.ptx"]


def test_what_ptxas_refuses_is_bad_input(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.ptx"
    path.write_text(HEAD + ".visible .entry k() { frobnicate.b32 1, 2; ret; }\n")
    assert main(["opt", str(path), "--emit=cubin", "-o", str(tmp_path / "out")]) == 3
    first, shown, caret, *_ = capfd.readouterr().err.splitlines()
    assert first.startswith("<output>:")
    assert "error: ptxas: " in first
    assert "frobnicate" in shown
    assert caret.strip() == "^"
    assert entries(tmp_path) == ["odd.ptx"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frob"], "invalid choice: 'frob'"),
        ([], "required: VERB"),
        (["opt", "--frob"], "unrecognized arguments: --frob"),
        (["opt", "-O7"], "invalid choice: '7'"),
        (["opt", "-O1", "--passes=none"], "not allowed with argument"),
        (["optt"], "invalid choice: 'optt' (did you mean 'opt'?); choose from opt, analyze"),
        (["opt", "--gate=ptax"], "invalid choice: 'ptax' (did you mean 'ptxas'?)"),
        (
            ["opt", "--remark", "x"],
            "ptxmotion opt: error: unrecognized arguments: --remark (did you",
        ),
        (["bench", "run", "--sizes=tiny"], "ptxmotion bench run: error: unrecognized arguments: --sizes=tiny (did you"),
        (["opt", "--passes=O7"], "there is no level 'O7'; there are O0, O1, O2, O3"),
        (["opt", "--passes="], "no pass is named; 'none' stands for no passes"),
        (["opt", "--passes=lmc"], "there is no pass 'lmc' (did you mean 'lcm'?); there are cse, lcm"),
        (["opt", "--passes=lcm:min_cots=2"], "has no option 'min_cots=2' (did you mean 'min_cost'?)"),
        (["opt", "--arch=sm90"], "'sm90' is not a target of ptxas (did you mean 'sm_90'?)"),
        (["diff", "a", "b", "--arch=sm_91"], "'sm_91' is not a target of ptxas (did you mean 'sm_90'?)"),
        (["opt", "x", "--passes=lcm,frob"], "there is no pass 'frob'"),
        (["opt", "x", "--passes=lcm:frob=1"], "has no option 'frob=1'"),
        (["opt", "x", "--passes=lcm:min_cost=x"], "takes a value of type int, not 'x'"),
        (["opt", "--kernel=("], "is not a regular expression"),
        (["opt", "--remarks=("], "is not a regular expression"),
        (["opt", "--bisect-limit=-1"], "is not a number of rewrites"),
        (["verify"], "name a file to check"),
        (["verify", "a", "--jobs=2"], "--jobs is an option for --round-trip"),
        (["verify", "a", "--seeds=2"], "--seeds is an option for two files"),
        (["verify", "-", "-"], "stdin cannot be one of them"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_color_never_and_always_and_no_color(
    good: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(good.parent / "none.ptx")
    assert main(["opt", missing, "--color=always"]) == 3
    assert "\x1b[1;31merror:\x1b[0m" in capfd.readouterr().err
    assert main(["--color=always", "opt", missing]) == 3
    assert "\x1b[" in capfd.readouterr().err
    assert main(["opt", missing]) == 3
    assert "\x1b[" not in capfd.readouterr().err
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["opt", missing]) == 3
    assert "\x1b[" in terminal.getvalue()
    terminal.truncate(0)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["opt", missing]) == 3
    assert "\x1b[" not in terminal.getvalue()


class TestSettings:
    def test_the_nearest_file_sets_defaults(
        self, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        (tmp_path / "pyproject.toml").write_text('[tool.ptxmotion.opt]\nemit = "json"\n')
        assert main(["opt", str(good)]) == 0
        assert capfd.readouterr().out.startswith("{")
        assert main(["opt", str(good), "--emit=ptx"]) == 0
        assert capfd.readouterr().out.startswith(".version")
        assert main(["opt", str(good), "--no-config"]) == 0
        assert capfd.readouterr().out.startswith(".version")
        (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n# ptxmotion tool.ptxmotion\n")
        assert main(["opt", str(good)]) == 0
        assert capfd.readouterr().out.startswith("{")
        (folder / "ptxmotion.toml").write_text('[opt]\nemit = "cfg-dot"\nverify-each = true\n')
        assert main(["opt", str(good)]) == 0
        assert capfd.readouterr().out.startswith("digraph")

    def test_the_command_line_chooses_between_level_and_passes(
        self, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "s.toml"
        path.write_text('[opt]\npasses = ["lcm", "dce"]\n')
        assert main(["opt", str(good), "--config", str(path), "--time-passes"]) == 0
        assert " lcm" in capfd.readouterr().err
        assert main(["opt", str(good), "--config", str(path), "--time-passes", "-O0"]) == 0
        assert " lcm" not in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[frob]\n", "unknown key 'frob'"),
            ("opt = 3\n", "'opt' is not a table"),
            ("[opt]\nfrob = 1\n", "unknown key 'frob' in table 'opt'"),
            ("[optt]\n", "unknown key 'optt' (did you mean 'opt'?); there are tables for"),
            ("[opt]\nverfy-each = true\n", "unknown key 'verfy-each' (did you mean 'verify-each'?) in table 'opt'"),
            ('[opt]\nemit = "cubbin"\n', "(did you mean 'cubin'?)"),
            ("[opt]\nemit = 'exe'\n", "'emit' takes one of"),
            ("[opt]\nemit = true\n", "takes a string or a number"),
            ("[opt]\nverify-each = 1\n", "takes true or false"),
            ("[opt]\nkernel = '('\n", "is not a regular expression"),
            ("[opt\n", "line 1"),
        ],
    )
    def test_what_it_says_wrong_ends_with_2(
        self, text: str, message: str, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "s.toml"
        path.write_text(text)
        assert main(["opt", str(good), "--config", str(path)]) == 2
        err = capfd.readouterr().err
        assert str(path) in err
        assert message in err

    def test_a_file_that_is_not_there(self, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["opt", str(good), "--config", str(tmp_path / "none.toml")]) == 2
        assert "No such file or directory" in capfd.readouterr().err

    def test_settings_of_other_users_neither_execute_nor_write(
        self, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The file is in a folder above the project, such as the folder for temporary files."""
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        target, inputs = tmp_path / "target.yaml", tmp_path / "inputs.py"
        target.write_text("mine")
        inputs.write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
        strange = tmp_path / "ptxmotion.toml"
        strange.write_text(
            f"[opt]\nremarks-output = '{target}'\nemit = 'json'\n[verify]\ninputs = '{inputs}'\nseeds = 1\n"
        )
        assert main(["opt", str(good)]) == 0
        printed = capfd.readouterr()
        assert printed.out.startswith("{")  # options that neither execute nor write are still used
        assert f"{strange}: 'remarks-output' is ignored: it is in no git repository" in printed.err
        main(["verify", str(good), str(good)])
        assert "'inputs' is ignored" in capfd.readouterr().err
        assert target.read_text() == "mine" and not (tmp_path / "marker").exists()
        assert (
            main(["opt", str(good), "--config", str(strange)]) == 0
        )  # if the user names the file, all options are used
        assert target.read_text() != "mine" and "ignored" not in capfd.readouterr().err
        (folder / ".git").mkdir()  # the project ends here: files above it are not read
        assert main(["opt", str(good)]) == 0
        printed = capfd.readouterr()
        assert printed.out.startswith(".version") and not printed.err

    def test_settings_of_the_users_own_repository_count(
        self, good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        (tmp_path / ".git").mkdir()
        own, target = tmp_path / "a" / "ptxmotion.toml", tmp_path / "r.yaml"
        own.write_text(f"[opt]\nremarks-output = '{target}'\n")
        assert main(["opt", str(good)]) == 0 and target.exists()
        target.unlink()
        assert main(["doctor"]) == 0
        assert re.search(rf"ok +settings +{re.escape(str(own))}\n", capfd.readouterr().out)
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        assert main(["opt", str(good)]) == 0 and not target.exists()
        assert f"{tmp_path / '.git'} belongs to another user" in capfd.readouterr().err
        monkeypatch.undo()
        monkeypatch.chdir(folder)
        own.chmod(0o666)
        assert main(["opt", str(good)]) == 0 and not target.exists()
        assert f"everybody may write to {own}" in capfd.readouterr().err
        assert main(["doctor"]) == 0
        assert "settings that execute or write files are ignored" in capfd.readouterr().out

    def test_each_option_that_names_a_file_is_classified(self) -> None:
        """A new option must be in the list of options that write or execute, or in the list of those that only read
        here."""
        from ptxmotion.cli.arguments import TRUSTED_ONLY, VERBS, build_parser, settable

        reads = {("opt", "profile"), ("analyze", "profile"), ("emulate", "profile"), ("verify", "round-trip")}
        reads |= {("bench", "history")}
        parser = build_parser(VERBS)
        for verb in VERBS:
            options = settable(parser, verb)
            assert TRUSTED_ONLY.get(verb, frozenset()) <= options.keys()
            for name, action in options.items():
                is_of_file = any(word in str(action.metavar) for word in ("FILE", "DIR"))
                assert is_of_file <= (name in TRUSTED_ONLY.get(verb, ()) or (verb, name) in reads), (verb, name)

    def test_no_settings(self) -> None:
        assert settings.read_settings(None, frozenset()).table("opt") == {}


def test_every_verb_has_help_with_an_example(capfd: pytest.CaptureFixture[str]) -> None:
    from ptxmotion.cli.arguments import VERBS

    assert cli.main(["--help"]) == 0
    overview = capfd.readouterr().out
    for verb in VERBS:
        assert f"    {verb} " in overview
        if verb == "nvcc":  # all its arguments, --help included, are those of nvcc
            continue
        assert main([verb, "--help"]) == 0
        assert f"\n  ptxmotion {verb}" in capfd.readouterr().out


def test_the_table_of_user_errors_names_classes() -> None:
    from importlib import import_module

    from ptxmotion.cli.outcome import USER_ERRORS

    for module, name, code, _ in USER_ERRORS:
        found = getattr(import_module(f"ptxmotion.{module}"), name)
        assert issubclass(found, Exception) and 1 <= code <= 5, name
