"""Results of ptxas are cached, and a damaged cache entry is computed again."""

from pathlib import Path

from ptxmotion.toolchain.cubin_cache import assemble_kept
from ptxmotion.toolchain.ptxas_log import ptxas_figures

PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_equal_modules_are_assembled_once_and_damage_is_mended(tmp_path: Path) -> None:
    first = assemble_kept(PTX, "sm_90", tmp_path)
    assert first.seconds > 0 and "k" in ptxas_figures(first.log)
    again = assemble_kept(PTX, "sm_90", tmp_path)
    assert (again.cubin, again.log, again.arch, again.seconds) == (first.cubin, first.log, "sm_90", 0.0)
    (entry,) = entries(tmp_path)
    for damage in (b"", b"\n\n", entry.read_bytes()[:-1]):
        entry.write_bytes(damage)
        assert assemble_kept(PTX, "sm_90", tmp_path).cubin == first.cubin
        assert assemble_kept(PTX, "sm_90", tmp_path).seconds == 0.0
    assert assemble_kept(PTX, "sm_100", tmp_path).cubin != first.cubin
    assert len(entries(tmp_path)) == 2


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert assemble_kept(PTX, "sm_90", tmp_path / "file").cubin
