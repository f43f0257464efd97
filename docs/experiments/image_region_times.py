"""Why a partitioned kernel that has little work takes longer than the naive one: times of variants of one kernel.

    python docs/experiments/image_region_times.py

Needs nvcc, a GPU of the architecture (sm_90) and the extra `gpu`. Prints microseconds of a 3 x 3 filter with clamped
edges and of one over bytes, for images and blocks of several sizes:

- *naive*, *isp*;
- *last*: as `isp`, but the blocks at the right and at the bottom run the code of the body (they read other pixels);
- *body*: as `isp`, but blocks at an edge end after the tests, and their code is left out.

If *last* is as long as *isp*, regions that begin late are not the reason. If *body* is as long, the size of the code is
not either.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from image_isp import ARCH, Gpu, launch_as_json
from ptxmotion.dsl.image import Options
from ptxmotion.dsl.image.compiling import compiler
from ptxmotion.dsl.image.lowered import Launch
from ptxmotion.dsl.image.lowering import naive_node
from ptxmotion.dsl.image.partitioning import isp_node
from ptxmotion.suites.registry import find
from ptxmotion.toolchain.cubin_cache import assemble_kept

SIZES = ((512, 512), (517, 509), (640, 480), (768, 768), (1536, 1536))
BLOCKS = ((32, 4), (128, 2))
NEVER = (1 << 30) - 1


def variants(node: Any, options: Options) -> dict[str, Launch]:
    """The launches by their names."""
    isp = isp_node(node, "kernel", options)
    late = tuple(
        replace(each, value=NEVER) if each.param.name in ("right", "bottom") else each for each in isp.arguments
    )
    return {
        "naive": naive_node(node, "kernel", options),
        "isp": isp,
        "last": replace(isp, arguments=late),
        "body": isp_node(node, "kernel", options, body_only=True),
    }


def main() -> None:
    nvcc = compiler(("-fmad=false",), ARCH)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs: list[Any] = []
        for program in ("gaussian3x3", "box5x5"):
            pipeline = find(f"image/{program}").of({"boundary": "clamp"}).pipeline
            assert pipeline is not None
            for width, height in SIZES:
                graph = pipeline.graph(width, height)
                images = {image: number for number, image in enumerate((*graph.inputs, *graph.nodes))}
                for block in BLOCKS:
                    arms: dict[str, Any] = {}
                    for word, launch in variants(graph.nodes[0], Options(block, nvcc=nvcc)).items():
                        ptx = launch.kernel.ptx(nvcc)
                        arms[word] = launch_as_json(launch, ptx, images, {})
                        (folder / f"{arms[word]['file']}.cubin").write_bytes(assemble_kept(ptx, ARCH).cubin)
                    # The variant `last` reads behind the image.
                    nbytes = 4 * (width + 8) * (height + 8)
                    kind = "<f4" if program == "gaussian3x3" else "|u1"
                    runs.append({"arms": arms, "block": block, "images": [[nbytes, kind], [nbytes, kind]]})
                    runs[-1]["name"] = f"{program};{width}x{height};{block[0]}x{block[1]}"
        gpu = Gpu(folder, 15)
        for run in runs:
            gpu.make_room([nbytes for nbytes, _ in run["images"]])
            gpu.write_input(run)
            times = gpu.times({word: [gpu.call(arm, run["block"])] for word, arm in run["arms"].items()})
            print(run["name"], *(f"{word}={seconds * 1e6:.3f}" for word, seconds in times.items()), sep=";", flush=True)


if __name__ == "__main__":
    main()
