"""What the tests that compile with nvcc share."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from ptxmotion.python_child import child_environment, module_command
from ptxmotion.toolchain.tools import ToolMissing, find_tool


def path_of(tool: str) -> str:
    """The path of one of NVIDIA's tools; empty where it is missing."""
    try:
        return str(find_tool(tool).path)
    except ToolMissing:
        return ""


NVCC = path_of("nvcc")
CUOBJDUMP = path_of("cuobjdump")

#: The option of nvcc that names the folder of the CUDA runtime, which that of the wheels does not find by itself.
LIBRARIES = f"-L{Path(NVCC).parent.parent / 'lib'}"

needs_nvcc = pytest.mark.skipif(not NVCC or not shutil.which("g++"), reason="no nvcc, or no host compiler")


def environment(folder: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a build in ``folder``, with a cache of its own, and with ``settings``."""
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(("PTXMOTION_", "NVCC_"))}
    paths = {name: value for name, value in child_environment().items() if name.startswith("PYTHON")}
    # A folder of its own: nvcc chooses other names for temporary files if other builds have left some.
    (folder / "tmp").mkdir(exist_ok=True)
    own = {"PTXMOTION_NVCC": NVCC, "PTXMOTION_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    return {**cleared, **paths, **own, **(settings or {})}


def ours(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run `ptxmotion nvcc` in a folder, with settings of the optimizer."""
    command = module_command("nvcc", *arguments)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment(folder, settings))


def plain(folder: Path, *arguments: str, nvcc: str = NVCC) -> subprocess.CompletedProcess[str]:
    """Run nvcc in a folder."""
    return subprocess.run([nvcc, *arguments], cwd=folder, capture_output=True, text=True, env=environment(folder))


def whole_toolkit(folder: Path) -> str:
    """The path of nvcc in a toolkit, made in ``folder``, whose nvcc finds its libraries, unlike that of the wheels."""
    original = Path(NVCC).parent.parent
    (folder / "bin").mkdir(parents=True)
    for path in (original / "bin").iterdir():
        (folder / "bin" / path.name).symlink_to(path)
    for path in original.iterdir():
        if path.name != "bin":
            (folder / path.name).symlink_to(path)
    if not (folder / "lib64").exists():
        (folder / "lib64").symlink_to(original / "lib")
    return str(folder / "bin" / "nvcc")
