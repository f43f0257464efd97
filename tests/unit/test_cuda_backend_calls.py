"""The calls that the CUDA backend makes of cuda.core and of the driver, on a driver that needs no GPU.

The tests in `tests/gpu` check the same on a GPU. These here find calls that do not exist, and wrong arguments.
"""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ptxmotion.toolchain.tools import ToolMissing, find_tool

HERE = Path(__file__).parent
SCRIPT = HERE / "fake_driver_checks.py"
CHECKS = [
    node.name
    for node in ast.parse(SCRIPT.read_text(encoding="utf-8")).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver as libcuda.so.1."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.core") is None:
        pytest.skip("cuda-core is not installed")
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    try:
        header = find_tool("nvcc").path.parents[1] / "include" / "cuda.h"
    except ToolMissing as missing:
        pytest.skip(str(missing))
    if not header.is_file():
        pytest.skip(f"there is no {header}")
    folder = tmp_path_factory.mktemp("driver")
    command = [compiler, "-std=c++17", "-shared", "-fPIC", f"-I{header.parent}"]
    command += ["-o", str(folder / "libcuda.so.1"), str(HERE / "fake_driver.cpp"), "-ldl"]
    subprocess.run(command, check=True)
    return folder


@pytest.mark.parametrize("check", CHECKS)
def test_calls_of_the_backend_reach_the_driver(check: str, driver: Path) -> None:
    paths = [str(driver), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, str(SCRIPT), check], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
