"""Python in, CUDA C++ out; host programs as a graph of launches. Sees `ptx` only.

`docs/dsl.md` is the language's manual, `docs/writing-a-benchmark.md` the way from one's own kernel to a benchmark.
"""

from .compilation import Nvcc
from .errors import DslError
from .host_language import *  # noqa: F403
from .host_language import __all__ as _host_language
from .intrinsics import *  # noqa: F403
from .intrinsics import __all__ as _intrinsics
from .kernel import CudaKernel, Kernel, PtxSource, PythonKernel, cuda_source, device, kernel, ptx_source
from .language import *  # noqa: F403
from .language import __all__ as _language
from .program import Program, program, program_from_text

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "CudaKernel",
    "DslError",
    "Kernel",
    "Nvcc",
    "Program",
    "PtxSource",
    "PythonKernel",
    "cuda_source",
    "device",
    "kernel",
    "program",
    "program_from_text",
    "ptx_source",
    *_host_language,
    *_intrinsics,
    *_language,
]
