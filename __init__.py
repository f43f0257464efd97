"""ptxmotion: a post-compilation optimizer for NVIDIA PTX.

    >>> import ptxmotion
    >>> header = ".version 9.0\\n.target sm_90\\n.address_size 64\\n"
    >>> result = ptxmotion.optimize(header + ".entry k() { .reg .b32 %r; mov.u32 %r, 1; ret; }", "O1")
    >>> "mov" in result.text
    False

`parse` and `load` read PTX; `optimize` returns a `Result`; `Policy` says what it may assume.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["Policy", "Result", "__version__", "load", "optimize", "parse"]

if TYPE_CHECKING:
    from .driver import Policy, Result, optimize
    from .ptx import load, parse


def __getattr__(name: str) -> Any:
    # `opt` starts fast: nothing is imported before it is used.
    if name in ("Policy", "Result", "optimize"):
        from . import driver

        return getattr(driver, name)
    if name in ("load", "parse"):
        from . import ptx

        return getattr(ptx, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
