"""The counts of structures in kernels: for a small kernel with obvious counts, and for a suite program."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "experiments"))

from ptxmotion.ptx import parse

structure: Any = importlib.import_module("structure")

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .func helper() { bar.sync 0; ret; }
.visible .entry _Z4testPj(.param .u64 p)
{
  .reg .u64 %a; .reg .u32 %r<4>; .reg .pred %p<3>;
  .shared .u32 s[64];
  ld.param.u64 %a, [p];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, 0;
LOOP:
  ld.global.v2.u32 {%r2, %r3}, [%a];
  st.shared.u32 [s], %r2;
  bar.sync 0;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p0, %r1, 9;
  @%p0 bra LOOP;
  setp.lt.u32 %p1, %r0, 9;
  @%p1 bra END;
  atom.global.add.u32 %r3, [%a], 1;
  @%p1 st.global.u32 [%a], %r3;
END:
  ret;
}
"""


def test_the_structure_of_a_kernel_is_counted() -> None:
    found = structure.structures(parse(PTX))
    assert found == [
        ("test", structure.Structure(1, 2, 1, 1, global_loads=2, global_stores=2, shared_loads=0, shared_stores=1))
    ]


def test_a_program_stands_beside_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rodinia_pathfinder.ptx"
    path.write_text(PTX)
    ((name, ours),) = structure.read("rodinia/pathfinder")
    assert name == "dynproc" and ours.barriers == 3
    lines = list(structure.table([("rodinia/pathfinder", str(path))]))
    assert lines[2].startswith(f"| rodinia/pathfinder | ours | 1 | {ours.loops} | {ours.branches} |")
    assert lines[3] == "|  | original | 1 | 1 | 2 | 1 | 1 | 2 | 2 | 0 | 1 |"
    sys.argv = ["structure.py", "rodinia/pathfinder", str(path)]
    assert structure.main() == 0
    assert "dynproc" in capsys.readouterr().out
