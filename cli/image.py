"""`ptxmotion image`: show how an image pipeline is lowered, and run it on pictures."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outcome import FINE, usage_error

if TYPE_CHECKING:
    from ..dsl.image import Graph, Lowered, Options
    from ..dsl.image.groups import Plan
    from ..programs.image_pipelines import FoundPipeline

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG = """\
PIPELINE is FILE.py:NAME, a FILE.py with one @pipeline, or the name of a program of the suite image.

examples:
  ptxmotion image show harris
  ptxmotion image show image/sobel --lowering=isp --size 4096x4096 -o sobel.svg
  ptxmotion image run sobel in.png -o out.png
"""

#: The lowerings whose kernels have regions.
_PARTITIONED = ("isp", "isp_warp", "isp_rows", "isp+m")

_SHOW = """\
examples:
  ptxmotion image show gaussian5x5
  ptxmotion image show edges.py:edges --lowering=isp+m --size 1920x1080 -o edges.svg
  ptxmotion image show laplacian --lowering=fused --execution=auto
  ptxmotion image show bilateral13x13 --lowering=isp --size 4096x4096 --counts
"""

_RUN = """\
Pixels of u8, u16 and f32 are grey, those of uchar4 and float4 have colours; f32 and float4 are from 0 to 1. Results of
reductions are printed.

examples:
  ptxmotion image run edges.py:edges in.png -o out.png
  ptxmotion image run unsharp in.png --number amount=2.5 --backend=emulator -o out.png
"""


_TUNE = """\
examples:
  ptxmotion image tune harris --size 2048x2048 --seconds 30 -o harris.json    (on a machine with a GPU)
  ptxmotion image run harris in.png --schedule=harris.json -o out.png    (on a machine with a GPU)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `image` and of each of its actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "print the graph of a pipeline, its launches, and what the model decided; draw them"
    each = actions.add_parser("show", help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_SHOW)
    _add_pipeline(each)
    _add_size(each)
    each.add_argument(
        "--edges", action="store_true", default=None, help="also print what fusing each two operators would save"
    )
    each.add_argument("-o", dest="output", metavar="FILE", help="write the picture, an SVG file")
    each.add_argument(
        "--counts",
        action="store_true",
        help="also print the instructions of each region; needs --lowering=isp, isp_warp, isp_rows or isp+m",
    )
    each.add_argument(
        "--save-schedule", metavar="FILE", help="write the schedule, to be edited and used with --schedule"
    )
    text = "run a pipeline on pictures"
    each = actions.add_parser("run", help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_RUN)
    _add_pipeline(each)
    each.add_argument("pictures", nargs="+", metavar="PICTURE", help="a file for each image that the pipeline takes")
    each.add_argument(
        "-o", dest="outputs", action="append", metavar="FILE", help="write a result, a picture; once for each result"
    )
    _add_number(each)
    each.add_argument(
        "--backend",
        choices=("auto", "cuda", "emulator"),
        help="the GPU or the emulator (default: the GPU if there is one)",
    )

    text = "search for the fastest schedule of a pipeline on the GPU"
    each = actions.add_parser("tune", help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_TUNE)
    each.add_argument("pipeline", metavar="PIPELINE", help="FILE.py:NAME, FILE.py, or a program of the suite image")
    _add_size(each)
    _add_number(each)
    each.add_argument("--seconds", type=_seconds, default=60.0, help="how long to search (default: 60)")
    each.add_argument("-o", dest="output", metavar="FILE", required=True, help="write the schedule, for --schedule")


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="FILE.py:NAME, FILE.py, or a program of the suite image")
    parser.add_argument(
        "--lowering",
        metavar="LOWERING",
        help="naive, isp, isp_warp, isp_rows, isp+m, fused, fused+h or auto (default: naive)",
    )
    parser.add_argument(
        "--schedule",
        metavar="SCHEDULE",
        help="instead of a lowering: auto, dynamic, paper, greedy, fused, separate, or a file (see docs/images.md)",
    )
    parser.add_argument(
        "--block",
        type=_block,
        metavar="XxY",
        help="the threads of a block, where no search chooses them (default: 32x8)",
    )
    parser.add_argument(
        "--execution",
        choices=("stream", "graph", "auto", "pipelined"),
        help="launches in a stream, a CUDA graph, what the model chooses, or kernel pipelining of kernels with "
        "complementary resources; `show` prints the plan (default: stream)",
    )


def _add_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        action="append",
        type=_size,
        metavar="[NAME=]WxH",
        help="the size of the images, or of the image NAME; may be repeated (default: 512x512)",
    )


def _add_number(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--number",
        action="append",
        type=_number,
        metavar="NAME=VALUE",
        help="a number that the pipeline takes; may be repeated (default: those of the program of the suite)",
    )


def _pair(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not two numbers from 1 on, such as 512x512")
    return int(found[1]), int(found[2])


def _block(text: str) -> tuple[int, int]:
    x, y = _pair(text)
    if x * y > 1024:
        raise argparse.ArgumentTypeError(f"a block has at most 1024 threads, not {x} x {y}")
    return x, y


def _size(text: str) -> tuple[str, tuple[int, int]]:
    """The argparse type of ``--size``: the name of an image, or nothing for all of them, and width and height.

    >>> _size("src=640x480"), _size("64x48")
    (('src', (640, 480)), ('', (64, 48)))
    """
    name, _, size = text.rpartition("=")
    return name, _pair(size)


def _number(text: str) -> tuple[str, float]:
    """The argparse type of ``--number``.

    >>> _number("amount=2.5"), _number("limit=3")
    (('amount', 2.5), ('limit', 3))
    """
    name, _, value = text.partition("=")
    try:
        return name, int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number with its name, such as limit=0.5") from None


def _seconds(text: str) -> float:
    """The argparse type of ``--seconds``.

    >>> _seconds("2.5")
    2.5
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    if arguments.action == "tune":
        return _tune(arguments)
    return _show(arguments) if arguments.action == "show" else _run(arguments)


def _tune(arguments: argparse.Namespace) -> int:
    """Search for the fastest schedule, with a line for each better one."""
    from ..dsl.image import Options
    from ..dsl.image.schedule.timing import tuned
    from ..programs.image_pipelines import find_pipeline
    from .files import Outputs
    from .outcome import say

    found = find_pipeline(arguments.pipeline)
    graph = found.pipeline.graph(sizes=_sizes(found, arguments.size))
    names = [name for name in found.pipeline.params if name not in found.pipeline.images]
    numbers = dict(zip(names, _numbers(found, dict(arguments.number or ())), strict=True))
    best = tuned(graph, Options(nvcc=_compiler(found)), numbers, arguments.seconds, say)
    print(best.plan)
    print(f"{best.microseconds:.2f} us, the fastest of {len(best.times)} schedules")
    outputs = Outputs()
    outputs.add(arguments.output, best.plan.to_json())
    outputs.commit()
    return FINE


def _show(arguments: argparse.Namespace) -> int:
    from ..programs.image_pipelines import find_pipeline
    from .files import Outputs

    found = find_pipeline(arguments.pipeline)
    sizes = _sizes(found, arguments.size)
    if arguments.save_schedule and arguments.schedule is None:
        usage_error("--save-schedule writes the schedule of --schedule")
    if arguments.output and arguments.output == arguments.save_schedule:
        usage_error(f"-o and --save-schedule are the same file, {arguments.output}")
    if arguments.output and Path(arguments.output).suffix.lower() not in ("", ".svg"):
        usage_error(f"the picture is an SVG file: -o FILE.svg, not {arguments.output}")
    if arguments.counts and arguments.lowering not in _PARTITIONED:
        usage_error(f"--counts counts the instructions of regions: --lowering={', '.join(_PARTITIONED)}")
    lowered = _lowered(found, sizes, arguments)
    print(lowered.graph)
    print(lowered)
    if arguments.edges:
        from ..dsl.image.fusion.planning import GroupProblem

        problem = GroupProblem(lowered.graph, lowered.options, horizontal=lowered.lowering == "fused+h")
        print("\n".join(problem.lines()))
    if arguments.execution:
        from ..dsl.image import Compiled

        print(Compiled(lowered, _compiler(found), arguments.execution).plan)
    if arguments.counts:
        _print_counts(found, lowered, arguments.lowering)
    outputs = Outputs()
    if arguments.save_schedule:
        graph = found.pipeline.graph(sizes=sizes)  # that of `lowered` may have operators that the search added
        outputs.add(arguments.save_schedule, _plan(graph, lowered.options, arguments.schedule).to_json())
    if arguments.output:
        from .pipeline_picture import draw_pipeline

        outputs.add(arguments.output, draw_pipeline(lowered))
    outputs.commit()
    return FINE


def _sizes(found: FoundPipeline, given: Sequence[tuple[str, tuple[int, int]]] | None) -> dict[str, tuple[int, int]]:
    """By image: its size, from ``--size``."""
    sizes: dict[str, tuple[int, int]] = dict.fromkeys(found.pipeline.images, (512, 512))
    for name, size in given or ():
        if name and name not in sizes:
            usage_error(f"--size: {found.pipeline.name} has no image '{name}'; there are {', '.join(sizes)}")
        for each in [name] if name else list(sizes):
            sizes[each] = size
    return sizes


def _print_counts(found: FoundPipeline, lowered: Lowered, lowering: str) -> None:
    from ..dsl.image.instruction_table import instruction_table

    options = replace(lowered.options, nvcc=_compiler(found))
    for node in lowered.graph.nodes:
        if node.operator.kind == "local":
            chosen = "isp" if lowering == "isp+m" else lowering
            print("\n".join(instruction_table(node, chosen, options)))


def _lowered(found: FoundPipeline, sizes: Mapping[str, tuple[int, int]], arguments: Any) -> Lowered:
    """The pipeline by the chosen lowering, for these sizes."""
    from ..dsl.image import LOWERINGS, Options, lower
    from ..spelling import did_you_mean

    if arguments.schedule is not None:
        from ..dsl.image.group_lowering import lower_plan
        from ..dsl.image.schedule.auto import SCHEDULES

        if arguments.lowering:
            usage_error("--schedule and --lowering exclude each other")
        if arguments.block and arguments.schedule not in SCHEDULES:
            usage_error("the file of a schedule has the blocks of its groups: leave out --block")
        options = Options(arguments.block or (32, 8))
        return lower_plan(_plan(found.pipeline.graph(sizes=sizes), options, arguments.schedule), options, "schedule")
    lowering = arguments.lowering or "naive"
    if lowering not in LOWERINGS:
        similar = did_you_mean(lowering, LOWERINGS)
        usage_error(f"--lowering: there is no lowering '{lowering}'{similar}; there are {', '.join(LOWERINGS)}")
    graph = found.pipeline.graph(sizes=sizes)
    # Only a lowering with a model compiles kernels.
    nvcc = _compiler(found) if lowering.endswith("+m") else None
    return lower(graph, lowering, Options(arguments.block or (32, 8), nvcc=nvcc))


def _plan(graph: Graph, options: Options, schedule: str) -> Plan:
    """The plan of a graph by the name of a schedule, or of a file."""
    from ..dsl.image.groups import plan_from_json
    from ..dsl.image.schedule.auto import SCHEDULES, scheduled
    from ..spelling import did_you_mean

    if schedule in SCHEDULES:
        return scheduled(graph, options, schedule)
    if not schedule or not Path(schedule).exists():
        hint = did_you_mean(schedule, SCHEDULES)
        usage_error(f"--schedule: there is no file '{schedule}'{hint}; schedules with names are {', '.join(SCHEDULES)}")
    try:
        text = Path(schedule).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        usage_error(f"--schedule: {schedule} is not a text file in UTF-8")
    return plan_from_json(graph, text, options)


def _run(arguments: argparse.Namespace) -> int:
    from ..dsl.image.execution import Compiled
    from ..dsl.image.operators import ImageType, Node
    from ..harness.machine import choose
    from ..programs.image_pipelines import find_pipeline
    from .files import Outputs
    from .outcome import say
    from .pictures import check_pixel, picture_file, read_picture

    found = find_pipeline(arguments.pipeline)
    pipeline = found.pipeline
    if len(arguments.pictures) != len(pipeline.images):
        usage_error(
            f"{pipeline.name} takes a picture for each of {', '.join(pipeline.images)}; "
            f"{len(arguments.pictures)} are given"
        )
    numbers = _numbers(found, dict(arguments.number or ()))
    pixels = {name: str(type.pixel) for name, type in pipeline.params.items() if isinstance(type, ImageType)}
    for name, pixel in pixels.items():
        check_pixel(pixel, f"image {name} of {pipeline.name}")
    images = [read_picture(path, pixels[name]) for name, path in zip(pipeline.images, arguments.pictures, strict=True)]
    sizes = {name: (image.shape[1], image.shape[0]) for name, image in zip(pipeline.images, images, strict=True)}
    lowered = _lowered(found, sizes, arguments)
    drawn = [node for node in lowered.graph.outputs if node.operator.kind != "global"]
    paths = list(arguments.outputs or ())
    if len(paths) != len(drawn):
        names = ", ".join(node.name for node in drawn) or "none"
        usage_error(f"-o: a file for each result that is a picture: {names}; {len(paths)} are given")
    for node in drawn:
        check_pixel(str(node.pixel), f"the result {node.name} of {pipeline.name}")
    machine, _, why = choose(arguments.backend or "auto", False)
    say(why)
    compiled = Compiled(lowered, _compiler(found), arguments.execution or "stream")
    made: Any = compiled(*images, *numbers, backend=machine.open())
    several: list[Any] = [made] if len(lowered.graph.outputs) == 1 else list(made)
    results: dict[Node[Any], Any] = dict(zip(lowered.graph.outputs, several, strict=True))
    outputs = Outputs()
    for path, node in zip(paths, drawn, strict=True):
        outputs.add(path, picture_file(path, results[node], str(node.pixel)))
    outputs.commit()
    for node, result in results.items():
        if node not in drawn:
            print(f"{node.name}: {' '.join(str(value) for value in result.reshape(-1).tolist())}")
    return FINE


def _compiler(found: FoundPipeline) -> Any:
    from ..dsl.image.compiling import compiler

    return compiler(found.flags)


def _numbers(found: FoundPipeline, given: Mapping[str, float]) -> list[Any]:
    """The numbers that a pipeline takes, in its order."""
    wanted = [name for name in found.pipeline.params if name not in found.pipeline.images]
    if unknown := sorted(given.keys() - set(wanted)):
        usage_error(
            f"--number: {found.pipeline.name} has no number '{unknown[0]}'; it has {', '.join(wanted) or 'none'}"
        )
    values = {**found.numbers, **given}
    if missing := [name for name in wanted if name not in values]:
        usage_error(f"{found.pipeline.name} takes the number {missing[0]}: --number {missing[0]}=VALUE")
    return [values[name] for name in wanted]
