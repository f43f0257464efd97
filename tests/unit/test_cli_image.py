"""`ptxmotion image`: what it prints, draws and computes, and its refusals."""

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
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


def test_show_counts_instructions(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "show", f"{file}:edges", "--lowering=isp", "--size", "320x64", "--counts"]) == 0
    out = capfd.readouterr().out
    assert "across: instructions of a warp of isp by region, and of naive" in out
    assert re.search(r"^ +kernel +l +body +r +naive$", out, re.MULTILINE) and "checks, switch" in out


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


def test_wrong_usage_of_image_has_a_message_and_an_exit_code(
    file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "none.py").write_text("x = 1\n")
    for words, code, message in (
        ([file], 2, "there are edges, blend"),
        ([f"{file}:edge"], 2, "there is no pipeline 'edge' (did you mean 'edges'?)"),
        ([str(tmp_path / "none.py")], 2, "the file has no @pipeline"),
        (["pathfinder"], 2, "rodinia/pathfinder is no image pipeline"),
        (["no_such_filter"], 3, "no program is called 'no_such_filter'"),
        ([str(tmp_path / "missing.py")], 3, "No such file"),
        ([f"{file}:edges", "--lowering=ips"], 2, "there is no lowering 'ips' (did you mean 'isp'?)"),
        ([f"{file}:edges", "--size=5"], 2, "'5' is not two numbers from 1 on, such as 512x512"),
        ([f"{file}:edges", "--size=dst=5x5"], 2, "edges has no image 'dst'; there are src"),
        ([f"{file}:edges", "--block=64x32"], 2, "at most 1024 threads"),
        ([f"{file}:edges", "--counts"], 2, "--counts counts the instructions of regions: --lowering=isp, isp_warp"),
    ):
        assert main(["image", "show", *words]) == code, words
        assert message in capfd.readouterr().err, words


# --- image run ----------------------------------------------------------------------------------------------------

KINDS = """from ptxmotion.dsl import f32, float4, i32, u8, u16, uchar4
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, maximum, pipeline, point

@local((3, 1))
def right(src: Window[uchar4]) -> uchar4:
    return src[1, 0]

@point
def half(a: u16) -> u16:
    return a // 2

@point
def times(a: f32, factor: f32) -> f32:
    return a * factor

@point
def swapped(a: float4) -> float4:
    return float4(a.z, a.y, a.x, a.w)

@point
def wide(a: u8) -> i32:
    return i32(a)

@pipeline
def moved(src: Image[uchar4]) -> Image[uchar4]:
    return right(Accessor(src, Boundary.REPEAT))

@pipeline
def halved(src: Image[u16]) -> Image[u16]:
    return half(src)

@pipeline
def brighter(src: Image[f32], factor: f32):
    made = times(src, factor)
    return made, maximum(f32)(made)

@pipeline
def swap(src: Image[float4]) -> Image[float4]:
    return swapped(src)

@pipeline
def widened(src: Image[u8]) -> Image[i32]:
    return wide(src)
"""


@pytest.fixture
def kinds(tmp_path: Path) -> str:
    path = tmp_path / "kinds.py"
    path.write_text(KINDS)
    return str(path)


def run_on(kinds: str, name: str, array: NDArray[Any], *more: str) -> NDArray[Any]:
    """The picture that a pipeline makes of an array."""
    pillow = pytest.importorskip("PIL.Image")
    folder = Path(kinds).parent
    pillow.fromarray(array).save(folder / "in.png")
    words = ["image", "run", f"{kinds}:{name}", str(folder / "in.png"), "--backend=emulator", *more]
    assert main([*words, "-o", str(folder / "out.png")]) == 0
    return np.asarray(pillow.open(folder / "out.png"))


def test_run_on_pictures_of_each_kind(kinds: str, capfd: pytest.CaptureFixture[str]) -> None:
    numbers = np.random.default_rng(0)
    colours = numbers.integers(0, 256, (5, 40, 4), np.uint8)
    assert np.array_equal(run_on(kinds, "moved", colours, "--lowering=isp"), np.roll(colours, -1, axis=1))
    assert np.array_equal(run_on(kinds, "swap", colours), colours[:, :, [2, 1, 0, 3]])
    opaque = run_on(kinds, "moved", colours[:, :, :3])
    assert np.array_equal(opaque[:, :, :3], np.roll(colours[:, :, :3], -1, axis=1)) and (opaque[:, :, 3] == 255).all()
    deep = numbers.integers(0, 1 << 16, (4, 6)).astype(np.uint16)
    assert np.array_equal(run_on(kinds, "halved", deep), deep // 2)
    grey = np.array([[0, 10, 100, 200]], np.uint8)
    assert run_on(kinds, "halved", grey).tolist() == [[value * 257 // 2 for value in grey[0].tolist()]]
    capfd.readouterr()
    assert run_on(kinds, "brighter", grey, "--number=factor=2").tolist() == [[0, 20, 200, 255]], "cut off"
    assert float(capfd.readouterr().out.partition(": ")[2]) == pytest.approx(400 / 255)


def test_refusals_of_run(kinds: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pillow = pytest.importorskip("PIL.Image")
    picture, text = str(tmp_path / "a.png"), tmp_path / "text.png"
    pillow.fromarray(np.zeros((2, 3), np.uint8)).save(picture)
    text.write_text("no picture")
    out = ["-o", str(tmp_path / "out.png")]
    for words, code, message in (
        ([f"{kinds}:halved", picture, picture, *out], 2, "halved takes a picture for each of src; 2 are given\n"),
        ([f"{kinds}:halved", picture], 2, "a file for each result that is a picture: half; 0 are given"),
        ([f"{kinds}:brighter", picture, *out], 2, "brighter takes the number factor: --number factor=VALUE"),
        ([f"{kinds}:halved", picture, *out, "--number=factor=1"], 2, "halved has no number 'factor'; it has none"),
        ([f"{kinds}:halved", picture, *out, "--number=factor"], 2, "'factor' is not a number with its name"),
        ([f"{kinds}:widened", picture, *out], 2, "the result wide of widened has pixels of i32, and pictures have u8"),
        ([f"{kinds}:halved", str(text), *out], 3, "text.png: error: this is no picture that Pillow reads"),
        ([f"{kinds}:halved", str(tmp_path / "none.png"), *out], 3, "No such file"),
        ([f"{kinds}:halved", picture, "-o", str(tmp_path / "out.what")], 2, "no format of pictures by this name"),
    ):
        assert main(["image", "run", *words, "--backend=emulator"]) == code, words
        assert message in capfd.readouterr().err, words
    assert not list(tmp_path.glob("out*"))


def test_run_without_pillow(
    kinds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert main(["image", "run", f"{kinds}:halved", str(tmp_path / "a.png"), "-o", "out.png"]) == 4
    assert "install it with: python -m pip install 'ptxmotion[pictures]'" in capfd.readouterr().err
