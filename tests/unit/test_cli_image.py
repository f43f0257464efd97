"""`ptxmotion image`: what it prints and draws, and its refusals."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ptxmotion.cli import main
from ptxmotion.cli.pipeline_picture import draw_pipeline, parts_of_axis
from ptxmotion.dsl.image import Options, lower
from ptxmotion.dsl.image.partitioning import Axis
from ptxmotion.suites.registry import find

TWO = """from ptxmotion.dsl import f32, u8
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, mean, pipeline, point

@local((3, 1))
def across(src: Window[f32]) -> f32:
    return src[1, 0] - src[-1, 0]

@point
def mixed(a: f32, b: f32, part: f32) -> f32:
    return a * part + b * (1.0 - part)

@pipeline
def edges(src: Image[f32]) -> Image[f32]:
    return across(Accessor(src, Boundary.CLAMP))

@pipeline
def blend(first: Image[f32], second: Image[f32], part: f32) -> Image[f32]:
    return mixed(first, Accessor(second, Boundary.CLAMP, scale=2), part)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "two.py"
    path.write_text(TWO)
    return str(path)


def texts(svg: str) -> list[str]:
    """The texts of a picture, which must be a valid XML document."""
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_show_prints_graph_and_launches(file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "edges.svg"
    words = ["image", "show", f"{file}:edges", "--lowering=isp", "--size", "320x64", "--block=32x4", "-o", str(picture)]
    assert main(words) == 0
    out = capfd.readouterr().out
    assert "output across: f32 320 x 64 = local across([src, CLAMP, 3 x 1])" in out
    assert "across_kernel[(10, 16), (32, 4)] -> across" in out and "regions: l, r, body" in out
    drawn = texts(picture.read_text())
    assert drawn[0] == "edges: isp, blocks of 32 x 4"
    assert "src = src, window 3 x 1, clamp" in drawn and "launch 1: across_kernel, 10 x 16 blocks" in drawn
    # Columns of 32, 256 and 32 pixels, in one row.
    assert [text for text in drawn if re.fullmatch(r"[\d.]+%", text)] == ["10.00%", "80.00%", "10.00%"]


def test_sizes_of_several_images(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "show", f"{file}:blend", "--size=64x48", "--size=second=128x96"]) == 0
    out = capfd.readouterr().out
    assert "input first: f32 64 x 48" in out and "input second: f32 128 x 96" in out and "number part: f32" in out


def test_every_pipeline_of_the_suite_is_drawn() -> None:
    for name in ("harris", "night", "histogram", "unsharp"):
        pipeline = find(f"image/{name}").pipeline
        assert pipeline is not None
        for lowering, block in (("naive", (32, 8)), ("isp", (32, 8)), ("isp_warp", (128, 2))):
            lowered = lower(pipeline.graph(512, 300), lowering, Options(block))
            svg = draw_pipeline(lowered)
            assert svg == draw_pipeline(lowered)
            drawn = texts(svg)
            assert {image.name for image in (*lowered.graph.inputs, *lowered.graph.nodes)} <= set(drawn)
            edges = {(access.image, node) for node in lowered.graph.nodes for access in node.accesses}
            assert svg.count("<polyline") == len(edges)
            has_map = lowering != "naive" and name != "histogram"
            assert ("body" in drawn) is has_map


def test_parts_of_an_axis() -> None:
    def parts(axis: Axis, grain: int = 0) -> list[tuple[str, int, int]]:
        return [(part.name, part.start, part.stop) for part in parts_of_axis(axis, grain)]

    assert parts(Axis(2, 98, 100, 16, "lr")) == [("l", 0, 16), ("", 16, 96), ("r", 96, 100)]
    assert parts(Axis(2, None, 100, 16, "lr")) == [("l", 0, 16), ("", 16, 100)]
    assert parts(Axis(2, 98, 100, 128, "lr")) == [("lr", 0, 100)], "a block is at both edges"
    assert parts(Axis(2, 98, 100, 128, "lr"), 32) == [("l", 0, 32), ("", 32, 96), ("r", 96, 100)]


def test_refusals(file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.py").write_text("x = 1\n")
    for words, code, message in (
        ([file], 2, "there are edges, blend"),
        ([f"{file}:edge"], 2, "there is no pipeline 'edge' (did you mean 'edges'?)"),
        ([str(tmp_path / "none.py")], 2, "the file has no @pipeline"),
        (["pathfinder"], 2, "rodinia/pathfinder is no image pipeline"),
        (["no_such_filter"], 3, "no program is called 'no_such_filter'"),
        ([str(tmp_path / "missing.py")], 3, "No such file"),
        ([f"{file}:edges", "--lowering=ips"], 2, "there is no lowering 'ips' (did you mean 'isp'?)"),
        ([f"{file}:edges", "--size=5"], 2, "'5' is not two numbers such as 512x512"),
        ([f"{file}:edges", "--size=dst=5x5"], 2, "edges has no image 'dst'; there are src"),
        ([f"{file}:edges", "--block=64x32"], 2, "at most 1024 threads"),
    ):
        assert main(["image", "show", *words]) == code, words
        assert message in capfd.readouterr().err, words
