"""The hooks of `ptxmotion.integrations` on a GPU: the same results with and without them, and kernels are read.

Each program runs as a file in a process of its own: Triton reads the source of its kernels, and a hook replaces
functions of a library.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpu_programs import CUPY, NUMBA, ROW_STACK, TORCH, TRITON, program
from ptxmotion.python_child import child_environment

pytestmark = pytest.mark.gpu

#: In front of a program. The optimizer runs without its gate, because it may revert the changes of these kernels.
ENABLE = (
    ROW_STACK
    + """
import sys
from ptxmotion import Policy
from ptxmotion.integrations import LIBRARY
hook = LIBRARY.enable("O2", Policy(gate="off")OPTIONS)
"""
)

REPORT = """
print("seen", hook.seen, "changed", hook.changed, file=sys.stderr)
assert hook.seen and (hook.changed or hook.library != "CuPy")
hook.disable()
"""

CASES: dict[str, tuple[str, str, str, list[str], list[str]]] = {
    "cupy": ("cupy", CUPY, "", ["cupy"], []),
    "numba": ("numba", NUMBA, "", ["numba"], ["default"]),
    "numba-ptx": ("numba", NUMBA, "", ["numba"], ["ptx"]),
    "triton": ("triton", TRITON, "", ["triton", "torch"], []),
    "torch": ("triton", TORCH, ", torch_compile=True", ["triton", "torch"], []),
}


def run(folder: Path, command: list[str]) -> str:
    """The output of a program that has caches of its own."""
    folder.mkdir()
    names = {"CUPY_CACHE_DIR": "cupy", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    caches = {name: str(folder / each) for name, each in {**names, "PTXMOTION_CACHE": "cache"}.items()}
    environment = {**child_environment(), **caches}
    done = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=300)
    print(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_a_program_with_the_hook(case: str, tmp_path: Path) -> None:
    library, text, options, needs, words = CASES[case]
    expected = run(tmp_path / "plain", [*program(tmp_path, text, *needs), *words])
    enabled = ENABLE.replace("LIBRARY", library).replace("OPTIONS", options)
    (tmp_path / "hooked.py").write_text(enabled + text + REPORT)
    assert run(tmp_path / "hooked", [sys.executable, "hooked.py", *words]) == expected
