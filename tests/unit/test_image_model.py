"""The model of isp+m: its counts against runs of whole images, and its decisions."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ptxmotion.cost import Figures
from ptxmotion.dsl import f32, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Mask, Window, local, lower, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.instruction_table import instruction_table
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.lowering import naive_node
from ptxmotion.dsl.image.partition_kernels import SameKernel, compile_kernels
from ptxmotion.dsl.image.partition_model import Estimate, KernelFigures, RegionFigures, estimate, shrunk, unchecked
from ptxmotion.dsl.image.partition_time import H200_TIMES, seconds
from ptxmotion.dsl.image.partitioning import isp_node
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.registry import find

WEIGHTS = Mask(np.ones((3, 5), np.float32))


@local(WEIGHTS)
def box(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in WEIGHTS:
        total += weight * src[dx, dy]
    return total


@point
def double(value: f32) -> f32:
    return value + value


def whole_run(graph: Any, lowering: str, options: Options) -> int:
    """The warp instructions of a run of the whole image."""
    program = lower(graph, lowering, options).program()
    backend = EmulatorBackend()
    host: dict[str, Any] = {
        image.name: np.zeros(image.width * image.height, np.float32) for image in (*graph.inputs, *graph.outputs)
    }
    program.run(backend, options.nvcc, **host)
    return backend.counts.warp_instructions


@pytest.mark.parametrize(
    ("width", "height", "boundary"),
    [(200, 45, Boundary.CLAMP), (256, 26, Boundary.REPEAT), (20, 50, Boundary.CLAMP), (130, 21, Boundary.REPEAT)],
)
def test_the_counts_are_those_of_the_whole_image(width: int, height: int, boundary: Boundary) -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, boundary))

    options = Options((64, 2), nvcc=compiler())
    graph = boxes.graph(width, height)
    found = estimate(graph.nodes[0], options)
    assert found is not None
    assert [each.lowering for each in found.kernels] == [
        "naive",
        "isp",
        "isp_warp",
        *(["isp_rows"] if width > 20 else []),
    ]
    for each in found.kernels:
        assert each.instructions == pytest.approx(whole_run(graph, each.lowering, options))


def test_images_are_shrunk_for_scales_too() -> None:
    @pipeline
    def half(src: Image[f32]) -> Image[f32]:
        accessor = Accessor(src, Boundary.MIRROR, scale=Fraction(3, 2))
        return box(accessor, space=IterationSpace(2 * src.width // 3, 2 * src.height // 3))

    options = Options((32, 2), nvcc=compiler())
    graph = half.graph(600, 45)
    found = estimate(graph.nodes[0], options)
    assert found is not None
    for each in found.kernels:
        assert each.instructions == pytest.approx(whole_run(graph, each.lowering, options))


@local((5, 3), (13, 1))
def of_two(a: Window[f32], b: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx in range(-2, 3):
        for dy in range(-1, 2):
            total += a[dx, dy]
    for dx in range(-6, 7):
        total += b[dx, 0]
    return total


@pytest.mark.parametrize(
    "scales", [(Fraction(1), Fraction(1)), (Fraction(1), Fraction(1, 2)), (Fraction(3, 2), 2)], ids=str
)
def test_the_kernels_of_the_smaller_image_are_the_same(scales: tuple[Fraction, Fraction]) -> None:
    @pipeline
    def both(a: Image[f32], b: Image[f32]) -> Image[f32]:
        first, second = (Accessor(each, Boundary.REPEAT, scale=by) for each, by in zip((a, b), scales, strict=True))
        return of_two(first, second, space=IterationSpace(1000, 500))

    for block in ((32, 8), (128, 1)):
        (node,) = both.graph(1400, 700).nodes
        small = shrunk(node, Options(block))
        assert small.width * small.height < node.width * node.height
        for lower_node in (naive_node, isp_node):
            real, less = (lower_node(each, "kernel", Options(block)) for each in (node, small))
            assert real.kernel.cuda == less.kernel.cuda


def test_an_operator_without_checks_is_compared_with_several_pixels_of_a_thread() -> None:
    @pipeline
    def doubled(src: Image[f32]) -> Image[f32]:
        return double(src)

    options = Options(nvcc=compiler())
    found = estimate(doubled.graph(640, 640).nodes[0], options)
    assert found is not None and [each.lowering for each in found.kernels] == ["naive", "isp_rows"]
    assert [region.name for region in found.kernels[1].regions] == ["body", "b"]
    # Without a block that is inside of the image, there is nothing to choose.
    assert estimate(doubled.graph(64, 20).nodes[0], options) is None
    lowered = lower(doubled.graph(64, 20), "isp+m", options)
    assert lowered.cuda == lower(doubled.graph(64, 20), "naive").cuda and lowered.launches[0].notes == ()


def test_an_exponential_function_with_a_division_stays_naive_on_a_small_image() -> None:
    program = find("image/enhance")
    assert program.pipeline is not None
    options = Options(nvcc=compiler(program.flags))
    by_name = {node.name: node for node in program.pipeline.graph(512, 512).nodes}
    found = estimate(by_name["stretched"], options)
    assert found is not None and found.best.lowering == "naive"
    # Four pixels of a thread took 1.2 to 1.3 times as long on an H200 (docs/experiments/image-kernels.md).
    assert 0.75 < found.expected(found.kernels[1]) < 0.99


def test_the_decision_is_printed_and_kept_for_other_sizes() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return double(box(Accessor(src, Boundary.REPEAT)))

    lowered = lower(boxes.graph(1536, 1536), "isp+m", Options(nvcc=compiler()))
    text = str(lowered)
    assert "regions: tl, tr, t, bl, br, b, l, r, body" in text and "chosen: isp" in text and "gain 1.000" in text
    program = lowered.program(any_size=True)
    array = np.random.default_rng(0).random((70, 100), np.float32)
    arguments = {"src": array.ravel(), "double": np.zeros(7000, np.float32), "src_width": 100, "src_height": 70}
    made = program.run(EmulatorBackend(), compiler(), **arguments)["double"]
    assert np.array_equal(made, boxes(array, backend=EmulatorBackend()).ravel())


def kernel(lowering: str, slots: float, blocks: int, rows: int = 1, border: float = 0) -> KernelFigures:
    """A kernel of blocks of 8 warps whose body executes ``slots`` operations of floats. ``border`` is the share of
    blocks at an edge, which execute three times as much. Partitioned kernels have a region for an edge in any case."""
    code = Figures(lowering, 32, 0, 64, slots, 700, exposed=480)
    parts = [("body", blocks * (1 - border), slots)]
    if border or lowering != "naive":
        parts.append(("l", blocks * border, 3 * slots if border else slots))
    regions = tuple(RegionFigures(name, int(count), {"fma": each}) for name, count, each in parts)
    return KernelFigures(lowering, regions, 8, 32, 1.0, code, {"fp32": slots}, rows)


def estimated(width: int, *kernels: KernelFigures) -> Estimate:
    """An estimate for a square image with these kernels."""

    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.CLAMP))

    return Estimate(boxes.graph(width, width).nodes[0], kernels)


def test_the_gain_of_the_paper_weighs_instructions_against_occupancy() -> None:
    naive, faster = kernel("naive", 100, 1000), kernel("isp", 80, 1000)
    fuller = replace(kernel("isp_warp", 70, 1000), occupancy=0.5)
    found = estimated(512, naive, faster, fuller)
    assert (found.gain(naive), found.gain(faster)) == (1.0, 1.25)
    assert found.gain(fuller) == pytest.approx(100 / 70 * 0.5)


def test_a_kernel_with_much_work_is_partitioned() -> None:
    found = estimated(2048, kernel("naive", 400, 16384), kernel("isp", 200, 16384))
    assert found.best.lowering == "isp" and found.lines()[-1] == "chosen: isp" and found.worse(found.best) == ""
    assert 1.7 < found.expected(found.best) < 2


def test_a_kernel_that_the_start_of_its_blocks_bounds_is_not_partitioned() -> None:
    # 16,384 blocks start in 10 microseconds; 30 instructions of 131,072 warps take 5.
    found = estimated(2048, kernel("naive", 30, 16384), kernel("isp", 25, 16384))
    (naive, isp) = found.kernels
    assert found.best is naive and found.seconds(isp) > found.seconds(naive)
    assert found.worse(isp).startswith("the estimate is 11.") and found.worse(isp).endswith("it must be shorter by 1%")
    assert f"not isp: {found.worse(isp)}" in found.lines()
    # Several pixels of a thread are fewer blocks.
    rows = kernel("isp_rows", 120, 4096, rows=4)
    assert estimated(2048, naive, isp, rows).best is rows


def test_a_kernel_whose_images_come_from_memory_is_not_partitioned() -> None:
    # 134 MB; in the cache, the same kernels differ.
    naive, isp = kernel("naive", 60, 65536), kernel("isp", 45, 65536)
    assert estimated(4096, naive, isp).best is naive
    assert estimated(1024, naive, isp).best is isp


def test_the_last_regions_begin_late_if_blocks_wait() -> None:
    # 8 warps in each of 8 blocks of 132 multiprocessors run at a time.
    for blocks, is_late in ((1056, False), (1057, True)):
        naive, isp = kernel("naive", 50, blocks), kernel("isp", 50, blocks)
        found = estimated(512, naive, isp)
        longer = H200_TIMES.regions if is_late else H200_TIMES.tests
        assert found.seconds(isp) - found.seconds(naive) == pytest.approx(longer)


def test_kernels_without_edges_test_no_regions() -> None:
    for blocks in (1056, 1057):
        naive, rows = kernel("naive", 50, blocks), kernel("isp_rows", 50, blocks)
        (body, _) = rows.regions
        below = replace(rows, regions=(body, replace(body, name="b", blocks=0)))
        found = estimated(512, naive, rows, below)
        # Several pixels of a thread need a test for the last rows only.
        assert found.seconds(rows) > found.seconds(below) == found.seconds(naive)


def test_a_gain_within_the_uncertainty_is_no_reason() -> None:
    naive = kernel("naive", 400, 16384)
    for slots, name in ((399, "naive"), (380, "isp")):
        found = estimated(2048, naive, kernel("isp", slots, 16384))
        assert (found.best.lowering, found.expected(found.kernels[1]) > 1) == (name, True)


def test_kernels_that_hold_fewer_warps_must_gain_more() -> None:
    naive, isp = kernel("naive", 400, 16384), kernel("isp", 370, 16384)
    fewer = replace(isp, lowering="isp_warp", code=replace(isp.code, warps=32))
    more = replace(isp, code=replace(isp.code, warps=128))
    rows = replace(kernel("isp_rows", 1400, 4096, rows=4), code=replace(isp.code, warps=48))
    narrow = replace(rows, across=16)
    found = estimated(2048, naive, isp, fewer, more, rows)
    margins = [found.margin(each) for each in (isp, fewer, more, rows, narrow)]
    assert margins == [0.01, pytest.approx(0.11), 0.01, pytest.approx(0.01 + 0.05), pytest.approx(0.01 + 0.1)]
    # It is expected to be faster by less than a tenth.
    assert 1.01 < found.expected(fewer) < 1.11 and found.worse(fewer).endswith("it must be shorter by 11%")
    assert estimated(2048, naive, fewer).best is naive and estimated(2048, naive, isp).best is isp
    # Of two kernels that may be taken, the one that gains more beyond its margin is.
    surely = replace(kernel("isp", 300, 16384), lowering="isp")
    likely = replace(kernel("isp_warp", 285, 16384), code=replace(isp.code, warps=40, weight=285))
    found = estimated(2048, naive, surely, likely)
    assert found.expected(likely) > found.expected(surely) and not found.worse(likely) and found.best is surely


def test_a_further_row_of_a_warp_costs_less_with_narrow_pixels() -> None:
    naive = kernel("naive", 30, 16384)
    work = replace(estimated(2048, naive).work(naive), kinds={"load_global": 200.0})
    longer: list[float] = []
    for size in (1, 2, 4, 8):
        one, two = (seconds(replace(work, pixel_bytes=size, warp_rows=rows)) for rows in (1, 2))
        longer.append(two / one)
    assert 1.1 < longer[0] < longer[1] < longer[2] == longer[3]


def test_few_blocks_take_as_long_as_a_warp() -> None:
    naive, rows = kernel("naive", 60, 264), kernel("isp_rows", 130, 66, rows=4)
    # Both run at once, so less work does not help, and a longer chain of instructions takes longer.
    assert estimated(256, naive, rows).expected(rows) == pytest.approx(1, abs=0.1)
    late = replace(rows, code=replace(rows.code, cycles=1500))
    found = estimated(256, naive, late)
    longer = H200_TIMES.latency * 800 / H200_TIMES.clock
    assert found.best is naive and found.seconds(late) - found.seconds(rows) == pytest.approx(longer, rel=0.2)
    # With many blocks, the same kernel is faster.
    many = [
        replace(each, regions=(replace(each.regions[0], blocks=100 * count),))
        for each, count in ((naive, 264), (late, 66))
    ]
    assert estimated(2560, *many).best is many[1]


def test_times_overlap_less_if_a_multiprocessor_holds_few_warps() -> None:
    always = replace(H200_TIMES, few_warps=0)
    naive = kernel("naive", 400, 16384)
    # Instructions and loads take about as long.
    work = replace(estimated(2048, naive).work(naive), kinds={"fp32": 400.0, "load_global": 100.0})
    # 8 blocks of 8 warps fill a multiprocessor, so the power of the norm is the whole one.
    assert work.resident * work.warps == 64 and seconds(work) == seconds(work, always)
    fewer = [replace(work, resident=resident) for resident in (4, 2, 1)]
    longer = [seconds(each) / seconds(each, always) for each in fewer]
    assert 1.01 < longer[0] < longer[1] < longer[2]
    # So does a launch that has few blocks, however many would fit.
    few = replace(work, blocks=264)
    assert seconds(few) == seconds(replace(few, resident=2)) > seconds(few, always)


def test_fewer_warps_can_cost_more_than_fewer_instructions_save() -> None:
    # Four pixels of a thread save a sixth of the instructions, and need so many registers that 16 of 64 warps fit.
    naive, rows = kernel("naive", 330, 16384), kernel("isp_rows", 1100, 4096, rows=4)
    few = replace(rows, code=replace(rows.code, warps=16, cycles=4000))
    assert estimated(2048, naive, replace(rows, code=replace(rows.code, cycles=4000))).best.lowering == "isp_rows"
    assert estimated(2048, naive, few).best.lowering == "naive"


def test_loads_of_a_warp_with_pixels_in_two_rows_take_longer() -> None:
    kernels = [kernel("naive", 400, 16384), kernel("isp", 150, 16384)]
    wide = [replace(each, kinds={**each.kinds, "load_global": 75.0}) for each in kernels]
    narrow = [replace(each, across=16) for each in wide]
    found, apart = estimated(2048, *wide), estimated(2048, *narrow)
    assert [found.work(each).warp_rows for each in wide] == [1, 1]
    assert [apart.work(each).warp_rows for each in narrow] == [2, 2]
    # Then both wait for the loads, and partitioning gains less.
    assert apart.expected(narrow[1]) < found.expected(wide[1]) - 0.1
    assert apart.seconds(narrow[1]) > 1.3 * found.seconds(wide[1])


def test_code_that_is_fetched_first_takes_time_in_small_images() -> None:
    for blocks, name in ((132, "naive"), (13200, "isp_rows")):
        rows = kernel("isp_rows", 3000, blocks, rows=4)
        found = estimated(512, kernel("naive", 1000, 4 * blocks), rows)
        assert found.best.lowering == name, [found.seconds(each) for each in found.kernels]


def test_rows_that_begin_inside_of_a_sector_need_more_of_them() -> None:
    rows = kernel("isp_rows", 40, 4096, rows=4)
    times = [estimated(width, kernel("naive", 40, 16384), rows).seconds(rows) for width in (2048, 2047)]
    assert times[0] < times[1]


def test_a_kernel_without_a_body_executes_one_of_its_regions() -> None:
    naive = kernel("naive", 100, 1000)
    edges = tuple(RegionFigures(name, 500, {"fma": 90}) for name in ("l", "r"))
    # The machine code has two regions.
    whole = replace(kernel("isp", 180, 1000), regions=edges)
    found = estimated(512, naive, whole)
    assert found.work(whole).kinds == {"fp32": pytest.approx(90)}


def test_blocks_at_an_edge_execute_between_the_body_and_the_naive_kernel() -> None:
    naive, inner = kernel("naive", 300, 16384), kernel("isp", 200, 16384)
    half, all_at_edge = kernel("isp", 200, 16384, border=0.5), kernel("isp", 200, 16384, border=0.999)
    times = [estimated(2048, naive, each).seconds(each) for each in (inner, half, all_at_edge)]
    assert times == sorted(times) and times[0] < times[1] < times[2]


def test_the_machine_code_is_that_of_the_body_and_its_tests() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.CLAMP))

    options = Options((64, 2), nvcc=compiler())
    found = estimate(boxes.graph(256, 64).nodes[0], options)
    assert found is not None
    naive, isp, warp, rows = found.kernels
    # The whole kernel has nine regions, so its machine code is longer than the counted part.
    assert isp.code.weight < naive.code.weight and warp.code.weight < naive.code.weight
    assert rows.rows == 4 and naive.kinds["load_global"] == isp.kinds["load_global"] == 15
    # Four pixels, one below the other, share all rows but one.
    assert rows.kinds["load_global"] == 5 * (3 + 3) and rows.kinds["store_global"] == 4
    assert isp.code.cycles > 480 and naive.code.cycles > 480, "a load from memory takes this long"
    assert isp.code.warps == naive.code.warps == 64
    body = isp_node(boxes.graph(256, 64).nodes[0], "kernel", options, body_only=True)
    assert body.kernel.cuda.count("box_body(") == 2 and "box_tl(" not in body.kernel.cuda


def test_integers_count_too() -> None:
    @local((3, 1))
    def right(src: Window[i32]) -> i32:
        return src[1, 0]

    @pipeline
    def moved(src: Image[i32]) -> Image[i32]:
        return right(Accessor(src, Boundary.constant(1)))

    found = estimate(moved.graph(300, 20).nodes[0], Options(nvcc=compiler()))
    assert found is not None
    naive, partitioned = found.kernels[:2]
    assert [each.name for each in partitioned.regions] == ["body", "r"]
    assert sum(each.blocks for each in partitioned.regions) == 10 * 3
    assert naive.regions[0].opcodes["ld"] > 0


@pytest.mark.parametrize(("width", "height"), [(256, 64), (200, 45)])
def test_a_kernel_without_checks_executes_the_same_in_every_inner_block(width: int, height: int) -> None:
    """The instructions of a kernel for pixels whose windows are inside of the image, run as a pipeline of its own."""

    @pipeline
    def inner(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.UNDEFINED, offset=(2, 1)), space=IterationSpace(128, 40))

    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.CLAMP, offset=(2, 1)))

    options = Options((64, 2), nvcc=compiler())
    found = unchecked(boxes.graph(width, height).nodes[0], options)
    assert found is not None
    warps = 128 * 40 // 32
    assert found.instructions == pytest.approx(whole_run(inner.graph(132, 42), "naive", options) / warps)


def test_an_image_without_an_interior_has_no_kernel_without_checks() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return box(Accessor(src, Boundary.CLAMP))

    assert unchecked(boxes.graph(64, 2).nodes[0], Options((64, 2), nvcc=compiler())) is None


def test_the_table_has_a_column_for_each_region_and_sums() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return double(box(Accessor(src, Boundary.CLAMP)))

    options = Options((64, 2), nvcc=compiler())
    node, other = boxes.graph(256, 64).nodes
    found = estimate(node, options)
    assert found is not None
    title, head, *rows = instruction_table(node, "isp", options)
    assert title == "box: instructions of a warp of isp by region, and of naive"
    names = head.split()
    assert names == ["kernel", "tl", "t", "tr", "l", "body", "r", "bl", "b", "br", "naive"]
    cells = {row[:18].split("  ")[1]: [float(cell) for cell in row.split()[-len(names) :]] for row in rows}
    totals = dict(zip(names, cells.pop("total"), strict=True))
    more = dict(zip(names, cells.pop("checks, switch"), strict=True))
    for at, name in enumerate(names):
        assert totals[name] == pytest.approx(sum(each[at] for each in cells.values()), abs=0.5 * len(cells))
        assert more[name] == pytest.approx(totals[name] - totals["kernel"], abs=1)
    for region in found.kernels[1].regions:
        assert totals[region.name] == pytest.approx(region.instructions, abs=0.5)
    # The body switches and does not check; a corner checks two edges.
    assert 0 < more["body"] < more["tl"] and 0 < more["t"] < more["tl"]
    assert instruction_table(other, "isp", options) == ["double: no index is checked"]
    # The table of kernels with four pixels of a thread has the columns of other kernels four times.
    title, head, *rows = instruction_table(node, "isp_rows", options)
    assert title.endswith("computes 4 pixels, and kernel and naive are for as many")
    last = dict(zip(head.split(), (float(cell) for cell in rows[-2].split()[1:]), strict=True))
    assert last["naive"] == pytest.approx(4 * totals["naive"], abs=4) and last["body"] < last["kernel"]
    assert "isp for blocks of 32 threads" in instruction_table(node, "isp_warp", replace(options, block=(32, 2)))[0]


SQUARE = Mask(np.ones((5, 5), np.float32))


@local(SQUARE)
def square(src: Window[f32]) -> f32:
    total: f32 = 0.0
    for dx, dy, weight in SQUARE:
        total += weight * src[dx, dy]
    return total


def test_constant_edges_load_addresses_and_shared_pixels_once() -> None:
    @pipeline
    def boxes(src: Image[f32]) -> Image[f32]:
        return square(Accessor(src, Boundary.constant(1)))

    options = Options((64, 2), nvcc=compiler())
    (node,) = boxes.graph(256, 64).nodes
    kernels = {word: SameKernel(word, node, options) for word in ("naive", "isp", "isp_rows")}
    found = compile_kernels(kernels.values())
    counts = {word: found[same].code.by_depth[0] for word, same in kernels.items()}
    # 25 pixels are read in nine regions. Reads behind tests load the address for each of them.
    assert all(each["load_constant"] < 40 for each in counts.values())
    assert (counts["naive"]["load_global"], counts["isp"]["load_global"]) == (25, 9 * 25)
    # Four pixels of a thread read 8 x 5 pixels; the loops of the three regions at the bottom read 25.
    assert counts["isp_rows"]["load_global"] == 9 * 40
    assert found[kernels["isp_rows"]].code.by_depth[1]["load_global"] == 3 * 25
