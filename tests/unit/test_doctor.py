"""The report of `doctor`. It does not fail if something is missing."""

import io
import json
import os
import re
import shutil
import types
from importlib import metadata
from pathlib import Path

import pytest
from ptxmotion.cli import main
from ptxmotion.harness import doctor
from ptxmotion.toolchain import tools as toolchain


def by_name() -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.collect()}


def test_this_machine_has_what_is_needed() -> None:
    checks = by_name()
    assert {"python", "ptxas", "nvcc", "nvdisasm", "host compiler", "temporary files"} <= set(checks)
    assert all(check.ok for check in checks.values() if check.needed)
    assert "sm_75 to " in checks["ptxas"].detail


def test_text_and_json_say_the_same() -> None:
    text, document = io.StringIO(), io.StringIO()
    assert doctor.run(text) == doctor.run(document, json=True) == 0
    for check in json.loads(document.getvalue())["checks"]:
        assert check["name"] in text.getvalue()
        assert check["ok"] or check["fix"]


def test_a_missing_tool_is_status_4_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: iter(()))
    monkeypatch.setattr(toolchain, "system_folders", lambda: iter(()))
    monkeypatch.setattr(toolchain, "_from_pathfinder", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    out = io.StringIO()
    assert doctor.run(out) == 4
    assert "FAIL  ptxas" in out.getvalue()
    assert "pip install" in out.getvalue()


def test_a_tool_that_does_not_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_NVDISASM", "/bin/false")
    check = by_name()["nvdisasm"]
    assert not check.ok and check.detail.startswith("does not run")


def test_no_compiler_is_a_note_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_CCBIN", "no-such-compiler")
    check = by_name()["host compiler"]
    assert (check.ok, check.needed) == (False, False)


def test_a_compiler_that_nvcc_refuses_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "g++-99"
    message = "host_config.h:137:2: error: unsupported GNU version! later than 15"
    compiler.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("NVCC_CCBIN", str(compiler))
    check = by_name()["host compiler"]
    assert (check.ok, check.needed) == (False, False)
    assert check.detail == f"{compiler}: nvcc cannot compile with it: unsupported GNU version! later than 15"
    assert "NVCC_CCBIN" in check.fix


def test_a_misspelled_variable_of_the_environment_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_FLAG", "-O3")
    monkeypatch.setenv("PTXMOTION_LOG", "builds.json")
    found = {each.detail: each for each in doctor.collect() if each.name == "environment"}
    wrong = found["PTXMOTION_FLAG has no meaning (did you mean 'PTXMOTION_FLAGS'?)"]
    assert (wrong.ok, wrong.needed) == (False, False)
    assert found["PTXMOTION_LOG=builds.json"].ok


def test_every_variable_that_the_sources_read_is_known() -> None:
    """Names are often constants, so each string that is a name counts."""
    root = Path(__file__).parents[2]
    folders = [path for path in root.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    files = [each for path in folders if path.name != "tests" for each in path.rglob("*.py")]
    texts = [each.read_text() for each in [*files, *root.glob("*.py")]]
    found = {name for text in texts for name in re.findall(r"\"(PTXMOTION_[A-Z]+)\"", text)}
    code = [each.read_text() for path in folders for each in path.rglob("*.c")]
    found |= {name for text in code for name in re.findall(r"getenv\(\s*\"(PTXMOTION_[A-Z]+)\"", text)}
    # `run` and `nvcc` set these for the programs that they start.
    set_by_us = {"PTXMOTION_RUN", "PTXMOTION_ASSEMBLIES", "PTXMOTION_SIBLINGS"}
    assert found >= {"PTXMOTION_CACHE", "PTXMOTION_LAUNCH", "PTXMOTION_TUNED", *set_by_us}
    assert found - set_by_us <= set(doctor.VARIABLES)


def test_the_compiler_is_tried_only_where_there_is_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> toolchain.Tool:
        raise toolchain.ToolMissing(name, "nowhere", "pip install")

    monkeypatch.setattr(doctor, "find_tool", missing)
    assert by_name()["host compiler"].ok


@pytest.mark.parametrize("error", [ImportError("no module"), OSError("half installed")])
def test_no_bindings_is_a_note_only(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(name: str) -> object:
        raise error

    monkeypatch.setattr(doctor.importlib, "import_module", refuse)
    check = by_name()["cuda-bindings"]
    assert (check.ok, check.needed) == (False, False)


def test_bindings_without_cuda_core_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib, "import_module", lambda name: FakeDriver(13000))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert by_name()["cuda-core"].ok
    monkeypatch.setattr(metadata, "version", version)
    check = by_name()["cuda-core"]
    assert (check.ok, check.needed) == (False, False) and "ptxmotion[gpu]" in check.fix


class FakeDriver:
    """Returns what cuda-bindings returns: a status, then values."""

    CUresult = types.SimpleNamespace(CUDA_SUCCESS=0)
    CUdevice_attribute = types.SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=9, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=0
    )

    def __init__(self, version: int) -> None:
        self.version = version

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version

    def cuInit(self, flags: int) -> tuple[int]:
        return (flags,)

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, 1

    def cuDeviceGet(self, index: int) -> tuple[int, int]:
        return 0, index

    def cuDeviceGetName(self, length: int, device: int) -> tuple[int, bytes]:
        return device, b"Some GPU".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int, int]:
        return device, attribute


@pytest.mark.parametrize(("version", "ok"), [(13000, True), (13010, True), (12090, False)])
def test_driver_and_gpu(monkeypatch: pytest.MonkeyPatch, version: int, ok: bool) -> None:
    def fake(name: str) -> object:
        return FakeDriver(version)

    monkeypatch.setattr(doctor.importlib, "import_module", fake)
    checks = by_name()
    assert checks["driver"].ok is ok
    assert checks["GPU 0"].detail == "Some GPU, sm_90"


def test_path_is_what_a_shell_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--path"]) == 0
    printed = capsys.readouterr().out.removesuffix("\n")
    for name in toolchain.TOOLS:
        found = shutil.which(name, path=printed)
        assert found is not None and Path(found).samefile(toolchain.find_tool(name).path)


def test_path_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PTXMOTION_NVCC", "/nowhere/nvcc")
    assert main(["doctor", "--path"]) == 4
    said = capsys.readouterr()
    assert shutil.which("ptxas", path=said.out.removesuffix("\n"))
    assert said.err.startswith("ptxmotion: error: nvcc not found: PTXMOTION_NVCC=/nowhere/nvcc is no executable\n")
    for name in toolchain.TOOLS:
        monkeypatch.setenv(f"PTXMOTION_{name.upper()}", "/nowhere")
    assert main(["doctor", "--path"]) == 4
    said = capsys.readouterr()
    assert os.path.isabs(said.out.removesuffix("\n")), "an empty text would put the current folder on PATH"
