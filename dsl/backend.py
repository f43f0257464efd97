"""What a host program runs on: the emulator, a GPU, or a test's own machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Argument", "Backend", "Buffer", "Dim3", "Module"]

Dim3: TypeAlias = "tuple[int, int, int]"


class Buffer(Protocol):
    """Device memory."""

    @property
    def nbytes(self) -> int: ...


#: A buffer for a pointer, a NumPy scalar of the parameter's type, or the bytes of a struct.
Argument: TypeAlias = "Buffer | np.generic | bytes"


class Module(Protocol):
    """A loaded PTX module."""

    def kernel(self, name: str, /) -> Any:
        """The kernel called ``name`` in the PTX; what `Backend.launch` takes."""
        ...


class Backend(Protocol):
    """A machine. Addresses and sizes are in bytes; a module's kernels run in the order of their launches.

    One that copies between its buffers itself also has ``copy(target, source, nbytes, target_offset, source_offset)``;
    elsewhere the bytes pass through the host. One that can launch a kernel with all of its blocks at once has
    ``cooperative(kernel)``: the kernel for such launches, which `launch` takes.
    """

    @property
    def name(self) -> str: ...
    def load(self, ptx: str, /) -> Module: ...
    def allocate(self, nbytes: int, /) -> Any: ...
    def free(self, buffer: Any, /) -> None: ...
    def write(self, buffer: Any, array: NDArray[Any], /, offset: int = 0) -> None: ...
    def read(self, buffer: Any, dtype: np.dtype[Any], count: int, /, offset: int = 0) -> NDArray[Any]: ...
    def fill(self, buffer: Any, byte: int, /) -> None: ...
    def launch(self, kernel: Any, grid: Dim3, block: Dim3, shared: int, args: Sequence[Any], /) -> None: ...
    def synchronize(self) -> None: ...
