"""How long the parts of ptxmotion take, as benchmarks of pytest-benchmark.

    make bench
    python -m pytest bench/speed.py --benchmark-autosave --benchmark-storage=build/benchmarks
    pytest-benchmark --storage=build/benchmarks compare

Times are CPU seconds of this process and of the processes that it starts, so a busy machine changes them little. The
inputs are the kernels in `demo/` and generated ones. The passes run without the gate. `bench/run.py` has limits, and
compares with ptxas.

Requires: nvcc, for the kernels in `demo/`.
"""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import module
from ptxmotion.analysis.manager import Facts
from ptxmotion.dsl.host_program import HostProgram
from ptxmotion.emulator import Emulator
from ptxmotion.ptx import Module, flatten_scopes, parse, print_module
from ptxmotion.ptx.verify import verify
from ptxmotion.python_child import child_environment, module_command
from ptxmotion.suites.registry import find
from ptxmotion.suites.runner import compiler
from ptxmotion.toolchain.tools import compile_cuda
from ptxmotion.transforms.kernel_fusion.plan import fuse_program
from ptxmotion.transforms.pipeline import run_passes

DEMO = Path(__file__).resolve().parents[1] / "demo"
INPUTS = (*sorted(path.name for path in DEMO.glob("*.cu")), "1,000 instructions", "5,000 instructions")


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@cache
def text_of(name: str) -> str:
    """The PTX of an input."""
    if name.endswith(".cu"):
        return compile_cuda(DEMO / name, "sm_90")
    return module(1, int(name.split()[0].replace(",", "")))


@pytest.fixture
def timed(benchmark: Any) -> Callable[..., None]:
    """``timed(group, action, setup, rounds)`` measures ``action(*setup())``; the time of ``setup`` does not count."""

    def measure(group: str, action: Callable[..., Any], setup: Callable[[], Any], rounds: int) -> None:
        benchmark.group = group

        def arguments() -> tuple[tuple[Any], dict[str, Any]]:
            return (setup(),), {}

        benchmark.pedantic(action, setup=arguments, rounds=rounds, warmup_rounds=1)

    return measure


pytestmark = pytest.mark.benchmark(timer=cpu_seconds)


@pytest.mark.parametrize("name", INPUTS)
def test_parse(timed: Callable[..., None], name: str) -> None:
    timed("parse", parse, lambda: text_of(name), 15)


@pytest.mark.parametrize("name", INPUTS)
def test_print(timed: Callable[..., None], name: str) -> None:
    timed("print", print_module, lambda: parse(text_of(name)), 15)


@pytest.mark.parametrize("name", INPUTS)
def test_verify(timed: Callable[..., None], name: str) -> None:
    timed("verify", verify, lambda: parse(text_of(name)), 15)


def facts_of(text: str) -> None:
    """Compute the facts that `analyze` prints."""
    parsed = parse(text)
    for kernel in parsed.kernels:
        flatten_scopes(kernel)
        facts = Facts(kernel, parsed)
        _ = facts.loops, facts.values, facts.divergence, facts.memory, facts.pressure


@pytest.mark.parametrize("name", INPUTS)
def test_facts(timed: Callable[..., None], name: str) -> None:
    timed("facts", facts_of, lambda: text_of(name), 7)


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
@pytest.mark.parametrize("name", INPUTS)
def test_passes(timed: Callable[..., None], name: str, level: str) -> None:
    def passes(parsed: Module) -> None:
        run_passes(parsed, level)

    timed(f"passes of {level}", passes, lambda: parse(text_of(name)), 5)


def test_start_of_opt(timed: Callable[..., None], tmp_path: Path) -> None:
    """The whole process, for a file with one kernel."""
    source = tmp_path / "one.ptx"
    source.write_text(module(1, 60))
    command = module_command("opt", "--no-config", "--gate=off", str(source), "-o", str(tmp_path / "out.ptx"))

    def run(environment: dict[str, str]) -> None:
        subprocess.run(command, env=environment, check=True)

    timed("start of opt", run, child_environment, 9)


COUNTED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry count(.param .u64 x, .param .u32 turns)
{
  .reg .u32 %i, %n, %v;
  .reg .u64 %x, %o;
  .reg .pred %p;
  ld.param.u64 %x, [x];
  ld.param.u32 %n, [turns];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %o, %i, 4;
  add.u64 %x, %x, %o;
AGAIN:
  ld.global.u32 %v, [%x];
  mad.lo.u32 %v, %v, 3, %i;
  st.global.u32 [%x], %v;
  sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0;
  @%p bra AGAIN;
  ret;
}
"""


def test_emulator(timed: Callable[..., None]) -> None:
    """500 iterations of 256 threads."""
    loaded = Emulator().load(COUNTED)

    def launch(x: Any) -> None:
        loaded.launch("count", grid=1, block=256, args=[x, np.uint32(500)])

    timed("emulator", launch, lambda: np.zeros(256, np.uint32), 7)


def test_fusion(timed: Callable[..., None]) -> None:
    """`rodinia/cfd`, whose PTX is compiled before."""
    host = find("rodinia/cfd").program.host
    nvcc = compiler()
    texts = {kernel: kernel.ptx(nvcc) for kernel in host.kernels.values()}

    def fuse(program: HostProgram) -> None:
        fuse_program(program, texts.__getitem__)

    timed("fusion", fuse, lambda: host, 3)
