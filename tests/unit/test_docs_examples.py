"""The examples of the pages on passes, on analyze and on the Python interface are run as they are printed."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_FILE = re.compile(r"^```\w+\n# file: (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def has_nvcc() -> bool:
    from ptxmotion.toolchain.tools import ToolMissing, find_tool

    try:
        return bool(find_tool("nvcc"))
    except ToolMissing:
        return False


def installed_pass(folder: Path) -> dict[str, str]:
    """Write the package of the page to ``folder``, with the metadata of an installation. Returns the environment."""
    page = (DOCS / "writing-a-pass.md").read_text(encoding="utf-8")
    for name, text in _FILE.findall(page):
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    points = project["entry-points"]["ptxmotion.passes"]
    lines = ["[ptxmotion.passes]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    search = [str(folder), str(ROOT / "typings"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(search), "PTXMOTION_CACHE": str(folder / "cache")}


def test_the_pass_is_found_by_its_entry_point(tmp_path: Path) -> None:
    environment = installed_pass(tmp_path)
    command = [sys.executable, "-m", "ptxmotion", "opt"]
    listed = subprocess.run([*command, "--print-passes"], capture_output=True, text=True, env=environment, check=True)
    described = r"^negateadd +A sum with a negated operand becomes a difference\n +wide=true +also sums of 64 bits$"
    assert re.search(described, listed.stdout, re.MULTILINE)
    ptx = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u32 a) { .reg .b32 %r<3>; .reg .b64 %rd;
  ld.param.u32 %r0, [a]; neg.s32 %r1, %r0; add.s32 %r2, 4, %r1;
  cvt.u64.u32 %rd, %r2; st.global.u32 [%rd], %r2; ret; }
"""
    done = subprocess.run(
        [*command, "--passes=negateadd,dce"], input=ptx, capture_output=True, text=True, env=environment, check=True
    )
    assert "sub.s32 %r2, 4, %r0;" in done.stdout and "neg.s32" not in done.stdout


def test_the_test_of_the_pass_passes(tmp_path: Path) -> None:
    environment = installed_pass(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ptx_peephole.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^8 passed", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("name", "least"), [("python-api.md", 7), ("contracts.md", 1)])
def test_the_python_interface(name: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))
    page = (DOCS / name).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    ran = 0
    for block in _PYTHON.findall(page):
        needs = re.match(r"# needs: (.*)\n", block)
        if needs is None or (needs[1] == "nvcc" and has_nvcc()):  # `tests/gpu/test_docs_sources.py` runs the others
            exec(compile(block, name, "exec"), names)
            ran += 1
    assert ran >= least


def test_the_graphs_of_analyze() -> None:
    (block,) = _PYTHON.findall((DOCS / "analyze.md").read_text(encoding="utf-8"))
    exec(compile(block, "analyze.md", "exec"), {})


def test_the_program_of_the_page_on_fusion(tmp_path: Path) -> None:
    if not has_nvcc():
        pytest.skip("there is no nvcc")
    for name, text in _FILE.findall((DOCS / "fusion.md").read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "typings"), "PTXMOTION_CACHE": str(tmp_path / "cache")}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    printed = run("-m", "ptxmotion", "fuse", "program.py", "-o", "fused/", "--no-config")
    assert "work: 1 fusion; launches in one call: 2·steps → steps\n" in printed
    run("run.py")
