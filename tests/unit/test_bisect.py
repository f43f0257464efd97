"""`ptxmotion bisect`, with builds of the real nvcc and results that are wrong on purpose."""

import sys
from pathlib import Path

import pytest
from nvcc_builds import NVCC, needs_nvcc
from ptxmotion.cli import main
from ptxmotion.cli.bisect import smallest
from ptxmotion.python_child import child_environment, module_command

KERNEL = """\
__global__ void NAME(int *out, const int *in, int n, int d) {
    int i = threadIdx.x;
    int a = 0;
    if (in[i] > n) a = in[i + 1] / d; else atomicAdd(out, 1);
    __syncthreads();
    out[i] = a + in[i + 1] / d;
}
"""

#: Builds, and fails if the kernel `wrong` is not as nvcc has compiled it, which is in nvcc.ptx after the first build.
CHECK = """\
import pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
def kernel(file, *command):
    if file == "a.ptx" or not (folder / file).exists():
        subprocess.run([*command, "-ptx", "-arch=sm_90", "a.cu", "-o", file], cwd=folder, check=True)
    text = (folder / file).read_text()
    return text[text.index(".entry _Z5wrong"):].partition("ret;")[0].split()
sys.exit(kernel("nvcc.ptx", {nvcc!r}) != kernel("a.ptx", *{ours!r}))
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command for `bisect`."""
    (tmp_path / "a.cu").write_text("".join(KERNEL.replace("NAME", name) for name in ("first", "wrong", "last")))
    for name, value in child_environment().items():
        if name.startswith("PYTHON"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PTXMOTION_NVCC", NVCC)
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "check.py"
    script.write_text(CHECK.format(folder=str(tmp_path), nvcc=NVCC, ours=module_command("nvcc")))
    return [sys.executable, str(script)]


@needs_nvcc
@pytest.mark.slow
def test_the_kernel_and_the_rewrite_are_found(check: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--no-config", "--flags=-O2 --gate=off", "--", *check]) == 0
    printed = capfd.readouterr()
    lines = printed.out.splitlines()
    assert lines[0] == "kernel _Z5wrongPiPKiii  (wrong(int*, int const*, int, int))"
    assert lines[1].startswith("rewrite 1 of ") and lines[1].endswith("--bisect-limit=1")
    assert any("_Z5wrongPiPKiii" in line for line in lines[2:])
    assert (
        "run 1: without the optimizer: succeeds" in printed.err
        and "run 2: with -O2 --gate=off: fails (1)" in printed.err
    )


#: Builds an object, and fails if it has a version of a kernel.
CHECK_VERSIONS = """\
import pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
subprocess.run([*{ours!r}, "-arch=sm_90", "-no-compress", "-c", "b.cu"], cwd=folder, check=True)
sys.exit(b"__ptxmotion_1" in (folder / "b.o").read_bytes())
"""


@needs_nvcc
@pytest.mark.slow
def test_a_version_is_found(
    check: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kernels = """
    __global__ void fine(int *out) { out[threadIdx.x] = 1; }
    __global__ void sums(const float *a, float *y, int n) { for (int i = 0; i < n; ++i) y[threadIdx.x] += a[i]; }
    """
    (tmp_path / "b.cu").write_text(kernels)
    monkeypatch.setenv("PTXMOTION_CONTRACT", "1")
    Path(check[1]).write_text(CHECK_VERSIONS.format(folder=str(tmp_path), ours=module_command("nvcc")))
    assert main(["bisect", "--no-config", "--flags=-O3", "--", *check]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("kernel _Z4sumsPKfPfi")
    assert lines[1] == "the command succeeds without the versions of it that PTXMOTION_CONTRACT adds"


@needs_nvcc
def test_nothing_to_find(check: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--no-config", "--flags=-O0", "--", *check]) == 5
    assert "there is nothing to find" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["false"], "the command fails also without the optimizer"),
        (["true"], "the command has compiled nothing with ptxmotion nvcc"),
        (["/no/such/program"], "/no/such/program: No such file"),
    ],
)
def test_commands_that_cannot_be_searched(command: list[str], problem: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--no-config", "--", *command]) == 2
    assert problem in capfd.readouterr().err


@pytest.mark.parametrize("expected", ["f", "ah", "bcg", "abcdefgh"])
def test_the_smallest_failing_set_is_found(expected: str) -> None:
    def fails(some: list[str]) -> bool:
        return set(expected) <= set(some)

    assert smallest(list("abcdefgh"), fails) == list(expected)


def test_a_smallest_set_fails_only_as_a_whole() -> None:
    found = smallest(list("abcdefgh"), lambda some: len(some) >= 3)
    assert len(found) == 3
