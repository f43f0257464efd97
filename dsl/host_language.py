"""The words of host programs: host arrays, device buffers, copies.

As in `language`, a type checker sees typed functions, and the parser sees `Word` objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import types as t
from .language import Word, type_from

if TYPE_CHECKING:
    from .language import const_ptr, ptr

T = TypeVar("T")

__all__ = ["allocate", "copy", "fill", "free", "host", "read", "write", "zeros"]


@dataclass(frozen=True, slots=True)
class HostArray:
    """The type of a host array."""

    element: t.Type


class HostArrayWord:
    """``host[...]`` at run time."""

    def __getitem__(self, element: object) -> HostArray:
        return HostArray(type_from(element))


if TYPE_CHECKING:

    class host(Generic[T]):
        """A C-contiguous NumPy array of the program's caller, or a slice of one."""

        size: int
        shape: tuple[int, ...]

        @overload
        def __getitem__(self, index: int | tuple[int, ...]) -> T: ...
        @overload
        def __getitem__(self, index: slice) -> host[T]: ...
        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: int | tuple[int, ...], value: T) -> None: ...
        def __len__(self) -> int: ...

    def allocate(type: type[T], count: int) -> ptr[T]:
        """A device buffer of ``count`` elements. Its content is undefined."""
        ...

    def zeros(type: type[T], count: int) -> host[T]:
        """A new host array of zeros."""
        ...

    def free(buffer: const_ptr[Any]) -> None:
        """Free a buffer. All buffers are freed at the end of the program."""
        ...

    def copy(target: ptr[T] | host[T], source: const_ptr[T] | host[T]) -> None:
        """Copy between host and device, or on the device. Either side may be a slice. Both sides have the same size."""
        ...

    def fill(buffer: ptr[Any], byte: int) -> None:
        """Set every byte of a buffer to ``byte``."""
        ...

    def read(buffer: const_ptr[T], index: int = 0) -> T:
        """One element of a buffer."""
        ...

    def write(buffer: ptr[T], index: int, value: T) -> None:
        """Set one element of a buffer."""
        ...

else:
    host = HostArrayWord()
    allocate, zeros, free, copy = Word("allocate"), Word("zeros"), Word("free"), Word("copy")
    fill, read, write = Word("fill"), Word("read"), Word("write")
