"""`bench/builds.py` measures builds; a PTX file without kernels costs a build no run of the optimizer."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from builds import Builds, Compiler, NotBuilt, Seconds, table
from ptxmotion.compiler.build_step import BuildStep

_HEADER = b".version 9.0\n.target sm_90\n.address_size 64\n"


def test_ptx_without_kernels_needs_no_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXMOTION_CACHE", str(tmp_path))

    def flags(text: str) -> NoReturn:
        raise AssertionError(f"the options are read: {text}")

    step = BuildStep("a.cu", [("sm_90", ())])
    entry = step.optimized(_HEADER + b".visible .global .align 4 .u32 entry;\n", flags)
    assert (entry["kernels"], entry["changed"], entry["text"], entry["contracts"]) == ([], [], None, [])
    for kernel in (b".entry k() { ret; }", b".func f() { ret; }"):
        with pytest.raises(AssertionError):
            step.optimized(_HEADER + kernel, flags)


def compilers_of(work: Path) -> Callable[[str], Compiler]:
    def compiler(text: str) -> Compiler:
        path = work / "compiler"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return Compiler(str(path), {"SETTING": "set"})

    return compiler


def test_builds_run_make_in_a_copy(tmp_path: Path) -> None:
    folder, work = tmp_path / "program", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    (folder / "Makefile").write_text("main: Makefile\n\t$(CC) $(ARCH)\nclean:\n\trm -f main\n")
    builds = Builds(work, ["ARCH=sm_90"], "CC")
    compiler = compilers_of(tmp_path)
    log = tmp_path / "log"
    built = builds.build(folder, compiler(f'echo "$1 $SETTING $PTXMOTION_CACHE" >> {log}; touch main'), tmp_path / "c")
    assert log.read_text() == f"sm_90 set {tmp_path / 'c'}\n"
    assert 0 <= built.cpu < 10 and 0 < built.wall < 10 and not (folder / "main").exists()
    with pytest.raises(NotBuilt, match="no GPU"):
        builds.build(folder, compiler("echo no GPU >&2; exit 1"), None)
    with pytest.raises(NotBuilt, match="without the optimizer"):
        builds.build(folder, compiler("echo nvcc runs without the optimizer >&2; touch main"), None)


def test_the_table_has_ratios_to_nvcc() -> None:
    rows = {
        "a": {"nvcc": Seconds(1.0, 2.0), "cold": Seconds(2.0, 3.0)},
        "b": {"nvcc": Seconds(2.0, 2.0), "cold": Seconds(1.0, 3.0)},
    }
    lines = list(table(rows))
    assert lines[-2:] == [
        f"cpu  {'cold':24} 1.000 of nvcc (0.50 to 2.00)",
        f"wall {'cold':24} 1.500 of nvcc (1.50 to 1.50)",
    ]
    least = Seconds()
    for each in (Seconds(2.0, 1.0), Seconds(1.0, 3.0)):
        least.add(each)
    assert least == Seconds(1.0, 1.0)
