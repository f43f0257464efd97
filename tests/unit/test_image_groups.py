"""Groups of operators in one kernel: every pixel equals that of one kernel for each operator."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptxmotion.dsl import DslError, f32, float2, i32
from ptxmotion.dsl.image import Accessor, Boundary, Image, IterationSpace, Mask, Window, here, local, pipeline, point
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.execution import Compiled
from ptxmotion.dsl.image.graph import Graph
from ptxmotion.dsl.image.group_lowering import lower_plan
from ptxmotion.dsl.image.groups import Group, Plan, groups_of, plan_from_json, window_of
from ptxmotion.dsl.image.lowered import Options
from ptxmotion.dsl.image.lowerings import lower
from ptxmotion.dsl.image.operators import Node
from ptxmotion.dsl.image.tiling.kernel import GroupKernel
from ptxmotion.dsl.image.tiling.teams import Kind
from ptxmotion.emulator.backend import EmulatorBackend
from ptxmotion.suites.registry import find
from ptxmotion.toolchain.cubin_cache import assemble_kept
from ptxmotion.toolchain.occupancy import occupancy
from ptxmotion.toolchain.ptxas_log import ptxas_figures

MODES = {
    "clamp": Boundary.CLAMP,
    "mirror": Boundary.MIRROR,
    "reflect": Boundary.REFLECT,
    "repeat": Boundary.REPEAT,
    "constant": Boundary.constant(-7),
}


@local((3, 5))
def hashed(src: Window[i32]) -> i32:
    total: i32 = 0
    for dy in range(-2, 3):
        for dx in range(-1, 2):
            total = total * 31 + src[dx, dy]
    return total


@local((5, 3))
def placed(src: Window[i32]) -> i32:
    x, y = here()
    total: i32 = x * 3 - y
    for dy in range(-1, 2):
        for dx in range(-2, 3):
            total = total * 17 + src[dx, dy]
    return total


@local((3, 5))
def corners(src: Window[i32]) -> i32:
    """As `hashed`, of the corners and the centre of the window only."""
    total: i32 = src[0, 0]
    for dy in range(-2, 3, 4):
        for dx in range(-1, 2, 2):
            total = total * 31 + src[dx, dy]
    return total


@local((5, 3))
def placed_corners(src: Window[i32]) -> i32:
    x, y = here()
    total: i32 = x * 3 - y + src[0, 0] * 7
    for dy in range(-1, 2, 2):
        for dx in range(-2, 3, 4):
            total = total * 17 + src[dx, dy]
    return total


@point
def mixed(a: i32, b: i32) -> i32:
    return a * 5 - b


def random_image(width: int, height: int) -> NDArray[Any]:
    return np.random.default_rng(3).integers(-1000, 1000, (height, width), np.int32)


def plan_of(
    graph: Graph,
    parts: list[list[str]],
    tiled: tuple[str, ...] = (),
    block: tuple[int, int] = (16, 4),
    pixels: tuple[int, int] = (1, 1),
    kind: Kind = "block",
    in_registers: int = 0,
) -> Plan:
    """A plan by the names of nodes."""
    by_name = {node.name: node for node in graph.nodes}
    groups = groups_of(graph, [[by_name[name] for name in part] for part in parts])
    return Plan(
        graph,
        tuple(
            Group(
                graph, nodes, frozenset(node for node in nodes if node.name in tiled), block, pixels, kind, in_registers
            )
            for nodes in groups
        ),
    )


def computed(lowered: Any, *arrays: NDArray[Any], flags: tuple[str, ...] = ()) -> list[NDArray[Any]]:
    """The results on the emulator, which must not find races or other faults."""
    backend = EmulatorBackend()
    made: Any = Compiled(lowered, compiler(flags))(*arrays, backend=backend)
    assert backend.findings == [], backend.findings[0]
    return [made] if isinstance(made, np.ndarray) else list(made)


def check(graph: Graph, plan: Plan, *arrays: NDArray[Any]) -> None:
    check_all(graph, [plan], *arrays)


def check_all(graph: Graph, plans: list[Plan], *arrays: NDArray[Any]) -> None:
    naive = computed(lower(graph), *arrays)
    for plan in plans:
        fused = computed(lower_plan(plan, Options(), "plan"), *arrays)
        for got, expected in zip(fused, naive, strict=True):
            assert np.array_equal(got, expected), f"{plan}\n{got - expected}"


def blocks(kind: Kind) -> list[tuple[int, int]]:
    return [(16, 4), (64, 2)] if kind != "block" else [(16, 4)]


@pytest.mark.parametrize("kind", ["block", "warp"])
@pytest.mark.parametrize("mode", MODES)
def test_three_operators_in_one_kernel(mode: str, kind: Kind) -> None:
    boundary = MODES[mode]

    @pipeline
    def three(src: Image[i32]) -> tuple[Image[i32], Image[i32]]:
        first = hashed(Accessor(src, boundary))
        second = placed(Accessor(first, boundary))
        return mixed(first, second), second

    names = ["hashed", "placed", "mixed"]
    # A block at both edges.
    graph = three.graph(9, 7)
    plans = [plan_of(graph, [names], ("hashed", "placed"), block, (1, 2), kind) for block in blocks(kind)]
    check_all(graph, plans, random_image(9, 7))
    if mode == "clamp" and kind == "block":
        # All kinds of blocks, and windows of windows; in the other modes, their corners are read below.
        graph = three.graph(70, 21)
        check(graph, plan_of(graph, [names], (), (16, 4), (1, 1), kind), random_image(70, 21))


@pytest.mark.parametrize("kind", ["block", "warp"])
@pytest.mark.parametrize("mode", MODES)
def test_corners_of_windows(mode: str, kind: Kind) -> None:
    """Images that are smaller than the windows, where an index is more than one size away, and several pixels of a
    thread. Where all elements of both windows are read, these kernels have up to 2 MB of PTX."""
    boundary = MODES[mode]

    @pipeline
    def three(src: Image[i32]) -> tuple[Image[i32], Image[i32]]:
        first = corners(Accessor(src, boundary))
        second = placed_corners(Accessor(first, boundary))
        return mixed(first, second), second

    names = ["corners", "placed_corners", "mixed"]
    for (width, height), tiled, pixels in [
        ((1, 1), ("corners",), (1, 1)),
        ((3, 7), ("corners", "placed_corners"), (1, 2)),
        ((70, 21), ("corners",), (2, 2)),
        ((70, 21), (), (1, 1)),
    ]:
        graph = three.graph(width, height)
        plans = [plan_of(graph, [names], tiled, block, pixels, kind) for block in blocks(kind)]
        check_all(graph, plans, random_image(width, height))


def test_windows_that_do_not_contain_their_pixel_and_images_of_other_sizes() -> None:
    """The exchanged index is then farther away than the window."""

    @pipeline
    def shifted(src: Image[i32]) -> Image[i32]:
        part = hashed(Accessor(src, Boundary.CLAMP, offset=(2, 0)), space=IterationSpace(30, 9, 3, 1))
        left = placed(Accessor(part, Boundary.CLAMP, offset=(-9, 4)), space=IterationSpace(33, 12))
        right = placed(Accessor(part, Boundary.MIRROR, offset=(7, -5)), space=IterationSpace(33, 12))
        return mixed(left, right)

    graph = shifted.graph(31, 11)
    names = [node.name for node in graph.nodes]
    for tiled in ((), tuple(names[:1]), tuple(names[:3])):
        check(graph, plan_of(graph, [names], tiled), random_image(31, 11))


def test_far_accesses_are_computed_from_stored_images() -> None:
    @pipeline
    def pyramid(src: Image[i32]) -> Image[i32]:
        smooth = hashed(Accessor(src, Boundary.MIRROR))
        coarse = placed_corners(Accessor(smooth, Boundary.REPEAT, scale=2), space=IterationSpace(18, 6))
        fine = placed_corners(Accessor(coarse, Boundary.CLAMP, scale=Fraction(1, 2)), space=IterationSpace(36, 12))
        return mixed(smooth, fine)

    graph = pyramid.graph(36, 12)
    assert window_of(graph.nodes[1].accesses[0], graph.nodes[1], Options()) is None
    check(graph, plan_of(graph, [["hashed"], ["placed_corners", "placed_corners_2", "mixed"]]), random_image(36, 12))
    check(graph, plan_of(graph, [[node.name for node in graph.nodes]], ("hashed",)), random_image(36, 12))


def test_vectors_in_tiles() -> None:
    @point
    def pair(a: i32) -> float2:
        return float2(f32(a), f32(a) * 0.5)

    @local((3, 3))
    def sum_of_pairs(a: Window[float2]) -> f32:
        total: f32 = 0.0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                pixel = a[dx, dy]
                total = total * 0.5 + pixel.x - pixel.y
        return total

    @pipeline
    def pairs(src: Image[i32]) -> Image[f32]:
        return sum_of_pairs(Accessor(pair(src), Boundary.constant((3, 4))))

    graph = pairs.graph(20, 9)
    check(graph, plan_of(graph, [["pair", "sum_of_pairs"]], ("pair",)), random_image(20, 9))


# --- contraction --------------------------------------------------------------------------------------------------


@point
def product(a: f32, b: f32) -> f32:
    return a * b


@point
def added(a: f32, b: f32) -> f32:
    return a + b


@point
def squares(a: f32, b: f32) -> f32:
    return a * a + b * b


@pipeline
def products(a: Image[f32], b: Image[f32]) -> tuple[Image[f32], Image[f32]]:
    return added(product(a, b), b), squares(product(a, b), b)


@pytest.mark.parametrize("flags", [(), ("-fmad=false",)])
@pytest.mark.parametrize("contract", [False, True])
def test_inlining_does_not_change_which_operations_round(flags: tuple[str, ...], contract: bool) -> None:
    """nvcc would contract the product of the inlined operator with the sum of its reader."""
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(8, 40)).astype(np.float32) for _ in range(2)]
    graph, options = products.graph(40, 8), Options(contract=contract)
    naive = computed(lower(graph, "naive", options), *arrays, flags=flags)
    for parts in ([["product", "added"], ["product_2", "squares"]], [[node.name for node in graph.nodes]]):
        fused = computed(lower_plan(plan_of(graph, parts), options, "plan"), *arrays, flags=flags)
        for got, expected in zip(fused, naive, strict=True):
            assert np.array_equal(got, expected)
    a, b = arrays
    assert np.array_equal(naive[0], a * b + b), "operators round their results"
    rounded = a * b * (a * b) + b * b
    assert np.array_equal(naive[1], rounded) is not contract


WEIGHTS = Mask([[1, 2, 3], [4, 5, 6], [7, 8, 9]])


@local(WEIGHTS)
def weighed(src: Window[i32]) -> i32:
    total: i32 = 0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += WEIGHTS[dx, dy] * src[dx, dy]
    return total


@pytest.mark.parametrize(("block", "memory"), [((32, 8), "__constant__"), ((32, 4), "__device__")])
def test_the_memory_of_tables(block: tuple[int, int], memory: str) -> None:
    """Reads of constant memory are slow if a multiprocessor holds more than eight blocks."""

    @pipeline
    def one(src: Image[i32]) -> Image[i32]:
        return weighed(Accessor(src, Boundary.CLAMP))

    graph = one.graph(9, 5)
    plan = plan_of(graph, [["weighed"]], (), block)
    for lowered in (lower_plan(plan, Options(), "x"), lower(graph, "naive", Options(block=block))):
        assert f"{memory} const i32 WEIGHTS_weights_table" in lowered.launches[0].kernel.cuda.replace("int ", "i32 ")
    check(graph, plan, random_image(9, 5))


@pytest.mark.parametrize(("block", "limit"), [((32, 8), 0), ((32, 16), 512), ((32, 32), 1024)])
def test_blocks_of_many_threads_have_launch_bounds(block: tuple[int, int], limit: int) -> None:
    @pipeline
    def one(src: Image[i32]) -> Image[i32]:
        return weighed(Accessor(src, Boundary.CLAMP))

    graph = one.graph(40, 20)
    plan = plan_of(graph, [["weighed"]], (), block)
    for lowered in (lower_plan(plan, Options(), "x"), lower(graph, "naive", Options(block=block))):
        cuda = lowered.launches[0].kernel.cuda
        assert f"__launch_bounds__({limit})" in cuda if limit else "__launch_bounds__" not in cuda
    check(graph, plan, random_image(40, 20))


def test_a_block_gets_no_more_registers_than_a_multiprocessor_has() -> None:
    """Without a limit, a thread of this kernel has 144 registers, and a launch of blocks of 512 threads fails."""
    found = find("image/lens_blur").pipeline
    assert found is not None
    graph = found.graph(64, 64)
    last = ["cost_5", "along_5", "down_5", "radius", "spread"]
    rest = [[node.name] for node in graph.nodes if node.name not in last]
    plan = plan_of(graph, [*rest, last], ("cost_5", "along_5", "radius"), (32, 16), (1, 4))
    launch = lower_plan(plan, Options(), "x").launches[-1]
    made = assemble_kept(launch.kernel.ptx(compiler((), "sm_90")), "sm_90")
    (figures,) = (each for each in ptxas_figures(made.log).values() if each.registers is not None)
    assert figures.registers == 128
    fits = occupancy(90, 512, figures.registers, figures.shared_bytes or 0)
    assert fits is not None and fits.blocks == 1


@pytest.mark.parametrize("kind", ["block", "warp", "hybrid"])
def test_the_emulator_finds_a_missing_barrier(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of these tests are able to fail."""
    graph = chain.graph(100, 12)
    plan = plan_of(graph, [["hashed", "placed", "mixed"]], ("hashed",), (32, 2), (2, 1), kind, int(kind == "hybrid"))
    check(graph, plan, random_image(100, 12))
    monkeypatch.setattr(GroupKernel, "wait", "local_x = local_x")
    with pytest.raises(AssertionError, match="race"):
        check(graph, plan, random_image(100, 12))


# --- legality -----------------------------------------------------------------------------------------------------


@pipeline
def chain(src: Image[i32]) -> Image[i32]:
    first = hashed(Accessor(src, Boundary.CLAMP))
    return mixed(first, placed(Accessor(first, Boundary.CLAMP)))


def test_what_is_no_group() -> None:
    graph = chain.graph(64, 64)
    first, second, last = graph.nodes

    def problems(nodes: tuple[Node[Any], ...], **more: Any) -> list[str]:
        return list(Group(graph, nodes, **more).problems(Options()))

    assert problems((first, second, last)) == []
    assert problems((first, last)) == ["mixed needs placed, which is computed from the group outside of it"]
    assert problems((first, second), block=(64, 32)) == [
        "a block has 1 to 1024 threads, and a thread at least one pixel: (64, 32), (1, 1)"
    ]
    assert problems((first, second), tiled=frozenset([last])) == ["only operators of the group can be kept in tiles"]
    (needed,) = problems((first, second, last), tiled=frozenset([first]), block=(32, 32), pixels=(4, 4))
    assert needed.startswith("the tiles need 69680 bytes of shared memory")
    with pytest.raises(DslError, match="no group computes mixed"):
        Plan(graph, (Group(graph, (first, second)),)).check(Options())
    with pytest.raises(DslError, match="the group of placed comes before that of hashed"):
        Plan(graph, (Group(graph, (second, last)), Group(graph, (first,)))).check(Options())
    with pytest.raises(DslError, match="need each other"):
        groups_of(graph, [[first, last], [second]])


def test_plans_are_saved_and_checked_when_they_are_loaded() -> None:
    graph = chain.graph(64, 64)
    plan = plan_of(graph, [["hashed", "placed", "mixed"]], ("hashed",), pixels=(1, 2))
    text = plan.to_json()
    assert plan_from_json(graph, text, Options()) == plan
    for old, new, message in [
        ('"mixed"', '"other"', "a plan of chain has no 'other'"),
        ('"pipeline": "chain"', '"pipeline": "other"', "this is a plan of other, not of chain"),
        ("16", "2048", "a block has 1 to 1024 threads"),
        ("16", '"x"', "two integers"),
        ('"placed",', "", "mixed needs placed"),
        ("{", "", "this is not the JSON of a plan"),
        ("{", "[" * 100_000, "this is not the JSON of a plan"),
    ]:
        with pytest.raises(DslError, match=message):
            plan_from_json(graph, text.replace(old, new, 1), Options())
    swapped = text.replace('"hashed",', "", 1).replace('"placed",', '"placed", "hashed",', 1)
    with pytest.raises(DslError, match="in the order of the graph"):
        plan_from_json(graph, swapped, Options())


def test_a_plan_for_one_size_serves_others() -> None:
    graph = chain.graph(64, 64)
    lowered = lower_plan(plan_of(graph, [["hashed", "placed", "mixed"]], ("hashed",)), Options(), "plan")
    program = lowered.program(any_size=True)
    image = random_image(50, 40)
    arrays: dict[str, Any] = {"src": image.reshape(-1), "mixed": np.zeros(50 * 40, np.int32)}
    nvcc = compiler()
    loaded = program.load(EmulatorBackend(), lambda kernel: kernel.ptx(nvcc))
    made = loaded.run({**arrays, "src_width": np.int32(50), "src_height": np.int32(40)})["mixed"]
    (expected,) = computed(lower(chain.graph(50, 40)), image)
    assert np.array_equal(made.reshape(40, 50), expected)
