"""The programs of the image suite: correct on the emulator, with every boundary and by every lowering."""

from typing import Any

import numpy as np
import pytest
from ptxmotion.cli import main
from ptxmotion.dsl import DslError
from ptxmotion.dsl.image import Boundary, lower
from ptxmotion.dsl.run import Loaded
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.programs.errors import BadRequest
from ptxmotion.programs.fused_variants import host_of
from ptxmotion.programs.lowered_variants import check_lowerings, lowered_modules
from ptxmotion.programs.variants import VariantError, parse_variant
from ptxmotion.suites.image import corners, median, night, sobel
from ptxmotion.suites.image.surroundings import around
from ptxmotion.suites.registry import Benchmark, Tolerance, benchmarks, find
from ptxmotion.suites.runner import compiler, ptx_of, run
from ptxmotion.toolchain.tools import ToolMissing
from suite_programs import check_in_another_order, check_program

PROGRAMS = [each.name for each in benchmarks("image")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_its_reference(name: str) -> None:
    check_program(f"image/{name}", level=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["harris", "median3x3", "histogram", "sum"])
def test_program_with_other_data_in_another_order(name: str) -> None:
    check_in_another_order(f"image/{name}")


def correct(benchmark: Benchmark) -> None:
    try:
        outcome = run(benchmark, EmulatorBackend(), ptx_of(benchmark, compiler()))
    except ToolMissing as why:
        pytest.skip(str(why))
    assert outcome.differences == []


@pytest.mark.parametrize(
    ("name", "boundary"),
    [("box5x5", "mirror"), ("gaussian5x5", "reflect"), ("night", "repeat"), ("enhance", "constant")],
)
def test_a_program_with_a_boundary_computes_its_reference(name: str, boundary: str) -> None:
    correct(find(f"image/{name}").of({"boundary": boundary}))


@pytest.mark.parametrize(("name", "width", "height"), [("gaussian5x5", 131, 7), ("sobel", 0, 33), ("sum", 77, 1)])
def test_width_and_height(name: str, width: int, height: int) -> None:
    benchmark = find(f"image/{name}")
    values = {"width": width, "height": height}
    data = benchmark.data("tiny", 0, values)
    assert (data["src_width"], data["src_height"]) == (width or 97, height)
    host = lower(benchmark.pipeline.graph(width or 97, height)).program() if benchmark.pipeline else None
    assert host is not None
    numbers = {key: value for key, value in data.items() if key not in ("src_width", "src_height")}
    results = host.run(EmulatorBackend(), compiler(), **numbers)
    for key, expected in benchmark.reference(data).items():
        np.testing.assert_allclose(results[key], expected, rtol=1e-5)


def test_a_size_for_other_kernels_and_one_without_pixels_are_refused() -> None:
    benchmark = find("image/gaussian5x5").of({"boundary": "mirror"})
    data = benchmark.data("tiny", 0, {"width": 1, "height": 3})
    with pytest.raises(DslError, match="has other kernels than for 1 x 3: lower it for this size"):
        benchmark.program.run(EmulatorBackend(), compiler(), **data)
    with pytest.raises(DslError, match="an image of -1 x 19 pixels has no pixel"):
        benchmark.data("tiny", 0, {"width": -1})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bilateral13x13", "prewitt"])
def test_a_program_with_every_boundary_computes_its_reference(name: str) -> None:
    benchmark = find(f"image/{name}")
    for boundary in benchmark.choices["boundary"]:
        correct(benchmark.of({"boundary": boundary}))


def by_lowering(name: str, lowering: str, boundary: str) -> None:
    """The results of a lowering have the bits of the naive one."""
    benchmark = find(f"image/{name}")
    benchmark = benchmark.of({"boundary": boundary}) if benchmark.choices else benchmark
    data = benchmark.data("tiny", 5)
    try:
        nvcc = compiler()
        plain = ptx_of(benchmark, nvcc)
        modules = lowered_modules(benchmark, lowering, data, nvcc)
    except ToolMissing as why:
        pytest.skip(str(why))
    naive, made = (Loaded(*_on(benchmark, each)).run(data) for each in (plain, modules))
    assert naive.keys() == made.keys()
    for output, values in naive.items():
        assert values.tobytes() == made[output].tobytes(), output
    assert set(modules.values()) - set(plain.values()), "no kernel differs"


def _on(benchmark: Benchmark, modules: dict[str, str]) -> tuple[Any, EmulatorBackend, Any]:
    host, ptx = host_of(benchmark, modules)
    return host, EmulatorBackend(), ptx


@pytest.mark.parametrize(
    ("name", "lowering", "boundary"),
    [("harris", "isp", "clamp"), ("night", "isp", "repeat"), ("sobel", "isp+m", "mirror"), ("mean", "isp", "")],
)
def test_a_lowering_of_a_program_computes_its_reference(name: str, lowering: str, boundary: str) -> None:
    by_lowering(name, lowering, boundary)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_partitioned_program_computes_its_reference(name: str) -> None:
    benchmark = find(f"image/{name}")
    data = benchmark.data("tiny", 5)
    plain, modules = ptx_of(benchmark, compiler()), lowered_modules(benchmark, "isp", data, compiler())
    assert set(modules.values()) - set(plain.values()), "no kernel differs"
    assert benchmark.check(Loaded(*_on(benchmark, modules)).run(data), benchmark.reference(data)) == []


def test_lowerings_as_variants(capfd: pytest.CaptureFixture[str]) -> None:
    assert parse_variant("lowering:isp+m").lowering == "isp+m"
    graph = parse_variant("mine=lowering:isp+graph")
    assert (graph.id, graph.lowering, graph.launch) == ("mine", "isp", "graph")
    with pytest.raises(VariantError, match=r"no lowering 'ips' \(did you mean 'isp'\?\); there are naive, isp"):
        parse_variant("lowering:ips")
    with pytest.raises(VariantError, match="in this version only"):
        parse_variant("HEAD@lowering:isp")
    with pytest.raises(VariantError, match="a contract needs options"):
        parse_variant("lowering:isp+contract")
    with pytest.raises(BadRequest, match="rodinia/pathfinder is no image pipeline, so it has no lowerings"):
        check_lowerings(find("pathfinder"), [parse_variant("lowering:isp")])
    words = ["bench", "run", "pathfinder", "--backend=emulator", "--dry-run", "--variant=lowering:isp"]
    assert main(words) == 2
    assert "pathfinder is no image pipeline" in capfd.readouterr().err


def test_a_baseline_may_be_a_lowering(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "run", "box5x5", "--backend=emulator", "--seeds=1", "--variant=O3", "--baseline=lowering:isp"]
    assert main(words) in (0, 4), capfd.readouterr().err


def test_boundaries_as_parameters(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "run", "box5x5", "minimum", "--backend=emulator", "--dry-run"]
    assert main([*words, "--param=boundary=mirror,repeat"]) == 0
    shown = capfd.readouterr().out
    assert "image/box5x5[boundary=mirror] tiny" in shown and "image/box5x5[boundary=repeat] tiny" in shown
    assert "image/minimum tiny" in shown
    assert main([*words, "--param=boundary=mirorr"]) == 2
    assert "'mirorr' is no boundary of image/box5x5 (did you mean 'mirror'?)" in capfd.readouterr().err
    assert main([*words, "--param=boundary=3"]) == 2
    assert "'3' is no boundary of image/box5x5" in capfd.readouterr().err
    assert main([*words, "--param=boundaries=mirror"]) == 2
    assert "no program has a parameter 'boundaries'; there are boundary" in capfd.readouterr().err
    with pytest.raises(DslError, match="'mirorr' is no boundary of image/box5x5; there are clamp, mirror"):
        find("box5x5").of({"boundary": "mirorr"})


def test_a_component_of_a_vector_is_compared_with_the_tolerance() -> None:
    pixels = np.ones(3, [("x", np.float32), ("y", np.float32)])
    near, far = pixels.copy(), pixels.copy()
    near["y"][1], far["y"][1] = 1 + 1e-6, 1 + 1e-4
    benchmark = find("image/night")
    assert benchmark.tolerance != Tolerance()
    assert benchmark.check({"tone": near}, {"tone": pixels}) == []
    assert "1 of 3 elements differ; [1]" in benchmark.check({"tone": far}, {"tone": pixels})[0]


# --- references ---------------------------------------------------------------------------------------------------


def test_pixels_around_an_image() -> None:
    image = np.array([[1, 2, 3]])
    assert around(image, 1, Boundary.CLAMP)(1, 1).tolist() == [[2, 3, 3]]
    assert around(image, 1, Boundary.MIRROR)(-1, 0).tolist() == [[1, 1, 2]]
    assert around(image, 1, Boundary.REFLECT)(-1, 0).tolist() == [[2, 1, 2]]
    assert around(image, 1, Boundary.REPEAT)(1, 0).tolist() == [[2, 3, 1]]
    assert around(image, 1, Boundary.constant(0))(0, -1).tolist() == [[0, 0, 0]]


def test_references_find_what_they_should() -> None:
    square = np.zeros((20, 20), np.float32)
    square[8:, 8:] = 1
    strength = sobel.reference(square, Boundary.CLAMP)
    assert strength[15, 7] == strength[15, 8] == 4 and strength[15, 3] == strength[15, 15] == 0
    for response in (
        corners.harris_reference(square, Boundary.CLAMP, 0.04),
        corners.shi_tomasi_reference(square, Boundary.CLAMP),
    ):
        y, x = np.unravel_index(int(np.argmax(response)), response.shape)
        assert y in (7, 8) and x in (7, 8), "the corner of the square"
        assert response[15, 8] <= 0 < response[y, x], "an edge is no corner"
    noise = np.full((9, 9), 7, np.uint8)
    noise[4, 4] = 255
    assert (median.reference(noise, Boundary.CLAMP) == 7).all()
    flat = np.full((12, 12, 4), 0.5, np.float32)
    dark = night.reference(flat, Boundary.CLAMP, 1.0)
    assert np.allclose(dark[5, 5], [0.375, 0.4375, 0.625, 0.5])
