"""Which module runs a command: that of its verb, with the parsed arguments, or one that reads the arguments itself."""

from __future__ import annotations

__all__ = ["dispatch"]


def dispatch(argv: list[str]) -> int:
    """Call the verb that the arguments of the command name; its exit code. Errors are exceptions."""
    # All arguments are those of nvcc, and the parser takes time. The help of this verb is its own.
    if argv[:1] == ["nvcc"] and argv[1:] not in (["--help"], ["-h"]):
        from .nvcc import run_nvcc

        return run_nvcc(argv[1:])
    if argv[:2] == ["completion", "--complete"]:  # what a completion script calls: no settings, no messages
        from .completion import complete

        return complete(argv[2:])
    from .arguments import parse_arguments, verb_module

    arguments = parse_arguments(argv)
    return verb_module(arguments.verb).run(arguments)
