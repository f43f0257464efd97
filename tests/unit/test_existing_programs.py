"""The tutorial of docs/existing-programs.md: its files are written, and each of its commands is run in order.

Blocks with `gpu` behind the language need a GPU, those with `cmake` need CMake; they are skipped where it is missing.
The commands run in one shell for each block. What a block exports is exported in the blocks that follow.
"""

import os
import re
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
from nvcc_builds import NVCC, environment, needs_nvcc
from ptxmotion.python_child import module_command

PAGE = (Path(__file__).parents[2] / "docs" / "existing-programs.md").read_text()

#: `NAME`: and a block, which is the content of the file; or a block of commands, with what it needs.
_BLOCK = re.compile(r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)```$", re.MULTILINE)


def blocks(kind: str) -> list[tuple[str, str, str]]:
    """(name of a file, language and needs, text) of the blocks of one language."""
    found = [(m["file"] or "", m["kind"], m["text"]) for m in _BLOCK.finditer(PAGE)]
    return [each for each in found if each[1].split()[:1] == [kind]]


def test_the_page_has_files_and_commands() -> None:
    names = [name for kind in ("cuda", "make", "cmake") for name, _, _ in blocks(kind)]
    assert names == ["solver.cu", "Makefile", "CMakeLists.txt"]
    text = "".join(text for _, _, text in blocks("sh"))
    assert PAGE.count("```sh") == len(blocks("sh")) >= 9
    for command in ("make -B NVCC=ptxmotion-nvcc", "cmake --build", "ptxmotion bisect", "ptxmotion extract"):
        assert command in text


def user_settings(folder: Path) -> dict[str, str]:
    """PATH with the programs, as a user has it: nvcc's own folder is in it, and nothing names the folder of the CUDA
    libraries."""
    programs = folder / "bin"
    programs.mkdir()
    for name, words in {"ptxmotion": module_command(), "ptxmotion-nvcc": module_command("nvcc")}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    return {"PATH": os.pathsep.join([str(programs), str(Path(NVCC).parent), os.environ["PATH"]])}


@needs_nvcc
@pytest.mark.slow
def test_every_command_runs(tmp_path: Path) -> None:
    for kind in ("cuda", "make", "cmake"):
        for name, _, text in blocks(kind):
            (tmp_path / name).write_text(text)
    settings = user_settings(tmp_path)
    exported = ""
    for _, kind, text in blocks("sh"):
        if missing := missing_for(kind):
            warnings.warn(f"not run: {missing}: {text.splitlines()[0]}", stacklevel=1)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", exported + text],
            cwd=tmp_path,
            env=user_environment(tmp_path, settings),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        exported += "".join(f"{line}\n" for line in text.splitlines() if line.startswith("export "))
    assert (tmp_path / "solver").exists() and list((tmp_path / "images").glob("*.ptx"))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("nm"), reason="no cmake, or no nm")
def test_cmake_links_the_checks_into_a_target_with_sources_in_two_languages(tmp_path: Path) -> None:
    """CMake links it as C++, so the options for CUDA are not used."""
    source = next(text for name, _, text in blocks("cuda") if name == "solver.cu")
    kernel, _ = source.split("int main()")
    (tmp_path / "solver.cu").write_text(
        f"{kernel}void launch() {{ multiply<<<1, 128>>>(nullptr, nullptr, nullptr, 0); }}\n"
    )
    (tmp_path / "main.cpp").write_text("void launch();\nint main() { launch(); }\n")
    project = next(text for name, _, text in blocks("cmake") if name == "CMakeLists.txt")
    (tmp_path / "CMakeLists.txt").write_text(project.replace("solver.cu", "main.cpp solver.cu"))
    commands = next(text for _, _, text in blocks("sh") if "cmake --build checked" in text)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{commands}nm checked/solver"],
        cwd=tmp_path,
        env=user_environment(tmp_path, user_settings(tmp_path)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Linking CXX executable" in done.stdout and "__wrap___cudaLaunchKernel" in done.stdout


def user_environment(folder: Path, settings: dict[str, str]) -> dict[str, str]:
    """The environment of a build without variables that change how a compiler or a linker searches."""
    build = ("LDFLAGS", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "NVCCFLAGS")
    return {name: value for name, value in environment(folder, settings).items() if name not in build}


def missing_for(kind: str) -> str:
    """What the blocks of a kind need and this machine lacks."""
    if kind == "sh gpu":
        return "" if Path("/dev/nvidiactl").exists() else "no GPU"
    return "no cmake" if kind == "sh cmake" and not shutil.which("cmake") else ""
