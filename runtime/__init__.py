"""Launches of kernels under a launch contract: on a GPU through cuda-python, or on the emulator.

    >>> import numpy as np
    >>> from ptxmotion.runtime import EmulatedDevice, load
    >>> ptx = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry one(.param .u64 x) {\\n" \\
    ...     ".reg .b64 %a; ld.param.b64 %a, [x]; st.global.b32 [%a], 1; ret; }"
    >>> x = np.zeros(1, np.int32)
    >>> load(ptx, device=EmulatedDevice())["one"].launch(1, 1, x)
    >>> int(x[0])
    1

The C library `ptxmotion_launch.c` does the same for programs in C; here it is used where it was built.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["ContractWarning", "CudaDevice", "Decision", "EmulatedDevice", "Flag", "Kernel", "Module", "Pointer", "load"]

if TYPE_CHECKING:
    from .arguments import Pointer
    from .choice import Flag
    from .cuda_device import CudaDevice
    from .emulated_device import EmulatedDevice
    from .module import ContractWarning, Decision, Kernel, Module, load

_PLACES = {
    "Pointer": "arguments",
    "Flag": "choice",
    "CudaDevice": "cuda_device",
    "EmulatedDevice": "emulated_device",
}


def __getattr__(name: str) -> Any:
    # cuda_device needs CUDA, and emulated_device NumPy: each is imported when it is used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PLACES.get(name, 'module')}"), name)
