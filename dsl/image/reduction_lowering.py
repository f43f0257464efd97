"""The launch of a global operator.

With the lowering ``naive``, pixels are loaded one by one; all other lowerings load vectors. The results are the same
bits, because both combine pixels in the same order.
"""

from __future__ import annotations

import re
from typing import Any

from .. import types as t
from ..functions import Param
from .global_operators import BLOCK, GlobalNode, Histogram, Words
from .lowered import KernelArgument, Launch, Options
from .operators import Image, Scratch

__all__ = ["global_launch"]


def global_launch(node: GlobalNode, name: str, lowering: str, options: Options) -> Launch:
    """The launch, with a kernel called ``name``."""
    image, operator = node.accesses[0].image, node.operator
    found = re.match(r"sm_(\d+)", options.nvcc.arch) if options.nvcc is not None else None
    sm = int(found[1]) if found is not None else 0
    kernel = operator.kernel(image.pixel, name, vectors=lowering != "naive", arithmetic=options.arithmetic, sm=sm)
    grid = Words.of(image.pixel).blocks(image.width * image.height)
    if isinstance(operator, Histogram):
        memory = Scratch(f"{name}_totals", t.U32, operator.bins, is_zero=True)
    else:
        memory = Scratch(f"{name}_partial", operator.value, grid)
    counter = Scratch(f"{name}_counter", t.U32, 1, is_zero=True)
    values: list[Image[Any] | int] = [image.width * image.height, image, memory, counter, node]
    arguments = tuple(KernelArgument(Param(p.name, p.type), v) for p, v in zip(kernel.params, values, strict=True))
    return Launch(kernel, (grid, 1), (BLOCK, 1), arguments, (node,))
