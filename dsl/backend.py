"""The interface of machines that run host programs: the emulator, a GPU, or a test's own machine."""

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
    def nbytes(self) -> int:
        """The number of bytes."""
        ...


#: A kernel argument: a buffer for a pointer, a NumPy scalar of the parameter's type, or the bytes of a struct.
Argument: TypeAlias = "Buffer | np.generic | bytes"


class Module(Protocol):
    """A loaded PTX module."""

    def kernel(self, name: str, /) -> Any:
        """The kernel called ``name`` in the PTX, as an argument of `Backend.launch`."""
        ...


class Backend(Protocol):
    """A machine. Sizes and offsets are in bytes. Kernels run in the order of their launches.

    Two methods are optional. ``copy(target, source, nbytes, target_offset, source_offset)`` copies between buffers;
    without it the bytes are copied through the host. ``cooperative(kernel)`` gives the kernel for cooperative launches,
    in which all blocks run at the same time, as an argument of `launch`.
    """

    @property
    def name(self) -> str:
        """The kind of machine, such as ``cuda``, for messages and result files."""
        ...

    def load(self, ptx: str, /) -> Module:
        """Load the text of a PTX module."""
        ...

    def allocate(self, nbytes: int, /) -> Any:
        """A buffer of ``nbytes`` bytes, whose content is undefined."""
        ...

    def free(self, buffer: Any, /) -> None:
        """Release a buffer."""
        ...

    def write(self, buffer: Any, array: NDArray[Any], /, offset: int = 0) -> None:
        """Copy the bytes of an array to a buffer, from ``offset`` on."""
        ...

    def read(self, buffer: Any, dtype: np.dtype[Any], count: int, /, offset: int = 0) -> NDArray[Any]:
        """``count`` elements of a buffer, from ``offset`` on, as an array of the host."""
        ...

    def fill(self, buffer: Any, byte: int, /) -> None:
        """Set every byte of a buffer."""
        ...

    def launch(self, kernel: Any, grid: Dim3, block: Dim3, shared: int, args: Sequence[Any], /) -> None:
        """Launch a kernel of `Module.kernel` with ``shared`` bytes of dynamic shared memory."""
        ...

    def synchronize(self) -> None:
        """Wait until all launches have ended."""
        ...
