"""`ptxmotion completion`: prints the completion script of a shell."""

from __future__ import annotations

import argparse

from .outcome import FINE

EPILOG = """\
examples:
  ptxmotion completion bash > ~/.local/share/bash-completion/completions/ptxmotion
  ptxmotion completion zsh > "${fpath[1]}/_ptxmotion"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell to print the script for")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; its exit code."""
    import shtab

    from .arguments import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return FINE
