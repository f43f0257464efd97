"""Finding and running NVIDIA's tools."""

import os
import pickle
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ptxmotion.arch import OLDEST
from ptxmotion.toolchain import tools as toolchain
from ptxmotion.toolchain.tools import (
    PtxasError,
    Tool,
    ToolFailed,
    ToolMissing,
    ToolTimeout,
    arch_for,
    assemble,
    compile_cuda,
    disassemble,
    find_tool,
    parse_diagnostics,
    supported_targets,
    target_of,
)

SAXPY = """
extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


def empty_kernel(target: str = "sm_90") -> str:
    return f".version 8.0\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n  ret;\n}}\n"


def script(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without wheel, system CUDA and variables. A test adds what it needs."""
    for name in toolchain.TOOLS:
        monkeypatch.delenv(f"PTXMOTION_{name.upper()}", raising=False)
    monkeypatch.setattr(toolchain, "wheel_folders", lambda: iter(()))
    monkeypatch.setattr(toolchain, "system_folders", lambda: iter(()))
    monkeypatch.setattr(toolchain, "_from_pathfinder", no_path)
    return monkeypatch


def no_path(name: str) -> Path | None:
    return None


@pytest.mark.parametrize("name", toolchain.TOOLS)
def test_every_tool_is_found_and_is_of_cuda_13(name: str) -> None:
    tool = find_tool(name)
    assert tool.path.is_file()
    assert tool.version.startswith("13.")


def test_the_variable_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = script(tmp_path, "my-ptxas", "echo 'Cuda compilation tools, release 99.1, V99.1.2'")
    monkeypatch.setenv("PTXMOTION_PTXAS", str(mine))
    tool = find_tool("ptxas")
    assert (tool.path, tool.source, tool.version) == (mine, "environment", "99.1.2")


def test_a_variable_that_names_nothing_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_PTXAS", "/nowhere/ptxas")
    with pytest.raises(ToolMissing, match="PTXMOTION_PTXAS=/nowhere/ptxas is no executable"):
        find_tool("ptxas")


def test_a_missing_tool_says_how_to_install_it(nowhere: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolMissing) as caught:
        find_tool("nvdisasm")
    assert caught.value.install.endswith("-m pip install 'nvidia-cuda-nvdisasm>=13.2,<14'")


def test_an_older_system_cuda_is_passed_over(tmp_path: Path, nowhere: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, release in ((old, "12.9"), (new, "13.1")):
        folder.mkdir()
        script(folder, "ptxas", f"echo 'release {release}, V{release}.7'")
    nowhere.setattr(toolchain, "system_folders", lambda: iter((old, new)))
    assert find_tool("ptxas").path == new / "ptxas"
    nowhere.setattr(toolchain, "system_folders", lambda: iter((old,)))
    with pytest.raises(ToolMissing, match=r"is of CUDA 12\.9\.7; 13\.0 or newer is needed"):
        find_tool("ptxas")


def test_a_tool_of_a_conda_environment_is_found_last(tmp_path: Path, nowhere: pytest.MonkeyPatch) -> None:
    """By cuda-pathfinder, in a process of its own, because it keeps what it has found."""
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "ptxas", "echo 'release 13.2, V13.2.7'")
    code = """
import sys
from pathlib import Path
import cuda.pathfinder._binaries.find_nvidia_binary_utility as search
from ptxmotion.toolchain import tools
search.find_sub_dirs_all_sitepackages = lambda folders: []
tools.wheel_folders = lambda: iter(())
tools.system_folders = lambda: iter(())
found = tools.find_tool("ptxas")
print(found.path, found.source, found.version)
"""
    environment = {**os.environ, "CONDA_PREFIX": str(tmp_path)}
    environment.pop("PTXMOTION_PTXAS", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "bin" / "ptxas"), "system", "13.2.7"]


def test_a_tool_in_a_wheel_is_found_without_the_import_of_pathfinder() -> None:
    code = "import sys; from ptxmotion.toolchain.tools import find_tool; find_tool('ptxas'); "
    code += "print('cuda.pathfinder' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def testsystem_folders_prefer_the_variable_and_the_newest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    folders = list(toolchain.system_folders())
    assert folders[0] == str(tmp_path / "bin")
    assert "/usr/local/cuda/bin" in folders


def test_assembles_for_the_modules_own_target() -> None:
    done = assemble(empty_kernel("sm_90a"))
    assert (done.arch, done.retargeted_from) == ("sm_90a", "")
    assert done.cubin.startswith(b"\x7fELF")
    assert done.seconds > 0


def test_a_target_older_than_ptxas_knows_is_retargeted_and_said_so() -> None:
    done = assemble(empty_kernel("sm_50"))
    assert (done.arch, done.retargeted_from) == (supported_targets()[0], "sm_50")


def test_a_stated_arch_is_taken() -> None:
    done = assemble(empty_kernel("sm_80"), "sm_90")
    assert (done.arch, done.retargeted_from) == ("sm_90", "")


def test_targets_that_ptxas_supports() -> None:
    targets = supported_targets()
    assert targets[0] == f"sm_{OLDEST}"
    assert targets.index("sm_90") < targets.index("sm_90a") < targets.index("sm_100")
    assert target_of("// .target sm_99\n\t.target\tsm_100f, debug\n") == "sm_100f"
    assert target_of(".version 8.0") == ""
    assert arch_for(".version 8.0") == targets[0]


def test_the_same_module_gives_the_same_bytes() -> None:
    ptx = compile_cuda(SAXPY)
    assert assemble(ptx).cubin == assemble(ptx).cubin


def test_a_file_is_as_good_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(empty_kernel())
    assert assemble(path).cubin == assemble(empty_kernel()).cubin


def test_verbose_figures_and_flags_arrive() -> None:
    done = assemble(compile_cuda(SAXPY), verbose=True, flags=["--maxrregcount=24"], opt_level=1)
    assert any(d.severity == "info" and "registers" in d.message for d in done.diagnostics)


def test_errors_of_ptxas_have_their_line() -> None:
    with pytest.raises(PtxasError) as caught:
        assemble(empty_kernel().replace("ret;", "frobnicate;\n  bra NOWHERE;"))
    errors = caught.value.diagnostics
    assert (errors[0].line, errors[0].severity) == (6, "error")
    assert "frobnicate" in errors[0].message
    assert any(d.line == 7 and "NOWHERE" in d.message for d in errors)
    assert errors[-1].line is None


def test_an_arch_that_does_not_exist_is_ptxas_error() -> None:
    with pytest.raises(PtxasError, match="sm_42"):
        assemble(empty_kernel(), "sm_42")


def test_other_lines_of_the_log_are_passed_over() -> None:
    log = "nonsense\n\nptxas info    : 0 bytes gmem\nptxas m.ptx, line 7; warning : odd\n"
    assert [(d.severity, d.line) for d in parse_diagnostics(log)] == [("info", None), ("warning", 7)]


def test_cuda_is_compiled_for_the_stated_arch() -> None:
    ptx = compile_cuda(SAXPY, "sm_80", flags=["-lineinfo"])
    assert target_of(ptx) == "sm_80"
    assert ".visible .entry saxpy(" in ptx
    assert ".loc" in ptx


def test_a_cuda_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "n.h").write_text("#define N 7\n")
    source = tmp_path / "k.cu"
    source.write_text('#include "n.h"\nextern "C" __global__ void k(int *p) { *p = N; }\n')
    assert "7;" in compile_cuda(source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k.cu", "n.h"]


def test_errors_of_nvcc_do_not_name_the_temporary_folder() -> None:
    with pytest.raises(ToolFailed, match=r"(?m)^module\.cu\(1\): error") as caught:
        compile_cuda("__global__ void k() { undeclared(); }")
    assert tempfile.gettempdir() not in caught.value.log


def test_flags_from_the_environment_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_cuda(SAXPY)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
    assert compile_cuda(SAXPY) == plain


def test_machine_code_is_disassembled() -> None:
    assert "EXIT" in disassemble(assemble(empty_kernel()).cubin)
    with pytest.raises(ToolFailed):
        disassemble(b"no cubin")


def test_a_tool_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    slow = Tool("ptxas", script(tmp_path, "ptxas", f"sleep 60 & echo $! > {pid}; wait"), "environment")
    with pytest.raises(ToolTimeout, match=r"after 0\.5 s"):
        assemble(empty_kernel(), tool=slow, timeout=0.5)
    assert not is_running(int(pid.read_text()))


def test_a_time_limit_can_end_a_task_of_another_process() -> None:
    copied = pickle.loads(pickle.dumps(ToolTimeout("nvcc", 0.5)))
    assert type(copied) is ToolTimeout and str(copied) == "nvcc was ended after 0.5 s"
    assert (copied.name, copied.seconds) == ("nvcc", 0.5)


def test_nothing_is_left_behind_and_threads_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modules = [empty_kernel().replace(" k()", f" k{i}()") for i in range(8)]
    with ThreadPoolExecutor(len(modules)) as pool:
        done = list(pool.map(assemble, modules))
    assert all(f"k{i}".encode() in one.cubin for i, one in enumerate(done))
    with pytest.raises(PtxasError):
        assemble("nonsense")
    assert not list(tmp_path.iterdir())


def test_importing_it_loads_nothing_that_runs_processes() -> None:
    program = "import sys, ptxmotion.toolchain.tools; print({'subprocess', 'tempfile', 'numpy'} & set(sys.modules))"
    link = Path(__file__).resolve().parents[2] / "typings"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(link), *sys.path])}
    done = subprocess.run([sys.executable, "-Sc", program], capture_output=True, text=True, env=environment)
    assert done.stdout == "set()\n", done.stderr
