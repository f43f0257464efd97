"""A PyTorch extension on a GPU: built with nvcc, and by `PYTORCH_NVCC` with the optimizer and with contracts.

All have the same results, and the kernel changes. The optimizer runs without its gate, so that it changes for sure.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from injection_builds import program_on_path
from nvcc_builds import NVCC, environment
from ptxmotion.python_child import module_command

pytestmark = pytest.mark.gpu

SOURCE = r"""
#include <torch/extension.h>

__global__ void choose(float *out, const float *in, const float *weights, int columns, float limit) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = in[i], a = 1;
    if (value > limit) a = value / columns; else atomicAdd(out + gridDim.x * blockDim.x, 1.0f);
    __syncthreads();
    out[i] = a + value / columns;
    for (int column = 0; column < columns; ++column) out[i] += weights[column] * in[column];
}

torch::Tensor choose_all(torch::Tensor in, torch::Tensor weights, double limit) {
    TORCH_CHECK(in.is_cuda() && in.size(0) % 128 == 0, "a tensor on the GPU of whole blocks");
    auto out = torch::zeros({in.size(0) + 1}, in.options());
    choose<<<in.size(0) / 128, 128>>>(out.data_ptr<float>(), in.data_ptr<float>(), weights.data_ptr<float>(),
                                      weights.size(0), limit);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess);
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("choose_all", &choose_all); }
"""

PROGRAM = """
import os, sys
import torch
from torch.utils.cpp_extension import load
folder, *options = sys.argv[1:]
os.makedirs(folder)
built = load("chosen", ["chosen.cu"], build_directory=folder, extra_ldflags=options)
torch.manual_seed(0)
out = built.choose_all(torch.rand(4096, device="cuda"), torch.rand(64, device="cuda"), 0.5)
print(out.double().sum().item(), out.tolist())
"""


def started(folder: Path, name: str, *options: str, **settings: str) -> subprocess.Popen[str]:
    """Start to build and to run the extension in a folder of its own."""
    home = Path(NVCC).resolve().parents[1]
    found = {"CUDA_HOME": str(home)} if (home / "include" / "cuda_runtime.h").exists() else {}
    path = program_on_path(folder, "ptxmotion-nvcc", "nvcc")
    flags = {"TORCH_CUDA_ARCH_LIST": "9.0", "PTXMOTION_FLAGS": "-O3 --gate=off"}
    settings = {**environment(folder), "PATH": path, **found, **flags, **settings}
    command = [sys.executable, "program.py", name, *options]
    return subprocess.Popen(
        command, cwd=folder, env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def output_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The last line that a program has printed, and its messages."""
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, output + errors
    return output.splitlines()[-1], errors


def test_a_torch_extension(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None or not shutil.which("ninja"):
        pytest.skip("PyTorch or ninja is not installed")
    if not NVCC or not shutil.which("g++"):
        pytest.skip("no nvcc, or no host compiler")
    (tmp_path / "chosen.cu").write_text(SOURCE)
    (tmp_path / "program.py").write_text(PROGRAM)
    own = {"PYTORCH_NVCC": str(tmp_path / "bin" / "ptxmotion-nvcc")}
    linked = subprocess.run(
        module_command("contract", "link-options"), env=environment(tmp_path), capture_output=True, text=True
    )
    assert linked.returncode == 0, linked.stderr
    log, contract_log = tmp_path / "log", tmp_path / "contract_log"
    processes = [
        started(tmp_path, "plain"),
        started(tmp_path, "ours", PTXMOTION_LOG=str(log), **own),
        started(
            tmp_path,
            "contract",
            *linked.stdout.split(),
            PTXMOTION_LOG=str(contract_log),
            PTXMOTION_CONTRACT="1",
            PTXMOTION_LAUNCH="statistics",
            **own,
        ),
    ]
    (plain, _), (ours, _), (checked, statistics) = [output_of(each) for each in processes]
    assert ours == plain
    assert checked == plain
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert ["choose" in name for each in entries for name in each["changed"]] == [True]
    entries = [json.loads(line) for line in contract_log.read_text().splitlines()]
    assert ["choose" in name for each in entries for name in each["versioned"]] == [True]
    print(statistics)
    assert ": taken 1" in statistics
