"""Python to CUDA C++; host programs as graphs of launches. Imports only `ptx` and leaf modules.

docs/dsl.md is the manual of the language. docs/writing-a-benchmark.md shows how to make a benchmark of one's own
kernel.
"""

from .compilation import Nvcc
from .errors import DslError
from .host_language import *  # noqa: F403
from .host_language import __all__ as _host_language
from .intrinsics import *  # noqa: F403
from .intrinsics import __all__ as _intrinsics
from .kernel import (
    CudaKernel,
    Kernel,
    PtxSource,
    PythonKernel,
    cuda_source,
    device,
    device_from_text,
    kernel,
    kernel_from_text,
    ptx_source,
)
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
    "device_from_text",
    "kernel",
    "kernel_from_text",
    "program",
    "program_from_text",
    "ptx_source",
    *_host_language,
    *_intrinsics,
    *_language,
]
