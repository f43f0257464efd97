"""Image operators and pipelines. docs/images.md is the manual.

A pipeline is a graph of operators (`pipeline`), which a lowering turns into kernels of the kernel language (`lowering`,
`lowerings`). The kernels run on arrays (`execution`), or as a host program, like any other (`lowered`).
"""

from .borders import Boundary, index_map
from .execution import Compiled, Pipeline, pipeline
from .global_operators import Histogram, Reduction, maximum, mean, minimum, reduction, total
from .graph import Graph, graph_of
from .lowered import Lowered, Options
from .lowerings import LOWERINGS, lower
from .operators import Accessor, Image, IterationSpace, Operator, local, operator_from_text, point
from .windows import Domain, Mask, Window, here

__all__ = [
    "total",
    "reduction",
    "minimum",
    "mean",
    "maximum",
    "Reduction",
    "Histogram",
    "LOWERINGS",
    "Accessor",
    "Boundary",
    "Compiled",
    "Domain",
    "Graph",
    "Image",
    "IterationSpace",
    "Lowered",
    "Mask",
    "Operator",
    "Options",
    "Pipeline",
    "Window",
    "graph_of",
    "here",
    "index_map",
    "local",
    "lower",
    "operator_from_text",
    "pipeline",
    "point",
]
