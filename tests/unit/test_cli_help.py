"""The help of every verb: its texts, and its examples, which are run."""

import argparse
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ptxmotion.cli import main
from ptxmotion.cli.arguments import VERBS, build_parser
from ptxmotion.cli.command_parser import actions_of
from ptxmotion.python_child import child_environment, module_command
from scale_kernel import HEAD, scale_kernel

ROOT = Path(__file__).resolve().parents[2]

#: Examples that this machine cannot run: they need a GPU.
ON_A_GPU = re.compile(r"\(on a machine with a GPU")
#: Examples that build a program of the user. `test_existing_programs.py` runs such commands.
BUILDS = ("make ", "cmake ", "ptxmotion bisect ")

KERNEL = 'extern "C" __global__ void k(float *x, float a) { x[threadIdx.x] = a * x[threadIdx.x]; }\n'

PROGRAM = """from ptxmotion.dsl import allocate, blockDim, blockIdx, copy, f32, host
from ptxmotion.dsl import i32, kernel, program, ptr, threadIdx

@kernel
def scale(x: ptr[f32], n: i32) -> None:
    i: i32 = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        x[i] = x[i] * 2.0

@kernel
def add(x: ptr[f32], n: i32) -> None:
    i: i32 = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        x[i] = x[i] + 1.0

@program
def run(data: host[f32], n: i32) -> None:
    x = allocate(f32, n)
    copy(x, data)
    scale[(n + 31) // 32, 32](x, n)
    add[(n + 31) // 32, 32](x, n)
    copy(data, x)
"""


def scaling(name: str) -> str:
    """A module of one kernel that scales an array."""
    return HEAD + scale_kernel(name, ("f32 a", "u64 x", "u32 n"))


EDGES = """from ptxmotion.dsl import f32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, pipeline

@local((3, 3))
def across(src: Window[f32]) -> f32:
    return src[1, 0] - src[-1, 0]

@pipeline
def edges(src: Image[f32]) -> Image[f32]:
    return across(Accessor(src, Boundary.CLAMP))
"""


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of each verb, and of each action of a verb, by its name."""
    yield from _below(build_parser(), "")


def _below(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in actions_of(parser):
        if action.nargs == argparse.PARSER:
            choices: dict[str, argparse.ArgumentParser] = dict(action.choices or {})  # pyright: ignore
            for each, below in choices.items():
                yield f"{name} {each}".strip(), below
                yield from _below(below, f"{name} {each}".strip())


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """The commands of the examples at the end of a help text."""
    text = (parser.epilog or "").partition("examples:\n")[2]
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(("name", "parser"), list(parsers()), ids=lambda value: value if isinstance(value, str) else "")
def test_help_is_readable(name: str, parser: argparse.ArgumentParser) -> None:
    text = parser.format_help()
    assert "%%" not in text, "argparse replaces this in help texts, not in placeholders"
    assert not re.search(r"\b(ptx|cuda|gpu|json)\b", parser.description or ""), "the name of a format or a program"
    for action in actions_of(parser):
        if action.nargs == argparse.PARSER:
            continue
        assert action.help, (name, action.dest)
        assert action.help == argparse.SUPPRESS or not action.help.endswith("."), (name, action.dest)
    assert examples(parser), name
    commands = ("ptxmotion ", "nvcc ", "export ", "eval ", "make ", "cmake ")
    assert all(line.startswith(commands) for line in examples(parser)), name
    for line in text.splitlines():
        assert len(line) <= 120, line


def test_the_help_of_the_command_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for verb, text in VERBS.items():
        assert re.search(rf"^ +{verb} +{re.escape(text.split()[0])}", said, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the examples name, and with the command in `bin`."""
    for name in ("kernel", "before", "a", "b"):
        (tmp_path / f"{name}.ptx").write_text(scaling("matmul"))
    for name in ("faster", "after"):
        (tmp_path / f"{name}.ptx").write_text(scaling("matmul").replace("DONE", "END"))
    (tmp_path / "scale.ptx").write_text(scaling("scale"))
    (tmp_path / "kernel.cu").write_text(KERNEL)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "edges.py").write_text(EDGES)
    (tmp_path / "in.png").write_bytes(b"P5 4 3 255\n" + bytes(range(12)))  # a PGM file: names of inputs do not matter
    (tmp_path / "inputs.py").write_text(
        "import numpy as np\n\n\ndef launches(seed):\n"
        "    x = np.arange(64, dtype=np.float32) + seed\n"
        "    yield dict(kernel='matmul', grid=1, block=64, args=[np.float32(2), x, np.uint32(64)])\n"
    )
    for name in ("build/ptx", ".config/fish/completions", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "build" / "ptx" / "one.ptx").write_text(scaling("one"))
    search = os.pathsep.join([str(ROOT / "typings"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = tmp_path / "bin" / "ptxmotion"
    command.write_text(f"#!/bin/sh\nPYTHONPATH='{search}' exec '{sys.executable}' -m ptxmotion \"$@\"\n")
    command.chmod(0o755)
    return tmp_path


@functools.cache
def tools() -> str:
    """What `ptxmotion doctor --path` prints: the folder of nvcc and ptxas. It depends on the installation only."""
    done = subprocess.run(module_command("doctor", "--path"), env=child_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result file that the examples of `bench` read."""
    folder = tmp_path_factory.mktemp("results")
    run = "bench run pathfinder --backend=emulator --size=tiny --variant=cse --seeds 1 --json results.json"
    environment = {**child_environment(), "PTXMOTION_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(module_command(*run.split()), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "results.json"


def shell(command: str, folder: Path, *, is_zsh: bool = False) -> None:
    """Run a command in the folder. `ptxmotion` with plain words runs in this process, because to start it takes most of
    the time."""
    environment = {
        "PATH": os.pathsep.join([tools(), str(folder / "bin"), os.environ["PATH"]]),
        "HOME": str(folder),
        "PTXMOTION_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    if re.fullmatch(r"ptxmotion (?!nvcc|run)[^|<>;&$`*?#]+", command):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for name, value in environment.items():
                patch.setenv(name, value)
            assert main(shlex.split(command)[1:]) == 0, command
        return
    words = ["zsh", "-fc", f"autoload -U compinit; compinit -u -D; {command}"] if is_zsh else ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parser"), list(parsers()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_examples_in_the_help_run(name: str, parser: argparse.ArgumentParser, folder: Path, results: Path) -> None:
    if name.startswith("bench"):
        for file in ("results", "before", "after"):
            shutil.copy(results, folder / f"{file}.json")
    if name.startswith("bench history"):
        shell("ptxmotion bench history add results.json", folder)
    if name == "extract":
        shell("nvcc -arch=sm_90 -c kernel.cu -o program && cp program libkernels.so", folder)
    if name.startswith("contract"):
        shell("ptxmotion opt kernel.ptx --contract faster.contract.json -o faster.ptx", folder)
    by_actions = {line for action, below in parsers() if action.startswith(f"{name} ") for line in examples(below)}
    for line in examples(parser):
        if line in by_actions:  # the test of the action runs it
            continue
        is_zsh = "completion zsh" in line
        if ON_A_GPU.search(line) or line.startswith(BUILDS) or (is_zsh and shutil.which("zsh") is None):
            continue
        # What follows several spaces is an explanation.
        command = re.split(r"\s{2,}\(", line)[0]
        if "image run" in line:
            pytest.importorskip("PIL")
        if "plots" in line:
            pytest.importorskip("matplotlib")
        shell(command, folder, is_zsh=is_zsh)


def test_the_help_of_nvcc_is_that_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """It names the settings. That of the program `ptxmotion-nvcc` is nvcc's."""
    for option in ("--help", "-h"):
        assert main(["nvcc", option]) == 0
        out = capsys.readouterr().out
        assert "PTXMOTION_FLAGS" in out and "ptxmotion-nvcc --help" in out and "--color" not in out
