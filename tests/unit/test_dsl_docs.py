"""The examples of the manual run as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.dsl import Program, dtype_of
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.runner import compiler
from ptxmotion.toolchain.tools import ToolMissing

DOCS = Path(__file__).parents[2] / "docs"
_FILE = re.compile(r"^```\w+\n(?:#|//) file: (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def unpack(document: str, folder: Path) -> list[str]:
    """The files that a document prints, written to ``folder``."""
    found = _FILE.findall((DOCS / document).read_text(encoding="utf-8"))
    for name, text in found:
        (folder / name).write_text(text, encoding="utf-8")
    return [name for name, _ in found]


@pytest.fixture(autouse=True)
def needs_nvcc() -> None:
    try:
        compiler()
    except ToolMissing as why:
        pytest.skip(str(why))


def test_writing_a_benchmark(tmp_path: Path) -> None:
    names = unpack("writing-a-benchmark.md", tmp_path)
    assert names == ["saxpy.py", "from_cuda.py", "from_ptx.py", "negate.ptx", "try_it.py"]
    for name in ("from_cuda.py", "from_ptx.py"):
        text = (tmp_path / name).read_text().strip()
        assert len([line for line in text.splitlines() if line]) <= 20
    search = os.pathsep.join([str(DOCS.parent / "typings"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PTXMOTION_CACHE": str(tmp_path), "PYTHONPATH": search}
    done = subprocess.run(
        [sys.executable, "try_it.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "mine/saxpy correct clean",
        "mine/square correct clean",
        "mine/negate correct clean",
    ], done.stderr


def test_the_image_pipeline(tmp_path: Path) -> None:
    names = ["edges.py", "run_edges.py", "statistics_of_pixels.py", "groups.py", "laplacian_graph.py"]
    assert unpack("images.md", tmp_path) == names
    search = os.pathsep.join([str(DOCS.parent / "typings"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": search}

    def output(name: str) -> list[str]:
        command = [sys.executable, name]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    image = np.random.default_rng(0).integers(0, 256, (30, 50), np.uint8)
    share = np.float32((image > 200).sum()) / np.float32(image.size)
    expected = np.float32(image.sum()) / np.float32(image.size), share, np.bincount(image.ravel() // 16)
    assert " ".join(output("statistics_of_pixels.py")) == " ".join(str(each) for each in expected)
    assert output("laplacian_graph.py")[0].startswith("execution: chain (estimates: stream ")
    lines = output("run_edges.py")
    assert lines[0] == "(20, 70) float32" and lines[-1] == "True"
    assert "  output threshold: f32 70 x 20 = point threshold(gradient, limit)" in lines
    assert "    regions: tl, tr, t, bl, br, b, l, r, body" in lines
    lines = output("groups.py")
    assert "edges: by_hand" in lines and "gradient -> threshold: weight 400, point-based: delta 400, phi 0" in lines


def test_the_cheat_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    assert unpack("dsl.md", tmp_path) == ["cheat_sheet.py"]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module = importlib.import_module("cheat_sheet")
    run = module.run
    assert isinstance(run, Program)
    items = np.zeros(100, dtype_of(module.Item))
    items["key"][5:] = 1
    items["weights"] = 1.0
    backend = EmulatorBackend()
    nvcc = compiler(cache=tmp_path)
    found = run.run(backend, nvcc, items=items, out=np.full(100, -1, np.float32), count=np.zeros(1, np.int32), n=100)
    half = np.float32(np.sqrt(7.0) / 2)
    assert found["count"][0] == 1
    assert found["out"][70] == half + half
    assert run.to_python().count("score[") == 1
