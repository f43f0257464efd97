"""The SIMT emulator: runs kernels on NumPy arrays, checks what a GPU does not report, and counts what is executed.

It imports nothing of the project but `ptx`. Use `Emulator().load(ptx).launch(kernel, grid, block, args)`;
`backend.EmulatorBackend` has the same functions under the interface that the GPU backend has, too.
"""

from .checks import EmulatorError, EmulatorFault, Finding, LaunchError, Place, UnsupportedInstruction
from .counts import Counts
from .instances import InstanceJudge
from .launch import Emulator, EmulatorModule, LaunchResult
from .textures import Surface, Texture

__all__ = [
    "Counts",
    "Emulator",
    "EmulatorError",
    "EmulatorFault",
    "EmulatorModule",
    "Finding",
    "InstanceJudge",
    "LaunchError",
    "LaunchResult",
    "Place",
    "Surface",
    "Texture",
    "UnsupportedInstruction",
]
