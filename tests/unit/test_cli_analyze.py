"""`analyze --divergence --memory --picture`: the reports, their JSON form, and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ptxmotion.analysis import Facts
from ptxmotion.cli import main
from ptxmotion.cli.cfg_picture import MOST_BLOCKS, PictureError, draw_cfg
from ptxmotion.cli.divergence_report import ranges
from ptxmotion.cli.layered_layout import Layout, layered_layout
from ptxmotion.ptx import Kernel, parse

HEAD = '.version 8.5\n.target sm_80\n.address_size 64\n.file 1 "k.cu"\n'
KERNEL = """
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .shared .align 4 .b32 tile[64];
    .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .f32 %f<9>;
    .loc 1 10 0
    ld.param.u64 %d1, [x];
    ld.param.u64 %d2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r2, 4;
    cvta.to.global.u64 %d4, %d1;
    cvta.to.global.u64 %d5, %d2;
    add.s64 %d6, %d4, %d3;
    add.s64 %d7, %d5, %d3;
    mov.u32 %r6, 0;
    ld.shared.u32 %r8, [tile+8];
    setp.ge.u32 %p1, %r2, %r1;
    .loc 1 11 0
    @%p1 bra DONE;
LOOP:
    .loc 1 12 0
    ld.global.f32 %f1, [%d6];
    bar.sync 0;
    .loc 1 13 0
    ld.shared.f32 %f2, [tile+4];
    st.global.f32 [%d7], %f1;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p2, %r6, %r1;
    .loc 1 14 0
    @%p2 bra LOOP;
DONE:
    ret;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + KERNEL)
    return path


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert main(["analyze", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["kernels"][0]


def test_divergence_as_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, source, "--divergence")
    assert found["blocks"] == 3  # the overview is printed, too
    first, second = found["divergence"]["branches"]
    assert (first["block"], first["file"], first["line"], first["divergent"]) == (0, "k.cu", 11, True)
    assert [step["text"] for step in first["why"]] == ["branch diverges", "%p1", "%r2", "%tid.x"]
    assert [step["line"] for step in first["why"]] == [11, 10, 10, 10]
    assert (second["divergent"], second["why"], second["executed"]) == (False, [], None)
    assert [block["in_cdrnd"] for block in found["divergence"]["blocks"]] == [True, False, True]
    assert found["divergence"]["blocks"][1]["divergent_branches"] == [0]
    assert found["divergence"]["blocks"][1]["lines"] == [12, 14]
    assert found["divergence"]["loops"][0]["divergent_exit"] is False


def test_divergence_for_people(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(source), "--divergence"]) == 0
    out = capsys.readouterr().out
    assert "2 branches, 1 of them may part a warp; 2 of 3 blocks" in out
    assert "(CDRND): 0, 2" in out
    assert "block 0: branch diverges: @%p1 bra DONE;  (k.cu:11)" in out
    assert "← %tid.x    mov.u32 %r2, %tid.x;" in out
    assert "may part" in out and "stay together" in out


def test_a_chain_that_was_printed_is_not_printed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + KERNEL.replace("setp.lt.u32 %p2, %r6", "setp.lt.u32 %p2, %r2"))
    assert main(["analyze", str(path), "--divergence"]) == 0
    assert "← … as for block 0" in capsys.readouterr().out


def test_a_block_shape_is_used(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = source.read_text().replace("mov.u32 %r2, %tid.x", "mov.u32 %r2, %tid.y")
    source.write_text(text)
    assert document(capsys, source, "--divergence")["divergence"]["branches"][0]["divergent"]
    found = document(capsys, source, "--divergence", "--block", "32,4")["divergence"]
    assert found["block_shape"] == [32, 4, 1]
    assert not found["branches"][0]["divergent"]
    assert main(["analyze", str(source), "--block", "32,x"]) == 2
    assert "not a block shape such as 256" in capsys.readouterr().err


def test_a_profile_is_shown(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "k.profile"
    words = ["--grid", "1", "--block", "64", "--arg", "f32[64]", "--arg", "f32[64]", "--arg", "u32:64"]
    assert main(["emulate", str(source), *words, "--profile", str(saved), "--counts", "none", "--no-checks"]) == 0
    capsys.readouterr()
    found = document(capsys, source, "--divergence", "--profile", saved)["divergence"]
    first, second = found["branches"]
    assert (first["executed"], first["diverged"], first["divergent"], first["expected_divergent"]) == (
        2,
        0,
        True,
        False,
    )
    assert second["executed"] == 2 * 64
    assert [block["weight"] for block in found["blocks"]] == [1.0, 64.0, 1.0]
    assert [block["in_expected_cdrnd"] for block in found["blocks"]] == [True, True, True]
    assert main(["analyze", str(source), "--divergence", "--profile", str(saved)]) == 0
    assert "executed  parted  expected" in capsys.readouterr().out


def test_memory_as_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, source, "--memory")["memory"]
    assert found["buffers"]["reads"] == ["x"]
    assert found["buffers"]["writes"] == ["y"]
    by_text = {each["reference"]: each for each in found["references"]}
    load, store, shared = (
        by_text[f"{text}]"] for text in ("ld.global.f32 [%d6", "st.global.f32 [%d7", "ld.shared.f32 [tile+4")
    )
    assert load["class"] == store["class"] != shared["class"]
    assert (load["unwritten"], store["unwritten"], shared["unwritten"]) == (False, None, True)
    assert (load["divergent_address"], shared["divergent_address"]) == (True, False)
    assert (shared["speculation"]["kind"], shared["speculation"]["above"]) == ("proven", 0)
    assert (load["speculation"]["kind"], load["speculation"]["text"]) == ("guarded", "under @!%p1")
    (barrier,) = found["synchronizations"]
    assert barrier["kills"] == [{"class": load["class"], "reason": "barrier", "loads": 1}]
    assert barrier["keeps"] == 2  # no thread writes the tile
    assert {each["name"] for each in found["classes"]} == {"param", "A", "B"}


def test_a_promise_parts_classes(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, source, "--memory", "--alias", "restrict")["memory"]
    assert found["promise"] == "restrict"
    by_text = {each["reference"]: each for each in found["references"]}
    assert by_text["ld.global.f32 [%d6]"]["class"] != by_text["st.global.f32 [%d7]"]["class"]
    assert by_text["ld.global.f32 [%d6]"]["unwritten"]


def test_memory_for_people(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(source), "--memory"]) == 0
    out = capsys.readouterr().out
    assert "reads: x\nwrites: y\n" in out
    assert "ld.global.f32 [%d6]" in out and "0 under @!%p1" in out
    assert "bar.sync 0;" in out
    assert "ld.param" not in out


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_is_written(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    drawn = tmp_path / "k.svg"
    assert main(["analyze", str(source), "--picture", str(drawn)]) == 0
    text = drawn.read_text()
    for words in (
        "@%p1 bra DONE;",
        "loop 0",
        "may part a warp",
        "k.cu:12–14",
        "2 blocks under no such branch",
    ):
        assert words in text, words
    assert capsys.readouterr().out == ""  # only a picture was requested
    first = drawn.read_bytes()
    assert main(["analyze", str(source), "--picture", str(drawn)]) == 0
    assert drawn.read_bytes() == first
    png = tmp_path / "k.png"
    assert main(["analyze", str(source), "--picture", str(png), "--divergence"]) == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "divergence of k" in capsys.readouterr().out


def test_pictures_that_are_refused(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(source), "--picture", "k.jpg"]) == 2
    assert "FILE.svg or FILE.png" in capsys.readouterr().err
    source.write_text(HEAD + KERNEL + KERNEL.replace("entry k", "entry l"))
    assert main(["analyze", str(source), "--picture", str(tmp_path / "k.svg")]) == 2
    assert "choose it with --kernel; there are k, l" in capsys.readouterr().err


def many_blocks(count: int) -> Kernel:
    lines = "\n".join(f"setp.eq.u32 %p, %r, {i};\n@%p bra L{i};\nadd.u32 %r, %r, 1;\nL{i}:" for i in range(count))
    body = f".reg .pred %p;\n.reg .b32 %r;\nmov.u32 %r, %tid.x;\n{lines}\nret;"
    return parse(f"{HEAD}.visible .entry k()\n{{\n{body}\n}}\n").kernels[0]


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(PictureError, match=f"no more than {MOST_BLOCKS} are drawn"):
        draw_cfg(Facts(many_blocks(MOST_BLOCKS // 2)), "svg", lambda instr: ("", 0, 0))


def test_a_high_graph_is_divided_into_columns() -> None:
    pytest.importorskip("matplotlib")
    text = draw_cfg(Facts(many_blocks(40)), "svg", lambda instr: ("", 0, 0)).decode()
    assert "from " in text and ">to " in text


def boxes_overlap(layout: Layout, sizes: list[tuple[float, float]]) -> bool:
    for one, ((x, y), (width, height)) in enumerate(zip(layout.centre, sizes, strict=True)):
        for (other_x, other_y), (other_width, other_height) in list(zip(layout.centre, sizes, strict=True))[:one]:
            near = abs(x - other_x) < (width + other_width) / 2 and abs(y - other_y) < (height + other_height) / 2
            if near:
                return True
    return False


def test_layouts_of_random_graphs_have_no_overlaps() -> None:
    from random import Random

    rng = Random(5)
    for _ in range(25):
        count = rng.randrange(1, 30)
        sizes = [(rng.uniform(20, 200), rng.uniform(10, 60)) for _ in range(count)]
        pairs = [(rng.randrange(count), rng.randrange(count)) for _ in range(2 * count)]
        forward = [(one, two) for one, two in pairs if one < two]
        back = [(one, two) for one, two in pairs if one >= two]
        layout = layered_layout(sizes, forward, back)
        assert not boxes_overlap(layout, sizes)
        assert all(
            -1e-6 <= x - w / 2 and x + w / 2 <= layout.width + 1e-6
            for (x, _), (w, _) in zip(layout.centre, sizes, strict=True)
        )
        assert all(0 <= y <= layout.height for _, y in layout.centre)
        assert all(layout.centre[one][1] < layout.centre[two][1] for one, two in forward)
        assert set(layout.lines) == {*forward, *back}
        assert layered_layout(sizes, forward, back).centre == layout.centre


def test_no_boxes_have_a_layout() -> None:
    assert layered_layout([], [], []).centre == []


def test_numbers_are_printed_as_ranges() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert ranges([]) == ""
