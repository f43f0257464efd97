"""Whole kernels, video instructions, textures and surfaces on the GPU and on the emulator: the same bits."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ptxmotion.emulator import Emulator

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))

from golden import launch
from golden.forms import module_text
from golden.replay import VIDEO_DIFFERENCES
from golden.video import video_cases, video_columns
from ptx_run import Case, cases
from ptxmotion.emulator import Surface, Texture
from test_emulator_textures import FLOATS, PLACES, WORDS, image_of, text_of

#: Forms of video instructions for which the GPU does not compute what the manual says.
DIFFERENT = set(VIDEO_DIFFERENCES.read_text(encoding="utf-8").splitlines())
#: The video instructions, in parts that are modules of their own.
PARTS = 8


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_whole_kernels_compute_the_bits_of_the_gpu(case: Case) -> None:
    from gpu_driver import Gpu

    gpu = Gpu()
    there, here = case.args(), case.args()
    text = case.file.read_text(encoding="utf-8")
    gpu.launch(gpu.load(text), case.kernel, case.grid, case.block, there, case.shared)
    Emulator().load(text).launch(case.kernel, case.grid, case.block, here, case.shared)
    for number, (silicon, emulated) in enumerate(zip(there, here, strict=True)):
        if isinstance(silicon, np.ndarray):
            wrong = np.flatnonzero(silicon.view(np.uint8) != emulated.view(np.uint8))
            assert not wrong.size, f"argument {number}: byte {wrong[0]} and {wrong.size - 1} more differ"


@pytest.mark.gpu
@pytest.mark.parametrize("part", range(PARTS))
def test_video_instructions_give_the_bits_of_the_gpu(part: int) -> None:
    """Every form, with the selectors of `golden.video`. The driver assembles the kernels. Forms of which ptxas makes
    code with another result are listed."""
    from gpu_driver import Gpu

    gpu = Gpu()
    batch = list(video_cases().values())[part::PARTS]
    columns = video_columns()
    inputs, lanes = np.ascontiguousarray(np.stack(columns)), columns[0].size
    module = gpu.load(module_text(batch)[0])
    wrong: list[str] = []
    for number, (case, ours) in enumerate(zip(batch, launch.emulated(batch, lambda _: columns, 0), strict=True)):
        words = np.zeros((len(case.results), lanes), np.uint64)
        gpu.launch(module, f"k{number}", (lanes // 256,), (256,), [inputs, words, np.uint32(lanes)])
        if any((left != right).any() for left, right in zip(launch.trimmed(case, words), ours, strict=True)):
            wrong.append(case.key)
    assert set(wrong) == DIFFERENT & {case.key for case in batch}


def both(body: str, image: Surface) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """What the threads store, and the image afterwards: on the GPU and on the emulator."""
    from gpu_driver import Gpu
    from gpu_images import handle_of, read_back

    gpu, text = Gpu(), text_of(body)
    there, here = np.zeros((len(PLACES), 4), np.uint32), np.zeros((len(PLACES), 4), np.uint32)
    handle, array = handle_of(image)
    gpu.launch(gpu.load(text), "k", (1,), (len(PLACES),), [handle, there, PLACES.copy()])
    after = read_back(image, array)
    Emulator().load(text).launch("k", 1, len(PLACES), [image, here, PLACES.copy()])
    return [there, after], [here, image.array]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4"])
@pytest.mark.parametrize("border", ["clamp", "zero"])
@pytest.mark.parametrize("by", ["s32", "f32"])
def test_fetches_of_textures_give_the_bits_of_the_gpu(dtype: str, border: str, by: str) -> None:
    wrong: list[str] = []
    kind = "f32" if dtype == "f4" else "s32" if dtype[0] == "i" else "u32"
    registers, store = ("{%f0, %f1, %f2, %f3}", FLOATS) if kind == "f32" else ("{%r0, %r1, %r2, %r3}", WORDS)
    # By one integer, the GPU fetches from linear memory only. These textures are arrays.
    for dimensions in (1, 2, 3) if by == "f32" else (2, 3):
        for channels in (1, 2, 4):
            shape = (*(3, 7, 5)[3 - dimensions :], *((channels,) if channels > 1 else ()))
            places = {1: "{%x}", 2: "{%x, %y}", 3: "{%x, %y, %z, %z}"}[dimensions]
            start = ""
            if by == "f32":
                start = ".reg .f32 %w3; cvt.rn.f32.s32 %w3, %z; "
                places = {1: "{%u}", 2: "{%u, %v}", 3: "{%u, %v, %w3, %w3}"}[dimensions]
            body = f"{start}tex.{dimensions}d.v4.{kind}.{by} {registers}, [%t, {places}]; {store}"
            silicon, emulated = both(body, Texture(image_of(shape, dtype), channels, border))
            if not np.array_equal(silicon[0], emulated[0]):
                wrong.append(f"{dimensions}d {channels}: {silicon[0].tolist()} and not {emulated[0].tolist()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("outside", ["clamp", "zero"])
@pytest.mark.parametrize("kind", ["b8", "b16", "b32", "b64"])
def test_loads_and_stores_of_surfaces_give_the_bits_of_the_gpu(outside: str, kind: str) -> None:
    """Loads, and stores by threads whose places differ: thread ``i`` has row ``i`` modulo 7."""
    register, width = {"b8": ("%h0", 1), "b16": ("%h0", 2), "b32": ("%r0", 4), "b64": ("%w", 8)}[kind]
    word = {"%h0": "cvt.u32.u16 %r0, %h0;", "%r0": "", "%w": "mov.b64 {%r0, %r1}, %w;"}[register]
    dtype = {1: "u1", 2: "u2", 4: "u4", 8: "u4"}[width]
    channels = 2 if width == 8 else 1
    data = image_of((7, 5, 2) if channels == 2 else (7, 5), dtype)
    load = f"mul.lo.u32 %x, %x, {width}; suld.b.2d.{kind}.{outside} {register}, [%t, {{%x, %y}}]; "
    body = f"{load} {word} {WORDS}"
    silicon, emulated = both(body, Surface(data, channels))
    assert np.array_equal(silicon[0], emulated[0]), (silicon[0].tolist(), emulated[0].tolist())
    value = {"%h0": "cvt.u16.u32 %h0, %i;", "%r0": "add.u32 %r0, %i, 9;", "%w": "cvt.u64.u32 %w, %i;"}[register]
    body = (
        f"mul.lo.u32 %x, %i, {width}; rem.u32 %y, %i, 7; {value} "
        f"sust.b.2d.{kind}.{outside} [%t, {{%x, %y}}], {register}; "
    )
    silicon, emulated = both(body, Surface(data.copy(), channels))
    assert np.array_equal(silicon[1], emulated[1]), (silicon[1].tolist(), emulated[1].tolist())
