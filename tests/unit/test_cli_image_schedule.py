"""`ptxmotion image` with schedules: names, files, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from ptxmotion.cli import main
from ptxmotion.cli.pictures import picture_file, read_picture
from ptxmotion.harness.machine import MachineMissing

BLUR = """from ptxmotion.dsl import u8, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, Window, local, pipeline

@local((3, 1))
def across(src: Window[u8]) -> u8:
    return u8((i32(src[-1, 0]) + i32(src[0, 0]) * 2 + i32(src[1, 0])) // 4)

@local((1, 3))
def down(src: Window[u8]) -> u8:
    return u8((i32(src[0, -1]) + i32(src[0, 0]) * 2 + i32(src[0, 1])) // 4)

@pipeline
def blur(src: Image[u8]) -> Image[u8]:
    return down(Accessor(across(Accessor(src, Boundary.CLAMP)), Boundary.MIRROR))
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "blur.py"
    path.write_text(BLUR)
    return str(path)


def test_a_schedule_is_saved_edited_and_used(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "schedule.json"
    arguments = ["image", "show", file, "--size", "256x256", "--schedule"]
    assert main([*arguments, "separate", "--save-schedule", str(saved)]) == 0
    assert capsys.readouterr().out.count("group: ") == 2
    document = json.loads(saved.read_text())
    assert [group["nodes"] for group in document["groups"]] == [["across"], ["down"]]
    group = {"nodes": ["across", "down"], "tiled": ["across"], "block": [32, 4], "pixels": [2, 4]}
    document["groups"] = [{**group, "tiles": "hybrid", "in_registers": 1}]
    saved.write_text(json.dumps(document))
    assert main([*arguments, str(saved)]) == 0
    assert "tile of a warp 64 x 4, block 32 x 4, 1 of 2 columns in registers" in capsys.readouterr().out

    picture, results = tmp_path / "in.png", [tmp_path / "naive.png", tmp_path / "out.png"]
    pixels = np.random.default_rng(0).integers(0, 256, (30, 150), np.uint8)
    picture.write_bytes(picture_file(str(picture), pixels, "u8"))
    run = ["image", "run", file, str(picture), "--backend=emulator", "-o"]
    assert main([*run, str(results[0])]) == 0
    assert main([*run, str(results[1]), "--schedule", str(saved)]) == 0
    images = [read_picture(str(path), "u8") for path in results]
    assert np.array_equal(images[0], images[1])


def test_what_is_refused(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.json"
    group = {"nodes": ["across", "down"], "tiled": [], "block": [32, 4], "pixels": [1, 1], "tiles": "hybrid"}
    wrong.write_text(json.dumps({"pipeline": "blur", "groups": [group]}))

    def refused(*arguments: str) -> str:
        try:
            code = main(["image", "show", file, *arguments])
        except SystemExit as why:
            code = why.code
        assert code not in (0, None)
        return capsys.readouterr().err

    assert "hybrid tiles have 1 to 1 columns in registers, not 0" in refused("--schedule", str(wrong))
    assert "there is no file 'atuo' (did you mean 'auto'?)" in refused("--schedule=atuo")
    assert "exclude each other" in refused("--schedule=auto", "--lowering=isp")
    assert "writes the schedule of --schedule" in refused("--save-schedule", str(wrong))
    assert "there is no file ''" in refused("--schedule=")
    binary, empty = tmp_path / "binary.json", tmp_path / "empty.json"
    binary.write_bytes(b"\xff\xfe")
    empty.write_text("")
    assert "is not a text file in UTF-8" in refused("--schedule", str(binary))
    assert "this is not the JSON of a plan" in refused("--schedule", str(empty))
    assert "the file of a schedule has the blocks" in refused("--schedule", str(wrong), "--block=8x8")
    same = str(tmp_path / "same.svg")
    assert same in refused("--schedule=separate", "--save-schedule", same, "-o", same)
    assert not Path(same).exists()
    picture = tmp_path / "same.png"
    assert f"the picture is an SVG file: -o FILE.svg, not {picture}" in refused("-o", str(picture))
    assert not picture.exists()


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0", "x"])
def test_the_budget_of_a_search_is_a_number_of_seconds(
    file: str, seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["image", "tune", file, "-o", "schedule.json", f"--seconds={seconds}"]) == 2
    assert f"'{seconds}' is not a number of seconds above 0" in capsys.readouterr().err


def test_a_search_needs_a_gpu(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu() -> None:
        raise MachineMissing("the driver sees no device", "is CUDA_VISIBLE_DEVICES empty?")

    monkeypatch.setattr("ptxmotion.harness.cuda.open_backend", no_gpu)
    output = tmp_path / "schedule.json"
    assert main(["image", "tune", file, "-o", str(output)]) == 4
    assert "times are measured on a GPU: the driver sees no device" in capsys.readouterr().err
    assert not output.exists()
