"""The SIMT emulator: runs the IR on NumPy lanes, checks what a GPU hides, counts what it does.

Sees `ptx` and nothing else of ours. `Emulator().load(ptx).launch(kernel, grid, block, args)` is the way in;
`backend.EmulatorBackend` is the same behind the protocol that the GPU backend has too.
"""

from .checks import EmulatorError, EmulatorFault, Finding, LaunchError, Place, UnsupportedInstruction
from .counts import Counts
from .instances import InstanceJudge
from .launch import Emulator, EmulatorModule, LaunchResult

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
    "UnsupportedInstruction",
]
