"""`docs/experiments/contraction.py` and `corpus_levels.py`: results part by part, continued runs, and faults."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "experiments"))
contraction: Any = importlib.import_module("contraction")
levels: Any = importlib.import_module("corpus_levels")

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
#: Two loads of one address; the second is redundant. The sum of products is contracted.
KERNEL = """.visible .entry {name}(.param .u64 a)
{{ .reg .b64 %d<3>; .reg .f32 %f<6>;
ld.param.u64 %d1, [a];
ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d1+4];
mul.f32 %f4, %f1, %f3; add.f32 %f5, %f4, %f2;
st.global.f32 [%d1+8], %f5; ret; }}
"""


def folder(tmp_path: Path, count: int) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(count):
        (files / f"{number}.ptx").write_text(HEAD + KERNEL.format(name=f"k{number}"))
    return files


def call(tool: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["tool", *arguments])
    tool.main()


def test_a_run_of_contraction_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, rows, total = folder(tmp_path, 3), tmp_path / "rows", tmp_path / "total"
    options = (str(files), "--rows", str(rows), "--json", str(total))
    call(contraction, monkeypatch, *options)
    whole = json.loads(total.read_text())
    assert whole["total"]["kernels"] == 3
    assert whole["total"]["contracted before"] == whole["total"]["contracted after"] == 3
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:2]) + lines[2][:40])  # as if the run had been cut off
    call(contraction, monkeypatch, *options, "--seconds", "-1")
    assert json.loads(total.read_text())["total"]["parts not begun"] == 1
    assert rows.read_text() == "".join(lines[:2])
    call(contraction, monkeypatch, *options)
    assert json.loads(total.read_text()) == whole
    capsys.readouterr()


def test_levels_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    files, rows = folder(tmp_path, 2), tmp_path / "rows"
    (files / "wrong.ptx").write_text(HEAD + KERNEL.format(name="k").replace("st.global.f32", "st.global.b128"))
    options = (str(files), "--inputs", "2", "--rows", str(rows), "--levels=-O1,-O3")
    call(levels, monkeypatch, *options)
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert counts["files"] == 2
    assert counts["-O3 changed"] == counts["-O3 same"] == 2
    call(levels, monkeypatch, *options)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {}


def test_levels_find_a_wrong_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"-O1": ("[%d1+8]", "[%d1+12]"), "-O2": ("add.f32", "add.f64"), "-O3": ("mul.f32", "sub.f32")}

    def optimized(text: str, level: str) -> str:
        return text.replace(*wrong[level])

    monkeypatch.setattr(levels, "optimized", optimized)
    keep = tmp_path / "keep"
    keep.mkdir()
    call(levels, monkeypatch, str(folder(tmp_path, 1)), "--inputs", "2", "--levels=-O1,-O2,-O3", "--keep", str(keep))
    *faults, counts = capsys.readouterr().out.splitlines()
    assert json.loads(counts)["faults"] == 3
    assert sum(line.startswith("FAULT") for line in faults) == 3
    assert len(list(keep.iterdir())) == 6
