"""`ptxmotion image`: show how an image pipeline is lowered, and run it on pictures."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .outcome import FINE, usage_error

if TYPE_CHECKING:
    from ..dsl.image import Lowered
    from ..programs.image_pipelines import FoundPipeline

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG = """\
PIPELINE is FILE.py:NAME, a FILE.py with one @pipeline, or the name of a program of the suite image.

examples:
  ptxmotion image show harris
  ptxmotion image show image/sobel --lowering=isp --size 4096x4096 -o sobel.svg
"""

_SHOW = """\
examples:
  ptxmotion image show gaussian5x5
  ptxmotion image show edges.py:edges --lowering=isp+m --size 1920x1080 -o edges.svg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `image` and of each of its actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "print the graph of a pipeline, its launches, and what the model decided; draw them"
    each = actions.add_parser("show", help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=_SHOW)
    _add_pipeline(each)
    each.add_argument(
        "--size",
        action="append",
        type=_size,
        metavar="[NAME=]WxH",
        help="the size of the images, or of the image NAME; may be repeated (default: 512x512)",
    )
    each.add_argument("-o", dest="output", metavar="FILE", help="write the picture, an SVG file")


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pipeline", metavar="PIPELINE", help="FILE.py:NAME, FILE.py, or a program of the suite image")
    parser.add_argument("--lowering", metavar="LOWERING", help="naive, isp, isp_warp or isp+m (default: naive)")
    parser.add_argument("--block", type=_block, metavar="XxY", help="the threads of a block (default: 32x8)")


def _pair(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not two numbers such as 512x512")
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


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    return _show(arguments)


def _show(arguments: argparse.Namespace) -> int:
    from ..programs.image_pipelines import find_pipeline
    from .files import Outputs

    found = find_pipeline(arguments.pipeline)
    sizes: dict[str, tuple[int, int]] = dict.fromkeys(found.pipeline.images, (512, 512))
    for name, size in arguments.size or ():
        if name and name not in sizes:
            usage_error(f"--size: {found.pipeline.name} has no image '{name}'; there are {', '.join(sizes)}")
        for each in [name] if name else list(sizes):
            sizes[each] = size
    lowered = _lowered(found, sizes, arguments)
    print(lowered.graph)
    print(lowered)
    if arguments.output:
        from .pipeline_picture import draw_pipeline

        outputs = Outputs()
        outputs.add(arguments.output, draw_pipeline(lowered))
        outputs.commit()
    return FINE


def _lowered(found: FoundPipeline, sizes: Mapping[str, tuple[int, int]], arguments: Any) -> Lowered:
    """The pipeline by the chosen lowering, for these sizes."""
    from ..dsl.image import LOWERINGS, Options, lower
    from ..dsl.image.compiling import compiler
    from ..spelling import did_you_mean

    lowering = arguments.lowering or "naive"
    if lowering not in LOWERINGS:
        similar = did_you_mean(lowering, LOWERINGS)
        usage_error(f"--lowering: there is no lowering '{lowering}'{similar}; there are {', '.join(LOWERINGS)}")
    graph = found.pipeline.graph(sizes=sizes)
    # Only a lowering with a model compiles kernels.
    nvcc = compiler(found.flags) if lowering.endswith("+m") else None
    return lower(graph, lowering, Options(arguments.block or (32, 8), nvcc=nvcc))
