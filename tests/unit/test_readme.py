"""The examples of the README are run, and their output must be the printed one. `--bless` rewrites it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def console(block: str, folder: Path) -> str:
    """The block with the current output of its commands. All of them run in one shell, as a reader would run them."""
    shim = folder / "bin"
    shim.mkdir()
    for name, command in (("python", sys.executable), ("ptxmotion", f"{sys.executable} -m ptxmotion")):
        (shim / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (shim / name).chmod(0o755)
    mark = "--- end of a command ---"
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    done = subprocess.run(
        ["bash", "-ec", "\n".join(f"{command}\necho '{mark}'" for command in commands)],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join([str(shim), os.environ["PATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    outputs = done.stdout.replace(f"{folder}/", "").split(f"{mark}\n")
    return "".join(f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=False))


@pytest.mark.slow
def test_the_examples_are_real(tmp_path: Path, bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    assert ".visible .entry" in (tmp_path / "faster.ptx").read_text(encoding="utf-8")
