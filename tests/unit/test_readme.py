"""The example of the README runs, and its output is the text in the README; `--bless` rewrites it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ptxmotion.toolchain.tools import find_tool

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def console(block: str, folder: Path) -> str:
    """The block with the output of its commands as it is now. Paths into the folder are shown relative to it."""
    shown: list[str] = []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        shown.append(line)
        program, *arguments = shlex.split(line[2:])
        command = [str(find_tool("nvcc").path)] if program == "nvcc" else [sys.executable, "-m", program]
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        shown += [output.replace(f"{folder}/", "") for output in done.stdout.splitlines()]
    return "\n".join(shown) + "\n"


@pytest.mark.slow
def test_the_example_is_real(tmp_path: Path, bless: bool) -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    (block,) = _BLOCK.findall(text)
    (tmp_path / "demo").mkdir()
    for source in (ROOT / "demo").glob("*.cu"):
        (tmp_path / "demo" / source.name).write_bytes(source.read_bytes())
    now = console(block, tmp_path)
    if bless and now != block:
        readme.write_text(text.replace(block, now), encoding="utf-8")
        block = now
    assert now == block
