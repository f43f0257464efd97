"""The synchronization that adjacent launches of the suite programs need, and that it suffices.

Each pair is fused a given number of times, with a grid barrier if it needs one, and runs on the emulator in addition to
the two launches. Memory must be equal, and the emulator must find nothing new.
"""

from pathlib import Path

import pytest
from ptxmotion.cli import main
from ptxmotion.ptx import print_module
from ptxmotion.toolchain.tools import assemble
from suite_pairs import adjacent_pairs

#: For each program, the pairs and the synchronization that they need.
NEEDED = {
    "rodinia/bfs": {("expand", "advance"): "grid"},
    "rodinia/cfd": {
        ("initialize_variables", "initialize_variables"): "thread",
        ("compute_step_factor", "compute_flux"): "thread",
        ("compute_flux", "time_step"): "grid",
        ("time_step", "compute_flux"): "grid",
    },
    "rodinia/gaussian": {("fan1", "fan2"): "none", ("fan2", "fan1"): "none"},
    "rodinia/huffman": {
        ("histo_kernel", "histo_kernel"): "thread",
        ("prescan", "prescan"): "grid",
        ("prescan", "uniform_add"): "grid",
        ("uniform_add", "pack2"): "none",
    },
    "rodinia/srad_v1": {
        ("extract", "prepare"): "thread",
        ("prepare", "reduce"): "grid",
        ("reduce", "reduce"): "grid",
        ("srad", "srad2"): "grid",
        ("srad2", "prepare"): "thread",
        ("srad2", "compress"): "thread",
    },
    "rodinia/srad_v2": {("srad_cuda_1", "srad_cuda_2"): "grid"},
}


@pytest.mark.parametrize("program", NEEDED)
def test_pairs_of_a_program(program: str) -> None:
    found = adjacent_pairs(program, tries=1, grid_barrier=True)
    assert {(pair.first, pair.second): pair.worst.kind for pair in found} == NEEDED[program]
    for pair in found:
        assert pair.differences == ()
        assert (pair.fused is None) == (pair.worst.kind == "none")
        if pair.fused is not None:
            assemble(print_module(pair.fused.module))


def test_loads_of_srad_come_from_registers() -> None:
    made = {pair.second: pair.fused for pair in adjacent_pairs("rodinia/srad_v1")}
    prepare = made["prepare"]
    assert prepare is not None
    assert "loads replaced by the register that the same thread stored: 2" in prepare.remarks


def test_fusions_of_a_rejected_attempt_are_not_reported_as_fused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the loop around `reduce` tested at its end, `prepare` and `reduce` fuse, and fewer others do."""
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))  # without costs that were measured on this machine
    assert main(["fuse", "rodinia/srad_v1", "--remarks"]) == 0
    printed = capsys.readouterr().err
    assert "fuse: prepare+reduce: fusing these two would leave more launches elsewhere [less-fused]" in printed
    assert "fused as fused_extract_prepare" in printed and "fused as fused_prepare_reduce" not in printed
