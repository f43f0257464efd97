"""Facts about a kernel. Nothing in here changes one."""

from .manager import Facts

__all__ = ["Facts"]
