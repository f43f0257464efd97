"""Analyses: facts about a kernel. They do not change the kernel."""

from .manager import Facts

__all__ = ["Facts"]
