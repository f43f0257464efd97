"""Builds with `ptxmotion nvcc` in which something fails: they end as nvcc's do, with and without contracts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from motion import DIVISION_AGAIN
from nvcc_builds import LIBRARIES, environment, needs_nvcc, ours, path_of, plain
from ptxmotion.python_child import module_command, python_command

pytestmark = [needs_nvcc, pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")]

#: `sums` gets a version for disjoint buffers, and a division of `choose` moves without the gate.
SOURCE = """\
__device__ int counter;
__global__ void choose(int *out, const int *in, int n, int d) {
    int i = threadIdx.x;
    int a = 0;
    if (in[i] > n) a = in[i + 1] / d; else atomicAdd(&counter, 1);
    __syncthreads();
    out[i] = a + in[i + 1] / d;
}
__global__ void sums(const float *a, float *y, int n) {
    for (int i = 0; i < n; ++i) y[threadIdx.x] += a[i] * a[i + 1];
}
"""

LAUNCHES = "void NAME() { choose<<<1, 32>>>(nullptr, nullptr, 1, 2); sums<<<1, 32>>>(nullptr, nullptr, 1); }\n"

CHANGES = {"PTXMOTION_FLAGS": "-O2 --gate=off"}

with_contracts = pytest.mark.parametrize("contract", ["0", "1"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.cu").write_text(f"{SOURCE}{LAUNCHES.replace('NAME', 'launch')}int main() {{ launch(); }}\n")
    return tmp_path


def has_version(path: Path) -> bool:
    """Whether an object or a program has a version of a kernel, or its contract."""
    return b"__ptxmotion_1" in path.read_bytes()


# --- builds that nvcc refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-such-option", "-arch=sm_90", "a.cu"),
        ("-arch=sm_1", "-c", "a.cu"),
        ("-arch=sm_90", "-c", "missing.cu"),
        ("-arch=sm_90", "-c", "wrong.cu"),
        ("-arch=sm_90", "-c", "refused.cu"),
        ("-arch=sm_90", "-Xptxas", "--no-such-option", "-c", "a.cu"),
        ("-arch=sm_90", "-c", "a.cu", "-o", "no/such/folder/a.o"),
        ("-arch=sm_90", "undefined.cu", LIBRARIES, "-o", "program"),
    ],
)
def test_what_nvcc_refuses(folder: Path, arguments: Sequence[str]) -> None:
    """The same exit status, and the same message, with and without contracts."""
    (folder / "wrong.cu").write_text("__global__ void k() { this is wrong; }\n")
    (folder / "refused.cu").write_text('__global__ void k() { asm volatile("no.such.instruction;"); }\n')
    (folder / "undefined.cu").write_text("void missing(); int main() { missing(); }\n")
    expected = plain(folder, *arguments)

    def message(text: str) -> str:
        text = re.sub(r"tmpxft_\w+-\w+", "tmpxft", text)
        return re.sub(r"^.*?ptxmotion: warning: .*\n", "", text, flags=re.MULTILINE)

    for contract in ("0", "1"):
        done = ours(folder, *arguments, PTXMOTION_CONTRACT=contract)
        assert done.returncode == expected.returncode != 0
        assert (done.stdout, message(done.stderr)) == (expected.stdout, message(expected.stderr))
        assert not list(folder.glob("*.o")) and not (folder / "program").exists()


# --- the tool fails ---------------------------------------------------------------------------------------------------


@with_contracts
@pytest.mark.parametrize("what", ["compiler.launch._dry_run", "compiler.toolkit_view.toolkit_view"])
def test_a_crash_before_nvcc_starts(folder: Path, contract: str, what: str) -> None:
    module, _, function = what.rpartition(".")
    crash = f"def crash(*_):\n    raise RuntimeError('on purpose')\nmodule.{function} = crash\n"
    code = (
        f"import sys, ptxmotion.{module} as module\n{crash}from ptxmotion.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    command = python_command(code, "nvcc", "-arch=sm_90", "-cubin", "a.cu", "-o", "ours.cubin")
    settings = environment(folder, {"PTXMOTION_CONTRACT": contract, **CHANGES})
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    assert done.returncode == 0
    assert re.fullmatch(r"ptxmotion: warning: \S*nvcc runs without the optimizer: on purpose\n", done.stderr)
    assert plain(folder, "-arch=sm_90", "-cubin", "a.cu", "-o", "plain.cubin").returncode == 0
    assert _code(folder / "ours.cubin") == _code(folder / "plain.cubin")


def _code(path: Path) -> bytes:
    return re.sub(rb"tmpxft_[0-9a-f]{8}", b"tmpxft_", path.read_bytes()).replace(b"ours.", b"plain.")


def test_an_interrupted_build_is_repeated(folder: Path) -> None:
    """The process group gets SIGINT while the optimizer runs. The next build is complete. Contracts add steps to it."""
    slow = folder / "ptxas"
    slow.write_text(f"#!/bin/sh\ntouch {folder}/started\nsleep 30\n")
    slow.chmod(0o755)
    command = module_command("nvcc", "-arch=sm_90", "-c", "a.cu")
    settings = {"PTXMOTION_PTXAS": str(slow), "PTXMOTION_FLAGS": "-O3 --gate=ptxas", "PTXMOTION_CONTRACT": "1"}
    child = subprocess.Popen(command, cwd=folder, env=environment(folder, settings), start_new_session=True)
    for _ in range(600):
        if (folder / "started").exists():
            break
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    assert child.wait(timeout=60) != 0
    assert not (folder / "a.o").exists()
    assert [path.name for path in folder.rglob("*.tmp")] == []
    done = ours(folder, "-arch=sm_90", "-c", "a.cu", PTXMOTION_CONTRACT="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert has_version(folder / "a.o")


# --- full disks -------------------------------------------------------------------------------------------------------


def on_small_disk(
    folder: Path, kilobytes: int, command: Sequence[str], **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with a small disk in ``folder``/small. Skips the test where nothing can be mounted."""
    small = folder / "small"
    small.mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={kilobytes}k none '{small}'"
    space = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*space, mount], capture_output=True).returncode:
        pytest.skip("no folder can be mounted")
    script = f'{mount} && exec "$@"'
    full = [*space, script, "sh", *command]
    return subprocess.run(full, cwd=folder, env=environment(folder, settings), capture_output=True, text=True)


@pytest.mark.parametrize(("kilobytes", "contract"), [(4, "0"), (4, "1"), (64, "1")])
def test_a_full_disk_of_the_cache(folder: Path, contract: str, kilobytes: int) -> None:
    """Nothing fits, or only the scripts and not the launch library."""
    settings = {**CHANGES, "PTXMOTION_CONTRACT": contract, "PTXMOTION_CACHE": str(folder / "small")}
    words = module_command("nvcc", "-arch=sm_90", "-no-compress", "a.cu", LIBRARIES, "-o", "program")
    done = on_small_disk(folder, kilobytes, words, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert has_version(folder / "program") == (contract == "1")


@with_contracts
def test_a_full_disk_of_temporary_files(folder: Path, contract: str) -> None:
    """nvcc itself fails, and so does the build."""
    arguments = ("-arch=sm_90", "-c", "a.cu", "-o", "a.o")
    settings = {"PTXMOTION_CONTRACT": contract, "TMPDIR": str(folder / "small")}
    expected = on_small_disk(folder, 4, [path_of("nvcc"), *arguments], **settings)
    done = on_small_disk(folder, 4, module_command("nvcc", *arguments), **settings)
    assert (done.returncode != 0) == (expected.returncode != 0)
    assert (folder / "a.o").exists() == (done.returncode == 0)


def test_a_full_disk_for_ptxas(tmp_path: Path) -> None:
    """`ptxmotion-ptxas` has the optimized PTX from the cache, but no place for its file. ptxas gets the given file."""
    large = f".global .b8 large[9000] = {{{', '.join(['1'] * 9000)}}};\n"
    (tmp_path / "a.ptx").write_text(DIVISION_AGAIN.replace(".visible", f"{large}.visible", 1))
    code = "import sys; from ptxmotion.cli.ptxas import main; sys.argv[0] = 'ptxas'; sys.exit(main())"
    words = ["-arch=sm_90", "a.ptx", "-o", "a.cubin"]
    settings = {"PTXMOTION_FLAGS": "-O1", "TMPDIR": str(tmp_path / "small"), "PTXMOTION_LOG": str(tmp_path / "log")}
    command = python_command(code, *words)
    subprocess.run(command, cwd=tmp_path, env=environment(tmp_path, {**settings, "TMPDIR": str(tmp_path)}), check=True)
    done = on_small_disk(tmp_path, 4, command, **settings)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(entry["changed"], entry["cached"]) for entry in entries] == [(["k"], False), (["k"], True)]
    subprocess.run([path_of("ptxas"), *words[:-1], "plain.cubin"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.cubin").read_bytes() == (tmp_path / "plain.cubin").read_bytes()


# --- many builds at once ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_sixteen_jobs_of_make(tmp_path: Path) -> None:
    """The cache is empty. Six sources are compiled, and three programs are linked from them."""
    nvcc = tmp_path / "ptxmotion-nvcc"
    words = module_command("nvcc")
    nvcc.write_text(f"#!{sys.executable}\nimport os, sys\nos.execv({words[0]!r}, {words!r} + sys.argv[1:])\n")
    nvcc.chmod(0o755)
    for number in range(6):
        source = SOURCE.replace("choose", f"choose_{number}").replace("sums", f"sums_{number}")
        body = LAUNCHES.replace("choose", f"choose_{number}").replace("sums", f"sums_{number}")
        text = f"{source}{body.replace('NAME', f'launch_{number}')}int main() {{ launch_{number}(); }}\n"
        (tmp_path / f"s{number}.cu").write_text(text.replace("counter", f"counter_{number}"))
    rules = [f"p{n}: s{n}.o\n\t$(NVCC) -arch=sm_90 $< {LIBRARIES} -o $@" for n in range(3)]
    objects = " ".join(f"s{n}.o" for n in range(6))
    rule = "%.o: %.cu\n\t$(NVCC) -arch=sm_90 -no-compress -c $< -o $@"
    (tmp_path / "Makefile").write_text("\n".join([f"all: {objects} p0 p1 p2", *rules, rule, ""]))
    settings = environment(tmp_path, {"PTXMOTION_CONTRACT": "1"})
    command = ["make", "-j16", f"NVCC={nvcc}"]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(has_version(tmp_path / f"s{number}.o") for number in range(6))
    assert all((tmp_path / f"p{number}").exists() for number in range(3))
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".tmp"]
    assert len(list((tmp_path / "cache" / "launch").iterdir())) == 1
