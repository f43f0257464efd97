"""The generated kernels of `make bench` are what the limits there are about: valid, and transformed by each level."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from ptxmotion import Policy, optimize

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

generated: Any = importlib.import_module("generated")


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_no_generated_kernel_is_left_alone(level: str) -> None:
    result = optimize(generated.module(kernels=3, instructions=300), level, Policy(gate="off"))
    assert result.changed == ("k0", "k1", "k2")
    assert "contraction" not in {remark.reason for remark in result.remarks}
