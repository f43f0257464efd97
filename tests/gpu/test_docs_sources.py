"""The examples of docs/python-api.md that launch PTX of CuPy, Numba and Triton, as they are printed.

Each runs as a file in a process of its own: Triton reads the source of its kernels, and a library may have its own CUDA
context.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_programs import ROW_STACK

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n# needs: (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The examples of the page: what each needs, and its text. The first is the function that the others use.
HELPER, *EXAMPLES = _BLOCK.findall((ROOT / "docs" / "python-api.md").read_text(encoding="utf-8"))


def test_the_page_has_the_examples() -> None:
    assert HELPER[0] == "nvcc" and "def faster_cubin" in HELPER[1]
    assert [needs.split(",")[0] for needs, _ in EXAMPLES] == ["cupy", "numba", "triton"] * 2


@pytest.mark.gpu
@pytest.mark.parametrize(("needs", "text"), EXAMPLES, ids=[needs.split(",")[0] for needs, _ in EXAMPLES])
def test_the_example_runs(needs: str, text: str, tmp_path: Path) -> None:
    for library in needs.split(", "):
        if library != "a GPU" and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    before = ROW_STACK if "numba" in needs else ""
    (tmp_path / "example.py").write_text(f"{before}{HELPER[1]}\n{text}", encoding="utf-8")
    paths = [str(ROOT / "typings"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PTXMOTION_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
